//! Kinds in two versions: the one that the steps work on, and an older one. Either of them is stored.

use cloudprovider::{
    MachineTypes,
    machines::{AdmissionRule, ForeignVersion, MachineColumns, OlderVersion},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, WebhookClientConfig, WebhookConversion,
};

use super::{Definitions, DefinitionsError, V1BETA2, foreign::column, foreign_definitions, policy};

/// The path at which objects are converted.
pub const CONVERSION_PATH: &str = "/convert";

/// The name of the health check that the API server can have all objects converted. A pod is ready without it.
pub const DEFINITIONS_CHECK: &str = "conversion-definitions";

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
        let auxiliary = ForeignVersion::new(types.kinds.version, contract, (types.auxiliary)());
        let auxiliary = foreign_definitions(provider, types.kinds.group, &auxiliary)?;
        made.auxiliary = auxiliary.crds;
        made.add_rules(provider, types);
        made.rules.extend(auxiliary.policies);
        if let Some(columns) = types.columns {
            made.show(columns);
        }
        if let Some(older) = types.older {
            made.add_older(provider, types.kinds.group, older)?;
        }
        Ok(made)
    }

    /// Adds the rules of machines and of their templates.
    fn add_rules(&mut self, provider: &str, types: &MachineTypes) {
        let labels = self.template_policy.metadata.labels.clone().unwrap_or_default();
        let of = |crd: &CustomResourceDefinition, rules: &'static [AdmissionRule]| {
            let (group, plural, labels) = (types.kinds.group, &crd.spec.names.plural, labels.clone());
            let name = format!("{provider}-{plural}.{group}");
            policy::of_kind(name, group, types.kinds.version, plural, rules, labels)
        };
        let of_kinds =
            [(&self.machine, types.machine_rules), (&self.machine_template, types.machine_template_rules)];
        let rules = of_kinds.into_iter().filter(|(_, rules)| !rules.is_empty());
        self.rules = rules.map(|(crd, rules)| of(crd, rules)).collect();
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

    /// Adds the older version to each definition, with its rules.
    fn add_older(
        &mut self,
        provider: &str,
        group: &str,
        older: OlderVersion,
    ) -> Result<(), DefinitionsError> {
        let version = (older.definitions)();
        let made = foreign_definitions(provider, group, &version)?;
        let mut crds = made.crds;
        let mut problems = Vec::new();
        for crd in self.all() {
            let Some(position) = crds.iter().position(|one| one.metadata.name == crd.metadata.name) else {
                problems.push(format!("{}: it has no older version", crd.spec.names.kind));
                continue;
            };
            let mut with = crds.swap_remove(position);
            if with.spec.scope != crd.spec.scope {
                problems.push(format!("{}: it is not in namespaces in all versions", crd.spec.names.kind));
            }
            for one in &mut crd.spec.versions {
                one.storage = !older.is_stored;
            }
            for one in &mut with.spec.versions {
                one.storage = older.is_stored;
                // The API server warns each client that still uses it.
                one.deprecated = Some(true);
            }
            crd.spec.versions.extend(with.spec.versions);
            crd.metadata.labels.get_or_insert_default().extend(with.metadata.labels.unwrap_or_default());
        }
        problems.extend(
            crds.iter().map(|crd| format!("{}: there is only an older version", crd.spec.names.kind)),
        );
        if !problems.is_empty() {
            return Err(DefinitionsError { provider: provider.to_owned(), problems });
        }
        // The policy about templates is there, for all versions.
        let of_kinds = version.kinds.iter().map(|kind| kind.kind.plural);
        let rules = of_kinds.filter_map(|plural| {
            let name = Some(format!("{provider}-{plural}.{group}"));
            let found = made.policies.iter().find(|(policy, _)| policy.metadata.name == name)?;
            let name = format!("{provider}-{plural}-{}.{group}", version.version);
            Some(policy::renamed(found.clone(), name))
        });
        self.rules.extend(rules);
        Ok(())
    }

    fn all(&mut self) -> Vec<&mut CustomResourceDefinition> {
        let Self { machine, machine_template, cluster, cluster_template, auxiliary, .. } = self;
        [machine, machine_template, cluster, cluster_template].into_iter().chain(auxiliary).collect()
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

    fn types(auxiliary: fn() -> Vec<KindDefinition>) -> MachineTypes {
        MachineTypes::new(kinds(), schemas).with_auxiliary(auxiliary).with_older(older, same)
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
            assert_eq!(versions, [(steps, true), ("v0", false)], "{}", crd.spec.names.kind);
            let deprecated: Vec<_> = crd.spec.versions.iter().map(|one| one.deprecated).collect();
            assert_eq!(deprecated, [None, Some(true)], "{}", crd.spec.names.kind);
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
    fn either_version_is_stored() {
        let types = types(|| vec![one("FakeZone", "fakezones").cluster_scoped()]);
        for stored in types.versions() {
            let types = types.stored_in(stored).expect("one of them");
            for crd in Definitions::of("fake", &types).expect("good types").crds() {
                let versions = crd.spec.versions.iter();
                let storing: Vec<_> = versions.filter(|one| one.storage).map(|one| &*one.name).collect();
                assert_eq!(storing, [stored], "{}", crd.spec.names.kind);
                assert!(crd.spec.versions.iter().all(|one| one.served), "{}", crd.spec.names.kind);
            }
        }
    }

    /// A request would be converted for the rules of another version.
    #[test]
    fn each_version_has_its_rules() {
        const RULES: [AdmissionRule; 1] = [AdmissionRule::new("a", "b")];
        fn older_with_rules() -> ForeignVersion {
            let mut version = older();
            version.kinds = version.kinds.into_iter().map(|kind| kind.with_rules(&RULES)).collect();
            version
        }
        let zones = || vec![one("FakeZone", "fakezones").cluster_scoped().with_rules(&RULES)];
        let types = MachineTypes::new(kinds(), schemas).with_auxiliary(zones).with_rules(&RULES, &RULES);
        let types = types.with_older(older_with_rules, same);
        let made = Definitions::of("fake", &types).expect("good types");
        let mut seen: Vec<_> = Vec::new();
        for (policy, binding) in made.policies().into_iter().skip(1) {
            let name = policy.metadata.name.clone().unwrap_or_default();
            assert_eq!(binding.spec.policy_name, name);
            let matched =
                policy.spec.as_ref().and_then(|spec| spec.match_constraints.as_ref()).expect("rules");
            assert_eq!(matched.match_policy.as_deref(), Some("Exact"), "{name}");
            let rule = matched.resource_rules.as_ref().and_then(|rules| rules.first()).expect("a rule");
            let version =
                rule.api_versions.as_ref().and_then(|versions| versions.first()).expect("a version");
            seen.push((name.split('.').next().unwrap_or_default().to_owned(), version.clone()));
        }
        let steps = kinds().version;
        let expected = [
            ("fake-fakemachines", steps),
            ("fake-fakemachinetemplates", steps),
            ("fake-fakezones", steps),
            ("fake-fakemachines-v0", "v0"),
            ("fake-fakemachinetemplates-v0", "v0"),
            ("fake-fakeclusters-v0", "v0"),
            ("fake-fakeclustertemplates-v0", "v0"),
            ("fake-fakezones-v0", "v0"),
        ];
        assert_eq!(seen, expected.map(|(name, version)| (name.to_owned(), version.to_owned())));
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
            ["FakeVm: it has no older version", "FakeZone: there is only an older version"]
        );
    }
}
