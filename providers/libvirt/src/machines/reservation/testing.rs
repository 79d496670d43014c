//! A network for tests.

use std::{collections::BTreeMap, sync::Arc};

use cloudprovider::{ErrorKind, async_trait};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{
    calls::{Change, NetworkCalls, Scope, Update},
    network::NetworkDhcp,
};
use crate::{addresses::Lease, calls::Failure, mac::Mac};

pub(crate) use super::network::HostEntry;

/// The only network.
pub(crate) const NETWORK: &str = "default";

/// A network with libvirt's rules, and a daemon that ends at one of its calls. Clones are the same network.
#[derive(Clone, Debug)]
pub(crate) struct FakeNetwork {
    state: Arc<Mutex<State>>,
    ended: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    /// The host entries of each definition that the network has.
    hosts: BTreeMap<Scope, Vec<HostEntry>>,
    /// The call at which the daemon ends, and whether the call still takes effect.
    ends_at: Option<(usize, bool)>,
    /// The calls so far.
    count: usize,
    /// Entries that another program makes right before the first change.
    rival: Vec<HostEntry>,
    /// What the server has given.
    leases: Vec<(Mac, Lease)>,
}

impl FakeNetwork {
    /// A network with these definitions.
    pub(crate) fn new(scopes: &[Scope]) -> Self {
        let hosts = scopes.iter().map(|scope| (*scope, Vec::new())).collect();
        let state = State { hosts, ends_at: None, count: 0, rival: Vec::new(), leases: Vec::new() };
        Self { state: Arc::new(Mutex::new(state)), ended: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The entries of both definitions, which are the same.
    pub(crate) fn entries(&self) -> Vec<String> {
        let state = self.state();
        let mut all: Vec<Vec<String>> =
            state.hosts.values().map(|hosts| hosts.iter().map(HostEntry::to_xml).collect()).collect();
        all.dedup();
        assert!(all.len() <= 1, "{all:?}");
        all.pop().unwrap_or_default()
    }

    /// Adds an entry to all definitions, or to one.
    pub(crate) fn add(&self, scopes: &[Scope], entry: &HostEntry) {
        for (scope, hosts) in &mut self.state().hosts {
            if scopes.contains(scope) {
                hosts.push(entry.clone());
            }
        }
    }

    /// Makes entries right before the next change.
    pub(crate) fn set_rival(&self, entries: Vec<HostEntry>) {
        self.state().rival = entries;
    }

    /// The server has given these leases, and no others.
    pub(crate) fn set_leases(&self, leases: Vec<(Mac, Lease)>) {
        self.state().leases = leases;
    }

    /// The network loses a definition: it is stopped, or undefined.
    pub(crate) fn lose(&self, scope: Scope) {
        self.state().hosts.remove(&scope);
    }

    /// The calls since the last daemon began.
    pub(crate) fn count(&self) -> usize {
        self.state().count
    }

    /// A daemon begins, which ends at this call, counted from 1. Its calls fail from then on.
    pub(crate) fn end_at(&self, call: usize, takes_effect: bool) {
        let mut state = self.state();
        (state.ends_at, state.count) = (Some((call, takes_effect)), 0);
    }

    /// A daemon begins that does not end.
    pub(crate) fn live(&self) {
        let mut state = self.state();
        (state.ends_at, state.count) = (None, 0);
    }

    /// Resolves when the daemon has ended.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    fn fail(&self) -> Failure {
        self.ended.notify_one();
        Failure { kind: ErrorKind::Unavailable, message: "ended".to_owned(), lost: true, code: None }
    }

    /// Makes a call, unless the daemon has ended. If it ends after the call, the answer is lost.
    fn call<T>(&self, call: impl FnOnce(&mut State) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut state = self.state();
        state.count += 1;
        let (count, ends_at) = (state.count, state.ends_at);
        match ends_at {
            Some((at, takes_effect)) if count > at || count == at && !takes_effect => Err(self.fail()),
            _ => {
                let answer = call(&mut state)?;
                if ends_at.is_some_and(|(at, _)| count == at) { Err(self.fail()) } else { Ok(answer) }
            }
        }
    }
}

#[async_trait]
impl NetworkCalls for FakeNetwork {
    fn hypervisor(&self) -> &'static str {
        "kvm1"
    }

    async fn definition(&self, network: &str, scope: Scope) -> Result<Option<String>, Failure> {
        self.call(|state| {
            let hosts = state.hosts.get(&scope).filter(|_| network == NETWORK);
            Ok(hosts.map(|hosts| {
                let hosts: String = hosts.iter().map(HostEntry::to_xml).collect();
                format!(
                    "<network><name>{network}</name><ip address='192.168.122.1' prefix='24'>\
                     <dhcp><range start='192.168.122.2' end='192.168.122.99'/>{hosts}</dhcp></ip></network>"
                )
            }))
        })
    }

    async fn leases(&self, _: &str) -> Result<Vec<(Mac, Lease)>, Failure> {
        self.call(|state| Ok(state.leases.clone()))
    }

    async fn update(&self, _: &str, scope: Scope, change: &Change) -> Result<(), Failure> {
        self.call(|state| state.update(scope, change))
    }
}

impl State {
    fn update(&mut self, scope: Scope, change: &Change) -> Result<(), Failure> {
        assert_eq!(change.subnet, 0);
        for hosts in self.hosts.values_mut() {
            hosts.extend(self.rival.clone());
        }
        self.rival.clear();
        let xml = format!("<network><ip address='10.0.0.1'><dhcp>{}</dhcp></ip></network>", change.host);
        let entry = NetworkDhcp::parse(&xml).expect("valid").hosts().next().expect("one").clone();
        let refused = || {
            let message = "Requested operation is not valid".to_owned();
            Err(Failure { kind: ErrorKind::Unavailable, message, lost: false, code: None })
        };
        let Some(hosts) = self.hosts.get_mut(&scope) else { return refused() };
        // not every release of libvirt takes a name that begins with a digit
        if entry
            .name
            .as_ref()
            .is_some_and(|name| !name.starts_with(|first: char| first.is_ascii_alphabetic()))
        {
            return refused();
        }
        let shares =
            |one: &HostEntry| one.mac == entry.mac || one.name == entry.name || one.address == entry.address;
        match change.update {
            Update::Add if hosts.iter().any(shares) => return refused(),
            Update::Add => hosts.push(entry),
            Update::Delete => match hosts.iter().position(|one| *one == entry) {
                Some(at) => drop(hosts.remove(at)),
                None => return refused(),
            },
        }
        Ok(())
    }
}
