//! One step of a rollout: what the planner is given, and what it plans is written.

use std::{collections::BTreeSet, sync::Arc};

use cluster_api::{
    Machine, MachineDeployment, MachineSet,
    names::{annotations, labels},
};
use component::events::EventType;
use controller_kit::writes::WriteError;
use kube::ResourceExt as _;
use lifecycle::{
    machine_set::{ALPHABET, RANDOM},
    replicas::{Counters, count},
    rollout::{
        self as planner, Candidate, Choice, Counts, Current, Deployment, Marks, Plan, Planned, Share,
        Strategy,
    },
};

use super::{
    desired::{created, name, patch, revision, revision_patch},
    sets::{adopt, is_of, sets_of},
};
use crate::{
    core::Core,
    engine::{
        control::Failure,
        object::{MACHINE_DEPLOYMENT_MANAGER, Meta as _, Stored, key},
        place::{Guard, Place},
        writer::shown,
    },
    kept,
    machine_set::scale_down::{is_marked, marks_are_shown},
    replicas::{Machines, selector},
    rollout::{self, template_of},
};

/// How many sets of a deployment are listed before another one is created.
const LISTED: u32 = 500;

pub(super) async fn roll_out(
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
pub(super) fn desired_before(sets: &[Arc<Stored<MachineSet>>]) -> Option<i32> {
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

/// Whether all Machines are of the current template and available.
fn is_complete(deployment: &MachineDeployment, wanted: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let is = |count: Option<i32>| count.map(i64::from) == Some(wanted.replicas);
    is(status.up_to_date_replicas)
        && is(status.replicas)
        && is(status.available_replicas)
        && status.observed_generation >= deployment.metadata.generation
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
}
