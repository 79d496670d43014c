//! What no write may do, whatever happens.
//!
//! | Rule | Judged when |
//! |---|---|
//! | A `MachineSet` has at most `spec.replicas` Machines, those that go included | a daemon creates one |
//! | A deployment has at most `replicas + maxSurge` Machines that stay | a daemon creates one |
//! | Its sets want no more than that together | a daemon enlarges one |
//! | `replicas - maxUnavailable` Machines go on working | a daemon deletes one that works |
//! | A Machine has one infrastructure machine and one bootstrap config in its life | a daemon creates one |
//! | A Machine that is kept goes with its set, its deployment, its Cluster or by a user; one of a set is kept | a daemon deletes one, lets go of one, or deletes a set |
//! | Infrastructure, bootstrap config and Node go with their Machine, and nothing else does | a daemon deletes one |
//! | Nothing lets go of its object before what belongs to it is gone | a daemon takes the finalizer away |
//! | Nothing is written to what is paused, but that it is | a daemon writes |
//! | Strangers are not touched | a daemon writes |
//!
//! A bound counts for a minute after it was changed ([`LATE`]): a daemon may have decided before. A Machine that a daemon had sent when its
//! term ended may be one too many.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::kept::KEPT_OF;

use super::{
    super::record::{By, Write},
    model::{LATE, State, daemon},
};

/// The name of what is not ours begins so.
pub(super) const STRANGER: &str = "stranger";

/// After this time, every daemon has seen that an object is paused.
const PAUSE_SEEN: Duration = Duration::from_secs(20);

const ALL: [&str; 6] =
    ["machines", "machinesets", "machinedeployments", "fakemachines", "fakeconfigs", "clusters"];

pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(super) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The UID of its controller.
pub(super) fn controller(object: &Value) -> &str {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let mut controllers = owners.filter(|owner| owner["controller"] == true);
    controllers.next().and_then(|owner| owner["uid"].as_str()).unwrap_or_default()
}

/// Whether a Machine is kept to be looked at. No time is over in a history: the clock of the machine goes on as ever.
pub(super) fn is_kept(machine: &Value) -> bool {
    machine["metadata"]["labels"][KEPT_OF].is_string()
        && controller(machine).is_empty()
        && !is_deleting(machine)
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|one| one["type"] == kind)
}

pub(super) fn says(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|one| one["status"] == status)
}

fn number(of: &Value) -> usize {
    of.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
}

impl State {
    pub(super) fn deployment(&self, place: usize) -> Option<&Value> {
        self.get(place, "machinedeployments", "d")
    }

    /// The sets of the deployment.
    pub(super) fn sets(&self, place: usize) -> impl Iterator<Item = (&str, &Value)> {
        let owner = self.deployment(place).map_or("none", uid).to_owned();
        self.all(place, "machinesets").filter(move |(_, set)| controller(set) == owner)
    }

    pub(super) fn machines_of(&self, place: usize, set: &Value) -> impl Iterator<Item = (&str, &Value)> {
        let owner = uid(set).to_owned();
        self.all(place, "machines").filter(move |(_, machine)| controller(machine) == owner)
    }

    fn stays(&self, place: usize) -> Vec<(&str, &Value)> {
        let of_sets = self.sets(place).flat_map(|(_, set)| self.machines_of(place, set));
        of_sets.filter(|(_, machine)| !is_deleting(machine)).collect()
    }

    /// Whether the Node of a Machine is Ready, and the Machine stays.
    pub(super) fn works(&self, place: usize, name: &str) -> bool {
        self.get(place, "machines", name).is_some_and(|machine| !is_deleting(machine))
            && self.get(place, "nodes", name).is_some_and(|node| says(node, "Ready", "True"))
    }

    fn breaks(&mut self, what: String) {
        if self.broken.len() < 5 {
            self.broken.push(what);
        }
    }

    fn is_paused(&self, place: usize, plural: &str, name: &str) -> bool {
        let since = self.paused.get(&(place, plural.to_owned(), name.to_owned()));
        since.is_some_and(|since| since.elapsed() > PAUSE_SEEN)
    }
}

/// How many Machines a deployment may have, and how many have to work.
fn bounds(deployment: &Value) -> (usize, usize) {
    let spec = &deployment["spec"];
    let replicas = number(&spec["replicas"]);
    let strategy = &spec["rollout"]["strategy"];
    if strategy["type"] == "OnDelete" {
        // A user decides what works, and old Machines beyond the replicas go whether the new ones work or not.
        return (replicas, 0);
    }
    let rolling = &strategy["rollingUpdate"];
    let surge = rolling["maxSurge"].as_u64().map_or(1, |_| number(&rolling["maxSurge"]));
    let unavailable = number(&rolling["maxUnavailable"]);
    let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
    (replicas + surge, replicas.saturating_sub(unavailable))
}

/// Judges a write by what was before it.
pub(super) fn before(state: &mut State, write: &Write, before: Option<&Value>) {
    let place = write.place;
    let Some(is_leader) = daemon(state, write) else {
        notice_failures(state, write, before);
        return;
    };
    let (plural, name) = (write.plural.as_str(), write.name.as_str());
    let what = format!("{:?} {} {plural} {name}", write.by, write.verb);
    if name.starts_with(STRANGER) {
        state.breaks(format!("{what}, a stranger"));
    }
    if let (Some(before), Some(after)) = (before, &write.after)
        && is_leader
    {
        judge_pause(state, place, &what, before, after, plural, name);
    }
    let begins_to_go = before.is_some_and(|before| !is_deleting(before))
        && write.after.as_ref().is_none_or(is_deleting)
        && write.verb == http::Method::DELETE;
    let machine = state.get(place, "machines", name);
    let is_going = machine.is_none_or(is_deleting);
    match plural {
        "fakemachines" | "fakeconfigs" | "nodes" if begins_to_go && !is_going => {
            state.breaks(format!("{what}, and its Machine stays"));
        }
        "fakemachines" | "fakeconfigs"
            if before.is_none() && !state.used.insert((plural.to_owned(), name.to_owned())) =>
        {
            state.breaks(format!("{what} for the second time"));
        }
        "machines" if begins_to_go && before.is_some_and(is_kept) => judge_end(state, place, &what, before),
        "machines" if begins_to_go => judge_deletion(state, place, &what, name),
        "machinesets"
            if begins_to_go && !kept_of(state, place, name).is_empty() && !all_goes(state, place) =>
        {
            state.breaks(format!("{what}, and one of its Machines is kept"));
        }
        _ => {}
    }
    if write.after.is_none() && ALL.contains(&plural) {
        let left = left_behind(state, place, plural, name, before);
        if !left.is_empty() {
            state.breaks(format!("{what} is gone and leaves {left:?}"));
        }
    }
}

/// What belongs to an object.
fn left_behind(state: &State, place: usize, plural: &str, name: &str, object: Option<&Value>) -> Vec<String> {
    let owner = object.map(uid).unwrap_or_default();
    let owned = |plural: &str| -> Vec<String> {
        let all = state.all(place, plural).filter(|(_, one)| controller(one) == owner);
        all.map(|(name, _)| format!("{plural} {name}")).collect()
    };
    match plural {
        "machines" => {
            let kinds = ["fakemachines", "fakeconfigs"];
            let left = kinds.iter().filter(|kind| state.get(place, kind, name).is_some());
            left.map(|kind| (*kind).to_owned()).collect()
        }
        "machinesets" => owned("machines"),
        "machinedeployments" => owned("machinesets"),
        "clusters" => {
            let kinds = ["machines", "machinesets", "machinedeployments"];
            let of_cluster = kinds.iter().flat_map(|kind| state.all(place, kind));
            let left = of_cluster.filter(|(_, object)| object["spec"]["clusterName"] == name);
            left.map(|(name, _)| name.to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

/// A write of a user or the provider may be the end of a Machine that works.
fn notice_failures(state: &mut State, write: &Write, before: Option<&Value>) {
    let (place, name) = (write.place, &write.name);
    let stops = match write.plural.as_str() {
        "nodes" => write.after.as_ref().is_none_or(|node| !says(node, "Ready", "True")),
        "machines" => write.after.as_ref().is_none_or(is_deleting),
        _ => false,
    };
    if stops && before.is_some() && state.works(place, name) {
        state.failed.insert(name.clone(), Instant::now());
    }
    if write.plural == "machinesets"
        && write.verb == http::Method::DELETE
        && let Some(set) = before
    {
        state.deleted_sets.insert(uid(set).to_owned());
    }
}

fn judge_pause(
    state: &mut State,
    place: usize,
    what: &str,
    before: &Value,
    after: &Value,
    plural: &str,
    name: &str,
) {
    let of_cluster = ALL.contains(&plural) || plural == "nodes" || plural == "machinehealthchecks";
    let is_paused = (of_cluster && state.is_paused(place, "clusters", "c"))
        || (plural == "machinedeployments" && state.is_paused(place, plural, name));
    if is_paused {
        state.count("writes to what is paused");
    }
    // What was created meanwhile gets its first status.
    if is_paused && before["status"].is_object() && without_pause(before) != without_pause(after) {
        state.breaks(format!("{what}, which is paused"));
    }
    let is_held = plural == "machinesets" && state.is_paused(place, "machinedeployments", "d");
    if is_held && before["spec"]["replicas"] != after["spec"]["replicas"] {
        state.breaks(format!("{what}, whose deployment is paused"));
    }
}

/// An object without what is written to one that is paused.
fn without_pause(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"].take();
    object["metadata"]["managedFields"].take();
    object["status"]["observedGeneration"].take();
    // Of an object that is paused when it comes, a scale client needs it.
    object["status"]["selector"].take();
    let conditions = object["status"]["conditions"].as_array_mut();
    let mut others: Vec<Value> = conditions.map(std::mem::take).unwrap_or_default();
    others.retain(|one| one["type"] != "Paused");
    for one in &mut others {
        one["observedGeneration"].take();
    }
    object["status"]["conditions"] = others.into();
    object
}

/// The Machines of a set that are kept.
fn kept_of<'a>(state: &'a State, place: usize, set: &str) -> Vec<&'a str> {
    let is_one = |machine: &Value| is_kept(machine) && machine["metadata"]["labels"][KEPT_OF] == set;
    state.all(place, "machines").filter(|(_, machine)| is_one(machine)).map(|(name, _)| name).collect()
}

/// Whether deployment or Cluster are gone or go.
fn all_goes(state: &State, place: usize) -> bool {
    let is_over = |object: Option<&Value>| object.is_none_or(is_deleting);
    is_over(state.deployment(place)) || is_over(state.get(place, "clusters", "c"))
}

fn judge_end(state: &mut State, place: usize, what: &str, machine: Option<&Value>) {
    let set = machine.and_then(|machine| machine["metadata"]["labels"][KEPT_OF].as_str()).unwrap_or_default();
    let set = state.get(place, "machinesets", set);
    if !all_goes(state, place) && set.is_some_and(|set| !is_deleting(set)) {
        state.breaks(format!("{what}, which is kept"));
    }
}

fn judge_deletion(state: &mut State, place: usize, what: &str, name: &str) {
    let Some(machine) = state.get(place, "machines", name) else { return };
    let set = state.sets(place).find(|(_, set)| uid(set) == controller(machine));
    let is_over = |object: Option<&Value>| object.is_none_or(is_deleting);
    let is_excused = is_over(state.deployment(place))
        || is_over(state.get(place, "clusters", "c"))
        || set.is_none_or(|(_, set)| state.deleted_sets.contains(uid(set)))
        || machine["metadata"]["annotations"]["cluster.x-k8s.io/delete-machine"].is_string()
        || says(machine, "HealthCheckSucceeded", "False")
        // That it works is not known yet.
        || !says(machine, "Available", "True")
        || !state.works(place, name);
    if is_excused {
        return;
    }
    if let Some((_, set)) = set
        && is_deleting(set)
    {
        state.breaks(format!("{what}, since its set goes, which no user wanted"));
        return;
    }
    state.count("deletions of Machines that work");
    let working = state.stays(place).iter().filter(|(name, _)| state.works(place, name)).count();
    let failed = state.failed.values().filter(|at| at.elapsed() < LATE).count();
    let least = state.bounds.values().map(|(_, least)| least).min().unwrap_or_default();
    if working - 1 + failed < least {
        state.breaks(format!(
            "{what}: {} of at least {least} go on working, {failed} failed lately",
            working - 1
        ));
    }
}

/// Judges a write by what is after it.
pub(super) fn after(state: &mut State, write: &Write, before: Option<&Value>) {
    let place = write.place;
    remember(state, write);
    let Some(is_leader) = daemon(state, write) else { return };
    let (plural, name) = (write.plural.as_str(), write.name.as_str());
    state.writes += 1;
    let what = format!("{:?} {} {plural} {name}", write.by, write.verb);
    let Some(after) = &write.after else { return };
    let replicas = |object: &Value| number(&object["spec"]["replicas"]);
    if before.is_none() && !is_leader {
        state.count("creations after a term");
        state.late.insert((plural.to_owned(), name.to_owned()));
    }
    match plural {
        "machines" if before.is_none() && is_leader => judge_creation(state, place, &what, after),
        "machines" if is_kept(after) && before.is_some_and(|before| !is_kept(before)) => {
            state.count("Machines that are kept");
            let set = after["metadata"]["labels"][KEPT_OF].as_str().unwrap_or_default();
            let kept = kept_of(state, place, set);
            if kept.len() > 1 {
                let broken = format!("{what}: {kept:?} are kept");
                state.breaks(broken);
            }
        }
        "machinesets" if is_leader && replicas(after) > before.map_or(0, replicas) => {
            let most = state.bounds.values().map(|(most, _)| most).max().unwrap_or_default();
            let is_late = |name: &str| state.late.contains(&("machinesets".to_owned(), name.to_owned()));
            let (late, own): (Vec<_>, Vec<_>) =
                state.sets(place).filter(|(_, set)| !is_deleting(set)).partition(|(name, _)| is_late(name));
            // A set that comes late was not known when this was decided, and this may have been on the way when it came.
            let wanted: usize = own.iter().map(|(_, set)| replicas(set)).sum();
            if wanted > most {
                let late = late.len();
                state.breaks(format!(
                    "{what}: {wanted} Machines are wanted, of at most {most}, and {late} sets came late"
                ));
            }
        }
        _ => {}
    }
}

fn judge_creation(state: &mut State, place: usize, what: &str, machine: &Value) {
    state.count("creations of Machines");
    let owner = controller(machine);
    let of_set: Vec<_> = state.all(place, "machines").filter(|(_, one)| controller(one) == owner).collect();
    let is_late = |name: &str| state.late.contains(&("machines".to_owned(), name.to_owned()));
    let late = of_set.iter().filter(|(name, _)| is_late(name)).count();
    let most = state.sizes.get(owner).and_then(|sizes| sizes.values().max()).unwrap_or_default();
    let count = of_set.len();
    if count > most + late {
        let broken = format!("{what}: the set has {count} Machines of {most}");
        state.breaks(broken);
        return;
    }
    let stays = state.stays(place);
    let count = stays.len();
    let late = stays.iter().filter(|(name, _)| is_late(name)).count();
    // What sets want is judged when they are written.
    let wanted: usize = state
        .sets(place)
        .map(|(_, set)| {
            let creates = set["metadata"]["annotations"]["cluster.x-k8s.io/disable-machine-create"] != "true";
            let has = state.machines_of(place, set).filter(|(_, machine)| !is_deleting(machine)).count();
            if creates && !is_deleting(set) { number(&set["spec"]["replicas"]).max(has) } else { has }
        })
        .sum();
    let most = state.bounds.values().map(|(most, _)| most).max().unwrap_or_default().max(wanted);
    if count > most + late {
        state.breaks(format!("{what}: the deployment has {count} Machines of at most {most}"));
    }
}

/// What later writes are judged by.
fn remember(state: &mut State, write: &Write) {
    let Write { place, plural, name, after, by, .. } = write;
    let of = (*place, plural.clone(), name.clone());
    let pauses = |object: &Value| {
        object["spec"]["paused"] == true && plural == "clusters"
            || object["metadata"]["annotations"]["cluster.x-k8s.io/paused"].is_string()
    };
    if after.is_none() {
        state.late.remove(&(plural.clone(), name.clone()));
    }
    if after.as_ref().is_some_and(pauses) {
        state.paused.entry(of).or_insert_with(Instant::now);
    } else {
        state.paused.remove(&of);
    }
    match (plural.as_str(), after) {
        ("machinedeployments", Some(deployment)) if *by == By::User => state.bounds.set(bounds(deployment)),
        ("machinesets", Some(set)) => {
            let sizes = state.sizes.entry(uid(set).to_owned()).or_default();
            sizes.set(number(&set["spec"]["replicas"]));
        }
        ("fakemachines" | "fakeconfigs", None) if *by == By::User => {
            // It moved, and has the same name where it is now.
            state.used.remove(&(plural.clone(), name.clone()));
        }
        _ => {}
    }
}
