//! Thousands of objects of one tenant that are after what is not its own, or cost as much as they can, and the machines of another
//! tenant beside them: the real binary with libvirt, vSphere and address pools, on a real API server.
//!
//! The hypervisors are libvirt's test driver, in libvirtds that the test can look into, and the vCenter is simulated. No volume of
//! that driver has content, so a right libvirt machine ends there where the header of its image is read.

mod management;
mod objects;
mod record;
mod tenant;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use test_env::{Libvirtd, Vcsim, VcsimOptions};
use tokio::{net::TcpListener, task::JoinHandle};

use self::{
    management::Management,
    objects::{Catalogue, Hostile, Kind},
    record::{Order, give_up_lease, take_lease, term},
    tenant::Tenant,
};
use super::world::condition;
use crate::{
    daemon::{DaemonProcess, LONG_TERM},
    scenarios::Trials,
    support::eventually,
    trial::{Outcome, runtime},
};

/// The variable with the number of hostile objects in a soak.
const OBJECTS: &str = "CCM_HOSTILE_OBJECTS";

/// Their number in a test. It is more than the failing objects of a namespace that have the pauses of their own.
const FEW: usize = 330;

/// The limit of the daemon's memory in MiB, for a debug build too.
const MEMORY: u64 = 150;

/// The writes to objects of a kind that may come before the first one to another tenant's object, where all are due at once: about as
/// many as there are seats for work, with the two writes that each may cost.
const MAX_WRITES_BEFORE: usize = 128;

/// How much longer a machine may take beside the hostile objects than alone.
const MAX_SLOWDOWN: u32 = 2;

/// How often a machine's time is measured in a soak.
const MEASURED: usize = 3;

/// How many requests of the attacker are under way.
const AT_ONCE: usize = 16;

/// Less than that says nothing about a slowdown.
const FLOOR: Duration = Duration::from_secs(3);

/// The most imports at a hypervisor.
const MAX_IMPORTS: usize = 2;

/// The namespaces of the tenant that attacks and of the other one.
const HOSTILE: &str = "team-a";
const VICTIM: &str = "team-b";

pub(super) fn trials() -> Trials {
    Trials::new().trial("apiserver::machines::hostile_objects_of_one_tenant_hold_up_nobody", attacked)
}

fn attacked() -> Outcome {
    let wanted = std::env::var(OBJECTS).ok();
    let wanted = wanted.map(|text| text.parse::<usize>().with_context(|| format!("{OBJECTS}={text}")));
    let wanted = wanted.transpose()?;
    let libvirtds = [Libvirtd::start()?, Libvirtd::start()?];
    // A clone takes seconds, as on any vCenter.
    let options = VcsimOptions {
        machines: 1,
        boots_guests: true,
        task_delays: "CloneVm:2000,PowerOn:1000",
        ..VcsimOptions::default()
    };
    let vcsim = Vcsim::start(&options)?;
    let management = Management::start(&libvirtds)?;
    runtime(false)?.block_on(async {
        let siege = Siege { management, vcsim, count: wanted.unwrap_or(FEW), is_measured: wanted.is_some() };
        siege.run().await
    })?;
    Ok(())
}

struct Siege {
    management: Management,
    vcsim: Vcsim,
    count: usize,
    /// Whether times are judged too.
    is_measured: bool,
}

/// How long the machines of the other tenant took.
type Times = BTreeMap<Kind, Duration>;

/// A server that takes connections and never answers.
async fn slow_server() -> Result<(u16, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let task = tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            taken.push(connection);
        }
    });
    Ok((port, task))
}

impl Siege {
    async fn run(self) -> Result<()> {
        let (port, server) = slow_server().await?;
        let outcome = self.against(port).await;
        server.abort();
        outcome
    }

    async fn against(&self, slow_server: u16) -> Result<()> {
        let management = &self.management;
        let (client, mut flags) = management.install(&self.vcsim, slow_server).await?;
        if !self.is_measured {
            // Whether the Lease is kept is then no matter of the machine's speed.
            flags.extend(LONG_TERM.map(str::to_owned));
        }
        let log = |name: &str| management.folder().join(name);
        let daemon = DaemonProcess::start(&flags, &log("alone.log"))?;
        let victim = Tenant::new(&client, VICTIM, &self.vcsim).await.context("the other tenant")?;
        let attacker = Tenant::new(&client, HOSTILE, &self.vcsim).await.context("the attacker")?;
        let alone = self.measured(&victim, "alone").await.with_context(|| daemon.log())?;
        let things = management.things(&self.vcsim, slow_server, &victim).await?;
        daemon.terminate()?;

        // Another daemon is said to lead, so this one only converts objects.
        take_lease(&client).await?;
        let mut daemon = DaemonProcess::start(&flags, &log("attacked.log"))?;
        until("objects are converted", || async {
            Ok(victim.get(&Kind::VSphere.of("Machine"), "alone-0").await.is_ok())
        })
        .await?;
        let catalogue = Catalogue::new(self.count, things);
        let outcome = self.attack(&mut daemon, &(victim, attacker), &catalogue, &alone).await;
        outcome.with_context(|| crate::support::tail(&daemon.log()))?;
        daemon.terminate()
    }

    async fn attack(
        &self,
        daemon: &mut DaemonProcess,
        (victim, attacker): &(Tenant, Tenant),
        catalogue: &Catalogue,
        alone: &Times,
    ) -> Result<()> {
        let before = self.vcsim.inventory()?.len();
        let (first, second) = catalogue.objects().split_at(self.count / 2);
        let refused = self.written(attacker, first).await?;
        for kind in Kind::ALL {
            victim.add_machine(kind, "behind").await?;
        }
        let order = Order::record(victim.client()).await?;
        give_up_lease(victim.client()).await?;
        for kind in Kind::ALL {
            victim.is_done(kind, "behind").await?;
        }
        for kind in Kind::ALL {
            let written = order.before(kind, HOSTILE, (VICTIM, "behind")).context("nothing was written")?;
            println!(
                "{written} writes to {kind:?} machines of {HOSTILE} came before the first to one of {VICTIM}"
            );
            ensure!(written <= MAX_WRITES_BEFORE, "{kind:?}: {written} writes came before");
        }
        let led = term(victim.client()).await?;

        let began = Instant::now();
        let (arriving, more) = tokio::join!(self.took(victim, "arriving"), self.written(attacker, second));
        let (arriving, refused) = (arriving?, refused + more?);
        println!(
            "{} objects, {refused} of them refused by the API server, in {:?}",
            self.count,
            began.elapsed()
        );
        let answered = catalogue.answered() - refused;
        until("all objects have conditions", || async { Ok(order.refused(HOSTILE) >= answered) }).await?;
        println!("all have an answer after {:?}", began.elapsed());
        let beside = self.measured(victim, "beside").await?;
        println!("alone {alone:?}, while they came {arriving:?}, beside them {beside:?}");

        let memory = daemon.peak_memory()?;
        println!("memory: {memory} MiB, log: {} KiB", daemon.log().len() >> 10);
        ensure!(memory < MEMORY, "{memory} MiB");
        let now = term(victim.client()).await?;
        ensure!(now == led, "{led:?} leads no more: {now:?}");
        self.management.nothing_was_refused()?;
        ensure!(!daemon.log().contains(self.vcsim.password()), "the log has a password");
        self.nothing_was_got(attacker, before + self.made()).await?;
        attacker.names_nothing_foreign(catalogue.foreign_words()).await?;
        if self.is_measured {
            for (kind, took) in &beside {
                let limit = (alone[kind] * MAX_SLOWDOWN).max(FLOOR);
                ensure!(*took < limit, "{kind:?}: {took:?} beside them, {:?} alone", alone[kind]);
            }
        }
        Ok(())
    }

    /// How many machines of vSphere the other tenant makes beside the hostile objects.
    fn made(&self) -> usize {
        2 + self.times()
    }

    fn times(&self) -> usize {
        if self.is_measured { MEASURED } else { 1 }
    }

    /// The attacker writes objects. Gives the number of those that the API server refuses.
    async fn written(&self, attacker: &Tenant, objects: &[Hostile]) -> Result<usize> {
        let answers = stream::iter(objects).map(|object| attacker.write(object)).buffer_unordered(AT_ONCE);
        let taken: Vec<bool> = answers.try_collect().await?;
        Ok(taken.into_iter().filter(|taken| !taken).count())
    }

    /// How long a machine of each kind takes: the median.
    async fn measured(&self, victim: &Tenant, prefix: &str) -> Result<Times> {
        let mut all = BTreeMap::<Kind, Vec<Duration>>::new();
        for number in 0..self.times() {
            for (kind, took) in self.took(victim, &format!("{prefix}-{number}")).await? {
                all.entry(kind).or_default().push(took);
            }
        }
        let median = |mut times: Vec<Duration>| {
            times.sort();
            times[times.len() / 2]
        };
        Ok(all.into_iter().map(|(kind, times)| (kind, median(times))).collect())
    }

    /// How long one machine of each kind takes, one after the other.
    async fn took(&self, victim: &Tenant, name: &str) -> Result<Times> {
        let mut times = Times::new();
        for kind in Kind::ALL {
            let began = Instant::now();
            victim.add_machine(kind, name).await?;
            victim.is_done(kind, name).await?;
            times.insert(kind, began.elapsed());
        }
        Ok(times)
    }

    /// No object of the attacker has a machine, an address or a volume.
    async fn nothing_was_got(&self, attacker: &Tenant, machines: usize) -> Result<()> {
        let inventory = self.vcsim.inventory()?;
        ensure!(inventory.len() == machines, "{machines} machines, and not {inventory:?}");
        // Imports of the image that the attacker may read can be under way.
        let things = self.management.things_made()?;
        let is_import = |thing: &String| thing.starts_with("ccm-image-");
        ensure!(things.iter().all(is_import) && things.len() <= MAX_IMPORTS, "{things:?}");
        for object in attacker.infrastructure().await? {
            let has = |pointer: &str| object.pointer(pointer).is_some_and(|value| !value.is_null());
            let got = ["/spec/providerID", "/status/addresses/0", "/status/loadBalancer/ingress"].map(has);
            ensure!(!got.contains(&true), "{object}");
            ensure!(condition(&object, "Ready")["status"] != "True", "{object}");
        }
        Ok(())
    }
}

/// Waits until a look gives true, which only ends a hang.
async fn until<F: Future<Output = Result<bool>>>(what: &str, mut look: impl FnMut() -> F) -> Result<()> {
    eventually(test_env::PATIENCE, what, || {
        let looked = look();
        async { Ok(looked.await?.then_some(())) }
    })
    .await
}
