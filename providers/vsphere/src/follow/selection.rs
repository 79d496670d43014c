//! Which properties of which objects are read and watched.

use crate::{
    inventory::{ENTITY_KINDS, ENTITY_PATHS, machine_paths},
    moref::MoRef,
    vim::{
        objects::{ObjectSpec, PropertyFilterSpec, PropertySpec, TraversalSpec},
        property_collector::ObjectUpdate,
    },
};

/// The one object of each vCenter that tells what it is.
const SERVICE_INSTANCE: &str = "ServiceInstance";

const VERSION_PATH: &str = "content.about.version";

/// The types of objects that may contain a datacenter, or are one.
pub(super) const PLACE_KINDS: [&str; 2] = ["Folder", "Datacenter"];

/// The types of machines and of everything that may contain them.
pub(super) fn all_kinds() -> Vec<&'static str> {
    std::iter::once("VirtualMachine").chain(ENTITY_KINDS).collect()
}

/// The properties that are read of objects other than machines.
pub(super) fn entities() -> Vec<PropertySpec> {
    ENTITY_KINDS.map(|kind| PropertySpec { kind, all: None, path_set: ENTITY_PATHS.into() }).into()
}

/// The properties that are read of machines.
pub(super) fn machines(with_optional: bool) -> PropertySpec {
    PropertySpec { kind: "VirtualMachine", all: None, path_set: machine_paths(with_optional) }
}

/// The version of the vCenter, with the object that has it. It comes with the listing, without a call of its own.
pub(super) fn version() -> (PropertySpec, ObjectSpec) {
    let properties = PropertySpec { kind: SERVICE_INSTANCE, all: None, path_set: vec![VERSION_PATH] };
    let obj = MoRef::new(SERVICE_INSTANCE, SERVICE_INSTANCE);
    (properties, ObjectSpec { obj, skip: None, select_set: Vec::new() })
}

/// The version of a vCenter in an update of objects.
pub(super) fn version_in(updates: &[ObjectUpdate<'_>]) -> Option<String> {
    let update = updates.iter().find(|update| update.object.kind() == SERVICE_INSTANCE)?;
    let (_, value) = update.properties.iter().find(|(name, _)| *name == VERSION_PATH)?;
    value.map(|value| value.text.to_string()).filter(|version| !version.is_empty())
}

/// Selects these properties of all objects in the views.
pub(super) fn spec(views: &[MoRef], prop_set: Vec<PropertySpec>) -> PropertyFilterSpec {
    let object = |view: &MoRef| ObjectSpec {
        obj: view.clone(),
        skip: Some(true),
        select_set: vec![TraversalSpec {
            name: Some("view"),
            kind: "ContainerView",
            path: "view",
            skip: Some(false),
            select_set: Vec::new(),
        }],
    };
    PropertyFilterSpec {
        prop_set,
        object_set: views.iter().map(object).collect(),
        report_missing_objects_in_results: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vim::{element::Element, property_collector::UpdateKind};

    #[test]
    fn every_view_is_walked_and_is_itself_not_read() {
        let views = [MoRef::new("ContainerView", "1"), MoRef::new("ContainerView", "2")];
        let wanted = spec(&views, entities());
        assert_eq!(wanted.object_set.len(), 2);
        assert!(wanted.object_set.iter().all(|object| object.skip == Some(true)));
        assert!(wanted.object_set.iter().all(|object| object.select_set[0].skip == Some(false)));
        assert!(
            PLACE_KINDS.iter().all(|kind| wanted.prop_set.iter().any(|properties| properties.kind == *kind))
        );
    }

    #[test]
    fn the_version_is_told_by_an_object_of_its_own() {
        let text = |text: &str| Element { text: text.into(), ..Element::default() };
        let of = |kind: &str, name: &'static str, value: Option<&Element>| {
            let object = MoRef::new(kind, "1");
            version_in(&[ObjectUpdate { object, kind: UpdateKind::Enter, properties: vec![(name, value)] }])
        };
        let (version, empty) = (text("8.0.3"), text(""));
        assert_eq!(of(SERVICE_INSTANCE, VERSION_PATH, Some(&version)).as_deref(), Some("8.0.3"));
        assert_eq!(of(SERVICE_INSTANCE, VERSION_PATH, Some(&empty)), None);
        assert_eq!(of(SERVICE_INSTANCE, VERSION_PATH, None), None);
        assert_eq!(of("VirtualMachine", "name", Some(&version)), None);
    }

    #[test]
    fn what_old_vcenters_cannot_read_can_be_left_out() {
        let has_keys = |with_optional| {
            machines(with_optional).path_set.iter().any(|path| path.contains("guestinfo.metadata"))
        };
        assert!(has_keys(true) && !has_keys(false));
    }
}
