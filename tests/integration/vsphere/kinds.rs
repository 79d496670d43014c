//! The kinds of Cluster API Provider vSphere, beside its own definitions and templates.

mod flat;
pub(crate) mod rules;
pub(crate) mod templates;
mod v1beta2;

use std::{cell::Cell, collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, Result, ensure};
use cloudprovider::machines::GROUP;
use cloudprovider_vsphere::machine_types;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, ValidationDirective,
    },
};
use machine_controller::crds::{Definitions, ForeignDefinitions, foreign_definitions};
use serde_json::{Value, json};
use test_env::{StartError, built};

use crate::{api::Api, scenarios::Trials, support::eventually, trial::Outcome};

const VERSION: &str = "v1beta1";

/// The version of the controller.
const NEW: &str = "v1beta2";

/// How long the API server may take until a definition is in force.
const TIMEOUT: Duration = test_env::PATIENCE;

/// How often a definition that is being removed is looked at before it is changed. Before each further change it is looked at twice as often.
const LOOKS_UNTIL_A_NUDGE: u32 = 40;

/// Where ours are different, and why. A path ends with `*` if it stands for all that is below.
const DIFFERENT: [(&str, &str, &str); 20] = [
    ("VSphereMachine", ".spec.datacenter", "a default, in place of a webhook's"),
    ("VSphereVM", ".spec.os", "the same"),
    ("VSphereDeploymentZone", ".spec.controlPlane", "the same"),
    ("VSphereFailureDomain", ".spec.region.autoConfigure", "the same"),
    ("VSphereFailureDomain", ".spec.zone.autoConfigure", "the same"),
    ("VSphereMachine", ".spec.customVMXKeys*", "how many and how long, since each is kept in memory"),
    ("VSphereMachineTemplate", ".spec.template.spec.customVMXKeys*", "the same"),
    ("VSphereVM", ".spec.customVMXKeys*", "the same"),
    ("VSphereMachine", ".status.failureDomain", "contract v1beta2: where the machine really is"),
    ("VSphereMachine", ".status.taskRef", "what the steps remember, as on VSphereVM"),
    ("VSphereMachine", ".status.cloneMode", "the same"),
    ("VSphereMachine", ".status.snapshot", "the same"),
    ("VSphereMachine", ".status.hardwareVersion", "the same"),
    ("VSphereMachine", ".status.softPowerOffSince", "the same"),
    ("VSphereMachine", ".status.moduleUUID", "the same"),
    ("VSphereMachine", ".status.isBootstrapDataRemoved", "what the steps remember"),
    ("VSphereMachine", ".status.login*", "the same"),
    ("VSphereMachine", ".status.vCenterUUID", "the same"),
    (
        "VSphereMachineTemplate",
        ".status*",
        "contract v1beta2: what a machine will have, for scaling from zero",
    ),
    ("VSphereMachineTemplate", "subresources", "the same: the controller writes the status alone"),
];

/// Kinds whose specs say what a virtual machine is cloned from, with where they say it.
const CLONED: [(&str, &str); 3] = [
    ("VSphereMachine", ".spec."),
    ("VSphereMachineTemplate", ".spec.template.spec."),
    ("VSphereVM", ".spec."),
];

/// Fields of theirs that came with 1.16, in v1beta1 too. How they are in v1beta2 is in [`v1beta2`].
const OF_1_16: [&str; 6] =
    ["resources", "nestedHV", "ftEncryptionMode", "migrateEncryption", "cryptoKeyID", "cryptoProfile"];

pub(crate) fn trials() -> Trials {
    Trials::new()
        .trial("vsphere::kinds_are_those_of_cluster_api_provider_vsphere", as_theirs)
        .trial("vsphere::v1beta2_has_the_fields_and_limits_of_cluster_api_provider_vsphere", v1beta2::fields)
        .trial("vsphere::v1beta2_has_the_columns_of_cluster_api_provider_vsphere", v1beta2::columns)
        .api_server("vsphere::templates_of_cluster_api_provider_vsphere_apply", templates_apply)
        .api_server("vsphere::v1beta2_has_the_rules_of_cluster_api_provider_vsphere", rules_of_v1beta2)
}

fn ours() -> Result<ForeignDefinitions> {
    Ok(foreign_definitions("vsphere", GROUP, &cloudprovider_vsphere::v1beta1())?)
}

fn theirs() -> Result<BTreeMap<String, Value>, StartError> {
    let mut all = BTreeMap::new();
    for file in fs::read_dir(built("capv")?.join("crds"))? {
        let text = fs::read_to_string(file?.path())?;
        let crd: Value = serde_saphyr::from_str(&text).map_err(anyhow::Error::from)?;
        all.insert(crd["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned(), crd);
    }
    Ok(all)
}

fn as_theirs() -> Outcome {
    let theirs = theirs()?;
    let ours = ours()?.crds;
    let kinds: Vec<&String> = theirs.keys().collect();
    let mut names: Vec<&String> = ours.iter().map(|crd| &crd.spec.names.kind).collect();
    names.sort_unstable();
    if names != kinds {
        return Err(anyhow::anyhow!("ours are {names:?}, theirs {kinds:?}").into());
    }
    let mut differences = Vec::new();
    for crd in &ours {
        let kind = &crd.spec.names.kind;
        let crd = serde_json::to_value(crd).map_err(anyhow::Error::from)?;
        let (ours, theirs) = (flat::facts(&crd, VERSION), flat::facts(&theirs[kind], VERSION));
        let paths = ours.keys().chain(theirs.keys().filter(|path| !ours.contains_key(*path)));
        for path in paths.filter(|path| ours.get(*path) != theirs.get(*path) && !is_wanted(kind, path)) {
            differences.push(format!(
                "{kind} {path}: theirs {}, ours {}",
                theirs.get(path).map_or("none", String::as_str),
                ours.get(path).map_or("none", String::as_str)
            ));
        }
    }
    if !differences.is_empty() {
        return Err(anyhow::anyhow!("not as theirs:\n{}", differences.join("\n")).into());
    }
    Ok(())
}

fn is_wanted(kind: &str, path: &str) -> bool {
    is_of_1_16(kind, path)
        || DIFFERENT.iter().any(|(of, at, _)| {
            *of == kind && at.strip_suffix('*').map_or(*at == path, |above| path.starts_with(above))
        })
}

fn is_of_1_16(kind: &str, path: &str) -> bool {
    let place = CLONED.iter().find(|(of, _)| *of == kind).map(|(_, place)| *place);
    let below = place.and_then(|place| path.strip_prefix(place));
    below.is_some_and(|below| OF_1_16.contains(&below.split('.').next().unwrap_or_default()))
}

/// What their webhooks refuse is refused. Every object of these kinds in their templates is accepted, read back as it was written, and loses nothing on the
/// way to v1beta2 and back.
async fn templates_apply(api: &Api) -> Result<()> {
    let ours = ours()?;
    install(api, &ours.crds).await?;
    let outcome = async {
        rules::install(api, &ours.policies).await?;
        rules::checked(api, VERSION).await?;
        apply_all(api).await
    }
    .await;
    rules::remove(api, &ours.policies).await?;
    let removed = uninstall(api, &ours.crds).await;
    outcome.and(removed)
}

/// Nobody converts anything.
async fn rules_of_v1beta2(api: &Api) -> Result<()> {
    let ours = Definitions::of("vsphere", &machine_types())?;
    let crds: Vec<_> = ours.crds().into_iter().cloned().collect();
    let policies: Vec<_> =
        ours.policies().into_iter().map(|(policy, binding)| (policy.clone(), binding.clone())).collect();
    install(api, &crds).await?;
    let outcome = async {
        rules::install(api, &policies).await?;
        rules::checked(api, NEW).await
    }
    .await;
    rules::remove(api, &policies).await?;
    let removed = uninstall(api, &crds).await;
    outcome.and(removed)
}

pub(crate) async fn install(api: &Api, crds: &[CustomResourceDefinition]) -> Result<()> {
    let all = kube::Api::<CustomResourceDefinition>::all(api.client.clone());
    let params =
        PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply("test") };
    for crd in crds {
        all.patch(&crd.name_any(), &params, &Patch::Apply(crd)).await?;
    }
    for crd in crds {
        let name = crd.name_any();
        let established = async {
            loop {
                let conditions = all.get(&name).await?.status.and_then(|status| status.conditions);
                let conditions = conditions.unwrap_or_default();
                let is = |kind: &str| conditions.iter().any(|one| one.type_ == kind && one.status == "True");
                ensure!(!is("NonStructuralSchema"), "{name}: {conditions:?}");
                if is("Established") {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, established)
            .await
            .with_context(|| format!("{name} is not served"))??;
    }
    Ok(())
}

/// Deletes the definitions with their objects, and waits until they are gone: the next trial installs its own.
pub(crate) async fn uninstall(api: &Api, crds: &[CustomResourceDefinition]) -> Result<()> {
    let all = kube::Api::<CustomResourceDefinition>::all(api.client.clone());
    for crd in crds {
        all.delete(&crd.name_any(), &DeleteParams::default()).await?;
    }
    for crd in crds {
        let name = crd.name_any();
        let looks = Cell::new(0);
        let gone = eventually(TIMEOUT, "a definition is gone", || async {
            looks.set(looks.get() + 1);
            let (whole, rest) = (looks.get() / LOOKS_UNTIL_A_NUDGE, looks.get() % LOOKS_UNTIL_A_NUDGE);
            if rest == 0 && whole.is_power_of_two() {
                nudge(&all, &name, looks.get()).await?;
            }
            Ok(all.get_opt(&name).await?.is_none().then_some(()))
        });
        if let Err(error) = gone.await {
            let status = all.get_opt(&name).await?.and_then(|crd| crd.status);
            return Err(error.context(format!("{name}: {status:?}")));
        }
    }
    Ok(())
}

/// Changes a definition, so that the API server takes up its removal again. After a conflict it leaves a definition that is being
/// removed alone until that changes, or for five minutes.
async fn nudge(all: &kube::Api<CustomResourceDefinition>, name: &str, looks: u32) -> Result<()> {
    let change = json!({"metadata": {"annotations": {"test/looks": looks.to_string()}}});
    match all.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn apply_all(api: &Api) -> Result<()> {
    let mut applied = BTreeMap::<String, usize>::new();
    let folder = built("capv").map_err(|error| anyhow::anyhow!("{error}"))?.join("templates");
    for (file, object) in templates::objects(&folder)? {
        let kind = object["kind"].as_str().context("an object has a kind")?.to_owned();
        let name = object["metadata"]["name"].as_str().context("an object has a name")?;
        let what = format!("{kind} {name} of {file}");
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, &kind));
        let all: kube::Api<DynamicObject> =
            kube::Api::namespaced_with(api.client.clone(), "default", &resource);
        let strict = PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply("test").force()
        };
        let dry = PatchParams { dry_run: true, ..strict.clone() };
        all.patch(name, &dry, &Patch::Apply(&object)).await.with_context(|| format!("dry run: {what}"))?;
        let made = all.patch(name, &strict, &Patch::Apply(&object)).await.with_context(|| what.clone())?;
        let made = serde_json::to_value(made)?;
        ensure!(
            contains(&made["spec"], &object["spec"]),
            "{what}: {} became {}",
            object["spec"],
            made["spec"]
        );
        let converted =
            cloudprovider_vsphere::convert(made.clone(), "v1beta2").with_context(|| what.clone())?;
        let back = cloudprovider_vsphere::convert(converted, VERSION).with_context(|| what.clone())?;
        ensure!(back == made, "{what}: {made} came back as {back}");
        all.delete(name, &DeleteParams::default()).await?;
        *applied.entry(kind).or_default() += 1;
    }
    for kind in ["VSphereCluster", "VSphereMachineTemplate", "VSphereClusterTemplate"] {
        ensure!(applied.contains_key(kind), "no {kind} among {applied:?}");
    }
    Ok(())
}

/// Whether `whole` says all that `part` says.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| contains(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        (whole, part) => whole == part,
    }
}
