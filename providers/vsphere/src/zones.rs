//! Zone and region of a machine: the tags of what it runs on and lies in. Pure rules, no vCenter.

use std::collections::{HashMap, HashSet};

use cloudprovider::NodeIdentity;

use crate::{config::ZoneLabels, moref::MoRef, vm::VirtualMachine};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
const REGION_LABEL: &str = "topology.kubernetes.io/region";

/// No inventory is deeper; a chain of parents that is, is a circle.
const DEEPEST: usize = 64;

/// The parents of objects: hosts, clusters, folders, datacenters, resource pools, vApps.
pub(crate) type Parents = HashMap<MoRef, MoRef>;

/// The tags on objects, each with the name of its category.
pub(crate) type Tags = HashMap<MoRef, Vec<Tag>>;

/// A tag by the names that people give it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag {
    pub(crate) category: Box<str>,
    pub(crate) name: Box<str>,
}

/// Where a machine is. `None` where no tag says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ZoneAndRegion {
    pub(crate) zone: Option<Box<str>>,
    pub(crate) region: Option<Box<str>>,
}

/// A category of which no object around a machine has a tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no tag of the category {category:?} (labels.{label}) is on the virtual machine, or on any host, cluster, resource \
     pool, folder or datacenter above it"
)]
pub(crate) struct MissingTag {
    category: String,
    label: &'static str,
}

/// The three ways up from a machine, nearest object first: from its host, from its resource pool, from itself through
/// its folders. Each begins with the object itself and ends at the root folder.
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

/// Zone and region by the tags on the ways up.
///
/// The first way that has both counts, as in CPI, and on it the nearest object with a tag of the category. Where no way
/// has both, each comes from the first way that has it; CPI finds nothing then. Of several tags of one category on one
/// object the first in the alphabet counts.
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
    /// The first category that is configured and has no tag: a Node that is not initialised waits for it, as in CPI, since
    /// pods and volumes are placed by these labels and they come too late afterwards.
    pub(crate) fn missing(&self, labels: &ZoneLabels) -> Option<MissingTag> {
        let missing = |found: &Option<Box<str>>, category: &Option<String>, label| match (found, category) {
            (None, Some(category)) => Some(MissingTag { category: category.clone(), label }),
            _ => None,
        };
        missing(&self.zone, &labels.zone, "zone").or_else(|| missing(&self.region, &labels.region, "region"))
    }

    /// The same, but what the Node has already where the operator wants that kept: its volumes are bound to it.
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
#[path = "zones_tests.rs"]
mod tests;
