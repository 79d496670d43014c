//! A machine on a scripted vCenter, for what the simulator cannot do.

use std::sync::Arc;

use cloudprovider::{
    InstanceChange, Machines as _,
    machines::{ClusterContext, Deletion, MachineReport, MachineRequest, Mark},
};
use serde_json::json;
use tokio::sync::{broadcast, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::{
    accounts::Accounts,
    config::MachineOptions,
    endpoint::Endpoint,
    inventory::Changes,
    machines::{Deps, SessionPool, Tombstones, guest::shape},
    mark::{self, MARK_PATH},
    moref::MoRef,
    session::{Credentials, Session},
    tasks::TASK,
    testing::scripted::{Scripted, node, reference, text},
    vcenter::{Settings, VCenter},
    vim::{
        Transport,
        element::Element,
        property_collector::{ObjectUpdate, UpdateKind},
    },
};

const UID: &str = "4d3c2b1a-0000-4000-8000-000000000001";
pub(crate) const BIOS_UUID: &str = "422e4956-ad22-1139-8d72-59cc8f26bc90";

/// A followed vCenter with one machine, which runs.
pub(crate) struct Rig {
    pub(crate) machines: VSphereMachines,
    pub(crate) vcenter: Arc<VCenter>,
    pub(crate) transport: Arc<Scripted>,
    pub(crate) record: MachineRecord,
}

pub(crate) fn mark() -> Mark {
    Mark::machine(UID, "default", "prod", "worker-1")
}

/// The machine.
pub(crate) fn machine() -> MoRef {
    MoRef::new("VirtualMachine", "vm-1")
}

/// A rig whose session is open.
pub(crate) async fn rig() -> Rig {
    let settings = Settings {
        name: "vc".to_owned(),
        endpoint: Endpoint {
            host: "vc.example".to_owned(),
            port: 443,
            ca_files: Vec::new(),
            thumbprint: None,
            insecure: false,
        },
        datacenters: Vec::new(),
        access: Arc::new(|| Ok(Credentials::new("ccm", "hunter2").into())),
        tag_refresh: None,
    };
    let changes = broadcast::channel::<InstanceChange>(1).0;
    let (status, stop, tasks) = (watch::channel(0).0, CancellationToken::new(), TaskTracker::new());
    let vcenter = Arc::new(VCenter::new(settings, changes.clone(), status.clone()));
    let transport = Arc::new(Scripted::default());
    let dynamic: Arc<dyn Transport> = Arc::<Scripted>::clone(&transport);
    let accounts = Arc::<Accounts>::default();
    let session = Session::new(dynamic, Arc::clone(&vcenter.settings.access), accounts, false);
    session.open(0).await.expect("a session");
    *vcenter.session() = Some(Arc::new(session));
    let pool = Arc::new(SessionPool::new(Deps {
        instance_changes: changes,
        status_changes: status,
        accounts: std::collections::HashMap::new(),
        tasks: tasks.clone(),
        stop: stop.clone(),
    }));
    let handle = VCenterHandle {
        vcenter: Arc::clone(&vcenter),
        stop,
        is_configured: true,
        number: 0,
        tombstones: Tombstones::default(),
    };
    let machines = VSphereMachines::new(MachineOptions::default(), vec![handle], pool, tasks);
    let rig = Rig { machines, vcenter, transport, record: MachineRecord::default() };
    rig.shown(true);
    rig.tell(
        &machine(),
        UpdateKind::Enter,
        &[
            ("name", text("val", "worker-1")),
            ("runtime.powerState", text("val", "poweredOn")),
            ("runtime.connectionState", text("val", "connected")),
            ("config.uuid", text("val", BIOS_UUID)),
            ("config.instanceUuid", text("val", UID)),
            (MARK_PATH, text("val", &mark::write(&mark()))),
        ],
    );
    rig
}

impl Rig {
    /// Whether changes are followed.
    pub(crate) fn shown(&self, is_live: bool) {
        self.vcenter.update(|state| {
            (state.is_listed, state.is_live) = (true, is_live);
            Changes::default()
        });
    }

    pub(crate) fn tell(&self, object: &MoRef, kind: UpdateKind, properties: &[(&str, Element)]) {
        let properties = properties.iter().map(|(name, value)| (*name, Some(value))).collect();
        let update = [ObjectUpdate { object: object.clone(), kind, properties }];
        self.vcenter.update(|state| {
            state.tasks.apply(&update);
            state.inventory.apply(&update)
        });
    }

    pub(crate) fn leave(&self) {
        self.tell(&machine(), UpdateKind::Leave, &[]);
    }

    /// The next call of this method begins this task.
    pub(crate) fn begins(&self, method: &'static str, id: &str) {
        self.transport.answer(method, Ok(reference("returnval", &MoRef::new(TASK, id))));
    }

    pub(crate) fn succeeds(&self, id: &str) {
        self.tell(&MoRef::new(TASK, id), UpdateKind::Enter, &[("info.state", text("val", "success"))]);
    }

    /// The next read finds the machine, without a disk.
    pub(crate) fn is_read(&self) {
        let property = |name: &str, value| node("propSet", vec![text("name", name), value]);
        let controller = Element {
            kind: Some("VirtualIDEController".into()),
            ..node("VirtualDevice", vec![text("key", "200")])
        };
        let object = node(
            "objects",
            vec![
                reference("obj", &machine()),
                property("config.hardware.device", node("val", vec![controller])),
                property("config.files.vmPathName", text("val", "[ds] worker-1/worker-1.vmx")),
                property("config.version", text("val", "vmx-19")),
            ],
        );
        self.transport.answer("RetrievePropertiesEx", Ok(node("returnval", vec![object])));
    }

    /// The calls since the session was opened.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        let mut calls = self.transport.calls();
        calls.retain(|call| !["RetrieveServiceContent", "Login"].contains(call));
        calls
    }

    pub(crate) async fn delete(&mut self) -> Result<Deletion> {
        self.machines.delete_machine(&deletion(), &mut self.record).await
    }

    pub(crate) async fn waits_for_deletion(&mut self) -> Wait {
        match self.delete().await {
            Ok(Deletion::Deleting(wait)) => wait,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn ensure(&mut self, provider_id: Option<String>) -> Result<MachineReport> {
        let request = MachineRequest::new(mark(), machine_spec(), ClusterContext::new(cluster_spec()))
            .with_object_uid(mark().uid)
            .with_provider_id(provider_id);
        self.machines.ensure_machine(&request, &mut self.record).await
    }

    /// This process has made the machine, so it knows what its guest was told.
    pub(crate) fn has_made_it(&self) {
        let guest = shape(&machine_spec().clone.network);
        let owner = owner_of(&mark()).expect("a UUID");
        self.machines.states.of(&owner).note_guest(Some(guest));
    }
}

/// A request for the deletion of the machine.
pub(crate) fn deletion() -> DeletionRequest {
    MachineRequest::new(mark(), machine_spec(), ClusterContext::new(Some(cluster_spec())))
        .with_object_uid(mark().uid)
}

fn cluster_spec() -> VSphereClusterSpec {
    serde_json::from_value(json!({"server": "vc.example"})).expect("a spec")
}

fn machine_spec() -> VSphereMachineSpec {
    let spec = json!({"template": "t", "powerOffMode": "hard", "network": {"devices": []}});
    serde_json::from_value(spec).expect("a spec")
}
