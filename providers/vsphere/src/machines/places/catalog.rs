//! The networks, datastores and datastore clusters of a datacenter. Read when a machine is made, and kept for a moment.

use std::collections::HashMap;

use cloudprovider::{Error, ErrorKind, Result};

use super::finder::Finder;
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
    words::{Named, listed, meant},
};

/// The networks, datastores and datastore clusters of a datacenter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    networks: Vec<Named<Network>>,
    datastores: Vec<Named<()>>,
    pods: Vec<Named<()>>,
    /// The names that lead to the datacenter.
    datacenter: Vec<String>,
    /// The names that lead to its folders and datastore clusters.
    containers: HashMap<MoRef, Vec<String>>,
    /// What each network and datastore is in.
    parents: HashMap<MoRef, MoRef>,
    /// Whether errors say nothing of what there is.
    is_discreet: bool,
}

/// The folder of a datacenter that has its networks.
const NETWORKS: &str = "network";

/// The folder of a datacenter that has its datastores.
const DATASTORES: &str = "datastore";

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
    /// The IDs that NSX has given to it.
    segments: Vec<String>,
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

/// The properties of a port group with the IDs that NSX gives to it.
const SEGMENT_PATHS: [&str; 2] = ["config.logicalSwitchUuid", "config.segmentId"];

/// Selects the networks and datastores of a datacenter.
///
/// Only with `with_segments` the IDs that NSX gives to port groups are read: a vCenter before 7.0 does not know them.
pub(crate) fn catalog_selection(datacenter: &MoRef, with_segments: bool) -> PropertyFilterSpec {
    let of = |kind, path_set: &[&'static str]| PropertySpec { kind, all: None, path_set: path_set.to_vec() };
    let step = |path| TraversalSpec {
        name: Some(path),
        kind: "Datacenter",
        path,
        skip: Some(false),
        select_set: Vec::new(),
    };
    let mut of_port_groups = vec!["key", "config.distributedVirtualSwitch", "config.uplink"];
    of_port_groups.extend(SEGMENT_PATHS.iter().filter(|_| with_segments));
    PropertyFilterSpec {
        prop_set: vec![
            of("Network", &["name", "parent"]),
            of("DistributedVirtualPortgroup", &of_port_groups),
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
    /// A catalog of a datacenter with its folders and datastore clusters, and nothing else yet.
    pub(crate) fn new(finder: Finder<'_>, datacenter: &MoRef) -> Self {
        let found = finder.containers(datacenter);
        let pods = found.iter().filter(|one| one.moref.kind() == "StoragePod");
        let pods = pods.map(|one| Named { path: one.path.clone(), moref: one.moref.clone(), object: () });
        Self {
            pods: pods.collect(),
            datacenter: finder.path_to(datacenter),
            containers: found.into_iter().map(|one| (one.moref, one.path)).collect(),
            ..Self::default()
        }
    }

    fn root(&self, folder: &str) -> Vec<String> {
        self.datacenter.iter().cloned().chain([folder.to_owned()]).collect()
    }

    /// The names that lead to an object, for words. One whose folder cannot be read counts as directly in the folder of its kind.
    fn path(&self, update: &ObjectUpdate<'_>, folder: &str, name: &str) -> Vec<String> {
        let parent = value(update, "parent").and_then(Element::moref);
        let known = parent.and_then(|parent| self.containers.get(&parent).cloned());
        let mut path = known.unwrap_or_else(|| self.root(folder));
        path.push(name.to_owned());
        path
    }

    /// The same, but errors say nothing of what there is: people may read them who may not name all of it.
    #[must_use]
    pub(crate) fn discreet(self, is_discreet: bool) -> Self {
        Self { is_discreet, ..self }
    }

    /// The name of a network or datastore, and what it is in. `None` where that is not known.
    pub(crate) fn place_of(&self, object: &MoRef) -> Option<(&MoRef, &str)> {
        let networks = self.networks.iter().map(|one| (&one.moref, one.name()));
        let mut all = networks.chain(self.datastores.iter().map(|one| (&one.moref, one.name())));
        let (_, name) = all.find(|(one, _)| *one == object)?;
        Some((self.parents.get(object)?, name))
    }

    /// The datastore with this name.
    pub(crate) fn datastore_called(&self, name: &str) -> Option<&MoRef> {
        self.datastores.iter().find(|one| one.name() == name).map(|one| &one.moref)
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
                    let path = self.path(update, DATASTORES, &name);
                    self.datastores.push(Named { path, moref, object: () });
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
            let segments = SEGMENT_PATHS.iter().filter_map(|path| text(update, path));
            let segments = segments.filter(|id| !id.is_empty()).collect();
            let path = self.path(update, NETWORKS, &name);
            let network = Network { moref: moref.clone(), name, kind, segments };
            self.networks.push(Named { path, moref, object: network });
        }
    }

    /// The switches whose UUIDs are still to be read.
    pub(crate) fn switches(&self) -> Vec<MoRef> {
        let mut found: Vec<_> = self
            .networks
            .iter()
            .filter_map(|network| match &network.object.kind {
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
            if let NetworkKind::Distributed { switch: Some(switch), switch_uuid, .. } =
                &mut network.object.kind
                && let Some(uuid) = uuids.get(switch)
            {
                *switch_uuid = Some(uuid.clone());
            }
        }
    }

    /// The network with this name, path, managed object ID, or ID of NSX, for the field `field`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], and [`ErrorKind::InvalidInput`] where the word means several.
    pub(crate) fn network(&self, field: &str, word: &str) -> Result<&Network> {
        let mut found = meant(word, &self.root(NETWORKS), &self.networks);
        // a card cannot be put on an uplink, which has a name all the same
        if found.len() > 1 || found.iter().all(|one| one.moref.id() != word) {
            found.retain(|one| !one.object.is_uplink());
        }
        if found.is_empty() {
            let has_segment = |one: &&Named<Network>| one.object.segments.iter().any(|id| id == word);
            found = self.networks.iter().filter(has_segment).collect();
        }
        match found[..] {
            [one] => Ok(&one.object),
            [] => {
                let names = self.networks.iter().map(|one| &*one.object.name);
                Err(self.nothing(field, word, "network", names))
            }
            _ => Err(self.several(field, word, "networks", &found)),
        }
    }

    /// The datastore, or else the datastore cluster, with this name, path or managed object ID.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], and [`ErrorKind::InvalidInput`] where the word means several.
    pub(crate) fn storage(&self, word: &str) -> Result<Storage<'_>> {
        const FIELD: &str = "spec.datastore";
        let root = self.root(DATASTORES);
        match meant(word, &root, &self.datastores)[..] {
            [one] => return Ok(Storage::Datastore(&one.moref)),
            [] => {}
            ref found => return Err(self.several(FIELD, word, "datastores", found)),
        }
        match meant(word, &root, &self.pods)[..] {
            [one] => Ok(Storage::Pod(&one.moref)),
            [] => {
                let paths: Vec<_> = self.pods.iter().map(|one| one.path.join("/")).collect();
                let names = self.datastores.iter().map(Named::name).chain(paths.iter().map(String::as_str));
                Err(self.nothing(FIELD, word, "datastore or datastore cluster", names))
            }
            ref found => Err(self.several(FIELD, word, "datastore clusters", found)),
        }
    }

    /// The error about a word that names nothing, with what there is.
    fn nothing<'a>(
        &self,
        field: &str,
        word: &str,
        what: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Error {
        /// How many names an error lists.
        const MAX_LISTED: usize = 8;
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        known.dedup();
        let more = if known.len() > MAX_LISTED { ", ..." } else { "" };
        known.truncate(MAX_LISTED);
        let there_is = format!("; it has {}{more}", known.join(", "));
        let there_is = if self.is_discreet { "" } else { &there_is };
        Error::new(ErrorKind::NotFound, format!("{field}: the datacenter has no {what} {word:?}{there_is}"))
    }

    /// The error about a word that means several objects.
    fn several<T>(&self, field: &str, word: &str, what: &str, found: &[&Named<T>]) -> Error {
        let words = if self.is_discreet {
            format!("{field}: {word:?} means several; name one by its whole path or managed object ID")
        } else {
            let ids: Vec<_> = found.iter().map(|one| one.moref.id()).collect();
            format!(
                "{field}: {} {what} are called {word:?}; name one by its path ({}) or by its managed object ID ({})",
                found.len(),
                listed(found.iter().copied()),
                ids.join(", ")
            )
        };
        Error::new(ErrorKind::InvalidInput, words)
    }
}

impl Network {
    fn is_uplink(&self) -> bool {
        matches!(self.kind, NetworkKind::Distributed { is_uplink: true, .. })
    }

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
        inventory::Inventory,
        testing::scripted::{node, reference, text},
        vim::property_collector::UpdateKind,
    };

    type Properties = Vec<(&'static str, Element)>;

    /// A datacenter with these objects, with folders of networks and datastore clusters.
    fn catalog(objects: &[(&str, &str, Properties)]) -> Catalog {
        let mut inventory = Inventory::default();
        for (kind, id, name, parent) in [
            ("Folder", "group-d1", "Datacenters", None),
            ("Datacenter", "dc-1", "DC0", Some(("Folder", "group-d1"))),
            ("Folder", "group-n1", "network", Some(("Datacenter", "dc-1"))),
            ("Folder", "group-n2", "site-a", Some(("Folder", "group-n1"))),
            ("Folder", "group-n3", "site-b", Some(("Folder", "group-n1"))),
            ("Folder", "group-s1", "datastore", Some(("Datacenter", "dc-1"))),
            ("Folder", "group-s2", "east", Some(("Folder", "group-s1"))),
            ("Folder", "group-s3", "west", Some(("Folder", "group-s1"))),
            ("StoragePod", "group-p1", "gold", Some(("Folder", "group-s1"))),
            ("StoragePod", "group-p2", "silver", Some(("Folder", "group-s2"))),
            ("StoragePod", "group-p3", "silver", Some(("Folder", "group-s3"))),
            ("StoragePod", "group-p4", "fast", Some(("Folder", "group-s1"))),
            ("StoragePod", "group-p5", "10%2f20", Some(("Folder", "group-s1"))),
        ] {
            let mut values = vec![("name", text("val", name))];
            values.extend(parent.map(|(kind, id)| ("parent", reference("val", &MoRef::new(kind, id)))));
            let properties = values.iter().map(|(path, value)| (*path, Some(value))).collect();
            inventory.apply(&[ObjectUpdate {
                object: MoRef::new(kind, id),
                kind: UpdateKind::Enter,
                properties,
            }]);
        }
        let finder = Finder::new("one", &inventory, &[]);
        let mut catalog = Catalog::new(finder, &MoRef::new("Datacenter", "dc-1"));
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
                    ("config.logicalSwitchUuid", text("val", "0ac0-1")),
                    ("config.segmentId", text("val", "/infra/segments/prod")),
                    ("config.distributedVirtualSwitch", switch),
                ],
            ),
            ("OpaqueNetwork", "network-o1", vec![("name", text("val", "seg")), ("summary", summary)]),
            ("Network", "network-4", vec![("name", text("val", "VM-10.0.0.0%2f24"))]),
            ("Network", "network-5", vec![("name", text("val", "24"))]),
            ("Network", "network-2", in_folder("twice", "group-n2")),
            ("Network", "network-3", in_folder("twice", "group-n3")),
            ("Datastore", "datastore-1", in_folder("fast", "group-s1")),
            (
                "Datastore",
                "datastore-2",
                vec![
                    ("name", text("val", "inner")),
                    ("parent", reference("val", &MoRef::new("StoragePod", "group-p1"))),
                ],
            ),
        ])
    }

    fn in_folder(name: &str, folder: &str) -> Properties {
        vec![("name", text("val", name)), ("parent", reference("val", &MoRef::new("Folder", folder)))]
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
            ("VM Net*", "VirtualEthernetCardNetworkBackingInfo", "network-1"),
            ("24", "VirtualEthernetCardNetworkBackingInfo", "network-5"),
            ("/DC0/network/site-a/twice", "VirtualEthernetCardNetworkBackingInfo", "network-2"),
            ("site-b/twice", "VirtualEthernetCardNetworkBackingInfo", "network-3"),
            ("0ac0-1", "VirtualEthernetCardDistributedVirtualPortBackingInfo", "\"50 11\""),
            ("/infra/segments/prod", "VirtualEthernetCardDistributedVirtualPortBackingInfo", "\"50 11\""),
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
            "spec.network.devices[0].networkName: the datacenter has no network \"test\"; it has 24, VM Network, \
             VM-10.0.0.0/24, prod, seg, twice"
        );
        for word in
            ["/DC1/network/VM Network", "/nowhere/at/all/VM Network", "site-a/VM Network", "/VM Network"]
        {
            assert!(
                catalog.network("f", word).is_err_and(|error| error.kind() == ErrorKind::NotFound),
                "{word}"
            );
        }
        let error = catalog.network("f", "twice").expect_err("two").to_string();
        assert!(
            error.contains("/DC0/network/site-a/twice, /DC0/network/site-b/twice")
                && error.contains("network-2, network-3"),
            "{error}"
        );
    }

    #[test]
    fn where_the_inventory_is_not_for_everybody_errors_list_nothing() {
        let catalog = all().discreet(true);
        let network = |word: &str| catalog.network("f", word).expect_err("none").to_string();
        assert_eq!(network("test"), "f: the datacenter has no network \"test\"");
        let several = "\"twice\" means several; name one by its whole path or managed object ID";
        assert_eq!(network("twice"), format!("f: {several}"));
        let datastore = |word: &str| catalog.storage(word).expect_err("none").to_string();
        assert_eq!(
            datastore("/gold"),
            "spec.datastore: the datacenter has no datastore or datastore cluster \"/gold\""
        );
        assert_eq!(datastore("silver"), format!("spec.datastore: {}", several.replace("twice", "silver")));
    }

    #[test]
    fn the_place_of_what_has_no_known_folder_is_not_known() {
        let catalog = all();
        // a word may mean it all the same
        assert!(catalog.network("f", "/DC0/network/VM Network").is_ok());
        assert_eq!(catalog.place_of(&MoRef::new("Network", "network-1")), None);
        let folder = MoRef::new("Folder", "group-n2");
        assert_eq!(catalog.place_of(&MoRef::new("Network", "network-2")), Some((&folder, "twice")));
        let cluster = MoRef::new("StoragePod", "group-p1");
        assert_eq!(catalog.place_of(&MoRef::new("Datastore", "datastore-2")), Some((&cluster, "inner")));
        assert_eq!(catalog.datastore_called("inner"), Some(&MoRef::new("Datastore", "datastore-2")));
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
            ("/DC0/datastore/fast", "datastore-1"),
            ("/DC0/datastore/gold/inner", "datastore-2"),
            ("gold/inner", "datastore-2"),
            ("inn*", "datastore-2"),
            ("group-p4", "group-p4"),
            ("gold", "group-p1"),
            ("/DC0/datastore/gold", "group-p1"),
            ("west/silver", "group-p3"),
            ("10%2f20", "group-p5"),
            (
                "silver",
                "spec.datastore: 2 datastore clusters are called \"silver\"; name one by its path \
                 (/DC0/datastore/east/silver, /DC0/datastore/west/silver) or by its managed object ID (group-p2, group-p3)",
            ),
            (
                "/gold",
                "spec.datastore: the datacenter has no datastore or datastore cluster \"/gold\"; it has \
                 DC0/datastore/10/20, DC0/datastore/east/silver, DC0/datastore/fast, DC0/datastore/gold, \
                 DC0/datastore/west/silver, fast, inner",
            ),
        ] {
            assert_eq!(found(word), expected, "{word}");
        }
    }
}
