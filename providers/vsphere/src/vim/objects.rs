//! The data objects and methods of requests that read and watch.
//!
//! A real vCenter refuses elements that are not in the order of the WSDL; the simulator accepts any order. So
//! the order is written once, as the order of the fields below.

use crate::{
    moref::MoRef,
    vim::{
        Value,
        encode::{data_object, method},
    },
};

data_object! {
    /// Which properties of which objects to read.
    PropertyFilterSpec {
        prop_set: Vec<PropertySpec> = "propSet",
        object_set: Vec<ObjectSpec> = "objectSet",
        report_missing_objects_in_results: Option<bool> = "reportMissingObjectsInResults",
    }
}

data_object! {
    /// Which properties to read of objects of a type.
    PropertySpec {
        kind: &'static str = "type",
        all: Option<bool> = "all",
        path_set: Vec<&'static str> = "pathSet",
    }
}

data_object! {
    /// An object to start from, and the steps from it.
    ObjectSpec {
        obj: MoRef = "obj",
        skip: Option<bool> = "skip",
        select_set: Vec<TraversalSpec> = "selectSet",
    }
}

data_object! {
    /// A step from an object to the objects in one of its properties.
    TraversalSpec as "TraversalSpec" {
        name: Option<&'static str> = "name",
        kind: &'static str = "type",
        path: &'static str = "path",
        skip: Option<bool> = "skip",
        select_set: Vec<SelectionSpec> = "selectSet",
    }
}

data_object! {
    /// Refers to a step by its name.
    SelectionSpec {
        name: Option<&'static str> = "name",
    }
}

data_object! {
    /// The largest number of objects in a response.
    RetrieveOptions {
        max_objects: Option<u32> = "maxObjects",
    }
}

data_object! {
    /// How long to wait for changes, and the largest number of objects in a response.
    WaitOptions {
        max_wait_seconds: Option<u32> = "maxWaitSeconds",
        max_object_updates: Option<u32> = "maxObjectUpdates",
    }
}

method! {
    /// Returns the references of vCenter's services. Needs no session.
    RetrieveServiceContent = "RetrieveServiceContent" {}
}

method! {
    /// Opens a session.
    Login = "Login" {
        user_name: String = "userName",
        password: Value = "password",
        locale: Option<&'static str> = "locale",
    }
}

method! {
    /// Opens a session like the one that issued the ticket, with the rights of its user. A ticket can be used
    /// once.
    CloneSession = "CloneSession" {
        clone_ticket: Value = "cloneTicket",
    }
}

method! {
    /// Ends the session.
    Logout = "Logout" {}
}

method! {
    /// Creates a view of all objects of some types below a container.
    CreateContainerView = "CreateContainerView" {
        container: MoRef = "container",
        kinds: Vec<&'static str> = "type",
        recursive: bool = "recursive",
    }
}

method! {
    /// Reads properties.
    RetrievePropertiesEx = "RetrievePropertiesEx" {
        spec_set: Vec<PropertyFilterSpec> = "specSet",
        options: RetrieveOptions = "options",
    }
}

method! {
    /// Reads the next page.
    ContinueRetrievePropertiesEx = "ContinueRetrievePropertiesEx" {
        token: String = "token",
    }
}

method! {
    /// Creates another property collector. It ends with the session.
    CreatePropertyCollector = "CreatePropertyCollector" {}
}

method! {
    /// Ends a property collector with its filters, and a wait that is under way.
    DestroyPropertyCollector = "DestroyPropertyCollector" {}
}

method! {
    /// Sets what a property collector watches.
    CreateFilter = "CreateFilter" {
        spec: PropertyFilterSpec = "spec",
        partial_updates: bool = "partialUpdates",
    }
}

method! {
    /// Waits for changes since a version.
    WaitForUpdatesEx = "WaitForUpdatesEx" {
        version: String = "version",
        options: WaitOptions = "options",
    }
}

method! {
    /// Finds all machines with a UUID.
    FindAllByUuid = "FindAllByUuid" {
        datacenter: Option<MoRef> = "datacenter",
        uuid: String = "uuid",
        vm_search: bool = "vmSearch",
        instance_uuid: Option<bool> = "instanceUuid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_wsdl() {
        assert_eq!(PropertyFilterSpec::ORDER, ["propSet", "objectSet", "reportMissingObjectsInResults"]);
        assert_eq!(PropertySpec::ORDER, ["type", "all", "pathSet"]);
        assert_eq!(ObjectSpec::ORDER, ["obj", "skip", "selectSet"]);
        assert_eq!(TraversalSpec::ORDER, ["name", "type", "path", "skip", "selectSet"]);
        assert_eq!(WaitOptions::ORDER, ["maxWaitSeconds", "maxObjectUpdates"]);
        assert_eq!(RetrieveOptions::ORDER, ["maxObjects"]);
        assert_eq!(Login::ORDER, ["userName", "password", "locale"]);
        assert_eq!(CloneSession::ORDER, ["cloneTicket"]);
        assert_eq!(CreateContainerView::ORDER, ["container", "type", "recursive"]);
        assert_eq!(RetrievePropertiesEx::ORDER, ["specSet", "options"]);
        assert_eq!(CreateFilter::ORDER, ["spec", "partialUpdates"]);
        assert_eq!(WaitForUpdatesEx::ORDER, ["version", "options"]);
        assert_eq!(SelectionSpec::ORDER, ["name"]);
        assert_eq!(ContinueRetrievePropertiesEx::ORDER, ["token"]);
        assert!(RetrieveServiceContent::ORDER.is_empty() && Logout::ORDER.is_empty());
        assert!(CreatePropertyCollector::ORDER.is_empty() && DestroyPropertyCollector::ORDER.is_empty());
        assert_eq!(FindAllByUuid::ORDER, ["datacenter", "uuid", "vmSearch", "instanceUuid"]);
    }

    #[test]
    fn what_is_not_set_is_not_sent() {
        let call = FindAllByUuid { datacenter: None, uuid: "u".into(), vm_search: true, instance_uuid: None }
            .of(&MoRef::new("SearchIndex", "SearchIndex"));
        let names: Vec<_> = call.arguments.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["uuid", "vmSearch"]);
    }
}
