//! Notices Go managers that work without an election, by the field managers of their writes.
//!
//! The API server records for each object who wrote which fields, and when. Go's clients send no name of their own, so the API
//! server takes the first part of the user agent: the name of the program. That is `manager` in Cluster API's images, but in
//! the images of many other providers too. So such a name counts only for the status of kinds that nobody else writes
//! ([`Part::judged`]). The names of Cluster API's server-side apply count everywhere.
//!
//! An object that `clusterctl move` brings has the names of those who wrote it before. Their writes are older than the object is here, so
//! they do not count.
//!
//! A user who may write objects may send any name. So a foreign write stops the part in the namespace of the object alone. A
//! Go manager stops it in each namespace where it works.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::part::Part;

/// How long no other manager must have written in a namespace before a part that stopped there writes again.
pub const QUIET: Duration = Duration::from_secs(10 * 60);

/// API servers whose clocks differ by less do not make an earlier write a later one.
const SKEW: Duration = Duration::from_secs(5);

/// A write by a manager of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignWrite {
    /// Its field manager.
    pub manager: String,
    /// When it wrote, by the API server's clock in whole seconds.
    pub time: Timestamp,
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

impl fmt::Display for ForeignWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { manager, time, kind, namespace, name } = self;
        write!(f, "{manager:?} wrote {kind} {namespace}/{name} at {time}")
    }
}

/// The last write of a Go manager of this part to an object of this kind after `since`: the field manager, and when it wrote.
/// Writes within five seconds after `since` do not count, since the clocks of API servers differ. `own` is this program's own
/// field manager.
pub fn foreign_writer<'f>(
    part: &Part,
    kind: &str,
    own: &str,
    managed_fields: &'f [ManagedFieldsEntry],
    since: Timestamp,
) -> Option<(&'f str, Timestamp)> {
    let is_judged = part.judged.contains(&kind);
    let begins = since.checked_add(SKEW).unwrap_or(Timestamp::MAX);
    let writes = managed_fields.iter().filter_map(|entry| {
        let (manager, time) = (entry.manager.as_deref()?, entry.time.as_ref()?.0);
        let is_applied = part.field_managers.contains(&manager);
        let is_status = entry.subresource.as_deref() == Some("status");
        let is_program = is_judged && is_status && is_program_of_a_manager(manager);
        (manager != own && (is_applied || is_program) && time > begins).then_some((manager, time))
    });
    writes.max_by_key(|(_, time)| *time)
}

/// Whether Cluster API's managers are called so: `manager` in the images, `kubeadm-bootstrap-manager` and the like elsewhere.
fn is_program_of_a_manager(name: &str) -> bool {
    name == "manager" || name.ends_with("-manager")
}

/// Why a request was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: a manager of Cluster API works in namespace {0} without holding its lease")]
pub struct ForeignManagerWorks(pub String);

/// Where foreign writes were seen, by namespace. Clones share it. It outlasts the terms of the part.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenWrites(Arc<Mutex<BTreeMap<String, (ForeignWrite, Instant)>>>);

impl SeenWrites {
    /// The last foreign writes in the namespaces where the part is stopped.
    pub(super) fn stopped(&self) -> Vec<ForeignWrite> {
        let seen = self.0.lock();
        seen.values().filter(|(_, at)| at.elapsed() < QUIET).map(|(write, _)| write.clone()).collect()
    }

    /// Whether the part writes in this namespace.
    ///
    /// # Errors
    /// It is stopped there.
    pub(super) fn check(&self, namespace: &str) -> Result<(), ForeignManagerWorks> {
        let is_stopped = self.0.lock().get(namespace).is_some_and(|(_, at)| at.elapsed() < QUIET);
        if is_stopped { Err(ForeignManagerWorks(namespace.to_owned())) } else { Ok(()) }
    }

    /// Notes a write. Returns whether the part stops for it. A write that was noted before counts once.
    fn note(&self, write: &ForeignWrite) -> bool {
        let mut seen = self.0.lock();
        let before = seen.get(&write.namespace);
        if before.is_some_and(|(before, _)| before.time >= write.time) {
            return false;
        }
        let stops = before.is_none_or(|(_, at)| at.elapsed() >= QUIET);
        seen.insert(write.namespace.clone(), (write.clone(), Instant::now()));
        stops
    }
}

/// What is done once for each namespace where the part stops.
pub(super) type Report = Arc<dyn Fn(&ForeignWrite) + Send + Sync>;

/// Looks for foreign writes in what the controllers of a part see, for one term. Clones share what was seen.
#[derive(Clone)]
pub struct Writers {
    part: &'static Part,
    own: String,
    since: Timestamp,
    pub(super) seen: SeenWrites,
    /// `None`: foreign writes do not matter.
    report: Option<Report>,
}

impl fmt::Debug for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writers")
            .field("since", &self.since)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl Writers {
    pub(super) fn new(
        part: &'static Part,
        own: &str,
        since: Timestamp,
        seen: SeenWrites,
        report: Option<Report>,
    ) -> Self {
        Self { part, own: own.to_owned(), since, seen, report }
    }

    /// Call this for each object that a watch of the part shows. Stops the part in the object's namespace if a Go manager has
    /// written it. `metadata` must have the managed fields.
    pub fn saw(&self, kind: &str, metadata: &ObjectMeta) {
        let Some(report) = &self.report else { return };
        let entries = metadata.managed_fields.as_deref().unwrap_or_default();
        // `clusterctl move` brings along who wrote an object in the management cluster that it comes from.
        let created = metadata.creation_timestamp.as_ref().map_or(self.since, |time| time.0);
        let since = self.since.max(created);
        let Some((manager, time)) = foreign_writer(self.part, kind, &self.own, entries, since) else {
            return;
        };
        let write = ForeignWrite {
            manager: manager.to_owned(),
            time,
            kind: kind.to_owned(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        };
        if self.seen.note(&write) {
            report(&write);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::{
        super::part::{BOOTSTRAP, CORE},
        *,
    };

    const OWN: &str = "cloud-controller-manager";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn entry(manager: &str, subresource: &str, second: i64) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            subresource: Some(subresource.to_owned()).filter(|name| !name.is_empty()),
            operation: Some("Update".to_owned()),
            time: Some(Time(at(second))),
            ..ManagedFieldsEntry::default()
        }
    }

    fn seen(part: &Part, kind: &str, entries: &[ManagedFieldsEntry]) -> Option<String> {
        foreign_writer(part, kind, OWN, entries, at(100)).map(|(manager, time)| format!("{manager} {time}"))
    }

    #[test]
    fn a_go_manager_is_known_by_the_status_of_kinds_that_it_alone_writes() {
        let go = |kind: &str| seen(&CORE, kind, &[entry("manager", "status", 200)]);
        assert_eq!(go("Cluster").as_deref(), Some("manager 1970-01-01T00:03:20Z"));
        assert!(go("MachineSet").is_some() && go("MachineDeployment").is_some());
        // The manager of control planes writes conditions of Machines.
        assert_eq!(go("Machine"), None);
        assert_eq!(go("KubeadmConfig"), None, "the other part's");
        assert!(seen(&BOOTSTRAP, "KubeadmConfig", &[entry("manager", "status", 200)]).is_some());
        assert!(
            seen(&BOOTSTRAP, "KubeadmConfig", &[entry("kubeadm-bootstrap-manager", "status", 200)]).is_some()
        );
        // The core sets an owner reference on KubeadmConfigs.
        assert_eq!(seen(&BOOTSTRAP, "KubeadmConfig", &[entry("manager", "", 200)]), None);
    }

    #[test]
    fn names_of_server_side_apply_count_everywhere() {
        for kind in ["Machine", "MachineSet", "LibvirtMachine"] {
            assert!(seen(&CORE, kind, &[entry("capi-machineset", "", 200)]).is_some(), "{kind}");
        }
        assert_eq!(seen(&CORE, "Machine", &[entry("capi-kubeadmcontrolplane", "", 200)]), None);
    }

    #[test]
    fn others_and_this_program_do_not_count() {
        for manager in [OWN, "kubectl-edit", "clusterctl", "manager2", "argocd-controller"] {
            assert_eq!(seen(&CORE, "Cluster", &[entry(manager, "status", 200)]), None, "{manager}");
        }
        assert_eq!(seen(&CORE, "Cluster", &[]), None);
        assert_eq!(seen(&CORE, "Cluster", &[ManagedFieldsEntry::default()]), None);
    }

    #[test]
    fn only_what_was_written_after_the_part_began_counts_and_the_last_is_named() {
        for (second, counts) in [(99, false), (100, false), (105, false), (106, true)] {
            let found = seen(&CORE, "Cluster", &[entry("manager", "status", second)]);
            assert_eq!(found.is_some(), counts, "{second}");
        }
        let several = [
            entry("manager", "status", 50),
            entry("core-manager", "status", 300),
            entry("capi-topology", "", 200),
        ];
        assert!(seen(&CORE, "Cluster", &several).expect("foreign").starts_with("core-manager"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_write_stops_the_part_in_its_namespace_until_it_is_quiet() {
        let reported: Arc<Mutex<Vec<String>>> = Arc::default();
        let report: Report = {
            let reported = Arc::clone(&reported);
            Arc::new(move |write| reported.lock().push(write.to_string()))
        };
        let writers = Writers::new(&CORE, OWN, at(100), SeenWrites::default(), Some(report));
        let saw = |namespace: &str, name: &str, second| {
            let metadata = ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                managed_fields: Some(vec![entry("manager", "status", second)]),
                ..ObjectMeta::default()
            };
            writers.saw("Cluster", &metadata);
        };
        let is_stopped = |namespace| writers.seen.check(namespace).is_err();
        saw("a", "old", 90);
        assert!(!is_stopped("a"), "before our time");
        let moved = ObjectMeta {
            namespace: Some("a".to_owned()),
            name: Some("moved".to_owned()),
            creation_timestamp: Some(Time(at(200))),
            managed_fields: Some(vec![entry("manager", "status", 201)]),
            ..ObjectMeta::default()
        };
        writers.saw("Cluster", &moved);
        assert!(!is_stopped("a"), "written in the management cluster that it comes from");
        saw("a", "first", 200);
        assert!(is_stopped("a") && !is_stopped("b"));
        tokio::time::advance(QUIET / 2).await;
        saw("a", "first", 200);
        saw("a", "second", 500);
        assert_eq!(*reported.lock(), ["\"manager\" wrote Cluster a/first at 1970-01-01T00:03:20Z"]);
        tokio::time::advance(QUIET / 2).await;
        assert!(is_stopped("a"), "it wrote again");
        assert_eq!(writers.seen.stopped().iter().map(|write| &*write.name).collect::<Vec<_>>(), ["second"]);
        tokio::time::advance(QUIET / 2).await;
        assert!(!is_stopped("a") && writers.seen.stopped().is_empty(), "quiet");
        saw("a", "second", 500);
        assert!(!is_stopped("a"), "the same write counts once");
        saw("a", "third", 501);
        assert!(is_stopped("a"));
        assert_eq!(reported.lock().len(), 2);
    }
}
