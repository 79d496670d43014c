//! The names of what a machine consists of. All are made from the UID of its mark, so that a restart finds them.

use cloudprovider::machines::Mark;
use uuid::Uuid;

use crate::mac::Mac;

/// The first byte of MAC addresses that no maker of hardware uses.
const LOCALLY_ADMINISTERED: u8 = 0x02;

/// The beginning of the names of all volumes of a machine, and of no other volume.
pub(crate) fn volume_prefix(uid: Uuid) -> String {
    format!("ccm-{uid}-")
}

/// The volume of a disk with this name in the machine.
pub(crate) fn disk_volume(uid: Uuid, disk: &str) -> String {
    format!("{}disk-{disk}", volume_prefix(uid))
}

/// The volume of the NoCloud seed.
pub(crate) fn seed_volume(uid: Uuid) -> String {
    format!("{}seed", volume_prefix(uid))
}

/// The volume of the Ignition configuration.
pub(crate) fn ignition_volume(uid: Uuid) -> String {
    format!("{}ignition", volume_prefix(uid))
}

/// The volume that the output of the serial console goes to.
pub(crate) fn console_volume(uid: Uuid) -> String {
    format!("{}console.log", volume_prefix(uid))
}

/// The UUID of a machine's domain: the UID of its mark. `None` if that is not a UUID, which no API server makes.
pub(crate) fn domain_uuid(mark: &Mark) -> Option<Uuid> {
    Uuid::parse_str(&mark.uid).ok()
}

/// The MAC address of an interface that names none: a locally administered one, with 36 random bits of the UID.
/// QEMU's own prefix would leave 24, with which some two of a thousand machines are the same in 3 % of all
/// cases. It does not change as long as the order of the interfaces does not.
pub(crate) fn mac(uid: Uuid, interface: usize) -> Mac {
    let [.., a, b, c, d, e] = uid.into_bytes();
    // A machine has at most 16 interfaces.
    let number = u8::try_from(interface % 16).unwrap_or_default() << 4;
    Mac::from_bytes([LOCALLY_ADMINISTERED, number | (a & 0x0f), b, c, d, e])
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: Uuid = Uuid::from_u128(0x5d0b_0b0e_3c53_4c5c_9b5e_2f0f_6c9a_7a10);

    #[test]
    fn names_of_volumes_begin_with_the_prefix() {
        let prefix = volume_prefix(UID);
        assert_eq!(prefix, "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10-");
        let names = [disk_volume(UID, "root"), seed_volume(UID), ignition_volume(UID), console_volume(UID)];
        for name in &names {
            assert!(name.starts_with(&prefix), "{name}");
        }
        // Whatever a disk is called, it is not the seed.
        assert!(disk_volume(UID, "seed") != seed_volume(UID));
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
