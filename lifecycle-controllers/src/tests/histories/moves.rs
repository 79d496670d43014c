//! The objects of the Cluster go to the other management cluster and lose their UIDs and their status, as `clusterctl move` does it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use sandbox::Sandbox;
use serde_json::{Value, json};

use super::{
    super::{
        line::Line,
        record::By,
        world::{BOOTSTRAP, CONTROL_PLANE, INFRASTRUCTURE, api, define_kinds},
    },
    model::State,
    rules::{STRANGER, is_deleting, uid},
    run::{GROUP, History},
};

/// What is moved: group, kind and plural, owners first.
const KINDS: [(&str, &str, &str); 11] = [
    (GROUP, "Cluster", "clusters"),
    ("", "Secret", "secrets"),
    (CONTROL_PLANE, "FakeControlPlane", "fakecontrolplanes"),
    (INFRASTRUCTURE, "FakeMachineTemplate", "fakemachinetemplates"),
    (BOOTSTRAP, "FakeConfigTemplate", "fakeconfigtemplates"),
    (GROUP, "MachineHealthCheck", "machinehealthchecks"),
    (GROUP, "MachineDeployment", "machinedeployments"),
    (GROUP, "MachineSet", "machinesets"),
    (GROUP, "Machine", "machines"),
    (INFRASTRUCTURE, "FakeMachine", "fakemachines"),
    (BOOTSTRAP, "FakeConfig", "fakeconfigs"),
];

type Moved = (&'static str, &'static str, String, Value);

impl History {
    pub(super) async fn relocate(&mut self) -> Result<(), String> {
        let was_paused = self
            .model
            .lock()
            .get(self.world.place, "clusters", "c")
            .is_some_and(|one| one["spec"]["paused"] == true);
        self.pause_cluster(true).await;
        let time = Duration::from_millis(self.random.u64(..30_000));
        self.rest(time).await?;
        let why_not = why_not(&self.model.lock(), self.world.place);
        if let Some(why) = why_not {
            self.model.note(&format!("    it cannot move: {why}"));
            if !was_paused {
                self.pause_cluster(false).await;
            }
            return Ok(());
        }
        let objects = graph(&self.model.lock(), self.world.place)?;
        let (from, source) = self.go_elsewhere().await;
        let mut uids = BTreeMap::new();
        for (group, kind, name, object) in &objects {
            let created = self.copy(group, kind, name, object, &uids).await;
            uids.insert(uid(object).to_owned(), created);
            if *kind == "Cluster" {
                self.world.start_controllers().await;
                self.be_bad();
            }
        }
        self.start_provider();
        for (group, kind, name, object) in objects.iter().rev() {
            self.forget((from, &source), (group, kind, name, object)).await;
        }
        let time = Duration::from_millis(self.random.u64(..20_000));
        self.elsewhere = Some(source);
        self.rest(time).await?;
        self.model.note("    it has moved");
        self.model.lock().count("moves");
        self.pause_cluster(false).await;
        // Its provider says anew that the control plane has no Machines. Until then it is like one that is gone.
        for _ in 0..60 {
            let plane = self.model.lock().get(self.world.place, "fakecontrolplanes", "cp").cloned();
            if plane.is_some_and(|plane| plane["status"].is_object()) {
                break;
            }
            self.rest(Duration::from_secs(1)).await?;
        }
        Ok(())
    }

    /// The daemon of the other management cluster begins, where nothing is yet.
    async fn go_elsewhere(&mut self) -> (usize, Sandbox) {
        let from = self.world.place;
        let target = match self.elsewhere.take() {
            Some(known) => known,
            None => {
                let target = Sandbox::new();
                define_kinds(&target).await;
                target
            }
        };
        // Where the objects were before, a daemon leads until another does.
        self.others.retain(|other| other.place == from);
        self.others.truncate(1);
        self.providers.clear();
        let number = self.world.line.number() + 1;
        let source = std::mem::replace(&mut self.world.management, target);
        self.world.place = 1 - from;
        self.model.lock().leaders[1 - from] = number;
        let line = Line::new(self.world.record.clone(), 1 - from, number);
        let other = self.world.replace(line);
        self.others.push(other);
        (from, source)
    }

    /// Creates an object where it shall be. Gives its UID.
    async fn copy(
        &self,
        group: &str,
        kind: &str,
        name: &str,
        object: &Value,
        uids: &BTreeMap<String, String>,
    ) -> String {
        let mut object = object.clone();
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
            object["metadata"].as_object_mut().expect("metadata").remove(field);
        }
        object.as_object_mut().expect("an object").remove("status");
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| uids.contains_key(owner["uid"].as_str().unwrap_or_default()));
            for owner in owners {
                owner["uid"] = uids[owner["uid"].as_str().unwrap_or_default()].clone().into();
            }
        }
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let client = self.world.record.client(By::User, self.world.place, &self.world.management);
        let created = api(&client, group, kind).create(&PostParams::default(), &object).await;
        created.unwrap_or_else(|why| panic!("{kind} {name}: {why}")).metadata.uid.expect("a UID")
    }

    /// Deletes an object where it was.
    async fn forget(
        &self,
        (place, source): (usize, &Sandbox),
        (group, kind, name, object): (&str, &str, &str, &Value),
    ) {
        let api = api(&self.world.record.client(By::User, place, source), group, kind);
        if object["metadata"]["finalizers"].is_array() {
            let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            api.patch(name, &PatchParams::default(), &patch).await.expect("it has no finalizer");
        }
        api.delete(name, &DeleteParams::default()).await.expect("it is deleted");
    }
}

/// `clusterctl` moves no Cluster whose machines are being made, and users move none whose control plane has no owner yet.
fn why_not(state: &State, place: usize) -> Option<String> {
    let is_owned = |object: &Value| object["metadata"]["ownerReferences"].is_array();
    if !state.get(place, "fakecontrolplanes", "cp").is_some_and(is_owned) {
        return Some("the control plane has no owner yet".to_owned());
    }
    for kind in ["machinedeployments", "machinesets", "machines", "fakemachines", "fakeconfigs"] {
        for (name, object) in state.all(place, kind).filter(|(name, _)| !name.starts_with(STRANGER)) {
            if is_deleting(object) {
                return Some(format!("{kind} {name} is being deleted"));
            }
            if kind == "machines" && !object["status"]["nodeRef"]["name"].is_string() {
                return Some(format!("Machine {name} has no Node yet"));
            }
        }
    }
    None
}

/// What is moved: all that belongs to the Cluster by its owners, and the templates that no deployment uses now.
///
/// # Errors
/// What would be left behind.
fn graph(state: &State, place: usize) -> Result<Vec<Moved>, String> {
    let mut moved: Vec<Moved> = Vec::new();
    let mut uids = BTreeSet::new();
    for (group, kind, plural) in KINDS {
        for (name, object) in state.all(place, plural).filter(|(name, _)| !name.starts_with(STRANGER)) {
            let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let mut owners = owners.filter_map(|owner| owner["uid"].as_str());
            // What a user applied a moment ago has no owner yet. A user may apply it elsewhere too.
            let is_users = ["MachineDeployment", "MachineHealthCheck"].contains(&kind)
                && object["metadata"]["ownerReferences"].is_null();
            let is_root = ["Cluster", "Secret"].contains(&kind) || kind.ends_with("Template") || is_users;
            if !is_root && !owners.any(|owner| uids.contains(owner)) {
                let owners = &object["metadata"]["ownerReferences"];
                return Err(format!("a move would leave {kind} {name} behind, with the owners {owners}"));
            }
            uids.insert(uid(object).to_owned());
            moved.push((group, kind, name.to_owned(), object.clone()));
        }
    }
    Ok(moved)
}
