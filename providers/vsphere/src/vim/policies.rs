//! The methods of storage policies, which are at another path of vCenter than the others (`/pbm`).
//!
//! The names of all of them begin with `Pbm`: that is how the transport knows them.

use crate::{
    moref::MoRef,
    vim::{
        Call,
        encode::{data_object, method},
    },
};

/// Whether a call is one of storage policies.
pub(crate) fn is_of_policies(call: &Call) -> bool {
    call.method.starts_with("Pbm")
}

/// The object to begin with.
pub(crate) fn policy_service() -> MoRef {
    MoRef::new("PbmServiceInstance", "ServiceInstance")
}

method! {
    /// Returns the references of the services.
    RetrievePolicyServices = "PbmRetrieveServiceContent" {}
}

data_object! {
    /// What a policy is about.
    ResourceType {
        kind: &'static str = "resourceType",
    }
}

method! {
    /// Lists the IDs of policies.
    QueryProfile = "PbmQueryProfile" {
        resource_type: ResourceType = "resourceType",
        category: Option<&'static str> = "profileCategory",
    }
}

data_object! {
    /// The ID of a policy.
    ProfileId {
        unique_id: String = "uniqueId",
    }
}

method! {
    /// Reads policies.
    RetrieveContent = "PbmRetrieveContent" {
        profile_ids: Vec<ProfileId> = "profileIds",
    }
}

data_object! {
    /// A datastore.
    Hub {
        kind: String = "hubType",
        id: String = "hubId",
    }
}

data_object! {
    /// That a policy is to be fulfilled.
    ProfileRequirement as "PbmPlacementCapabilityProfileRequirement" {
        profile_id: ProfileId = "profileId",
    }
}

method! {
    /// Tells of datastores whether they fulfil policies.
    CheckRequirements = "PbmCheckRequirements" {
        hubs: Vec<Hub> = "hubsToSearch",
        requirements: Vec<ProfileRequirement> = "placementSubjectRequirement",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_wsdl() {
        assert_eq!(QueryProfile::ORDER, ["resourceType", "profileCategory"]);
        assert_eq!(CheckRequirements::ORDER, ["hubsToSearch", "placementSubjectRequirement"]);
        assert_eq!(Hub::ORDER, ["hubType", "hubId"]);
        assert_eq!(
            (RetrieveContent::ORDER, ProfileRequirement::ORDER),
            (&["profileIds"][..], &["profileId"][..])
        );
        assert_eq!((ResourceType::ORDER, ProfileId::ORDER), (&["resourceType"][..], &["uniqueId"][..]));
        assert!(RetrievePolicyServices::ORDER.is_empty());
        assert!(is_of_policies(&RetrievePolicyServices {}.of(&policy_service())));
    }
}
