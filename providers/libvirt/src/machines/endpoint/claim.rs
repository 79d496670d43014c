//! Whose an address is.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    slice,
};

use cloudprovider::{machines::Mark, uuids::parse_uuid};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::{
    mac::Mac,
    machines::{
        names,
        reservation::{Entry, HostEntry, Reservation},
    },
};

/// The first byte of the MAC addresses of claims: locally administered, and other than that of machines.
const CLAIM_MAC: u8 = 0x06;

/// The length of the cluster's part in the name of a claim. A host name has at most 63 characters.
const MAX_NAME: usize = 40;

/// Who claims: a MAC address and a name that no other cluster and no machine has, since both are made from
/// the hash of the whole mark.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The cluster's UID, which chooses where it looks first.
    pub(super) uid: Uuid,
    /// The MAC address of the entry.
    pub(super) mac: Mac,
    /// The name of the entry.
    pub(super) name: String,
    /// The entry of a claim that was made from the UID and the cluster's name alone. With `owns_older` it
    /// counts until the next step has put the other one in its place. Without, it may be another cluster's
    /// and stays as it is.
    older: Entry,
    /// Whether the API server has given the object its UID. One that an annotation has may be another
    /// cluster's.
    owns_older: bool,
}

impl Claim {
    /// The claim of the cluster with this UID and this mark, whose object has the UID `object_uid` now.
    pub(crate) fn of(uid: Uuid, mark: &Mark, object_uid: &str) -> Self {
        let mac = |bytes: &[u8]| {
            let mut mac = [CLAIM_MAC; 6];
            mac[1..].copy_from_slice(bytes);
            Mac::from_bytes(mac)
        };
        let cluster: String = mark.cluster.chars().take(MAX_NAME).collect();
        let cluster = cluster.replace('.', "-");
        // The name of a cluster may begin with a digit, and not every release of libvirt takes such a name.
        let older = format!("api-{:08x}-{cluster}", uid.as_fields().0);
        Self {
            uid,
            mac: mac(&names::claim_bytes(mark)),
            name: format!("api-{}-{}", names::cut(&cluster, MAX_NAME), names::hash_label(mark)),
            older: (mac(&uid.as_bytes()[11..]), older),
            owns_older: parse_uuid(object_uid) == Some(uid),
        }
    }

    /// Whether this is its entry, or was it.
    pub(super) fn has(&self, entry: &HostEntry) -> bool {
        entry.is_of(self.mac, &self.name) || entry.is_one_of(self.older())
    }

    /// Whether this entry may be its own and may be that of another cluster, as after a move. It is left as
    /// it is.
    pub(super) fn may_have(&self, entry: &HostEntry) -> bool {
        !self.owns_older && entry.is_one_of(slice::from_ref(&self.older))
    }

    /// The entries that are its own and whose place its entry takes.
    pub(super) fn older(&self) -> &[Entry] {
        if self.owns_older { slice::from_ref(&self.older) } else { &[] }
    }

    /// Every entry that is its own.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let own = (self.mac, self.name.clone());
        [own].into_iter().chain(self.older().iter().cloned()).collect()
    }

    /// The claim to this address.
    pub(super) fn at(&self, network: &str, address: IpAddr) -> Reservation {
        Reservation { network: network.to_owned(), mac: self.mac, name: self.name.clone(), address }
    }
}

/// The most lines of one namespace: a tenant who knows the UID of an older claim can name it in many
/// clusters.
const MAX_LINES: usize = 20;

/// The entries that nothing proves to be a cluster's claim, by namespace: the log names each once.
#[derive(Debug, Default)]
pub(crate) struct UnprovenClaims(Mutex<HashMap<String, HashSet<String>>>);

impl UnprovenClaims {
    /// The line for an entry that the object with this mark may have made, on this hypervisor and in this
    /// network. `None` if it was said before.
    pub(crate) fn line(
        &self,
        mark: &Mark,
        (hypervisor, network): (&str, &str),
        entry: &HostEntry,
    ) -> Option<String> {
        let Mark { namespace, cluster, .. } = mark;
        let line = format!(
            "the claim {} in network {network:?} on hypervisor {hypervisor:?} is left as it is: nothing proves that it is the one of \
             cluster {namespace}/{cluster}, whose object does not have the UID of the claim from the API server; either that object was \
             moved or restored, or it names the UID of another cluster, whose claim this is; remove the entry only once no cluster of \
             any namespace and management cluster has its address",
            entry.to_xml()
        );
        let mut said = self.0.lock();
        let said = said.entry(namespace.clone()).or_default();
        (said.len() < MAX_LINES && said.insert(line.clone())).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_line_names_who_asked_and_is_said_once_for_each_object_and_entry() {
        let claims = UnprovenClaims::default();
        let entry = |last: u8| HostEntry {
            mac: Some(Mac::from_bytes([6, 0, 0, 0, 0, 7])),
            name: Some("api-00000007-prod".to_owned()),
            address: Some([192, 168, 122, last].into()),
        };
        let mark = |namespace: &str| Mark::cluster("u", namespace, "prod");
        let place = ("kvm1", "default");
        let line = claims.line(&mark("team-a"), place, &entry(200)).expect("it is new");
        for part in
            ["cluster team-a/prod", &entry(200).to_xml(), "network \"default\" on hypervisor \"kvm1\""]
        {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(claims.line(&mark("team-a"), place, &entry(200)), None);
        let other = claims.line(&mark("team-b"), place, &entry(200)).expect("another object");
        assert!(other.contains("cluster team-b/prod"), "{other}");
        assert!(claims.line(&mark("team-a"), place, &entry(201)).is_some(), "another entry");
        assert!(claims.line(&mark("team-a"), ("kvm2", "default"), &entry(200)).is_some(), "another place");
        let many =
            |n: usize| claims.line(&Mark::cluster("u", "evil", format!("prod-{n}")), place, &entry(200));
        assert_eq!((0..2 * MAX_LINES).filter_map(many).count(), MAX_LINES);
        assert!(claims.line(&mark("team-c"), place, &entry(200)).is_some(), "another namespace");
    }
}
