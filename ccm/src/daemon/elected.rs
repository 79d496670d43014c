//! The daemon as one of several, of which one leads. There is one lock, or two while controllers move between managers.

use anyhow::anyhow;
use component::{
    health::Concerns,
    leader_election::{
        ElectionMetrics, ElectionStatus, Elector, Fence, LeaderElectionOptions, Leadership, Lost, identity,
    },
    leader_migration::{LeaderMigration, Lock},
};
use tokio_util::sync::CancellationToken;

use super::{Base, Misconfigured, Parts, Work};
use crate::{
    controllers::{CONTROLLERS, ControllerDescriptor},
    flags::{Flags, MIGRATED_CONTROLLERS},
};

/// As [`run_controllers`](super::run_controllers), but the controllers run only while we lead, whatever
/// `--leader-elect` says. Until then everything that they need runs: the watch has its Nodes and the provider its
/// instances.
///
/// With leader migration, the controllers that it lists run while we lead on a second Lease. We are a candidate for that one
/// only while we lead on the first.
///
/// # Errors
/// As [`run_controllers`](super::run_controllers); a faulty `--leader-migration-config`; and [`Lost`], upon which the
/// process has to end.
pub async fn run_elected(flags: &Flags, parts: Parts, stop: CancellationToken) -> anyhow::Result<()> {
    Box::pin(run_table(CONTROLLERS, flags, parts, stop)).await
}

/// Like [`run_elected`], with the controllers of `table`.
pub(super) async fn run_table(
    table: &'static [ControllerDescriptor],
    flags: &Flags,
    parts: Parts,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let migration = flags.migration().map_err(|faults| Misconfigured(anyhow!(faults.join("; "))))?;
    let options = flags.leader_election.options(identity()?);
    let starting = Base::start(table, flags, &parts, &stop);
    let Some((base, mut support)) = starting.await? else { return Ok(()) };

    let metrics = base.metrics.get::<ElectionMetrics>()?;
    let elector =
        |options| Elector::new(parts.clients.election.clone(), options, &base.events, metrics.clone());
    let migrated = migration.as_ref().and_then(|migration| {
        log(flags, migration);
        // Without a controller to run under this lock we do not try to get it. Holding it would keep the other manager from its
        // work.
        let is_needed = !controllers_under(Lock::Migration, flags, migration).is_empty();
        let options = LeaderElectionOptions { name: migration.lease_name.clone(), ..options.clone() };
        is_needed.then(|| elector(options))
    });
    let main = elector(options);
    report_to(&parts, &main, migrated.as_ref());

    let stop = stop.child_token();
    let locks = Locks { base: &base, flags, migration: migration.as_ref(), stop: &stop };
    let outcome = Box::pin(support.beside(locks.lead(main, migrated), &stop)).await;
    support.end().await;
    outcome??.outcome()
}

/// The enabled controllers that run under this lock.
fn controllers_under(lock: Lock, flags: &Flags, migration: &LeaderMigration) -> Vec<&'static str> {
    let enabled = MIGRATED_CONTROLLERS.names.iter().copied().filter(|name| flags.enables(name));
    let mut names = enabled.filter(|name| migration.lock_of(name) == lock).collect::<Vec<_>>();
    // The log line has them in this order.
    names.sort_unstable();
    names
}

/// Logs what the configuration means for our controllers.
fn log(flags: &Flags, migration: &LeaderMigration) {
    let [main, migrated, elsewhere] = [Lock::Main, Lock::Migration, Lock::Elsewhere]
        .map(|lock| controllers_under(lock, flags, migration).join(", "));
    tracing::info!(lease = migration.lease_name, main, migrated, elsewhere, "leader migration");
    let not_ours = migration.not_ours();
    if !not_ours.is_empty() {
        tracing::warn!(
            names = not_ours.join(", "),
            "leader migration lists controllers that this program does not have"
        );
    }
}

/// Both elections are one health check, as upstream.
fn report_to(parts: &Parts, main: &Elector, migrated: Option<&Elector>) {
    let status = main.status();
    parts.debug_state.share("leader-election", move || status.to_json());
    if let Some(status) = migrated.map(Elector::status) {
        parts.debug_state.share("leader-migration", move || status.to_json());
    }
    let (main, migrated) = (main.status(), migrated.map(Elector::status));
    parts.health.add("leaderElection", Concerns::Liveness, move || {
        main.check()?;
        migrated.as_ref().map_or(Ok(()), ElectionStatus::check)
    });
}

/// The controllers and the locks that they run under.
struct Locks<'a> {
    base: &'a Base,
    flags: &'a Flags,
    migration: Option<&'a LeaderMigration>,
    stop: &'a CancellationToken,
}

impl Locks<'_> {
    /// Waits until we lead, however long the API server is away. Then works, and gives the Leases back at the end: that of the
    /// migration first.
    async fn lead(&self, main: Elector, migrated: Option<Elector>) -> anyhow::Result<Work> {
        let Some(mut leadership) = main.acquire(self.stop).await else { return Ok(Work::NONE) };
        let fence = leadership.fence().clone();
        let meet = self.base.meet_api_server(self.stop);
        let met = tokio::select! {
            biased;
            () = leadership.renew() => return Err(Lost::Main.into()),
            met = meet => met,
        };
        if !matches!(met, Ok(Some(()))) {
            // No controller was started, so the Lease is released and no other replica has to wait until it
            // expires.
            leadership.release().await;
            return met.map(|_| Work::NONE);
        }
        let main = self.work(Lock::Main, &fence);
        let migrated = async {
            match migrated {
                Some(elector) => Box::pin(self.lead_migrated(elector)).await,
                None => Ok(Work::NONE),
            }
        };
        let (main, migrated) = tokio::select! {
            biased;
            // A lost term drops the other branch. That stops the controllers at once, since another leader may be at work.
            () = leadership.renew() => return Err(Lost::Main.into()),
            ended = async { tokio::try_join!(main, migrated) } => ended?,
        };
        give_back(leadership, main).await;
        Ok(Work {
            ended_early: main.ended_early || migrated.ended_early,
            all_ended: main.all_ended && migrated.all_ended,
        })
    }

    async fn lead_migrated(&self, elector: Elector) -> anyhow::Result<Work> {
        let Some(mut leadership) = elector.acquire(self.stop).await else { return Ok(Work::NONE) };
        let fence = leadership.fence().clone();
        let work = tokio::select! {
            biased;
            () = leadership.renew() => return Err(Lost::Migration.into()),
            work = self.work(Lock::Migration, &fence) => work?,
        };
        give_back(leadership, work).await;
        Ok(work)
    }

    async fn work(&self, lock: Lock, fence: &Fence) -> anyhow::Result<Work> {
        let lock_of = |name: &str| self.migration.map_or(Lock::Main, |migration| migration.lock_of(name));
        let clients = self.base.clients.controllers.behind(fence);
        self.base.work(self.flags, |name| lock_of(name) == lock, &clients, self.stop).await
    }
}

async fn give_back(leadership: Leadership, work: Work) {
    if work.all_ended {
        leadership.release().await;
    } else {
        tracing::warn!(
            "the lease is not given back: a write may be on its way, or an address still on this host; others wait until \
             it expires"
        );
    }
}
