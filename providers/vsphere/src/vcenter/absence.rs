//! Asks vCenter itself whether a machine exists. Its denial leads to the deletion of a Node.
//!
//! The configured datacenters limit which machines become Nodes, but not which machines exist: one that was
//! moved to another datacenter is still running.

use cloudprovider::{Error, ErrorKind, uuids::parse_uuid};
use tokio::time::Instant;
use uuid::Uuid;

use super::{PROBE_LASTS, VCenter};
use crate::{
    inventory::{Changes, unescaped},
    moref::MoRef,
    provider_id::byte_orders,
    session::{CALL_DEADLINE, ServiceContent, Session},
    vim::{
        CallError,
        element::Element,
        objects::{
            FindAllByUuid, ObjectSpec, PropertyFilterSpec, PropertySpec, RetrieveOptions,
            RetrievePropertiesEx, SelectionSpec, TraversalSpec,
        },
        property_collector::read_listing,
    },
};

/// The properties that tell whether a machine is a template. The summary has it even if the configuration is
/// missing.
const TEMPLATE_PATHS: [&str; 2] = ["config.template", "summary.config.template"];

/// The properties that tell which machine it is. The summary has it even if the configuration is missing.
const INSTANCE_UUID_PATHS: [&str; 2] = ["config.instanceUuid", "summary.config.instanceUuid"];

/// The session in which vCenter is asked.
struct Asked {
    session: std::sync::Arc<Session>,
    content: std::sync::Arc<ServiceContent>,
}

impl Asked {
    /// The properties that `call` reads, by object.
    async fn read(
        &self,
        call: RetrievePropertiesEx,
    ) -> Result<Vec<(MoRef, Vec<(String, Element)>)>, CallError> {
        let call = call.of(&self.content.property_collector);
        let answer = self.session.call(&call, CALL_DEADLINE).await?;
        let page = read_listing(call.method, &answer)?;
        let objects = page.objects.into_iter().map(|found| {
            let properties = found.properties.into_iter();
            let properties = properties.filter_map(|(name, value)| Some((name.to_owned(), value?.clone())));
            (found.object, properties.collect())
        });
        Ok(objects.collect())
    }
}

impl VCenter {
    /// Confirms that no machine has this UUID, in any datacenter. Searches for it as a BIOS UUID in both byte
    /// orders and as an instance UUID. Also reads the machine that had it before, since a search does not
    /// find machines that may not be read. A denial is cached for a while.
    ///
    /// # Errors
    /// Why a machine may exist. Any machine that is not a template is such a reason.
    pub(crate) async fn confirm_absent(&self, uuid: Uuid) -> Result<(), Error> {
        self.confirm_absent_but_for(uuid, &[]).await
    }

    /// The same, but for these machines, which are known to be copies.
    ///
    /// # Errors
    /// As [`confirm_absent`](Self::confirm_absent).
    pub(crate) async fn confirm_absent_but_for(&self, uuid: Uuid, copies: &[MoRef]) -> Result<(), Error> {
        let departed = self.state().inventory.departed_with(uuid);
        if departed.is_empty() && self.was_denied(uuid) {
            return Ok(());
        }
        let session = self.session().clone();
        let content = session.as_ref().and_then(|session| session.content());
        let (Some(session), Some(content)) = (session, content) else {
            return Err(self.error(ErrorKind::Unavailable, "not connected"));
        };
        let asked = Asked { session, content };
        let Some(index) = &asked.content.search_index else {
            return Err(self.error(ErrorKind::Unsupported, "it cannot be asked for a UUID"));
        };
        let bios = byte_orders(uuid).map(|order| (order, false));
        for (uuid, is_instance_uuid) in bios.into_iter().chain([(uuid, true)]) {
            let call = FindAllByUuid {
                datacenter: None,
                uuid: uuid.hyphenated().to_string(),
                vm_search: true,
                instance_uuid: Some(is_instance_uuid),
            };
            let found = asked.session.call(&call.of(index), CALL_DEADLINE).await;
            let found = found.map_err(|error| self.error_of(&error))?;
            for machine in found.moref().into_iter().chain(found.all("returnval").filter_map(Element::moref))
            {
                if !copies.contains(&machine) && !self.is_template(&asked, &machine).await? {
                    return Err(self.contradiction(&asked, &machine).await);
                }
            }
        }
        for machine in departed {
            self.confirm_removed(&asked, &machine).await?;
        }
        if copies.is_empty() {
            self.keep_denial(uuid);
        }
        Ok(())
    }

    /// Confirms that a machine is gone that had this reference and this instance UUID when another session saw it: vCenter must
    /// answer that there is no such object, or that it is another machine.
    ///
    /// # Errors
    /// Why it may exist.
    pub(crate) async fn confirm_left(&self, machine: &MoRef, uuid: Uuid) -> Result<(), Error> {
        let session = self.session().clone();
        let content = session.as_ref().and_then(|session| session.content());
        let (Some(session), Some(content)) = (session, content) else {
            return Err(self.error(ErrorKind::Unavailable, "not connected"));
        };
        let asked = Asked { session, content };
        let found = match asked.read(properties_of(machine, &INSTANCE_UUID_PATHS)).await {
            Err(error) if error.is_fault("ManagedObjectNotFound") => return Ok(()),
            Err(error) if error.is_fault("NoPermission") => return Err(self.hidden(machine)),
            found => found.map_err(|error| self.error_of(&error))?,
        };
        let values = found.iter().flat_map(|(_, properties)| properties);
        let uuids: Vec<_> = values.filter_map(|(_, value)| parse_uuid(&value.text)).collect();
        if uuids.is_empty() {
            return Err(self.hidden(machine));
        }
        if uuids.contains(&uuid) { Err(self.contradiction(&asked, machine).await) } else { Ok(()) }
    }

    fn hidden(&self, machine: &MoRef) -> Error {
        let words = format!(
            "it has shown {machine} with that UUID before, and the user may not read it any more; the machine may be running"
        );
        self.error(ErrorKind::PermissionDenied, &words)
    }

    /// Confirms that a machine that the inventory no longer shows was removed: vCenter must answer that there
    /// is no such object.
    async fn confirm_removed(&self, asked: &Asked, machine: &MoRef) -> Result<(), Error> {
        match asked.read(properties_of(machine, &["runtime.powerState"])).await {
            Err(error) if error.is_fault("ManagedObjectNotFound") => {
                self.update(|state| {
                    state.inventory.forget_departed(machine);
                    Changes::default()
                });
                Ok(())
            }
            Err(error) if error.is_fault("NoPermission") => Err(self.hidden(machine)),
            Err(error) => Err(self.error_of(&error)),
            Ok(found) if found.iter().all(|(_, properties)| properties.is_empty()) => {
                Err(self.hidden(machine))
            }
            Ok(_) => Err(self.contradiction(asked, machine).await),
        }
    }

    fn was_denied(&self, uuid: Uuid) -> bool {
        let mut probes = self.probes();
        probes.retain(|_, at| at.elapsed() < PROBE_LASTS);
        probes.contains_key(&uuid)
    }

    fn keep_denial(&self, uuid: Uuid) {
        self.probes().insert(uuid, Instant::now());
    }

    /// Whether a machine that vCenter found is a template, or was removed since.
    async fn is_template(&self, asked: &Asked, machine: &MoRef) -> Result<bool, Error> {
        if let Some(vm) = self.state().inventory.machine(machine) {
            return Ok(vm.is_template);
        }
        match asked.read(properties_of(machine, &TEMPLATE_PATHS)).await {
            Ok(found) => {
                Ok(found.iter().flat_map(|(_, properties)| properties).any(|(_, value)| value.is_true()))
            }
            Err(error) if error.is_fault("ManagedObjectNotFound") => Ok(true),
            Err(error) => Err(self.error_of(&error)),
        }
    }

    /// The error that says why the inventory does not show a machine that vCenter has found by its UUID.
    pub(crate) async fn why_unshown(&self, machine: &MoRef) -> Error {
        let session = self.session().clone();
        let content = session.as_ref().and_then(|session| session.content());
        let (Some(session), Some(content)) = (session, content) else {
            return self.error(ErrorKind::Unavailable, "not connected");
        };
        let asked = Asked { session, content };
        match asked.read(properties_of(machine, &TEMPLATE_PATHS)).await {
            Err(error) if error.is_fault("NoPermission") => self.hidden(machine),
            Ok(found)
                if found.iter().flat_map(|(_, properties)| properties).any(|(_, value)| value.is_true()) =>
            {
                let words = format!(
                    "{machine} was made a template; make it a virtual machine again, or delete it in vCenter"
                );
                self.error(ErrorKind::Conflict, &words)
            }
            Err(_) | Ok(_) => self.contradiction(&asked, machine).await,
        }
    }

    /// The error that says where the machine is that vCenter found.
    async fn contradiction(&self, asked: &Asked, machine: &MoRef) -> Error {
        let place = match self.known_place(machine) {
            Some(place) => Some(place),
            // the machine exists even if its place cannot be read
            None => asked.read(way_up(machine)).await.ok().and_then(place_of),
        };
        let elsewhere = place.filter(|(datacenter, _)| {
            let state = self.state();
            !self.settings.datacenters.is_empty() && !self.datacenters(&state).contains(datacenter)
        });
        let words = match elsewhere {
            Some((_, name)) => format!(
                "it has {machine} with that UUID in datacenter {name:?}, which the configuration does not list"
            ),
            None => format!("it has {machine} with that UUID, which the inventory does not show"),
        };
        self.error(ErrorKind::Unavailable, &words)
    }

    /// The datacenter of a machine and its name, if the inventory has them.
    fn known_place(&self, machine: &MoRef) -> Option<(MoRef, Box<str>)> {
        let state = self.state();
        let datacenter = state.inventory.datacenter_of(state.inventory.machine(machine)?)?;
        let name = state.inventory.name_of(&datacenter).unwrap_or(datacenter.id()).into();
        Some((datacenter, name))
    }
}

/// The datacenter among these objects, and its name.
fn place_of(objects: Vec<(MoRef, Vec<(String, Element)>)>) -> Option<(MoRef, Box<str>)> {
    let (datacenter, properties) = objects.into_iter().find(|(object, _)| object.kind() == "Datacenter")?;
    let name = properties.into_iter().find(|(name, _)| name == "name");
    let name = name.map_or_else(|| datacenter.id().into(), |(_, name)| unescaped(&name.text));
    Some((datacenter, name))
}

/// Reads properties of one machine.
fn properties_of(machine: &MoRef, paths: &[&'static str]) -> RetrievePropertiesEx {
    let object = ObjectSpec { obj: machine.clone(), skip: Some(false), select_set: Vec::new() };
    retrieve(PropertySpec { kind: "VirtualMachine", all: None, path_set: paths.into() }, object)
}

/// Reads the names of a machine and of everything above it, up to the root.
fn way_up(machine: &MoRef) -> RetrievePropertiesEx {
    let step = |name, kind, path| TraversalSpec {
        name: Some(name),
        kind,
        path,
        skip: Some(false),
        select_set: ["up", "out"].map(|name| SelectionSpec { name: Some(name) }).into(),
    };
    let object = ObjectSpec {
        obj: machine.clone(),
        skip: Some(false),
        select_set: vec![step("up", "ManagedEntity", "parent"), step("out", "VirtualMachine", "parentVApp")],
    };
    retrieve(PropertySpec { kind: "ManagedEntity", all: None, path_set: vec!["name"] }, object)
}

fn retrieve(properties: PropertySpec, object: ObjectSpec) -> RetrievePropertiesEx {
    RetrievePropertiesEx {
        spec_set: vec![PropertyFilterSpec {
            prop_set: vec![properties],
            object_set: vec![object],
            report_missing_objects_in_results: None,
        }],
        options: RetrieveOptions { max_objects: None },
    }
}

#[cfg(test)]
mod tests;
