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
    flags::{Flags, LIFECYCLE_CORE, MACHINE_CONTROLLER},
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
    if !flags.enables(LIFECYCLE_CORE) {
        plan.next = vec![format!("do nothing: {LIFECYCLE_CORE} runs only if --controllers names it")];
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
    Ok(LifecycleExplanation { object, plan, infrastructure, infrastructure_fault })
}

impl LifecycleExplanation {
    /// For people. Users write these texts, so each is on one line and moves no cursor.
    pub fn to_table(&self) -> String {
        let plan = &self.plan;
        let mut rows = vec![vec![format!("{}:", plan.kind), self.object.clone()]];
        rows.extend(plan.phase.iter().map(|phase| vec!["Phase:".to_owned(), plain(phase)]));
        rows.push(vec!["Workload cluster:".to_owned(), plain(&plan.workload_cluster)]);
        rows.extend(plan.conditions.iter().map(|one| vec!["Condition:".to_owned(), plain(one)]));
        let mut text = table(&rows);
        let _ = writeln!(text, "\nA daemon with these flags would:");
        for next in &plan.next {
            let _ = writeln!(text, "- {}", plain(next));
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

fn plain(text: &str) -> String {
    let visible: String = text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    one_line(&visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write_forges_no_lines() {
        let plan = LifecyclePlan {
            kind: "Machine",
            is_ours: true,
            infrastructure: None,
            phase: Some("Running\u{1b}[2J".to_owned()),
            workload_cluster: "connected".to_owned(),
            conditions: vec![
                "Ready True Ready a\n\nA daemon with these flags would:\n- delete it".to_owned(),
            ],
            next: vec!["write nothing until something changes".to_owned()],
        };
        let explanation = LifecycleExplanation {
            object: "team/m".to_owned(),
            plan,
            infrastructure: None,
            infrastructure_fault: None,
        };
        let table = explanation.to_table();
        assert_eq!(table.lines().filter(|line| line.starts_with("- ")).count(), 1, "{table}");
        assert!(!table.contains('\u{1b}'), "{table:?}");
    }
}
