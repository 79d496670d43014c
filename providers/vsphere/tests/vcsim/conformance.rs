//! The rules of the contract, checked on the simulator.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cloudprovider::{
    CloudProvider, NodeIdentity, Result, async_trait,
    testing::conformance::{self, ConfigurationCases, Hook, HookError, Hooks, MachineCases, Rule, Suite},
};
use cloudprovider_vsphere::{Config, Environment, VSphereProvider};
use serde_json::json;
use test_env::{Vcsim, VcsimOptions};

use crate::controller::{cluster_spec, factory_options, machine_spec};
use crate::relay::Relay;
use crate::support::{config, machine, node, simulator, uuid, with_zones};

const MACHINES: usize = 3;
const PASSWORD: &str = "correct-horse-battery";

struct Simulator {
    vcsim: Vcsim,
    relay: Relay,
    created: AtomicUsize,
    /// How many machines are made at the same time.
    many: usize,
}

/// The simulator's name of a Node's machine.
fn machine_of(node: &NodeIdentity) -> Hook<String> {
    if node.name.starts_with("conformance-") {
        return Ok(node.name.clone());
    }
    let number = node.name.strip_prefix("node-").and_then(|number| number.parse::<usize>().ok());
    let number = number.ok_or_else(|| HookError::failed("not a name of these machines"))?;
    Ok(if number < MACHINES { machine(number) } else { format!("new-{number}") })
}

impl Simulator {
    fn act(&self, machine: &str, action: &str, argument: &str) -> Hook {
        self.vcsim.act(machine, action, argument).map_err(HookError::failed)
    }
}

#[async_trait]
impl Hooks for Simulator {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        let (port, relayed) =
            (format!("port: {}", self.vcsim.port()), format!("port: {}", self.relay.port()));
        let text = with_zones(&config(&[&self.vcsim])).replace(&port, &relayed);
        let provider = VSphereProvider::new(Config::parse(&text, &Environment::default())?);
        Ok(Arc::new(provider.with_tag_refresh(Duration::from_secs(1))))
    }

    /// The pauses between login attempts grow.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        Ok((0..MACHINES).map(node).collect())
    }

    async fn create(&self) -> Hook<NodeIdentity> {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        let node = node(number);
        let name = machine_of(&node)?;
        self.act(&machine(0), "clone", &name)?;
        let nics = json!([{"network": "VM Network", "ips": [format!("10.20.1.{number}/16")]}]);
        let guest =
            json!({"uuid": uuid(number), "hostName": node.name, "tools": "guestToolsRunning", "nics": nics});
        self.vcsim.set_guest(&name, guest).map_err(HookError::failed)?;
        self.act(&name, "power-on", "")?;
        Ok(node)
    }

    async fn destroy(&self, node: &NodeIdentity) -> Hook {
        self.act(&machine_of(node)?, "destroy", "")
    }

    async fn power_off(&self, node: &NodeIdentity) -> Hook {
        self.act(&machine_of(node)?, "power-off", "")
    }

    async fn power_on(&self, node: &NodeIdentity) -> Hook {
        self.act(&machine_of(node)?, "power-on", "")
    }

    async fn inject_fault(&self) -> Hook {
        let rules = json!([
            {"methods": ["soap:*"], "fault": "HostCommunication"},
            {"methods": ["rest:*"], "status": 503},
        ]);
        self.vcsim.set_rules(&rules).map_err(HookError::failed)
    }

    async fn clear_fault(&self) -> Hook {
        self.vcsim.set_rules(&json!([])).map_err(HookError::failed)
    }

    async fn disconnect(&self) -> Hook {
        self.relay.open(false);
        Ok(())
    }

    async fn reconnect(&self) -> Hook {
        self.relay.open(true);
        Ok(())
    }

    fn other_provider_ids(&self, node: &NodeIdentity) -> Hook<Vec<String>> {
        let uuid = node.system_uuid.clone().ok_or_else(|| HookError::failed("no UUID"))?;
        Ok(vec![
            format!("vsphere://{}", uuid.to_uppercase()),
            format!("vsphere:///{uuid}"),
            format!("vsphere:// {uuid} "),
            format!("vsphere://{}", uuid.replace('-', "")),
        ])
    }

    async fn machines(&self) -> Hook<MachineCases> {
        let mut cluster = cluster_spec(&self.vcsim);
        cluster["server"] = format!("127.0.0.1:{}", self.relay.port()).into();
        Ok(MachineCases::new(machine_spec(), cluster).with_many(self.many).with_time_for_cuts(TIME_FOR_CUTS))
    }

    async fn machine_objects(&self) -> Hook<Vec<String>> {
        let all = self.vcsim.inventory().map_err(HookError::failed)?;
        Ok(all.iter().map(|one| format!("{} {}", one["ref"], one["name"])).collect())
    }

    async fn machine_node(&self, provider_id: &str) -> Hook<NodeIdentity> {
        let uuid = provider_id.strip_prefix("vsphere://").unwrap_or_default();
        let all = self.vcsim.inventory().map_err(HookError::failed)?;
        let found = all.iter().find(|one| one["uuid"] == uuid);
        let found = found.ok_or_else(|| HookError::failed("there is no such machine"))?;
        Ok(NodeIdentity {
            name: found["name"].as_str().unwrap_or_default().to_owned(),
            system_uuid: Some(uuid.to_owned()),
            ..NodeIdentity::default()
        })
    }

    async fn foreign_machine(&self, name: &str) -> Hook {
        self.act(&machine(0), "clone", name)
    }

    async fn remove_foreign_machine(&self, name: &str) -> Hook {
        self.act(name, "destroy", "")
    }

    async fn fail_next_task(&self) -> Hook<String> {
        self.vcsim.fail_next_task("CloneVM_Task", "NoDiskSpace").map_err(HookError::failed)?;
        Ok("NoDiskSpace".to_owned())
    }

    fn secrets(&self) -> Hook<Vec<String>> {
        Ok(vec![PASSWORD.to_owned()])
    }

    fn configuration(&self) -> Hook<ConfigurationCases> {
        let yaml = format!(
            "global:\n  port: 443\n  insecureFlag: false\nvcenter:\n  vc0:\n    server: vc0.example.org\n    \
             user: ccm@vsphere.local\n    password: {PASSWORD}\n    datacenters:\n    - DC0\n\
             labels:\n  zone: k8s-zone\n  region: k8s-region\n"
        );
        let ini = format!(
            "[Global]\nport = 443\n[VirtualCenter \"vc0.example.org\"]\nuser = ccm@vsphere.local\n\
             password = \"{PASSWORD}\"\ndatacenters = DC0\n[Labels]\nzone = k8s-zone\nregion = k8s-region\n"
        );
        let bad = format!(
            "global:\n  port: https\n  insecureFlag: maybe\n  user: [{PASSWORD}]\n  password: {{a: {PASSWORD}}}\n\
             vcenter:\n  a:\n    server: https://vc1.example.org/sdk\n    port: 99999\n    \
             thumbprint: {PASSWORD}\n  c: {{}}\n  d: {PASSWORD}\nlabels: {PASSWORD}\n"
        );
        let keys = [
            "global.port",
            "global.insecureFlag",
            "global.user",
            "global.password",
            "vcenter.a.server",
            "vcenter.a.port",
            "vcenter.c.server",
            "vcenter.d",
            "labels",
        ];
        let cases = ConfigurationCases::new(cloudprovider_vsphere::factory)
            .with_good(yaml)
            .with_good(ini)
            .with_bad(bad, keys)
            .with_secret(PASSWORD);
        Ok(cases)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_of_the_contract() {
    let options = VcsimOptions { machines: 3, password: PASSWORD.to_owned(), ..VcsimOptions::default() };
    let Some(vcsim) = simulator(&options) else { return };
    vcsim.attach_tag("k8s-zone", "z0", "ClusterComputeResource", "DC0_C0").expect("a tag");
    vcsim.attach_tag("k8s-zone", "z1", "VirtualMachine", &machine(1)).expect("a tag");
    vcsim.attach_tag("k8s-region", "r0", "Datacenter", "DC0").expect("a tag");
    let relay = Relay::start(vcsim.port()).await.expect("a relay");
    let simulator = Simulator { vcsim, relay, created: AtomicUsize::new(100), many: 1 };
    let suites: Vec<_> = Suite::ALL.iter().copied().filter(|suite| *suite != Suite::Machines).collect();
    let report = conformance::run_suites(&simulator, &suites).await;
    report.print_and_assert();
    // The rules that do not apply to this provider. Another one here would be a rule that no test checks.
    let is_there = |rule: &Rule| !matches!(rule.suite, Suite::LoadBalancers | Suite::Routes);
    let not_checked: Vec<_> =
        report.not_checked().filter(|(rule, _)| is_there(rule)).map(|(rule, _)| rule.to_string()).collect();
    assert_eq!(not_checked, ["lookups/zones", "lookups/clusters"]);
    assert_eq!(simulator.vcsim.sessions().expect("sessions").0, 0, "every provider logged out");
}

/// How many machines are made at the same time. The simulator reads its whole inventory again for each change, so
/// thirty take it more than a minute.
const MANY: usize = 10;

/// For how long each rule tries that cuts steps off. The processes that are killed at every call are another test.
const TIME_FOR_CUTS: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_about_machines() {
    let options = VcsimOptions { password: PASSWORD.to_owned(), ..factory_options() };
    let Some(vcsim) = simulator(&options) else { return };
    // a machine without its zone is not complete
    vcsim.attach_tag("k8s-zone", "z0", "ClusterComputeResource", "DC0_C0").expect("a tag");
    vcsim.attach_tag("k8s-region", "r0", "Datacenter", "DC0").expect("a tag");
    let relay = Relay::start(vcsim.port()).await.expect("a relay");
    let simulator = Simulator { vcsim, relay, created: AtomicUsize::new(100), many: MANY };
    let report = conformance::run_suites(&simulator, &[Suite::Machines]).await;
    report.print_and_assert();
    let not_checked: Vec<_> = report.not_checked().map(|(rule, _)| rule.to_string()).collect();
    assert_eq!(not_checked, ["machines/failure-domain"]);
    assert_eq!(simulator.vcsim.sessions().expect("sessions").0, 0, "every provider logged out");
}
