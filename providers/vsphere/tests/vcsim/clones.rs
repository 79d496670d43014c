//! How a template is cloned. The simulator copies the disks of a linked clone as well, so what it is asked for is looked at.

use cloudprovider::machines::ConditionStatus;
use serde_json::{Value, json};
use test_env::Vcsim;

use crate::{controller::*, support::*};

/// The disks are copied, or shared with a snapshot.
const COPIED: &str = "<diskMoveType>moveAllDiskBackingsAndConsolidate</diskMoveType>";
const SHARED: &str = "<diskMoveType>createNewChildDiskBacking</diskMoveType>";

/// Why the machine was cloned in another way than its spec says: the reason and the words of the condition.
fn notice(object: &Object) -> Option<(&str, &str)> {
    let found = object.record.conditions.iter().find(|one| one.condition_type == "ClonedAsSpecified")?;
    assert_eq!(found.status, ConditionStatus::False, "{found:?}");
    Some((&found.reason, &found.message))
}

fn last_clone(vcsim: &Vcsim) -> String {
    vcsim.last_requests().expect("requests").remove("soap:CloneVM_Task").expect("a clone")
}

/// Takes two snapshots of the template. Returns the IDs of `old`, and of `new`, which is the current one.
fn snapshots(vcsim: &Vcsim) -> [String; 2] {
    let current = |name| {
        vcsim.act(&machine(0), "snapshot", name).expect("a snapshot");
        let found = vcsim.machine(&machine(0)).expect("the template");
        let id = &found["snapshot"]["currentSnapshot"]["value"];
        id.as_str().expect("a snapshot").to_owned()
    };
    ["old", "new"].map(current)
}

/// That the last clone was made from this snapshot, or in full, and the status says so.
fn check(vcsim: &Vcsim, object: &Object, snapshot: Option<&str>) {
    let (sent, status) = (last_clone(vcsim), &object.record.status);
    let (mode, moved) = if snapshot.is_some() { ("linkedClone", SHARED) } else { ("fullClone", COPIED) };
    assert!(sent.contains(moved), "{sent}");
    let of = snapshot.map(|id| format!("<snapshot type=\"VirtualMachineSnapshot\">{id}</snapshot>"));
    assert_eq!(sent.contains("<snapshot"), of.is_some(), "{sent}");
    assert!(of.is_none_or(|of| sent.contains(&of)), "{sent}");
    assert_eq!((&status["cloneMode"], status["snapshot"].as_str()), (&json!(mode), snapshot), "{status}");
}

#[tokio::test]
async fn a_full_clone_in_the_place_of_a_linked_one_is_told() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let missing = "the template has no snapshot \"gold\", so the machine is a full clone";
    for (number, (more, expected)) in [
        (
            json!({"cloneMode": "linkedClone"}),
            Some(("NoSnapshot", "the template has no snapshot, so the machine is a full clone")),
        ),
        (json!({"cloneMode": "linkedClone", "snapshot": "gold"}), Some(("SnapshotNotFound", missing))),
        (json!({"cloneMode": "", "snapshot": "gold"}), Some(("SnapshotNotFound", missing))),
        // nobody asked for a linked one
        (json!({"cloneMode": ""}), None),
        (json!({"cloneMode": "fullClone", "snapshot": "gold"}), None),
    ]
    .into_iter()
    .enumerate()
    {
        let mut object = Object::new(&vcsim, number, &more);
        controller.make(&mut object).await;
        check(&vcsim, &object, None);
        assert_eq!(notice(&object), expected, "{more}");
        controller.delete(&mut object).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_linked_clone_shares_a_snapshot() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let [old, new] = snapshots(&vcsim);
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    for (number, (more, snapshot, reason)) in [
        (json!({"cloneMode": "linkedClone"}), &new, None),
        (json!({"cloneMode": ""}), &new, None),
        (json!({"cloneMode": "linkedClone", "snapshot": "old"}), &old, None),
        (json!({"cloneMode": "linkedClone", "diskGiB": 40}), &new, Some("DiskSizesNotUsed")),
    ]
    .into_iter()
    .enumerate()
    {
        let mut object = Object::new(&vcsim, number, &more);
        controller.make(&mut object).await;
        check(&vcsim, &object, Some(snapshot));
        assert_eq!(notice(&object).map(|(reason, _)| reason), reason, "{more}");
        controller.delete(&mut object).await;
    }
    running.stop().await;
}

/// The first clone fails. Until the second one, somebody takes a snapshot of the template, or asks for no linked clone any more.
#[tokio::test]
async fn a_clone_as_the_spec_says_is_not_told_any_more() {
    for takes_snapshot in [true, false] {
        let Some(vcsim) = simulator(&factory_options()) else { return };
        let running = started(&vcsim).await;
        let mut controller = Controller::new(&running);
        vcsim.fail_next_task("CloneVM_Task", "NoDiskSpace").expect("a fault");
        let mut object = Object::new(&vcsim, 1, &json!({"cloneMode": "linkedClone"}));
        while let Ok(report) = controller.step(&mut object).await {
            controller.wait(&object, report.wait()).await;
        }
        assert_eq!(notice(&object).map(|(reason, _)| reason), Some("NoSnapshot"));
        let snapshot = if takes_snapshot {
            Some(snapshots(&vcsim)[1].clone())
        } else {
            object.request.spec["cloneMode"] = Value::from("fullClone");
            None
        };
        controller.make(&mut object).await;
        check(&vcsim, &object, snapshot.as_deref());
        assert_eq!(notice(&object), None, "snapshot: {takes_snapshot}");
        controller.delete(&mut object).await;
        running.stop().await;
    }
}
