//! The deletion of a Machine: [`lifecycle::machine::deletion`] says what is next, and this does it.

use std::time::Duration;

use cluster_api::{
    Machine, MachineDeletionStatus, defaults::NODE_DELETION_TIMEOUT_SECONDS, names::annotations,
};
use component::events::EventType;
use controller_kit::writes::WriteError;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use lifecycle::{
    conditions::{Statement, Status},
    machine::deletion::{
        Began, DeletingMachine, Next, NoNodeWork, OwningControlPlane, Presence, Timeouts, next,
        node_to_delete,
    },
};

use super::facts::Pass;
use crate::{
    core::Referenced,
    engine::{
        conditions::time,
        control::{Failure, Then},
        external::External,
        object::{Meta as _, Stored},
        place::Guard,
    },
    workload::{
        Node, WorkloadCluster,
        drain::{self, DrainRules, Progress},
        volumes,
    },
};

/// How often the deletion of a Node is tried until its time is over.
const NODE_DELETION_RETRY: Duration = Duration::from_secs(2);

/// How far a deletion came.
pub(super) struct Outcome {
    /// Nothing is left. The finalizer may go.
    pub(super) is_done: bool,
    /// The condition `Deleting`.
    pub(super) statement: Statement,
    /// `status.deletion`
    pub(super) times: MachineDeletionStatus,
    pub(super) then: Then,
    pub(super) failure: Option<Failure>,
}

/// A Machine that is being deleted.
pub(super) struct Deletion<'a> {
    pass: &'a Pass<'a>,
    machine: &'a Stored<Machine>,
    times: MachineDeletionStatus,
    is_drained: bool,
    is_detached: bool,
    is_node_gone: bool,
}

/// What became of one step.
enum Stepped {
    /// The next one follows at once.
    Done,
    /// It takes time.
    Waits(Then),
    /// The same, and this is what the condition says in place of its own words.
    Says(String, Then),
}

impl<'a> Deletion<'a> {
    pub(super) fn new(pass: &'a Pass<'a>, machine: &'a Stored<Machine>) -> Self {
        let times = machine.status.as_ref().map(|status| status.deletion.clone()).unwrap_or_default();
        Self { pass, machine, times, is_drained: false, is_detached: false, is_node_gone: false }
    }

    /// Does all steps that take no time, up to the first that does.
    pub(super) async fn proceed(mut self) -> Outcome {
        let node = match self.node_name().await {
            Ok(node) => node,
            Err(failure) => {
                let statement = internal("Please check controller logs for errors");
                return self.outcome(statement, Then::WhenChanged, Some(failure));
            }
        };
        loop {
            let (next, statement) = self.next(node.as_deref());
            if next == Next::Release {
                return Outcome { is_done: true, ..self.outcome(statement, Then::WhenChanged, None) };
            }
            match self.step(next, node.as_deref()).await {
                Ok(Stepped::Done) => {}
                Ok(Stepped::Waits(then)) => return self.outcome(statement, then, None),
                Ok(Stepped::Says(message, then)) => {
                    return self.outcome(Statement { message, ..statement }, then, None);
                }
                Err(failure) => {
                    let statement = failed(next, statement, self.machine, &failure);
                    return self.outcome(statement, Then::WhenChanged, Some(failure));
                }
            }
        }
    }

    fn outcome(self, statement: Statement, then: Then, failure: Option<Failure>) -> Outcome {
        Outcome { is_done: false, statement, times: self.times, then, failure }
    }

    /// The Node that is drained and deleted with the Machine.
    ///
    /// The control plane is read last: one that cannot be read holds no Machine to which it does not matter.
    async fn node_name(&self) -> Result<Option<String>, Failure> {
        let Some(cluster) = self.pass.cluster else { return Ok(None) };
        let of_status = self.machine.status.as_ref().map(|status| status.node_ref.name.as_str());
        let of_status = of_status.filter(|name| !name.is_empty());
        let name = of_status.or(self.pass.node.node().map(|node| node.name.as_str()));
        let is_unseen = name.is_none() && self.may_have_unseen_node();
        let name = name.or(is_unseen.then(|| self.machine.name_or_empty()));
        let none = |why: NoNodeWork| {
            tracing::debug!(machine = self.machine.name_or_empty(), %why, "no work for the Node");
            Ok(None)
        };
        let node = match node_to_delete(cluster.is_deleting(), name) {
            Ok(node) => node,
            Err(why) => return none(why),
        };
        let control_plane = self.pass.control_plane().await;
        if let Some(Referenced::Unreadable(why)) = &control_plane {
            return Err(Failure::Failed(why.clone()));
        }
        let control_plane = control_plane.as_ref().and_then(Referenced::object);
        let owning = OwningControlPlane {
            is_deleting: control_plane.is_some_and(External::is_deleting),
            is_external: control_plane.is_some_and(|one| one.external_managed_control_plane),
            machines: self.pass.control_plane_machines(self.machine),
        };
        if let Err(why) = owning.stays() {
            return none(why);
        }
        if is_unseen && !self.has_unseen_node().await? {
            return none(NoNodeWork::NoNode);
        }
        Ok(Some(node.to_owned()))
    }

    /// Whether there may be a Node that is not known: the Machine is deleted soon after its Node came, or the daemon has just started.
    fn may_have_unseen_node(&self) -> bool {
        self.machine.spec.provider_id.is_some() && !self.is_over_for_unseen_node()
    }

    /// Whether there is one, with the Machine's own name as kubelets take it from most machines.
    async fn has_unseen_node(&self) -> Result<bool, Failure> {
        let node = self.read_node(self.machine.name_or_empty()).await?;
        Ok(node.is_some_and(|node| node.provider_id == self.machine.spec.provider_id))
    }

    /// Whether it was looked for long enough. What is not found has a limit always: the machine itself is yet to be deleted.
    fn is_over_for_unseen_node(&self) -> bool {
        let limit = self.machine.spec.deletion.node_deletion_timeout_seconds.filter(|limit| *limit > 0);
        self.is_deleted_for(limit.unwrap_or(NODE_DELETION_TIMEOUT_SECONDS))
    }

    /// Whether the Machine is deleted for longer than its Node may take.
    fn is_over_for_node(&self) -> bool {
        let limit = self.machine.spec.deletion.node_deletion_timeout_seconds;
        let limit = limit.unwrap_or(NODE_DELETION_TIMEOUT_SECONDS);
        limit > 0 && self.is_deleted_for(limit)
    }

    fn is_deleted_for(&self, seconds: i32) -> bool {
        let since = self.machine.deleted_at().map_or(self.pass.now, Timestamp::as_second);
        self.pass.now.saturating_sub(since) >= i64::from(seconds)
    }

    fn next(&self, node: Option<&str>) -> (Next, Statement) {
        let hooks = |prefix: &str| -> Vec<&str> {
            let all = self.machine.annotations().keys().map(String::as_str);
            all.filter(|key| key.starts_with(prefix)).collect()
        };
        let has = |key: &str| self.machine.annotations().contains_key(key);
        let seconds =
            |limit: Option<i32>| limit.and_then(|limit| u64::try_from(limit).ok()).map(Duration::from_secs);
        let began = |at: &Option<Time>| at.as_ref().map(|time| time.0.as_second());
        let spec = &self.machine.spec;
        let related = &self.pass.related;
        let deleting = DeletingMachine {
            has_node_work: node.is_some(),
            pre_drain_hooks: &hooks(annotations::PRE_DRAIN_HOOK_PREFIX),
            pre_terminate_hooks: &hooks(annotations::PRE_TERMINATE_HOOK_PREFIX),
            excludes_drain: has(annotations::EXCLUDE_NODE_DRAINING),
            excludes_volumes: has(annotations::EXCLUDE_WAIT_FOR_NODE_VOLUME_DETACH),
            timeouts: Timeouts {
                drain: seconds(spec.deletion.node_drain_timeout_seconds),
                volumes: seconds(spec.deletion.node_volume_detach_timeout_seconds),
            },
            began: Began {
                drain: began(&self.times.node_drain_start_time),
                volumes: began(&self.times.wait_for_node_volume_detach_start_time),
                pre_terminate_hooks: began(&self.times.wait_for_pre_terminate_hook_start_time),
            },
            is_drained: self.is_drained,
            is_detached: self.is_detached,
            is_node_gone: self.is_node_gone,
            infrastructure: (&spec.infrastructure_ref.kind, presence(&related.infrastructure)),
            bootstrap: related
                .bootstrap
                .as_ref()
                .map(|config| (spec.bootstrap.config_ref.kind.as_str(), presence(config))),
        };
        next(&deleting, self.pass.now)
    }

    async fn step(&mut self, next: Next, node: Option<&str>) -> Result<Stepped, Failure> {
        let now = time(self.pass.now);
        match next {
            Next::WaitForPreDrainHooks => {
                self.times.wait_for_pre_drain_hook_start_time.get_or_insert(now);
                Ok(Stepped::Waits(Then::WhenChanged))
            }
            Next::Drain => {
                self.times.node_drain_start_time.get_or_insert(now);
                self.drain(node.unwrap_or_default()).await
            }
            Next::DetachVolumes => {
                self.times.wait_for_node_volume_detach_start_time.get_or_insert(now);
                self.detach(node.unwrap_or_default()).await
            }
            Next::WaitForPreTerminateHooks => {
                self.times.wait_for_pre_terminate_hook_start_time.get_or_insert(now);
                Ok(Stepped::Waits(Then::WhenChanged))
            }
            Next::DeleteInfrastructure => {
                let infrastructure = &self.pass.related.infrastructure;
                // Without its ID the Node would stay.
                let has_node = self.pass.cluster.is_some_and(|cluster| !cluster.is_deleting());
                if let Some(why) = &self.pass.related.refused_provider_id
                    && has_node
                    && !self.is_over_for_unseen_node()
                {
                    return Err(Failure::Failed(why.clone()));
                }
                // A provider ID that came since this pass has read the object leads to a Node.
                let is_exact = self.machine.spec.provider_id.is_none();
                self.delete(infrastructure, if is_exact { Guard::of } else { Guard::of_any_version }).await
            }
            Next::DeleteBootstrap => match &self.pass.related.bootstrap {
                Some(config) => self.delete(config, Guard::of_any_version).await,
                None => Ok(Stepped::Done),
            },
            Next::WaitForInfrastructure => wait_for(&self.pass.related.infrastructure),
            Next::WaitForBootstrap => {
                self.pass.related.bootstrap.as_ref().map_or(Ok(Stepped::Done), wait_for)
            }
            Next::DeleteNode => self.delete_node(node.unwrap_or_default()).await,
            Next::Release => Ok(Stepped::Done),
        }
    }

    fn connected(&self) -> Result<&WorkloadCluster, Failure> {
        let none = || Failure::Failed("there is no connection to the workload cluster".to_owned());
        self.pass.connected.as_ref().ok_or_else(none)
    }

    /// The Node as it is now. `None`: it is gone.
    async fn read_node(&self, name: &str) -> Result<Option<Node>, Failure> {
        Ok(self.connected()?.read_node(name).await?)
    }

    async fn drain(&mut self, name: &str) -> Result<Stepped, Failure> {
        let Some(node) = self.read_node(name).await? else {
            self.is_drained = true;
            return Ok(Stepped::Done);
        };
        let connected = self.connected()?;
        connected.cordon(&node).await?;
        let rules = self.rules()?;
        let started = self.times.node_drain_start_time.as_ref().map(|time| time.0.to_string());
        let pass = drain::pass(connected, &node, &rules, &started.unwrap_or_default()).await;
        match pass.map_err(|error| Failure::Failed(error.to_string()))? {
            Progress::Done => {
                self.is_drained = true;
                let message = format!("success draining Machine's node {name:?}");
                self.pass.core.record(&**self.machine, EventType::Normal, "SuccessfulDrainNode", message);
                Ok(Stepped::Done)
            }
            Progress::Waiting { message, after } => {
                let limit = self.machine.spec.deletion.node_drain_timeout_seconds;
                Ok(Stepped::Says(
                    message,
                    Then::After(self.left(limit, self.times.node_drain_start_time.as_ref(), after)),
                ))
            }
        }
    }

    async fn detach(&mut self, name: &str) -> Result<Stepped, Failure> {
        let Some(node) = self.read_node(name).await? else {
            self.is_detached = true;
            return Ok(Stepped::Done);
        };
        let attached = volumes::attached(self.connected()?, &node, &self.rules()?).await;
        let attached = attached.map_err(|error| Failure::Failed(error.to_string()))?;
        if attached.is_empty() {
            self.is_detached = true;
            let message = format!("success waiting for node volumes detaching Machine's node {name:?}");
            self.pass.core.record(&**self.machine, EventType::Normal, "NodeVolumesDetached", message);
            return Ok(Stepped::Done);
        }
        let began = self.times.wait_for_node_volume_detach_start_time.as_ref();
        let limit = self.machine.spec.deletion.node_volume_detach_timeout_seconds;
        let started = began.map(|time| time.0.to_string()).unwrap_or_default();
        Ok(Stepped::Says(attached.message(&started), Then::After(self.left(limit, began, volumes::RETRY))))
    }

    /// When to look again: after `pause`, or when the time limit ends.
    fn left(&self, limit: Option<i32>, began: Option<&Time>, pause: Duration) -> Duration {
        let limit = limit.filter(|limit| *limit > 0).map(i64::from);
        let (Some(limit), Some(began)) = (limit, began) else { return pause };
        let left = began.0.as_second().saturating_add(limit).saturating_sub(self.pass.now);
        pause.min(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
    }

    async fn delete(
        &self,
        found: &Referenced,
        guard: for<'o> fn(&'o External) -> Guard<'o>,
    ) -> Result<Stepped, Failure> {
        let Referenced::There(kind, object) = found else { return wait_for(found) };
        let place = kind.place(object.namespace_or_empty(), object.name_or_empty());
        match self.pass.core.writer.delete_at(&place, guard(object)).await {
            // The watch shows when it is gone.
            Ok(()) | Err(WriteError::Gone) => Ok(Stepped::Waits(Then::WhenChanged)),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete_node(&mut self, name: &str) -> Result<Stepped, Failure> {
        let deleted = match self.read_node(name).await {
            Ok(None) => Ok(()),
            Ok(Some(node)) => self.connected()?.delete_node(&node).await.map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        let Err(failure) = deleted else {
            self.is_node_gone = true;
            return Ok(Stepped::Done);
        };
        tracing::warn!(machine = self.machine.name_or_empty(), node = name, error = %failure, "Node not deleted");
        if self.is_over_for_node() {
            self.is_node_gone = true;
            return Ok(Stepped::Done);
        }
        Ok(Stepped::Waits(Then::After(NODE_DELETION_RETRY)))
    }

    /// The rules for the Machine's Pods.
    fn rules(&self) -> Result<DrainRules, Failure> {
        let namespace = self.machine.namespace_or_empty();
        let all = self.pass.core.stores.machine_drain_rules.all();
        let of_namespace =
            all.iter().filter(|rule| rule.namespace_or_empty() == namespace).map(|rule| &***rule);
        let cluster = self.pass.cluster.map(|cluster| cluster.labels().clone()).unwrap_or_default();
        DrainRules::of(of_namespace, self.machine.labels(), &cluster)
            .map_err(|error| Failure::Failed(error.to_string()))
    }
}

/// One that cannot be read may be there. Nothing follows on it.
fn presence(found: &Referenced) -> Presence {
    match found {
        Referenced::There(_, object) if object.is_deleting() => Presence::Deleting,
        Referenced::There(..) => Presence::There,
        Referenced::Unreadable(_) => Presence::Deleting,
        Referenced::Missing => Presence::Gone,
    }
}

fn wait_for(found: &Referenced) -> Result<Stepped, Failure> {
    match found {
        Referenced::Unreadable(why) => Err(Failure::Failed(why.clone())),
        Referenced::There(..) | Referenced::Missing => Ok(Stepped::Waits(Then::WhenChanged)),
    }
}

fn internal(message: &str) -> Statement {
    Statement::new(Status::True, "InternalError", message)
}

/// What `Deleting` says of a step that failed.
fn failed(step: Next, statement: Statement, machine: &Machine, why: &Failure) -> Statement {
    let of = |kind: &str| internal(&format!("Failed to delete {kind}: {why}"));
    let says = |what: &str| Statement { message: format!("{what}: {why}"), ..statement.clone() };
    match step {
        Next::Drain => says("Error draining Node"),
        Next::DetachVolumes => says("Error waiting for volumes to be detached from Node"),
        Next::DeleteInfrastructure | Next::WaitForInfrastructure => of(&machine.spec.infrastructure_ref.kind),
        Next::DeleteBootstrap | Next::WaitForBootstrap => of(&machine.spec.bootstrap.config_ref.kind),
        Next::DeleteNode => says("Error deleting Node"),
        Next::WaitForPreDrainHooks | Next::WaitForPreTerminateHooks | Next::Release => statement,
    }
}
