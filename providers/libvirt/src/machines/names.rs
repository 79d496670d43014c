//! The names of what a machine consists of. All are made from its mark, so that a restart finds them.

use std::fmt::Write as _;

use cloudprovider::machines::Mark;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::mac::Mac;

/// The first byte of MAC addresses that no maker of hardware uses.
const LOCALLY_ADMINISTERED: u8 = 0x02;

/// The most interfaces of a machine: each has a MAC address of its own.
pub(crate) const MAX_INTERFACES: usize = 16;

/// How many bytes of the hash of a mark are in names.
const HASH_BYTES: usize = 4;

/// The names of a machine's volumes: `ccm-UID-HASH-disk-root` and the like. The hash is that of the whole mark,
/// so that an object with a copied identity has other names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeNames {
    prefix: String,
}

impl VolumeNames {
    /// The names for the machine with this mark.
    pub(crate) fn new(mark: &Mark) -> Self {
        let Mark { uid, namespace, cluster, machine } = mark;
        let mut hash = Sha256::new();
        // No name has a slash.
        for part in [uid, namespace, cluster, machine.as_deref().unwrap_or_default()] {
            hash.update(part);
            hash.update("/");
        }
        let mut prefix = format!("ccm-{uid}-");
        for byte in hash.finalize().iter().take(HASH_BYTES) {
            // a String takes everything
            let _ = write!(prefix, "{byte:02x}");
        }
        prefix.push('-');
        Self { prefix }
    }

    /// Whether a volume of this name is one of the machine's.
    pub(crate) fn has(&self, volume: &str) -> bool {
        volume.starts_with(&self.prefix)
    }

    /// The volume of a disk with this name in the machine.
    pub(crate) fn disk(&self, disk: &str) -> String {
        format!("{}disk-{disk}", self.prefix)
    }

    /// The volume of the seed for cloud-init.
    pub(crate) fn seed(&self) -> String {
        format!("{}seed", self.prefix)
    }

    /// The volume of the Ignition configuration.
    pub(crate) fn ignition(&self) -> String {
        format!("{}ignition", self.prefix)
    }

    /// The volume that the output of the serial console goes to.
    pub(crate) fn console(&self) -> String {
        format!("{}console.log", self.prefix)
    }
}

/// The MAC address of an interface that names none: a locally administered one, with 36 random bits of the UID.
/// QEMU's own prefix would leave 24, with which some two of a thousand machines are the same in 3 % of all
/// cases. It does not change as long as the order of the interfaces does not.
pub(crate) fn mac(uid: Uuid, interface: usize) -> Mac {
    let mut bytes = [0; 6];
    bytes[1..].copy_from_slice(&uid.as_bytes()[11..]);
    bytes[0] = LOCALLY_ADMINISTERED;
    let number = u8::try_from(interface % MAX_INTERFACES).unwrap_or_default() << 4;
    bytes[1] = number | (bytes[1] & 0x0f);
    Mac::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: Uuid = Uuid::from_u128(0x5d0b_0b0e_3c53_4c5c_9b5e_2f0f_6c9a_7a10);

    fn mark() -> Mark {
        Mark::machine(UID.to_string(), "default", "prod", "node-1")
    }

    #[test]
    fn names_of_volumes_are_those_of_their_machine_alone() {
        let names = VolumeNames::new(&mark());
        assert_eq!(names.seed(), "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10-6ad575c0-seed");
        // virtlogd renames a log that is full.
        let rotated = format!("{}.0", names.console());
        let all = [names.disk("root"), names.seed(), names.ignition(), names.console(), rotated];
        let copied = VolumeNames::new(&Mark { machine: Some("node-2".to_owned()), ..mark() });
        for name in &all {
            assert!(names.has(name) && !copied.has(name), "{name}");
        }
        // Whatever a disk is called, it is not the seed.
        assert!(names.disk("seed") != names.seed());
    }

    #[test]
    fn mac_addresses_are_the_same_each_time_and_differ_between_interfaces() {
        assert_eq!(mac(UID, 0), mac(UID, 0));
        assert!(mac(UID, 0) != mac(UID, 1));
        assert!(mac(UID, 0) != mac(Uuid::from_u128(1), 0));
        assert_eq!(mac(UID, 0).to_string(), "02:0f:6c:9a:7a:10");
        assert_eq!(mac(UID, 15).to_string(), "02:ff:6c:9a:7a:10");
    }
}
