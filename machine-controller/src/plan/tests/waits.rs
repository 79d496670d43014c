//! What a machine waits for, and when that is said.

use super::*;

const INFRASTRUCTURE: &str = "WaitingForClusterInfrastructureReady";
const DATA: &str = "WaitingForBootstrapData";

/// Longer than a wait is deferred.
const LONG: Duration = Duration::from_secs(6);

impl World {
    /// It waits for this reason since so long, and nothing was said.
    fn waiting_since(mut self, reason: &'static str, how_long: Duration) -> Self {
        let since = self.now.checked_sub(how_long).expect("a time");
        let deferred = Some(DeferredStatus::of_wait(None, reason.into(), None, since));
        let inputs = self.context().inputs(&self.scope());
        self.memory = Some(Memory { inputs, deferred, ..Memory::default() });
        self
    }
}

#[tokio::test]
async fn a_wait_is_said_once() {
    let message = "the infrastructure of the Cluster is not provisioned yet";
    let ready = said("Ready", "False", INFRASTRUCTURE, message);
    let not_paused = said("Paused", "False", "NotPaused", "");
    let waiting = |conditions: Value, generation: i64| {
        let change = json!({"metadata": {"generation": generation}, "status": {"conditions": conditions}});
        let world = World::new(machine_object(change));
        world.with(|world| world.cluster = Some(Cluster::default())).waiting_since(INFRASTRUCTURE, LONG)
    };
    assert_eq!(waiting(json!([ready, not_paused]), 1).next(), Next::Rest);
    let says = waits(INFRASTRUCTURE, message);
    assert_eq!(waiting(json!([ready, not_paused]), 2).next(), says, "about another generation");
    assert_eq!(waiting(json!([ready]), 1).next(), says, "the other condition is missing");
    assert_eq!(waiting(json!([said("Ready", "False", "X", message), not_paused]), 1).next(), says);
}

#[tokio::test]
async fn a_wait_for_the_core_is_said_when_it_lasts() {
    let no_cluster =
        || World::new(machine_object(json!({}))).with(|world| world.cluster = Some(Cluster::default()));
    let no_data = || World::new(machine_object(json!({}))).with(|world| world.bootstrap = Bootstrap::Missing);
    let about_data = "the Secret \"one-data\" with the bootstrap data is not there";
    let about_cluster = "the infrastructure of the Cluster is not provisioned yet";
    let short = Duration::from_millis(100);
    for (what, world, reason, message) in [
        ("the Cluster", no_cluster as fn() -> World, INFRASTRUCTURE, about_cluster),
        ("the Secret", no_data, DATA, about_data),
    ] {
        assert_eq!(world().next(), defers(reason, message), "{what}");
        let young = world().waiting_since(reason, short);
        let due = young.now + Duration::from_millis(4_900);
        assert_eq!(young.next(), Next::At(due), "{what}");
        assert_eq!(world().waiting_since(reason, LONG).next(), waits(reason, message), "{what}");
    }
    // Another wait begins anew, and so does that of another object.
    assert_eq!(no_data().waiting_since(INFRASTRUCTURE, LONG).next(), defers(DATA, about_data));
    let other = no_data().waiting_since(DATA, LONG).with(|world| {
        world.object.metadata.uid = Some("u-2".into());
    });
    assert_eq!(other.next(), defers(DATA, about_data));
}

#[tokio::test]
async fn nothing_is_done_about_what_was_let_go() {
    let world = |uid: &str, seconds: u64| {
        let mut world = World::new(machine_object(deleting())).remembering(Due::Now);
        let released = world.now.checked_sub(Duration::from_secs(seconds)).expect("a time");
        let memory = world.memory.as_mut().expect("a memory");
        (memory.released, memory.inputs.uid) = (Some(released), Some(uid.to_owned()));
        world
    };
    // The watch still shows it, and something that it read has gone.
    let just_now = world("u-1", 10);
    assert_eq!(just_now.next(), Next::At(just_now.now + Duration::from_secs(20)));
    assert_eq!(world("u-1", 40).next(), Next::Delete, "it is still there");
    assert_eq!(world("u-2", 10).next(), Next::Delete, "another one of this name");
}
