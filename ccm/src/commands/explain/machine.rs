//! `explain machine NAMESPACE/NAME`: what a machine waits for.

use std::fmt::Write as _;

use anyhow::{anyhow, bail};
use cloudprovider::Registry;
use controller_kit::cloud::machine_kinds_of;
use machine_controller::explain::{MachinePlan, explain};
use serde::Serialize;

use crate::{
    commands::tools::{self, table},
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
    let mut of_providers = Vec::new();
    for provider in daemon::create_machine_providers(flags, registry)? {
        let Some(kinds) = machine_kinds_of(&*provider) else {
            bail!("cloud provider {} has no machines", provider.name())
        };
        of_providers.push((provider.name().to_owned(), kinds));
    }
    let (client, url) = tools::connect(flags).await.map_err(|why| anyhow!(why))?;
    let watch_filter = flags.controllers.machine.watch_filter();
    let mut plans = Vec::new();
    for (provider, kinds) in of_providers {
        let plan = explain(&client, &kinds, watch_filter.as_deref(), (namespace, name)).await;
        plans.push((provider, kinds.machine.kind, plan));
    }
    let (provider, mut plan) = the_only_one(plans, (namespace, name), &url)?;
    if !flags.enables(MACHINE_CONTROLLER) {
        plan.next = format!("do nothing: {MACHINE_CONTROLLER} runs only if --controllers names it");
    } else if let Some(other) = flags.controllers.machine.namespace().filter(|only| only != namespace) {
        plan.next = format!("do nothing: --namespace={other} leaves out this machine");
    }
    Ok(MachineExplanation { machine: format!("{namespace}/{name}"), provider, plan })
}

/// What a provider's controller finds, or why the API server cannot be asked. `None`: it has no such machine.
type Found = Result<Option<MachinePlan>, String>;

/// The machine of this name, with its provider. The providers are given with their kind of machine.
fn the_only_one(
    found: Vec<(String, &'static str, Found)>,
    (namespace, name): (&str, &str),
    url: &str,
) -> anyhow::Result<(String, MachinePlan)> {
    let (mut plans, mut missing, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for (provider, kind, found) in found {
        match found {
            Ok(Some(plan)) => plans.push((provider, plan)),
            Ok(None) => missing.push(kind),
            Err(why) => faults.push(why),
        }
    }
    if plans.len() > 1 {
        let kinds = plans.iter().map(|(_, plan)| &*plan.kind).collect::<Vec<_>>().join(" and ");
        bail!(
            "{kinds} have the name {namespace}/{name}; expected one provider, without the others in --machine-provider"
        );
    }
    if let Some(only) = plans.pop() {
        return Ok(only);
    }
    if !faults.is_empty() {
        bail!("the API server at {url}: {}", faults.join("; "));
    }
    bail!("there is no {} {namespace}/{name}", missing.join(" or "))
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
        rows.extend(plan.companions.iter().map(|one| vec!["Object:".to_owned(), one.clone()]));
        rows.extend(plan.uses.iter().map(|one| vec!["Uses:".to_owned(), one.clone()]));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: &'static str, found: Result<bool, &str>) -> (String, &'static str, Found) {
        let plan = MachinePlan {
            kind: kind.to_owned(),
            provider_id: None,
            identity: None,
            finalizer: false,
            companions: Vec::new(),
            uses: Vec::new(),
            conditions: Vec::new(),
            next: String::new(),
        };
        let found = found.map(|is_there| is_there.then_some(plan)).map_err(str::to_owned);
        (format!("of-{kind}"), kind, found)
    }

    fn outcome(of_providers: Vec<(String, &'static str, Found)>) -> Result<String, String> {
        let only = the_only_one(of_providers, ("a", "b"), "URL");
        only.map(|(provider, _)| provider).map_err(|error| error.to_string())
    }

    #[test]
    fn a_machine_is_found_by_its_kind() {
        let away = || found("C", Err("Cs are not served"));
        let both = vec![away(), found("A", Ok(false)), found("B", Ok(true))];
        assert_eq!(outcome(both), Ok("of-B".to_owned()));
        let none = vec![found("A", Ok(false)), found("B", Ok(false))];
        assert_eq!(outcome(none), Err("there is no A or B a/b".to_owned()));
        let unclear = vec![found("A", Ok(false)), away()];
        assert_eq!(outcome(unclear), Err("the API server at URL: Cs are not served".to_owned()));
        let two = outcome(vec![found("A", Ok(true)), found("B", Ok(true))]).expect_err("two");
        assert!(two.starts_with("A and B have the name a/b; expected one provider"), "{two}");
    }
}
