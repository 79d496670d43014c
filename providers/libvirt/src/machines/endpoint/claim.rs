//! Whose an address is.

use std::net::IpAddr;

use uuid::Uuid;

use crate::{mac::Mac, machines::reservation::Reservation};

/// The first byte of the MAC addresses of claims: locally administered, and other than that of machines.
const CLAIM_MAC: u8 = 0x06;

/// The length of the cluster's part in the name of a claim. A host name has at most 63 characters.
const MAX_NAME: usize = 40;

/// Who claims: a MAC address and a name that no other cluster and no machine has.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The cluster's UID, which chooses where it looks first.
    pub(super) uid: Uuid,
    /// The MAC address of the entry.
    pub(super) mac: Mac,
    /// The name of the entry.
    pub(super) name: String,
}

impl Claim {
    /// The claim of the cluster with this UID and this name.
    pub(crate) fn of(uid: Uuid, cluster: &str) -> Self {
        let mut mac = [CLAIM_MAC; 6];
        mac[1..].copy_from_slice(&uid.as_bytes()[11..]);
        let cluster: String = cluster.chars().take(MAX_NAME).collect();
        // That of a cluster may begin with a digit, and not every release of libvirt takes such a name.
        let name = format!("api-{:08x}-{}", uid.as_fields().0, cluster.replace('.', "-"));
        Self { uid, mac: Mac::from_bytes(mac), name }
    }

    /// The claim to this address.
    pub(super) fn at(&self, network: &str, address: IpAddr) -> Reservation {
        Reservation { network: network.to_owned(), mac: self.mac, name: self.name.clone(), address }
    }
}
