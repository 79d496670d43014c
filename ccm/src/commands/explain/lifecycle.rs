//! `explain cluster NAMESPACE/NAME` and the like: what an object of Cluster API waits for.

use std::{fmt::Write as _, time::Duration};

use anyhow::{anyhow, bail};
use cloudprovider::Registry;
use lifecycle_controllers::explain::{ExplainedKind, LifecyclePlan, explain};
use serde::Serialize;

use super::{MachineExplanation, explain_machine};
use crate::{
    commands::tools::{self, table},
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
    } else if let Some(other) = options.namespace.filter(|only| only != namespace) {
        plan.next = vec![format!("do nothing: --namespace={other} leaves out this {}", kind.name())];
    }
    let infrastructure = match &plan.infrastructure {
        Some(infrastructure) if kind == ExplainedKind::Machine && flags.enables(MACHINE_CONTROLLER) => {
            // Its kind may be that of another provider.
            explain_machine(flags, registry, namespace, infrastructure).await.ok()
        }
        _ => None,
    };
    Ok(LifecycleExplanation { object: format!("{namespace}/{name}"), plan, infrastructure })
}

impl LifecycleExplanation {
    /// For people.
    pub fn to_table(&self) -> String {
        let plan = &self.plan;
        let mut rows = vec![vec![format!("{}:", plan.kind), self.object.clone()]];
        rows.extend(plan.phase.iter().map(|phase| vec!["Phase:".to_owned(), phase.clone()]));
        rows.push(vec!["Workload cluster:".to_owned(), plan.workload_cluster.clone()]);
        rows.extend(plan.conditions.iter().map(|one| vec!["Condition:".to_owned(), one.clone()]));
        let mut text = table(&rows);
        let _ = writeln!(text, "\nA daemon with these flags would:");
        for next in &plan.next {
            let _ = writeln!(text, "- {next}");
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
