//! The data objects and methods of Storage DRS.
//!
//! The fields are those that are used, in the order of the WSDL: see [`objects`](super::objects).

use crate::{
    moref::MoRef,
    vim::{
        encode::{data_object, method},
        machines::CloneSpec,
    },
};

data_object! {
    /// What a datastore is wanted for. `kind` is `clone` for a clone of `machine`.
    StoragePlacementSpec {
        kind: &'static str = "type",
        machine: Option<MoRef> = "vm",
        pod_selection: PodSelectionSpec = "podSelectionSpec",
        clone_spec: Option<CloneSpec> = "cloneSpec",
        clone_name: Option<String> = "cloneName",
        folder: Option<MoRef> = "folder",
        disallow_prerequisite_moves: Option<bool> = "disallowPrerequisiteMoves",
    }
}

data_object! {
    /// The datastore cluster of a machine.
    PodSelectionSpec {
        storage_pod: Option<MoRef> = "storagePod",
    }
}

method! {
    /// Recommends datastores, the best one first. It is no task, and changes nothing.
    RecommendDatastores = "RecommendDatastores" {
        spec: StoragePlacementSpec = "storageSpec",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vim::encode::in_order;

    #[test]
    fn the_order_is_that_of_the_wsdl() {
        assert!(in_order(
            StoragePlacementSpec::ORDER,
            "type priority vm podSelectionSpec cloneSpec cloneName configSpec relocateSpec resourcePool host folder \
             disallowPrerequisiteMoves resourceLeaseDurationSec"
        ));
        assert_eq!(
            (PodSelectionSpec::ORDER, RecommendDatastores::ORDER),
            (&["storagePod"][..], &["storageSpec"][..])
        );
    }
}
