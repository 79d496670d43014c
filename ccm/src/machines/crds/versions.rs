//! Kinds in two versions: the one that the steps work on, and the one that is stored.

use cloudprovider::{
    MachineTypes,
    machines::{ForeignVersion, MachineColumns, StoredVersion},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, WebhookClientConfig, WebhookConversion,
};

use super::{Definitions, DefinitionsError, V1BETA2, foreign::column, foreign_definitions};

/// The path at which objects are converted.
pub const CONVERSION_PATH: &str = "/convert";

/// The name of the health check that the API server can have all objects converted. A pod is ready without it.
pub(crate) const DEFINITIONS_CHECK: &str = "conversion-definitions";

/// The version of the requests for conversions.
const REVIEW_VERSION: &str = "v1";

impl Definitions {
    /// Makes the definitions of all kinds of a provider, such as `libvirt`, in all versions.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if a kind is not in all versions.
    pub fn of(provider: &str, types: &MachineTypes) -> Result<Self, DefinitionsError> {
        let mut made = Self::new(provider, &types.kinds, &(types.schemas)())?;
        let (_, contract) = V1BETA2.split_once('/').unwrap_or_default();
        let further = ForeignVersion::new(types.kinds.version, contract, (types.further)());
        let further = foreign_definitions(provider, types.kinds.group, &further)?;
        made.further = further.crds;
        made.rules = further.policies;
        if let Some(columns) = types.columns {
            made.show(columns);
        }
        if let Some(stored) = types.stored {
            made.store_as(provider, types.kinds.group, stored)?;
        }
        Ok(made)
    }

    /// Puts a provider's columns in the place of the controller's.
    fn show(&mut self, columns: MachineColumns) {
        for (crd, columns) in [
            (&mut self.machine, columns.machine),
            (&mut self.machine_template, columns.machine_template),
            (&mut self.cluster, columns.cluster),
            (&mut self.cluster_template, columns.cluster_template),
        ] {
            for version in &mut crd.spec.versions {
                version.additional_printer_columns = Some(columns.iter().map(column).collect());
            }
        }
    }

    /// Says who converts the objects of kinds with several versions.
    pub fn set_conversion(&mut self, client: &WebhookClientConfig) {
        for crd in self.all().into_iter().filter(|crd| has_versions(crd)) {
            crd.spec.conversion = Some(CustomResourceConversion {
                strategy: "Webhook".to_owned(),
                webhook: Some(WebhookConversion {
                    client_config: Some(client.clone()),
                    conversion_review_versions: vec![REVIEW_VERSION.to_owned()],
                }),
            });
        }
    }

    /// Adds the stored version to each definition, with its rules.
    fn store_as(
        &mut self,
        provider: &str,
        group: &str,
        stored: StoredVersion,
    ) -> Result<(), DefinitionsError> {
        let stored = foreign_definitions(provider, group, &(stored.definitions)())?;
        let mut crds = stored.crds;
        let mut problems = Vec::new();
        for crd in self.all() {
            let Some(position) = crds.iter().position(|one| one.metadata.name == crd.metadata.name) else {
                problems.push(format!("{}: it has no stored version", crd.spec.names.kind));
                continue;
            };
            let stored = crds.swap_remove(position);
            if stored.spec.scope != crd.spec.scope {
                problems.push(format!("{}: it is not in namespaces in all versions", crd.spec.names.kind));
            }
            for version in &mut crd.spec.versions {
                version.storage = false;
            }
            crd.spec.versions.extend(stored.spec.versions);
            crd.metadata.labels.get_or_insert_default().extend(stored.metadata.labels.unwrap_or_default());
        }
        problems.extend(
            crds.iter().map(|crd| format!("{}: there is only a stored version", crd.spec.names.kind)),
        );
        if !problems.is_empty() {
            return Err(DefinitionsError { provider: provider.to_owned(), problems });
        }
        // Rules are about one version, and requests in others are converted to it. The policy about templates is there.
        let of_templates = self.template_policy.metadata.name.clone();
        let rules = stored.policies.into_iter().filter(|(policy, _)| policy.metadata.name != of_templates);
        self.rules.extend(rules);
        Ok(())
    }

    fn all(&mut self) -> Vec<&mut CustomResourceDefinition> {
        let Self { machine, machine_template, cluster, cluster_template, further, .. } = self;
        [machine, machine_template, cluster, cluster_template].into_iter().chain(further).collect()
    }
}

/// Whether the objects of a kind are converted.
pub fn has_versions(crd: &CustomResourceDefinition) -> bool {
    crd.spec.versions.len() > 1
}

#[cfg(test)]
mod tests {
    use cloudprovider::{
        DynMachines,
        machines::{Column, Kind, KindDefinition, Kinds, MachineColumns, Schemas},
        testing::FakeCloud,
    };
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ServiceReference;
    use serde_json::{Value, json};

    use super::*;

    fn kinds() -> Kinds {
        FakeCloud::new().with_machines().provider().machines().map(DynMachines::kinds).expect("machines")
    }

    fn schemas() -> Schemas {
        FakeCloud::new().with_machines().provider().machines().map(DynMachines::schemas).expect("machines")
    }

    fn one(kind: &'static str, plural: &'static str) -> KindDefinition {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        KindDefinition::new(Kind::new(kind, plural), "Something.", any)
    }

    fn older() -> ForeignVersion {
        let kinds = vec![
            one("FakeMachine", "fakemachines"),
            one("FakeMachineTemplate", "fakemachinetemplates").template(),
            one("FakeCluster", "fakeclusters"),
            one("FakeClusterTemplate", "fakeclustertemplates").template(),
            one("FakeZone", "fakezones").cluster_scoped(),
        ];
        ForeignVersion::new("v0", "v1beta1", kinds)
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the contract has it")]
    fn same(object: Value, _version: &str) -> cloudprovider::Result<Value> {
        Ok(object)
    }

    fn types(further: fn() -> Vec<KindDefinition>) -> MachineTypes {
        MachineTypes::new(kinds(), schemas).with_further(further).stored_as(older, same)
    }

    #[test]
    fn all_kinds_have_both_versions() {
        let types = types(|| vec![one("FakeZone", "fakezones").cluster_scoped()]);
        let mut made = Definitions::of("fake", &types).expect("good types");
        let service =
            ServiceReference { name: "s".into(), namespace: "n".into(), ..ServiceReference::default() };
        made.set_conversion(&WebhookClientConfig {
            service: Some(service),
            ..WebhookClientConfig::default()
        });
        assert_eq!(made.crds().len(), 5);
        let steps = kinds().version;
        for crd in made.crds() {
            let versions: Vec<_> = crd.spec.versions.iter().map(|one| (&*one.name, one.storage)).collect();
            assert_eq!(versions, [(steps, false), ("v0", true)], "{}", crd.spec.names.kind);
            let labels = crd.metadata.labels.as_ref().expect("labels");
            assert_eq!(labels["cluster.x-k8s.io/v1beta1"], "v0");
            assert_eq!(labels["cluster.x-k8s.io/v1beta2"], steps);
            let conversion = crd.spec.conversion.as_ref().expect("a conversion");
            let webhook = conversion.webhook.as_ref().expect("a webhook");
            assert_eq!((&*conversion.strategy, &*webhook.conversion_review_versions[0]), ("Webhook", "v1"));
        }
        assert_eq!(made.policies().len(), 1, "templates have one policy");
    }

    #[test]
    fn a_provider_may_have_columns_of_its_own() {
        const AGE: [Column; 1] = [Column::age()];
        const MACHINE: [Column; 2] =
            [Column::new("Host", ".status.host", "Where it is.").wide(), Column::age()];
        let columns = MachineColumns {
            machine: &MACHINE,
            machine_template: &AGE,
            cluster: &AGE,
            cluster_template: &AGE,
        };
        let named = |types: MachineTypes| {
            let made = Definitions::of("fake", &types).expect("good types");
            let columns = made.machine.spec.versions[0].additional_printer_columns.clone().expect("columns");
            columns.into_iter().map(|one| (one.name, one.priority)).collect::<Vec<_>>()
        };
        let of_the_controller = named(MachineTypes::new(kinds(), schemas));
        assert!(of_the_controller.iter().any(|(name, _)| name == "Ready"), "{of_the_controller:?}");
        let own = named(MachineTypes::new(kinds(), schemas).with_columns(columns));
        assert_eq!(own, [("Host".to_owned(), Some(1)), ("Age".to_owned(), None)]);
    }

    #[test]
    fn one_version_is_not_converted() {
        let mut made = Definitions::of("fake", &MachineTypes::new(kinds(), schemas)).expect("good types");
        made.set_conversion(&WebhookClientConfig::default());
        assert!(made.crds().iter().all(|crd| crd.spec.conversion.is_none()));
        assert_eq!(made.crds().len(), 4);
    }

    #[test]
    fn a_kind_is_in_all_versions_or_none() {
        let error =
            Definitions::of("fake", &types(|| vec![one("FakeVm", "fakevms")])).expect_err("two are odd");
        assert_eq!(
            error.problems,
            ["FakeVm: it has no stored version", "FakeZone: there is only a stored version"]
        );
    }
}
