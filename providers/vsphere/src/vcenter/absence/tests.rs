//! Tests with a vCenter that is asked for machines that its inventory does not show.

use std::{collections::HashSet, sync::Arc};

use tokio::sync::{broadcast, watch};

use super::*;
use crate::{
    http::Endpoint,
    inventory::Changes,
    session::Credentials,
    testing::scripted::{Scripted, node, reference, text},
    vcenter::Settings,
    vim::{
        Transport,
        property_collector::{ObjectUpdate, UpdateKind},
    },
};

const UUID: &str = "422e4956-ad22-1139-8d72-59cc8f26bc90";

struct Rig {
    vcenter: VCenter,
    transport: Arc<Scripted>,
}

/// A followed vCenter with an inventory of the datacenter DC0 and an empty folder in it.
async fn rig(datacenters: &[&str]) -> Rig {
    let settings = Settings {
        name: "vc".to_owned(),
        endpoint: Endpoint {
            host: "vc.example".to_owned(),
            port: 443,
            ca_files: Vec::new(),
            thumbprint: None,
            insecure: false,
        },
        datacenters: datacenters.iter().map(|&word| word.to_owned()).collect(),
        access: Arc::new(|| Ok(Credentials::new("ccm", "hunter2").into())),
        tag_refresh: None,
    };
    let vcenter = VCenter::new(settings, broadcast::channel(1).0, watch::channel(0).0);
    let transport = Arc::new(Scripted::default());
    let dynamic: Arc<dyn Transport> = Arc::<Scripted>::clone(&transport);
    let session = Session::new(dynamic, Arc::clone(&vcenter.settings.access), Arc::default(), false);
    session.open(0).await.expect("a session");
    *vcenter.session() = Some(Arc::new(session));
    vcenter.update(|state| {
        (state.is_listed, state.is_live) = (true, true);
        Changes::default()
    });
    let rig = Rig { vcenter, transport };
    rig.put("Datacenter", "datacenter-2", &[("name", text("val", "DC0")), up("Folder", "group-d1")]);
    rig.put("Folder", "group-v3", &[("name", text("val", "vm")), up("Datacenter", "datacenter-2")]);
    rig
}

fn up(kind: &str, id: &str) -> (&'static str, Element) {
    ("parent", reference("val", &MoRef::new(kind, id)))
}

fn machine() -> MoRef {
    MoRef::new("VirtualMachine", "vm-1")
}

/// A `RetrieveResult`.
fn listing(objects: &[(MoRef, &[(&str, &str)])]) -> Element {
    let objects = objects.iter().map(|(object, properties)| {
        let properties = properties
            .iter()
            .map(|(name, value)| node("propSet", vec![text("name", name), text("val", value)]));
        node("objects", std::iter::once(reference("obj", object)).chain(properties).collect())
    });
    node("returnval", objects.collect())
}

/// The answer if reading is not permitted: the object, with the property missing.
fn forbidden() -> Element {
    let mut fault = node("fault", Vec::new());
    fault.kind = Some("NoPermission".into());
    let missing = node("missingSet", vec![text("path", "name"), node("fault", vec![fault])]);
    node("returnval", vec![node("objects", vec![reference("obj", &machine()), missing])])
}

impl Rig {
    fn put(&self, kind: &str, id: &str, properties: &[(&str, Element)]) {
        self.tell(UpdateKind::Enter, kind, id, properties);
    }

    fn tell(&self, kind: UpdateKind, object: &str, id: &str, properties: &[(&str, Element)]) {
        let properties = properties.iter().map(|(name, value)| (*name, Some(value))).collect();
        let update = ObjectUpdate { object: MoRef::new(object, id), kind, properties };
        self.vcenter.update(|state| state.inventory.apply(&[update]));
    }

    fn answers(&self, method: &'static str, answers: impl IntoIterator<Item = Element>) {
        for answer in answers {
            self.transport.answer(method, Ok(answer));
        }
    }

    async fn ask(&self) -> Result<(), Error> {
        self.vcenter.confirm_absent(UUID.parse().expect("a UUID")).await
    }

    async fn contradiction(&self) -> String {
        self.ask().await.expect_err("it is there").to_string()
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_believed_for_a_while() {
    let rig = rig(&[]).await;
    for _ in 0..3 {
        rig.ask().await.expect("absent");
    }
    assert_eq!(rig.transport.count("FindAllByUuid"), 3, "two byte orders and the instance UUID, once");
    tokio::time::advance(PROBE_LASTS).await;
    rig.ask().await.expect("absent");
    assert_eq!(rig.transport.count("FindAllByUuid"), 6);
}

#[tokio::test]
async fn a_machine_in_a_datacenter_that_is_not_listed_is_there() {
    let rig = rig(&["DC0"]).await;
    let way = listing(&[
        (machine(), &[("name", "node-a")]),
        (MoRef::new("Folder", "group-v5"), &[("name", "vm")]),
        (MoRef::new("Datacenter", "datacenter-3"), &[("name", "DC%2f1")]),
    ]);
    rig.answers("FindAllByUuid", [reference("returnval", &machine())]);
    rig.answers("RetrievePropertiesEx", [listing(&[(machine(), &[("config.template", "false")])]), way]);
    let words = rig.contradiction().await;
    let place = "vm-1 with that UUID in datacenter \"DC/1\", which the configuration does not list";
    assert!(words.contains(place) && words.contains("\"vc\""), "{words}");

    // found in the other byte order, where the objects above the machine may not be read
    rig.answers("FindAllByUuid", [Element::default(), reference("returnval", &machine())]);
    rig.answers("RetrievePropertiesEx", [forbidden(), forbidden()]);
    let words = rig.contradiction().await;
    assert!(words.contains("which the inventory does not show"), "{words}");

    // one of two machines found by the instance UUID
    let both = node(
        "",
        vec![
            reference("returnval", &MoRef::new("VirtualMachine", "vm-0")),
            reference("returnval", &machine()),
        ],
    );
    rig.answers("FindAllByUuid", [Element::default(), Element::default(), both]);
    let template = listing(&[(MoRef::new("VirtualMachine", "vm-0"), &[("summary.config.template", "true")])]);
    rig.answers("RetrievePropertiesEx", [template, listing(&[(machine(), &[])])]);
    let words = rig.contradiction().await;
    assert!(words.contains("vm-1"), "{words}");
}

#[tokio::test]
async fn a_machine_that_was_moved_to_a_datacenter_that_is_not_listed_is_there() {
    let rig = rig(&["DC0"]).await;
    rig.put("Datacenter", "datacenter-3", &[("name", text("val", "DC1")), up("Folder", "group-d1")]);
    rig.put(
        "VirtualMachine",
        "vm-1",
        &[("config.uuid", text("val", UUID)), up("Datacenter", "datacenter-3")],
    );
    rig.answers("FindAllByUuid", [reference("returnval", &machine())]);
    let words = rig.contradiction().await;
    assert!(words.contains("in datacenter \"DC1\", which the configuration does not list"), "{words}");
    assert_eq!(rig.transport.count("RetrievePropertiesEx"), 0, "all of that is known");
}

#[tokio::test]
async fn templates_and_what_vanished_meanwhile_are_nobodys_machine() {
    let rig = rig(&[]).await;
    rig.put(
        "VirtualMachine",
        "vm-2",
        &[("config.uuid", text("val", UUID)), ("config.template", text("val", "true"))],
    );
    let found = ["vm-1", "vm-2"].map(|id| reference("returnval", &MoRef::new("VirtualMachine", id)));
    rig.answers("FindAllByUuid", [node("", found.into())]);
    rig.transport.fault("RetrievePropertiesEx", "ManagedObjectNotFound");
    rig.ask().await.expect("absent");
}

#[tokio::test]
async fn what_cannot_be_asked_is_not_absent() {
    let rig = rig(&[]).await;
    for fault in ["NoPermission", "HostCommunication"] {
        rig.transport.fault("FindAllByUuid", fault);
        assert!(rig.contradiction().await.contains(fault));
        rig.answers("FindAllByUuid", [reference("returnval", &machine())]);
        rig.transport.fault("RetrievePropertiesEx", fault);
        assert!(rig.contradiction().await.contains(fault));
    }
    *rig.vcenter.session() = None;
    assert!(rig.contradiction().await.contains("not connected"));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_may_not_be_read_any_more_is_there() {
    let rig = rig(&[]).await;
    rig.ask().await.expect("absent, and believed");
    rig.put("VirtualMachine", "vm-1", &[("config.uuid", text("val", UUID)), up("Folder", "group-v3")]);
    rig.tell(UpdateKind::Leave, "VirtualMachine", "vm-1", &[]);
    // a search does not find the machine
    rig.transport.fault("RetrievePropertiesEx", "NoPermission");
    let error = rig.ask().await.expect_err("hidden");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("vm-1"), "{error}");
    rig.answers("RetrievePropertiesEx", [forbidden(), Element::default()]);
    for _ in 0..2 {
        assert_eq!(rig.ask().await.expect_err("hidden").kind(), ErrorKind::PermissionDenied);
    }
    rig.transport.fault("RetrievePropertiesEx", "HostCommunication");
    rig.contradiction().await;
    let value = listing(&[(machine(), &[("runtime.powerState", "poweredOn")])]);
    rig.answers("RetrievePropertiesEx", [value]);
    assert!(rig.contradiction().await.contains("vm-1 with that UUID, which the inventory does not show"));

    // only the answer that there is no such object counts; the machine is not read again after it
    rig.transport.fault("RetrievePropertiesEx", "ManagedObjectNotFound");
    rig.ask().await.expect("removed");
    let reads = rig.transport.count("RetrievePropertiesEx");
    tokio::time::advance(PROBE_LASTS).await;
    rig.ask().await.expect("removed");
    assert_eq!(rig.transport.count("RetrievePropertiesEx"), reads);
}

#[tokio::test]
async fn what_another_session_has_seen_may_only_be_hidden() {
    let rig = rig(&[]).await;
    let uuid = UUID.parse().expect("a UUID");
    let with = |uuid: &str| listing(&[(machine(), &[("config.instanceUuid", uuid)])]);
    for (answer, words) in [
        (forbidden(), Some("the machine may be running")),
        (with(UUID), Some("which the inventory does not show")),
        (with("422e4956-ad22-1139-8d72-000000000000"), None),
    ] {
        rig.answers("RetrievePropertiesEx", [answer]);
        let error = rig.vcenter.confirm_left(&machine(), uuid).await.err().map(|error| error.to_string());
        assert_eq!(error.is_some(), words.is_some(), "{error:?}");
        assert!(error.is_none_or(|error| words.is_some_and(|words| error.contains(words))));
    }
    rig.transport.fault("RetrievePropertiesEx", "NoPermission");
    let error = rig.vcenter.confirm_left(&machine(), uuid).await.expect_err("hidden");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    rig.transport.fault("RetrievePropertiesEx", "ManagedObjectNotFound");
    rig.vcenter.confirm_left(&machine(), uuid).await.expect("gone");
}

#[tokio::test]
async fn what_a_new_listing_lacks_may_only_be_hidden() {
    let rig = rig(&[]).await;
    rig.put("VirtualMachine", "vm-1", &[("config.uuid", text("val", UUID)), up("Folder", "group-v3")]);
    rig.vcenter.update(|state| state.inventory.retain(&HashSet::new()));
    rig.answers("RetrievePropertiesEx", [forbidden()]);
    assert_eq!(rig.ask().await.expect_err("hidden").kind(), ErrorKind::PermissionDenied);
    // the machine is shown again, then with another UUID
    rig.put("VirtualMachine", "vm-1", &[("config.uuid", text("val", UUID))]);
    let other = "5a3c0de0-0000-4000-8000-000000000001";
    rig.put("VirtualMachine", "vm-1", &[("config.uuid", text("val", other))]);
    rig.ask().await.expect("absent");
    assert_eq!(rig.transport.count("RetrievePropertiesEx"), 1);
}
