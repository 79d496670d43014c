//! Follows the tasks of a vCenter, once steps of machines wait for them.
//!
//! A property collector of its own reports them. So the end of a task does not wait until the server has
//! compared all machines with what it last reported, and neither does a change of a machine wait for tasks.

use std::{collections::HashSet, future::pending, sync::atomic::Ordering, time::Duration};

use tokio::time::{Instant, sleep};

use super::{Connection, Follower, Watched, of_machines, reference};
use crate::{
    inventory::Changes,
    moref::MoRef,
    session::ServiceContent,
    tasks::watched,
    vim::{
        CallError,
        objects::{CreateFilter, CreatePropertyCollector},
    },
};

/// For how long no end of a task is told before they are listed anew, if machines wait for one. Tasks of a vCenter that is not slow to tell
/// them often take longer, so this doubles each time that the listing had no end either.
const MIN_SILENCE: Duration = Duration::from_secs(2);

/// How often it is looked whether an end was told.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// For how long no end of a task need be told, at most, before they are listed anew.
const MAX_SILENCE: Duration = Duration::from_secs(60);

impl Follower<'_> {
    /// Follows tasks until that fails, and returns the error. Makes no call before tasks are wanted.
    ///
    /// `machines` is the property collector that reports machines. It reports tasks too where the session has
    /// no other one.
    pub(super) async fn follow_tasks(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        machines: MoRef,
    ) -> CallError {
        self.vcenter.tasks_wanted().await;
        let Some(manager) = &content.task_manager else { return pending().await };
        let own = match self.collector_of_tasks(connection, content, &machines).await {
            Ok(own) => own,
            Err(error) => return error,
        };
        let filter = || CreateFilter { spec: watched(manager), partial_updates: false };
        let Some(mut own) = own else {
            self.shares_collector.store(true, Ordering::Relaxed);
            return match self.call(connection, &filter().of(&machines)).await {
                Ok(_) => pending().await,
                Err(error) => error,
            };
        };
        let mut max_silence = MIN_SILENCE;
        let mut behind = self.behind.subscribe();
        loop {
            if let Err(error) = self.call(connection, &filter().of(&own)).await {
                return error;
            }
            let ends = self.vcenter.state().tasks.ends();
            let mut watched = Watched::by(own.clone());
            if *behind.borrow_and_update() {
                if let Err(error) = self.list_tasks(connection, &mut watched).await {
                    return error;
                }
                max_silence = MIN_SILENCE;
                // The sender is there as long as this.
                let _ = behind.changed().await;
            } else {
                tokio::select! {
                    error = self.watch(connection, &mut watched) => return error,
                    () = self.fall_silent(max_silence) => {
                        let was_told = self.vcenter.state().tasks.ends() != ends;
                        max_silence = if was_told { MIN_SILENCE } else { MAX_SILENCE.min(max_silence * 2) };
                    }
                    _ = behind.changed() => {}
                }
            }
            own = match self.replace(connection, content, &own).await {
                Ok(own) => own,
                Err(error) => return error,
            };
        }
    }

    /// Takes the listing of a property collector. Whoever waits for a task that it has no more is woken, to ask for it.
    async fn list_tasks(&self, connection: &Connection, watched: &mut Watched) -> Result<(), CallError> {
        let (mut seen, mut changes) = (HashSet::new(), Changes::default());
        while self.wait(connection, watched, Duration::ZERO, &mut seen, &mut changes).await? {}
        self.vcenter.update(|state| {
            changes.add(of_machines(state.tasks.retain(&seen)));
            changes
        });
        Ok(())
    }

    /// Returns when somebody waits for a task, and no end was told for this time. The tasks may take long, or the
    /// server tells them late: then the listing of another property collector has them.
    async fn fall_silent(&self, max_silence: Duration) {
        let (mut ends, mut since) = (self.vcenter.state().tasks.ends(), Instant::now());
        loop {
            sleep(CHECK_INTERVAL).await;
            let state = self.vcenter.state();
            if state.tasks.ends() != ends {
                (ends, since) = (state.tasks.ends(), Instant::now());
            }
            if since.elapsed() >= max_silence
                && state.tasks.longest_wait().is_some_and(|waited| waited >= max_silence)
            {
                return;
            }
        }
    }

    /// Creates another property collector. `None` if vCenter refuses that.
    async fn collector_of_tasks(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        machines: &MoRef,
    ) -> Result<Option<MoRef>, CallError> {
        if *machines == content.property_collector {
            return Ok(None);
        }
        let create = CreatePropertyCollector {}.of(&content.property_collector);
        match self.call(connection, &create).await {
            Ok(answer) => reference(&answer, create.method).map(Some),
            Err(error @ CallError::Fault { .. }) if !error.is_session_lost() => {
                tracing::debug!(
                    vcenter = self.vcenter.name(),
                    %error,
                    "vCenter makes no further property collector; one reports machines and tasks"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uuid::Uuid;

    use super::*;
    use crate::{
        follow::behind::{self, MAX_LAG},
        follow::tests::{Rig, rig, updates, vm},
        testing::scripted::{collector, node, reference as answer, text},
        vcenter::Change,
        vim::element::Element,
    };

    /// A vCenter with tasks, of which machines wait for one.
    fn rig_with_tasks() -> Rig {
        let rig = rig(&[]);
        let parts = [
            ("rootFolder", "Folder"),
            ("propertyCollector", "PropertyCollector"),
            ("viewManager", "ViewManager"),
            ("sessionManager", "SessionManager"),
            ("taskManager", "TaskManager"),
        ];
        let content = parts.map(|(name, kind)| answer(name, &MoRef::new(kind, name)));
        rig.answers("RetrieveServiceContent", [node("returnval", content.into())]);
        rig.vcenter.follow_tasks();
        rig
    }

    fn collector_of_tasks() -> MoRef {
        MoRef::new("PropertyCollector", "session[1]8")
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_are_told_by_another_property_collector() {
        let rig = rig_with_tasks();
        let [machines, tasks] = [collector(), collector_of_tasks()].map(|made| answer("returnval", &made));
        rig.answers("CreatePropertyCollector", [machines, tasks]);
        let task = MoRef::new("Task", "task-1");
        let ended = (task.clone(), vec![("info.state".to_owned(), text("val", "success"))]);
        rig.answers(
            "WaitForUpdatesEx",
            [
                updates("1", "enter", &[vm("vm-1")], false),
                Element::default(),
                updates("1", "enter", std::slice::from_ref(&ended), false),
            ],
        );
        assert!(rig.vcenter.wait_for_task(&task, "u-1").is_none());
        let mut changes = rig.changes.resubscribe();
        let mut follower = rig.follower();
        let following = follower.follow(&rig.connection);
        assert!(tokio::time::timeout(Duration::from_secs(60), following).await.is_err(), "for ever");
        assert!(rig.vcenter.wait_for_task(&task, "u-2").is_some_and(|task| task.has_ended()));
        let told = std::iter::from_fn(|| changes.try_recv().ok());
        assert!(told.into_iter().any(|change| format!("{change:?}").contains("u-1")), "who waited is woken");

        let by =
            |method| rig.transport.requests(method).into_iter().map(|call| call.this).collect::<Vec<_>>();
        assert_eq!(by("CreateFilter"), [collector(), collector_of_tasks()]);
        assert!(by("WaitForUpdatesEx").contains(&collector_of_tasks()));
        let filters = rig.sent("CreateFilter", "spec");
        assert!(!filters[0].contains("recentTask") && filters[1].contains("recentTask"), "{filters:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_property_collector_tells_both_where_there_is_no_other() {
        // the server refuses the second one
        let refused = rig_with_tasks();
        refused.answers("CreatePropertyCollector", [answer("returnval", &collector())]);
        refused.transport.fault("CreatePropertyCollector", "NoPermission");
        // the server refuses each, so it is not asked for a second one
        let none = rig_with_tasks();
        none.transport.fault("CreatePropertyCollector", "NoPermission");
        let sessions_own = MoRef::new("PropertyCollector", "propertyCollector");
        for (rig, expected, asked) in [(refused, collector(), 2), (none, sessions_own, 1)] {
            rig.answers("WaitForUpdatesEx", [updates("1", "enter", &[vm("vm-1")], false)]);
            let mut follower = rig.follower();
            let following = follower.follow(&rig.connection);
            assert!(tokio::time::timeout(Duration::from_secs(60), following).await.is_err(), "for ever");
            let filters = rig.transport.requests("CreateFilter").into_iter().map(|call| call.this);
            assert_eq!(filters.collect::<Vec<_>>(), [expected.clone(), expected.clone()]);
            let waits = rig.transport.requests("WaitForUpdatesEx").into_iter().map(|call| call.this);
            assert_eq!(waits.collect::<BTreeSet<_>>(), BTreeSet::from([expected]));
            assert_eq!(rig.transport.count("CreatePropertyCollector"), asked);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ends_that_are_not_told_are_listed() {
        let rig = rig_with_tasks();
        let collectors =
            ["session[1]7", "session[1]8", "session[1]9"].map(|id| MoRef::new("PropertyCollector", id));
        rig.answers("CreatePropertyCollector", collectors.each_ref().map(|made| answer("returnval", made)));
        let task = MoRef::new("Task", "task-1");
        let of_task = |state: &str| vec![(task.clone(), vec![("info.state".to_owned(), text("val", state))])];
        rig.answers(
            "WaitForUpdatesEx",
            [
                updates("1", "enter", &[vm("vm-1")], false),
                Element::default(),
                updates("1", "enter", &of_task("running"), false),
            ],
        );
        let mut follower = rig.follower();
        let looking = async {
            sleep(Duration::from_secs(10)).await;
            assert_eq!(rig.transport.count("DestroyPropertyCollector"), 0, "nobody waits for a task");
            assert!(rig.vcenter.wait_for_task(&task, "u-1").is_some_and(|task| !task.has_ended()));
            rig.answers("WaitForUpdatesEx", [updates("1", "enter", &of_task("success"), false)]);
            sleep(MIN_SILENCE + CHECK_INTERVAL * 2).await;
            assert!(rig.vcenter.wait_for_task(&task, "u-2").is_some_and(|task| task.has_ended()));
            sleep(Duration::from_secs(100)).await;
        };
        tokio::select! {
            error = follower.follow(&rig.connection) => panic!("{error}"),
            () = looking => {}
        }
        let destroyed: Vec<_> =
            rig.transport.requests("DestroyPropertyCollector").into_iter().map(|call| call.this).collect();
        assert_eq!(destroyed, [collectors[1].clone()], "of tasks, once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_has_machines_and_tasks_listed_until_it_has_no_more_to_tell() {
        let rig = rig_with_tasks();
        let (task, uuid) = (MoRef::new("Task", "task-1"), Uuid::from_u128(7));
        let listings = || rig.transport.count("DestroyPropertyCollector") / 2;
        let watches =
            || rig.sent("WaitForUpdatesEx", "options").iter().filter(|sent| sent.contains("45")).count();
        let mut follower = rig.follower();
        let looking = async {
            sleep(Duration::from_secs(10)).await;
            rig.vcenter.wait_for_task(&task, "u-1");
            rig.vcenter.note_change(uuid, Change::Made);
            let before = watches();
            sleep(MAX_LAG + behind::CHECK_INTERVAL).await;
            for number in 1..5 {
                assert_eq!(listings(), number, "of both, while machines change");
                rig.vcenter.note_change(uuid, Change::Made);
                sleep(MAX_LAG).await;
            }
            // It may have more to tell while somebody waits for a task, and is asked less and less often.
            sleep(Duration::from_secs(3)).await;
            assert_eq!((listings(), watches()), (8, before));
            sleep(Duration::from_secs(1)).await;
            assert!(watches() > before, "both are watched again");
        };
        tokio::select! {
            error = follower.follow(&rig.connection) => panic!("{error}"),
            () = looking => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_take_long_are_listed_less_and_less_often() {
        let rig = rig_with_tasks();
        let task = MoRef::new("Task", "task-1");
        let mut follower = rig.follower();
        let looking = async {
            let mut counts = Vec::new();
            // Ends before everything is listed anew.
            for _ in 0..3 {
                for _ in 0..4 {
                    rig.vcenter.wait_for_task(&task, "u-1");
                    sleep(Duration::from_secs(60)).await;
                }
                counts.push(rig.transport.count("DestroyPropertyCollector"));
            }
            counts
        };
        let counts = tokio::select! {
            error = follower.follow(&rig.connection) => panic!("{error}"),
            counts = looking => counts,
        };
        assert!(counts[0] <= 8 && counts[2] - counts[1] <= 4, "{counts:?}");
    }
}
