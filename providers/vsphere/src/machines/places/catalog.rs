//! The networks, datastores and datastore clusters of a datacenter. Read when a machine is made, and kept for a moment.

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

/// The networks, datastores and datastore clusters of a datacenter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    networks: Vec<Network>,
    datastores: Vec<(String, MoRef)>,
    /// The datastore clusters, by their whole paths.
    pods: Vec<(String, MoRef)>,
    /// What each network and datastore is in.
    parents: HashMap<MoRef, MoRef>,
    /// Whether an error about a word that nothing has says nothing of what there is.
    is_discreet: bool,
}

/// What a spec names as its datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage<'a> {
    Datastore(&'a MoRef),
    /// A datastore cluster: vCenter recommends one of its datastores.
    Pod(&'a MoRef),
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
            of("Network", &["name", "parent"]),
            of("DistributedVirtualPortgroup", &["key", "config.distributedVirtualSwitch", "config.uplink"]),
            of("OpaqueNetwork", &["summary"]),
            of("Datastore", &["name", "parent"]),
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
    /// A catalog that has these datastore clusters, by their whole paths, and nothing else yet.
    pub(crate) fn with_pods(pods: Vec<(String, MoRef)>) -> Self {
        Self { pods, ..Self::default() }
    }

    /// The same, but errors say nothing of what there is: people may read them who may not name all of it.
    #[must_use]
    pub(crate) fn discreet(self, is_discreet: bool) -> Self {
        Self { is_discreet, ..self }
    }

    /// The name of a network or datastore, and what it is in.
    pub(crate) fn place_of(&self, object: &MoRef) -> Option<(&MoRef, &str)> {
        let networks = self.networks.iter().map(|network| (&network.moref, &network.name));
        let mut all = networks.chain(self.datastores.iter().map(|(name, datastore)| (datastore, name)));
        let (_, name) = all.find(|(one, _)| *one == object)?;
        Some((self.parents.get(object)?, name))
    }

    /// The datastore with this name.
    pub(crate) fn datastore_called(&self, name: &str) -> Option<&MoRef> {
        let mut found = self.datastores.iter().filter(|(called, _)| called == name);
        found.next().map(|(_, datastore)| datastore)
    }

    /// Takes what was read of networks and datastores.
    pub(crate) fn add(&mut self, updates: &[ObjectUpdate<'_>]) {
        for update in updates {
            let Some(name) = text(update, "name").map(|name| unescaped(&name).into_string()) else {
                continue;
            };
            let moref = update.object.clone();
            if let Some(parent) = value(update, "parent").and_then(Element::moref) {
                self.parents.insert(moref.clone(), parent);
            }
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
            [] => Err(self.nothing(field, word, "network", self.networks.iter().map(|one| &one.name))),
            _ if self.is_discreet => Err(several(field, word)),
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

    /// The datastore, or else the datastore cluster, with this name, path or managed object ID.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], and [`ErrorKind::InvalidInput`] where the name is that of several datastore clusters.
    pub(crate) fn storage(&self, word: &str) -> Result<Storage<'_>> {
        const FIELD: &str = "spec.datastore";
        let is_meant = |(called, moref): &&(String, MoRef)| moref.id() == word || is_called(called, word);
        if let Some((_, datastore)) = self.datastores.iter().find(is_meant) {
            return Ok(Storage::Datastore(datastore));
        }
        let is_meant = |(path, moref): &&(String, MoRef)| moref.id() == word || leads_to(word, path);
        let found: Vec<_> = self.pods.iter().filter(is_meant).collect();
        match found[..] {
            [(_, pod)] => Ok(Storage::Pod(pod)),
            [] => {
                let names = self.datastores.iter().map(|(name, _)| name);
                let what = "datastore or datastore cluster";
                Err(self.nothing(FIELD, word, what, names.chain(self.pods.iter().map(|(path, _)| path))))
            }
            _ if self.is_discreet => Err(several(FIELD, word)),
            _ => {
                let paths: Vec<_> = found.iter().map(|(path, _)| format!("/{path}")).collect();
                let words = format!(
                    "{FIELD}: {} datastore clusters are called {word:?}; name one by its path: {}",
                    found.len(),
                    paths.join(", ")
                );
                Err(Error::new(ErrorKind::InvalidInput, words))
            }
        }
    }

    /// The error about a word that names nothing, with what there is.
    fn nothing<'a>(
        &self,
        field: &str,
        word: &str,
        what: &str,
        known: impl Iterator<Item = &'a String>,
    ) -> Error {
        /// How many names an error lists.
        const MAX_LISTED: usize = 8;
        let mut known: Vec<_> = known.map(String::as_str).collect();
        known.sort_unstable();
        known.dedup();
        let more = if known.len() > MAX_LISTED { ", ..." } else { "" };
        known.truncate(MAX_LISTED);
        let there_is = format!("; it has {}{more}", known.join(", "));
        let there_is = if self.is_discreet { "" } else { &there_is };
        Error::new(ErrorKind::NotFound, format!("{field}: the datacenter has no {what} {word:?}{there_is}"))
    }
}

/// The error about a word that is that of several, which it does not name.
fn several(field: &str, word: &str) -> Error {
    let words = format!("{field}: {word:?} means several; name one by its whole path or managed object ID");
    Error::new(ErrorKind::InvalidInput, words)
}

/// Whether a word is a whole path, or the end of it. A slash in a name may be written as `%2f`.
fn leads_to(word: &str, path: &str) -> bool {
    let wanted = unescaped(word.trim_matches('/'));
    path == &*wanted || (!word.starts_with('/') && path.ends_with(&format!("/{wanted}")))
}

/// Whether an object with this name is meant by a word: the name, or a path to it. A slash in the name may be written as `%2f`.
fn is_called(name: &str, word: &str) -> bool {
    let last = word.rsplit('/').next().unwrap_or(word);
    name == word || name == last || *name == *unescaped(last)
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
        let pod = |path: &str, id: &str| (path.to_owned(), MoRef::new("StoragePod", id));
        let mut catalog = Catalog::with_pods(vec![
            pod("DC0/datastore/gold", "group-p1"),
            pod("DC0/datastore/east/silver", "group-p2"),
            pod("DC0/datastore/west/silver", "group-p3"),
            pod("DC0/datastore/fast", "group-p4"),
            pod("DC0/datastore/10/20", "group-p5"),
        ]);
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
    }

    #[test]
    fn a_datastore_comes_before_a_datastore_cluster() {
        let catalog = all();
        let found = |word: &str| match catalog.storage(word) {
            Ok(Storage::Datastore(datastore)) => datastore.id().to_owned(),
            Ok(Storage::Pod(pod)) => pod.id().to_owned(),
            Err(error) => error.to_string(),
        };
        for (word, expected) in [
            ("fast", "datastore-1"),
            ("/DC0/datastore/gold/fast", "datastore-1"),
            ("group-p4", "group-p4"),
            ("gold", "group-p1"),
            ("/DC0/datastore/gold", "group-p1"),
            ("west/silver", "group-p3"),
            ("10%2f20", "group-p5"),
            (
                "silver",
                "spec.datastore: 2 datastore clusters are called \"silver\"; name one by its path: \
                 /DC0/datastore/east/silver, /DC0/datastore/west/silver",
            ),
            (
                "/gold",
                "spec.datastore: the datacenter has no datastore or datastore cluster \"/gold\"; it has \
                 DC0/datastore/10/20, DC0/datastore/east/silver, DC0/datastore/fast, DC0/datastore/gold, \
                 DC0/datastore/west/silver, fast",
            ),
        ] {
            assert_eq!(found(word), expected, "{word}");
        }
    }
}
