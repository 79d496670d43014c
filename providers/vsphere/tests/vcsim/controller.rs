//! Drives objects through the steps of machines, as the controller does.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cloudprovider::{
    CloudProvider as _, DynMachines, ErrorKind, InstanceChange, InstanceStream,
    machines::{
        BootstrapData, BootstrapFormat, ClusterContext, Deletion, MachineReport, MachineRequest, Mark,
        Record, Wait,
    },
};
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use test_env::{Vcsim, VcsimOptions};

use crate::support::*;

/// The options of a simulator in which machines can be made.
pub(crate) fn factory_options() -> VcsimOptions {
    VcsimOptions { machines: 1, boots_guests: true, ..VcsimOptions::default() }
}

/// The spec of a machine.
pub(crate) fn machine_spec() -> Value {
    json!({
        "template": machine(0), "datacenter": "DC0", "folder": "/DC0/vm", "resourcePool": "DC0_C0/Resources",
        "datastore": "LocalDS_0", "cloneMode": "fullClone",
        "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
        "numCPUs": 2, "memoryMiB": 2048,
    })
}

/// The spec of a cluster on this simulator.
pub(crate) fn cluster_spec(vcsim: &Vcsim) -> Value {
    json!({"server": format!("127.0.0.1:{}", vcsim.port())})
}

pub(crate) fn merged(mut spec: Value, more: &Value) -> Value {
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    spec
}

/// An object of the API.
#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) request: MachineRequest<Value, Value>,
    pub(crate) record: Record<Value>,
}

impl Object {
    pub(crate) fn new(vcsim: &Vcsim, number: usize, more: &Value) -> Self {
        let uid = format!("4d3c2b1a-0000-4000-8000-{number:012x}");
        let mark = Mark::machine(uid.clone(), "default", "prod", format!("worker-{number}"));
        let spec = merged(machine_spec(), more);
        let data = BootstrapData::new(BootstrapFormat::CloudConfig, "#cloud-config\n# hunter2hunter2\n");
        let request = MachineRequest::new(mark, spec, ClusterContext::new(cluster_spec(vcsim)))
            .with_object_uid(uid)
            .with_bootstrap(data);
        Self { request, record: Record::default() }
    }

    pub(crate) fn name(&self) -> String {
        self.request.mark.name().to_owned()
    }
}

/// A small controller: a step is made when it is due or when the stream says so, and at no other time. An error is tried
/// again soon.
pub(crate) struct Controller<'a> {
    part: &'a dyn DynMachines,
    stream: InstanceStream,
    /// What the API has of the object: what the last whole step left.
    written: Option<Arc<Mutex<Object>>>,
    /// The longest that a step may take before it is given up.
    pub(crate) step_limit: Duration,
    /// The errors of all steps so far.
    pub(crate) errors: Vec<String>,
    /// How long an object is tried.
    pub(crate) limit: Duration,
    /// Whether it looks again at what it is told nothing of.
    looks_again: bool,
}

/// How soon a step that failed is tried again.
const RETRY: Duration = Duration::from_millis(200);

impl<'a> Controller<'a> {
    pub(crate) fn new(running: &'a Running) -> Self {
        let part = running.provider.machines().expect("machines");
        let of_instances = running.provider.instances().and_then(cloudprovider::Instances::changes);
        let stream = of_instances.or_else(|| part.changes()).expect("a stream");
        Self {
            part,
            stream,
            written: None,
            step_limit: LIMIT,
            errors: Vec::new(),
            limit: LIMIT,
            looks_again: true,
        }
    }

    /// The same, which takes a step only when it is told.
    pub(crate) fn only_told(self) -> Self {
        Self { looks_again: false, ..self }
    }

    /// Writes what each step leaves here.
    pub(crate) fn writing(mut self, written: &Arc<Mutex<Object>>) -> Self {
        self.written = Some(Arc::clone(written));
        self
    }

    /// Waits until the object is told, or its time has come.
    pub(crate) async fn wait(&mut self, object: &Object, wait: Option<&Wait>) {
        let look_again = wait.and_then(|wait| wait.look_again_after).filter(|_| self.looks_again);
        let deadline = look_again.unwrap_or(LIMIT);
        let deadline = tokio::time::Instant::now() + deadline;
        loop {
            match tokio::time::timeout_at(deadline, self.stream.next()).await {
                Ok(Some(InstanceChange::Changed(all)))
                    if !all.iter().any(|one| one.machine.as_ref() == Some(&object.request.mark.uid)) => {}
                _ => return,
            }
        }
    }

    fn write(&self, object: &Object) {
        if let Some(written) = &self.written {
            *written.lock() = object.clone();
        }
    }

    /// What the object says is written. An error is kept.
    fn note<T>(&mut self, object: &Object, answer: &cloudprovider::Result<T>) {
        self.write(object);
        if let Err(error) = answer {
            self.errors.push(error.report());
        }
    }

    pub(crate) async fn step(&mut self, object: &mut Object) -> cloudprovider::Result<MachineReport> {
        let step = self.part.ensure_machine(&object.request, &mut object.record);
        let answer = match tokio::time::timeout(self.step_limit, step).await {
            Ok(answer) => answer,
            Err(_) => Err(cloudprovider::Error::new(ErrorKind::Timeout, "the step was given up")),
        };
        if let Ok(report) = &answer
            && let Some(machine) = report.present()
        {
            object.request.provider_id =
                machine.instance.provider_id.as_ref().map(|id| id.as_str().to_owned());
            object.request.is_provisioned |= machine.wait.is_none();
        }
        self.note(object, &answer);
        answer
    }

    /// Steps until the machine is complete.
    pub(crate) async fn make(&mut self, object: &mut Object) -> cloudprovider::Instance {
        let began = Instant::now();
        loop {
            match self.step(object).await {
                Ok(MachineReport::Present(machine)) if machine.wait.is_none() => return machine.instance,
                Ok(MachineReport::Lost { message }) => panic!("{message}"),
                Ok(report) => self.wait(object, report.wait()).await,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
            assert!(began.elapsed() < self.limit, "{:?} {:?}", object.record, self.errors.last());
        }
    }

    /// The machine becomes a Node. Steps until its bootstrap data are gone.
    pub(crate) async fn join(&mut self, object: &mut Object) {
        let began = Instant::now();
        object.request.has_node = true;
        loop {
            match self.step(object).await {
                Ok(_) if object.record.status["isBootstrapDataRemoved"] == true => return,
                Ok(MachineReport::Present(machine)) => {
                    let wait = machine.look_again_after.map(|after| Wait::time(after, "the next step"));
                    self.wait(object, machine.wait.as_ref().or(wait.as_ref())).await;
                }
                Ok(report) => panic!("{report:?}"),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
            assert!(began.elapsed() < self.limit, "{:?} {:?}", object.record, self.errors.last());
        }
    }

    /// Steps until the machine is gone.
    pub(crate) async fn delete(&mut self, object: &mut Object) {
        let began = Instant::now();
        object.request.bootstrap = None;
        self.write(object);
        loop {
            let step = self.part.delete_machine(&object.request, &mut object.record);
            let answer = match tokio::time::timeout(self.step_limit, step).await {
                Ok(answer) => answer,
                Err(_) => Err(cloudprovider::Error::new(ErrorKind::Timeout, "the step was given up")),
            };
            self.note(object, &answer);
            match answer {
                Ok(Deletion::Gone) => return,
                Ok(Deletion::Deleting(wait)) => self.wait(object, Some(&wait)).await,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
            assert!(began.elapsed() < self.limit, "{:?} {:?}", object.record, self.errors.last());
        }
    }
}

pub(crate) async fn started(vcsim: &Vcsim) -> Running {
    started_with(vcsim, "").await
}

/// The same with more sections of the configuration.
pub(crate) async fn started_with(vcsim: &Vcsim, more: &str) -> Running {
    let running = Running::start(&format!("{}{more}", config(&[vcsim]))).await;
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    running
}

pub(crate) fn names(vcsim: &Vcsim) -> Vec<String> {
    let all = vcsim.inventory().expect("an inventory");
    all.iter().map(|one| one["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The calls since the last reset, without those of the watch: how often it is built anew depends on how busy the simulator is.
pub(crate) fn calls(vcsim: &Vcsim) -> BTreeMap<String, u64> {
    let mut counts = vcsim.counts().expect("counts");
    let of_the_watch =
        ["WaitForUpdatesEx", "CreatePropertyCollector", "DestroyPropertyCollector", "CreateFilter"];
    counts.retain(|method, _| !of_the_watch.iter().any(|one| method.ends_with(one)));
    counts
}

/// What the guest of a machine reads of its name and its network.
pub(crate) fn metadata(vcsim: &Vcsim, machine: &str) -> Value {
    let found = vcsim.machine(machine).expect("a machine");
    let options = found["config"]["extraConfig"].as_array().expect("options");
    let option = options.iter().find(|one| one["key"] == "guestinfo.metadata").expect("metadata");
    let value = &option["value"];
    let text = value.as_str().or_else(|| value["_value"].as_str()).expect("a text");
    serde_json::from_slice(&STANDARD.decode(text).expect("base64")).expect("JSON")
}
