//! What to do next about a machine or a cluster: from the object, its surroundings, what is remembered, and
//! the time.

mod memory;
mod reset;

use std::{borrow::Cow, time::Duration};

use cloudprovider::machines::{
    ClusterContext, ClusterRequest, Condition, ConditionStatus, Kinds, MachineRequest,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    auxiliary::Reads,
    cluster_api::{Bootstrap, Cluster, Machine},
    conditions::{is_said, not_paused, paused},
    deferred::DeferredStatus,
    index::Rival,
    names::{
        CLUSTER_NAME_LABEL, CLUSTER_NAME_MISMATCH, DELETING, IDENTITY_IN_USE, IDENTITY_MISSING, PAUSED,
        READY, WAITING_FOR_BOOTSTRAP_DATA, WAITING_FOR_CLUSTER_INFRASTRUCTURE, WAITING_FOR_MACHINES,
        cluster_annotation, finalizer, identity_annotation,
    },
    object::InfraObject,
};

pub use self::memory::{CountedReboot, Due, Inputs, Memory, RebootOutcome};

/// How long a cluster waits for its machines until they are counted again: not every change that lets one go
/// wakes it.
const MACHINES_INTERVAL: Duration = Duration::from_secs(60);

/// How many machines a message names.
const MAX_NAMED: usize = 3;

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
    /// Say what it waits for, once the wait has lasted a while.
    Defer(Condition),
    /// Read the Secret with the bootstrap data, and ask again.
    ReadBootstrap,
    /// Ask the provider which machine in the cloud is its own, and write that down. Another program has
    /// worked on it.
    Identify,
    /// Write finalizer and mark, in one write.
    Adopt,
    /// Call the step towards existing.
    Ensure,
    /// Call the step towards gone.
    Delete,
    /// Let it go without a step: whatever carries its mark is another object's.
    Release,
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
pub struct MachineContext<'a> {
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
    /// Another object that has the same identity, and the better claim to it.
    pub rival: Option<&'a Rival>,
    /// What is there now in the places that the last step read.
    pub reads: Option<&'a Reads>,
    /// What is remembered.
    pub memory: Option<&'a Memory>,
}

/// A cluster and what is known around it.
#[derive(Clone, Copy, Debug)]
pub struct InfraClusterContext<'a> {
    /// The object.
    pub object: &'a InfraObject,
    /// Its Cluster: the owner, if there is one yet.
    pub cluster: Option<&'a Cluster>,
    /// The names of the machines that it still has.
    pub machines: &'a [String],
    /// Another object that has the same identity, and the better claim to it.
    pub rival: Option<&'a Rival>,
    /// What is there now in the places that the last step read.
    pub reads: Option<&'a Reads>,
    /// What is remembered.
    pub memory: Option<&'a Memory>,
}

impl MachineContext<'_> {
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
        if let Some(next) = self.rival.and_then(|rival| give_way(rival, object, scope.kinds)) {
            return next;
        }
        let is_anothers = is_another_programs(object, &finalizer, scope.kinds);
        if !is_anothers && is_without_identity(object, &finalizer, scope.kinds) {
            return say(object, IDENTITY_MISSING, about_identity(scope.kinds));
        }
        if let Some(words) = self.about_another_cluster(scope.kinds) {
            return say(object, CLUSTER_NAME_MISMATCH, words);
        }
        if object.is_deleting() {
            // Without this name the marks in the cloud do not match, and everything would look like another
            // object's.
            if object.marked_cluster(scope.kinds).is_none() {
                return say(object, DELETING, format!("the label {CLUSTER_NAME_LABEL} is missing"));
            }
            let step = if is_anothers { Next::Identify } else { Next::Delete };
            return due(step, self.memory, &self.inputs(scope), self.object, scope.now);
        }
        let (Some(machine), Some(cluster), Some(_)) =
            (self.machine, self.cluster, object.marked_cluster(scope.kinds))
        else {
            return Next::Rest;
        };
        // A machine that exists is followed whatever its surroundings say: the step makes nothing then.
        let exists = object.provider_id().is_some();
        if !exists && !cluster.is_infrastructure_provisioned {
            return self.say_if_it_lasts(
                scope,
                WAITING_FOR_CLUSTER_INFRASTRUCTURE,
                "the infrastructure of the Cluster is not provisioned yet",
            );
        }
        if self.infra_cluster.is_none() {
            let words = format!("there is no {} of the Cluster", scope.kinds.cluster.kind);
            return say(object, WAITING_FOR_CLUSTER_INFRASTRUCTURE, words);
        }
        if self.is_bootstrap_to_be_read() {
            return due(Next::ReadBootstrap, self.memory, &self.inputs(scope), object, scope.now);
        }
        if !exists && !self.needs_no_bootstrap() && self.bootstrap.data().is_none() {
            return self.say_if_it_lasts(scope, WAITING_FOR_BOOTSTRAP_DATA, self.about_bootstrap(machine));
        }
        if is_anothers {
            return due(Next::Identify, self.memory, &self.inputs(scope), self.object, scope.now);
        }
        if is_to_be_adopted(object, &finalizer, scope.kinds) {
            return Next::Adopt;
        }
        due(Next::Ensure, self.memory, &self.inputs(scope), self.object, scope.now)
    }

    /// `clusterctl move` pauses, and then waits for the annotation. So a step that is under way comes to its
    /// end first.
    fn next_while_paused(&self, scope: &Scope<'_>) -> Next {
        let Self { object, .. } = self;
        let cluster_api = (self.machine, self.cluster, self.infra_cluster, self.rival);
        if !object.holds_move()
            || object.is_deleting()
            || self.about_another_cluster(scope.kinds).is_some()
            || !matches!(cluster_api, (Some(_), Some(_), Some(_), None))
        {
            return say_paused(object);
        }
        if self.is_bootstrap_to_be_read() {
            return due(Next::ReadBootstrap, self.memory, &self.inputs(scope), object, scope.now);
        }
        due(Next::Ensure, self.memory, &self.inputs(scope), object, scope.now)
    }

    fn is_bootstrap_to_be_read(&self) -> bool {
        matches!(self.bootstrap, Bootstrap::Unread)
            && needs_bootstrap(self.object)
            && !self.needs_no_bootstrap()
    }

    /// Whether the last step said that the next one can do without the bootstrap data. They count as there
    /// until they are read.
    fn needs_no_bootstrap(&self) -> bool {
        matches!(self.bootstrap, Bootstrap::Unread)
            && self.memory.is_some_and(|memory| memory.needs_no_bootstrap_of(self.object))
    }

    /// Says what it waits for, unless the wait is still young. The core makes objects one after the other, so
    /// most waits for them are over within seconds.
    fn say_if_it_lasts(
        &self,
        scope: &Scope<'_>,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Next {
        let next = say(self.object, reason, message);
        let Next::Say(ready) = next else { return next };
        // As long as the status says that it is paused, each step is due at once.
        if says_paused(self.object) {
            return Next::Say(ready);
        }
        let deferred = self.memory.and_then(|memory| memory.deferred_of(self.object));
        match deferred.filter(|deferred| deferred.says(reason)).map(DeferredStatus::due) {
            None => Next::Defer(ready),
            Some(at) if at > scope.now => Next::At(at),
            Some(_) => Next::Say(ready),
        }
    }

    fn about_another_cluster(&self, kinds: &Kinds) -> Option<String> {
        let owner = self.machine.and_then(|machine| machine.cluster.as_deref());
        about_another_cluster(self.object, owner, &finalizer(kinds, &kinds.machine), kinds)
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
            is_paused: false,
            machine: self.machine.map(Machine::for_steps),
            cluster: self.cluster.map(Cluster::for_steps),
            infra_cluster: self.infra_cluster.map(|found| (found.metadata.uid.clone(), found.generation())),
            has_bootstrap: match self.bootstrap {
                // Nothing is known to be new.
                Bootstrap::Unread => self.memory.is_some_and(|memory| memory.inputs.has_bootstrap),
                read => read.data().is_some(),
            },
            reads: self.reads.cloned().unwrap_or_default(),
            provider: scope.provider,
        }
    }

    /// What the next step gets.
    pub fn request(&self, scope: &Scope<'_>) -> MachineRequest<Value, Value> {
        let Self { object, infra_cluster, .. } = self;
        let endpoint = infra_cluster.and_then(InfraObject::endpoint);
        let endpoint = endpoint.or_else(|| self.cluster.and_then(|cluster| cluster.endpoint.clone()));
        // Null says that there is no cluster. One without a spec says nothing.
        let spec = match infra_cluster.map(|cluster| &cluster.spec) {
            Some(Value::Null) => json!({}),
            Some(spec) => spec.clone(),
            None => Value::Null,
        };
        let is_reconciled = infra_cluster.is_none_or(|cluster| {
            cluster.passes(scope.watch_filter) && !cluster.is_managed_elsewhere() && !cluster.is_deleting()
        });
        let cluster =
            ClusterContext::new(spec).with_control_plane_endpoint(endpoint).reconciled(is_reconciled);
        let bootstrap = self.bootstrap.data().filter(|_| needs_bootstrap(object)).cloned();
        let machine = object.core_owner("Machine").map_or(object.name(), |owner| &owner.name);
        MachineRequest::new(object.machine_mark(scope.kinds), object.spec.clone(), cluster)
            .with_machine_name(machine)
            .with_object_uid(object.metadata.uid.as_deref().unwrap_or_default())
            .with_provider_id(object.provider_id().map(str::to_owned))
            .provisioned(object.is_provisioned())
            .with_node(self.machine.is_some_and(|machine| machine.has_node))
            .with_failure_domain(self.machine.and_then(|machine| machine.failure_domain.clone()))
            .control_plane(self.machine.is_some_and(|machine| machine.is_control_plane))
            .with_group(self.machine.and_then(|machine| machine.group.clone()))
            .with_bootstrap(bootstrap)
    }
}

impl InfraClusterContext<'_> {
    fn about_another_cluster(&self, kinds: &Kinds) -> Option<String> {
        let owner = self.object.core_owner("Cluster").map(|owner| owner.name.as_str());
        about_another_cluster(self.object, owner, &finalizer(kinds, &kinds.cluster), kinds)
    }

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
            let is_sure = self.rival.is_none() && self.about_another_cluster(scope.kinds).is_none();
            if object.holds_move() && !object.is_deleting() && self.cluster.is_some() && is_sure {
                return due(Next::Ensure, self.memory, &self.inputs(scope), object, scope.now);
            }
            return say_paused(object);
        }
        if let Some(next) = self.rival.and_then(|rival| give_way(rival, object, scope.kinds)) {
            return next;
        }
        // What another program made for a cluster is in the spec of the cluster.
        let is_anothers = is_another_programs(object, &finalizer, scope.kinds);
        if !is_anothers && is_without_identity(object, &finalizer, scope.kinds) {
            return say(object, IDENTITY_MISSING, about_identity(scope.kinds));
        }
        if let Some(words) = self.about_another_cluster(scope.kinds) {
            return say(object, CLUSTER_NAME_MISMATCH, words);
        }
        if object.is_deleting() {
            if !self.machines.is_empty() {
                return match say(object, WAITING_FOR_MACHINES, about_machines(self.machines)) {
                    Next::Rest => Next::At(scope.now + MACHINES_INTERVAL),
                    next => next,
                };
            }
            if is_anothers {
                return Next::Adopt;
            }
            return due(Next::Delete, self.memory, &self.inputs(scope), self.object, scope.now);
        }
        if self.cluster.is_none() {
            return Next::Rest;
        }
        if is_to_be_adopted(object, &finalizer, scope.kinds) {
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
            reads: self.reads.cloned().unwrap_or_default(),
            provider: scope.provider,
            ..Inputs::default()
        }
    }

    /// What the next step gets.
    pub fn request(&self, scope: &Scope<'_>) -> ClusterRequest<Value> {
        let of_cluster = || self.cluster.and_then(|cluster| cluster.endpoint.clone());
        let endpoint = self.object.endpoint().or_else(of_cluster);
        ClusterRequest::new(self.object.cluster_mark(scope.kinds), self.object.spec.clone())
            .with_object_uid(self.object.metadata.uid.as_deref().unwrap_or_default())
            .with_control_plane_endpoint(endpoint)
    }
}

/// Whether the next step gets bootstrap data.
fn needs_bootstrap(object: &InfraObject) -> bool {
    !object.is_deleting() && !object.is_provisioned()
}

/// Whether the annotation is missing that says what is its own in the cloud. With another identity nothing
/// would be found, and what is there would be left over.
fn is_without_identity(object: &InfraObject, finalizer: &str, kinds: &Kinds) -> bool {
    object.has_finalizer(finalizer) && object.identity(kinds).is_none()
}

/// Whether another program has worked on it, and this one has not. This program writes two annotations
/// together. One of them may have been removed: then it is ours. Without both, the finalizer or a provider ID
/// says that something may be there.
fn is_another_programs(object: &InfraObject, finalizer: &str, kinds: &Kinds) -> bool {
    let is_unknown = object.identity(kinds).is_none() && object.made_for(kinds).is_none();
    kinds.is_shared && is_unknown && (object.has_finalizer(finalizer) || object.provider_id().is_some())
}

/// Whether finalizer or mark are not written yet. An object of an earlier version lacks a part of the mark.
fn is_to_be_adopted(object: &InfraObject, finalizer: &str, kinds: &Kinds) -> bool {
    !object.has_finalizer(finalizer) || object.made_for(kinds).is_none()
}

/// Why nothing is done about an object whose label names another Cluster than its mark, if it may be a copy:
/// what carries the mark may belong to the object that it was copied from. One that has its own UID cannot be
/// a copy, and keeps its mark.
///
/// Without the annotation only the label has the name in the mark, and a label can change. The `owner` names
/// a Cluster too, which cannot change. So nothing is done about an object with the finalizer while the two
/// differ: under the wrong name nothing would be found, and what was made would be left over.
fn about_another_cluster(
    object: &InfraObject,
    owner: Option<&str>,
    finalizer: &str,
    kinds: &Kinds,
) -> Option<String> {
    let named = object.cluster_name()?;
    let Some(marked) = object.made_for(kinds) else {
        let owner = owner.filter(|owner| object.has_finalizer(finalizer) && *owner != named)?;
        return Some(format!(
            "the annotation {} is missing, the label {CLUSTER_NAME_LABEL} names {named:?}, and the owner belongs to {owner:?}: write \
             the annotation again, with the name of the Cluster that the object was made for",
            cluster_annotation(kinds)
        ));
    };
    (marked != named && !object.is_original(kinds)).then(|| {
        format!(
            "it was made for the Cluster {marked:?}, as the annotation {} says, and the label {CLUSTER_NAME_LABEL} names {named:?}: \
             write the label back, or, if this object is a copy, make it again without the annotations",
            cluster_annotation(kinds)
        )
    })
}

pub(super) fn about_identity(kinds: &Kinds) -> String {
    let (identity, cluster) = (identity_annotation(kinds), cluster_annotation(kinds));
    format!(
        "the annotation {identity} is missing: write it again, with the UID that names what was made in the cloud; if nothing was \
         made, with any UUID. If {cluster} is missing too, write it with the name of the Cluster that the object was made for"
    )
}

/// How many machines are left, and the names of the first.
fn about_machines(names: &[String]) -> String {
    let first = names.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        1 => format!("1 machine is left: {first}"),
        all if all <= MAX_NAMED => format!("{all} machines are left: {first}"),
        all => format!("{all} machines are left: {first} and {} more", all - MAX_NAMED),
    }
}

/// Two objects with one identity would work on one machine, so only one of them may. One that is being
/// deleted asks the cloud, where nothing is touched that carries another mark than its own.
fn give_way(rival: &Rival, object: &InfraObject, kinds: &Kinds) -> Option<Next> {
    if object.is_deleting() {
        // A step would delete what the other object goes on using.
        return rival.has_same_mark.then_some(Next::Release);
    }
    let annotation = identity_annotation(kinds);
    let rival = if rival.is_foreign { "another object".to_owned() } else { format!("{:?}", rival.key) };
    let words = format!(
        "{rival} has the same identity, in the annotation {annotation}, and had it before; it was probably copied: delete this \
         object, and make it again without the annotation"
    );
    Some(say(object, IDENTITY_IN_USE, words))
}

fn say_paused(object: &InfraObject) -> Next {
    if is_said(object, &paused()) && !object.holds_move() { Next::Rest } else { Next::SayPaused }
}

fn say(object: &InfraObject, reason: &'static str, message: impl Into<Cow<'static, str>>) -> Next {
    let ready = Condition::new(READY, ConditionStatus::False, reason).with_message(message);
    if is_said(object, &ready) && is_said(object, &not_paused()) { Next::Rest } else { Next::Say(ready) }
}

/// Whether its status says that it is paused, also after that has ended.
pub(super) fn says_paused(object: &InfraObject) -> bool {
    object.condition(PAUSED).is_some_and(|found| found["status"] == "True")
}

/// A step is due if it never ran, if it would get something new, if its time has come, and after a pause. It
/// is not while the watch shows an object that was let go.
fn due(step: Next, memory: Option<&Memory>, inputs: &Inputs, object: &InfraObject, now: Instant) -> Next {
    if let Some(until) = memory.and_then(|memory| memory.released_until(object, now)) {
        return Next::At(until);
    }
    let is_known = |memory: &&Memory| memory.inputs == *inputs && !says_paused(object);
    let Some(memory) = memory.filter(is_known) else { return step };
    match memory.due {
        Due::At(at) if at > now => Next::At(at),
        Due::Now | Due::At(_) => step,
        Due::WhenChanged => Next::Rest,
    }
}

#[cfg(test)]
mod tests;
