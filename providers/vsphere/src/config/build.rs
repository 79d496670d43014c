//! From what the operator wrote to what the provider works with: defaults, inheritance and checks.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use cloudprovider::{ConfigProblem, SecretName, TextOddity};
use ipnet::IpNet;

use super::{
    Config, CredentialPlaces, NsxParts, SecretPlace, VCenterConfig, ZoneLabels,
    environment::Environment,
    keys::Section,
    names,
    settings::{Findings, Format, Settings, Value},
};
use crate::{
    addresses::{AddressRules, Family, Side},
    http::Endpoint,
    tls::Thumbprint,
};

const DEFAULT_PORT: u16 = 443;

/// Where CPI looks for credentials that nobody told it of.
const DEFAULT_SECRETS_DIRECTORY: &str = "/etc/cloud/secrets";

/// What NSX-T takes for the size of a load balancer.
const LOAD_BALANCER_SIZES: [&str; 5] = ["DLB", "LARGE", "MEDIUM", "SMALL", "XLARGE"];

pub(crate) fn build(settings: &Settings, environment: &Environment, findings: &mut Findings) -> Config {
    Builder { settings, findings }.build(environment)
}

struct Builder<'a> {
    settings: &'a Settings,
    findings: &'a mut Findings,
}

impl Builder<'_> {
    fn build(mut self, environment: &Environment) -> Config {
        let vcenters = self.vcenters();
        let labels = self.labels();
        let addresses = self.addresses();
        let nsx = self.nsx();
        Config {
            vcenters,
            labels,
            addresses,
            nsx,
            skip_node_deletion: environment.has("SKIP_NODE_DELETION"),
            warnings: Vec::new(),
        }
    }

    fn vcenters(&mut self) -> Vec<VCenterConfig> {
        let mut names = self.settings.names(Section::VCenter);
        let global = self.settings.text(Section::Global, "", "server").map(str::to_owned);
        // As in CPI, also where an entry of another name has the same server: that one may list other datacenters. Their
        // machines are told apart by vCenter.
        if let Some(server) = &global
            && !names.contains(server)
        {
            names.push(server.clone());
        }
        if names.is_empty() {
            let message = match self.settings.format {
                Format::Yaml => {
                    "no vCenter is given; write vcenter:, below it a name of your own, and below that server:"
                }
                Format::Ini => {
                    "no vCenter is given; write a section [VirtualCenter \"host name of the vCenter\"]"
                }
            };
            self.findings.problem("", message);
        }
        names.sort();
        names.into_iter().map(|name| self.vcenter(name, global.as_deref())).collect()
    }

    fn vcenter(&mut self, name: String, global_server: Option<&str>) -> VCenterConfig {
        let is_synthetic = !self.settings.has(Section::VCenter, &name);
        let server = if is_synthetic {
            global_server.unwrap_or_default().to_owned()
        } else {
            match self.settings.text(Section::VCenter, &name, "server") {
                Some(server) => server.to_owned(),
                // a section of INI is called by its server
                None if self.settings.format == Format::Ini || global_server == Some(&name) => name.clone(),
                None => {
                    let origin = self.settings.origin(Section::VCenter, &name, "server");
                    self.findings.problem(origin, "is missing; give the vCenter's host name or IP address");
                    String::new()
                }
            }
        };
        let host = if server.is_empty() {
            String::new()
        } else {
            let origin = if is_synthetic {
                self.settings.origin(Section::Global, "", "server")
            } else if self.settings.get(Section::VCenter, &name, "server").is_some() {
                self.settings.origin(Section::VCenter, &name, "server")
            } else {
                self.settings.section_origin(Section::VCenter, &name)
            };
            match names::host(&server) {
                Ok(host) => host,
                Err(message) => {
                    self.findings.problem(origin, message);
                    String::new()
                }
            }
        };
        let port = self.port(&name);
        let insecure = [(Section::VCenter, name.as_str()), (Section::Global, "")]
            .iter()
            .any(|(section, name)| self.settings.flag(*section, name, "insecureFlag") == Some(true));
        let ca_files = self.inherited_text(&name, "caFile").map(|(text, _)| {
            // Go's SplitList: empty parts are none
            text.split(':').filter(|part| !part.is_empty()).map(PathBuf::from).collect()
        });
        let thumbprint = self.inherited_text(&name, "thumbprint").map(|(text, origin)| {
            // Whether anybody looks at it is not known before there is a certificate.
            text.parse::<Thumbprint>().unwrap_or_else(|error| {
                let effect = if insecure {
                    "it is not looked at, since insecureFlag is true"
                } else {
                    "without it only an authority can vouch for the certificate"
                };
                self.warn_once(origin, format!("{error}; {effect}"));
                Thumbprint::malformed()
            })
        });
        VCenterConfig {
            endpoint: Endpoint { host, port, ca_files: ca_files.unwrap_or_default(), thumbprint, insecure },
            datacenters: self.inherited_list(&name, "datacenters").0,
            families: self.families(&name),
            credentials: self.credentials(&name),
            reference: name,
            server,
        }
    }

    fn inherited_text(&self, name: &str, key: &'static str) -> Option<(String, String)> {
        [(Section::VCenter, name), (Section::Global, "")].into_iter().find_map(|(section, name)| {
            let text = self.settings.text(section, name, key)?;
            Some((text.to_owned(), self.settings.origin(section, name, key)))
        })
    }

    /// A list without its empty items, and where it stands. CPI joins the items of YAML with commas and splits them again, so
    /// that an item may hold several.
    fn inherited_list(&self, name: &str, key: &'static str) -> (Vec<String>, String) {
        for (section, name) in [(Section::VCenter, name), (Section::Global, "")] {
            if let Some(setting) = self.settings.get(section, name, key)
                && let Value::List(items) = &setting.value
            {
                let items = items.iter().flat_map(|item| item.split(',')).map(str::trim);
                let items: Vec<_> = items.filter(|item| !item.is_empty()).map(str::to_owned).collect();
                if !items.is_empty() {
                    return (items, setting.origin.clone());
                }
            }
        }
        (Vec::new(), String::new())
    }

    fn port(&mut self, name: &str) -> u16 {
        for (section, name) in [(Section::VCenter, name), (Section::Global, "")] {
            let Some(setting) = self.settings.get(section, name, "port") else { continue };
            match setting.value {
                Value::Number(0) => {}
                Value::Number(number) => match u16::try_from(number) {
                    Ok(port) => return port,
                    Err(_) => {
                        self.problem_once(setting.origin.clone(), "must be a port number, 1 to 65535");
                        return DEFAULT_PORT;
                    }
                },
                _ => {}
            }
        }
        DEFAULT_PORT
    }

    /// A problem that several vCenters may share by inheritance.
    fn problem_once(&mut self, origin: String, message: impl Into<String>) {
        if !self.findings.problems.iter().any(|problem| problem.key == origin) {
            self.findings.problem(origin, message);
        }
    }

    fn families(&mut self, name: &str) -> Vec<Family> {
        let (words, origin) = self.inherited_list(name, "ipFamily");
        let mut families = Vec::new();
        for word in words {
            match Family::parse(&word) {
                Some(family) if families.contains(&family) => {}
                Some(family) => families.push(family),
                None => self
                    .problem_once(origin.clone(), format!("{word:?} is not an IP family; known: ipv4, ipv6")),
            }
        }
        if families.is_empty() { vec![Family::Ipv4] } else { families }
    }

    fn credentials(&mut self, name: &str) -> CredentialPlaces {
        let user = self.inherited_text(name, "user");
        let password = self.inherited_text(name, "password");
        let inline = user.zip(password);
        let own = self.secret_object(Section::VCenter, name, inline.is_some());
        let global = self.secret_object(Section::Global, "", inline.is_some());
        let directory = self.settings.text(Section::Global, "", "secretsDirectory").map(PathBuf::from);
        let secret = match (own, global, directory) {
            (Some(own), _, _) => Some(SecretPlace::Object(own)),
            (None, Some(_), Some(_)) => {
                let origin = self.settings.origin(Section::Global, "", "secretsDirectory");
                if inline.is_none() {
                    self.problem_once(origin, "stands beside the name of a Secret; give one of the two");
                } else {
                    self.warn_once(origin, "stands beside the name of a Secret; neither is used");
                }
                None
            }
            (None, Some(global), None) => Some(SecretPlace::Object(global)),
            (None, None, Some(directory)) => Some(SecretPlace::Directory(directory)),
            (None, None, None) => None,
        };
        // the folder that CPI looks into unasked
        let secret = secret.or_else(|| {
            let default = Path::new(DEFAULT_SECRETS_DIRECTORY);
            (inline.is_none() && default.is_dir()).then(|| SecretPlace::Directory(default.to_owned()))
        });
        if secret.is_none() && inline.is_none() && self.findings.problems.is_empty() {
            self.missing_credentials(name);
        }
        let mut is_inline_first = secret.is_none();
        if let (Some(secret), Some(((user, origin), (password, _)))) = (&secret, &inline) {
            is_inline_first = self.is_inline_first(name, user, password);
            let words = if is_inline_first {
                format!(
                    "stands beside {secret}: this user and its password are used, and {secret} where vCenter refuses them"
                )
            } else {
                format!(
                    "stands beside {secret}, which is used; this user and its password are for what it lacks or vCenter refuses"
                )
            };
            self.warn_once(origin.clone(), words);
        }
        let inline = inline.map(|((user, _), (password, _))| (user, password.into()));
        CredentialPlaces { secret, inline, is_inline_first }
    }

    /// Whether user and password come before a Secret. In CPI those of the vCenter's own do, and those of `global` where that
    /// is the vCenter; others are not used there beside a Secret.
    fn is_inline_first(&self, name: &str, user: &str, password: &str) -> bool {
        let place = if self.settings.has(Section::VCenter, name) {
            (Section::VCenter, name)
        } else {
            (Section::Global, "")
        };
        let has_both =
            ["user", "password"].iter().all(|key| self.settings.text(place.0, place.1, key).is_some());
        has_both && [user, password].iter().all(|text| TextOddity::of(text) != Some(TextOddity::Placeholder))
    }

    fn missing_credentials(&mut self, name: &str) {
        let place = if self.settings.has(Section::VCenter, name) {
            self.settings.section_origin(Section::VCenter, name)
        } else {
            self.settings.section_origin(Section::Global, "")
        };
        let key = |key| match self.settings.format {
            Format::Yaml => key,
            Format::Ini => {
                Section::Global.keys().find(|known| known.name == key).map_or(key, |known| known.ini)
            }
        };
        let has = |key| self.inherited_text(name, key).is_some();
        let message = match (has("user"), has("password"), has("secretName"), has("secretNamespace")) {
            (true, false, ..) => {
                let begins = match self.settings.format {
                    Format::Yaml => "# ! or &, or is ~ or null,",
                    Format::Ini => "# or ;",
                };
                format!(
                    "has a {} and no {}; one that begins with {begins} must stand in double quotes",
                    key("user"),
                    key("password")
                )
            }
            (false, true, ..) => format!("has a {} and no {}", key("password"), key("user")),
            (_, _, true, false) => format!("has a {} and no {}", key("secretName"), key("secretNamespace")),
            (_, _, false, true) => format!("has a {} and no {}", key("secretNamespace"), key("secretName")),
            _ => format!(
                "has no credentials; give {} and {} of a Secret, or a {}, or {} and {}",
                key("secretName"),
                key("secretNamespace"),
                key("secretsDirectory"),
                key("user"),
                key("password")
            ),
        };
        self.findings.problem(place, message);
    }

    /// A warning that several vCenters may share by inheritance.
    fn warn_once(&mut self, origin: String, message: impl Into<String>) {
        let warning = ConfigProblem::new(origin, message);
        if !self.findings.warnings.contains(&warning) {
            self.findings.warnings.push(warning);
        }
    }

    /// A Secret whose name and namespace both stand there. Where they cannot be any, that is a fault unless `has_others`:
    /// credentials without a Secret.
    fn secret_object(
        &mut self,
        section: Section,
        section_name: &str,
        has_others: bool,
    ) -> Option<SecretName> {
        let text = |key| self.settings.text(section, section_name, key).map(str::to_owned);
        match (text("secretNamespace"), text("secretName")) {
            (Some(namespace), Some(name)) => {
                let faults = [
                    ("secretNamespace", names::namespace_fault(&namespace)),
                    ("secretName", names::secret_fault(&name)),
                ];
                let is_name = faults.iter().all(|(_, fault)| fault.is_none());
                for (key, fault) in faults {
                    let Some(fault) = fault else { continue };
                    let origin = self.settings.origin(section, section_name, key);
                    if has_others {
                        let words =
                            format!("{fault}; no Secret is used, but user and password of the configuration");
                        self.warn_once(origin, words);
                    } else {
                        self.problem_once(origin, fault);
                    }
                }
                (is_name || !has_others).then_some(SecretName { namespace, name })
            }
            (Some(_), None) => {
                let origin = self.settings.origin(section, section_name, "secretNamespace");
                self.warn_once(origin, "has no effect without the Secret's name");
                None
            }
            (None, Some(_)) => {
                let origin = self.settings.origin(section, section_name, "secretName");
                self.warn_once(origin, "has no effect without the Secret's namespace");
                None
            }
            (None, None) => None,
        }
    }

    fn labels(&mut self) -> ZoneLabels {
        let text = |key| self.settings.text(Section::Labels, "", key).map(str::to_owned);
        let (zone, region) = (text("zone"), text("region"));
        if zone.is_some() != region.is_some() {
            let origin = self.settings.section_origin(Section::Labels, "");
            self.findings.warning(
                origin,
                "names one of zone and region; CPI gives a Node neither then, here it gets the one",
            );
        }
        ZoneLabels {
            zone,
            region,
            follow_moves: self.settings.flag(Section::Labels, "", "followMoves").unwrap_or(true),
        }
    }

    fn addresses(&mut self) -> AddressRules {
        let name = |builder: &Self, key| builder.settings.text(Section::Nodes, "", key).map(str::to_owned);
        AddressRules {
            internal: Side {
                networks: self.networks("internalNetworkSubnetCidr"),
                network_name: name(self, "internalVmNetworkName"),
                exclude: self.networks("excludeInternalNetworkSubnetCidr"),
            },
            external: Side {
                networks: self.networks("externalNetworkSubnetCidr"),
                network_name: name(self, "externalVmNetworkName"),
                exclude: self.networks("excludeExternalNetworkSubnetCidr"),
            },
            all: self.settings.flag(Section::Nodes, "", "allAddresses").unwrap_or(false),
        }
    }

    fn networks(&mut self, key: &'static str) -> Vec<IpNet> {
        let Some(setting) = self.settings.get(Section::Nodes, "", key) else { return Vec::new() };
        let Value::List(items) = &setting.value else { return Vec::new() };
        let mut networks = Vec::new();
        for item in items {
            match item.parse::<IpNet>() {
                Ok(network) => networks.push(network.trunc()),
                Err(_) => self.findings.problem(
                    setting.origin.clone(),
                    format!("{item:?} is not a network; write it as 10.0.0.0/8 or fd00::/8, several joined by commas"),
                ),
            }
        }
        networks
    }

    /// CPI runs without its NSX-T parts where their configuration is faulty. Since nothing of them is done here, no
    /// fault in them keeps the rest from running.
    fn nsx(&mut self) -> NsxParts {
        let settings = self.settings;
        let lb = Section::LoadBalancer;
        let text = |section, key| settings.text(section, "", key);
        let is_given = ["size", "lbServiceId", "ipPoolId", "ipPoolName", "tier1GatewayPath"];
        let classes = settings.names(Section::LoadBalancerClass);
        let parts = NsxParts {
            load_balancer: !classes.is_empty() || is_given.iter().any(|key| text(lb, key).is_some()),
            routes: text(Section::Route, "routerPath").is_some(),
            manager: settings.has_values(Section::Nsxt),
        };
        if parts.manager || parts.load_balancer || parts.routes {
            self.check_manager();
        }
        if parts.load_balancer {
            self.check_load_balancer(&classes);
        }
        if settings.has(Section::Route, "") && !parts.routes {
            let origin = settings.origin(Section::Route, "", "routerPath");
            self.findings.warning(origin, "is missing; give the path of a tier-1 gateway");
        }
        parts
    }

    fn check_manager(&mut self) {
        let settings = self.settings;
        let has = |key| settings.text(Section::Nsxt, "", key).is_some();
        let section = settings.section_origin(Section::Nsxt, "");
        let pairs = [
            ("vmcAccessToken", "vmcAuthHost"),
            ("user", "password"),
            ("clientAuthKeyFile", "clientAuthCertFile"),
            ("clientAuthCertFile", "clientAuthKeyFile"),
            ("secretName", "secretNamespace"),
            ("secretNamespace", "secretName"),
        ];
        match pairs.into_iter().find(|(first, _)| has(first)) {
            Some((_, second)) if has(second) => {}
            Some((first, second)) => {
                let origin = settings.origin(Section::Nsxt, "", second);
                self.findings.warning(origin, format!("is missing; {first} needs it"));
            }
            None => self.findings.warning(
                section,
                "has no credentials; give user and password, a Secret, a client certificate or an access token",
            ),
        }
        if !has("host") {
            let origin = settings.origin(Section::Nsxt, "", "host");
            self.findings.warning(origin, "is missing; give the NSX manager's host name");
        }
    }

    fn check_load_balancer(&mut self, classes: &[String]) {
        let settings = self.settings;
        let lb = Section::LoadBalancer;
        let has = |key| settings.text(lb, "", key).is_some();
        let section = settings.section_origin(lb, "");
        let mut missing = BTreeMap::new();
        for (first, second) in [
            ("lbServiceId", "tier1GatewayPath"),
            ("tcpAppProfileName", "tcpAppProfilePath"),
            ("udpAppProfileName", "udpAppProfilePath"),
        ] {
            if !has(first) && !has(second) {
                missing.insert(first, format!("needs {first} or {second}"));
            }
        }
        for message in missing.into_values() {
            self.findings.warning(&section, message);
        }
        if !settings.text(lb, "", "size").is_some_and(|size| LOAD_BALANCER_SIZES.contains(&size)) {
            let origin = settings.origin(lb, "", "size");
            self.findings.warning(origin, format!("must be one of {}", LOAD_BALANCER_SIZES.join(", ")));
        }
        match (has("ipPoolName"), has("ipPoolId")) {
            (true, true) => {
                self.findings.warning(&section, "has ipPoolName and ipPoolId; give one of the two");
            }
            (false, false) => {
                let has_pool = |class: &String| {
                    ["ipPoolName", "ipPoolId"]
                        .iter()
                        .any(|key| settings.text(Section::LoadBalancerClass, class, key).is_some())
                };
                if !classes.iter().any(|class| class == "default" && has_pool(class)) {
                    self.findings
                        .warning(&section, "needs ipPoolName or ipPoolId, here or in the class \"default\"");
                }
            }
            _ => {}
        }
    }
}
