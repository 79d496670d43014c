//! The daemon is killed at every call of a machine's life, before the call takes place and after it, and later again and again
//! while many machines are made and deleted. No virtual machine is left over, and none is there twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use super::{LIMIT, PATIENCE, datacenter::Datacenter};
use crate::{
    cluster_api::{
        installed::Installed,
        management::Management,
        objects::{Objects, name},
    },
    daemon::DaemonProcess,
    stage::Side,
    support::{eventually, tail},
    trial::{Outcome, runtime},
};

const NAMESPACE: &str = "crashes";

/// Without the wait for the lease of the one that was killed.
const FLAGS: [&str; 1] = ["--leader-elect=false"];

/// Tasks that take time, as they do: a daemon can end while they run.
const TASKS: &str = "CloneVm:200,PowerOn:100,PowerOff:100,Destroy:100";

/// How many machines there are when it is killed again and again, how often that is, and how soon.
const MANY: usize = 12;
const KILLS: usize = 6;
const BETWEEN_KILLS: Duration = Duration::from_millis(700);

pub(super) fn whole() -> Outcome {
    let datacenter = Datacenter::start(TASKS)?;
    let management = Management::start()?;
    let folder = TempDir::new().context("a folder")?;
    let installed = Installed::apply(&management.control_plane, "vsphere", datacenter.config())?;
    let mut world = World { management, datacenter, installed, folder, daemon: None };
    let outcome = runtime(false)?.block_on(async {
        timeout(LIMIT, world.whole()).await.with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome
        .with_context(|| format!("the managers said: {}", world.management.words_about(NAMESPACE)))
        .with_context(|| format!("the daemon said: {}", world.words()))?;
    Ok(())
}

struct World {
    // Fields drop in this order: the daemon before its peers
    daemon: Option<DaemonProcess>,
    management: Management,
    datacenter: Datacenter,
    installed: Installed,
    folder: TempDir,
}

/// A part of a machine's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Creation,
    Deletion,
}

impl World {
    async fn whole(&mut self) -> anyhow::Result<()> {
        let objects = self.management.namespace(NAMESPACE).await?.on("VSphere", PATIENCE);
        // Without the daemon, nobody converts what is applied.
        self.start()?;
        let cluster = json!({"spec": self.datacenter.cluster()});
        objects.apply_cluster("prod", &self.management.control_plane, cluster).await?;

        // The first life shows which calls there are.
        let mut points = Vec::new();
        for part in [Part::Creation, Part::Deletion] {
            // what the start of a daemon asks is asked by now
            sleep(Duration::from_secs(1)).await;
            self.datacenter.vcsim.reset_counts()?;
            self.begin(&objects, part, "first").await?;
            self.ends(&objects, part, "first").await?;
            for (method, count) in self.datacenter.calls()? {
                points.extend((0..count).map(|number| (part, method.clone(), number)));
            }
        }
        println!("{} calls: {points:?}", points.len());
        let has = |wanted: &str| points.iter().any(|(_, method, _)| method == wanted);
        for method in
            ["soap:CloneVM_Task", "soap:PowerOnMultiVM_Task", "soap:PowerOffVM_Task", "soap:Destroy_Task"]
        {
            ensure!(has(method), "no {method} among {points:?}");
        }
        for (number, (part, method, call)) in points.iter().enumerate() {
            // a call that changes nothing is the same before and after it
            let sides =
                if method.ends_with("_Task") { &[Side::Before, Side::After][..] } else { &[Side::Before] };
            for &side in sides {
                let machine = format!("m{number}-{side:?}").to_lowercase();
                let what = format!("{part:?}, {side:?} {method} {call}");
                self.killed_at(&objects, *part, (method, *call, side), &machine).await.context(what)?;
            }
        }
        self.killed_again_and_again(&objects).await
    }

    /// The life of a machine whose daemon is killed while this call is held.
    async fn killed_at(
        &mut self,
        objects: &Objects,
        part: Part,
        (method, call, side): (&str, u64, Side),
        machine: &str,
    ) -> anyhow::Result<()> {
        if part == Part::Deletion {
            self.begin(objects, Part::Creation, machine).await?;
            self.ends(objects, Part::Creation, machine).await?;
        }
        let vcsim = &self.datacenter.vcsim;
        vcsim.reset_counts()?;
        vcsim.set_rules(&json!([{
            "methods": [method], "skip": call, "times": 1, "hang": true, "after": side == Side::After,
        }]))?;
        self.begin(objects, part, machine).await?;
        let hit = format!("hit:{method}");
        // What is known for a while is not asked for again, so not every life has every call.
        let done = eventually(PATIENCE, "the call is held, or all is done without it", || async {
            if self.datacenter.vcsim.counts()?.contains_key(&hit) {
                return Ok(Some(false));
            }
            Ok(self.has_ended(objects, part, machine).await?.then_some(true))
        });
        if !done.await? {
            self.kill()?;
        }
        self.datacenter.vcsim.set_rules(&json!([]))?;
        if self.daemon.is_none() {
            self.start()?;
        }
        self.ends(objects, part, machine).await?;
        if part == Part::Creation {
            self.begin(objects, Part::Deletion, machine).await?;
            self.ends(objects, Part::Deletion, machine).await?;
        }
        Ok(())
    }

    /// Many machines, and a daemon that never lives for long.
    async fn killed_again_and_again(&mut self, objects: &Objects) -> anyhow::Result<()> {
        let names: BTreeSet<_> = (0..MANY).map(|number| format!("many-{number}")).collect();
        for part in [Part::Creation, Part::Deletion] {
            for name in &names {
                self.begin(objects, part, name).await?;
            }
            let began = Instant::now();
            for _ in 0..KILLS {
                sleep(BETWEEN_KILLS).await;
                self.kill()?;
                self.start()?;
            }
            let what = if part == Part::Creation { "provisioned" } else { "gone" };
            let is_done = |all: &[Value]| match part {
                Part::Creation => all.len() == MANY && all.iter().all(is_provisioned),
                Part::Deletion => all.is_empty(),
            };
            objects.all_become("Machine", what, is_done).await?;
            println!("{MANY} machines are {what} after {:.1?} and {KILLS} kills", began.elapsed());
            if part == Part::Creation {
                self.datacenter.runs(&names)?;
            } else {
                self.datacenter.is_empty()?;
            }
        }
        Ok(())
    }

    /// Applies a machine, or begins to delete it.
    async fn begin(&self, objects: &Objects, part: Part, machine: &str) -> anyhow::Result<()> {
        if part == Part::Deletion {
            return objects.delete("Machine", machine).await;
        }
        objects.apply_machine_of("prod", machine, Datacenter::machine(2048), &json!({})).await.map(drop)
    }

    async fn has_ended(&self, objects: &Objects, part: Part, machine: &str) -> anyhow::Result<bool> {
        let found = objects.get("Machine", machine).await?;
        Ok(match part {
            Part::Creation => found.is_some_and(|one| is_provisioned(&one)),
            Part::Deletion => found.is_none(),
        })
    }

    /// Waits until a machine is there, or gone, and checks that vCenter has just that.
    async fn ends(&self, objects: &Objects, part: Part, machine: &str) -> anyhow::Result<()> {
        if part == Part::Deletion {
            objects.vanishes("Machine", machine).await?;
            return self.datacenter.is_empty();
        }
        let machine = objects.becomes("Machine", machine, "provisioned", is_provisioned).await?;
        let name = name(&machine).to_owned();
        let vms: BTreeMap<_, _> = self.datacenter.machines()?;
        let vm = vms.get(&name).with_context(|| format!("{vms:?}"))?;
        let id = format!("vsphere://{}", vm.uuid);
        ensure!(machine["spec"]["providerID"] == id.as_str(), "{machine}");
        self.datacenter.runs(&BTreeSet::from([name]))
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let log = self.folder.path().join("daemon.log");
        self.daemon = Some(self.installed.start(&self.management.control_plane, &FLAGS, &log)?);
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        let mut daemon = self.daemon.take().context("it runs")?;
        daemon.process().kill().map(drop)
    }

    fn words(&self) -> String {
        self.daemon.as_ref().map(|daemon| tail(&daemon.log())).unwrap_or_default()
    }
}

fn is_provisioned(machine: &Value) -> bool {
    machine["status"]["initialization"]["infrastructureProvisioned"] == true
}
