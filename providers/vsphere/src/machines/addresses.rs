//! Whether the devices of a machine would ever get addresses. Pure.

use super::spec::NetworkSpec;

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
}
