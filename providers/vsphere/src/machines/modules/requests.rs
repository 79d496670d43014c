//! What machines want of the modules of their clusters, and what was made and is not recorded yet.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use cloudprovider::machines::Mark;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::Group;
use crate::machines::spec::ClusterModule;

/// The namespace and the name of a Cluster. Marks of the cluster and of its machines have both.
type Key = (String, String);

/// What is known of all clusters. All of it may be lost: machines want their modules again, and what was recorded is recorded.
#[derive(Debug, Default)]
pub(crate) struct ModuleRequests(Mutex<HashMap<Key, Cluster>>);

#[derive(Debug, Default)]
struct Cluster {
    /// The UID of its object, once a step of it was made.
    uid: Option<String>,
    /// What machines wait for.
    wanted: BTreeSet<Group>,
    /// The modules that were made and are not recorded, as far as was seen.
    made: Vec<(Group, String)>,
    /// All that this process has made for it.
    own: BTreeSet<String>,
    /// What is recorded for it, as was seen last.
    recorded: BTreeSet<String>,
    /// Held by a step of it, and by the calls that it leaves behind.
    turn: Arc<AsyncMutex<()>>,
}

/// What is known of the claim of a cluster to a module. Its object names it, which whoever may write the object decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This process has made it for the cluster.
    Made,
    /// No other cluster names it.
    Alone,
    /// Another cluster names it too.
    Shared,
}

impl ModuleRequests {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Cluster>> {
        self.0.lock()
    }

    /// A machine wants a module for its group. Returns the UID of the object that is to be looked at for it: once, since a step that
    /// fails is made again.
    pub(crate) fn want(&self, machine: &Mark, group: Group) -> Option<String> {
        let mut all = self.all();
        let cluster = all.entry(key(machine)).or_default();
        cluster.wanted.insert(group).then(|| cluster.uid.clone()).flatten()
    }

    /// A step of a cluster begins, after the last call of an earlier one has ended.
    pub(crate) async fn turn(&self, mark: &Mark) -> OwnedMutexGuard<()> {
        let turn = {
            let mut all = self.all();
            let cluster = all.entry(key(mark)).or_default();
            cluster.uid = Some(mark.uid.clone());
            Arc::clone(&cluster.turn)
        };
        turn.lock_owned().await
    }

    /// What is wanted and was not made, and what was made and is not among these.
    pub(crate) fn next(
        &self,
        mark: &Mark,
        recorded: &[ClusterModule],
    ) -> (BTreeSet<Group>, Vec<ClusterModule>) {
        let mut all = self.all();
        let Some(cluster) = all.get_mut(&key(mark)) else { return Default::default() };
        cluster.recorded = recorded.iter().map(|module| module.module_uuid.clone()).collect();
        let Cluster { wanted, made, .. } = cluster;
        made.retain(|(group, id)| {
            let is_recorded = recorded.iter().any(|module| module.module_uuid == *id);
            if is_recorded {
                wanted.remove(group);
            }
            !is_recorded
        });
        let is_made = |group: &&Group| made.iter().any(|(of, _)| of == *group);
        let open = wanted.iter().filter(|group| !is_made(group)).cloned().collect();
        (open, made.iter().map(|(group, id)| group.recorded(id.clone())).collect())
    }

    /// A module was made.
    pub(crate) fn made(&self, mark: &Mark, group: Group, id: String) {
        let mut all = self.all();
        let cluster = all.entry(key(mark)).or_default();
        cluster.own.insert(id.clone());
        cluster.made.push((group, id));
    }

    /// Takes note of what is recorded for a cluster.
    pub(crate) fn note_recorded(&self, mark: &Mark, recorded: &[ClusterModule]) {
        let recorded = recorded.iter().map(|module| module.module_uuid.clone()).collect();
        self.all().entry(key(mark)).or_default().recorded = recorded;
    }

    /// Which clusters name a module, beside this one.
    pub(crate) fn claim(&self, mark: &Mark, module: &str) -> Claim {
        let (all, own) = (self.all(), key(mark));
        if all.get(&own).is_some_and(|cluster| cluster.own.contains(module)) {
            return Claim::Made;
        }
        let names = |cluster: &Cluster| cluster.own.contains(module) || cluster.recorded.contains(module);
        if all.iter().any(|(other, cluster)| *other != own && names(cluster)) {
            Claim::Shared
        } else {
            Claim::Alone
        }
    }

    /// Nobody has to make modules for these any more.
    pub(crate) fn served(&self, mark: &Mark, groups: &BTreeSet<Group>) {
        if let Some(cluster) = self.all().get_mut(&key(mark)) {
            cluster.wanted.retain(|group| !groups.contains(group));
        }
    }

    /// Something has failed. Machines that still wait want their modules again, some time later, and have the cluster looked at.
    pub(crate) fn ask_again(&self, mark: &Mark) {
        if let Some(cluster) = self.all().get_mut(&key(mark)) {
            cluster.wanted.clear();
        }
    }

    /// The cluster is gone.
    pub(crate) fn forget(&self, mark: &Mark) {
        self.all().remove(&key(mark));
    }

    /// The object with this UID is gone, whatever it was.
    pub(crate) fn forget_object(&self, uid: &str) {
        self.all().retain(|_, cluster| cluster.uid.as_deref() != Some(uid));
    }
}

fn key(mark: &Mark) -> Key {
    (mark.namespace.clone(), mark.cluster.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::modules::tests::group;

    fn machine() -> Mark {
        Mark::machine("u-1", "default", "prod", "worker-1")
    }

    fn cluster() -> Mark {
        Mark::cluster("u-0", "default", "prod")
    }

    #[tokio::test]
    async fn all_who_wait_share_one_module() {
        let requests = ModuleRequests::default();
        assert_eq!(requests.want(&machine(), group("a", "c-1")), None, "no step of the cluster was made yet");
        drop(requests.turn(&cluster()).await);
        assert_eq!(requests.want(&machine(), group("a", "c-1")), None, "told already");
        assert_eq!(requests.want(&machine(), group("b", "c-1")).as_deref(), Some("u-0"));
        let (open, made) = requests.next(&cluster(), &[]);
        assert_eq!((open.len(), made.len()), (2, 0));
        requests.made(&cluster(), group("a", "c-1"), "m-1".to_owned());
        // nobody has written it yet
        for _ in 0..2 {
            let (open, made) = requests.next(&cluster(), &[]);
            assert_eq!(open, BTreeSet::from([group("b", "c-1")]));
            assert_eq!(made, [group("a", "c-1").recorded("m-1".to_owned())]);
        }
        let (open, made) = requests.next(&cluster(), &made_before());
        assert_eq!((open, made), (BTreeSet::from([group("b", "c-1")]), Vec::new()));
        assert_eq!(
            requests.want(&machine(), group("a", "c-1")).as_deref(),
            Some("u-0"),
            "it is wanted again"
        );
        requests.served(&cluster(), &BTreeSet::from([group("a", "c-1"), group("b", "c-1")]));
        assert_eq!(requests.next(&cluster(), &made_before()), Default::default());
        requests.forget(&cluster());
        assert_eq!(requests.want(&machine(), group("a", "c-1")), None);
    }

    #[test]
    fn who_else_names_a_module_is_known() {
        let (requests, other) = (ModuleRequests::default(), Mark::cluster("u-9", "other", "prod"));
        requests.note_recorded(&cluster(), &made_before());
        assert_eq!(requests.claim(&cluster(), "m-1"), Claim::Alone);
        assert_eq!(requests.claim(&machine(), "m-1"), Claim::Alone, "a machine of it");
        requests.note_recorded(&other, &made_before());
        assert_eq!(
            (requests.claim(&cluster(), "m-1"), requests.claim(&other, "m-1")),
            (Claim::Shared, Claim::Shared)
        );
        requests.made(&cluster(), group("a", "c-1"), "m-1".to_owned());
        assert_eq!(
            (requests.claim(&cluster(), "m-1"), requests.claim(&other, "m-1")),
            (Claim::Made, Claim::Shared)
        );
        requests.note_recorded(&other, &[]);
        assert_eq!(requests.claim(&other, "m-1"), Claim::Shared, "it was made for another one");
        requests.forget(&cluster());
        assert_eq!(requests.claim(&other, "m-1"), Claim::Alone);
    }

    #[tokio::test]
    async fn nothing_stays_of_a_cluster_that_was_removed_by_force() {
        let requests = ModuleRequests::default();
        drop(requests.turn(&cluster()).await);
        requests.made(&cluster(), group("a", "c-1"), "m-1".to_owned());
        requests.forget_object("u-1");
        assert_eq!(requests.next(&cluster(), &[]).1.len(), 1, "that was a machine");
        requests.forget_object("u-0");
        assert!(requests.all().is_empty());
    }

    fn made_before() -> [ClusterModule; 1] {
        [group("a", "c-1").recorded("m-1".to_owned())]
    }
}
