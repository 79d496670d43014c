//! `guestinfo.metadata`: the name and the network configuration of a machine, as cloud-init reads them.

use std::{
    fmt::Write as _,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::IpAddr,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

use crate::{
    inventory::parse_mac,
    machines::spec::{DhcpOverrides, NetworkDeviceSpec, NetworkRouteSpec, NetworkSpec},
    vim::{Value, machines::OptionValue},
};

/// The keys of the metadata of the machine `name`. `macs` are the MAC addresses of its devices, in their order.
pub(crate) fn metadata(name: &str, network: &NetworkSpec, macs: &[[u8; 6]]) -> Vec<OptionValue> {
    // JSON is YAML too.
    let text = metadata_of(name, network, macs).to_string();
    // vSphere's own cloud provider reads no other encoding
    let (encoding, text) = ("base64", STANDARD.encode(text));
    let option =
        |key: &str, value: String| OptionValue { key: key.to_owned(), value: Value::AnyString(value) };
    vec![option("guestinfo.metadata", text), option("guestinfo.metadata.encoding", encoding.to_owned())]
}

fn metadata_of(name: &str, network: &NetworkSpec, macs: &[[u8; 6]]) -> Json {
    let has = |is_v4: bool| {
        network.devices.iter().any(|device| {
            let dhcp = if is_v4 { device.dhcp4 } else { device.dhcp6 };
            dhcp == Some(true) || static_ips(device).any(|ip| ip.is_ipv4() == is_v4)
        })
    };
    let ethernets: Map<_, _> = network
        .devices
        .iter()
        .zip(macs)
        .enumerate()
        .map(|(number, (device, mac))| (format!("id{number}"), ethernet(number, device, *mac)))
        .collect();
    let mut config = Map::new();
    config.insert("version".to_owned(), json!(2));
    config.insert("ethernets".to_owned(), Json::Object(ethernets));
    insert(&mut config, "routes", routes(&network.routes));
    json!({
        "instance-id": name,
        "local-hostname": name,
        "wait-on-network": {"ipv4": has(true), "ipv6": has(false)},
        "network": config,
    })
}

/// The static addresses of a device, without the length of their prefix.
pub(crate) fn static_ips(device: &NetworkDeviceSpec) -> impl Iterator<Item = IpAddr> {
    device.ip_addrs.iter().filter_map(|text| text.split('/').next()?.parse().ok())
}

fn ethernet(number: usize, device: &NetworkDeviceSpec, mac: [u8; 6]) -> Json {
    let device_name = device.device_name.clone().filter(|name| !name.is_empty());
    let dhcp6 = device.dhcp6.unwrap_or_default();
    let mut config = Map::new();
    config.insert("match".to_owned(), json!({"macaddress": written(mac)}));
    config.insert("set-name".to_owned(), json!(device_name.unwrap_or_else(|| format!("eth{number}"))));
    config.insert("wakeonlan".to_owned(), json!(true));
    config.insert("dhcp4".to_owned(), json!(device.dhcp4.unwrap_or_default()));
    config.insert("dhcp6".to_owned(), json!(dhcp6));
    config.insert("accept-ra".to_owned(), json!(dhcp6));
    insert(&mut config, "dhcp4-overrides", device.dhcp4_overrides.as_ref().and_then(overrides));
    insert(&mut config, "dhcp6-overrides", device.dhcp6_overrides.as_ref().and_then(overrides));
    insert(&mut config, "addresses", list(&device.ip_addrs));
    insert(&mut config, "gateway4", text(device.gateway4.as_ref()));
    insert(&mut config, "gateway6", text(device.gateway6.as_ref()));
    insert(&mut config, "mtu", device.mtu.filter(|mtu| *mtu != 0).map(Json::from));
    insert(&mut config, "routes", routes(&device.routes));
    let mut servers = Map::new();
    insert(&mut servers, "addresses", list(&device.nameservers));
    insert(&mut servers, "search", list(&device.search_domains));
    insert(&mut config, "nameservers", (!servers.is_empty()).then_some(Json::Object(servers)));
    Json::Object(config)
}

fn insert(into: &mut Map<String, Json>, key: &str, value: Option<Json>) {
    if let Some(value) = value {
        into.insert(key.to_owned(), value);
    }
}

fn text(value: Option<&String>) -> Option<Json> {
    value.filter(|text| !text.is_empty()).map(|text| json!(text))
}

fn list(values: &[String]) -> Option<Json> {
    (!values.is_empty()).then(|| json!(values))
}

fn routes(routes: &[NetworkRouteSpec]) -> Option<Json> {
    let one = |route: &NetworkRouteSpec| json!({"to": route.to, "via": route.via, "metric": route.metric.unwrap_or_default()});
    (!routes.is_empty()).then(|| routes.iter().map(one).collect())
}

fn overrides(of: &DhcpOverrides) -> Option<Json> {
    // netplan takes a truth value or `route`
    let word = |value: &Option<String>| {
        text(value.as_ref()).map(|value| match value.as_str() {
            Some("true") => json!(true),
            Some("false") => json!(false),
            _ => value,
        })
    };
    let mut config = Map::new();
    insert(&mut config, "hostname", text(of.hostname.as_ref()));
    insert(&mut config, "route-metric", of.route_metric.map(Json::from));
    insert(&mut config, "send-hostname", of.send_hostname.map(Json::from));
    insert(&mut config, "use-dns", of.use_dns.map(Json::from));
    insert(&mut config, "use-domains", word(&of.use_domains));
    insert(&mut config, "use-hostname", of.use_hostname.map(Json::from));
    insert(&mut config, "use-mtu", of.use_mtu.map(Json::from));
    insert(&mut config, "use-ntp", of.use_ntp.map(Json::from));
    insert(&mut config, "use-routes", word(&of.use_routes));
    (!config.is_empty()).then_some(Json::Object(config))
}

/// A number that changes with what a guest is told of its devices. It is good for this process. Networks and MAC addresses are not in
/// it: of a virtual machine that is there they stay what they are.
pub(crate) fn shape(network: &NetworkSpec) -> u64 {
    let macs = vec![[0; 6]; network.devices.len()];
    let mut hasher = DefaultHasher::new();
    for OptionValue { value, .. } in metadata("", network, &macs) {
        if let Value::AnyString(text) = value {
            text.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The first byte of MAC addresses that no maker of hardware uses.
const LOCALLY_ADMINISTERED: u8 = 0x02;

/// The MAC address of the device with this number: what the spec says, or else one with 36 random bits of the UID.
/// It is fixed before the machine is made, so that its network configuration, which finds devices by it, is in the call that makes it.
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
    use crate::guestinfo;

    fn network(value: Json) -> NetworkSpec {
        serde_json::from_value(value).expect("a network")
    }

    const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0x10, 0, 0, 0, 1]];

    #[test]
    fn everything_that_a_device_may_say() {
        let network = network(json!({
            "devices": [
                {"networkName": "VM Network", "dhcp4": true, "dhcp4Overrides": {"routeMetric": 100, "useDNS": false, "useDomains": "route"}},
                {"networkName": "storage", "deviceName": "san0", "ipAddrs": ["192.0.2.10/24", "2001:db8::10/64"],
                 "gateway4": "192.0.2.1", "gateway6": "2001:db8::1", "mtu": 9000, "nameservers": ["192.0.2.53"],
                 "searchDomains": ["example.org"], "routes": [{"to": "198.51.100.0/24", "via": "192.0.2.1", "metric": 3}]},
            ],
            "routes": [{"to": "203.0.113.0/24", "via": "192.0.2.2"}],
        }));
        assert_eq!(
            metadata_of("node-1", &network, &MACS),
            json!({
                "instance-id": "node-1",
                "local-hostname": "node-1",
                "wait-on-network": {"ipv4": true, "ipv6": true},
                "network": {
                    "version": 2,
                    "ethernets": {
                        "id0": {
                            "match": {"macaddress": "02:00:00:00:00:01"}, "set-name": "eth0", "wakeonlan": true,
                            "dhcp4": true, "dhcp6": false, "accept-ra": false,
                            "dhcp4-overrides": {"route-metric": 100, "use-dns": false, "use-domains": "route"},
                        },
                        "id1": {
                            "match": {"macaddress": "02:10:00:00:00:01"}, "set-name": "san0", "wakeonlan": true,
                            "dhcp4": false, "dhcp6": false, "accept-ra": false,
                            "addresses": ["192.0.2.10/24", "2001:db8::10/64"],
                            "gateway4": "192.0.2.1", "gateway6": "2001:db8::1", "mtu": 9000,
                            "nameservers": {"addresses": ["192.0.2.53"], "search": ["example.org"]},
                            "routes": [{"to": "198.51.100.0/24", "via": "192.0.2.1", "metric": 3}],
                        },
                    },
                    "routes": [{"to": "203.0.113.0/24", "via": "192.0.2.2", "metric": 0}],
                },
            })
        );
    }

    #[test]
    fn the_node_side_reads_the_static_addresses() {
        let network = network(json!({"devices": [{"networkName": "n", "ipAddrs": ["192.0.2.10/24"]}]}));
        let options = metadata("node-1", &network, &MACS);
        let value = |number: usize| match &options[number].value {
            Value::AnyString(text) => text.clone(),
            other => format!("{other:?}"),
        };
        let addresses = guestinfo::static_addresses(&value(0), &value(1)).expect("readable");
        assert_eq!(addresses, ["192.0.2.10".parse::<IpAddr>().expect("an address")]);
        assert_eq!(options[1].key, "guestinfo.metadata.encoding");
    }

    #[test]
    fn what_a_guest_does_not_see_changes_nothing() {
        let of = |more: &Json| {
            let mut device = json!({"networkName": "VM Network", "dhcp4": true});
            if let (Some(device), Some(more)) = (device.as_object_mut(), more.as_object()) {
                device.extend(more.clone());
            }
            shape(&serde_json::from_value(json!({"devices": [device]})).expect("a network"))
        };
        let before = of(&json!({}));
        for more in [
            json!({"networkName": "another"}),
            json!({"macAddr": "00:50:56:00:00:01"}),
            json!({"dhcp6": false, "mtu": 0, "deviceName": "", "nameservers": []}),
        ] {
            assert_eq!(of(&more), before, "{more}");
        }
        for more in [json!({"dhcp4": false}), json!({"nameservers": ["192.0.2.53"]}), json!({"mtu": 9000})] {
            assert_ne!(of(&more), before, "{more}");
        }
    }

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
