//! Our controllers and Cluster API's managers on one API server, under the managers' Leases: whichever is there works, and never both.

use std::{collections::BTreeMap, fs, pin::pin, time::Duration};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use test_env::{Accepted, ClusterApi, ClusterApiManager, ControlPlane, ControlPlaneOptions, PATIENCE};
use tokio::time::timeout;

use super::site::{Lifecycle, Site};
use crate::{
    api,
    cluster_api::{
        kubelets::{Kubelets, machines},
        management::{HOSTED_CONTROL_PLANES, MANAGERS, apply, apply_kinds_of_the_fake_cloud},
        objects::Objects,
    },
    daemon::InProcess,
    fake_cloud::FakeCloud,
    shipped_roles,
    support::{eventually, tail},
    trial::{LIMIT, Outcome, runtime},
};

const NAMESPACE: &str = "turns";

/// Both roles of the daemon of the machines, with short times.
const FLAGS: [&str; 5] = [
    "--controllers=cloud-node-controller,cloud-node-lifecycle-controller,machine-controller",
    "--namespace=turns",
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--node-deletion-minimum-age=0s",
];

/// Leases that expire soon, as those of the managers do here.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=20s",
    "--leader-elect-renew-deadline=15s",
    "--leader-elect-retry-period=1s",
];

/// After this time a wait looks whether one that ought to run has ended by itself, as one that loses a Lease on a busy machine does.
const LOOK: Duration = Duration::from_secs(20);

/// What a manager does, or our part in its place.
struct Part {
    manager: ClusterApiManager,
    lease: &'static str,
    namespace: &'static str,
    /// Whether no other part makes this write.
    is_its_own: fn(&Accepted) -> bool,
}

const PARTS: [Part; 2] = [
    Part {
        manager: ClusterApiManager::Core,
        lease: "controller-leader-election-capi",
        namespace: "capi-system",
        is_its_own: |write| write.group == "cluster.x-k8s.io",
    },
    Part {
        manager: ClusterApiManager::KubeadmBootstrap,
        lease: "kubeadm-bootstrap-manager-leader-election-capi",
        namespace: "capi-kubeadm-bootstrap-system",
        // The core makes and deletes these objects, and owns them.
        is_its_own: |write| write.what.ends_with("kubeadmconfigs/status"),
    },
];

/// How often the work changes hands among the tests. `CCM_GATE_ROUNDS` says another number.
const ROUNDS: usize = 4;

/// In the first rounds of this seed each side is stopped and killed. `CCM_GATE_SEED` says another one.
const SEED: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Go,
    Ours,
}

impl Side {
    const BOTH: &[Self] = &[Self::Go, Self::Ours];

    fn user(self, manager: ClusterApiManager) -> String {
        match self {
            Self::Go => manager.user(),
            Self::Ours => shipped_roles::USER.to_owned(),
        }
    }
}

pub(super) fn alternate() -> Outcome {
    let number = |variable: &str| std::env::var(variable).ok().map(|text| text.parse::<u64>()).transpose();
    let rounds = number("CCM_GATE_ROUNDS").context("CCM_GATE_ROUNDS")?;
    let seed = number("CCM_GATE_SEED").context("CCM_GATE_SEED")?.unwrap_or(SEED);
    let rounds = rounds.map_or(Ok(ROUNDS), usize::try_from).context("CCM_GATE_ROUNDS")?;

    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    let managers = ClusterApi::start_elected(&control_plane, &MANAGERS)?;
    apply(&control_plane, "control-planes.yaml", HOSTED_CONTROL_PLANES)?;
    apply_kinds_of_the_fake_cloud(&control_plane)?;
    control_plane.kubectl_output(&["create", "namespace", NAMESPACE])?;
    let site = Site::on(control_plane)?;
    let mut turns =
        Turns { site: &site, managers, ours: None, rng: Rng::with_seed(seed), taken: BTreeMap::new() };
    let outcome = runtime(false)?.block_on(async {
        let client = api::client(site.control_plane.kubeconfig()).await?;
        let objects = Objects::new(client, NAMESPACE).on("Fake", PATIENCE);
        let limit = LIMIT * u32::try_from(1 + rounds / ROUNDS)?;
        timeout(limit, turns.story(&objects, rounds))
            .await
            .with_context(|| format!("not done within {limit:?}"))?
    });
    let words = || {
        let logs = MANAGERS.map(|manager| turns.managers.log(manager)).join("\n");
        let daemon = fs::read_to_string(site.log()).unwrap_or_default();
        format!("seed {seed}; the managers said: {}\nthe daemon said: {}", tail(&logs), tail(&daemon))
    };
    outcome.with_context(words)?;
    Ok(turns.judge().with_context(words)?)
}

/// The two sides, and how often each took a part over.
struct Turns<'s> {
    site: &'s Site,
    managers: ClusterApi,
    /// Our daemon, unless it was ended.
    ours: Option<Lifecycle>,
    rng: Rng,
    taken: BTreeMap<&'static str, usize>,
}

impl Turns<'_> {
    async fn story(&mut self, objects: &Objects, rounds: usize) -> Result<()> {
        let cloud = FakeCloud::new().with_machines();
        let infrastructure = InProcess::start(&objects.client, cloud.provider(), &FLAGS)?;
        let _kubelets = Kubelets::start(&objects.client, &cloud);
        objects.apply_cluster("prod", &self.site.control_plane, json!({"spec": {}})).await?;
        objects.apply_template("small", &json!({"cpus": 2})).await?;
        objects.apply_workers("prod", "workers", 1, "small").await?;
        objects.machines_run(1).await?;

        let mut leads = Side::Go;
        for round in 0..rounds {
            // Both are there, and the work is in the middle of something.
            self.both_run(leads).await?;
            let count = 1 + self.rng.usize(..3);
            let scale = json!({"spec": {"replicas": count}});
            objects.merge("MachineDeployment", "workers", scale).await?;
            let is_killed = self.rng.bool();
            println!("round {round}: {leads:?} ends, killed: {is_killed}; {count} machines");
            self.end(leads, is_killed)?;
            leads = if leads == Side::Go { Side::Ours } else { Side::Go };
            for part in &PARTS {
                self.takes(objects, leads, part).await?;
            }
            // The webhooks of the managers decide about each write, so they are there while ours work.
            self.until(Side::BOTH, objects.machines_run(count)).await?;
            ensure!(machines(&cloud).len() == count, "{:?}", machines(&cloud));
        }

        self.both_run(leads).await?;
        objects.delete("Cluster", "prod").await?;
        self.until(Side::BOTH, objects.vanishes("Cluster", "prod")).await?;
        objects.none_are_left(&["FakeMachine", "FakeCluster"]).await?;
        ensure!(cloud.objects().is_empty(), "left in the cloud: {:?}", cloud.objects());
        infrastructure.stop().await
    }

    /// Starts what of a side does not run.
    async fn run(&mut self, side: Side) -> Result<()> {
        match side {
            Side::Go => {
                for manager in MANAGERS {
                    if !self.managers.is_running(manager)? {
                        self.managers.start_again(manager)?;
                    }
                }
            }
            Side::Ours => {
                let has_ended = |ours: &mut Lifecycle| !ours.process.process().is_running();
                if self.ours.as_mut().is_none_or(has_ended) {
                    self.ours = Some(self.site.start_with(&ELECTION).await?);
                }
            }
        }
        Ok(())
    }

    /// Waits for something, while these sides go on.
    async fn until<T>(&mut self, sides: &[Side], wait: impl Future<Output = Result<T>>) -> Result<T> {
        let mut wait = pin!(wait);
        loop {
            for side in sides {
                self.run(*side).await?;
            }
            if let Ok(done) = timeout(LOOK, wait.as_mut()).await {
                return done;
            }
        }
    }

    /// Both sides run, and ours knows who works.
    async fn both_run(&mut self, leads: Side) -> Result<()> {
        for side in Side::BOTH {
            self.run(*side).await?;
        }
        let ours = self.ours.as_ref().context("our daemon")?;
        eventually(PATIENCE, "our daemon knows who works", || async {
            let state = ours.state_of_core().await?;
            let waits = state.as_str().is_some_and(|state| state.starts_with("held by"));
            Ok((state == "works" || waits || leads == Side::Ours).then_some(()))
        })
        .await
    }

    fn end(&mut self, side: Side, is_killed: bool) -> Result<()> {
        match (side, is_killed) {
            (Side::Go, true) => MANAGERS.iter().try_for_each(|manager| self.managers.kill(*manager)),
            (Side::Go, false) => MANAGERS.iter().try_for_each(|manager| self.managers.stop(*manager)),
            (Side::Ours, true) => {
                let mut ours = self.ours.take().context("our daemon")?;
                ours.process.process().kill().map(drop)
            }
            (Side::Ours, false) => {
                let mut ours = self.ours.take().context("our daemon")?;
                ours.process.process().stop().map(drop)
            }
        }
    }

    /// Waits until this side holds the Lease of a part.
    async fn takes(&mut self, objects: &Objects, side: Side, part: &Part) -> Result<()> {
        let Part { lease, namespace, .. } = part;
        let position = self.site.control_plane.audit_position();
        let leases = kube::Api::<Lease>::namespaced(objects.client.clone(), namespace);
        let before = leases.get(lease).await?.spec.unwrap_or_default().holder_identity;
        let (user, site) = (side.user(part.manager), self.site);
        let what = format!("{side:?} holds {lease}, which {before:?} held");
        let is_taken = eventually(PATIENCE, &what, || async {
            let writes = site.control_plane.accepted_after(position)?;
            let last = writes.iter().rfind(|write| write.name == *lease);
            Ok(last.is_some_and(|write| write.user == user).then_some(()))
        });
        self.until(&[side], is_taken).await?;
        *self.taken.entry(*lease).or_default() += 1;
        Ok(())
    }

    /// Reads from the audit log that each write of ours was made while we held the Lease, and that none was under way when a manager took
    /// it. Cluster API's managers have no such fence: a write of theirs that was under way when they lost it is theirs to answer for.
    fn judge(&self) -> Result<()> {
        let writes = self.site.control_plane.accepted_after(0)?;
        for Part { manager, lease, namespace, is_its_own } in &PARTS {
            let sides = [Side::Go, Side::Ours].map(|side| side.user(*manager));
            let is_lease = |write: &&Accepted| write.name == *lease && write.namespace == *namespace;
            let held: Vec<_> = writes.iter().filter(is_lease).collect();
            let of_part = writes.iter().filter(|write| {
                is_its_own(write) && write.namespace == NAMESPACE && sides.contains(&write.user)
            });
            let mut judged = BTreeMap::<_, usize>::new();
            for write in of_part {
                *judged.entry(write.user.as_str()).or_default() += 1;
                if write.user != shipped_roles::USER {
                    continue;
                }
                let before = held.iter().rfind(|one| one.answered <= write.received);
                let holder = before.with_context(|| format!("{write:?} before anyone held {lease}"))?;
                ensure!(holder.user == write.user, "{write:?} while {holder:?} was the last of {lease}");
                let other = held.iter().find(|one| {
                    one.user != write.user && one.answered > write.received && one.received < write.answered
                });
                ensure!(other.is_none(), "{write:?} was under way at {other:?}");
            }
            println!("{lease}: taken {:?} times, {judged:?}", self.taken.get(lease));
            ensure!(judged.len() == sides.len(), "one side wrote nothing: {judged:?}");
        }
        Ok(())
    }
}
