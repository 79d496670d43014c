//! The steps of the fake cloud's machines: an example of how a provider writes them.

use std::future::pending;

use serde_json::{Value, json};
use tokio::{
    task::yield_now,
    time::{Instant, sleep_until},
};

use super::{
    FakeClusterSpec, FakeInstance, FakeMachineSpec, FakeMachineStatus, Operation,
    machine_parts::{TaskState, Work},
    machines::{FAKE_FLAVOR, FAKE_GUEST, FAKE_REGION, KINDS},
    provider::FakeProvider,
    state::State,
};
use crate::{
    ControlPlaneEndpoint, Error, ErrorKind, InstanceMetadata, InstanceStream, Instances, PowerState, Result,
    async_trait,
    machines::{
        Capacity, ClusterReport, ClusterRequest, Condition, ConditionStatus, Deletion, DesiredObject,
        FailureDomain, Kinds, MachineDeletionRequest, MachineReport, MachineRequest, Machines, Mark,
        NodeInfo, ObjectLocks, ObserveRequest, PresentMachine, Record, Reset, StatusReport, Wait,
    },
};

type Request = MachineRequest<FakeMachineSpec, FakeClusterSpec>;
type DeletionRequest = MachineDeletionRequest<FakeMachineSpec, FakeClusterSpec>;

fn disk_of(name: &str) -> String {
    format!("disk/{name}")
}

fn endpoint_of(name: &str) -> String {
    format!("endpoint/{name}")
}

/// The failure domain that a machine goes to.
fn place(request: &Request) -> Result<Option<String>> {
    let known = &request.cluster.spec.failure_domains;
    match &request.failure_domain {
        None => Ok(known.first().cloned()),
        Some(name) if known.contains(name) => Ok(Some(name.clone())),
        Some(name) => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("failureDomain: unknown {name:?}, known: {}", known.join(", ")),
        )),
    }
}

/// How many CPUs a new machine has, and its memory in MiB.
fn size_of(request: &Request) -> Result<(u32, u32)> {
    let FakeMachineSpec { cpus, memory_mib, flavor, .. } = &request.spec;
    let Some(name) = flavor else { return Ok((*cpus, *memory_mib)) };
    let Some(flavor) = request.objects.get(&FAKE_FLAVOR, None, name)? else {
        return Err(Error::new(ErrorKind::NotFound, format!("flavor: there is no FakeFlavor {name:?}")));
    };
    let number = |field: &str, default: u32| {
        flavor.spec[field].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    };
    Ok((number("cpus", *cpus), number("memoryMiB", *memory_mib)))
}

/// Wants the guest of a machine, if it has one, to say this.
fn want_guest<C>(
    request: &MachineRequest<FakeMachineSpec, C>,
    found: Option<&FakeInstance>,
    phase: &'static str,
    record: &mut Record<FakeMachineStatus>,
) {
    if !request.spec.guest {
        return;
    }
    let mark = &request.mark;
    let instance = found.map(|_| mark.uid.clone());
    let addresses = found.map(|found| &found.metadata.addresses).into_iter().flatten();
    let addresses: Vec<Value> = addresses.map(|one| json!(one.address)).collect();
    let is_ready = if phase == "Running" { ConditionStatus::True } else { ConditionStatus::False };
    let ready = Condition::new("Ready", is_ready, phase);
    let mut spec = json!({"cpus": request.spec.cpus});
    if let Some(instance) = instance {
        spec["instance"] = json!(instance);
    }
    let guest = DesiredObject::new(FAKE_GUEST, mark.name(), spec).with_label("fake", "guest");
    record.want(guest.with_status(json!({"phase": phase, "addresses": addresses}), [ready]));
}

impl FakeProvider {
    /// A call that changes the cloud. The caller may be gone before it or after it.
    async fn change<T>(
        &self,
        operation: Operation,
        subject: &str,
        change: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        yield_now().await;
        let (answer, is_dead) = self
            .act(operation, &[], subject, |state| {
                let answer = change(state);
                let left = &mut state.machines.changes_until_crash;
                *left = left.map(|left| left.saturating_sub(1));
                Ok((answer, *left == Some(0)))
            })
            .await?;
        if is_dead {
            pending::<()>().await;
        }
        yield_now().await;
        answer
    }

    /// Pushes a change of this machine at this time, as a cloud does that follows its tasks. What an earlier process
    /// followed has to be followed again, so each step that waits says for what. `what` is followed once.
    fn follow(&self, what: &str, at: Instant, mark: &Mark) {
        let is_new = self.followed.lock().insert(what.to_owned());
        if !is_new {
            return;
        }
        let (cloud, uid, stopped) = (self.cloud.clone(), mark.uid.clone(), self.stopped.clone());
        let (followed, what) = (self.followed.clone(), what.to_owned());
        self.tasks.spawn(async move {
            tokio::select! {
                () = sleep_until(at) => {
                    followed.lock().remove(&what);
                    cloud.push_instance(&uid);
                }
                () = stopped.cancelled() => {}
            }
        });
    }

    /// The wait for a task that is under way for this mark. It is found by the mark, so that it does not matter
    /// whether the status was lost.
    fn task(&self, mark: &Mark, record: &mut Record<FakeMachineStatus>) -> Result<Option<Wait>> {
        let state = self.cloud.lock();
        if let Some((id, until)) = state.machines.running(mark) {
            record.status.task_ref = Some(id.clone());
            self.follow(id, until, mark);
            return Ok(Some(Wait::task(format!("{id} of {}", mark.name())).without_bootstrap_data()));
        }
        let known = record.status.task_ref.take().and_then(|id| Some((state.machines.tasks.get(&id)?, id)));
        match known {
            Some((task, id)) => match &task.state {
                TaskState::Failed(error) => Err(error.clone().wrap(format!("{id} failed"))),
                TaskState::Running { .. } | TaskState::Succeeded => Ok(None),
            },
            None => Ok(None),
        }
    }

    /// Begins a task, and records it.
    async fn begin(
        &self,
        operation: Operation,
        mark: &Mark,
        work: Work,
        record: &mut Record<FakeMachineStatus>,
    ) -> Result<Wait> {
        let begin = |state: &mut State| Ok(state.machines.begin(mark, work, Instant::now()));
        let (id, until) = self.change(operation, mark.name(), begin).await?;
        self.follow(&id, until, mark);
        let wait = Wait::task(format!("{id} of {}", mark.name()));
        record.status.task_ref = Some(id);
        Ok(wait.without_bootstrap_data())
    }

    /// The instance of a machine, unless something else has its ID.
    fn machine(&self, mark: &Mark) -> Result<Option<FakeInstance>> {
        let found = self.cloud.lock().instances.get(&mark.uid).cloned();
        match found {
            Some(found) if !mark.owns(found.mark.as_ref()) => {
                let what = format!("instance {:?}", found.name.as_deref().unwrap_or(&mark.uid));
                Err(mark.conflict(what, found.mark.as_ref()))
            }
            found => Ok(found),
        }
    }

    /// An error if something foreign has a name that this machine needs.
    fn refuse_foreign(&self, mark: &Mark) -> Result<()> {
        let state = self.cloud.lock();
        let name = mark.name();
        let namesake = state.instances.values().find(|one| one.name.as_deref() == Some(name));
        if let Some(one) = namesake.filter(|one| !mark.owns(one.mark.as_ref())) {
            return Err(mark.conflict(format!("instance {name:?}"), one.mark.as_ref()));
        }
        match state.machines.things.get(&disk_of(name)) {
            Some(found) if !mark.owns(found.as_ref()) => {
                Err(mark.conflict(format!("{:?}", disk_of(name)), found.as_ref()))
            }
            _ => Ok(()),
        }
    }

    /// Makes a disk or an endpoint with this mark.
    async fn make(&self, operation: Operation, name: String, mark: &Mark) -> Result<()> {
        let make = |state: &mut State| match state.machines.things.get(&name) {
            Some(found) if !mark.owns(found.as_ref()) => {
                Err(mark.conflict(format!("{name:?}"), found.as_ref()))
            }
            _ => {
                state.machines.things.insert(name.clone(), Some(mark.clone()));
                Ok(())
            }
        };
        self.change(operation, &name, make).await
    }

    /// Deletes a disk or an endpoint if it has this mark.
    async fn unmake(&self, operation: Operation, name: String, mark: &Mark) -> Result<()> {
        let found = self.cloud.lock().machines.things.get(&name).cloned();
        if !found.is_some_and(|found| mark.owns(found.as_ref())) {
            return Ok(());
        }
        let delete = |state: &mut State| {
            state.machines.things.remove(&name);
            Ok(())
        };
        self.change(operation, &name, delete).await
    }

    async fn create(
        &self,
        request: &Request,
        record: &mut Record<FakeMachineStatus>,
    ) -> Result<MachineReport> {
        let mark = &request.mark;
        let Some(bootstrap) = &request.bootstrap else {
            return Ok(MachineReport::Creating(Wait::bootstrap_data()));
        };
        let zone = place(request)?;
        self.refuse_foreign(mark)?;
        let disk = disk_of(mark.name());
        if !self.cloud.lock().machines.things.contains_key(&disk) {
            self.make(Operation::CreateDisk, disk, mark).await?;
        }
        let (cpus, memory_mib) = size_of(request)?;
        let instance = FakeInstance {
            name: Some(mark.name().to_owned()),
            power_state: PowerState::Off,
            metadata: InstanceMetadata {
                instance_type: Some(format!("{cpus}c-{memory_mib}m")),
                zone,
                ..InstanceMetadata::default()
            },
            incomplete: None,
            has_provider_id: true,
            mark: Some(mark.clone()),
        };
        self.cloud.lock().machines.bootstrap.insert(mark.uid.clone(), bootstrap.clone());
        let work = Work::Create(mark.uid.clone(), Box::new(instance));
        Ok(MachineReport::Creating(self.begin(Operation::CreateMachine, mark, work, record).await?))
    }

    async fn power_on(&self, mark: &Mark) -> Result<()> {
        let power_on = |state: &mut State| {
            if let Some(instance) = state.instances.get_mut(&mark.uid) {
                instance.power_state = PowerState::Running;
            }
            state.machines.lease(&mark.uid, Instant::now());
            Ok(())
        };
        self.change(Operation::PowerOn, mark.name(), power_on).await
    }
}

#[async_trait]
impl Machines for FakeProvider {
    type MachineSpec = FakeMachineSpec;
    type MachineStatus = FakeMachineStatus;
    type ClusterSpec = FakeClusterSpec;
    type ClusterStatus = ();

    const KINDS: Kinds = KINDS;

    fn object_locks(&self) -> &ObjectLocks {
        &self.object_locks
    }

    async fn ensure_machine(
        &self,
        request: &Request,
        record: &mut Record<FakeMachineStatus>,
    ) -> Result<MachineReport> {
        let mark = &request.mark;
        self.act(Operation::EnsureMachine, &[], mark.name(), |_| Ok(())).await?;
        want_guest(request, None, "Pending", record);
        let task = self.task(mark, record)?;
        let Some(found) = self.machine(mark)? else {
            return match (task, &request.provider_id) {
                (Some(wait), _) => Ok(MachineReport::Creating(wait)),
                (None, Some(id)) => {
                    want_guest(request, None, "Lost", record);
                    Ok(MachineReport::lost(format!("instance {id} is gone")))
                }
                (None, None) => self.create(request, record).await,
            };
        };
        if found.power_state.is_shutdown() && !request.is_provisioned {
            self.power_on(mark).await?;
        }
        let Some(now) = self.machine(mark)? else {
            return Ok(MachineReport::lost(format!("instance {} is gone", mark.uid)));
        };
        let wait = if now.metadata.addresses.is_empty() && !now.power_state.is_shutdown() {
            let leased = self.cloud.lock().machines.lease(&mark.uid, Instant::now());
            self.follow(&format!("address of {}", mark.uid), leased, mark);
            let wait = Wait::address(format!("{} has no address yet", mark.name()));
            Some(wait.without_bootstrap_data())
        } else {
            None
        };
        let is_done = task.is_none() && wait.is_none();
        want_guest(request, Some(&now), if is_done { "Running" } else { "Starting" }, record);
        let domain = now.metadata.zone.clone();
        let machine = PresentMachine::new(self.seen(&mark.uid, &now)).with_failure_domain(domain);
        Ok(machine.with_wait(task.or(wait)).into())
    }

    async fn delete_machine(
        &self,
        request: &DeletionRequest,
        record: &mut Record<FakeMachineStatus>,
    ) -> Result<Deletion> {
        let mark = &request.mark;
        self.act(Operation::DeleteMachine, &[], mark.name(), |_| Ok(())).await?;
        want_guest(request, None, "Deleting", record);
        if let Some(wait) = self.task(mark, record)? {
            return Ok(Deletion::Deleting(wait));
        }
        // What has another mark is not ours to delete, and nothing of ours is left then.
        if let Ok(Some(found)) = self.machine(mark) {
            if !found.power_state.is_shutdown() {
                let power_off = |state: &mut State| {
                    if let Some(instance) = state.instances.get_mut(&mark.uid) {
                        instance.power_state = PowerState::Off;
                    }
                    Ok(())
                };
                self.change(Operation::PowerOff, mark.name(), power_off).await?;
            }
            let work = Work::Destroy(mark.uid.clone());
            let wait = self.begin(Operation::DestroyMachine, mark, work, record).await?;
            return Ok(Deletion::Deleting(wait));
        }
        self.unmake(Operation::DeleteDisk, disk_of(mark.name()), mark).await?;
        Ok(Deletion::Gone)
    }

    async fn reset_machine(&self, request: &Request, _: &Record<FakeMachineStatus>) -> Result<Reset> {
        let mark = &request.mark;
        if self.machine(mark)?.is_none() {
            return Ok(Reset::Absent);
        }
        let reset = |state: &mut State| {
            if let Some(instance) = state.instances.get_mut(&mark.uid) {
                instance.power_state = PowerState::Running;
            }
            *state.machines.resets.entry(mark.uid.clone()).or_default() += 1;
            Ok(())
        };
        self.change(Operation::ResetMachine, mark.name(), reset).await?;
        Ok(Reset::Done)
    }

    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<FakeClusterSpec>,
        _: &mut Record<()>,
    ) -> Result<ClusterReport> {
        let (mark, spec) = (&request.mark, &request.spec);
        self.act(Operation::EnsureCluster, &[], mark.name(), |_| Ok(())).await?;
        let mut endpoint = request.control_plane_endpoint.clone();
        if spec.endpoint {
            self.make(Operation::CreateEndpoint, endpoint_of(mark.name()), mark).await?;
            let host = format!("{}.clusters.example.org", mark.name());
            endpoint = endpoint.or(Some(ControlPlaneEndpoint { host, port: 6443 }));
        }
        let domains = spec.failure_domains.iter().map(FailureDomain::new);
        Ok(ClusterReport::done().with_control_plane_endpoint(endpoint).with_failure_domains(domains))
    }

    async fn delete_cluster(
        &self,
        request: &ClusterRequest<FakeClusterSpec>,
        _: &mut Record<()>,
    ) -> Result<Deletion> {
        let mark = &request.mark;
        self.act(Operation::DeleteCluster, &[], mark.name(), |_| Ok(())).await?;
        self.unmake(Operation::DeleteEndpoint, endpoint_of(mark.name()), mark).await?;
        Ok(Deletion::Gone)
    }

    fn changes(&self) -> Option<InstanceStream> {
        Instances::changes(self)
    }

    async fn capacity(&self, spec: &FakeMachineSpec) -> Result<Capacity> {
        let node_info =
            NodeInfo { architecture: Some("amd64".to_owned()), operating_system: Some("linux".to_owned()) };
        Ok(Capacity::default()
            .with_resource("cpu", spec.cpus.to_string())
            .with_resource("memory", format!("{}Mi", spec.memory_mib))
            .with_node_info(node_info))
    }

    async fn observe(&self, request: &ObserveRequest) -> Result<StatusReport> {
        let object = &request.object;
        self.act(Operation::Observe, &[], &object.name, |_| Ok(())).await?;
        if request.kind != FAKE_REGION {
            return Err(Error::new(ErrorKind::Internal, "no region"));
        }
        let flavors = object.spec["flavors"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut missing = Vec::new();
        for name in flavors {
            if request.objects.get(&FAKE_FLAVOR, None, name)?.is_none() {
                missing.push(name);
            }
        }
        let ready = if missing.is_empty() {
            Condition::new("Ready", ConditionStatus::True, "Complete")
        } else {
            let words = format!("there is no FakeFlavor {}", missing.join(", "));
            Condition::new("Ready", ConditionStatus::False, "FlavorMissing").with_message(words)
        };
        let machines = self.cloud.lock().instances.len();
        Ok(StatusReport::new(json!({"ready": missing.is_empty(), "machines": machines}), [ready]))
    }

    fn forget(&self, uid: &str) {
        self.cloud.lock().machines.forgotten.insert(uid.to_owned());
    }
}

#[cfg(test)]
mod tests;
