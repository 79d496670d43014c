//! Notices Go managers that work without an election, by the field managers of their writes.
//!
//! The API server records for each object who wrote which fields, and when. Go's clients send no name of their own, so the API
//! server takes the first part of the user agent: the name of the program. That is `manager` in Cluster API's images, but in
//! the images of many other providers too. So such a name counts only for the status of kinds that nobody else writes
//! ([`Part::judged`]). The names of Cluster API's server-side apply count everywhere.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use tokio::sync::watch;

use super::part::{Part, VERSION};

/// How long no other manager must have written before a part that stopped for it starts again.
pub const QUIET: Duration = Duration::from_secs(10 * 60);

/// API servers whose clocks differ by less do not make an earlier write a later one.
const SKEW: Duration = Duration::from_secs(5);

/// The most objects of one answer.
const PAGE: u32 = 500;

/// A write by a manager of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignWrite {
    /// Its field manager.
    pub manager: String,
    /// When it wrote, by the API server's clock in whole seconds.
    pub time: Timestamp,
    /// The kind of the object.
    pub kind: String,
    /// The namespace and the name of the object.
    pub object: String,
}

impl fmt::Display for ForeignWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { manager, time, kind, object } = self;
        write!(f, "{manager:?} wrote {kind} {object} at {time}")
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
    let is_judged = part.judged.iter().any(|judged| judged.kind == kind);
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

/// Looks for foreign writes in what the controllers of a part see. Clones share what was seen.
#[derive(Clone, Debug)]
pub struct Writers {
    part: &'static Part,
    own: String,
    since: Timestamp,
    /// Whether foreign writes end the part.
    matter: bool,
    seen: Arc<watch::Sender<Option<ForeignWrite>>>,
}

impl Writers {
    pub(super) fn new(part: &'static Part, own: &str, since: Timestamp, matter: bool) -> Self {
        Self { part, own: own.to_owned(), since, matter, seen: Arc::new(watch::Sender::new(None)) }
    }

    /// Call this for each object that a watch of the part shows. Ends the part if a Go manager has written it.
    /// `metadata` must have the managed fields.
    pub fn saw(&self, kind: &str, metadata: &ObjectMeta) {
        if !self.matter {
            return;
        }
        if let Some(write) = found(self.part, kind, &self.own, metadata, self.since) {
            self.seen.send_if_modified(|seen| {
                let is_first = seen.is_none();
                if is_first {
                    *seen = Some(write);
                }
                is_first
            });
        }
    }

    /// Waits until a foreign write was seen.
    pub(super) async fn foreign(&self) -> ForeignWrite {
        let mut seen = self.seen.subscribe();
        loop {
            if let Some(write) = seen.borrow_and_update().clone() {
                return write;
            }
            if seen.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

fn found(
    part: &Part,
    kind: &str,
    own: &str,
    metadata: &ObjectMeta,
    since: Timestamp,
) -> Option<ForeignWrite> {
    let (manager, time) = foreign_writer(part, kind, own, metadata.managed_fields.as_deref()?, since)?;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref().unwrap_or_default());
    let object = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
    Some(ForeignWrite { manager: manager.to_owned(), time, kind: kind.to_owned(), object })
}

/// The last foreign write after `since` to the judged kinds, in one namespace or in all.
///
/// # Errors
/// A kind that cannot be listed. A kind that is not served has no objects.
pub(super) async fn last_foreign_write(
    client: &Client,
    part: &Part,
    own: &str,
    namespace: Option<&str>,
    since: Timestamp,
) -> kube::Result<Option<ForeignWrite>> {
    let mut last: Option<ForeignWrite> = None;
    for judged in part.judged {
        let resource = ApiResource {
            group: judged.group.to_owned(),
            version: VERSION.to_owned(),
            api_version: format!("{}/{VERSION}", judged.group),
            kind: judged.kind.to_owned(),
            plural: judged.plural.to_owned(),
        };
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = match api.list_metadata(&params).await {
                Ok(page) => page,
                Err(kube::Error::Api(status)) if status.code == 404 => break,
                Err(error) => return Err(error),
            };
            let writes =
                page.items.iter().filter_map(|one| found(part, judged.kind, own, &one.metadata, since));
            last = last.into_iter().chain(writes).max_by_key(|write| write.time);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
                None => break,
            }
        }
    }
    Ok(last)
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

    #[tokio::test]
    async fn the_first_foreign_write_is_kept() {
        let writers = Writers::new(&CORE, OWN, at(100), true);
        let object = |name: &str, second| ObjectMeta {
            namespace: Some("a".to_owned()),
            name: Some(name.to_owned()),
            managed_fields: Some(vec![entry("manager", "status", second)]),
            ..ObjectMeta::default()
        };
        for (name, second) in [("old", 90), ("first", 200), ("second", 300)] {
            writers.saw("Cluster", &object(name, second));
        }
        let write = writers.foreign().await;
        assert_eq!(write.to_string(), "\"manager\" wrote Cluster a/first at 1970-01-01T00:03:20Z");
    }
}
