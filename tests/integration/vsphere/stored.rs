//! Which version is stored is changed, and changed back, as the documentation says, on a real API server. In the end the definitions are
//! those of a program that knows the older version alone.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::{Context, Result, bail, ensure};
use cloudprovider::machines::GROUP;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{ResourceExt, api::PostParams};
use machine_controller::crds::foreign_definitions;
use serde_json::{Value, json};
use test_env::ControlPlane;

use super::{
    kinds::{install, uninstall},
    versions::{NEW, OLD, World},
};
use crate::{api::Api, documented::VSPHERE_MACHINES};

/// How the commands begin with which the documentation has objects rewritten.
const COMMANDS: &str = "    version=v1beta2\n";

/// Has all objects rewritten in this version, by the commands of the documentation.
pub(crate) fn rewrite(control_plane: &ControlPlane, version: &str) -> Result<()> {
    let text = fs::read_to_string(VSPHERE_MACHINES).context(VSPHERE_MACHINES)?;
    let (_, commands) = text.split_once(COMMANDS).context("no such commands")?;
    let commands =
        commands.lines().take_while(|line| line.starts_with("    ")).collect::<Vec<_>>().join("\n");
    let kubectl = control_plane.kubectl();
    let folder = Path::new(kubectl.get_program()).parent().context("a folder")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &format!("version={version}\n{commands}")]);
    bash.env("PATH", format!("{}:{path}", folder.display()));
    for (name, value) in kubectl.get_envs() {
        if let Some(value) = value {
            bash.env(name, value);
        }
    }
    let output = bash.output().context("bash")?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{commands}\n{said}");
    Ok(())
}

/// The versions in which objects may be stored, by all definitions of the provider alike.
pub(crate) fn stored_versions(control_plane: &ControlPlane) -> Result<BTreeSet<String>> {
    let label = "cluster.x-k8s.io/provider=infrastructure-vsphere";
    let text = control_plane.kubectl_output(&["get", "crd", "--selector", label, "--output=json"])?;
    let list: Value = serde_json::from_str(&text)?;
    let versions = |crd: &Value| -> BTreeSet<String> {
        let all = crd["status"]["storedVersions"].as_array().into_iter().flatten();
        all.filter_map(|version| version.as_str().map(str::to_owned)).collect()
    };
    let all: Vec<_> = list["items"].as_array().into_iter().flatten().map(versions).collect();
    let first = all.first().context("no definitions")?;
    ensure!(all.len() == 8 && all.iter().all(|one| one == first), "{all:?}");
    Ok(first.clone())
}

pub(super) async fn changed(api: &Api) -> Result<()> {
    let control_plane = api.control_plane.as_ref().context("a real API server")?;
    let is_stored = |expected: &[&str]| -> Result<()> {
        let found = stored_versions(control_plane)?;
        ensure!(found == expected.iter().map(|&version| version.to_owned()).collect(), "{found:?}");
        Ok(())
    };
    let world = World::new(api, OLD).await?;
    install(api, &world.crds(OLD)?).await?;
    let daemon = world.start()?;
    let device = json!({"networkName": "n", "dhcp4": true});
    let old = json!({
        "kind": "VSphereMachine", "metadata": {"name": "first"},
        "spec": {"template": "t", "folder": "", "network": {"devices": [device]}},
    });
    let before = world.apply(OLD, &old).await?;
    world.is_converted("first").await?;
    is_stored(&[OLD])?;

    // The definitions of an older release give way to today's.
    install(api, &world.crds(NEW)?).await?;
    is_stored(&[OLD, NEW])?;
    let new = json!({
        "kind": "VSphereMachine", "metadata": {"name": "second"},
        "spec": {"template": "t", "nestedHV": true, "naming": {"template": "x"}, "network": {"devices": [device]}},
    });
    let second = world.apply(NEW, &new).await?;
    world.get("VSphereMachine", NEW, "first").await.context("what is stored in the older version")?;
    rewrite(control_plane, NEW)?;
    is_stored(&[NEW])?;

    daemon.stop().await?;
    world.webhook.is_free().await?;
    world.get("VSphereMachine", NEW, "first").await.context("nobody converts what was rewritten")?;
    world.one_of_each().await.map_err(|why| anyhow::anyhow!("nobody converts what was rewritten: {why}"))?;

    // Back.
    let alone = alone()?;
    let refused =
        replace(api, &alone).await.err().context("objects are stored in a version that would be gone")?;
    ensure!(format!("{refused:#}").contains("storedVersions"), "{refused:#}");
    let daemon = world.start()?;
    install(api, &world.crds(OLD)?).await?;
    is_stored(&[NEW, OLD])?;
    world.get_soon("VSphereMachine", OLD, "first").await.context("what is stored in the newer version")?;
    rewrite(control_plane, OLD)?;
    is_stored(&[OLD])?;
    daemon.stop().await?;
    world.webhook.is_free().await?;
    replace(api, &alone).await?;
    for (name, spec) in [("first", before["spec"].clone()), ("second", old_form(&second)?)] {
        let found = world.get("VSphereMachine", OLD, name).await.context("nobody converts any more")?;
        ensure!(found["spec"] == spec, "{name}: {} is not {spec}", found["spec"]);
    }
    uninstall(api, &alone).await?;
    world.forget().await
}

/// The spec of an object in v1beta1.
fn old_form(object: &Value) -> Result<Value> {
    Ok(cloudprovider_vsphere::convert(object.clone(), OLD)?["spec"].clone())
}

/// The definitions as a program has them that knows v1beta1 alone.
fn alone() -> Result<Vec<CustomResourceDefinition>> {
    Ok(foreign_definitions("vsphere", GROUP, &cloudprovider_vsphere::v1beta1())?.crds)
}

/// As `kubectl replace` does.
async fn replace(api: &Api, crds: &[CustomResourceDefinition]) -> Result<()> {
    let all = kube::Api::<CustomResourceDefinition>::all(api.client.clone());
    for crd in crds {
        let mut crd = crd.clone();
        crd.metadata.resource_version = all.get(&crd.name_any()).await?.metadata.resource_version;
        if let Err(error) = all.replace(&crd.name_any(), &PostParams::default(), &crd).await {
            bail!("{}: {error}", crd.name_any());
        }
    }
    Ok(())
}
