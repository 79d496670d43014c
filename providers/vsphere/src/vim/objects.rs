//! The data objects that are sent, and the methods that are called.
//!
//! A real vCenter refuses an element that is not where the WSDL has it, and the simulator takes it anywhere. So the order is
//! written once, as the order of the fields below.

use crate::{
    moref::MoRef,
    vim::{Call, Field, Value},
};

/// What can be put into a field.
pub(crate) trait Encode {
    /// Appends the field, or several for a list, or none for what is not set.
    fn encode(self, name: &'static str, into: &mut Vec<Field>);
}

impl Encode for bool {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        into.push((name, Value::Text(self.to_string())));
    }
}

impl Encode for u32 {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        into.push((name, Value::Text(self.to_string())));
    }
}

impl Encode for &str {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        into.push((name, Value::Text(self.to_owned())));
    }
}

impl Encode for String {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        into.push((name, Value::Text(self)));
    }
}

impl Encode for MoRef {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        into.push((name, Value::Ref(self)));
    }
}

impl Encode for Value {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        into.push((name, self));
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        if let Some(value) = self {
            value.encode(name, into);
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        for value in self {
            value.encode(name, into);
        }
    }
}

/// A data object whose fields go out in the order in which they stand here. `as "Type"` marks one that is sent where the
/// WSDL declares a base type.
macro_rules! data_object {
    ($(#[$doc:meta])* $type:ident $(as $xsi:literal)? { $($field:ident: $kind:ty = $wire:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $type { $(pub(crate) $field: $kind),* }

        impl $type {
            /// The names of the fields on the wire, in their order.
            #[cfg(test)]
            pub(crate) const ORDER: &'static [&'static str] = &[$($wire),*];
        }

        impl Encode for $type {
            fn encode(self, name: &'static str, into: &mut Vec<Field>) {
                #[allow(unused_mut, unused_assignments, reason = "only some types have another one declared")]
                let mut declared: Option<&'static str> = None;
                $(declared = Some($xsi);)?
                let mut fields = Vec::new();
                $(self.$field.encode($wire, &mut fields);)*
                into.push((name, Value::Object(declared, fields)));
            }
        }
    };
}

/// A method whose arguments go out in the order in which they stand here.
macro_rules! method {
    ($(#[$doc:meta])* $type:ident = $method:literal { $($field:ident: $kind:ty = $wire:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $type { $(pub(crate) $field: $kind),* }

        impl $type {
            /// The names of the arguments on the wire, in their order.
            #[cfg(test)]
            pub(crate) const ORDER: &'static [&'static str] = &[$($wire),*];

            /// The call of this method of `this`.
            pub(crate) fn of(self, this: &MoRef) -> Call {
                #[allow(unused_mut, reason = "some methods have no arguments")]
                let mut arguments = Vec::new();
                $(self.$field.encode($wire, &mut arguments);)*
                Call { this: this.clone(), method: $method, arguments }
            }
        }
    };
}

data_object! {
    /// What is read, of which objects.
    PropertyFilterSpec {
        prop_set: Vec<PropertySpec> = "propSet",
        object_set: Vec<ObjectSpec> = "objectSet",
        report_missing_objects_in_results: Option<bool> = "reportMissingObjectsInResults",
    }
}

data_object! {
    /// Which properties of the objects of a type.
    PropertySpec {
        kind: &'static str = "type",
        all: Option<bool> = "all",
        path_set: Vec<&'static str> = "pathSet",
    }
}

data_object! {
    /// An object to begin with, and where to go from it.
    ObjectSpec {
        obj: MoRef = "obj",
        skip: Option<bool> = "skip",
        select_set: Vec<TraversalSpec> = "selectSet",
    }
}

data_object! {
    /// A step from an object to those that one of its properties names.
    TraversalSpec as "TraversalSpec" {
        name: Option<&'static str> = "name",
        kind: &'static str = "type",
        path: &'static str = "path",
        skip: Option<bool> = "skip",
        select_set: Vec<SelectionSpec> = "selectSet",
    }
}

data_object! {
    /// A step described elsewhere, by its name.
    SelectionSpec {
        name: Option<&'static str> = "name",
    }
}

data_object! {
    /// How many objects an answer may hold.
    RetrieveOptions {
        max_objects: Option<u32> = "maxObjects",
    }
}

data_object! {
    /// How long to wait for changes, and how many objects an answer may hold.
    WaitOptions {
        max_wait_seconds: Option<u32> = "maxWaitSeconds",
        max_object_updates: Option<u32> = "maxObjectUpdates",
    }
}

method! {
    /// Tells the references of everything else. Needs no session.
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
    /// Opens a session like the one that a ticket was got in, with the rights of its user. A ticket is good once.
    CloneSession = "CloneSession" {
        clone_ticket: Value = "cloneTicket",
    }
}

method! {
    /// Ends the session.
    Logout = "Logout" {}
}

method! {
    /// Makes a view of all objects of some types below a container.
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
    /// Makes a property collector of its own. It ends with the session.
    CreatePropertyCollector = "CreatePropertyCollector" {}
}

method! {
    /// Says what a property collector watches.
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
        assert!(CreatePropertyCollector::ORDER.is_empty());
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
