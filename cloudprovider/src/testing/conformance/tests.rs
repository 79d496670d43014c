//! The suites over the fake cloud: as it is, and with each rule broken.

mod broken_machines;
mod broken_parts;
mod mutants;
mod subject;

use subject::Subject;

use super::*;
use crate::{
    CloudProvider, LoadBalancerService, NodeIdentity, Result, Route, async_trait,
    testing::{FakeCloud, FakeInstance, Fault, Operation},
};
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn the_fake_keeps_every_rule_and_each_is_checked() {
    let report = run(&Subject { many: 1_000, ..Subject::new() }).await;
    report.print_and_assert();
    assert_eq!(report.not_checked().collect::<Vec<_>>(), []);
    let count: usize = Suite::ALL.iter().map(|suite| checks(*suite).len()).sum();
    assert_eq!(report.results.len(), count);
    assert_eq!(report.provider, "fake");
}

/// Implements only the required hooks.
struct Least(FakeCloud);

#[async_trait]
impl Hooks for Least {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        Ok(self.0.clone().without_changes().provider())
    }
    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        let system_uuid = Some("u1".to_owned());
        Ok(vec![NodeIdentity { name: "one".to_owned(), system_uuid, ..NodeIdentity::default() }])
    }
}

fn least() -> Least {
    let cloud = FakeCloud::new();
    cloud.put("u1", FakeInstance::running("10.0.0.1"));
    Least(cloud)
}

#[tokio::test(start_paused = true)]
async fn what_was_not_checked_is_told_with_the_reason() {
    let report = run(&least()).await;
    assert!(report.is_conforming(), "{report}");
    let missing: Vec<_> = report.not_checked().map(|(rule, why)| format!("{rule}: {why}")).collect();
    assert_eq!(
        missing,
        [
            "lookups/powered-off: the hook `power_off`",
            "lookups/destroyed: the hook `create`",
            "lookups/fault: the hook `inject_fault`",
            "lookups/disconnected: the hook `disconnect`",
            "lookups/zones: zones, which the provider has not",
            "lookups/clusters: clusters, which the provider has not",
            "changes/told: changes, which the provider does not push",
            "changes/every-stream: changes, which the provider does not push",
            "changes/unread: changes, which the provider does not push",
            "changes/reconnect: changes, which the provider does not push",
            "changes/stop: changes, which the provider does not push",
            "provider-ids/other-forms: the hook `other_provider_ids`",
            "load-balancers/name: load balancers, which the provider has not",
            "load-balancers/ensured: load balancers, which the provider has not",
            "load-balancers/nodes: load balancers, which the provider has not",
            "load-balancers/restart: load balancers, which the provider has not",
            "load-balancers/deleted: load balancers, which the provider has not",
            "load-balancers/cancelled: load balancers, which the provider has not",
            "load-balancers/concurrent: load balancers, which the provider has not",
            "load-balancers/disconnected: load balancers, which the provider has not",
            "routes/created: routes, which the provider has not",
            "routes/again: routes, which the provider has not",
            "routes/deleted: routes, which the provider has not",
            "routes/cluster: routes, which the provider has not",
            "routes/restart: routes, which the provider has not",
            "routes/cancelled: routes, which the provider has not",
            "routes/concurrent: routes, which the provider has not",
            "routes/disconnected: routes, which the provider has not",
            "machines/made: machines, which the provider has not",
            "machines/again: machines, which the provider has not",
            "machines/bootstrap: machines, which the provider has not",
            "machines/many: machines, which the provider has not",
            "machines/restart: machines, which the provider has not",
            "machines/status-lost: machines, which the provider has not",
            "machines/cut-off: machines, which the provider has not",
            "machines/deletion-cut-off: machines, which the provider has not",
            "machines/deleted: machines, which the provider has not",
            "machines/never-made: machines, which the provider has not",
            "machines/deleted-early: machines, which the provider has not",
            "machines/forgotten: machines, which the provider has not",
            "machines/foreign: machines, which the provider has not",
            "machines/marks: machines, which the provider has not",
            "machines/vanished: machines, which the provider has not",
            "machines/powered-off: machines, which the provider has not",
            "machines/reset: machines, which the provider has not",
            "machines/failed-task: machines, which the provider has not",
            "machines/disconnected: machines, which the provider has not",
            "machines/provider-id: machines, which the provider has not",
            "machines/addresses: machines, which the provider has not",
            "machines/failure-domain: machines, which the provider has not",
            "machines/told: machines, which the provider has not",
            "machines/told-after-restart: machines, which the provider has not",
            "machines/capacity: machines, which the provider has not",
            "machines/cluster: machines, which the provider has not",
            "configuration/good: the hook `configuration`",
            "configuration/every-problem: the hook `configuration`",
            "configuration/any-text: the hook `configuration`",
            "configuration/no-secret: the hook `configuration`",
            "lifecycle/cloud-away: the hook `disconnect`",
            "lifecycle/no-secret: the hook `secrets`",
        ]
    );
}

/// A cloud that cannot be disconnected.
struct AlwaysThere(Subject);

#[async_trait]
impl Hooks for AlwaysThere {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        self.0.provider()
    }
    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        self.0.nodes().await
    }
    async fn load_balancer_services(&self) -> Hook<Vec<LoadBalancerService>> {
        self.0.load_balancer_services().await
    }
    async fn routes(&self) -> Hook<Vec<Route>> {
        self.0.routes().await
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_behind_and_nothing_of_others_is_deleted() {
    let hooks = AlwaysThere(Subject::new());
    let foreign = Route { destination_cidr: "192.168.0.0/24".to_owned(), ..Route::default() };
    hooks.0.cloud.put_route("another", foreign.clone());
    let report = run_suites(&hooks, &[Suite::LoadBalancers, Suite::Routes]).await;
    assert!(report.is_conforming(), "{report}");
    let missing: Vec<_> = report.not_checked().map(|(rule, why)| format!("{rule}: {why}")).collect();
    let expected =
        ["load-balancers", "routes"].map(|suite| format!("{suite}/disconnected: the hook `disconnect`"));
    assert_eq!(missing, expected);
    assert!(hooks.0.cloud.load_balancers().is_empty());
    assert_eq!(hooks.0.cloud.routes(), std::slice::from_ref(&foreign));

    // A provider that lists the routes of others is found out before the suite deletes them.
    hooks.0.cloud.put_route("conformance", foreign.clone());
    let report = run_suites(&hooks, &[Suite::Routes]).await;
    assert_eq!(report.failed().count(), checks(Suite::Routes).len(), "{report}");
    assert_eq!(hooks.0.cloud.routes(), [foreign.clone(), foreign]);
}

#[tokio::test(start_paused = true)]
async fn suites_run_alone_and_the_report_reads_well() {
    let mut report = run_suites(&least(), &[Suite::Lookups]).await;
    report.results.truncate(4);
    report.results[1].outcome = Outcome::Failed { reason: "node \"x\" is present".to_owned() };
    let expected = "\
conformance of provider \"fake\": 2 rules hold, 1 do not, 1 were not checked
holds        lookups/present: An instance that runs is present and running, with a provider ID, for a node that has just registered.
             checked: 1 nodes
BROKEN       lookups/absent: A machine that nobody has is absent, by its name and by its system UUID.
             seen: node \"x\" is present
holds        lookups/provider-id-decides: A node that has a provider ID is looked up by it and by nothing else.
             checked: 1 provider IDs in nodes with the name and UUID of others
not checked  lookups/powered-off: An instance that is powered off is present and shut down, never absent.
             missing: the hook `power_off`";
    assert_eq!(report.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn whatever_hangs_or_panics_ends() {
    for (fault, words) in [
        (Fault::Hang, "lookup does not return within 60 s"),
        (Fault::Panic, "a panic: the fake cloud panics on purpose"),
        (Fault::NoAnswers, "lookup gives 0 answers for 1 nodes"),
    ] {
        let least = least();
        least.0.fail(Operation::Lookup, fault);
        let report = run_suites(&least, &[Suite::Lookups]).await;
        assert_eq!(report.failed().count(), checks(Suite::Lookups).len());
        assert!(report.failed().all(|(_, why)| why == words), "{report}");
    }
    let least = least();
    least.0.fail(Operation::Start, Fault::Hang);
    let report = run_suites(&least, &[Suite::ProviderIds]).await;
    assert!(report.failed().any(|(_, why)| why == "start does not return within 10 s"), "{report}");
}

#[test]
fn half_a_secret_is_told() {
    for (text, is_told) in [
        ("password correct-horse is wrong", true),
        ("passwords are correct", true),
        ("the horse", false),
        ("ect-hors", true),
        ("nothing", false),
    ] {
        assert_eq!(super::run::tells(text, "correct-horse"), is_told, "{text}");
    }
    assert!(!super::run::tells("anything", ""));
}
