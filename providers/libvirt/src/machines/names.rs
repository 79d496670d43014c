//! The names of what a machine consists of. All are made from its mark, so that a restart finds them.

use std::fmt::Write as _;

use cloudprovider::machines::Mark;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{domain::volume_prefix, mac::Mac};

/// The first byte of MAC addresses that no maker of hardware uses.
const LOCALLY_ADMINISTERED: u8 = 0x02;

/// The most interfaces of a machine: each has a MAC address of its own.
pub(crate) const MAX_INTERFACES: usize = 16;

/// How many letters of the hash of a mark, of five bits each, are in the names of volumes: at least 128 bits.
const VOLUME_LETTERS: usize = 26;

/// How many bytes of the hash of a mark are in the older names of volumes.
const OLDER_BYTES: usize = 4;

/// The end of the name of the volume that the output of the serial console goes to.
pub(crate) const CONSOLE: &str = "console.log";

/// How many letters of the hash of a mark, of five bits each, are in host names. A tenant chooses most of its
/// mark, and must not find one with the name of another tenant's machine.
const HASH_LETTERS: usize = 12;

/// The longest host name: a label of DNS, with room for the number of an interface.
const MAX_HOST_NAME: usize = 63 - "-nic15".len();

/// How much of a namespace is left in a name that is too long.
const MIN_NAMESPACE: usize = 8;

/// The names of a machine's volumes: `ccm-UID-HASH-disk-root` and the like. The hash is that of the whole
/// mark, so that an object with a copied identity has other names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeNames {
    prefix: String,
}

impl VolumeNames {
    /// The names for the machine with this mark.
    pub(crate) fn new(mark: &Mark) -> Self {
        Self { prefix: format!("{}{}-", volume_prefix(&mark.uid), letters(mark, VOLUME_LETTERS)) }
    }

    /// The names of volumes that were made when these had a short hash. A tenant finds another mark with the
    /// same UID for it, so they count only where something else tells whose the volumes are.
    pub(crate) fn older(mark: &Mark) -> Self {
        let mut prefix = volume_prefix(&mark.uid);
        for byte in hash(mark).iter().take(OLDER_BYTES) {
            // a String takes everything
            let _ = write!(prefix, "{byte:02x}");
        }
        prefix.push('-');
        Self { prefix }
    }

    /// The names for the machine that has a domain with this mark, one of whose disks is this volume.
    pub(crate) fn of_domain(mark: &Mark, volume: Option<&str>) -> Self {
        let older = Self::older(mark);
        if volume.is_some_and(|volume| older.has(volume)) { older } else { Self::new(mark) }
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
        format!("{}{CONSOLE}", self.prefix)
    }
}

/// The hash of a whole mark.
fn hash(mark: &Mark) -> [u8; 32] {
    let Mark { uid, namespace, cluster, machine } = mark;
    let mut hash = Sha256::new();
    // No name has a slash.
    for part in [uid, namespace, cluster, machine.as_deref().unwrap_or_default()] {
        hash.update(part);
        hash.update("/");
    }
    hash.finalize().into()
}

/// The part of host names that no other mark has.
pub(super) fn hash_label(mark: &Mark) -> String {
    letters(mark, HASH_LETTERS)
}

/// So many letters of the hash of a mark.
fn letters(mark: &Mark, count: usize) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let letter = |byte: &u8| char::from(LETTERS[usize::from(byte & 31)]);
    hash(mark).iter().take(count).map(letter).collect()
}

/// Cuts a host name to so many characters, with room for the hash. Neither end is a hyphen.
pub(super) fn cut(name: &str, most: usize) -> &str {
    let cut = name.char_indices().nth(most).map_or(name, |(end, _)| &name[..end]);
    cut.trim_end_matches('-')
}

/// The name of a machine's domain, and of its entries at DHCP servers: `NAMESPACE-MACHINE-HASH`, a label of
/// DNS. The hash is that of the whole mark: no other machine has this name, in whatever namespace and
/// management cluster, and no machine can be called like another host of a network, such as `registry`. The
/// guest's own name, and that of its Node, is the machine's.
pub(crate) fn domain(mark: &Mark) -> String {
    const MOST: usize = MAX_HOST_NAME - HASH_LETTERS - 1;
    let machine = mark.name().replace('.', "-");
    let for_namespace = MOST.saturating_sub(machine.len() + 1).max(MIN_NAMESPACE);
    let readable = letter_first(format!("{}-{machine}", cut(&mark.namespace, for_namespace)));
    format!("{}-{}", cut(&readable, MOST), hash_label(mark))
}

/// The name of a host entry of a domain that is called like its machine, as domains were before their names
/// had a hash.
pub(crate) fn older_host_name(mark: &Mark) -> String {
    letter_first(mark.name().to_owned())
}

/// A name as every release of libvirt takes it for a host: some want a letter first.
fn letter_first(name: String) -> String {
    if name.starts_with(|first: char| first.is_ascii_alphabetic()) { name } else { format!("m-{name}") }
}

/// The MAC address of an interface that names none: a locally administered one, with 36 bits of the hash of
/// the mark. QEMU's own prefix would leave 24, with which some two of a thousand machines are the same in 3 %
/// of all cases. It does not change as long as the order of the interfaces does not.
pub(crate) fn mac(mark: &Mark, interface: usize) -> Mac {
    let hash = hash(mark);
    mac_with(&hash[hash.len() - 5..], interface)
}

/// The MAC address of an interface of such a domain: with 36 bits of the UID.
pub(crate) fn older_mac(uid: Uuid, interface: usize) -> Mac {
    mac_with(&uid.as_bytes()[11..], interface)
}

fn mac_with(random: &[u8], interface: usize) -> Mac {
    let mut bytes = [0; 6];
    bytes[1..].copy_from_slice(random);
    bytes[0] = LOCALLY_ADMINISTERED;
    let number = u8::try_from(interface % MAX_INTERFACES).unwrap_or_default() << 4;
    bytes[1] = number | (bytes[1] & 0x0f);
    Mac::from_bytes(bytes)
}

/// The last five bytes of the MAC address under which a cluster claims an address.
pub(super) fn claim_bytes(mark: &Mark) -> [u8; 5] {
    let mut bytes = [0; 5];
    bytes.copy_from_slice(&hash(mark)[27..]);
    bytes
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
        let (names, older) = (VolumeNames::new(&mark()), VolumeNames::older(&mark()));
        assert_eq!(names.seed(), "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10-kvvaowjlr5hvuybofsypbmqsyy-seed");
        assert_eq!(older.seed(), "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10-6ad575c0-seed");
        // virtlogd renames a log that is full.
        let rotated = format!("{}.0", names.console());
        let all = [names.disk("root"), names.seed(), names.ignition(), names.console(), rotated];
        let copied = VolumeNames::new(&Mark { machine: Some("node-2".to_owned()), ..mark() });
        for name in &all {
            assert!(names.has(name) && !copied.has(name) && !older.has(name), "{name}");
        }
        assert!(!names.has(&older.seed()));
        for (volume, expected) in [(None, &names), (Some(names.seed()), &names), (Some(older.seed()), &older)]
        {
            assert_eq!(VolumeNames::of_domain(&mark(), volume.as_deref()), *expected);
        }
        // Whatever a disk is called, it is not the seed.
        assert!(names.disk("seed") != names.seed());
    }

    /// A file system takes 255 bytes, and LVM 127.
    #[test]
    fn the_longest_name_of_a_volume_is_short_enough() {
        let longest = VolumeNames::new(&mark()).disk(&"d".repeat(20));
        assert_eq!(longest.len(), 93);
        assert!(longest.len() + ".0123456789abcdef.complete-18446744073709551615".len() < 255);
    }

    /// With the short hash a tenant finds a mark of its own, of the same UID, within minutes.
    #[test]
    fn marks_with_the_same_older_names_have_other_names() {
        let uid = "4d3c2b1a-0000-4000-8000-000000000001";
        let ours = Mark::machine(uid, "team-a", "prod-103084", "node-1");
        let forged = Mark::machine(uid, "team-b", "prod-19405", "node-1");
        assert_eq!(VolumeNames::older(&ours), VolumeNames::older(&forged));
        assert!(VolumeNames::new(&ours) != VolumeNames::new(&forged));
    }

    #[test]
    fn mac_addresses_are_the_same_each_time_and_differ_between_interfaces_and_marks() {
        assert_eq!(mac(&mark(), 0), mac(&mark(), 0));
        assert!(mac(&mark(), 0) != mac(&mark(), 1));
        for other in others() {
            assert!(mac(&mark(), 0) != mac(&other, 0), "{other}");
        }
        assert!(mac(&mark(), 15).to_string().starts_with("02:f"));
        assert_eq!(older_mac(UID, 0).to_string(), "02:0f:6c:9a:7a:10");
        assert_eq!(older_mac(UID, 15).to_string(), "02:ff:6c:9a:7a:10");
    }

    /// Marks that differ in one part.
    fn others() -> [Mark; 4] {
        [
            Mark { uid: Uuid::from_u128(1).to_string(), ..mark() },
            Mark { namespace: "team-b".to_owned(), ..mark() },
            Mark { cluster: "test".to_owned(), ..mark() },
            Mark { machine: Some("node-2".to_owned()), ..mark() },
        ]
    }

    #[test]
    fn the_name_of_a_domain_is_readable_and_that_of_one_machine() {
        assert_eq!(domain(&mark()), "default-node-1-kvvaowjlr5hv");
        for other in others() {
            assert!(domain(&mark()) != domain(&other), "{other}");
        }
        let named = |namespace: &str, machine: &str| {
            domain(&Mark::machine(UID.to_string(), namespace, "prod", machine))
        };
        // What is the same in one text is not the same name.
        assert!(named("a", "b-c") != named("a-b", "c"));
        assert!(named("a", "b.c") != named("a", "b-c"));
        assert!(named("1a", "gateway").starts_with("m-1a-gateway-"));
        let (long, longer) = ("n".repeat(63), "x".repeat(253));
        for (namespace, machine) in
            [(&*long, "node-1"), ("a", &*longer), (&*long, &*longer), ("a", &*"-1.".repeat(80))]
        {
            let name = named(namespace, machine);
            let is_label = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            assert!(is_label && name.len() <= MAX_HOST_NAME && !name.contains("--m"), "{name}");
            assert!(named(namespace, machine) != named(namespace, &format!("{machine}0")), "{name}");
        }
        assert!(named(&long, "node-1").contains("-node-1-"), "the machine's name stays readable");
    }
}
