//! One pass over a `MachineDeployment`.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cluster_api::{
    Cluster, Machine, MachineDeployment, MachineSet,
    names::{annotations, finalizers, labels},
};
use component::events::EventType;
use controller_kit::writes::WriteError;
use jiff::Timestamp;
use kube::ResourceExt as _;
use lifecycle::{
    machine_set::{ALPHABET, RANDOM},
    replicas::{Counters, count},
    rollout::{
        self as planner, Candidate, Choice, Counts, Current, Deployment, Marks, Plan, Planned, Share,
        Strategy,
    },
};
use serde_json::json;

use super::{
    desired::{created, name, patch, revision, revision_patch},
    status::{Observed, Owned, status},
};
use crate::{
    adoption::{adopted, defaults, without_finalizer},
    core::{Core, UNTIL_THERE, is_paused},
    engine::{
        control::{FailedPass, Failure, Then},
        object::{MACHINE_DEPLOYMENT_MANAGER, Meta as _, Stored, key, owner_reference},
        place::{Guard, Place},
        status::Urgent,
        writer::{shown, to_json},
    },
    kept,
    machine_set::{
        Unusable,
        scale_down::{is_marked, marks_are_shown},
        unusable_templates,
    },
    replicas::{Machines, selector, selects},
    rollout::{self, template_of},
};

pub(super) async fn reconcile(core: &Core, of: &str) -> Result<Then, FailedPass> {
    let found = core.stores.machine_deployments.get(of);
    let Some(deployment) = found.filter(|deployment| core.is_ours(&***deployment)) else {
        return Ok(Then::WhenChanged);
    };
    let now = Timestamp::now().as_second();
    let cluster = core.cluster(deployment.namespace_or_empty(), &deployment.spec.cluster_name);
    let cluster = cluster.as_deref().map(|cluster| &**cluster);
    if is_paused(cluster, &**deployment) {
        let status = status(&deployment, &Observed { cluster, ..Observed::default() }, now);
        core.writer.patch_status(&core.stores.machine_deployments, &**deployment, &status).await?;
        return Ok(Then::WhenChanged);
    }
    if deployment.is_deleting() {
        return Ok(delete(core, &deployment, cluster, now).await?);
    }
    let Some(cluster) = cluster else {
        tracing::info!(
            machine_deployment = of,
            cluster = deployment.spec.cluster_name,
            "waiting for the Cluster to exist"
        );
        return Ok(Then::WhenChanged);
    };
    let mut sets = core.stores.machine_sets.all();
    // Without a selector, it controls no others.
    sets.retain(|set| set.controller().is_some_and(|owner| owner.uid == deployment.uid_or_empty()));
    let operations = defaults(&**deployment, desired_before(&sets))?;
    let deployment = if operations.is_empty() {
        deployment
    } else {
        let store = &core.stores.machine_deployments;
        Arc::new(core.writer.patch_by_operations(store, &**deployment, &operations).await?)
    };
    let name = &deployment.spec.cluster_name;
    let deployment = match adopted(&**deployment, name, finalizers::MACHINE_DEPLOYMENT, Some(cluster))? {
        Some(patch) => {
            Arc::new(core.writer.patch(&core.stores.machine_deployments, &**deployment, patch).await?)
        }
        None => deployment,
    };
    let unusable =
        unusable_templates(core, deployment.namespace_or_empty(), &deployment.spec.template.spec, cluster);
    let Unusable { missing, unreadable } = unusable.await?;
    let mut rolled = roll_out(core, &deployment, &missing, now).await;
    if let (Ok(()), Some(why)) = (&rolled, unreadable.first()) {
        // No event says when that changes.
        rolled = Err(Failure::Failed(why.clone()));
    }
    // The annotation with the revision may have changed.
    let deployment = core.stores.machine_deployments.get(of).unwrap_or(deployment);
    let sets = sets_of(core, &deployment)?;
    let machines = machines_of(core, &deployment)?;
    let counted = counted(core, &deployment, &sets);
    let owned = Some(Owned { sets: sets.len(), counted: &counted, selected: &machines });
    let observed =
        Observed { cluster: Some(cluster), owned, missing_templates: &missing, holds: &unreadable };
    let status = status(&deployment, &observed, now);
    let written = core
        .writer
        .patch_status_soon(&core.stores.machine_deployments, &**deployment, &status, Urgent::All)
        .await?;
    let until_there = if missing.is_empty() { Then::WhenChanged } else { Then::After(UNTIL_THERE) };
    let then = after(&deployment, now).or(until_there).or(written);
    rolled.map(|()| then).map_err(|why| FailedPass { why, then })
}

/// How many sets of a deployment are listed before another one is created.
const LISTED: u32 = 500;

/// When `spec.rollout.after` comes.
fn after(deployment: &MachineDeployment, now: i64) -> Then {
    let after = deployment.spec.rollout.after.as_ref().map(|after| after.0.as_second());
    let left = after.map(|after| after.saturating_sub(now)).and_then(|left| u64::try_from(left).ok());
    left.filter(|left| *left > 0).map_or(Then::WhenChanged, |left| Then::After(Duration::from_secs(left)))
}

async fn roll_out(
    core: &Core,
    deployment: &Stored<MachineDeployment>,
    missing_templates: &[String],
    now: i64,
) -> Result<(), Failure> {
    for set in sets_of(core, deployment)? {
        adopt(core, deployment, &set).await?;
    }
    let Some(wanted) = rollout::deployment(deployment) else { return Ok(()) };
    let sets = sets_of(core, deployment)?;
    let had = desired_before(&sets).map(i64::from);
    if wanted.replicas > 0 && had.is_some_and(|had| had > wanted.replicas) {
        let namespace = deployment.namespace_or_empty();
        marks_are_shown(core, namespace, &selector(&deployment.spec.selector)?).await?;
    }
    let choice = choose(deployment, &sets, now);
    let random = (0..RANDOM).map(|_| char::from(ALPHABET[fastrand::usize(..ALPHABET.len())])).collect();
    let pass = Pass { core, deployment, wanted, sets, choice, random };
    let is_paused = deployment.spec.paused.unwrap_or_default();
    let plan = if is_paused { Some(pass.scaled()) } else { pass.planned(missing_templates.is_empty()) };
    let Some(mut plan) = plan else { return Ok(()) };
    pass.prefer_marked(&mut plan);
    pass.write_all(&plan).await?;
    if !is_paused && is_complete(deployment, &pass.wanted) {
        pass.clean_up().await?;
    }
    Ok(())
}

fn choose(deployment: &MachineDeployment, sets: &[Arc<Stored<MachineSet>>], now: i64) -> Choice {
    let wanted = template_of(&deployment.spec.template.spec);
    let candidates: Vec<_> = sets
        .iter()
        .map(|set| Candidate {
            name: set.name_or_empty(),
            created: set.created(),
            replicas: set.spec.replicas.unwrap_or_default().into(),
            has_template: template_of(&set.spec.template.spec) == wanted,
        })
        .collect();
    let after = deployment.spec.rollout.after.as_ref().map(|after| after.0.as_second());
    planner::choose(&candidates, after, now)
}

/// What a pass decides on.
struct Pass<'a> {
    core: &'a Core,
    deployment: &'a Stored<MachineDeployment>,
    /// The deployment as the planner sees it.
    wanted: Deployment,
    sets: Vec<Arc<Stored<MachineSet>>>,
    /// Which of `sets` is the current one.
    choice: Choice,
    /// The end of the name of a new set.
    random: String,
}

impl Pass<'_> {
    fn set(&self, index: usize) -> planner::MachineSet {
        machine_set(self.core, &self.sets[index])
    }

    fn is_current(&self, name: &str) -> bool {
        match self.choice.current {
            Some(current) => self.sets[current].name_or_empty() == name,
            None => !self.sets.iter().any(|set| set.name_or_empty() == name),
        }
    }

    /// The next step of the rollout. `None`: a `MachineSet` is needed that cannot be created.
    fn planned(&self, has_templates: bool) -> Option<Plan> {
        let Self { deployment, sets, choice, .. } = self;
        let current = match choice.current {
            Some(current) => Current::Exists(self.set(current)),
            None if has_templates => Current::New { name: name(deployment, &self.random) },
            None => return None,
        };
        let old = choice.old.iter().map(|old| self.set(old.index)).collect();
        let is_of_set = |machine: &Machine| sets.iter().any(|set| is_of(machine, set));
        let machines: Vec<_> = self
            .core
            .machines_in(deployment.namespace_or_empty(), is_of_set)
            .iter()
            .map(|machine| planner::Machine {
                name: machine.name_or_empty().to_owned(),
                machine_set: machine.controller().map(|owner| owner.name.clone()).unwrap_or_default(),
                pending_acknowledge: machine
                    .annotations()
                    .contains_key(annotations::PENDING_ACKNOWLEDGE_MOVE),
                updating: machine.annotations().contains_key(annotations::UPDATE_IN_PROGRESS),
            })
            .collect();
        Some(planner::plan(&self.wanted, current, old, &machines))
    }

    /// For a deployment whose rollout is paused: the sets stay, and share what is scaled.
    fn scaled(&self) -> Plan {
        let Self { deployment, sets, choice, .. } = self;
        let share = |index: usize| {
            let set = &sets[index];
            let number = |annotation| set.annotation(annotation).and_then(|text: &str| text.parse().ok());
            Share {
                name: set.name_or_empty().to_owned(),
                created: set.created(),
                replicas: set.spec.replicas.unwrap_or_default().into(),
                available: self.set(index).status.available,
                desired: number(annotations::DESIRED_REPLICAS),
                max: number(annotations::MAX_REPLICAS),
            }
        };
        let current = choice.current.map(share);
        let old: Vec<_> = choice.old.iter().map(|old| share(old.index)).collect();
        let has = deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
        let sizes = planner::scale(&self.wanted, has.into(), current.as_ref(), &old);
        let order = choice.current.into_iter().chain(choice.old.iter().map(|old| old.index));
        let machine_sets = order.map(|index| {
            let set = self.set(index);
            let size = sizes.iter().find(|(name, _)| *name == set.name).map(|(_, size)| *size);
            Planned {
                replicas: size.unwrap_or(set.replicas),
                creates_no_machines: self.wanted.strategy == Strategy::OnDelete
                    && !self.is_current(&set.name),
                name: set.name,
                revision: set.revision,
                moves_machines_to: None,
                receives_machines_from: BTreeSet::new(),
                acknowledged: BTreeSet::new(),
                reasons: Vec::new(),
            }
        });
        Plan { machine_sets: machine_sets.collect() }
    }

    /// Lets marked Machines go first, if the deployment was scaled down since its sets were written.
    fn prefer_marked(&self, plan: &mut Plan) {
        let Some(had) = desired_before(&self.sets).map(i64::from) else { return };
        if had <= self.wanted.replicas {
            return;
        }
        let marks: Vec<_> = self.sets.iter().map(|set| marks(self.core, set)).collect();
        planner::prefer_marked(&self.wanted, had, &marks, plan);
    }

    async fn write_all(&self, plan: &Plan) -> Result<(), Failure> {
        let Self { core, deployment, .. } = self;
        let mut revision = None;
        for planned in &plan.machine_sets {
            if self.is_current(&planned.name) {
                revision = planned.revision.as_ref().map(|revision| revision.number);
            }
            self.write(planned).await?;
        }
        if let Some(patch) = revision.and_then(|revision| revision_patch(deployment, revision)) {
            core.writer.patch(&core.stores.machine_deployments, &***deployment, patch).await?;
        }
        Ok(())
    }

    async fn write(&self, planned: &Planned) -> Result<(), Failure> {
        let Self { core, deployment, wanted, .. } = self;
        let name = &planned.name;
        let Some(set) = self.sets.iter().find(|set| set.name_or_empty() == name) else {
            // The answer to an earlier creation may be lost and the watch late, and each set has another name.
            let (namespace, of) = (deployment.namespace_or_empty(), deployment.name_or_empty());
            let label = (labels::DEPLOYMENT_NAME, of);
            let there = core.writer.names_of::<MachineSet>(namespace, label, LISTED).await?;
            if there.iter().any(|name| core.stores.machine_sets.get(&key(namespace, name)).is_none()) {
                return Err(Failure::Stale);
            }
            let set = created(deployment, wanted, planned, &self.random);
            core.writer.apply(&core.stores.machine_sets, MACHINE_DEPLOYMENT_MANAGER, &set).await?;
            tracing::info!(machine_set = name, replicas = planned.replicas, "MachineSet created");
            let message = format!("Created MachineSet {name} with {} replicas", planned.replicas);
            core.record(&***deployment, EventType::Normal, "SuccessfulCreate", message);
            return Ok(());
        };
        if set.is_deleting() {
            return Ok(());
        }
        let Some(patch) = patch(deployment, wanted, planned, set)? else { return Ok(()) };
        let (place, guard) = (Place::of(&***set), Guard::of(&***set));
        let written: MachineSet =
            core.writer.patch_by(&place, guard, MACHINE_DEPLOYMENT_MANAGER, patch).await?;
        shown(&core.stores.machine_sets, written).await?;
        let before = i64::from(set.spec.replicas.unwrap_or_default());
        if before != planned.replicas {
            let why: Vec<_> = planned.reasons.iter().map(ToString::to_string).collect();
            let after = planned.replicas;
            tracing::info!(machine_set = name, before, after, why = why.join("; "), "MachineSet scaled");
            let direction = if after > before { "up" } else { "down" };
            let message = format!("Scaled {direction} MachineSet {name}: {before} -> {after}");
            core.record(&***deployment, EventType::Normal, "SuccessfulScale", message);
        }
        Ok(())
    }

    /// Deletes old `MachineSet`s without Machines.
    async fn clean_up(&self) -> Result<(), Failure> {
        let core = self.core;
        for set in self.choice.old.iter().map(|old| &self.sets[old.index]) {
            let status = set.status.as_ref();
            let has_seen = status.is_some_and(|status| status.observed_generation >= set.metadata.generation);
            let is_empty = status.is_some_and(|status| status.replicas == Some(0));
            if set.spec.replicas != Some(0) || !is_empty || !has_seen || set.is_deleting() {
                continue;
            }
            // They would go with it before their time.
            if !kept::machines_of(core, set).is_empty() {
                continue;
            }
            // The version is a condition: another program may have scaled it meanwhile.
            match core.writer.delete_at(&Place::of(&***set), Guard::of(&***set)).await {
                Ok(()) | Err(WriteError::Gone) => {}
                Err(error) => return Err(error.into()),
            }
            let message = format!("Deleted MachineSet {:?}", set.name_or_empty());
            core.record(&**self.deployment, EventType::Normal, "SuccessfulDelete", message);
        }
        Ok(())
    }
}

/// How many replicas the deployment had when its sets were last written. A set that is being deleted is not written any more.
fn desired_before(sets: &[Arc<Stored<MachineSet>>]) -> Option<i32> {
    let desired =
        |set: &Arc<Stored<MachineSet>>| set.annotation(annotations::DESIRED_REPLICAS)?.parse::<i32>().ok();
    sets.iter().filter(|set| !set.is_deleting()).filter_map(desired).max()
}

fn marks(core: &Core, set: &MachineSet) -> Marks {
    let machines =
        core.machines_in(set.namespace_or_empty(), |machine| is_of(machine, set) && !machine.is_deleting());
    let (marked, others): (Vec<_>, Vec<_>) =
        machines.into_iter().partition(|machine| is_marked(core, machine));
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let (marked_count, others_count) = (number(marked.len()), number(others.len()));
    let available = |machines| count(&Machines::new(machines).replicas()).available;
    let marked_available = available(marked);
    Marks {
        name: set.name_or_empty().to_owned(),
        replicas: set.spec.replicas.unwrap_or_default().into(),
        machines: marked_count + others_count,
        available: marked_available + available(others),
        marked: marked_count,
        marked_available,
    }
}

/// A `MachineSet` as the planner sees it. Its Machines are counted here: the status of the set may be a second late.
fn machine_set(core: &Core, set: &MachineSet) -> planner::MachineSet {
    let machines =
        Machines::counted(core.machines_in(set.namespace_or_empty(), |machine| is_of(machine, set)));
    let Counters { replicas, available, up_to_date, .. } = count(&machines.replicas());
    // All of them go with it, so others have to stay in their place.
    let available = if set.is_deleting() { 0 } else { available };
    planner::MachineSet {
        name: set.name_or_empty().to_owned(),
        created: set.created(),
        replicas: set.spec.replicas.unwrap_or_default().into(),
        status: Counts { replicas, available, up_to_date },
        updatable_in_place: false,
        acknowledged: BTreeSet::new(),
        revision: revision(set),
    }
}

fn is_of(machine: &Machine, set: &MachineSet) -> bool {
    machine.controller().is_some_and(|owner| owner.uid == set.uid_or_empty())
}

/// Whether all Machines are of the current template and available.
fn is_complete(deployment: &MachineDeployment, wanted: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let is = |count: Option<i32>| count.map(i64::from) == Some(wanted.replicas);
    is(status.up_to_date_replicas)
        && is(status.replicas)
        && is(status.available_replicas)
        && status.observed_generation >= deployment.metadata.generation
}

async fn delete(
    core: &Core,
    deployment: &Stored<MachineDeployment>,
    cluster: Option<&Cluster>,
    now: i64,
) -> Result<Then, Failure> {
    let sets = sets_of(core, deployment)?;
    if sets.is_empty() {
        if let Some(patch) = without_finalizer(&**deployment, finalizers::MACHINE_DEPLOYMENT) {
            core.writer.release(&**deployment, patch).await?;
        }
        return Ok(Then::WhenChanged);
    }
    for set in sets.iter().filter(|set| !set.is_deleting()) {
        core.writer.delete(&core.stores.machine_sets, &***set).await?;
    }
    let machines = machines_of(core, deployment)?;
    let counted = counted(core, deployment, &sets);
    let owned = Some(Owned { sets: sets.len(), counted: &counted, selected: &machines });
    let observed = Observed { cluster, owned, ..Observed::default() };
    let status = status(deployment, &observed, now);
    Ok(core
        .writer
        .patch_status_soon(&core.stores.machine_deployments, &**deployment, &status, Urgent::All)
        .await?)
}

/// The `MachineSet`s that the deployment selects or controls, and that nothing else controls.
fn sets_of(core: &Core, deployment: &MachineDeployment) -> Result<Vec<Arc<Stored<MachineSet>>>, Failure> {
    let selector = selector(&deployment.spec.selector)?;
    let uid = deployment.uid_or_empty();
    let mut sets: Vec<_> = core
        .stores
        .machine_sets
        .all()
        .into_iter()
        .filter(|set| set.namespace_or_empty() == deployment.namespace_or_empty())
        .filter(|set| match set.controller() {
            Some(owner) => owner.uid == uid,
            None => selects(&selector, set.labels()),
        })
        .collect();
    sets.sort_by(|one, other| one.name_or_empty().cmp(other.name_or_empty()));
    Ok(sets)
}

/// The Machines that the sets control.
fn counted(core: &Core, deployment: &MachineDeployment, sets: &[Arc<Stored<MachineSet>>]) -> Machines {
    Machines::counted(
        core.machines_in(deployment.namespace_or_empty(), |machine| {
            sets.iter().any(|set| is_of(machine, set))
        }),
    )
}

fn machines_of(core: &Core, deployment: &MachineDeployment) -> Result<Machines, Failure> {
    let selector = selector(&deployment.spec.selector)?;
    let namespace = deployment.namespace_or_empty();
    Ok(Machines::new(core.machines_in(namespace, |machine| selects(&selector, machine.labels()))))
}

/// Makes the deployment the controller of a `MachineSet` that has none.
async fn adopt(core: &Core, deployment: &MachineDeployment, set: &Stored<MachineSet>) -> Result<(), Failure> {
    if set.controller().is_some() || set.is_deleting() {
        return Ok(());
    }
    let mut owners = set.owner_references().to_vec();
    owners.push(owner_reference(deployment, true));
    let patch = json!({"metadata": {"ownerReferences": to_json(&owners)?}});
    core.writer.patch(&core.stores.machine_sets, &**set, patch).await?;
    let message = format!("Adopted MachineSet {:?}", set.name_or_empty());
    core.record(deployment, EventType::Normal, "SuccessfulAdopt", message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Stage, object};

    #[tokio::test(start_paused = true)]
    async fn nothing_relies_on_the_machines_of_a_set_that_goes() {
        const CORE: &str = "cluster.x-k8s.io/v1beta2";
        let stage = Stage::new().await;
        let reference = json!({"apiGroup": "g", "kind": "K", "name": "n"});
        let spec =
            json!({"clusterName": "c", "bootstrap": {"dataSecretName": "s"}, "infrastructureRef": reference});
        let mut set = object(CORE, "MachineSet", "s");
        set["spec"] = json!({"clusterName": "c", "replicas": 1, "selector": {}, "template": {"spec": spec}});
        let set = stage.create(set).await;
        let mut machine = object(CORE, "Machine", "m");
        machine["metadata"]["ownerReferences"] = json!([{
            "apiVersion": CORE, "kind": "MachineSet", "name": "s", "uid": set["metadata"]["uid"], "controller": true,
        }]);
        machine["spec"] = spec;
        machine["status"] = json!({"conditions": [{
            "type": "Available", "status": "True", "reason": "Available", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        stage.create(machine).await;
        stage.until(&stage.core.stores.machines, "m", |machine| machine.status.is_some()).await;
        let counts = |set: &MachineSet| {
            let Counts { replicas, available, .. } = machine_set(&stage.core, set).status;
            (replicas, available)
        };
        let mut set: MachineSet = serde_json::from_value(set).expect("a MachineSet");
        assert_eq!(counts(&set), (1, 1));
        set.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
        assert_eq!(counts(&set), (1, 0));
    }

    #[test]
    fn a_pass_comes_when_the_rollout_begins() {
        let begins = |at: i64| {
            let time = jiff::Timestamp::from_second(at).expect("a time").to_string();
            let object = json!({"metadata": {}, "spec": {
                "clusterName": "c", "selector": {}, "rollout": {"after": time},
                "template": {"spec": {
                    "clusterName": "c", "bootstrap": {"dataSecretName": "s"},
                    "infrastructureRef": {"apiGroup": "g", "kind": "K", "name": "n"},
                }},
            }});
            serde_json::from_value::<MachineDeployment>(object).expect("a MachineDeployment")
        };
        assert_eq!(after(&begins(160), 100), Then::After(Duration::from_secs(60)));
        assert_eq!(after(&begins(100), 100), Then::WhenChanged);
        assert_eq!(after(&begins(40), 100), Then::WhenChanged);
    }
}
