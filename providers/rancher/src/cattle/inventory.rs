//! The hosts in memory, and how a Node's host is found among them.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, InstanceRef, NodeIdentity};
use tokio::time::{Instant, timeout};

use super::model::Host;
use crate::{
    lookups::{Absences, Index, Listed, Listings, outcome_since},
    provider_id::{format_provider_id, is_host_uuid, parse_provider_id},
};

/// How long the first listing is waited for.
const FIRST_LISTING_TIMEOUT: Duration = Duration::from_secs(10);

/// A host, and the addresses that were read for it.
#[derive(Clone, Debug)]
pub(crate) struct KnownHost {
    pub(crate) host: Host,
    /// Its addresses, or why they are not known.
    pub(crate) ips: Result<Vec<IpAddr>, Error>,
}

impl KnownHost {
    fn looks_like(&self, other: &Self) -> bool {
        self.host == other.host && self.ips.as_ref().ok() == other.ips.as_ref().ok()
    }

    /// What the controllers know the host by: the ID, and both forms of its name.
    fn references(&self) -> Vec<InstanceRef> {
        let provider_id =
            is_host_uuid(&self.host.uuid).then(|| format_provider_id(&self.host.uuid).as_str().to_owned());
        let name = self.host.hostname.as_deref().unwrap_or_default().to_ascii_lowercase();
        let names: BTreeSet<_> = [short(&name).to_owned(), name].into();
        let reference = |name: String| InstanceRef {
            provider_id: provider_id.clone(),
            system_uuid: None,
            name: (!name.is_empty()).then_some(name),
            machine: None,
        };
        names.into_iter().map(reference).collect()
    }
}

/// What the host of a Node is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sought {
    /// The UUID of its provider ID, in lower case.
    Uuid(String),
    /// Its name in lower case, if it has no provider ID.
    Name(String),
}

impl Sought {
    /// What the host of this Node is found by.
    ///
    /// # Errors
    /// If the provider ID is not that of a host.
    pub(crate) fn of(node: &NodeIdentity) -> Result<Self, Error> {
        match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => parse_provider_id(id).map(Self::Uuid),
            None => Ok(Self::Name(node.name.to_ascii_lowercase())),
        }
    }
}

/// The hosts that exist.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    hosts: HashMap<String, Arc<KnownHost>>,
    /// IDs by UUID in lower case.
    by_uuid: Index,
    /// IDs by the first label of the host name, in lower case.
    by_name: Index,
    /// Why a host of the listing could not be read, if one could not.
    unreadable: Option<String>,
}

/// The first label of a host name.
fn short(name: &str) -> &str {
    name.split_once('.').map_or(name, |(first, _)| first)
}

impl Inventory {
    /// An inventory of these hosts. Those that were removed are left out.
    pub(crate) fn new(hosts: impl IntoIterator<Item = KnownHost>) -> Self {
        let mut inventory = Self::default();
        for host in hosts {
            inventory.put(host);
        }
        inventory
    }

    /// Notes that a host of the listing could not be read.
    #[must_use]
    pub(crate) fn with_unreadable(mut self, why: Option<String>) -> Self {
        self.unreadable = why;
        self
    }

    /// Why a host of the listing could not be read, if one could not. Then no absence is certain.
    pub(crate) fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// How many hosts there are.
    pub(crate) fn len(&self) -> usize {
        self.hosts.len()
    }

    /// The host with this ID.
    pub(crate) fn get(&self, id: &str) -> Option<&KnownHost> {
        self.hosts.get(id).map(|host| &**host)
    }

    /// Adds or replaces a host. Removes it if it does not exist any more.
    fn put(&mut self, known: KnownHost) {
        self.remove(&known.host.id);
        if !known.host.exists() {
            return;
        }
        let id = known.host.id.clone();
        self.by_uuid.add(known.host.uuid.to_ascii_lowercase(), id.clone());
        if let Some(name) = &known.host.hostname {
            self.by_name.add(short(name).to_ascii_lowercase(), id.clone());
        }
        self.hosts.insert(id, Arc::new(known));
    }

    fn remove(&mut self, id: &str) {
        let Some(known) = self.hosts.remove(id) else { return };
        self.by_uuid.remove(&known.host.uuid.to_ascii_lowercase(), id);
        if let Some(name) = &known.host.hostname {
            self.by_name.remove(&short(name).to_ascii_lowercase(), id);
        }
    }

    /// The host of a Node.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] if there are several.
    pub(crate) fn find(&self, sought: &Sought) -> Result<Option<Arc<KnownHost>>, Error> {
        match sought {
            Sought::Uuid(uuid) => self.with_uuid(uuid),
            Sought::Name(name) => self.with_name(name),
        }
    }

    fn is_absent(&self, sought: &Sought) -> bool {
        self.find(sought).is_ok_and(|found| found.is_none())
    }

    /// The host with this UUID, which is in lower case.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] if there are several.
    pub(crate) fn with_uuid(&self, uuid: &str) -> Result<Option<Arc<KnownHost>>, Error> {
        self.only(self.by_uuid.with(uuid), "have this UUID")
    }

    /// The host of a Node with this name. Letter case does not matter. If one of the two names is short, only
    /// the first label counts. A host with exactly the Node's name comes before others.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] if there are several.
    pub(crate) fn with_name(&self, node: &str) -> Result<Option<Arc<KnownHost>>, Error> {
        let candidates = || self.by_name.with(&short(node).to_ascii_lowercase());
        let name_of = |id: &&String| self.hosts.get(*id).and_then(|known| known.host.hostname.as_deref());
        let is_equal = |id: &&String| name_of(id).is_some_and(|name| name.eq_ignore_ascii_case(node));
        let equal = self.only(candidates().filter(is_equal), "have the Node's name")?;
        if equal.is_some() {
            return Ok(equal);
        }
        let is_short =
            |id: &&String| !node.contains('.') || name_of(id).is_some_and(|name| !name.contains('.'));
        self.only(candidates().filter(is_short), "have the Node's name as the first part of theirs")
    }

    fn only<'a>(
        &self,
        mut ids: impl Iterator<Item = &'a String>,
        what: &str,
    ) -> Result<Option<Arc<KnownHost>>, Error> {
        match (ids.next(), ids.next()) {
            (None, _) => Ok(None),
            (Some(id), None) => Ok(self.hosts.get(id).cloned()),
            (Some(one), Some(other)) => {
                Err(Error::new(ErrorKind::Ambiguous, format!("the hosts {one} and {other} both {what}")))
            }
        }
    }

    /// What the controllers have to look at again when this inventory takes the place of `old`.
    fn differences(&self, old: &Self) -> Vec<InstanceRef> {
        let is_new = |known: &&Arc<KnownHost>| {
            old.hosts.get(&known.host.id).is_none_or(|before| !before.looks_like(known))
        };
        let gone = old.hosts.values().filter(|known| !self.hosts.contains_key(&known.host.id));
        self.hosts.values().filter(is_new).chain(gone).flat_map(|known| known.references()).collect()
    }
}

/// The inventory, how good it is, and who wants to know.
pub(crate) type Hosts = Listings<State>;

/// The state of the inventory.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) inventory: Inventory,
    /// When the last complete listing began.
    pub(crate) listed: Option<Instant>,
    /// Why the last listing failed, and when that was known. `None` after a complete one.
    pub(crate) trouble: Option<(Error, Instant)>,
    /// Who has no host.
    pub(crate) absences: Absences<Sought>,
}

impl State {
    /// Fails if the hosts have never been listed.
    ///
    /// # Errors
    /// Why they have not.
    pub(crate) fn check_listed(&self) -> Result<(), Error> {
        match (&self.listed, &self.trouble) {
            (Some(_), _) => Ok(()),
            (None, None) => Err(Error::new(ErrorKind::Unavailable, "the hosts have not been listed yet")),
            (None, Some((error, _))) => Err(error.clone().wrap("the hosts have not been listed")),
        }
    }

    /// Whether it is known, without another listing, that this one has no host.
    pub(crate) fn knows_absence_of(&self, sought: &Sought) -> bool {
        self.trouble.is_none() && self.absences.are_known_of(sought)
    }
}

impl Hosts {
    /// Waits until the hosts have been listed, or could not be, or did not come in time. What is known then decides.
    pub(crate) async fn first_listing(&self) {
        let mut versions = self.versions();
        let tried = async {
            loop {
                versions.mark_unchanged();
                let is_tried = {
                    let state = self.state();
                    state.listed.is_some() || state.trouble.is_some()
                };
                if is_tried {
                    return;
                }
                // The sender is in `self`, so this cannot fail.
                let _ = versions.changed().await;
            }
        };
        let _ = timeout(FIRST_LISTING_TIMEOUT, tried).await;
    }

    /// Takes over a complete listing that began at this time. Absences that it confirms, now or later, count for
    /// `absences_last`.
    pub(super) fn replace(&self, inventory: Inventory, began: Instant, absences_last: Duration) {
        self.change(|state| {
            let differences = inventory.differences(&state.inventory);
            let mut absences = std::mem::take(&mut state.absences);
            if inventory.unreadable().is_some() {
                absences.forget();
            } else {
                absences.keep(|sought| inventory.is_absent(sought));
                absences.count_until(began + absences_last);
            }
            *state = State { inventory, listed: Some(began), trouble: None, absences };
            differences
        });
    }

    /// Notes that events may be missed from now on.
    pub(super) fn events_ended(&self) {
        self.state_mut().absences.forget();
    }

    /// Takes over what an event says of one host.
    pub(super) fn put(&self, known: KnownHost) {
        self.change(|state| {
            let before = state.inventory.get(&known.host.id);
            if before.is_some_and(|before| before.looks_like(&known)) {
                return Vec::new();
            }
            let mut references = known.references();
            // The name may have changed too.
            references.extend(before.into_iter().flat_map(KnownHost::references));
            let is_new = before.is_none() && known.host.exists();
            state.inventory.put(known);
            if is_new {
                let State { inventory, absences, .. } = state;
                absences.keep(|sought| inventory.is_absent(sought));
            }
            references
        });
    }

    /// Notes that a listing failed.
    pub(super) fn fail(&self, error: Error) {
        self.change(|state| {
            state.trouble = Some((error, Instant::now()));
            Vec::new()
        });
    }
}

impl Listed for State {
    type Sought = Sought;

    const OBJECT: &str = "host";

    fn listed_since(&self, asked: Instant) -> Option<Result<(), Error>> {
        let outcome = outcome_since(asked, self.listed, self.trouble.as_ref())?;
        Some(outcome.and_then(|()| {
            self.inventory.unreadable().map_or(Ok(()), |why| {
                let words = format!("cannot confirm that there is no host for this node: {why}");
                Err(Error::new(ErrorKind::Unavailable, words))
            })
        }))
    }

    fn note_absence(&mut self, confirmed: Sought) {
        if self.inventory.is_absent(&confirmed) {
            self.absences.add(confirmed);
        }
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::InstanceChange;

    use super::*;
    use crate::cattle::source::testing::host;

    #[test]
    fn a_provider_id_is_all_that_counts() {
        let node = |id: &str| NodeIdentity {
            name: "Node-1".to_owned(),
            provider_id: Some(id.to_owned()),
            ..NodeIdentity::default()
        };
        assert_eq!(Sought::of(&node("rancher://ABC")).expect("ours"), Sought::Uuid("abc".to_owned()));
        assert_eq!(Sought::of(&node("")).expect("a name"), Sought::Name("node-1".to_owned()));
        Sought::of(&node("k3s://node-1")).expect_err("of another cloud");
    }

    fn inventory(names: &[&str]) -> Inventory {
        Inventory::new(
            names.iter().zip(1..).map(|(name, n)| KnownHost { host: host(n, name), ips: Ok(Vec::new()) }),
        )
    }

    #[test]
    fn names_match_in_either_form_whatever_the_order() {
        for (hosts, node, expected) in [
            (&["a.example.org", "b.example.org"][..], "a", Ok(Some("1h1"))),
            (&["a", "b"], "a.example.org", Ok(Some("1h1"))),
            (&["A.Example.org"], "a.example.ORG", Ok(Some("1h1"))),
            (&["a.example.org", "a.example.com"], "a.example.com", Ok(Some("1h2"))),
            (&["a.example.org", "a"], "a.example.org", Ok(Some("1h1"))),
            (&["a.example.org", "a"], "a", Ok(Some("1h2"))),
            (&["a.example.org"], "a.example.com", Ok(None)),
            (&["a.example.org", "a.example.com"], "a", Err(ErrorKind::Ambiguous)),
            (&["a", "a"], "a", Err(ErrorKind::Ambiguous)),
            (&[], "a", Ok(None)),
        ] {
            let mut reversed: Vec<_> = hosts.to_vec();
            reversed.reverse();
            let found = inventory(hosts).with_name(node);
            let kind = found.as_ref().map(|found| found.as_ref().map(|known| known.host.id.as_str()));
            assert_eq!(kind.map_err(Error::kind), expected, "{node} in {hosts:?}");
            let name = |inventory: &Inventory| {
                inventory
                    .with_name(node)
                    .map_err(|error| error.kind())
                    .map(|found| found.and_then(|k| k.host.hostname.clone()))
            };
            assert_eq!(name(&inventory(hosts)), name(&inventory(&reversed)), "the order must not matter");
        }
    }

    #[test]
    fn changes_are_told_once_and_in_both_forms_of_the_name() {
        let hosts = Hosts::new();
        let mut changes = hosts.changes();
        let known = |name: &str| KnownHost { host: host(1, name), ips: Ok(Vec::new()) };
        hosts.replace(Inventory::new([known("a.example.org")]), Instant::now(), Duration::ZERO);
        let Ok(InstanceChange::Changed(references)) = changes.try_recv() else { panic!("a change") };
        let names: Vec<_> = references.iter().filter_map(|one| one.name.as_deref()).collect();
        assert_eq!(names, ["a", "a.example.org"]);
        hosts.put(known("a.example.org"));
        hosts.replace(Inventory::new([known("a.example.org")]), Instant::now(), Duration::ZERO);
        assert!(changes.try_recv().is_err(), "nothing changed");
        let removed = Host { state: Some("removed".to_owned()), ..host(1, "a.example.org") };
        hosts.put(KnownHost { host: removed, ips: Ok(Vec::new()) });
        assert!(changes.try_recv().is_ok() && hosts.state().inventory.len() == 0);
        assert!(hosts.state().inventory.with_uuid("uuid-1").expect("none").is_none());
        assert!(hosts.state().inventory.with_name("a").expect("none").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_absence_is_known_until_the_host_comes_or_the_listing_is_old() {
        const LAST: Duration = Duration::from_secs(30);
        let hosts = Hosts::new();
        let node_2 = Sought::Name("node-2".to_owned());
        let known = |n, name: &str| KnownHost { host: host(n, name), ips: Ok(Vec::new()) };
        let list = || hosts.replace(Inventory::new([known(1, "node-1")]), Instant::now(), LAST);
        let is_known = || hosts.state().knows_absence_of(&node_2);
        list();
        assert!(!is_known(), "nobody asked yet");
        hosts.note_absences(vec![node_2.clone(), Sought::Name("node-1".to_owned())]);
        assert!(is_known());
        assert!(!hosts.state().knows_absence_of(&Sought::Name("node-1".to_owned())), "it has a host");
        // The next listing confirms it again.
        tokio::time::advance(LAST).await;
        assert!(!is_known());
        list();
        assert!(is_known());
        hosts.fail(Error::new(ErrorKind::Unavailable, "away"));
        assert!(!is_known(), "in trouble nothing is certain");
        list();
        assert!(is_known());
        hosts.put(known(2, "node-2.example.org"));
        let removed = Host { state: Some("removed".to_owned()), ..host(2, "node-2.example.org") };
        hosts.put(KnownHost { host: removed, ips: Ok(Vec::new()) });
        assert!(!is_known(), "it came and went, so it is another question");
        hosts.note_absences(vec![node_2.clone()]);
        hosts.events_ended();
        assert!(!is_known(), "what happens now is not told");
        hosts.note_absences(vec![node_2.clone()]);
        let odd = Inventory::new([known(1, "node-1")]).with_unreadable(Some("odd".to_owned()));
        hosts.replace(odd, Instant::now(), LAST);
        assert!(!is_known(), "the host that cannot be read may be its own");
    }
}
