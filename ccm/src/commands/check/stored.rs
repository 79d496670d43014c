//! In which versions the API server stores objects of machines.

use std::collections::BTreeMap;

use cloudprovider::MachineTypes;
use component::api_client::describe;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::ListParams};

use super::{
    super::tools::ANSWER_WITHIN,
    report::{MACHINES, Report},
};
use crate::permissions::definitions_of;

/// What the definition of a kind says of the versions of its objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stored {
    /// In which they are written.
    version: String,
    /// In which further ones some may still be stored.
    others: Vec<String>,
}

impl From<&CustomResourceDefinition> for Stored {
    fn from(crd: &CustomResourceDefinition) -> Self {
        let version = crd.spec.versions.iter().find(|version| version.storage);
        let version = version.map(|version| version.name.clone()).unwrap_or_default();
        let all = crd.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default();
        let others = all.into_iter().filter(|one| *one != version).collect();
        Self { version, others }
    }
}

/// Names the versions in which objects of kinds with an older version are stored.
pub(super) async fn check_stored(client: &Client, types: &MachineTypes, report: &mut Report) {
    if types.older.is_none() {
        return;
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut found = BTreeMap::<Stored, Vec<String>>::new();
    for name in definitions_of(types) {
        // As the daemon reads them, which may list each of them alone.
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let why = match tokio::time::timeout(ANSWER_WITHIN, definitions.list(&params)).await {
            Ok(Ok(list)) => {
                for crd in &list.items {
                    found.entry(crd.into()).or_default().push(name.clone());
                }
                continue;
            }
            Ok(Err(error)) => describe(&error),
            Err(_) => format!("the API server did not answer within {ANSWER_WITHIN:?}"),
        };
        let words = format!(
            "the CustomResourceDefinition {name} cannot be read, so nobody knows in which versions objects are stored: {why}"
        );
        return report.warning(MACHINES, words);
    }
    for (stored, names) in found {
        tell(&stored, &names, types, report);
    }
}

fn tell(stored: &Stored, names: &[String], types: &MachineTypes, report: &mut Report) {
    let Stored { version, others } = stored;
    let names = names.join(", ");
    if !others.is_empty() {
        let others = others.join(", ");
        return report.warning(
            MACHINES,
            format!(
                "objects are stored in {version}, and some may still be in {others}, which have to be converted (status.storedVersions of \
                 {names}): rewrite them, as the page of the provider in docs/providers says"
            ),
        );
    }
    let steps = types.kinds.version;
    let converted = if version == steps {
        String::new()
    } else {
        format!(", so every request of the machine controller, in {steps}, is converted")
    };
    report.works(MACHINES, format!("objects are stored in {version}{converted}: {names}"));
}

#[cfg(test)]
mod tests {
    use cloudprovider::{
        DynMachines,
        machines::{ForeignVersion, Kinds, Schemas},
        testing::FakeCloud,
    };
    use kube::api::PostParams;
    use sandbox::{Action, Fault, Matcher, Sandbox};
    use serde_json::json;

    use super::*;
    use crate::commands::check::{Finding, Verdict};

    fn kinds() -> Kinds {
        FakeCloud::new().with_machines().provider().machines().map(DynMachines::kinds).expect("machines")
    }

    fn schemas() -> Schemas {
        FakeCloud::new().with_machines().provider().machines().map(DynMachines::schemas).expect("machines")
    }

    fn types() -> MachineTypes {
        let older = || ForeignVersion::new("v0", "v1beta1", Vec::new());
        MachineTypes::new(kinds(), schemas).with_older(older, |object, _| Ok(object))
    }

    /// What is said where machines are written in the first version of `stored`, and the status names all of them.
    async fn said(stored: &[&str]) -> Vec<(Verdict, String)> {
        let sandbox = Sandbox::new();
        let kinds = kinds();
        let name = format!("{}.{}", kinds.machine.plural, kinds.group);
        let version = |name: &str| json!({"name": name, "served": true, "storage": name == stored[0], "schema": {"openAPIV3Schema": {"type": "object"}}});
        let crd = json!({
            "metadata": {"name": name},
            "spec": {
                "group": kinds.group, "scope": "Namespaced",
                "names": {"kind": kinds.machine.kind, "plural": kinds.machine.plural},
                "versions": [version(kinds.version), version("v0")],
            },
        });
        let definitions = Api::<CustomResourceDefinition>::all(sandbox.client());
        let crd: CustomResourceDefinition = serde_json::from_value(crd).expect("a definition");
        definitions.create(&PostParams::default(), &crd).await.expect("created");
        let status = json!({"status": {"storedVersions": stored}});
        let patch = kube::api::Patch::Merge(status);
        definitions.patch_status(&name, &kube::api::PatchParams::default(), &patch).await.expect("patched");
        let mut report = Report::default();
        check_stored(&sandbox.client(), &types(), &mut report).await;
        let said = |one: &Finding| (one.verdict, one.detail.clone());
        report.findings().iter().map(said).collect()
    }

    #[tokio::test]
    async fn the_stored_versions_are_named() {
        let (kinds, steps) = (kinds(), kinds().version);
        let name = format!("{}.{}", kinds.machine.plural, kinds.group);
        let [(verdict, found)] = &said(&[steps]).await[..] else { panic!("one finding") };
        assert_eq!((verdict, &**found), (&Verdict::Ok, &*format!("objects are stored in {steps}: {name}")));
        let [(verdict, found)] = &said(&["v0"]).await[..] else { panic!("one finding") };
        let expected = format!(
            "objects are stored in v0, so every request of the machine controller, in {steps}, is converted: {name}"
        );
        assert_eq!((verdict, found), (&Verdict::Ok, &expected));
        for (version, other) in [(steps, "v0"), ("v0", steps)] {
            let [(verdict, found)] = &said(&[version, other]).await[..] else { panic!("one finding") };
            let expected = format!(
                "objects are stored in {version}, and some may still be in {other}, which have to be converted (status.storedVersions of {name})"
            );
            assert!(*verdict == Verdict::Warning && found.starts_with(&expected), "{found}");
        }
    }

    #[tokio::test]
    async fn definitions_that_cannot_be_read_are_named() {
        let sandbox = Sandbox::new();
        let lists = Matcher::any().verb("list").resource("customresourcedefinitions");
        sandbox.faults().inject(Fault::new(lists, Action::InternalError));
        let mut report = Report::default();
        check_stored(&sandbox.client(), &types(), &mut report).await;
        let [finding] = report.findings() else { panic!("one finding") };
        assert!(
            finding.verdict == Verdict::Warning && finding.detail.contains("cannot be read"),
            "{finding:?}"
        );
    }
}
