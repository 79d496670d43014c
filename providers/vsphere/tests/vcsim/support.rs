//! Starts a simulator and a provider on it.

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use cloudprovider::{
    CloudProvider as _, Error, Instance, InstanceLookup, NodeIdentity, SecretSource, StartContext,
};
use cloudprovider_vsphere::{Config, Environment, VSphereProvider};
use test_env::{StartError, Vcsim, VcsimOptions};
use tokio_util::sync::CancellationToken;

pub(crate) const LIMIT: Duration = test_env::PATIENCE;

/// Starts a simulator; `None`, with a message, if this machine cannot run one.
pub(crate) fn simulator(options: &VcsimOptions) -> Option<Vcsim> {
    match Vcsim::start(options) {
        Ok(vcsim) => Some(vcsim),
        Err(StartError::Unavailable(reason)) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A running provider.
pub(crate) struct Running {
    pub(crate) provider: Arc<VSphereProvider>,
    stop: CancellationToken,
}

impl Running {
    pub(crate) async fn start(config: &str) -> Self {
        Self::start_in(config, &[]).await
    }

    /// Starts a provider with these environment variables.
    pub(crate) async fn start_in(config: &str, environment: &[(&str, &str)]) -> Self {
        let environment: Environment = environment.iter().copied().collect();
        let provider =
            VSphereProvider::new(Config::parse(config, &environment).expect("a good configuration"));
        let provider = Arc::new(provider.with_tag_refresh(Duration::from_secs(1)));
        let stop = CancellationToken::new();
        provider.start(StartContext::new(stop.clone(), "test")).await.expect("started");
        Self { provider, stop }
    }

    /// Starts a provider that can read these Secrets.
    pub(crate) async fn start_with(config: &str, secrets: impl SecretSource + 'static) -> Self {
        let config = Config::parse(config, &Environment::default()).expect("a good configuration");
        let provider = Arc::new(VSphereProvider::new(config));
        let stop = CancellationToken::new();
        let context = StartContext::new(stop.clone(), "test").with_secrets(Arc::new(secrets));
        provider.start(context).await.expect("started");
        Self { provider, stop }
    }

    pub(crate) async fn look_up(&self, node: &NodeIdentity) -> InstanceLookup {
        let instances = self.provider.instances().expect("instances");
        instances.lookup(&[node]).await.remove(0)
    }

    /// Waits until a look-up returns an answer that `check` accepts.
    pub(crate) async fn eventually(
        &self,
        node: &NodeIdentity,
        what: &str,
        check: impl Fn(&InstanceLookup) -> bool,
    ) -> InstanceLookup {
        let began = Instant::now();
        loop {
            let answer = self.look_up(node).await;
            if check(&answer) {
                return answer;
            }
            assert!(began.elapsed() < LIMIT, "{what}: {answer:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.provider.ended()).await.expect("it ends");
    }
}

/// The section that lets the objects of every namespace name everything: most tests are about something else.
pub(crate) const OPEN: &str = r#"machines:
  allow:
  - servers: ["*"]
    templates: ["*"]
    machinesAsTemplates: true
    folders: ["*"]
    resourcePools: ["*"]
    datastores: ["*"]
    networks: ["*"]
    takeOver: ["*"]
    storagePolicies: ["*"]
    tags: ["*"]
    pciDevices: ["*"]
    macAddresses: ["*"]
    vmxKeys: ["*"]
"#;

/// The configuration for these simulators, called `vc0`, `vc1`, ..., in CPI's format. Objects may name everything.
pub(crate) fn config(simulators: &[&Vcsim]) -> String {
    format!("{}{OPEN}", closed_config(simulators))
}

/// The same for a configuration without the list of what objects may name.
pub(crate) fn closed_config(simulators: &[&Vcsim]) -> String {
    let mut text = String::from("vcenter:\n");
    for (number, vcsim) in simulators.iter().enumerate() {
        writeln!(
            text,
            "  vc{number}:\n    server: 127.0.0.1\n    port: {}\n    user: {:?}\n    password: {:?}\n    caFile: {}",
            vcsim.port(),
            vcsim.user(),
            vcsim.password(),
            vcsim.ca_file().display()
        )
        .expect("a string");
    }
    text
}

/// The configuration without a vCenter: clusters name their credentials, for any server.
pub(crate) fn without_vcenter() -> String {
    format!("vcenter: {{}}\n{OPEN}")
}

/// Adds the tag categories for zones and regions.
pub(crate) fn with_zones(config: &str) -> String {
    format!("{config}labels:\n  zone: k8s-zone\n  region: k8s-region\n")
}

/// The Node of the machine with this number.
pub(crate) fn node(number: usize) -> NodeIdentity {
    NodeIdentity {
        name: format!("node-{number}"),
        system_uuid: Some(uuid(number)),
        ..NodeIdentity::default()
    }
}

/// The same Node, initialised.
pub(crate) fn known(number: usize) -> NodeIdentity {
    NodeIdentity { provider_id: Some(format!("vsphere://{}", uuid(number))), ..node(number) }
}

pub(crate) fn uuid(number: usize) -> String {
    format!("5a3c0de0-0000-4000-8000-{number:012x}")
}

/// The name of the machine with this number in the simulator.
pub(crate) fn machine(number: usize) -> String {
    format!("DC0_C0_RP0_VM{number}")
}

pub(crate) fn present(lookup: &InstanceLookup) -> Option<&Instance> {
    match lookup {
        InstanceLookup::Present(instance) => Some(instance),
        _ => None,
    }
}

pub(crate) fn unknown(lookup: &InstanceLookup) -> Option<&Error> {
    match lookup {
        InstanceLookup::Unknown(error) => Some(error),
        _ => None,
    }
}
