//! `explain machine NAMESPACE/NAME`: what a machine waits for.

use std::fmt::Write as _;

use anyhow::{anyhow, bail};
use cloudprovider::Registry;
use serde::Serialize;

use crate::{
    cloud::machine_kinds_of,
    commands::tools::{self, table},
    controllers::machine::explain::{MachinePlan, explain},
    daemon,
    flags::{Flags, MACHINE_CONTROLLER},
};

/// The explanation of a machine.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineExplanation {
    /// Its namespace and name.
    pub machine: String,
    /// The provider of its kind.
    pub provider: String,
    /// What the controller finds.
    #[serde(flatten)]
    pub plan: MachinePlan,
}

/// Explains this machine. The cloud is not asked.
///
/// # Errors
/// What prevents an explanation: an unusable configuration, an unreachable API server, or a machine that does not exist.
pub async fn explain_machine(
    flags: &Flags,
    registry: &Registry,
    namespace: &str,
    name: &str,
) -> anyhow::Result<MachineExplanation> {
    let provider = daemon::create_provider(flags, registry)?;
    let Some(kinds) = machine_kinds_of(&*provider) else {
        bail!("cloud provider {} has no machines", provider.name())
    };
    let (client, url) = tools::connect(flags).await.map_err(|why| anyhow!(why))?;
    let watch_filter = flags.controllers.machine.watch_filter();
    let plan = explain(&client, &kinds, watch_filter.as_deref(), (namespace, name)).await;
    let plan = plan.map_err(|why| anyhow!("the API server at {url}: {why}"))?;
    let Some(mut plan) = plan else { bail!("there is no {} {namespace}/{name}", kinds.machine.kind) };
    if !flags.enables(MACHINE_CONTROLLER) {
        plan.next = format!("do nothing: {MACHINE_CONTROLLER} runs only if --controllers names it");
    }
    Ok(MachineExplanation {
        machine: format!("{namespace}/{name}"),
        provider: provider.name().to_owned(),
        plan,
    })
}

impl MachineExplanation {
    /// For people.
    pub fn to_table(&self) -> String {
        let plan = &self.plan;
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let mut rows = vec![
            vec![format!("{}:", plan.kind), self.machine.clone()],
            vec!["Provider ID:".to_owned(), or_none(&plan.provider_id)],
            vec!["Identity:".to_owned(), or_none(&plan.identity)],
            vec!["Finalizer:".to_owned(), if plan.finalizer { "there" } else { "not there" }.to_owned()],
        ];
        rows.extend(plan.conditions.iter().map(|one| vec!["Condition:".to_owned(), one.clone()]));
        let mut text = table(&rows);
        let _ = writeln!(text, "\nA daemon with these flags would:\n- {}", plan.next);
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
