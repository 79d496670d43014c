//! Zone and region of a machine, from the tags of the objects that contain it. Pure rules, no vCenter.

use std::collections::{HashMap, HashSet};

use cloudprovider::NodeIdentity;

use crate::{config::ZoneLabels, moref::MoRef, vm::VirtualMachine};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
const REGION_LABEL: &str = "topology.kubernetes.io/region";

/// The limit on the depth of an inventory. A longer chain of parents is a cycle.
const DEEPEST: usize = 64;

/// The parents of objects: hosts, clusters, folders, datacenters, resource pools, vApps.
pub(crate) type Parents = HashMap<MoRef, MoRef>;

/// The tags on objects, each with the name of its category.
pub(crate) type Tags = HashMap<MoRef, Vec<Tag>>;

/// A tag and its category, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag {
    pub(crate) category: Box<str>,
    pub(crate) name: Box<str>,
}

/// Where a machine is. `None` if no tag tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ZoneAndRegion {
    pub(crate) zone: Option<Box<str>>,
    pub(crate) region: Option<Box<str>>,
}

/// A category without a tag on any object around a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no tag of the category {category:?} (labels.{label}) is on the virtual machine, or on any host, cluster, resource \
     pool, folder or datacenter above it"
)]
pub(crate) struct MissingTag {
    category: String,
    label: &'static str,
}

/// The three paths up from a machine, nearest object first: from its host, from its resource pool, and from
/// itself through its folders. Each begins with that object and ends at the root folder.
pub(crate) fn ancestors(vm: &VirtualMachine, parents: &Parents) -> [Vec<MoRef>; 3] {
    let up = |first: Option<&MoRef>| {
        let mut way = Vec::new();
        let mut seen = HashSet::new();
        let mut next = first;
        while let Some(object) = next
            && way.len() < DEEPEST
            && seen.insert(object)
        {
            way.push(object.clone());
            next = parents.get(object);
        }
        way
    };
    let mut own = vec![vm.moref.clone()];
    own.extend(up(vm.folder.as_ref().or(vm.vapp.as_ref())));
    [up(vm.host.as_ref()), up(vm.resource_pool.as_ref()), own]
}

/// Zone and region from the tags on the paths up.
///
/// As in CPI, the first path that has both is used, and on it the nearest object with a tag of the category.
/// If no path has both, each is taken from the first path that has it; CPI finds nothing then. If an object
/// has several tags of a category, the first one in alphabetical order is used.
pub(crate) fn find(ways: &[Vec<MoRef>], tags: &Tags, labels: &ZoneLabels) -> ZoneAndRegion {
    let nearest = |way: &Vec<MoRef>, category: &Option<String>| {
        let category = category.as_deref()?;
        way.iter().find_map(|object| {
            let of_category = tags.get(object)?.iter().filter(|tag| *tag.category == *category);
            of_category.map(|tag| &tag.name).min().cloned()
        })
    };
    let both = ways.iter().find_map(|way| Some((nearest(way, &labels.zone)?, nearest(way, &labels.region)?)));
    match both {
        Some((zone, region)) => ZoneAndRegion { zone: Some(zone), region: Some(region) },
        None => ZoneAndRegion {
            zone: ways.iter().find_map(|way| nearest(way, &labels.zone)),
            region: ways.iter().find_map(|way| nearest(way, &labels.region)),
        },
    }
}

impl ZoneAndRegion {
    /// The first configured category that has no tag. As in CPI, a Node is not initialised without it: pods
    /// and volumes are placed by these labels, and later labels would not move them.
    pub(crate) fn missing(&self, labels: &ZoneLabels) -> Option<MissingTag> {
        let missing = |found: &Option<Box<str>>, category: &Option<String>, label| match (found, category) {
            (None, Some(category)) => Some(MissingTag { category: category.clone(), label }),
            _ => None,
        };
        missing(&self.zone, &labels.zone, "zone").or_else(|| missing(&self.region, &labels.region, "region"))
    }

    /// Keeps the zone and region that the Node already has, if the operator wants that: its volumes are bound
    /// to them.
    #[must_use]
    pub(crate) fn kept_by(self, node: &NodeIdentity, labels: &ZoneLabels) -> Self {
        if labels.follow_moves {
            return self;
        }
        let own =
            |label: &str| node.labels.get(label).filter(|value| !value.is_empty()).map(|v| v.as_str().into());
        Self { zone: own(ZONE_LABEL).or(self.zone), region: own(REGION_LABEL).or(self.region) }
    }
}

#[cfg(test)]
mod tests;
