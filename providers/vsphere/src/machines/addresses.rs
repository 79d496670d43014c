//! Which addresses a machine must have before it is complete. Pure.

use super::{
    guest::{static_ips, written},
    spec::NetworkSpec,
};
use crate::vm::{AddressState, GuestNic};

/// The first thing that the guest does not report yet, for people. `macs` are those of the devices, in their order.
pub(crate) fn missing(network: &NetworkSpec, macs: &[[u8; 6]], guest: &[GuestNic]) -> Option<String> {
    // A machine of another program has other MAC addresses, and was complete with any address.
    let is_anothers =
        !guest.is_empty() && !guest.iter().any(|nic| nic.mac.is_some_and(|mac| macs.contains(&mac)));
    if is_anothers
        && guest.iter().flat_map(|nic| &nic.addresses).any(|one| one.state != AddressState::Unusable)
    {
        return None;
    }
    for (number, (device, mac)) in network.devices.iter().zip(macs).enumerate() {
        if device.skip_ip_allocation == Some(true) {
            continue;
        }
        let nics = || guest.iter().filter(|nic| nic.mac == Some(*mac));
        let usable = || {
            let all = nics().flat_map(|nic| &nic.addresses);
            all.filter(|address| address.state != AddressState::Unusable).map(|address| address.ip)
        };
        let what = if let Some(ip) = static_ips(device).find(|ip| !usable().any(|one| one == *ip)) {
            format!("its address {ip}")
        } else if device.dhcp4 == Some(true) && !usable().any(|ip| ip.is_ipv4()) {
            "an IPv4 address".to_owned()
        } else if device.dhcp6 == Some(true)
            && !usable().any(|ip| matches!(ip, std::net::IpAddr::V6(ip) if !ip.is_unicast_link_local()))
        {
            "an IPv6 address".to_owned()
        } else {
            continue;
        };
        return Some(format!(
            "network device {number} ({:?}, {}) does not report {what} yet",
            device.network_name,
            written(*mac)
        ));
    }
    None
}

/// The first device that would never get an address, for people. Somebody may still give it one: the devices of a spec can be
/// changed.
pub(crate) fn unassigned(network: &NetworkSpec) -> Option<String> {
    let (number, device) = network.devices.iter().enumerate().find(|(_, device)| {
        device.skip_ip_allocation != Some(true)
            && device.dhcp4 != Some(true)
            && device.dhcp6 != Some(true)
            && device.ip_addrs.is_empty()
            && device.addresses_from_pools.is_empty()
    })?;
    Some(format!(
        "spec.network.devices[{number}] ({:?}) has none of dhcp4, dhcp6, ipAddrs and addressesFromPools; set one, or \
         skipIPAllocation",
        device.network_name
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vm::GuestAddress;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn seen(device: serde_json::Value, mac: [u8; 6], ips: &[&str]) -> Option<String> {
        let network: NetworkSpec = serde_json::from_value(json!({"devices": [device]})).expect("a network");
        let addresses = ips.iter().map(|ip| GuestAddress::new(ip.parse().expect("an address"))).collect();
        let nic = GuestNic { mac: Some(mac), connected: true, addresses, ..GuestNic::default() };
        missing(&network, &[MAC], &[nic])
    }

    #[test]
    fn a_device_that_would_never_get_an_address_is_named() {
        let network = |device| serde_json::from_value(json!({"devices": [device]})).expect("a network");
        for (device, is_assigned) in [
            (json!({"networkName": "n"}), false),
            (json!({"networkName": "n", "dhcp4": false, "dhcp6": false}), false),
            (json!({"networkName": "n", "dhcp4": true}), true),
            (json!({"networkName": "n", "dhcp6": true}), true),
            (json!({"networkName": "n", "ipAddrs": ["10.0.0.1/24"]}), true),
            (json!({"networkName": "n", "addressesFromPools": [{"kind": "P", "name": "p"}]}), true),
            (json!({"networkName": "n", "skipIPAllocation": true}), true),
        ] {
            let found = unassigned(&network(device.clone()));
            assert_eq!(found.is_none(), is_assigned, "{device}: {found:?}");
        }
        let words = unassigned(&network(json!({"networkName": "n"}))).expect("named");
        assert!(words.starts_with("spec.network.devices[0] (\"n\")"), "{words}");
    }

    #[test]
    fn every_address_that_is_expected() {
        let other = [2, 0, 0, 0, 0, 2];
        for (device, mac, ips, expected) in [
            (json!({"networkName": "n", "dhcp4": true}), MAC, &["10.0.0.1"][..], None),
            (json!({"networkName": "n", "dhcp4": true}), other, &["10.0.0.1"], None),
            (json!({"networkName": "n", "dhcp4": true}), other, &[], Some("an IPv4 address")),
            (json!({"networkName": "n", "dhcp4": true}), MAC, &["2001:db8::1"], Some("an IPv4 address")),
            (json!({"networkName": "n", "dhcp6": true}), MAC, &["fe80::1"], Some("an IPv6 address")),
            (json!({"networkName": "n", "dhcp6": true}), MAC, &["2001:db8::1"], None),
            (
                json!({"networkName": "n", "ipAddrs": ["10.0.0.1/24", "10.0.0.2/24"]}),
                MAC,
                &["10.0.0.1"],
                Some("10.0.0.2"),
            ),
            (json!({"networkName": "n", "ipAddrs": ["10.0.0.1/24"]}), MAC, &["10.0.0.1"], None),
            (json!({"networkName": "n", "dhcp4": true, "skipIPAllocation": true}), MAC, &[], None),
            (json!({"networkName": "n"}), MAC, &[], None),
        ] {
            let found = seen(device.clone(), mac, ips);
            match expected {
                None => assert_eq!(found, None, "{device}"),
                Some(part) => {
                    assert!(found.as_ref().is_some_and(|one| one.contains(part)), "{device}: {found:?}");
                }
            }
        }
    }
}
