//! What an announcer asks its keeper for, and what they share.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    error::{Error, Result},
    interface::{Interface, InterfaceChoice},
    schedule::Schedule,
};

/// Who holds addresses. Each new one differs from all others of the process, whatever its name: a provider that replaces
/// another after a change of the configuration is another holder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId {
    number: u64,
    name: Arc<str>,
}

impl HolderId {
    /// A new holder. The name is for people.
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Self { number: NUMBER.fetch_add(1, Ordering::Relaxed), name: name.into() }
    }

    /// The name that it was made with.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (holder {})", self.name, self.number)
    }
}

/// Where an address is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// The name of the interface.
    pub interface: String,
}

/// A request to the keeper.
#[derive(Debug)]
pub(crate) enum Request {
    Hold(HoldRequest),
    Release(ReleaseRequest),
}

#[derive(Debug)]
pub(crate) struct HoldRequest {
    pub(crate) holder: HolderId,
    pub(crate) address: IpAddr,
    pub(crate) choice: InterfaceChoice,
    pub(crate) answer: oneshot::Sender<Result<Held>>,
}

#[derive(Debug)]
pub(crate) struct ReleaseRequest {
    pub(crate) holder: HolderId,
    /// `None` means all.
    pub(crate) address: Option<IpAddr>,
    pub(crate) answer: oneshot::Sender<Result<()>>,
}

/// An address that is held.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) holders: BTreeSet<HolderId>,
    /// As the latest holder asked.
    pub(crate) choice: InterfaceChoice,
    /// The interface that has it, or had it.
    pub(crate) interface: Interface,
    /// Why the kernel may not have it at the moment.
    pub(crate) fault: Option<Error>,
    pub(crate) schedule: Schedule,
}

impl Entry {
    /// Begins to announce the address anew.
    pub(crate) fn announce_again(&mut self) {
        self.schedule = Schedule::begin(Instant::now());
    }
}

/// All that is held. Locked for moments only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries(Arc<Mutex<BTreeMap<IpAddr, Entry>>>);

impl Entries {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Entry>> {
        self.0.lock()
    }

    /// Removes the holders of these requests. Returns for each of them the addresses that nobody holds any more after it.
    pub(crate) fn release(&self, requests: &[ReleaseRequest]) -> Vec<Vec<IpAddr>> {
        let mut entries = self.lock();
        let release = |request: &ReleaseRequest| {
            let mut unheld = Vec::new();
            entries.retain(|address, entry| {
                let is_meant = request.address.is_none_or(|wanted| wanted == *address);
                if is_meant && entry.holders.remove(&request.holder) && entry.holders.is_empty() {
                    unheld.push(*address);
                }
                !entry.holders.is_empty()
            });
            unheld
        };
        requests.iter().map(release).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn release(holder: &HolderId, of: Option<&str>) -> ReleaseRequest {
        let (answer, _) = oneshot::channel();
        ReleaseRequest { holder: holder.clone(), address: of.map(address), answer }
    }

    #[test]
    fn the_last_holder_releases_an_address() {
        let [a, b] = ["a", "b"].map(HolderId::new);
        let held = [("10.0.0.1", vec![&a]), ("10.0.0.2", vec![&a, &b]), ("10.0.0.3", vec![&b])];
        let entries = Entries::default();
        for (text, holders) in held {
            let entry = Entry {
                holders: holders.into_iter().cloned().collect(),
                choice: InterfaceChoice::Automatic,
                interface: Interface::default(),
                fault: None,
                schedule: Schedule::begin(Instant::now()),
            };
            entries.lock().insert(address(text), entry);
        }
        let requests = [
            release(&b, Some("10.0.0.1")),
            release(&a, Some("10.0.0.2")),
            release(&a, Some("10.0.0.9")),
            release(&a, None),
            release(&b, None),
        ];
        let unheld = entries.release(&requests);
        let expected: [&[&str]; 5] = [&[], &[], &[], &["10.0.0.1"], &["10.0.0.2", "10.0.0.3"]];
        let shown = |addresses: &Vec<IpAddr>| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(unheld.iter().map(shown).collect::<Vec<_>>(), expected);
        assert!(entries.lock().is_empty());
    }
}
