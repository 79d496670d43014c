//! What there is when everything is done.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    model::State,
    rules::{STRANGER, condition, controller, is_deleting, says, uid},
};

/// All objects of a kind that are not strangers.
fn all<'a>(state: &'a State, place: usize, plural: &str) -> Vec<(&'a str, &'a Value)> {
    state.all(place, plural).filter(|(name, _)| !name.starts_with(STRANGER)).collect()
}

fn names<'a>(of: &[(&'a str, &'a Value)]) -> BTreeSet<&'a str> {
    of.iter().map(|(name, _)| *name).collect()
}

/// What a condition is, and should not be.
fn not_as(object: &Value, expected: &[(&str, &str)]) -> Option<String> {
    let wrong = expected.iter().find(|(kind, status)| !says(object, kind, status))?;
    let found = condition(object, wrong.0).map_or_else(|| "nothing".to_owned(), Value::to_string);
    Some(format!("{} is {found}, and not {}", wrong.0, wrong.1))
}

/// The first thing that is not as the deployment asks for.
pub(super) fn difference(state: &State, place: usize) -> Option<String> {
    let Some(deployment) = state.deployment(place) else {
        return Some("there is no deployment".to_owned());
    };
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or_default();
    let replicas = usize::try_from(wanted).unwrap_or_default();
    let machines = all(state, place, "machines");
    let sets = all(state, place, "machinesets");
    if machines.len() != replicas {
        return Some(format!("{} Machines of {replicas}: {:?}", machines.len(), names(&machines)));
    }
    let [(_, set)] = sets[..] else { return Some(format!("the sets are {:?}", names(&sets))) };
    for kind in ["fakemachines", "fakeconfigs"] {
        let found = all(state, place, kind);
        if names(&found) != names(&machines) {
            return Some(format!("{kind} are {:?}, of the Machines {:?}", names(&found), names(&machines)));
        }
    }
    let nodes = names(&all(state, place, "nodes"));
    if nodes != names(&machines) {
        return Some(format!("the Nodes are {nodes:?}, of the Machines {:?}", names(&machines)));
    }
    for (name, machine) in &machines {
        if let Some(wrong) = wrong_machine(state, place, deployment, set, name, machine) {
            return Some(format!("Machine {name}: {wrong}"));
        }
    }
    if let Some(wrong) = wrong_owner(deployment, "machinedeployments d", &set["spec"], wanted) {
        return Some(wrong);
    }
    if set["spec"]["replicas"] != wanted || controller(set) != uid(deployment) {
        return Some(format!("the set wants {}, of {}", set["spec"]["replicas"], controller(set)));
    }
    for (what, object) in [("the deployment", deployment), ("the set", set)] {
        if let Some(wrong) = wrong_status(object, wanted) {
            return Some(format!("{what}: {wrong}"));
        }
    }
    let expected =
        [("Available", "True"), ("RollingOut", "False"), ("Paused", "False"), ("Remediating", "False")];
    if let Some(wrong) = not_as(deployment, &expected) {
        return Some(format!("the deployment: {wrong}"));
    }
    let Some(cluster) = state.get(place, "clusters", "c") else {
        return Some("there is no Cluster".to_owned());
    };
    let checks = state.get(place, "machinehealthchecks", "h");
    for object in [deployment].into_iter().chain(checks) {
        if object["metadata"]["ownerReferences"][0]["uid"] != uid(cluster) {
            return Some(format!("the owners of {}", object["metadata"]));
        }
    }
    let expected = [
        ("WorkersAvailable", "True"),
        ("WorkerMachinesReady", "True"),
        ("WorkerMachinesUpToDate", "True"),
        ("ScalingUp", "False"),
        ("ScalingDown", "False"),
        ("Deleting", "False"),
        ("Paused", "False"),
    ];
    if let Some(wrong) = not_as(cluster, &expected) {
        return Some(format!("the Cluster: {wrong}"));
    }
    if let Some(check) = state.get(place, "machinehealthchecks", "h") {
        let status = &check["status"];
        if status["expectedMachines"] != wanted || status["currentHealthy"] != wanted {
            return Some(format!("the health check: {status}"));
        }
    }
    dangling(state, place)
}

fn wrong_owner(deployment: &Value, what: &str, of_set: &Value, wanted: u64) -> Option<String> {
    let template = |spec: &Value, field: &str| spec["template"]["spec"][field].clone();
    for field in ["version", "infrastructureRef", "bootstrap"] {
        let (of_deployment, of_set) = (template(&deployment["spec"], field), template(of_set, field));
        if of_deployment != of_set {
            return Some(format!("{what}: {field} is {of_deployment}, and {of_set} in its set of {wanted}"));
        }
    }
    None
}

fn wrong_status(object: &Value, wanted: u64) -> Option<String> {
    if object["metadata"]["generation"] != object["status"]["observedGeneration"] {
        return Some("its generation is not observed".to_owned());
    }
    for field in ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"] {
        if object["status"][field] != wanted {
            return Some(format!("{field} is {}, and not {wanted}", object["status"][field]));
        }
    }
    let expected = [
        ("MachinesReady", "True"),
        ("MachinesUpToDate", "True"),
        ("ScalingUp", "False"),
        ("ScalingDown", "False"),
        ("Deleting", "False"),
    ];
    not_as(object, &expected)
}

fn wrong_machine(
    state: &State,
    place: usize,
    deployment: &Value,
    set: &Value,
    name: &str,
    machine: &Value,
) -> Option<String> {
    if is_deleting(machine) {
        return Some("it is still being deleted".to_owned());
    }
    let template = &deployment["spec"]["template"];
    if machine["spec"]["version"] != template["spec"]["version"] {
        return Some(format!("its version is {}", machine["spec"]["version"]));
    }
    if controller(machine) != uid(set) {
        return Some("it is not of the set".to_owned());
    }
    if machine["status"]["phase"] != "Running" || machine["status"]["nodeRef"]["name"] != name {
        return Some(format!("it is {}", machine["status"]));
    }
    let expected = [
        ("Available", "True"),
        ("Ready", "True"),
        ("UpToDate", "True"),
        ("NodeHealthy", "True"),
        ("InfrastructureReady", "True"),
        ("BootstrapConfigReady", "True"),
        ("Deleting", "False"),
        ("Paused", "False"),
    ];
    if let Some(wrong) = not_as(machine, &expected) {
        return Some(wrong);
    }
    if state.get(place, "machinehealthchecks", "h").is_some()
        && !says(machine, "HealthCheckSucceeded", "True")
    {
        return Some("it was not checked".to_owned());
    }
    if condition(machine, "OwnerRemediated").is_some() {
        return Some("it is to be remediated".to_owned());
    }
    for kind in ["fakemachines", "fakeconfigs"] {
        let object = state.get(place, kind, name)?;
        let owners = object["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        if controller(object) != uid(machine) || owners != 1 {
            return Some(format!("its {kind} is of {}", object["metadata"]["ownerReferences"]));
        }
        let from = &object["metadata"]["annotations"]["cluster.x-k8s.io/cloned-from-name"];
        if *from != template["spec"]["infrastructureRef"]["name"] {
            return Some(format!("its {kind} was cloned from {from}"));
        }
    }
    let node = state.get(place, "nodes", name)?;
    let label = "node.cluster.x-k8s.io/x";
    if node["metadata"]["labels"][label] != template["metadata"]["labels"][label] {
        return Some(format!("its Node has {}", node["metadata"]["labels"]));
    }
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let of_cluster_api =
        taints.filter(|taint| taint["key"].as_str().is_some_and(|key| key.contains("x-k8s.io/")));
    let left: Vec<_> = of_cluster_api.collect();
    (!left.is_empty()).then(|| format!("its Node has the taints {left:?}"))
}

/// An owner that is gone: the garbage collector would delete what has no other one.
fn dangling(state: &State, place: usize) -> Option<String> {
    let kinds = [
        "clusters",
        "machinedeployments",
        "machinesets",
        "machines",
        "machinehealthchecks",
        "fakemachines",
        "fakeconfigs",
        "fakemachinetemplates",
        "fakeconfigtemplates",
        "fakecontrolplanes",
    ];
    let objects = || kinds.iter().flat_map(|kind| state.all(place, kind));
    let uids: BTreeSet<_> = objects().map(|(_, object)| uid(object)).collect();
    for (name, object) in objects() {
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        for owner in owners {
            if !uids.contains(owner["uid"].as_str().unwrap_or_default()) {
                return Some(format!("{name} has the owner {owner}, which is gone"));
            }
        }
    }
    None
}

/// The first thing that is left after the deletion.
pub(super) fn left(state: &State, place: usize, with_cluster: bool) -> Option<String> {
    let mut kinds = vec!["machinedeployments", "machinesets", "machines", "fakemachines", "fakeconfigs"];
    // Nobody needs the Nodes of a cluster that goes.
    kinds.extend(if with_cluster { vec!["clusters", "fakecontrolplanes"] } else { vec!["nodes"] });
    for kind in kinds {
        let found = all(state, place, kind);
        if !found.is_empty() {
            return Some(format!("{kind} {:?}", names(&found)));
        }
    }
    // What its owner was alone for is the garbage collector's.
    for kind in ["fakemachines", "fakeconfigs", "machines"] {
        if state.get(0, kind, STRANGER).is_none_or(is_deleting) {
            return Some(format!("{kind} {STRANGER} is gone"));
        }
    }
    state.get(place, "nodes", STRANGER).is_none().then(|| "a Node of others is gone".to_owned())
}
