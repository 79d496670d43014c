//! One pass over a Machine.

use std::{borrow::Cow, ops::RangeInclusive, sync::Arc};

use cluster_api::{
    Cluster, Machine, MachineDeployment, MachineSet, MachineStatus,
    defaults::version_with_v,
    names::{annotations, conditions as types, finalizers},
};
use controller_kit::writes::WriteError;
use jiff::Timestamp;
use kube::ResourceExt as _;
use lifecycle::conditions::{Statement, Status};
use serde_json::{Value, json};

use super::{
    deletion::Deletion,
    facts::Pass,
    kept,
    node::{self, Found},
    related::RelatedObjects,
    status::{Observed, status},
};
use crate::{
    adoption::{adopted, without_finalizer},
    core::{Core, Referenced, is_cluster_paused, is_paused, workload_key},
    engine::{
        conditions::{Conditions, paused},
        control::{FailedPass, Failure, Then},
        object::{Meta as _, Stored, key, names_kind},
        status::Urgent,
    },
    machine_set::deployment_of,
};

/// Of `spec.providerID`, in characters, as the definition of Machines allows it.
const PROVIDER_ID_LENGTH: RangeInclusive<usize> = 1..=512;

pub(super) async fn reconcile(core: &Core, of: &str) -> Result<Then, FailedPass> {
    let Some(machine) = core.stores.machines.get(of).filter(|machine| core.is_ours(&***machine)) else {
        return Ok(Then::WhenChanged);
    };
    let now = Timestamp::now().as_second();
    let found = core.cluster(machine.namespace_or_empty(), &machine.spec.cluster_name);
    let cluster = found.as_deref().map(|cluster| &**cluster);
    if is_paused(cluster, &**machine) {
        let status = paused_status(&machine, cluster, now);
        core.writer.patch_status(&core.stores.machines, &**machine, &status).await?;
        return Ok(Then::WhenChanged);
    }
    if cluster.is_none() && !machine.is_deleting() {
        tracing::info!(machine = of, cluster = machine.spec.cluster_name, "waiting for the Cluster to exist");
        return Ok(Then::WhenChanged);
    }
    let machine = match prepared(core, Arc::clone(&machine), cluster).await {
        Err(Failure::Failed(why)) => {
            let why = format!("the Machine cannot be changed: {why}");
            core.writer
                .patch_status(&core.stores.machines, &**machine, &refused_status(&machine, &why, now))
                .await?;
            return Err(Failure::Failed(why).into());
        }
        prepared => prepared?,
    };
    if kept::end(core, &machine, now).await? {
        return Ok(Then::WhenChanged);
    }
    let mut related = RelatedObjects::observe(core, &machine, cluster).await;
    let machine = copied(core, machine, &mut related).await?;
    let workload = workload_key(machine.namespace_or_empty(), &machine.spec.cluster_name);
    let connected = core.workload.get(&workload).ok();
    let node = node::find(connected.as_ref(), machine.spec.provider_id.as_deref());
    let pass = Pass { core, cluster, connected, related, node, now };
    pass.finish(&machine).await
}

/// Finalizer, label, owner and the `v` of its version.
async fn prepared(
    core: &Core,
    machine: Arc<Stored<Machine>>,
    cluster: Option<&Cluster>,
) -> Result<Arc<Stored<Machine>>, Failure> {
    if machine.is_deleting() {
        return Ok(machine);
    }
    let owner = cluster.filter(|_| machine.controller().is_none());
    let mut patch = adopted(&**machine, &machine.spec.cluster_name, finalizers::MACHINE, owner)?;
    let version = machine.spec.version.as_deref().unwrap_or_default();
    if let Cow::Owned(version) = version_with_v(version) {
        patch.get_or_insert_with(|| json!({}))["spec"] = json!({"version": version});
    }
    match patch {
        Some(patch) => Ok(Arc::new(core.writer.patch(&core.stores.machines, &**machine, patch).await?)),
        None => Ok(machine),
    }
}

/// The name of the bootstrap data and the provider ID, from what the Machine refers to. Each by itself: what the API server does not accept
/// of one is not used, and keeps the other from nothing.
async fn copied(
    core: &Core,
    machine: Arc<Stored<Machine>>,
    related: &mut RelatedObjects,
) -> Result<Arc<Stored<Machine>>, Failure> {
    let data = data_of(&machine, related);
    let (machine, refused) = written(core, machine, data).await?;
    if let Some(why) = refused {
        if machine.is_deleting() {
            related.failure = Some(Failure::Failed(why));
        } else {
            related.bootstrap = Some(Referenced::Unreadable(why));
        }
    }
    let id = provider_id_of(&machine, related);
    let (machine, refused) = written(core, machine, id).await?;
    if let Some(why) = refused {
        if machine.is_deleting() {
            // One that it has leads to its Node.
            related.refused_provider_id = Some(why).filter(|_| machine.spec.provider_id.is_none());
        } else {
            related.infrastructure = Referenced::Unreadable(why);
        }
    }
    Ok(machine)
}

/// The Machine with these fields of its spec, or as it was, and why they were not accepted.
async fn written(
    core: &Core,
    machine: Arc<Stored<Machine>>,
    spec: Option<Value>,
) -> Result<(Arc<Stored<Machine>>, Option<String>), Failure> {
    let Some(spec) = spec else { return Ok((machine, None)) };
    match core.writer.patch(&core.stores.machines, &**machine, json!({"spec": spec})).await {
        Ok(written) => Ok((Arc::new(written), None)),
        Err(WriteError::Failed(why)) => {
            Ok((machine, Some(format!("what it says cannot be written to the Machine: {why}"))))
        }
        Err(error) => Err(error.into()),
    }
}

fn data_of(machine: &Machine, related: &RelatedObjects) -> Option<Value> {
    let config = related.bootstrap.as_ref().and_then(Referenced::object)?;
    let is_news = !config.is_deleting()
        && machine.spec.bootstrap.data_secret_name.is_none()
        && config.data_secret_created;
    let name = config.data_secret_name.as_ref().filter(|_| is_news)?;
    Some(json!({"bootstrap": {"dataSecretName": name}}))
}

fn provider_id_of(machine: &Machine, related: &RelatedObjects) -> Option<Value> {
    let infrastructure = related.infrastructure.object()?;
    let status = machine.status.as_ref();
    let was_provisioned = status.and_then(|status| status.initialization.infrastructure_provisioned);
    let is_provisioned = infrastructure.provisioned || was_provisioned.unwrap_or_default();
    let id = infrastructure.provider_id.as_ref()?;
    let counts = if machine.is_deleting() {
        // It takes its Node along, which may be there before its infrastructure is called provisioned. An ID that no Machine may have holds
        // nothing.
        PROVIDER_ID_LENGTH.contains(&id.chars().count())
    } else {
        is_provisioned && !infrastructure.is_deleting()
    };
    (counts && machine.spec.provider_id.as_ref() != Some(id)).then(|| json!({"providerID": id}))
}

fn paused_status(machine: &Machine, cluster: Option<&Cluster>, now: i64) -> MachineStatus {
    let mut status = machine.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(&status.conditions, machine.metadata.generation);
    let is_own = machine.annotations().contains_key(annotations::PAUSED);
    conditions.set(types::PAUSED, paused("Machine", is_cluster_paused(cluster), is_own), now);
    status.conditions = conditions.write();
    status
}

/// The status of a Machine that stays without its finalizer, so nothing is done for it.
fn refused_status(machine: &Machine, why: &str, now: i64) -> MachineStatus {
    let mut status = machine.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(&status.conditions, machine.metadata.generation);
    conditions.set(types::READY, Statement::new(Status::Unknown, "InternalError", why), now);
    status.conditions = conditions.write();
    status
}

/// What users and rollouts act on. The other steps of a new Machine follow each other, and those of a second are one write.
const URGENT: Urgent = Urgent::Only {
    fields: &["nodeRef", "deletion"],
    conditions: &[types::READY, types::AVAILABLE, types::DELETING],
};

/// A `MachineSet` and its `MachineDeployment`.
type Owners = (Arc<Stored<MachineSet>>, Arc<Stored<MachineDeployment>>);

/// Those of a Machine.
fn owners_of(core: &Core, machine: &Machine) -> Option<Owners> {
    let owner = machine.controller().filter(|owner| names_kind(owner, "cluster.x-k8s.io", "MachineSet"))?;
    let set = core.stores.machine_sets.get(&key(machine.namespace_or_empty(), &owner.name))?;
    let deployment = deployment_of(core, &set)?;
    (set.uid_or_empty() == owner.uid).then_some((set, deployment))
}

impl Pass<'_> {
    /// Node, deletion and status. Whatever fails, the status says how far it came.
    async fn finish(mut self, machine: &Arc<Stored<Machine>>) -> Result<Then, FailedPass> {
        let core = self.core;
        let owners = owners_of(core, machine);
        let owners = owners.as_ref().map(|(set, deployment)| (&***set, &***deployment));
        let mut failure = self.related.failure.take();
        if let Referenced::Unreadable(why) = &self.related.infrastructure {
            failure = Some(Failure::Failed(why.clone()));
        }
        if let Some(Referenced::Unreadable(why)) = &self.related.bootstrap {
            failure = Some(Failure::Failed(why.clone()));
        }
        if let Found::Ambiguous(why) = &self.node {
            failure = Some(Failure::Failed(why.clone()));
        }
        if let (Some(node), Some(connected)) = (self.node.node(), &self.connected) {
            node::announce(core, machine, &node.name);
            let infrastructure = self.related.infrastructure.object();
            if let Err(error) = node::write(core, connected, node, machine, infrastructure, owners).await {
                failure = Some(error);
            }
        }
        if let Err(error) = kept::cordon(&self, machine).await {
            failure = Some(error);
        }
        let mut then = Then::WhenChanged;
        let mut stage = None;
        if machine.is_deleting() {
            let deletion = Deletion::new(&self, machine).proceed().await;
            if deletion.is_done {
                if let Some(patch) = without_finalizer(&***machine, finalizers::MACHINE) {
                    core.writer.release(&***machine, patch).await?;
                }
                return Ok(Then::WhenChanged);
            }
            then = deletion.then;
            failure = deletion.failure.or(failure);
            stage = Some((deletion.statement, deletion.times));
        }
        let node_conditions =
            self.cluster.and_then(|cluster| node::conditions(core, machine, cluster, &self.node, self.now));
        let node = self.node.node().map(|node| (node.name.as_str(), node.node_info.as_ref()));
        let observed = Observed {
            cluster: self.cluster,
            related: &self.related,
            node_conditions,
            node,
            owners,
            deletion: stage,
            now: self.now,
        };
        let (status, by_time) = status(machine, &observed);
        let written =
            core.writer.patch_status_soon(&core.stores.machines, &***machine, &status, URGENT).await?;
        let by_time = by_time.or(kept::again(machine, self.now));
        let then = then.or(by_time).or(self.grace()).or(self.until_there(machine)).or(written);
        failure.map_or(Ok(then), |why| Err(FailedPass { why, then }))
    }

    /// When to look again for what the Machine refers to. Of one that is being deleted, nothing is to come.
    fn until_there(&self, machine: &Machine) -> Then {
        if machine.is_deleting() {
            return Then::WhenChanged;
        }
        let bootstrap = self.related.bootstrap.as_ref().map_or(Then::WhenChanged, Referenced::until_there);
        self.related.infrastructure.until_there().or(bootstrap)
    }

    /// While the cluster is away, the conditions of the Node change with time alone.
    fn grace(&self) -> Then {
        match &self.node {
            Found::NotConnected if self.cluster.is_some() => Then::After(std::time::Duration::from_secs(30)),
            _ => Then::WhenChanged,
        }
    }
}
