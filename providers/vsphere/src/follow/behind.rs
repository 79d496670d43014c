//! Notices that the changes of machines come late, and lists everything anew.
//!
//! A server that compares all machines with what it last reported for each single change falls behind when
//! many machines change at once, and the more of them there are the longer it takes. A listing is one
//! comparison. So a change that the end of a task proves, and that is not told within [`MAX_LAG`], has the
//! property collector replaced: the old one's backlog ends with it, and the listing of the new one has
//! everything.
//!
//! Then nothing is watched for a moment. As long as tasks come to their ends, the server is busy, and the next listing
//! replaces what it would have to compare. The watch goes on when nothing is waited for, when no task has ended for a while, or
//! after some listings.
//!
//! A change that nothing proves, such as a machine that others destroy, can be lost in the watch. So everything is also listed anew
//! from time to time.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::sleep;

use super::{Connection, Follower, Watched, reference};
use crate::{
    inventory::Changes,
    moref::MoRef,
    session::ServiceContent,
    vim::{
        CallError,
        objects::{CreatePropertyCollector, DestroyPropertyCollector},
    },
};

/// How late a change may be told.
pub(super) const MAX_LAG: Duration = Duration::from_millis(250);

/// Where listings take long, how much longer than one of them a change may take. So listings of machines are at most a third
/// of the time.
const LISTINGS: u32 = 2;

/// How often it is looked for changes that are late.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// After this time without the end of a task, a server has nothing more to tell.
const QUIET_AFTER: Duration = Duration::from_secs(2);

/// How many listings follow each other before the watch is tried again: the server may not be slow any more.
const MAX_LISTINGS: usize = 20;

/// How often everything is listed anew, whatever is told. What a watch has lost is known after this time.
const REFRESH_INTERVAL: Duration = Duration::from_mins(15);

impl Follower<'_> {
    /// Watches machines until an error.
    pub(super) async fn watch_machines(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        watched: &mut Watched,
    ) -> CallError {
        loop {
            // The session's own property collector cannot be replaced.
            let can_replace = watched.collector != content.property_collector;
            let max_lag = max_lag(watched.listing_took);
            let listed = tokio::select! {
                error = self.watch(connection, watched) => return error,
                () = self.falls_behind(max_lag), if can_replace => {
                    tracing::debug!(
                        vcenter = self.vcenter.name(),
                        "vCenter is slow to tell changes of machines; listing them anew"
                    );
                    self.catch_up(connection, content, watched).await
                }
                () = self.needs_refresh(), if can_replace => self.list_again(connection, content, watched).await,
            };
            if let Err(error) = listed {
                return error;
            }
        }
    }

    /// Returns when it is time to list everything anew.
    async fn needs_refresh(&self) {
        loop {
            sleep(REFRESH_INTERVAL).await;
            // One that reports tasks too would lose their filter.
            if !self.shares_collector.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Lists machines and tasks anew until vCenter has no more to tell, or for some time. If a listing takes long, there is one.
    async fn catch_up(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        watched: &mut Watched,
    ) -> Result<(), CallError> {
        let mut pause = MAX_LAG;
        for _ in 0..MAX_LISTINGS {
            let ends = self.vcenter.state().tasks.ends();
            // Also where it is true already: that has tasks listed once more.
            self.behind.send_replace(true);
            self.list_again(connection, content, watched).await?;
            pause = pause.max(max_lag(watched.listing_took));
            if max_lag(watched.listing_took) >= QUIET_AFTER {
                break;
            }
            sleep(pause).await;
            let is_busy = self.vcenter.state().tasks.ends() != ends || self.vcenter.lag().is_some();
            let is_awaited = self.vcenter.state().tasks.longest_wait().is_some();
            if !is_busy && (pause >= QUIET_AFTER || !is_awaited) {
                break;
            }
            pause = if is_busy { MAX_LAG } else { pause * 2 };
        }
        self.behind.send_replace(false);
        Ok(())
    }

    /// Returns when a change is not told within this time.
    async fn falls_behind(&self, max_lag: Duration) {
        loop {
            match self.vcenter.lag() {
                None => self.vcenter.noted.notified().await,
                // One that reports tasks too would lose their filter.
                Some(lag) if lag >= max_lag && !self.shares_collector.load(Ordering::Relaxed) => return,
                Some(_) => sleep(CHECK_INTERVAL).await,
            }
        }
    }

    /// Replaces the property collector, and takes the listing of the new one.
    async fn list_again(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        watched: &mut Watched,
    ) -> Result<(), CallError> {
        watched.collector = self.replace(connection, content, &watched.collector).await?;
        watched.version.clear();
        self.call(connection, &self.filter(watched).of(&watched.collector)).await?;
        self.take_listing(connection, watched, Changes::default()).await
    }

    /// Destroys a property collector, with its backlog, and creates another one, which has no filter yet.
    pub(super) async fn replace(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        old: &MoRef,
    ) -> Result<MoRef, CallError> {
        match self.call(connection, &DestroyPropertyCollector {}.of(old)).await {
            Err(error @ CallError::Fault { .. }) if !error.is_session_lost() => {
                tracing::debug!(vcenter = self.vcenter.name(), %error, "the property collector is gone already");
            }
            answer => drop(answer?),
        }
        let create = CreatePropertyCollector {}.of(&content.property_collector);
        reference(&self.call(connection, &create).await?, create.method)
    }
}

/// How late a change may be told where a listing takes this long.
fn max_lag(listing: Duration) -> Duration {
    MAX_LAG.max(listing * LISTINGS)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{
        follow::tests::{machine, rig, updates},
        testing::scripted::{collector, reference},
        vcenter::Change,
    };

    /// The second property collector.
    fn successor() -> MoRef {
        MoRef::new("PropertyCollector", "session[1]8")
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_is_not_told_is_listed() {
        let rig = rig(&[]);
        let uuid = Uuid::from_u128(7);
        rig.answers(
            "CreatePropertyCollector",
            [collector(), successor()].map(|one| reference("returnval", &one)),
        );
        rig.answers("WaitForUpdatesEx", [updates("1", "enter", &[machine("vm-1", Uuid::nil())], false)]);
        let mut follower = rig.follower();
        let looking = async {
            sleep(Duration::from_secs(10)).await;
            assert_eq!(rig.machines(), ["vm-1"]);
            // the listing of the successor
            let listing = [machine("vm-1", Uuid::nil()), machine("vm-2", uuid)];
            rig.answers("WaitForUpdatesEx", [updates("1", "enter", &listing, false)]);
            rig.vcenter.note_change(uuid, Change::Made);
            sleep(MAX_LAG / 2).await;
            assert_eq!(rig.machines(), ["vm-1"], "it may still be told");
            sleep(MAX_LAG / 2 + CHECK_INTERVAL * 2).await;
            assert_eq!(rig.machines(), ["vm-1", "vm-2"]);
            // another machine is there once, and then no longer: nobody looks for it twice
            rig.vcenter.note_change(Uuid::from_u128(8), Change::Made);
            rig.answers("CreatePropertyCollector", [reference("returnval", &collector())]);
            rig.answers("WaitForUpdatesEx", [updates("1", "enter", &listing, false)]);
            sleep(Duration::from_secs(40)).await;
        };
        tokio::select! {
            error = follower.follow(&rig.connection) => panic!("{error}"),
            () = looking => {}
        }
        let destroyed: Vec<_> =
            rig.transport.requests("DestroyPropertyCollector").into_iter().map(|call| call.this).collect();
        assert_eq!(destroyed, [collector(), successor()]);
        assert_eq!(rig.transport.count("CreateContainerView"), 1);
        assert_eq!(rig.transport.count("Login"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_told_in_time_needs_no_listing() {
        let rig = rig(&[]);
        let uuid = Uuid::from_u128(7);
        rig.answers("WaitForUpdatesEx", [updates("1", "enter", &[machine("vm-1", uuid)], false)]);
        let mut follower = rig.follower();
        let looking = async {
            sleep(Duration::from_secs(1)).await;
            rig.vcenter.note_change(uuid, Change::PoweredOff);
            rig.vcenter.note_change(Uuid::from_u128(8), Change::Destroyed);
            sleep(Duration::from_secs(40)).await;
        };
        tokio::select! {
            error = follower.follow(&rig.connection) => panic!("{error}"),
            () = looking => {}
        }
        assert_eq!(rig.transport.count("DestroyPropertyCollector"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_watch_has_lost_is_listed() {
        let rig = rig(&[]);
        let [first, second] = ["vm-1", "vm-2"].map(|id| machine(id, Uuid::nil()));
        rig.answers(
            "CreatePropertyCollector",
            [collector(), successor()].map(|one| reference("returnval", &one)),
        );
        rig.answers("WaitForUpdatesEx", [updates("1", "enter", &[first, second.clone()], false)]);
        let mut follower = rig.follower();
        let looking = async {
            sleep(REFRESH_INTERVAL.saturating_sub(Duration::from_secs(10))).await;
            assert_eq!(rig.machines(), ["vm-1", "vm-2"]);
            assert_eq!(rig.transport.count("DestroyPropertyCollector"), 0);
            // nothing tells that the first one was destroyed; the watch may take one answer before the listing
            rig.answers(
                "WaitForUpdatesEx",
                [0; 2].map(|_| updates("1", "enter", std::slice::from_ref(&second), false)),
            );
            sleep(Duration::from_secs(20)).await;
            assert_eq!(rig.machines(), ["vm-2"]);
            sleep(REFRESH_INTERVAL / 2).await;
        };
        tokio::select! {
            error = follower.follow(&rig.connection) => panic!("{error}"),
            () = looking => {}
        }
        assert_eq!(rig.transport.count("DestroyPropertyCollector"), 1);
        assert_eq!(rig.transport.count("Login"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_sessions_own_property_collector_is_kept() {
        let rig = rig(&[]);
        rig.transport.fault("CreatePropertyCollector", "NoPermission");
        let mut follower = rig.follower();
        let looking = async {
            sleep(Duration::from_secs(1)).await;
            rig.vcenter.note_change(Uuid::from_u128(7), Change::Made);
            sleep(REFRESH_INTERVAL * 2).await;
        };
        tokio::select! {
            error = follower.follow(&rig.connection) => panic!("{error}"),
            () = looking => {}
        }
        assert_eq!(rig.transport.count("DestroyPropertyCollector"), 0);
    }

    #[test]
    fn listings_that_take_long_are_made_less_often() {
        assert_eq!(max_lag(Duration::from_millis(20)), MAX_LAG);
        assert_eq!(max_lag(Duration::from_secs(15)), Duration::from_secs(30));
    }
}
