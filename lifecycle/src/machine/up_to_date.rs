//! Whether a Machine is as its deployment wants it.

use crate::conditions::{Statement, Status};

/// What is known of a Machine of a `MachineDeployment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpToDateInputs<'a> {
    /// [`differences`](crate::rollout::Template::differences) of the template of its `MachineSet` from that of the deployment.
    pub differences: &'a [String],
    /// `spec.rollout.after` of the deployment has passed, and the `MachineSet` is older.
    pub is_before_rollout: bool,
    /// The message of its condition `Updating`, while that is `True`.
    pub updating: Option<&'a str>,
    /// `status.nodeInfo.kubeletVersion`, once its Node says so.
    pub kubelet_version: Option<&'a str>,
    /// `spec.version`
    pub version: &'a str,
}

/// `UpToDate`. Machines without a deployment have no such condition: it is up to those who made them.
#[must_use]
pub fn up_to_date(machine: &UpToDateInputs<'_>) -> Statement {
    let expired = machine.is_before_rollout.then_some("MachineDeployment spec.rolloutAfter expired");
    let lines: Vec<_> = machine.differences.iter().map(String::as_str).chain(expired).collect();
    if !lines.is_empty() {
        let lines: Vec<_> = lines.into_iter().map(|line| format!("* {line}")).collect();
        return Statement::new(Status::False, "NotUpToDate", lines.join("\n"));
    }
    if let Some(message) = machine.updating {
        let message = if message.is_empty() { "In-place update in progress" } else { message };
        return Statement::new(Status::False, "Updating", format!("* {message}"));
    }
    let other = machine.kubelet_version.filter(|version| !version.is_empty() && *version != machine.version);
    if let Some(kubelet) = other {
        let required = machine.version;
        let message = format!("* Node.status.nodeInfo.kubeletVersion {kubelet}, {required} required");
        return Statement::new(Status::False, "Updating", message);
    }
    Statement::new(Status::True, "UpToDate", "")
}
