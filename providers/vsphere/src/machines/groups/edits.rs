//! What machines want of the groups of a cluster, and the edit that is under way.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    time::Instant,
};

use super::ClusterGroups;
use crate::{
    moref::MoRef,
    vim::clusters::{ClusterConfigSpec, ClusterGroupSpec, ClusterVmGroup, ReconfigureCluster},
};

/// How long groups are known without being read again. After an edit they are read again in any case.
const GROUPS_LAST: Duration = Duration::from_secs(60);

/// For how long an edit may begin after its call was lost. No other edit goes out before that: it would be undone.
const MAX_UNCERTAIN: Duration = Duration::from_secs(10);

/// The edits of all clusters, by vCenter and cluster. Sessions of several users with one vCenter share them.
#[derive(Debug, Default)]
pub(crate) struct AllGroupEdits(Mutex<HashMap<Key, Arc<AsyncMutex<GroupEdits>>>>);

/// The address of a vCenter, and a cluster of hosts.
type Key = (String, MoRef);

impl AllGroupEdits {
    /// Waits for the edits of a cluster, and holds them.
    pub(crate) async fn of(&self, vcenter: &str, cluster: &MoRef) -> OwnedMutexGuard<GroupEdits> {
        let edits = {
            let mut all = self.0.lock();
            Arc::clone(all.entry((vcenter.to_lowercase(), cluster.clone())).or_default())
        };
        edits.lock_owned().await
    }
}

/// An edit that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) task: MoRef,
    pub(crate) since: Instant,
    machines: BTreeSet<MoRef>,
}

impl Write {
    /// Whether a machine joins a group by it.
    pub(crate) fn has(&self, machine: &MoRef) -> bool {
        self.machines.contains(machine)
    }
}

/// What is known and wanted of one cluster.
#[derive(Debug, Default)]
pub(crate) struct GroupEdits {
    groups: Option<(Arc<ClusterGroups>, Instant)>,
    /// The machines that are to be in each group.
    wanted: BTreeMap<String, BTreeSet<MoRef>>,
    pub(crate) write: Option<Write>,
    /// Until when an edit may begin whose call was lost.
    uncertain_until: Option<Instant>,
    /// Whether it is known that no edit is under way but these.
    pub(crate) is_known: bool,
    /// Whether the last edit of several machines failed. One of them may be the reason.
    is_one_by_one: bool,
    /// The machines that failed alone. Nobody else is in an edit with them.
    alone: BTreeSet<MoRef>,
}

impl GroupEdits {
    /// What was read of the cluster, since the last edit and lately.
    pub(crate) fn groups(&self) -> Option<&Arc<ClusterGroups>> {
        self.groups.as_ref().filter(|(_, since)| since.elapsed() < GROUPS_LAST).map(|(groups, _)| groups)
    }

    /// Takes what was read just now.
    pub(crate) fn learn(&mut self, groups: Arc<ClusterGroups>) {
        self.groups = Some((groups, Instant::now()));
    }

    /// Whether a machine is in a group, as far as is known.
    pub(crate) fn has(&self, group: &str, machine: &MoRef) -> bool {
        let group = self.groups().and_then(|groups| groups.vm_group(group));
        group.is_some_and(|group| group.members.contains(machine))
    }

    /// Takes note of what a machine wants, for the next edit.
    pub(crate) fn want(&mut self, group: &str, machine: &MoRef) {
        self.wanted.entry(group.to_owned()).or_default().insert(machine.clone());
    }

    /// For how long no edit may go out yet.
    pub(crate) fn uncertain_for(&self) -> Option<Duration> {
        let left = self.uncertain_until?.checked_duration_since(Instant::now())?;
        (!left.is_zero()).then_some(left)
    }

    /// The next edit, in which a machine joins its group together with all others that want something and are still there. It is made
    /// from what was read just now.
    pub(crate) fn plan(
        &mut self,
        group: &str,
        machine: &MoRef,
        is_there: impl Fn(&MoRef) -> bool,
    ) -> (ReconfigureCluster, BTreeSet<MoRef>) {
        self.want(group, machine);
        let mut wanted = std::mem::take(&mut self.wanted);
        for machines in wanted.values_mut() {
            machines.retain(|one| !self.alone.contains(one));
        }
        if self.is_one_by_one || self.alone.contains(machine) {
            wanted = BTreeMap::from([(group.to_owned(), BTreeSet::from([machine.clone()]))]);
        }
        let mut machines = BTreeSet::new();
        let mut edits = Vec::new();
        let known = self.groups.iter().flat_map(|(groups, _)| &groups.vm_groups);
        for found in known {
            let new = wanted.remove(&found.name).unwrap_or_default().into_iter();
            let new: Vec<_> = new.filter(|one| !found.members.contains(one) && is_there(one)).collect();
            if new.is_empty() {
                continue;
            }
            machines.extend(new.iter().cloned());
            let vm = found.members.iter().cloned().chain(new).collect();
            let info = ClusterVmGroup {
                name: found.name.clone(),
                user_created: found.user_created,
                unique_id: found.unique_id.clone(),
                vm,
            };
            edits.push(ClusterGroupSpec { operation: "edit", info });
        }
        (ReconfigureCluster { spec: ClusterConfigSpec { groups: edits }, modify: true }, machines)
    }

    /// An edit has begun.
    pub(crate) fn begun(&mut self, task: MoRef, machines: BTreeSet<MoRef>) {
        self.write = Some(Write { task, since: Instant::now(), machines });
        self.groups = None;
    }

    /// It is not known whether an edit has begun.
    pub(crate) fn is_uncertain(&mut self) {
        self.uncertain_until = Some(Instant::now() + MAX_UNCERTAIN);
        self.is_known = false;
        self.groups = None;
    }

    /// The edit that was under way has ended.
    pub(crate) fn ended(&mut self, has_failed: bool) {
        let machines = self.write.take().map(|write| write.machines).unwrap_or_default();
        if has_failed {
            self.refused(machines);
        } else {
            self.is_one_by_one = false;
            self.alone.retain(|machine| !machines.contains(machine));
        }
        self.groups = None;
    }

    /// An edit for these machines has failed.
    pub(crate) fn refused(&mut self, machines: BTreeSet<MoRef>) {
        if machines.len() > 1 {
            self.is_one_by_one = true;
        } else {
            self.alone.extend(machines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::groups::tests::{cluster, machine};

    fn edits() -> GroupEdits {
        let mut edits = GroupEdits::default();
        edits.learn(Arc::new(cluster()));
        edits
    }

    fn members(call: &ReconfigureCluster) -> Vec<(String, usize)> {
        call.spec.groups.iter().map(|one| (one.info.name.clone(), one.info.vm.len())).collect()
    }

    #[tokio::test]
    async fn a_cluster_has_one_board_for_all_sessions_with_its_vcenter() {
        let (group_edits, cluster) =
            (AllGroupEdits::default(), MoRef::new("ClusterComputeResource", "domain-c1"));
        group_edits.of("VC.example.org:443", &cluster).await.is_known = true;
        assert!(group_edits.of("vc.example.org:443", &cluster).await.is_known);
        assert!(!group_edits.of("vc2.example.org:443", &cluster).await.is_known);
    }

    #[tokio::test(start_paused = true)]
    async fn one_edit_is_for_all_who_wait_and_keeps_who_is_there() {
        let mut edits = edits();
        assert!(edits.has("machines", &machine(1)) && !edits.has("machines", &machine(3)));
        edits.want("machines", &machine(4));
        edits.want("lonely", &machine(5));
        edits.want("machines", &machine(9));
        edits.want("missing", &machine(8));
        let (call, joining) = edits.plan("machines", &machine(3), |one| *one != machine(9));
        assert_eq!(members(&call), [("machines".to_owned(), 4), ("lonely".to_owned(), 1)]);
        assert_eq!(joining, [3, 4, 5].map(machine).into());
        assert_eq!(call.spec.groups[0].info.unique_id.as_deref(), Some("id-1"));
        edits.begun(MoRef::new("Task", "task-1"), joining);
        assert!(edits.groups().is_none(), "they are read again");
        edits.ended(false);
        edits.learn(Arc::new(cluster()));
        let (call, _) = edits.plan("machines", &machine(6), |_| true);
        assert_eq!(members(&call), [("machines".to_owned(), 3)], "the others are asked for no more");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_each_machine_is_tried_alone() {
        let mut edits = edits();
        for (joining, has_failed, expected) in [
            (&[3, 4][..], true, &[5][..]),
            // 7 alone is what vCenter refuses, and is left out from then on
            (&[7], true, &[5]),
            (&[4], false, &[5, 6]),
            (&[5, 6], false, &[5, 6]),
            // until it is there
            (&[7], false, &[5, 6, 7]),
        ] {
            edits.begun(MoRef::new("Task", "task-1"), joining.iter().copied().map(machine).collect());
            edits.ended(has_failed);
            edits.learn(Arc::new(cluster()));
            for number in [6, 7] {
                edits.want("machines", &machine(number));
            }
            let (_, machines) = edits.plan("machines", &machine(5), |_| true);
            let expected: BTreeSet<_> = expected.iter().copied().map(machine).collect();
            assert_eq!(machines, expected, "{joining:?} {has_failed}");
            edits.want("machines", &machine(6));
            let (_, machines) = edits.plan("machines", &machine(7), |_| true);
            assert_eq!(machines.len() > 1, expected.contains(&machine(7)), "{joining:?} {has_failed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_call_holds_the_next_edit() {
        let mut edits = edits();
        assert_eq!(edits.uncertain_for(), None);
        edits.is_uncertain();
        assert_eq!(edits.uncertain_for(), Some(MAX_UNCERTAIN));
        assert!(edits.groups().is_none());
        tokio::time::advance(MAX_UNCERTAIN).await;
        assert_eq!(edits.uncertain_for(), None);
        edits.learn(Arc::new(cluster()));
        tokio::time::advance(GROUPS_LAST).await;
        assert!(edits.groups().is_none(), "old");
    }
}
