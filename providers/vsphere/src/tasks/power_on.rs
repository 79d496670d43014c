//! The result of a power-on by DRS, which says more than that its task has succeeded.

use super::state::{TaskFault, TaskState};
use crate::vim::element::Element;

/// How far the power-on of the only machine of the call is, by a `ClusterPowerOnVmResult`. `None` for any other result, and for one without
/// machines. vCenter's reference promises a further task only for a machine that DRS does not manage.
pub(super) fn read(result: &Element) -> Option<TaskState> {
    if result.kind.as_deref() != Some("ClusterPowerOnVmResult") {
        return None;
    }
    if let Some(refused) = result.child("notAttempted") {
        return Some(TaskState::Failed(refused.child("fault").map(TaskFault::read).unwrap_or_default()));
    }
    if let Some(attempted) = result.child("attempted") {
        return Some(TaskState::Continued(attempted.moref_of("task")));
    }
    let reason = result.child("recommendations")?.text_of("reasonText").unwrap_or_default();
    let message = format!("DRS waits until somebody applies its recommendation: {reason}");
    Some(TaskState::Failed(TaskFault { kind: "".into(), message: message.into() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        moref::MoRef,
        testing::scripted::{node, reference, text},
    };

    fn result(children: Vec<Element>) -> Element {
        let mut result = node("val", children);
        result.kind = Some("ClusterPowerOnVmResult".into());
        result
    }

    fn machine() -> Element {
        reference("vm", &MoRef::new("VirtualMachine", "vm-1"))
    }

    #[test]
    fn a_further_task_does_the_work() {
        let task = MoRef::new("Task", "task-2");
        let told = result(vec![node("attempted", vec![machine(), reference("task", &task)])]);
        assert_eq!(read(&told), Some(TaskState::Continued(Some(task))));
        assert_eq!(read(&result(vec![node("attempted", vec![machine()])])), Some(TaskState::Continued(None)));
        assert_eq!(read(&result(Vec::new())), None);
        assert_eq!(read(&reference("val", &MoRef::new("VirtualMachine", "vm-1"))), None, "that of a clone");
    }

    #[test]
    fn a_machine_without_a_host_has_failed() {
        let mut fault = node("fault", Vec::new());
        fault.kind = Some("InsufficientResourcesFault".into());
        let fault = node("fault", vec![fault, text("localizedMessage", "no memory left")]);
        let shown = |told: &Element| match read(told) {
            Some(TaskState::Failed(fault)) => fault.to_string(),
            other => format!("{other:?}"),
        };
        let refused = result(vec![node("notAttempted", vec![machine(), fault])]);
        assert_eq!(shown(&refused), "InsufficientResourcesFault (no memory left)");
        assert_eq!(shown(&result(vec![node("notAttempted", vec![machine()])])), "an unknown fault");
        let manual = result(vec![node("recommendations", vec![text("reasonText", "power on")])]);
        assert_eq!(shown(&manual), "DRS waits until somebody applies its recommendation: power on");
    }
}
