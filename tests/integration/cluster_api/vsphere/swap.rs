//! Cluster API Provider vSphere (CAPV) makes machines, this daemon takes them over and works with them, and CAPV takes all of them
//! back. Nothing is made anew, and in vCenter nothing changes but that each machine gets a mark. CAPV is a release that knows v1beta1 alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{Capv, ControlPlane, StartError, built};
use tokio::time::{Instant, timeout};

use super::{LIMIT, PATIENCE, datacenter::Datacenter};
use crate::{
    api,
    cluster_api::{
        installed::Installed,
        management::Management,
        objects::{Objects, condition, is, name},
    },
    daemon::DaemonProcess,
    support::{eventually, tail},
    trial::{Outcome, runtime},
    vsphere::{
        stored::{rewrite, stored_versions},
        versions::{NEW, OLD},
    },
};

const NAMESPACE: &str = "swap";

/// The only version that CAPV serves.
const V1BETA1: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

/// How many machines there are.
const MACHINES: usize = 3;

/// How the virtual machines are called, and their `VSphereVM`s: not like their Machines.
const NAMING: &str = "{{ if .machine.name }}vm-{{ .machine.name | trunc -5 }}{{ end }}";

/// What this daemon writes on an object that it works on.
const IDENTITY: &str = "infrastructure.cluster.x-k8s.io/uid";

/// What CAPV writes on a `VSphereVM` that it works on.
const CAPVS_FINALIZER: &str = "vspherevm.infrastructure.cluster.x-k8s.io";

/// What nobody may do to a machine that is handed over.
const HARMFUL: [&str; 7] = [
    "soap:CloneVM_Task",
    "soap:PowerOnVM_Task",
    "soap:PowerOnMultiVM_Task",
    "soap:PowerOffVM_Task",
    "soap:ResetVM_Task",
    "soap:ShutdownGuest",
    "soap:Destroy_Task",
];

pub(super) fn whole() -> Outcome {
    swapped(NEW)
}

/// With `--stored-version v1beta1`.
pub(super) fn older_stored() -> Outcome {
    swapped(OLD)
}

/// While this daemon works, objects are stored in this version.
fn swapped(stored: &'static str) -> Outcome {
    let datacenter = Arc::new(Datacenter::start("")?);
    let management = Management::start()?;
    Capv::install(&management.control_plane)?;
    let capv = Capv::start(&management.control_plane, &datacenter.vcsim, &[])?;
    let folder = TempDir::new().context("a folder")?;
    let mut world = World { stored, capv: Some(capv), daemon: None, management, datacenter, folder };
    let outcome = runtime(false)?.block_on(async {
        timeout(LIMIT, world.whole()).await.with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome
        .with_context(|| format!("the managers said: {}", world.management.words_about(NAMESPACE)))
        .with_context(|| world.words())?;
    Ok(())
}

struct World {
    stored: &'static str,
    // Fields drop in this order: whoever works before the peers
    daemon: Option<DaemonProcess>,
    capv: Option<Capv>,
    management: Management,
    datacenter: Arc<Datacenter>,
    folder: TempDir,
}

/// A machine as both the API and vCenter have it: what a hand-over leaves as it is.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    /// The UIDs of the Machine, the `VSphereMachine` and the `VSphereVM`.
    uids: [String; 3],
    provider_id: String,
    /// Its reference, name, UUIDs and power state in vCenter.
    vm: Value,
}

impl World {
    fn control_plane(&self) -> &ControlPlane {
        &self.management.control_plane
    }

    async fn whole(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        let told = |what: &str| println!("{what} after {:.1?}", began.elapsed());
        let old = self.management.namespace(NAMESPACE).await?.on("VSphere", PATIENCE).in_version(V1BETA1);
        let mut cluster = self.datacenter.cluster();
        cluster["controlPlaneEndpoint"] = json!({"host": "127.0.0.1", "port": self.control_plane().port()});
        old.apply_cluster("prod", self.control_plane(), json!({"spec": cluster})).await?;
        let mut machine = Datacenter::machine(2048);
        machine["namingStrategy"] = json!({"template": NAMING});
        old.apply_template("small", &machine).await?;
        old.apply_workers("prod", "workers", MACHINES, "small").await?;
        self.ready(&old, MACHINES).await?;
        let made = self.seen(&old).await?;
        let files = self.datacenter.vcsim.files()?;
        told("CAPV has made the machines");

        self.capv = None;
        let (control_plane, config) = (self.control_plane(), self.datacenter.config());
        let option = format!("--stored-version={}", self.stored);
        // The newer one is the default.
        let options: &[&str] = if self.stored == NEW { &[] } else { &[&option] };
        let installed = Installed::apply_with(control_plane, "vsphere", config, options)?;
        self.datacenter.vcsim.reset_counts()?;
        let flags = ["--leader-elect=false"];
        self.daemon =
            Some(installed.start(self.control_plane(), &flags, &self.folder.path().join("daemon.log"))?);
        let client = api::client(self.control_plane().kubeconfig()).await?;
        let new = Objects::new(client, NAMESPACE).on("VSphere", PATIENCE);
        // Until the daemon answers, nobody can read what is stored in another version.
        for kind in ["VSphereCluster", "VSphereMachine", "VSphereVM"] {
            let what = format!("{kind} can be read");
            eventually(PATIENCE, &what, || async { Ok(new.list(kind).await.ok().map(drop)) }).await?;
        }
        let taken =
            |one: &Value| one["metadata"]["annotations"][IDENTITY].is_string() && is(one, "Ready", "True");
        new.all_become("VSphereMachine", "taken over", |all| all.len() == MACHINES && all.iter().all(taken))
            .await?;
        self.all_are_marked().await?;
        self.is_untouched(&made, &new).await?;
        ensure!(self.datacenter.vcsim.files()? == files, "other files");
        told("the daemon has taken them over");
        if self.stored == NEW {
            self.may_be_stored_in(&[OLD, NEW])?;
            rewrite(self.control_plane(), NEW)?;
        }
        self.may_be_stored_in(&[self.stored])?;

        // one more, and one of CAPV's less
        self.scale(&new, MACHINES + 1).await?;
        self.ready(&new, MACHINES + 1).await?;
        let first = made.keys().next().context("a machine")?;
        self.readers_of_v1beta1_see_that_it_is_lost(&old, first, &made).await?;
        let wanted = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": "yes"}}});
        new.merge("Machine", first, wanted).await?;
        self.scale(&new, MACHINES).await?;
        new.vanishes("Machine", first).await?;
        self.ready(&new, MACHINES).await?;
        let before = self.seen(&new).await?;
        ensure!(!before.contains_key(first) && before.len() == MACHINES, "{before:?}");
        told("the daemon has made one and deleted one");

        if self.stored == NEW {
            let options = ["--only-definitions", &format!("--stored-version={OLD}")];
            installed.apply_more(self.control_plane(), &options)?;
            self.may_be_stored_in(&[NEW, OLD])?;
            rewrite(self.control_plane(), OLD)?;
        }
        self.may_be_stored_in(&[OLD])?;
        self.daemon.take().context("a daemon")?.terminate()?;
        self.hand_back()?;
        eventually(PATIENCE, "CAPV's version can be read", || async {
            Ok(old.list("VSphereMachine").await.ok().map(drop))
        })
        .await?;
        self.datacenter.vcsim.reset_counts()?;
        self.capv = Some(Capv::start(self.control_plane(), &self.datacenter.vcsim, &[])?);
        let works = |one: &Value| {
            let finalizers = one["metadata"]["finalizers"].as_array();
            finalizers.is_some_and(|all| all.iter().any(|one| one == CAPVS_FINALIZER))
        };
        old.all_become("VSphereVM", "CAPV's again", |all| all.len() == MACHINES && all.iter().all(works))
            .await?;
        self.ready(&old, MACHINES).await?;
        self.is_untouched(&before, &old).await?;
        told("CAPV has taken them back");

        self.scale(&old, 1).await?;
        self.ready(&old, 1).await?;
        old.delete("Cluster", "prod").await?;
        old.vanishes("Cluster", "prod").await?;
        old.none_are_left(&["VSphereMachine", "VSphereVM", "VSphereCluster"]).await?;
        self.datacenter.is_empty()?;
        told("everything is gone");
        Ok(())
    }

    /// A virtual machine that CAPV has made is destroyed. What CAPV has written of it last must not stay.
    async fn readers_of_v1beta1_see_that_it_is_lost(
        &self,
        old: &Objects,
        machine: &str,
        made: &BTreeMap<String, Seen>,
    ) -> anyhow::Result<()> {
        let vm = made[machine].vm["name"].as_str().context("a name")?;
        let both = [("VSphereMachine", machine), ("VSphereVM", vm)];
        for (kind, name) in both {
            old.becomes(kind, name, "provisioned", |one| is(one, "VMProvisioned", "True")).await?;
        }
        self.datacenter.destroy(vm)?;
        for (kind, name) in both {
            let told = |one: &Value| {
                is(one, "Ready", "False")
                    && condition(one, "VMProvisioned")["reason"] == "NotFoundByBIOSUUID"
                    && condition(one, "VMProvisioned")["severity"] == "Warning"
            };
            old.becomes(kind, name, "lost", told).await?;
        }
        Ok(())
    }

    /// That objects may be stored in these versions, by all definitions.
    fn may_be_stored_in(&self, versions: &[&str]) -> anyhow::Result<()> {
        let found = stored_versions(self.control_plane())?;
        ensure!(found == versions.iter().map(|&version| version.to_owned()).collect(), "{found:?}");
        Ok(())
    }

    /// What a person does to go back: this daemon's rules and definitions give way to CAPV's.
    fn hand_back(&self) -> Result<(), StartError> {
        let kubectl = |arguments: &[&str]| self.control_plane().kubectl_output(arguments);
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            let all = kubectl(&["get", kind, "--output=name"])?;
            for one in all.lines().filter(|line| line.contains("vsphere")) {
                kubectl(&["delete", one])?;
            }
        }
        // Not applied beside what the daemon has written of them.
        let definitions = built("capv")?.join("crds").display().to_string();
        kubectl(&["replace", "--filename", &definitions])?;
        Capv::install(self.control_plane())
    }

    async fn scale(&self, objects: &Objects, replicas: usize) -> anyhow::Result<()> {
        objects.merge("MachineDeployment", "workers", json!({"spec": {"replicas": replicas}})).await
    }

    /// Waits until this many machines are provisioned, and vCenter has exactly these.
    async fn ready(&self, objects: &Objects, count: usize) -> anyhow::Result<()> {
        let is_ready = |one: &Value| one["status"]["ready"] == true;
        let is_provisioned = |one: &Value| is(one, "InfrastructureReady", "True");
        let all = |all: &[Value], check: fn(&Value) -> bool| all.len() == count && all.iter().all(check);
        objects.all_become("VSphereVM", "ready", |found| all(found, is_ready)).await?;
        // CAPV writes a status before the spec.
        let is_known = |one: &Value| one["spec"]["providerID"].is_string();
        objects.all_become("VSphereMachine", "known", |found| all(found, is_known)).await?;
        objects.all_become("Machine", "provisioned", |found| all(found, is_provisioned)).await?;
        eventually(PATIENCE, "vCenter has them and no others", || async {
            Ok(self.has_machines(count).is_ok().then_some(()))
        })
        .await
    }

    fn has_machines(&self, count: usize) -> anyhow::Result<()> {
        let machines = self.datacenter.machines()?;
        ensure!(machines.len() == count, "{machines:?}");
        self.datacenter.runs(&machines.into_keys().collect::<BTreeSet<_>>())
    }

    /// All machines, by name.
    async fn seen(&self, objects: &Objects) -> anyhow::Result<BTreeMap<String, Seen>> {
        let by_name = |all: Vec<Value>| -> BTreeMap<String, Value> {
            all.into_iter().map(|one| (name(&one).to_owned(), one)).collect()
        };
        let machines = by_name(objects.list("Machine").await?);
        let infrastructure = by_name(objects.list("VSphereMachine").await?);
        let by_owner = |one: Value| {
            let owner = one["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default();
            (owner.to_owned(), one)
        };
        let vms: BTreeMap<_, _> = objects.list("VSphereVM").await?.into_iter().map(by_owner).collect();
        let inventory = self.datacenter.vcsim.inventory()?;
        let mut seen = BTreeMap::new();
        for (name, machine) in machines {
            let of = |all: &BTreeMap<String, Value>| all.get(&name).cloned().with_context(|| name.clone());
            let (infrastructure, vm) = (of(&infrastructure)?, of(&vms)?);
            let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let provider_id = infrastructure["spec"]["providerID"].as_str().unwrap_or_default().to_owned();
            let found =
                inventory.iter().find(|one| provider_id.ends_with(one["uuid"].as_str().unwrap_or("-")));
            let seen_there = found.with_context(|| format!("{provider_id} is not in vCenter"))?.clone();
            let given = format!("vm-{}", name.get(name.len().saturating_sub(5)..).unwrap_or(&name));
            ensure!(self::name(&vm) == given && seen_there["name"] == given, "{given}: {vm} {seen_there}");
            let uids = [uid(&machine), uid(&infrastructure), uid(&vm)];
            seen.insert(name, Seen { uids, provider_id, vm: seen_there });
        }
        Ok(seen)
    }

    /// Waits until each machine has got its mark, and nothing is under way.
    async fn all_are_marked(&self) -> anyhow::Result<()> {
        eventually(PATIENCE, "all have their marks", || async {
            let counts = self.datacenter.vcsim.counts()?;
            let written = counts.get("soap:ReconfigVM_Task").copied().unwrap_or_default();
            ensure!(usize::try_from(written)? <= MACHINES, "{counts:?}");
            Ok((usize::try_from(written)? == MACHINES).then_some(()))
        })
        .await
    }

    /// That the objects and virtual machines are those that they were, and nobody did anything to them.
    async fn is_untouched(&self, before: &BTreeMap<String, Seen>, objects: &Objects) -> anyhow::Result<()> {
        let now = self.seen(objects).await?;
        ensure!(now == *before, "{now:?}, before {before:?}");
        let counts = self.datacenter.vcsim.counts()?;
        let harm: Vec<_> = HARMFUL.iter().filter(|method| counts.contains_key(**method)).collect();
        ensure!(harm.is_empty(), "{harm:?}");
        Ok(())
    }

    fn words(&self) -> String {
        let of_daemon = self.daemon.as_ref().map(|daemon| tail(&daemon.log()));
        let of_capv = self.capv.as_ref().map(|capv| tail(&capv.log()));
        format!("the daemon said: {of_daemon:?}, CAPV said: {of_capv:?}")
    }
}
