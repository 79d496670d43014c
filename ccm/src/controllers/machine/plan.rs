//! What to do next about a machine or a cluster: from the object, its surroundings, what is remembered, and the time.

use std::borrow::Cow;

use cloudprovider::machines::{
    ClusterContext, ClusterRequest, Condition, ConditionStatus, Kinds, MachineRequest,
};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    conditions::{is_told, not_paused, paused},
    names::{
        CLUSTER_NAME_LABEL, DELETING, IDENTITY_IN_USE, IDENTITY_MISSING, PAUSED, READY,
        WAITING_FOR_BOOTSTRAP_DATA, WAITING_FOR_CLUSTER_INFRASTRUCTURE, WAITING_FOR_MACHINES, finalizer,
        identity_annotation,
    },
    object::InfraObject,
    surroundings::{Bootstrap, Cluster, Machine},
};

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is not ours: nothing is written, not even a status.
    Ignore,
    /// Nothing, until something changes.
    Rest,
    /// Nothing, until this time or until something changes.
    At(Instant),
    /// Say that it is paused, let it move, and do nothing.
    SayPaused,
    /// Say what it waits for: the condition `Ready`.
    Say(Condition),
    /// Read the Secret with the bootstrap data, and ask again.
    ReadBootstrap,
    /// Write finalizer and identity, in one write.
    Adopt,
    /// Call the step towards existing.
    Ensure,
    /// Call the step towards gone.
    Delete,
    /// Let it go without a step: nothing was ever made for it.
    Release,
}

/// What is remembered of the last step of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What the step got.
    pub inputs: Inputs,
    /// When the next one is due.
    pub due: Due,
    /// How many steps in a row failed.
    pub failures: u32,
}

/// When the next step is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Now, because the cloud or the clock said so.
    Now,
    /// At this time.
    At(Instant),
    /// When something changes.
    WhenChanged,
}

/// What a step gets. If it differs from what the last one got, the next one is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Another object may get the name of one that was deleted.
    uid: Option<String>,
    generation: i64,
    is_deleting: bool,
    machine: Option<Machine>,
    cluster: Option<Cluster>,
    cluster_generation: Option<i64>,
    has_bootstrap: bool,
    provider: u64,
}

impl Inputs {
    /// What the capacity of a template is made from.
    pub(super) fn of_template(template: &InfraObject, provider: u64) -> Self {
        let uid = template.metadata.uid.clone();
        Self { uid, generation: template.generation(), provider, ..Self::default() }
    }
}

/// What is the same for all objects of a provider.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The kinds of the provider.
    pub kinds: &'a Kinds,
    /// `--watch-filter`.
    pub watch_filter: Option<&'a str>,
    /// How many providers have taken over so far, since a configuration can change.
    pub provider: u64,
    /// The time.
    pub now: Instant,
}

/// A machine and what is known around it.
#[derive(Clone, Copy, Debug)]
pub struct MachineSituation<'a> {
    /// The object.
    pub object: &'a InfraObject,
    /// Its Machine: the owner, if there is one yet.
    pub machine: Option<&'a Machine>,
    /// Its Cluster.
    pub cluster: Option<&'a Cluster>,
    /// The infrastructure of its Cluster.
    pub infra_cluster: Option<&'a InfraObject>,
    /// Its bootstrap data. [`Bootstrap::Missing`] if the Machine names no Secret.
    pub bootstrap: &'a Bootstrap,
    /// The name of another object that has the same identity, and the better claim to it.
    pub rival: Option<&'a str>,
    /// What is remembered.
    pub memory: Option<&'a Memory>,
}

/// A cluster and what is known around it.
#[derive(Clone, Copy, Debug)]
pub struct ClusterSituation<'a> {
    /// The object.
    pub object: &'a InfraObject,
    /// Its Cluster: the owner, if there is one yet.
    pub cluster: Option<&'a Cluster>,
    /// How many machines it still has.
    pub machines: usize,
    /// The name of another object that has the same identity, and the better claim to it.
    pub rival: Option<&'a str>,
    /// What is remembered.
    pub memory: Option<&'a Memory>,
}

impl MachineSituation<'_> {
    /// What to do next. The order of the questions is that of Cluster API's contract.
    pub fn next(&self, scope: &Scope<'_>) -> Next {
        let Self { object, .. } = self;
        let finalizer = finalizer(scope.kinds, &scope.kinds.machine);
        if !object.passes(scope.watch_filter) || (object.is_deleting() && !object.has_finalizer(&finalizer)) {
            return Next::Ignore;
        }
        if object.is_paused() || self.cluster.is_some_and(|cluster| cluster.is_paused) {
            return self.next_while_paused(scope);
        }
        if let Some(rival) = self.rival {
            return yield_to(rival, object, scope.kinds);
        }
        if is_without_identity(object, &finalizer, scope.kinds) {
            return say(object, IDENTITY_MISSING, about_identity(scope.kinds));
        }
        if object.is_deleting() {
            // Without this name nobody can tell what is its own, and everything would look like somebody else's.
            if object.cluster_name().is_none() {
                return say(object, DELETING, format!("the label {CLUSTER_NAME_LABEL} is missing"));
            }
            return due(Next::Delete, self.memory, &self.inputs(scope), self.object, scope.now);
        }
        let (Some(machine), Some(cluster), Some(_)) = (self.machine, self.cluster, object.cluster_name())
        else {
            return Next::Rest;
        };
        // A machine that exists is followed whatever its surroundings say: the step makes nothing then.
        let exists = object.provider_id().is_some();
        if !exists && !cluster.is_infrastructure_provisioned {
            return say(
                object,
                WAITING_FOR_CLUSTER_INFRASTRUCTURE,
                "the infrastructure of the Cluster is not provisioned yet",
            );
        }
        if self.infra_cluster.is_none() {
            let words = format!("there is no {} of the Cluster", scope.kinds.cluster.kind);
            return say(object, WAITING_FOR_CLUSTER_INFRASTRUCTURE, words);
        }
        if matches!(self.bootstrap, Bootstrap::Unread) && needs_bootstrap(object) {
            return due(Next::ReadBootstrap, self.memory, &self.inputs(scope), object, scope.now);
        }
        if !exists && self.bootstrap.data().is_none() {
            return say(object, WAITING_FOR_BOOTSTRAP_DATA, self.about_bootstrap(machine));
        }
        if !object.has_finalizer(&finalizer) || object.identity(scope.kinds).is_none() {
            return Next::Adopt;
        }
        due(Next::Ensure, self.memory, &self.inputs(scope), self.object, scope.now)
    }

    /// `clusterctl move` pauses, and then waits for the annotation. So a step that is under way comes to its end first.
    fn next_while_paused(&self, scope: &Scope<'_>) -> Next {
        let Self { object, .. } = self;
        let surroundings = (self.machine, self.cluster, self.infra_cluster, self.rival);
        if !object.holds_move()
            || object.is_deleting()
            || !matches!(surroundings, (Some(_), Some(_), Some(_), None))
        {
            return say_paused(object);
        }
        if matches!(self.bootstrap, Bootstrap::Unread) && needs_bootstrap(object) {
            return due(Next::ReadBootstrap, self.memory, &self.inputs(scope), object, scope.now);
        }
        due(Next::Ensure, self.memory, &self.inputs(scope), object, scope.now)
    }

    fn about_bootstrap(&self, machine: &Machine) -> Cow<'static, str> {
        match (&machine.bootstrap_secret, self.bootstrap) {
            (None, _) => "spec.bootstrap.dataSecretName of the Machine is not set yet".into(),
            (Some(name), Bootstrap::Unusable(why)) => {
                format!("the Secret {name:?} has no bootstrap data: {why}").into()
            }
            (Some(name), _) => format!("the Secret {name:?} with the bootstrap data is not there").into(),
        }
    }

    /// What the next step gets, for [`Memory`].
    pub fn inputs(&self, scope: &Scope<'_>) -> Inputs {
        Inputs {
            uid: self.object.metadata.uid.clone(),
            generation: self.object.generation(),
            is_deleting: self.object.is_deleting(),
            machine: self.machine.cloned(),
            cluster: self.cluster.cloned(),
            cluster_generation: self.infra_cluster.map(InfraObject::generation),
            has_bootstrap: match self.bootstrap {
                // Nothing is known to be new.
                Bootstrap::Unread => self.memory.is_some_and(|memory| memory.inputs.has_bootstrap),
                read => read.data().is_some(),
            },
            provider: scope.provider,
        }
    }

    /// What the next step gets.
    pub fn request(&self, scope: &Scope<'_>) -> MachineRequest<Value, Value> {
        let Self { object, infra_cluster, .. } = self;
        let endpoint = infra_cluster.and_then(InfraObject::endpoint);
        let endpoint = endpoint.or_else(|| self.cluster.and_then(|cluster| cluster.endpoint.clone()));
        let spec = infra_cluster.map_or(Value::Null, |cluster| cluster.spec.clone());
        let cluster = ClusterContext::new(spec).with_control_plane_endpoint(endpoint);
        let bootstrap = self.bootstrap.data().filter(|_| needs_bootstrap(object)).cloned();
        MachineRequest::new(object.machine_mark(scope.kinds), object.spec.clone(), cluster)
            .with_provider_id(object.provider_id().map(str::to_owned))
            .provisioned(object.is_provisioned())
            .with_node(self.machine.is_some_and(|machine| machine.has_node))
            .with_failure_domain(self.machine.and_then(|machine| machine.failure_domain.clone()))
            .control_plane(self.machine.is_some_and(|machine| machine.is_control_plane))
            .with_bootstrap(bootstrap)
    }
}

impl ClusterSituation<'_> {
    /// What to do next.
    pub fn next(&self, scope: &Scope<'_>) -> Next {
        let Self { object, .. } = self;
        let finalizer = finalizer(scope.kinds, &scope.kinds.cluster);
        if !object.passes(scope.watch_filter)
            || object.is_managed_elsewhere()
            || (object.is_deleting() && !object.has_finalizer(&finalizer))
        {
            return Next::Ignore;
        }
        if object.is_paused() || self.cluster.is_some_and(|cluster| cluster.is_paused) {
            if object.holds_move() && !object.is_deleting() && self.cluster.is_some() && self.rival.is_none()
            {
                return due(Next::Ensure, self.memory, &self.inputs(scope), object, scope.now);
            }
            return say_paused(object);
        }
        if let Some(rival) = self.rival {
            return yield_to(rival, object, scope.kinds);
        }
        if is_without_identity(object, &finalizer, scope.kinds) {
            return say(object, IDENTITY_MISSING, about_identity(scope.kinds));
        }
        if object.is_deleting() {
            if self.machines > 0 {
                return say(object, WAITING_FOR_MACHINES, format!("{} machines are left", self.machines));
            }
            return due(Next::Delete, self.memory, &self.inputs(scope), self.object, scope.now);
        }
        if self.cluster.is_none() {
            return Next::Rest;
        }
        if !object.has_finalizer(&finalizer) || object.identity(scope.kinds).is_none() {
            return Next::Adopt;
        }
        due(Next::Ensure, self.memory, &self.inputs(scope), self.object, scope.now)
    }

    /// What the next step gets, for [`Memory`].
    pub fn inputs(&self, scope: &Scope<'_>) -> Inputs {
        // What a machine waits for in its Cluster is made by this very step, so only the endpoint counts.
        let endpoint = self.cluster.and_then(|cluster| cluster.endpoint.clone());
        Inputs {
            uid: self.object.metadata.uid.clone(),
            generation: self.object.generation(),
            is_deleting: self.object.is_deleting(),
            cluster: self.cluster.map(|_| Cluster { endpoint, ..Cluster::default() }),
            provider: scope.provider,
            ..Inputs::default()
        }
    }

    /// What the next step gets.
    pub fn request(&self, scope: &Scope<'_>) -> ClusterRequest<Value> {
        let of_cluster = || self.cluster.and_then(|cluster| cluster.endpoint.clone());
        let endpoint = self.object.endpoint().or_else(of_cluster);
        ClusterRequest::new(self.object.cluster_mark(scope.kinds), self.object.spec.clone())
            .with_control_plane_endpoint(endpoint)
    }
}

/// Whether the next step gets bootstrap data.
fn needs_bootstrap(object: &InfraObject) -> bool {
    !object.is_deleting() && !object.is_provisioned()
}

/// Whether somebody removed the annotation that says what is its own in the cloud. With another identity nothing would be found,
/// and what is there would be left over.
fn is_without_identity(object: &InfraObject, finalizer: &str, kinds: &Kinds) -> bool {
    object.has_finalizer(finalizer) && object.identity(kinds).is_none()
}

fn about_identity(kinds: &Kinds) -> String {
    let annotation = identity_annotation(kinds);
    format!(
        "the annotation {annotation} is missing: write it again, with the UID that names what was made in the cloud; if nothing was \
         made, with any UUID"
    )
}

/// Two objects with one identity would work on one machine, so only one of them may. For one without a provider ID nothing was
/// made.
fn yield_to(rival: &str, object: &InfraObject, kinds: &Kinds) -> Next {
    if object.is_deleting() && object.provider_id().is_none() {
        return Next::Release;
    }
    let annotation = identity_annotation(kinds);
    let words = format!(
        "{rival:?} has the same identity, in the annotation {annotation}, and had it before; it was probably copied: delete \
         this object, and make it again without the annotation"
    );
    say(object, IDENTITY_IN_USE, words)
}

fn say_paused(object: &InfraObject) -> Next {
    if is_told(object, &paused()) && !object.holds_move() { Next::Rest } else { Next::SayPaused }
}

fn say(object: &InfraObject, reason: &'static str, message: impl Into<Cow<'static, str>>) -> Next {
    let ready = Condition::new(READY, ConditionStatus::False, reason).with_message(message);
    if is_told(object, &ready) && is_told(object, &not_paused()) { Next::Rest } else { Next::Say(ready) }
}

/// A step is due if it never ran, if it would get something new, if its time has come, and after a pause.
fn due(step: Next, memory: Option<&Memory>, inputs: &Inputs, object: &InfraObject, now: Instant) -> Next {
    let was_paused = object.condition(PAUSED).is_some_and(|found| found["status"] == "True");
    let Some(memory) = memory.filter(|memory| memory.inputs == *inputs && !was_paused) else { return step };
    match memory.due {
        Due::At(at) if at > now => Next::At(at),
        Due::Now | Due::At(_) => step,
        Due::WhenChanged => Next::Rest,
    }
}

#[cfg(test)]
mod tests;
