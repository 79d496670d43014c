//! The data objects and methods of requests that change clusters of hosts.
//!
//! The fields are those that are used, in the order of the WSDL: see [`objects`](super::objects).

use crate::{
    moref::MoRef,
    vim::encode::{data_object, method},
};

data_object! {
    /// What is changed of a cluster.
    ClusterConfigSpec as "ClusterConfigSpecEx" {
        groups: Vec<ClusterGroupSpec> = "groupSpec",
    }
}

data_object! {
    /// A change of one group. `operation` is `add`, `edit` or `remove`. An edit replaces the whole group.
    ClusterGroupSpec {
        operation: &'static str = "operation",
        info: ClusterVmGroup = "info",
    }
}

data_object! {
    /// A group of machines.
    ClusterVmGroup as "ClusterVmGroup" {
        name: String = "name",
        user_created: Option<bool> = "userCreated",
        unique_id: Option<String> = "uniqueID",
        vm: Vec<MoRef> = "vm",
    }
}

method! {
    /// Changes a cluster. With `modify`, what is not named stays as it is.
    ReconfigureCluster = "ReconfigureComputeResource_Task" {
        spec: ClusterConfigSpec = "spec",
        modify: bool = "modify",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_wsdl() {
        assert_eq!(ReconfigureCluster::ORDER, ["spec", "modify"]);
        assert_eq!(ClusterConfigSpec::ORDER, ["groupSpec"]);
        assert_eq!(ClusterGroupSpec::ORDER, ["operation", "info"]);
        assert_eq!(ClusterVmGroup::ORDER, ["name", "userCreated", "uniqueID", "vm"]);
    }
}
