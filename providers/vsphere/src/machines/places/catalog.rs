//! The networks and datastores of a datacenter. Read when a machine is made, and kept for a moment.

use std::collections::HashMap;

use cloudprovider::{Error, ErrorKind, Result};

use crate::{
    inventory::unescaped,
    moref::MoRef,
    vim::{
        Value,
        element::Element,
        encode::object,
        machines::{DistributedPortBacking, NetworkBacking, OpaqueBacking, PortConnection},
        objects::{ObjectSpec, PropertyFilterSpec, PropertySpec, TraversalSpec},
        property_collector::ObjectUpdate,
    },
};

/// The networks and datastores of a datacenter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    networks: Vec<Network>,
    datastores: Vec<(String, MoRef)>,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) moref: MoRef,
    pub(crate) name: String,
    pub(crate) kind: NetworkKind,
}

/// How a card is put on a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NetworkKind {
    /// By its name.
    Standard,
    /// By its key and its switch, whose UUID is another one than its reference.
    Distributed { key: String, switch: Option<MoRef>, switch_uuid: Option<String>, is_uplink: bool },
    /// By its ID and type.
    Opaque { id: String, kind: String },
}

/// Selects the networks and datastores of a datacenter.
pub(crate) fn catalog_selection(datacenter: &MoRef) -> PropertyFilterSpec {
    let of = |kind, path_set: &[&'static str]| PropertySpec { kind, all: None, path_set: path_set.to_vec() };
    let step = |path| TraversalSpec {
        name: Some(path),
        kind: "Datacenter",
        path,
        skip: Some(false),
        select_set: Vec::new(),
    };
    PropertyFilterSpec {
        prop_set: vec![
            of("Network", &["name"]),
            of("DistributedVirtualPortgroup", &["key", "config.distributedVirtualSwitch", "config.uplink"]),
            of("OpaqueNetwork", &["summary"]),
            of("Datastore", &["name"]),
        ],
        object_set: vec![ObjectSpec {
            obj: datacenter.clone(),
            skip: Some(true),
            select_set: vec![step("network"), step("datastore")],
        }],
        report_missing_objects_in_results: None,
    }
}

/// Selects the UUIDs of these switches.
pub(crate) fn switches_selection(switches: &[MoRef]) -> PropertyFilterSpec {
    let one = |switch: &MoRef| ObjectSpec { obj: switch.clone(), skip: Some(false), select_set: Vec::new() };
    PropertyFilterSpec {
        prop_set: vec![PropertySpec { kind: "DistributedVirtualSwitch", all: None, path_set: vec!["uuid"] }],
        object_set: switches.iter().map(one).collect(),
        report_missing_objects_in_results: None,
    }
}

/// Reads the UUIDs of switches.
pub(crate) fn switches(updates: &[ObjectUpdate<'_>]) -> HashMap<MoRef, String> {
    let uuid = |update: &ObjectUpdate<'_>| Some((update.object.clone(), text(update, "uuid")?));
    updates.iter().filter_map(uuid).collect()
}

fn value<'a>(update: &ObjectUpdate<'a>, path: &str) -> Option<&'a Element> {
    update.properties.iter().find(|(name, _)| *name == path).and_then(|(_, value)| *value)
}

fn text(update: &ObjectUpdate<'_>, path: &str) -> Option<String> {
    value(update, path).map(|value| value.text.to_string())
}

impl Catalog {
    /// Takes what was read of networks and datastores.
    pub(crate) fn add(&mut self, updates: &[ObjectUpdate<'_>]) {
        for update in updates {
            let Some(name) = text(update, "name").map(|name| unescaped(&name).into_string()) else {
                continue;
            };
            let moref = update.object.clone();
            let kind = match moref.kind() {
                "Datastore" => {
                    self.datastores.push((name, moref));
                    continue;
                }
                "DistributedVirtualPortgroup" => NetworkKind::Distributed {
                    key: text(update, "key").unwrap_or_else(|| moref.id().to_owned()),
                    switch: value(update, "config.distributedVirtualSwitch").and_then(Element::moref),
                    switch_uuid: None,
                    is_uplink: value(update, "config.uplink").is_some_and(Element::is_true),
                },
                "OpaqueNetwork" => {
                    let summary = value(update, "summary");
                    let of = |name| summary.and_then(|summary| summary.text_of(name)).unwrap_or_default();
                    NetworkKind::Opaque {
                        id: of("opaqueNetworkId").to_owned(),
                        kind: of("opaqueNetworkType").to_owned(),
                    }
                }
                _ => NetworkKind::Standard,
            };
            self.networks.push(Network { moref, name, kind });
        }
    }

    /// The switches whose UUIDs are still to be read.
    pub(crate) fn switches(&self) -> Vec<MoRef> {
        let mut found: Vec<_> = self
            .networks
            .iter()
            .filter_map(|network| match &network.kind {
                NetworkKind::Distributed { switch, switch_uuid: None, .. } => switch.clone(),
                _ => None,
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Takes the UUIDs of switches.
    pub(crate) fn add_switches(&mut self, uuids: &HashMap<MoRef, String>) {
        for network in &mut self.networks {
            if let NetworkKind::Distributed { switch: Some(switch), switch_uuid, .. } = &mut network.kind
                && let Some(uuid) = uuids.get(switch)
            {
                *switch_uuid = Some(uuid.clone());
            }
        }
    }

    /// The network with this name, path or managed object ID, for the field `field`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], and [`ErrorKind::InvalidInput`] where the name is that of several.
    pub(crate) fn network(&self, field: &str, word: &str) -> Result<&Network> {
        let is_called = |name: &str| is_called(name, word);
        let is_uplink =
            |network: &Network| matches!(network.kind, NetworkKind::Distributed { is_uplink: true, .. });
        let found: Vec<_> = self
            .networks
            .iter()
            .filter(|network| network.moref.id() == word || (is_called(&network.name) && !is_uplink(network)))
            .collect();
        match found[..] {
            [one] => Ok(one),
            [] => Err(nothing(field, word, "network", self.networks.iter().map(|one| &one.name))),
            _ => {
                let words = format!(
                    "{field}: {} networks are called {word:?}; name one by its managed object ID: {}",
                    found.len(),
                    found.iter().map(|one| one.moref.id()).collect::<Vec<_>>().join(", ")
                );
                Err(Error::new(ErrorKind::InvalidInput, words))
            }
        }
    }

    /// The datastore with this name, path or managed object ID.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub(crate) fn datastore(&self, word: &str) -> Result<&MoRef> {
        let found =
            self.datastores.iter().find(|(called, moref)| moref.id() == word || is_called(called, word));
        found.map(|(_, moref)| moref).ok_or_else(|| {
            nothing("spec.datastore", word, "datastore", self.datastores.iter().map(|(name, _)| name))
        })
    }
}

/// Whether an object with this name is meant by a word: the name, or a path to it. A slash in the name may be written as `%2f`.
fn is_called(name: &str, word: &str) -> bool {
    let last = word.rsplit('/').next().unwrap_or(word);
    name == word || name == last || *name == *unescaped(last)
}

/// The error about a word that names nothing, with what there is.
fn nothing<'a>(field: &str, word: &str, what: &str, known: impl Iterator<Item = &'a String>) -> Error {
    /// How many names an error lists.
    const MAX_LISTED: usize = 8;
    let mut known: Vec<_> = known.map(String::as_str).collect();
    known.sort_unstable();
    known.dedup();
    let more = if known.len() > MAX_LISTED { ", ..." } else { "" };
    known.truncate(MAX_LISTED);
    let words = format!("{field}: the datacenter has no {what} {word:?}; it has {}{more}", known.join(", "));
    Error::new(ErrorKind::NotFound, words)
}

impl Network {
    /// How a card is put on it, for the field `field`.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if the switch of the port group may not be read.
    pub(crate) fn backing(&self, field: &str) -> Result<Value> {
        Ok(match &self.kind {
            NetworkKind::Standard => {
                object(NetworkBacking { device_name: self.name.clone(), network: Some(self.moref.clone()) })
            }
            NetworkKind::Distributed { key, switch_uuid: Some(uuid), .. } => object(DistributedPortBacking {
                port: PortConnection { switch_uuid: uuid.clone(), portgroup_key: Some(key.clone()) },
            }),
            NetworkKind::Distributed { .. } => {
                let words = format!(
                    "{field}: the distributed switch of {:?} cannot be read; the user needs the privilege \
                     System.Read on it",
                    self.name
                );
                return Err(Error::new(ErrorKind::PermissionDenied, words));
            }
            NetworkKind::Opaque { id, kind } => {
                object(OpaqueBacking { network_id: id.clone(), network_type: kind.clone() })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        testing::scripted::{node, reference, text},
        vim::property_collector::UpdateKind,
    };

    type Properties = Vec<(&'static str, Element)>;

    fn catalog(objects: &[(&str, &str, Properties)]) -> Catalog {
        let mut catalog = Catalog::default();
        for (kind, id, values) in objects {
            let properties = values.iter().map(|(path, value)| (*path, Some(value))).collect();
            catalog.add(&[ObjectUpdate {
                object: MoRef::new(kind, id),
                kind: UpdateKind::Enter,
                properties,
            }]);
        }
        catalog
    }

    fn all() -> Catalog {
        let switch = reference("val", &MoRef::new("VmwareDistributedVirtualSwitch", "dvs-1"));
        let summary = node(
            "val",
            vec![text("opaqueNetworkId", "seg-1"), text("opaqueNetworkType", "nsx.LogicalSwitch")],
        );
        catalog(&[
            ("Network", "network-1", vec![("name", text("val", "VM Network"))]),
            (
                "DistributedVirtualPortgroup",
                "dvportgroup-1",
                vec![
                    ("name", text("val", "prod")),
                    ("key", text("val", "dvportgroup-1")),
                    ("config.distributedVirtualSwitch", switch),
                ],
            ),
            ("OpaqueNetwork", "network-o1", vec![("name", text("val", "seg")), ("summary", summary)]),
            ("Network", "network-4", vec![("name", text("val", "VM-10.0.0.0%2f24"))]),
            ("Network", "network-2", vec![("name", text("val", "twice"))]),
            ("Network", "network-3", vec![("name", text("val", "twice"))]),
            ("Datastore", "datastore-1", vec![("name", text("val", "fast"))]),
        ])
    }

    #[test]
    fn each_kind_of_network_has_its_backing() {
        let mut catalog = all();
        let dvs = MoRef::new("VmwareDistributedVirtualSwitch", "dvs-1");
        let backing = |catalog: &Catalog, word: &str| {
            catalog
                .network("f", word)
                .and_then(|network| network.backing("f"))
                .map(|value| format!("{value:?}"))
        };
        let denied = backing(&catalog, "prod").expect_err("its switch was not read");
        assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
        assert_eq!(catalog.switches(), std::slice::from_ref(&dvs));
        catalog.add_switches(&HashMap::from([(dvs, "50 11".to_owned())]));
        assert!(catalog.switches().is_empty());
        for (word, kind, part) in [
            ("VM Network", "VirtualEthernetCardNetworkBackingInfo", "\"VM Network\""),
            ("/DC0/network/VM Network", "VirtualEthernetCardNetworkBackingInfo", "network-1"),
            ("network-3", "VirtualEthernetCardNetworkBackingInfo", "\"twice\""),
            ("VM-10.0.0.0/24", "VirtualEthernetCardNetworkBackingInfo", "network-4"),
            ("/DC0/network/VM-10.0.0.0%2f24", "VirtualEthernetCardNetworkBackingInfo", "network-4"),
            ("prod", "VirtualEthernetCardDistributedVirtualPortBackingInfo", "\"50 11\""),
            ("seg", "VirtualEthernetCardOpaqueNetworkBackingInfo", "\"seg-1\""),
        ] {
            let shown = backing(&catalog, word).expect("a backing");
            assert!(shown.starts_with(kind) && shown.contains(part), "{word}: {shown}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let catalog = all();
        let error = catalog.network("spec.network.devices[0].networkName", "test").expect_err("none");
        assert_eq!(
            error.to_string(),
            "spec.network.devices[0].networkName: the datacenter has no network \"test\"; it has VM Network, \
             VM-10.0.0.0/24, prod, seg, twice"
        );
        assert!(
            catalog
                .network("f", "twice")
                .is_err_and(|error| error.to_string().contains("network-2, network-3"))
        );
        assert_eq!(catalog.datastore("fast").map(MoRef::id).ok(), Some("datastore-1"));
        let error = catalog.datastore("slow").expect_err("none");
        assert_eq!(
            error.to_string(),
            "spec.datastore: the datacenter has no datastore \"slow\"; it has fast"
        );
    }
}
