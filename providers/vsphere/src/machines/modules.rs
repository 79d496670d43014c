//! Which cluster module of vCenter is whose: machines of one control plane, or of one `MachineDeployment`, that are in one cluster of hosts
//! are in one module, which keeps them on different hosts.
//!
//! A module has neither name nor mark. What is recorded in `spec.clusterModules` of the `VSphereCluster` says whose it is, as with Cluster
//! API Provider vSphere. Only the step of a cluster can write there, so that one makes the modules, and the [`ModuleRequests`] tells it which.

mod joining;
mod requests;

use std::collections::BTreeSet;

pub(crate) use self::{
    joining::{Joined, Joining},
    requests::{Claim, ModuleRequests},
};
use super::spec::ClusterModule;
use crate::{cluster_modules::Known, moref::MoRef};

/// The machines that one module is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    /// Whether it is a control plane, and no `MachineDeployment`.
    pub(crate) is_control_plane: bool,
    /// Its name.
    pub(crate) name: String,
    /// The cluster of hosts.
    pub(crate) cluster: MoRef,
}

impl Group {
    /// Its module among those that are recorded. A module that vCenter does not have is nobody's.
    pub(crate) fn module<'m>(&self, recorded: &'m [ClusterModule], known: &Known) -> Option<&'m str> {
        let of_these = recorded.iter().filter(|module| is_for(module, self.is_control_plane, &self.name));
        let mut ids = of_these.map(|module| module.module_uuid.as_str());
        ids.find(|id| known.get(*id) == Some(&self.cluster))
    }

    /// What is recorded of a module for it.
    pub(crate) fn recorded(&self, id: String) -> ClusterModule {
        ClusterModule {
            control_plane: Some(self.is_control_plane),
            target_object_name: self.name.clone(),
            module_uuid: id,
        }
    }
}

/// Whether a module is for the machines of this control plane or `MachineDeployment`.
pub(crate) fn is_for(module: &ClusterModule, is_control_plane: bool, name: &str) -> bool {
    module.control_plane.unwrap_or_default() == is_control_plane && module.target_object_name == name
}

/// What the step of a cluster does about its modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What stays recorded.
    pub(crate) recorded: Vec<ClusterModule>,
    /// What needs a module.
    pub(crate) missing: Vec<Group>,
}

/// Decides which modules are to be made. One that vCenter does not have any more makes room for the one that takes its place, and
/// stays recorded otherwise: nothing is known of other vCenters.
pub(crate) fn plan(recorded: &[ClusterModule], wanted: &BTreeSet<Group>, known: &Known) -> Plan {
    let missing: Vec<_> =
        wanted.iter().filter(|group| group.module(recorded, known).is_none()).cloned().collect();
    let is_replaced = |module: &ClusterModule| {
        let is_of = |group: &Group| is_for(module, group.is_control_plane, &group.name);
        !known.contains_key(&module.module_uuid) && missing.iter().any(is_of)
    };
    let stay = recorded.iter().filter(|module| !is_replaced(module)).cloned().collect();
    Plan { recorded: stay, missing }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn group(name: &str, cluster: &str) -> Group {
        Group { is_control_plane: false, name: name.to_owned(), cluster: hosts(cluster) }
    }

    fn hosts(id: &str) -> MoRef {
        MoRef::new("ClusterComputeResource", id)
    }

    fn known() -> Known {
        [("m-1", "c-1"), ("m-2", "c-2"), ("m-3", "c-1")]
            .map(|(id, cluster)| (id.to_owned(), hosts(cluster)))
            .into()
    }

    #[test]
    fn a_group_has_the_module_of_its_cluster_of_hosts() {
        let masters = Group { is_control_plane: true, ..group("a", "c-1") };
        let recorded = [
            group("a", "c-1").recorded("m-1".to_owned()),
            group("a", "c-2").recorded("m-2".to_owned()),
            masters.recorded("m-3".to_owned()),
        ];
        for (group, expected) in [
            (group("a", "c-1"), Some("m-1")),
            (group("a", "c-2"), Some("m-2")),
            (masters, Some("m-3")),
            (group("a", "c-3"), None),
            (group("b", "c-1"), None),
        ] {
            assert_eq!(group.module(&recorded, &known()), expected, "{group:?}");
        }
        // as Cluster API Provider vSphere leaves out what is false
        let short = ClusterModule { control_plane: None, ..recorded[0].clone() };
        assert_eq!(group("a", "c-1").module(&[short], &known()), Some("m-1"));
    }

    #[test]
    fn only_what_is_missing_is_made() {
        let recorded =
            [group("a", "c-1").recorded("m-1".to_owned()), group("b", "c-1").recorded("gone".to_owned())];
        let wanted = |names: &[&str]| names.iter().map(|name| group(name, "c-1")).collect::<BTreeSet<_>>();
        let found = plan(&recorded, &wanted(&["a"]), &known());
        assert_eq!(
            found,
            Plan { recorded: recorded.to_vec(), missing: Vec::new() },
            "what nobody wants stays"
        );
        let found = plan(&recorded, &wanted(&["a", "b", "c"]), &known());
        assert_eq!(found.missing, [group("b", "c-1"), group("c", "c-1")]);
        assert_eq!(found.recorded, recorded[..1]);
    }
}
