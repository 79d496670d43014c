//! A network for tests.

use std::collections::BTreeMap;

use cloudprovider::ErrorKind;

use super::*;
use crate::calls::Failure;

/// The only network.
pub(crate) const NETWORK: &str = "default";

/// A network with libvirt's rules, and a daemon that ends at one of its calls.
#[derive(Debug)]
pub(crate) struct FakeNetwork {
    /// The host entries of each definition that the network has.
    pub(crate) hosts: BTreeMap<Scope, Vec<HostEntry>>,
    /// The call at which the daemon ends, and whether the call still takes effect.
    pub(crate) ends_at: Option<(usize, bool)>,
    /// The calls so far.
    pub(crate) count: usize,
    /// Entries that somebody else makes right before the first change.
    pub(crate) rival: Vec<HostEntry>,
}

impl FakeNetwork {
    pub(crate) fn new(scopes: &[Scope]) -> Self {
        let hosts = scopes.iter().map(|scope| (*scope, Vec::new())).collect();
        Self { hosts, ends_at: None, count: 0, rival: Vec::new() }
    }

    /// The entries of both definitions, which are the same.
    pub(crate) fn entries(&self) -> Vec<String> {
        let mut all: Vec<Vec<String>> =
            self.hosts.values().map(|hosts| hosts.iter().map(HostEntry::to_xml).collect()).collect();
        all.dedup();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    fn ended() -> Failure {
        Failure { kind: ErrorKind::Unavailable, message: "ended".to_owned(), lost: true, code: None }
    }

    /// An error if the daemon ends before the call takes effect.
    fn begin(&mut self) -> Result<(), Failure> {
        self.count += 1;
        match self.ends_at {
            Some((at, takes_effect)) if self.count > at || self.count == at && !takes_effect => {
                Err(Self::ended())
            }
            _ => Ok(()),
        }
    }

    fn end<T>(&self, answer: T) -> Result<T, Failure> {
        if self.ends_at.is_some_and(|(at, _)| self.count >= at) { Err(Self::ended()) } else { Ok(answer) }
    }
}

impl NetworkCalls for FakeNetwork {
    fn definition(&mut self, network: &str, scope: Scope) -> Result<Option<String>, Failure> {
        self.begin()?;
        let hosts = self.hosts.get(&scope).filter(|_| network == NETWORK);
        let xml = hosts.map(|hosts| {
            let hosts: String = hosts.iter().map(HostEntry::to_xml).collect();
            format!(
                "<network><name>{network}</name><ip address='192.168.122.1' prefix='24'>\
                 <dhcp><range start='192.168.122.2' end='192.168.122.99'/>{hosts}</dhcp></ip></network>"
            )
        });
        self.end(xml)
    }

    fn update(
        &mut self,
        _: &str,
        scope: Scope,
        update: Update,
        subnet: i32,
        host: &str,
    ) -> Result<(), Failure> {
        self.begin()?;
        assert_eq!(subnet, 0);
        for hosts in self.hosts.values_mut() {
            hosts.extend(self.rival.clone());
        }
        self.rival.clear();
        let xml = format!("<network><ip address='10.0.0.1'><dhcp>{host}</dhcp></ip></network>");
        let entry = NetworkDhcp::parse(&xml).expect("valid").hosts().next().expect("one").clone();
        let hosts = self.hosts.get_mut(&scope).expect("the network has this definition");
        let shares =
            |one: &HostEntry| one.mac == entry.mac || one.name == entry.name || one.address == entry.address;
        let refused = || {
            let message = "Requested operation is not valid".to_owned();
            Err(Failure { kind: ErrorKind::Unavailable, message, lost: false, code: None })
        };
        match update {
            Update::Add if hosts.iter().any(shares) => return refused(),
            Update::Add => hosts.push(entry),
            Update::Modify => match hosts.iter_mut().find(|one| one.mac == entry.mac) {
                Some(one) => *one = entry,
                None => return refused(),
            },
            Update::Delete => match hosts.iter().position(|one| *one == entry) {
                Some(at) => drop(hosts.remove(at)),
                None => return refused(),
            },
        }
        self.end(())
    }
}
