//! `explain cluster NAMESPACE/NAME` and the like: what an object of Cluster API waits for.

use std::{fmt::Write as _, time::Duration};

use anyhow::{anyhow, bail};
use cloudprovider::Registry;
use lifecycle_controllers::explain::{ExplainedKind, LifecyclePlan, explain};
use serde::Serialize;

use super::{MachineExplanation, explain_machine};
use crate::{
    commands::tools::{self, one_line, table},
    controllers::lifecycle,
    flags::{Flags, LIFECYCLE_BOOTSTRAP, LIFECYCLE_CORE, MACHINE_CONTROLLER},
};

/// How long the API server may take to list the objects of a namespace.
const LISTS_WITHIN: Duration = Duration::from_secs(20);

/// The explanation of an object of Cluster API.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleExplanation {
    /// Its namespace and name.
    pub object: String,
    /// What the controller finds.
    #[serde(flatten)]
    pub plan: LifecyclePlan,
    /// Of a Machine, the machine of the provider's kind, if a provider is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure: Option<MachineExplanation>,
    /// Whether no flag says which controllers run.
    #[serde(skip)]
    pub assumes_lifecycle: bool,
    /// Why that one cannot be explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_fault: Option<String>,
}

/// Explains this object. The cloud is not asked.
///
/// # Errors
/// What prevents an explanation: unusable flags, an unreachable API server, or an object that does not exist.
pub async fn explain_lifecycle(
    flags: &Flags,
    registry: &Registry,
    kind: ExplainedKind,
    namespace: &str,
    name: &str,
) -> anyhow::Result<LifecycleExplanation> {
    let options = lifecycle::options(flags)?;
    let (client, url) = tools::connect(flags).await.map_err(|why| anyhow!(why))?;
    let found = explain(&client, &options, kind, (namespace, name), LISTS_WITHIN).await;
    let found = found.map_err(|why| anyhow!("the API server at {url}: {why}"))?;
    let Some(mut plan) = found else { bail!("there is no {} {namespace}/{name}", kind.name()) };
    let part = if kind == ExplainedKind::KubeadmConfig { LIFECYCLE_BOOTSTRAP } else { LIFECYCLE_CORE };
    if !flags.enables(part) {
        plan.next = vec![format!("do nothing: {part} runs only if --controllers names it")];
    } else if flags.misc.dry_run {
        plan.next = vec!["do nothing: --dry-run".to_owned()];
    } else if !plan.is_ours {
        plan.next = vec!["do nothing: --watch-filter leaves it out".to_owned()];
    } else if let Some(other) = options.namespace.filter(|only| only != namespace) {
        plan.next = vec![format!("do nothing: --namespace={other} leaves out this {}", kind.name())];
    }
    let (mut infrastructure, mut infrastructure_fault) = (None, None);
    if let Some(of_machine) = &plan.infrastructure
        && kind == ExplainedKind::Machine
        && flags.enables(MACHINE_CONTROLLER)
    {
        match explain_machine(flags, registry, namespace, of_machine).await {
            Ok(explained) => infrastructure = Some(explained),
            Err(error) => infrastructure_fault = Some(format!("{error:#}")),
        }
    }
    let object = format!("{namespace}/{name}");
    let assumes_lifecycle = flags.runs_lifecycle() && !flags.is_given("controllers");
    Ok(LifecycleExplanation { object, plan, infrastructure, assumes_lifecycle, infrastructure_fault })
}

impl LifecycleExplanation {
    /// For people. Users write these texts, so each is on one line and moves no cursor.
    pub fn to_table(&self) -> String {
        let plan = &self.plan;
        let mut rows = vec![vec![format!("{}:", plan.kind), self.object.clone()]];
        rows.extend(plan.phase.iter().map(|phase| vec!["Phase:".to_owned(), plain(phase)]));
        rows.push(vec!["Workload cluster:".to_owned(), plain(&plan.workload_cluster)]);
        for condition in &plan.conditions {
            let mut lines = lines(&condition.to_string());
            rows.push(vec!["Condition:".to_owned(), lines.next().unwrap_or_default()]);
            rows.extend(lines.map(|line| vec![String::new(), line]));
        }
        let mut text = table(&rows);
        let with = if self.assumes_lifecycle { "--controllers=lifecycle" } else { "these flags" };
        let _ = writeln!(text, "\nA daemon with {with} would:");
        for next in &plan.next {
            let mut lines = lines(next);
            let _ = writeln!(text, "- {}", lines.next().unwrap_or_default());
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        }
        if let Some(fault) = &self.infrastructure_fault {
            let _ = writeln!(text, "\nThe machine of the provider's kind is not explained: {}", plain(fault));
        }
        if let Some(infrastructure) = &self.infrastructure {
            let _ = write!(text, "\n{}", infrastructure.to_table());
        }
        text
    }

    /// For programs.
    ///
    /// # Errors
    /// Never: all of its content is text.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

/// The lines of a text that is a list, such as the message of a condition that sums others up. Those after the first are indented, and
/// keep what they are indented by, so that they are taken for nothing else.
fn lines(text: &str) -> impl Iterator<Item = String> + use<> {
    const DEEPEST: usize = 12;
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    lines.into_iter().enumerate().map(|(index, line)| {
        let depth = line.chars().take_while(|one| *one == ' ').count().min(DEEPEST);
        match index {
            0 => plain(&line),
            _ => format!("{}{}", " ".repeat(depth + 2), plain(&line)),
        }
    })
}

fn plain(text: &str) -> String {
    let visible: String = text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    one_line(&visible)
}

#[cfg(test)]
mod tests {
    use lifecycle_controllers::explain::ExplainedCondition;

    use super::*;

    fn explanation(conditions: &[(&str, &str)]) -> LifecycleExplanation {
        let condition = |(kind, message): &(&str, &str)| ExplainedCondition {
            kind: (*kind).to_owned(),
            status: "False".to_owned(),
            reason: "NotReady".to_owned(),
            message: (*message).to_owned(),
            last_transition_time: "2026-01-01T00:00:00Z".to_owned(),
        };
        let plan = LifecyclePlan {
            kind: "Machine",
            is_ours: true,
            infrastructure: None,
            phase: Some("Running\u{1b}[2J".to_owned()),
            workload_cluster: "connected".to_owned(),
            conditions: conditions.iter().map(condition).collect(),
            next: vec!["write nothing until something changes".to_owned()],
        };
        LifecycleExplanation {
            object: "team/m".to_owned(),
            plan,
            infrastructure: None,
            assumes_lifecycle: false,
            infrastructure_fault: None,
        }
    }

    #[test]
    fn what_users_write_forges_no_lines() {
        let table =
            explanation(&[("Ready", "a\n\nA daemon with these flags would:\n- delete it")]).to_table();
        assert_eq!(table.lines().filter(|line| line.starts_with("- ")).count(), 1, "{table}");
        assert_eq!(table.lines().filter(|line| line.starts_with("A daemon")).count(), 1, "{table}");
        assert!(!table.contains('\u{1b}'), "{table:?}");
    }

    #[test]
    fn conditions_within_a_condition_have_lines_of_their_own() {
        let mut explanation = explanation(&[
            ("Available", "* WorkersAvailable: 1 of 2\n* RemoteConnectionProbe:\n  * refused"),
            ("Paused", ""),
        ]);
        let table = explanation.to_table();
        let expected = "Condition:         Available False NotReady\n                     * WorkersAvailable: 1 of 2\n                     \
                        * RemoteConnectionProbe:\n                       * refused\nCondition:         Paused False NotReady\n";
        assert!(table.contains(expected), "{table}");
        let json: serde_json::Value =
            serde_json::from_str(&explanation.to_json().expect("JSON")).expect("JSON");
        assert_eq!(json["conditions"][1]["type"], "Paused");
        assert_eq!(json["conditions"][1]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        explanation.assumes_lifecycle = true;
        assert!(explanation.to_table().contains("\nA daemon with --controllers=lifecycle would:\n"));
    }
}
