//! The spec of a machine in a failure domain.

use cloudprovider::Result;

use super::Zone;
use crate::machines::{
    places::Finder,
    spec::{NetworkConfiguration, NetworkDeviceSpec, VSphereMachineSpec},
};

/// The spec of a machine in a zone, as Cluster API Provider vSphere derives it: what the zone says wins. Networks take the place of
/// those of the devices in their order, and further ones make further devices.
pub(crate) fn place(spec: &VSphereMachineSpec, zone: &Zone) -> VSphereMachineSpec {
    let mut placed = spec.clone();
    let (topology, constraint) = (&zone.domain.topology, zone.placement());
    let clone = &mut placed.clone;
    // the zone is on the vCenter of the cluster
    clone.server = None;
    let datacenter = Some(topology.datacenter.clone());
    for (field, word) in [
        (&mut clone.datacenter, &datacenter),
        (&mut clone.folder, &constraint.folder),
        (&mut clone.resource_pool, &constraint.resource_pool),
        (&mut clone.datastore, &topology.datastore),
    ] {
        if let Some(word) = word.as_ref().filter(|word| !word.is_empty()) {
            *field = Some(word.clone());
        }
    }
    let devices = &mut clone.network.devices;
    for (number, name) in topology.networks.iter().enumerate() {
        device(devices, number).network_name.clone_from(name);
    }
    for (number, network) in topology.network_configurations.iter().enumerate() {
        configure(device(devices, number), network);
    }
    placed
}

/// The device with this number, which is made if there are fewer.
fn device(devices: &mut Vec<NetworkDeviceSpec>, number: usize) -> &mut NetworkDeviceSpec {
    if devices.len() <= number {
        devices.resize_with(number + 1, NetworkDeviceSpec::default);
    }
    &mut devices[number]
}

fn configure(device: &mut NetworkDeviceSpec, network: &NetworkConfiguration) {
    fn take<T: Clone>(into: &mut Option<T>, from: Option<&T>) {
        if let Some(from) = from {
            *into = Some(from.clone());
        }
    }
    fn take_all<T: Clone>(into: &mut Vec<T>, from: &[T]) {
        if !from.is_empty() {
            *into = from.to_vec();
        }
    }
    if !network.network_name.is_empty() {
        device.network_name.clone_from(&network.network_name);
    }
    take(&mut device.dhcp4, network.dhcp4.as_ref());
    take(&mut device.dhcp6, network.dhcp6.as_ref());
    take(&mut device.dhcp4_overrides, network.dhcp4_overrides.as_ref());
    take(&mut device.dhcp6_overrides, network.dhcp6_overrides.as_ref());
    take_all(&mut device.nameservers, &network.nameservers);
    take_all(&mut device.search_domains, &network.search_domains);
    take_all(&mut device.addresses_from_pools, &network.addresses_from_pools);
}

/// Puts a machine into the cluster of hosts of its zone. Without a resource pool of its own it gets that of the whole cluster.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](cloudprovider::ErrorKind::InvalidInput) if its resource pool is in another cluster; those of the
/// [`Finder`].
pub(crate) fn place_in_pool(finder: Finder<'_>, zone: &Zone, placed: &mut VSphereMachineSpec) -> Result<()> {
    let Some(word) = zone.compute_cluster() else { return Ok(()) };
    let prefix = zone.fields_of_topology();
    let of_topology = finder.for_zone(&prefix);
    let datacenter = of_topology.datacenter(Some(&zone.domain.topology.datacenter))?;
    let cluster = of_topology.compute_cluster(&datacenter, word)?;
    let pool = placed.clone.resource_pool.as_deref().filter(|word| !word.is_empty());
    let Some(pool) = pool else {
        placed.clone.resource_pool = Some(of_topology.root_pool(&cluster)?);
        return Ok(());
    };
    let found = finder.resource_pool(&datacenter, Some(pool))?;
    if finder.is_below(&found, &cluster) {
        return Ok(());
    }
    Err(super::zone::outside(zone, pool, word))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::machines::zones::examples::{domain, objects, zone};

    fn placed(machine: Value, of_zone: Value, topology: Value) -> Value {
        let (mut zone, mut domain) = (zone("x"), domain("DC0_C1"));
        zone["placementConstraint"] = of_zone;
        if let (Some(all), Value::Object(more)) = (domain["topology"].as_object_mut(), topology) {
            all.extend(more);
        }
        let zone = Zone::read(&objects([("a", zone)], [("x", domain)]), "a").expect("a zone");
        let spec: VSphereMachineSpec = serde_json::from_value(machine).expect("a spec");
        serde_json::to_value(place(&spec, &zone)).expect("a spec")
    }

    fn machine() -> Value {
        json!({
            "template": "t", "server": "other", "datacenter": "DC9", "folder": "f", "resourcePool": "p", "datastore": "d",
            "network": {"devices": [{"networkName": "n", "dhcp4": true, "mtu": 9000}]},
        })
    }

    #[test]
    fn what_the_zone_says_wins() {
        let spec = placed(machine(), json!({}), json!({}));
        assert_eq!(
            spec,
            json!({
                "template": "t", "datacenter": "DC0", "folder": "f", "resourcePool": "p", "datastore": "d",
                "network": {"devices": [{"networkName": "n", "dhcp4": true, "mtu": 9000}]},
            })
        );
        let spec = placed(
            machine(),
            json!({"folder": "zf", "resourcePool": "zp"}),
            json!({"datastore": "zd", "networks": ["n1", "n2"]}),
        );
        for (field, expected) in [("folder", "zf"), ("resourcePool", "zp"), ("datastore", "zd")] {
            assert_eq!(spec[field], expected);
        }
        assert_eq!(
            spec["network"]["devices"],
            json!([{"networkName": "n1", "dhcp4": true, "mtu": 9000}, {"networkName": "n2"}])
        );
        let spec = placed(machine(), json!({"folder": ""}), json!({"datastore": ""}));
        assert_eq!((&spec["folder"], &spec["datastore"]), (&json!("f"), &json!("d")), "empty is missing");
    }

    #[test]
    fn networks_say_more_than_their_names() {
        let configurations = json!({"networkConfigurations": [
            {"networkName": "n1", "dhcp4": false, "nameservers": ["192.0.2.1"], "dhcp4Overrides": {"useDNS": false}},
            {"networkName": "n2", "dhcp6": true, "searchDomains": ["example.org"],
             "addressesFromPools": [{"kind": "P", "name": "p"}]},
        ]});
        let spec = placed(machine(), json!({}), configurations);
        assert_eq!(
            spec["network"]["devices"],
            json!([
                {"networkName": "n1", "dhcp4": false, "mtu": 9000, "nameservers": ["192.0.2.1"],
                 "dhcp4Overrides": {"useDNS": false}},
                {"networkName": "n2", "dhcp6": true, "searchDomains": ["example.org"],
                 "addressesFromPools": [{"kind": "P", "name": "p"}]},
            ])
        );
    }
}
