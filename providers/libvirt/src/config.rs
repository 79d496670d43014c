//! The configuration: what an operator writes, checked as a whole.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use cloudprovider::{
    ConfigProblem, Error, FactoryInput, Result, TextOddity, label_value_fault, manifest_in_place_of_config,
    yaml_fault_cause, yaml_syntax_fault,
};
use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

mod machines;

pub use self::machines::MachineLimits;

use crate::{
    addresses::{AddressRules, Family},
    fields::{Fields, Problems, SECTIONS, nearest},
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
}

/// One hypervisor, that is one libvirtd.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HypervisorConfig {
    /// The operator's name for it, used in messages, and never in a provider ID.
    pub name: String,
    /// libvirt's connection URI. Must not contain secrets.
    pub uri: String,
    /// The region of its Nodes.
    pub region: Option<String>,
    /// The zone of its Nodes.
    pub zone: Option<String>,
    /// Its failure domain, if that is not its zone. See [`failure_domain`](Self::failure_domain).
    pub failure_domain: Option<String>,
    /// SASL credentials. They are read again for each connection.
    pub auth: Option<Auth>,
    /// A directory with `cacert.pem`, `clientcert.pem` and `clientkey.pem`.
    pub pkipath: Option<PathBuf>,
}

impl HypervisorConfig {
    /// The failure domain of machines on it: what is configured, else its zone, else its name.
    pub fn failure_domain(&self) -> &str {
        self.failure_domain.as_deref().or(self.zone.as_deref()).unwrap_or(&self.name)
    }
}

/// SASL credentials of a hypervisor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Auth {
    /// The user name.
    pub username: Credential,
    /// The password.
    pub password: Credential,
}

/// Where a credential comes from.
#[derive(Clone)]
pub enum Credential {
    /// The configuration itself.
    Inline(SecretString),
    /// A file, such as a key of a mounted Secret. One trailing line break is dropped.
    File(PathBuf),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Inline(***)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
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
        let (config, problems) = Self::parse_leniently(text, path);
        match config {
            Some(config) if problems.faults.is_empty() => Ok(config),
            _ => Err(Error::invalid_configuration(problems.faults)),
        }
    }

    /// The configuration as far as it can be read, and all faults in it.
    fn parse_leniently(text: &str, path: Option<&Path>) -> (Option<Self>, Problems) {
        let mut problems = Problems::default();
        let config = read_yaml(text, &mut problems)
            .and_then(|value| read_config(value, path.and_then(Path::parent), &mut problems));
        (config, problems)
    }

    /// Reads and checks a configuration with the files that it names. The contents of credential files become
    /// part of it. The files of a `pkipath` are checked here, and read by libvirt for each connection.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse), and each file that cannot be used, with its key and its path.
    pub fn read(input: &FactoryInput) -> Result<Self> {
        let text = input.config.as_deref().unwrap_or_default();
        let (config, Problems { faults: mut problems, warnings }) =
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

/// The files that must be in the directory of a `pkipath`.
pub(crate) const PKI_FILES: [&str; 3] = ["cacert.pem", "clientcert.pem", "clientkey.pem"];

fn read_credential_file(input: &FactoryInput, path: &Path) -> std::result::Result<SecretString, String> {
    let content =
        input.read_file(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let text = String::from_utf8(content).map_err(|_| format!("{} is not valid UTF-8", path.display()))?;
    credential_of(&text.into()).map_err(|why| format!("{}: {why}", path.display()))
}

/// The credential in a file's text.
pub(crate) fn credential_of(text: &SecretString) -> std::result::Result<SecretString, &'static str> {
    let value = text.expose_secret();
    let value = value.strip_suffix('\n').unwrap_or(value);
    let value = value.strip_suffix('\r').unwrap_or(value);
    if value.is_empty() {
        return Err("the file is empty");
    }
    if value.contains('\0') {
        return Err("the file holds a NUL character");
    }
    Ok(value.into())
}

/// Checks a file early: libvirt reports a broken file only when it connects, and with little detail.
fn check_pem(input: &FactoryInput, path: &Path) -> std::result::Result<(), String> {
    let content =
        input.read_file(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let is_pem = content.windows(PEM.len()).any(|part| part == PEM);
    if is_pem { Ok(()) } else { Err(format!("{} is not in PEM format", path.display())) }
}

const PEM: &[u8] = b"-----BEGIN ";

fn read_yaml(text: &str, problems: &mut Problems) -> Option<Value> {
    // the library's own message may quote the text, which may contain a password, so only the position is
    // shown
    let options = serde_saphyr::options! { with_snippet: false };
    match serde_saphyr::from_str_with_options::<Value>(text, options) {
        Ok(value) => Some(value),
        Err(error) => {
            let what = yaml_fault(&error);
            let place = error.location().map_or(String::new(), |place| {
                format!(" (line {}, column {})", place.line(), place.column())
            });
            let line = error.location().map(|place| usize::try_from(place.line()).unwrap_or(usize::MAX));
            let cause = line.and_then(|line| yaml_fault_cause(text, line));
            let cause = cause.map_or(String::new(), |cause| format!("; {cause}"));
            problems.add("", format!("{what}{place}{cause}"));
            None
        }
    }
}

/// A fixed message about what is wrong with the text.
fn yaml_fault(error: &serde_saphyr::Error) -> &'static str {
    if matches!(error.without_snippet(), serde_saphyr::Error::DuplicateMappingKey { .. }) {
        return "the same key stands twice";
    }
    yaml_syntax_fault(&error.without_snippet().to_string())
}

/// The kind of a Kubernetes manifest, if the text is one: none of its keys is meant as a section.
fn kind_of_manifest(value: &Value) -> Option<&str> {
    let keys = value.as_object()?;
    keys.get("apiVersion")?;
    let is_section = keys.keys().any(|key| nearest(key, &SECTIONS).is_some());
    keys.get("kind")?.as_str().filter(|_| !is_section)
}

fn read_config(value: Value, base: Option<&Path>, problems: &mut Problems) -> Option<Config> {
    if let Some(kind) = kind_of_manifest(&value) {
        problems.add("", manifest_in_place_of_config(kind));
        return None;
    }
    let mut fields = Fields::new("", value, problems)?;
    let seconds = Duration::from_secs;
    let mut hypervisors = Vec::new();
    let mut names = HashMap::new();
    let mut uris = HashMap::new();
    let had_problems = problems.faults.len();
    match fields.list("hypervisors", problems) {
        Some(list) if !list.is_empty() => {
            for (path, value) in list {
                let hypervisor = read_hypervisor(&path, value, base, problems);
                check_name(&path, &hypervisor.name, &mut names, problems);
                check_uri(&path, &hypervisor.uri, &mut uris, problems);
                hypervisors.push(hypervisor);
            }
        }
        _ if problems.faults.len() > had_problems => {}
        _ => problems.add("hypervisors", "is missing or empty; list at least one with name and uri"),
    }
    let addresses = fields.take("addresses").map(|value| read_addresses(value, problems)).unwrap_or_default();
    let call_timeout = fields.duration("callTimeout", seconds(1)..=seconds(300), problems);
    let keepalive = fields.take("keepalive").map_or(KEEPALIVE, |value| read_keepalive(value, problems));
    let refresh_interval = fields.duration("refreshInterval", seconds(10)..=seconds(86_400), problems);
    let has_routes = fields.take("routes").is_some_and(|value| read_routes(value, &hypervisors, problems));
    let address_pools = fields.take_even_empty(address_pools::Config::KEY).and_then(|value| {
        address_pools::Config::read(address_pools::Config::KEY, &value, &mut problems.faults)
    });
    let machines = fields.take("machines").map(|value| MachineLimits::read(value, problems));
    fields.finish(problems);
    Some(Config {
        has_routes,
        hypervisors,
        addresses,
        call_timeout: call_timeout.unwrap_or(CALL_TIMEOUT),
        keepalive,
        refresh_interval: refresh_interval.unwrap_or(REFRESH_INTERVAL),
        address_pools,
        machines: machines.unwrap_or_default(),
    })
}

/// Checks that a name is given once, since names identify hypervisors in messages. `names` maps known names
/// to their places.
fn check_name(path: &str, name: &str, names: &mut HashMap<String, String>, problems: &mut Problems) {
    if name.is_empty() {
        return;
    }
    match names.get(name) {
        Some(first) => problems.add(
            format!("{path}.name"),
            format!("{name:?} is the name of {first} already; each needs its own"),
        ),
        None => drop(names.insert(name.to_owned(), path.to_owned())),
    }
}

/// Checks that a URI is given once. One libvirtd under two names would have every domain twice.
fn check_uri(path: &str, uri: &str, uris: &mut HashMap<String, String>, problems: &mut Problems) {
    if uri.is_empty() {
        return;
    }
    match uris.get(uri) {
        Some(first) => problems.add(format!("{path}.uri"), format!("is the uri of {first} already")),
        None => drop(uris.insert(uri.to_owned(), path.to_owned())),
    }
}

/// Reads a hypervisor. Faulty fields are left empty, so that checks across hypervisors still work and
/// positions are right.
fn read_hypervisor(
    path: &str,
    value: Value,
    base: Option<&Path>,
    problems: &mut Problems,
) -> HypervisorConfig {
    let Some(mut fields) = Fields::new(path, value, problems) else {
        return HypervisorConfig {
            name: String::new(),
            uri: String::new(),
            region: None,
            zone: None,
            failure_domain: None,
            auth: None,
            pkipath: None,
        };
    };
    let name = fields.required_text("name", "a name of your own for this hypervisor", problems);
    let uri = fields.required_text("uri", "libvirt's connection URI, such as qemu:///system", problems);
    let region = label_value(&mut fields, "region", problems);
    let zone = label_value(&mut fields, "zone", problems);
    let failure_domain = label_value(&mut fields, "failureDomain", problems);
    let pkipath = fields.text("pkipath", problems).map(PathBuf::from);
    if let Some(uri) = &uri {
        for fault in uri::faults(uri) {
            problems.add(fields.path("uri"), fault);
        }
        if pkipath.is_some() && uri::has_parameter(uri, "pkipath") {
            problems.add(fields.path("pkipath"), "stands in the uri too; give it once");
        }
        if pkipath.is_some() && !uri::is_tls(uri) {
            problems.add(
                fields.path("pkipath"),
                "has an effect on TLS only; write the uri as qemu+tls://host/system",
            );
        }
    }
    if pkipath.as_ref().is_some_and(|path| !path.is_absolute()) {
        problems.add(fields.path("pkipath"), "must be an absolute path of a directory");
    }
    let auth_path = fields.path("auth");
    let auth = fields.take("auth").and_then(|value| read_auth(&auth_path, value, base, problems));
    fields.finish(problems);
    HypervisorConfig {
        name: name.unwrap_or_default(),
        uri: uri.unwrap_or_default(),
        region,
        zone,
        failure_domain,
        auth,
        pkipath,
    }
}

/// A text that becomes the value of a label, so Kubernetes' rule applies to it.
fn label_value(fields: &mut Fields, key: &'static str, problems: &mut Problems) -> Option<String> {
    let text = fields.text(key, problems)?;
    if is_label_value(&text) {
        return Some(text);
    }
    problems.add(
        fields.path(key),
        "cannot be the value of a label: at most 63 letters, digits, '-', '_' and '.', \
         beginning and ending with a letter or digit",
    );
    None
}

/// Whether a label can have `text` as a value that says something.
pub(crate) fn is_label_value(text: &str) -> bool {
    !text.is_empty() && label_value_fault(text).is_none()
}

fn read_auth(path: &str, value: Value, base: Option<&Path>, problems: &mut Problems) -> Option<Auth> {
    let mut fields = Fields::new(path, value, problems)?;
    let mut credential = |key: &'static str, file_key: &'static str| {
        let inline = fields.text(key, problems).map(|text| Credential::Inline(text.into()));
        let file = fields.text(file_key, problems).map(|file| {
            let file = PathBuf::from(file);
            Credential::File(base.map_or_else(|| file.clone(), |base| base.join(&file)))
        });
        if inline.is_some() && file.is_some() {
            problems.add(fields.path(key), format!("stands beside {file_key}; give one of the two"));
        }
        (file.or(inline), fields.path(file_key))
    };
    let (username, _) = credential("username", "usernameFile");
    let (password, password_path) = credential("password", "passwordFile");
    // a key of the wrong type has been reported already; only absent keys are missing
    let reported = |key: &str, problems: &Problems| {
        problems.faults.iter().any(|problem| problem.key.starts_with(&format!("{path}.{key}")))
    };
    if username.is_none() && !reported("username", problems) {
        problems.add(fields.path("username"), "is missing; give username or usernameFile");
    }
    if password.is_none() && !reported("password", problems) {
        problems.add(password_path, "is missing; give the path of a file, such as a key of a mounted Secret");
    }
    fields.finish(problems);
    Some(Auth { username: username?, password: password? })
}

fn read_keepalive(value: Value, problems: &mut Problems) -> Keepalive {
    let Some(mut fields) = Fields::new("keepalive", value, problems) else { return KEEPALIVE };
    let range = Duration::from_secs(1)..=Duration::from_secs(300);
    let interval = fields.duration("interval", range, problems).unwrap_or(KEEPALIVE.interval);
    if interval.subsec_nanos() != 0 {
        problems.add("keepalive.interval", "must be whole seconds");
    }
    let count = fields.number("count", 1, problems).unwrap_or(KEEPALIVE.count);
    fields.finish(problems);
    Keepalive { interval, count }
}

/// Whether routes are switched on. They are made on the host that the daemon runs on, so that must be the hypervisor.
fn read_routes(value: Value, hypervisors: &[HypervisorConfig], problems: &mut Problems) -> bool {
    let Some(mut fields) = Fields::new("routes", value, problems) else { return false };
    let is_enabled = fields.boolean("enabled", problems).unwrap_or(false);
    fields.finish(problems);
    if !is_enabled {
        return false;
    }
    if hypervisors.len() > 1 {
        let many = format!(
            "routes are made by a daemon on the only hypervisor; there are {}, and the daemon runs on one of them at most",
            hypervisors.len()
        );
        problems.add("routes.enabled", many);
    }
    for (i, hypervisor) in hypervisors.iter().enumerate() {
        if !hypervisor.uri.is_empty() && !uri::is_local(&hypervisor.uri) {
            let remote = format!(
                "routes are made in the kernel of the host that the daemon runs on, which must be the hypervisor; \
                 hypervisors[{i}].uri leads to another host; run the daemon there and write qemu:///system"
            );
            problems.add("routes.enabled", remote);
        }
    }
    true
}

fn read_addresses(value: Value, problems: &mut Problems) -> AddressRules {
    let mut rules = AddressRules::default();
    let Some(mut fields) = Fields::new("addresses", value, problems) else { return rules };
    let mut networks = |key: &'static str| {
        let what = "a network in CIDR notation, such as 10.0.0.0/24 or 2001:db8::/64";
        fields.parsed_list(key, what, |text| text.parse::<IpNet>().ok(), problems).unwrap_or_default()
    };
    rules.internal = networks("internal");
    rules.external = networks("external");
    rules.exclude = networks("exclude");
    let what = "a family; known: ipv4, ipv6";
    if let Some(families) = fields.parsed_list("families", what, Family::parse, problems) {
        if families.is_empty() && !problems.faults.iter().any(|p| p.key.starts_with("addresses.families")) {
            problems.add("addresses.families", "is empty; name ipv4, ipv6 or both, in order of preference");
        }
        if families.len() == 2 && families[0] == families[1] || families.len() > 2 {
            problems.add("addresses.families", "names a family twice");
        }
        rules.families = families;
    }
    fields.finish(problems);
    rules
}

#[cfg(test)]
mod tests;
