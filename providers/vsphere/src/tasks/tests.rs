use super::*;
use crate::testing::scripted::{node, reference, text};

fn task(number: usize) -> MoRef {
    MoRef::new(TASK, &format!("task-{number}"))
}

fn state(words: &str) -> Element {
    text("val", words)
}

fn apply(
    tasks: &mut Tasks,
    number: usize,
    kind: UpdateKind,
    values: &[(&'static str, Element)],
) -> Vec<String> {
    let properties = values.iter().map(|(path, value)| (*path, Some(value))).collect();
    tasks.apply(&[ObjectUpdate { object: task(number), kind, properties }])
}

#[test]
fn the_end_of_a_task_wakes_who_waits_once() {
    let mut tasks = Tasks::default();
    assert!(tasks.wait(&task(1), "u-1"), "a task that is not seen yet");
    assert!(apply(&mut tasks, 1, UpdateKind::Enter, &[("info.state", state("running"))]).is_empty());
    assert_eq!(apply(&mut tasks, 1, UpdateKind::Modify, &[("info.state", state("success"))]), ["u-1"]);
    assert!(apply(&mut tasks, 1, UpdateKind::Enter, &[("info.state", state("success"))]).is_empty());
    assert_eq!(tasks.get(&task(1)).map(|task| &task.state), Some(&TaskState::Success));
    assert!(!tasks.wait(&task(1), "u-1"), "it has ended");
}

#[test]
fn a_task_that_is_listed_no_more_wakes_who_waits() {
    let mut tasks = Tasks::default();
    for number in 1..4 {
        tasks.wait(&task(number), &format!("u-{number}"));
    }
    apply(&mut tasks, 1, UpdateKind::Enter, &[("info.state", state("running"))]);
    apply(&mut tasks, 2, UpdateKind::Enter, &[("info.state", state("running"))]);
    apply(&mut tasks, 4, UpdateKind::Enter, &[("info.state", state("success"))]);
    // The third was begun just now, so no listing has it yet.
    assert_eq!(tasks.retain(&HashSet::from([task(2)])), ["u-1"]);
    let known = [1, 2, 3, 4].map(|number| tasks.get(&task(number)).is_some());
    assert_eq!(known, [false, true, false, true], "what has ended is kept");
}

#[test]
fn several_objects_wait_for_one_task() {
    let mut tasks = Tasks::default();
    for uid in ["u-1", "u-2", "u-1"] {
        assert!(tasks.wait(&task(1), uid));
    }
    assert_eq!(apply(&mut tasks, 1, UpdateKind::Enter, &[("info.state", state("success"))]), ["u-1", "u-2"]);
}

#[test]
fn a_fault_is_told_with_its_type_and_words() {
    let mut fault = node("fault", Vec::new());
    fault.kind = Some("NoDiskSpace".into());
    let error = node("val", vec![fault, text("localizedMessage", "datastore1 is full")]);
    for values in [
        vec![("info.state", state("error")), ("info.error", error.clone())],
        vec![("info.error", error), ("info.state", state("error"))],
    ] {
        let mut tasks = Tasks::default();
        apply(&mut tasks, 1, UpdateKind::Modify, &values);
        let Some(TaskState::Failed(fault)) = tasks.get(&task(1)).map(|task| &task.state) else {
            unreachable!("it failed")
        };
        assert_eq!(fault.to_string(), "NoDiskSpace (datastore1 is full)");
    }
}

#[test]
fn a_result_may_name_the_task_that_goes_on() {
    let attempted = node("attempted", vec![reference("task", &task(2))]);
    let mut result = node("val", vec![attempted]);
    result.kind = Some("ClusterPowerOnVmResult".into());
    for steps in [
        vec![vec![("info.result", result.clone()), ("info.state", state("success"))]],
        vec![vec![("info.state", state("success"))], vec![("info.result", result.clone())]],
        vec![vec![("info.result", result.clone())], vec![("info.state", state("success"))]],
        // what is known already may be told again
        vec![
            vec![("info.state", state("success")), ("info.result", result)],
            vec![("info.state", state("success"))],
        ],
    ] {
        let mut tasks = Tasks::default();
        for values in &steps {
            apply(&mut tasks, 1, UpdateKind::Modify, values);
        }
        let found = tasks.get(&task(1)).expect("known");
        assert_eq!(found.state, TaskState::Continued(Some(task(2))), "{steps:?}");
        assert!(found.has_ended());
    }
}

#[test]
fn a_task_that_is_no_longer_shown_wakes_too() {
    let mut tasks = Tasks::default();
    tasks.wait(&task(1), "u-1");
    apply(&mut tasks, 1, UpdateKind::Enter, &[("info.state", state("queued"))]);
    assert_eq!(apply(&mut tasks, 1, UpdateKind::Leave, &[]), ["u-1"]);
    assert!(tasks.get(&task(1)).is_none());
}

#[test]
fn clones_under_way_are_told_apart() {
    let mut tasks = Tasks::default();
    let template = reference("val", &MoRef::new("VirtualMachine", "vm-1"));
    for (number, what, how) in [
        (1, "VirtualMachine.clone", "running"),
        (2, "VirtualMachine.powerOn", "running"),
        (3, "VirtualMachine.clone", "success"),
        (4, "VirtualMachine.cloneVm", "queued"),
    ] {
        let values = [
            ("info.state", state(how)),
            ("info.descriptionId", text("val", what)),
            ("info.entity", template.clone()),
        ];
        apply(&mut tasks, number, UpdateKind::Enter, &values);
    }
    let clones: Vec<_> = (1..=4).filter(|one| tasks.known[&task(*one)].is_clone_under_way()).collect();
    assert_eq!(clones, [1, 4]);
    assert_eq!(tasks.get(&task(1)).and_then(|task| task.entity.clone()), template.moref());
    tasks.lose();
    assert!(tasks.get(&task(1)).is_none());
}

#[test]
fn only_the_last_ones_that_ended_are_kept() {
    let mut tasks = Tasks::default();
    for number in 0..MAX_ENDED + 10 {
        apply(&mut tasks, number, UpdateKind::Enter, &[("info.state", state("success"))]);
    }
    assert_eq!((tasks.known.len(), tasks.ended.len()), (MAX_ENDED, MAX_ENDED));
    assert!(tasks.get(&task(9)).is_none() && tasks.get(&task(10)).is_some());
}

#[test]
fn the_tasks_of_the_manager_are_read_and_it_is_not() {
    let manager = MoRef::new("TaskManager", "TaskManager");
    for wanted in [selection(&manager), watched(&manager)] {
        assert_eq!(wanted.object_set[0].skip, Some(true));
        assert_eq!(wanted.object_set[0].select_set[0].path, "recentTask");
        assert!(wanted.prop_set[0].path_set.contains(&"info.error"));
    }
    // a watch that reports more is more work for the server with each change
    assert_eq!(watched(&manager).prop_set[0].path_set, ["info.state", "info.error", "info.result"]);
}

#[test]
fn an_edit_of_a_cluster_is_told_from_other_work_on_it() {
    let cluster = MoRef::new("ClusterComputeResource", "domain-c1");
    let of = |description: &str, state: TaskState| Task {
        state,
        entity: Some(cluster.clone()),
        description: description.into(),
        ..Task::default()
    };
    for (description, state, expected) in [
        ("ComputeResource.reconfigureEx", TaskState::Running, true),
        ("ClusterComputeResource.reconfigure", TaskState::Running, true),
        ("ComputeResource.reconfigureEx", TaskState::Success, false),
        ("com.vmware.vcIntegrity.lifecycle.EsxClusterRemediateTask", TaskState::Running, false),
    ] {
        assert_eq!(of(description, state).is_edit_under_way(&cluster), expected, "{description}");
    }
    let other = MoRef::new("ClusterComputeResource", "domain-c2");
    assert!(!of("ComputeResource.reconfigureEx", TaskState::Running).is_edit_under_way(&other));
}
