//! MAC addresses of network devices that name none.
//!
//! They are fixed before the machine is made, so that its network configuration, which finds devices by them, is in
//! the call that makes it.

use std::fmt::Write as _;

use uuid::Uuid;

use crate::inventory::parse_mac;

/// The first byte of MAC addresses that no maker of hardware uses.
const LOCALLY_ADMINISTERED: u8 = 0x02;

/// The MAC address of the device with this number: what the spec says, or else one with 36 random bits of the UID.
/// VMware's own range for fixed addresses has 22 bits, with which two of a thousand machines often are the same.
pub(crate) fn mac_of(uid: Uuid, device: usize, wanted: Option<&str>) -> Option<[u8; 6]> {
    if let Some(wanted) = wanted.filter(|text| !text.is_empty()) {
        return parse_mac(wanted);
    }
    let mut bytes = [0; 6];
    bytes[1..].copy_from_slice(&uid.as_bytes()[11..]);
    bytes[0] = LOCALLY_ADMINISTERED;
    // A machine has at most ten devices.
    let number = u8::try_from(device % 16).unwrap_or_default() << 4;
    bytes[1] = number | (bytes[1] & 0x0f);
    Some(bytes)
}

/// The address in six pairs of hexadecimal digits.
pub(crate) fn written(mac: [u8; 6]) -> String {
    let mut text = String::with_capacity(17);
    for (i, byte) in mac.iter().enumerate() {
        // a String takes everything
        let _ = write!(text, "{}{byte:02x}", if i == 0 { "" } else { ":" });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_different_addresses_that_stay() {
        let uid = Uuid::from_u128(0x4d3c_2b1a_0000_4000_8000_1234_5678_9abc);
        let mac = |device, wanted| mac_of(uid, device, wanted).map(written);
        assert_eq!(mac(0, None).as_deref(), Some("02:04:56:78:9a:bc"));
        assert_eq!(mac(1, Some("")).as_deref(), Some("02:14:56:78:9a:bc"));
        assert_eq!(mac(1, Some("00:50:56:AA:bb:01")).as_deref(), Some("00:50:56:aa:bb:01"));
        for wrong in ["00:50:56:aa:bb", "00:50:56:aa:bb:1", "00:50:56:aa:bb:zz", "00:50:56:aa:bb:01:02"] {
            assert_eq!(mac(0, Some(wrong)), None, "{wrong}");
        }
    }
}
