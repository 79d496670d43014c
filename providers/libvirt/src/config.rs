//! The configuration: what an operator writes, checked as a whole.

use std::{collections::HashMap, path::Path, time::Duration};

use cloudprovider::{ConfigProblem, Error, FactoryInput, Result, TextOddity, manifest_in_place_of_config};
use ipnet::IpNet;
use provider_kit::{Findings, hints, yaml};
use secrecy::ExposeSecret;
use serde_json::Value;

mod credentials;
mod hypervisors;
mod machines;

pub use self::{
    credentials::{Auth, Credential},
    hypervisors::HypervisorConfig,
    machines::MachineLimits,
};
pub(crate) use self::{
    credentials::{PKI_FILES, credential_of},
    hypervisors::is_label_value,
};

use self::{
    credentials::{check_pem, read_credential_file},
    hypervisors::{check_name, check_uri, read_hypervisor},
    machines::read_machines,
};
use crate::{
    addresses::{AddressRules, Family},
    allow::Allow,
    fields::{SECTIONS, mapping},
    uri,
};

/// The configuration of the provider.
///
/// ```
/// let config = cloudprovider_libvirt::Config::parse(
///     "hypervisors:\n- name: kvm1\n  uri: qemu+tls://kvm1.example.org/system\n  zone: rack-1\n",
///     None,
/// )?;
/// assert_eq!(config.hypervisors[0].zone.as_deref(), Some("rack-1"));
/// # Ok::<(), cloudprovider::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The hypervisors, at least one, each with its own name.
    pub hypervisors: Vec<HypervisorConfig>,
    /// Which addresses of a domain become addresses of its Node.
    pub addresses: AddressRules,
    /// How long one call to libvirt may take before its connection counts as dead. Default 10 s.
    pub call_timeout: Duration,
    /// How a silent connection is detected.
    pub keepalive: Keepalive,
    /// How often everything is listed again in spite of events. Default 5 min.
    pub refresh_interval: Duration,
    /// Whether pod CIDRs become routes of this host's kernel. Default no.
    pub has_routes: bool,
    /// Where load balancers get their addresses. `None`: there are no load balancers.
    pub address_pools: Option<address_pools::Config>,
    /// How much of a hypervisor its domains may take before no new machine is put there.
    pub machines: MachineLimits,
    /// What the objects of each namespace may name. Default: nothing of what another tenant, the daemon or a hypervisor could
    /// lose.
    pub allow: Allow,
}

/// When a connection without responses counts as dead: after about `interval` x (`count` + 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Time without traffic before libvirt sends a keepalive message, in whole seconds. Default 5 s.
    pub interval: Duration,
    /// How many keepalive messages may stay unanswered. Default 3.
    pub count: u32,
}

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE: Keepalive = Keepalive { interval: Duration::from_secs(5), count: 3 };
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

impl Config {
    /// Reads and checks a configuration. Relative paths in it are relative to the directory of `path`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfiguration`](cloudprovider::ErrorKind::InvalidConfiguration) with every fault, each
    /// with its key and without any value that may be a secret.
    pub fn parse(text: &str, path: Option<&Path>) -> Result<Self> {
        let (config, findings) = Self::parse_leniently(text, path);
        match config {
            Some(config) if findings.problems.is_empty() => Ok(config),
            _ => Err(Error::invalid_configuration(findings.problems)),
        }
    }

    /// The configuration as far as it can be read, and all faults in it.
    fn parse_leniently(text: &str, path: Option<&Path>) -> (Option<Self>, Findings) {
        let mut findings = Findings::default();
        let value = yaml::strict_value(text).map_err(|why| findings.problem("", why)).ok();
        let config = value.and_then(|value| read_config(value, path.and_then(Path::parent), &mut findings));
        (config, findings)
    }

    /// Reads and checks a configuration with the files that it names. The contents of credential files become
    /// part of it. The files of a `pkipath` are checked here, and read by libvirt for each connection.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse), and each file that cannot be used, with its key and its path.
    pub fn read(input: &FactoryInput) -> Result<Self> {
        let text = input.config.as_deref().unwrap_or_default();
        let (config, Findings { mut problems, warnings }) =
            Self::parse_leniently(text, input.config_path.as_deref());
        for warning in warnings {
            input.warn(warning);
        }
        let Some(mut config) = config else { return Err(Error::invalid_configuration(problems)) };
        for (i, hypervisor) in config.hypervisors.iter_mut().enumerate() {
            if let Some(auth) = &mut hypervisor.auth {
                for (key, credential) in
                    [("usernameFile", &mut auth.username), ("passwordFile", &mut auth.password)]
                {
                    let Credential::File(path) = credential else { continue };
                    match read_credential_file(input, path) {
                        Ok(secret) => {
                            if let Some(oddity) = TextOddity::in_secret(secret.expose_secret()) {
                                let key = format!("hypervisors[{i}].auth.{key}");
                                input.warn(ConfigProblem::new(
                                    key,
                                    format!("the value in the file {}", oddity.of_secret()),
                                ));
                            }
                            *credential = Credential::Inline(secret);
                        }
                        Err(why) => {
                            problems.push(ConfigProblem::new(format!("hypervisors[{i}].auth.{key}"), why));
                        }
                    }
                }
            }
            let key = format!("hypervisors[{i}].pkipath");
            // If the folder itself is at fault, its files are not checked.
            let folder = hypervisor.pkipath.iter().filter(|_| !problems.iter().any(|known| known.key == key));
            let files: Vec<_> = folder.flat_map(|folder| PKI_FILES.map(|file| folder.join(file))).collect();
            for path in files {
                if let Err(why) = check_pem(input, &path) {
                    problems.push(ConfigProblem::new(&key, why));
                }
            }
        }
        if problems.is_empty() { Ok(config) } else { Err(Error::invalid_configuration(problems)) }
    }
}

/// The kind of a Kubernetes manifest, if the text is one: none of its keys is meant as a section.
fn kind_of_manifest(value: &Value) -> Option<&str> {
    let keys = value.as_object()?;
    keys.get("apiVersion")?;
    let is_section = keys.keys().any(|key| hints::nearest(key, SECTIONS).is_some());
    keys.get("kind")?.as_str().filter(|_| !is_section)
}

fn read_config(value: Value, base: Option<&Path>, findings: &mut Findings) -> Option<Config> {
    if let Some(kind) = kind_of_manifest(&value) {
        findings.problem("", manifest_in_place_of_config(kind));
        return None;
    }
    let mut fields = mapping("", value, findings)?;
    let seconds = Duration::from_secs;
    let mut hypervisors = Vec::new();
    let mut names = HashMap::new();
    let mut uris = HashMap::new();
    let had_problems = findings.problems.len();
    match fields.list("hypervisors", findings) {
        Some(list) if !list.is_empty() => {
            for (path, value) in list {
                let hypervisor = read_hypervisor(&path, value, base, findings);
                check_name(&path, &hypervisor.name, &mut names, findings);
                check_uri(&path, &hypervisor.uri, &mut uris, findings);
                hypervisors.push(hypervisor);
            }
        }
        _ if findings.problems.len() > had_problems => {}
        _ => findings.problem("hypervisors", "is missing or empty; list at least one with name and uri"),
    }
    let addresses = fields.take("addresses").map(|value| read_addresses(value, findings)).unwrap_or_default();
    let call_timeout = fields.duration("callTimeout", seconds(1)..=seconds(300), findings);
    let keepalive = fields.take("keepalive").map_or(KEEPALIVE, |value| read_keepalive(value, findings));
    let refresh_interval = fields.duration("refreshInterval", seconds(10)..=seconds(86_400), findings);
    let has_routes = fields.take("routes").is_some_and(|value| read_routes(value, &hypervisors, findings));
    let address_pools = fields
        .take_even_empty(address_pools::Config::KEY)
        .and_then(|value| address_pools::Config::read(address_pools::Config::KEY, &value, findings));
    let (machines, allow) =
        fields.take("machines").map(|value| read_machines(value, findings)).unwrap_or_default();
    for (key, name) in allow.hypervisors() {
        if !hypervisors.iter().any(|one| one.name == name) {
            findings.problem(key, format!("{name:?} is the name of no element of hypervisors"));
        }
    }
    fields.finish(findings);
    Some(Config {
        has_routes,
        hypervisors,
        addresses,
        call_timeout: call_timeout.unwrap_or(CALL_TIMEOUT),
        keepalive,
        refresh_interval: refresh_interval.unwrap_or(REFRESH_INTERVAL),
        address_pools,
        machines,
        allow,
    })
}

fn read_keepalive(value: Value, findings: &mut Findings) -> Keepalive {
    let Some(mut fields) = mapping("keepalive", value, findings) else { return KEEPALIVE };
    let range = Duration::from_secs(1)..=Duration::from_secs(300);
    let interval = fields.duration("interval", range, findings).unwrap_or(KEEPALIVE.interval);
    if interval.subsec_nanos() != 0 {
        findings.problem("keepalive.interval", "must be whole seconds");
    }
    let count = fields.number("count", 1, findings).unwrap_or(KEEPALIVE.count);
    fields.finish(findings);
    Keepalive { interval, count }
}

/// Whether routes are switched on. They are made on the host that the daemon runs on, so that must be the hypervisor.
fn read_routes(value: Value, hypervisors: &[HypervisorConfig], findings: &mut Findings) -> bool {
    let Some(mut fields) = mapping("routes", value, findings) else { return false };
    let is_enabled = fields.boolean("enabled", findings).unwrap_or(false);
    fields.finish(findings);
    if !is_enabled {
        return false;
    }
    if hypervisors.len() > 1 {
        let many = format!(
            "routes are made by a daemon on the only hypervisor; there are {}, and the daemon runs on one of them at most",
            hypervisors.len()
        );
        findings.problem("routes.enabled", many);
    }
    for (i, hypervisor) in hypervisors.iter().enumerate() {
        if !hypervisor.uri.is_empty() && !uri::is_local(&hypervisor.uri) {
            let remote = format!(
                "routes are made in the kernel of the host that the daemon runs on, which must be the hypervisor; \
                 hypervisors[{i}].uri leads to another host; run the daemon there and write qemu:///system"
            );
            findings.problem("routes.enabled", remote);
        }
    }
    true
}

fn read_addresses(value: Value, findings: &mut Findings) -> AddressRules {
    let mut rules = AddressRules::default();
    let Some(mut fields) = mapping("addresses", value, findings) else { return rules };
    let mut networks = |key: &'static str| {
        let what = "a network in CIDR notation, such as 10.0.0.0/24 or 2001:db8::/64";
        fields.parsed_list(key, what, |text| text.parse::<IpNet>().ok(), findings).unwrap_or_default()
    };
    rules.internal = networks("internal");
    rules.external = networks("external");
    rules.exclude = networks("exclude");
    let what = "a family; known: ipv4, ipv6";
    if let Some(families) = fields.parsed_list("families", what, Family::parse, findings) {
        if families.is_empty() && !findings.problems.iter().any(|p| p.key.starts_with("addresses.families")) {
            findings
                .problem("addresses.families", "is empty; name ipv4, ipv6 or both, in order of preference");
        }
        if families.len() == 2 && families[0] == families[1] || families.len() > 2 {
            findings.problem("addresses.families", "names a family twice");
        }
        rules.families = families;
    }
    fields.finish(findings);
    rules
}

#[cfg(test)]
mod tests;
