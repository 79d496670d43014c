//! Builds the [`Config`] from the operator's settings: applies defaults and inheritance, and checks the
//! values.

mod credentials;

use std::{collections::BTreeMap, path::PathBuf};

use cloudprovider::ConfigProblem;
use ipnet::IpNet;
use provider_kit::{Environment, Findings, Format, Settings, Value};

use super::{
    Config, MachineOptions, NsxParts, VCenterConfig, ZoneLabels, allow,
    keys::{GLOBAL, LABELS, LOAD_BALANCER, LOAD_BALANCER_CLASS, MACHINES, NODES, NSXT, ROUTE, VCENTER},
    names,
};
use crate::{
    addresses::{AddressRules, Family, Side},
    http::Endpoint,
    thumbprint::Thumbprint,
};

const DEFAULT_PORT: u16 = 443;

/// The load balancer sizes that NSX-T accepts.
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
        // What no vCenter inherits is checked too.
        self.families("");
        let labels = self.labels();
        let addresses = self.addresses();
        let machines = self.machines(&vcenters);
        let nsx = self.nsx();
        let address_pools = self.address_pools();
        Config {
            vcenters,
            labels,
            addresses,
            machines,
            nsx,
            address_pools,
            skip_node_deletion: environment.has("SKIP_NODE_DELETION"),
            warnings: Vec::new(),
        }
    }

    fn vcenters(&mut self) -> Vec<VCenterConfig> {
        let mut names = self.settings.names(VCENTER);
        let global = self.settings.text((GLOBAL, "", "server")).map(str::to_owned);
        // As in CPI, also where another entry has the same server: that entry may list other datacenters.
        // vCenter tells their machines apart.
        if let Some(server) = &global
            && !names.contains(server)
        {
            names.push(server.clone());
        }
        if names.is_empty() && !self.settings.says_none(VCENTER) {
            let message = match self.settings.format() {
                Format::Yaml => {
                    "no vCenter is given; write vcenter:, below it a name of your own, and below that server:, or \
                     vcenter: {} for machines alone whose clusters name their credentials"
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
        let is_synthetic = !self.settings.has_section(VCENTER, &name);
        let server = if is_synthetic {
            global_server.unwrap_or_default().to_owned()
        } else {
            match self.settings.text((VCENTER, name.as_str(), "server")) {
                Some(server) => server.to_owned(),
                // a section of INI is named after its server
                None if self.settings.format() == Format::Ini || global_server == Some(&name) => name.clone(),
                None => {
                    let origin = self.settings.origin((VCENTER, name.as_str(), "server"));
                    self.findings.problem(origin, "is missing; give the vCenter's host name or IP address");
                    String::new()
                }
            }
        };
        let host = if server.is_empty() {
            String::new()
        } else {
            let origin = if is_synthetic {
                self.settings.origin((GLOBAL, "", "server"))
            } else if self.settings.get((VCENTER, name.as_str(), "server")).is_some() {
                self.settings.origin((VCENTER, name.as_str(), "server"))
            } else {
                self.settings.section_origin(VCENTER, &name)
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
        let insecure = [(VCENTER, name.as_str()), (GLOBAL, "")]
            .into_iter()
            .any(|(section, name)| self.settings.flag((section, name, "insecureFlag")) == Some(true));
        let ca_files = self.inherited_text(&name, "caFile").map(|(text, _)| {
            // As in Go's SplitList, empty parts are skipped.
            text.split(':').filter(|part| !part.is_empty()).map(PathBuf::from).collect()
        });
        let thumbprint = self.inherited_text(&name, "thumbprint").map(|(text, origin)| {
            // Whether the thumbprint is used is known only when vCenter shows a certificate.
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
        [(VCENTER, name), (GLOBAL, "")].into_iter().find_map(|(section, name)| {
            let text = self.settings.text((section, name, key))?;
            Some((text.to_owned(), self.settings.origin((section, name, key))))
        })
    }

    /// A list without its empty items, and where it stands. As in CPI, an item of a YAML list may hold
    /// several items, separated by commas.
    fn inherited_list(&self, name: &str, key: &'static str) -> (Vec<String>, String) {
        for (section, name) in [(VCENTER, name), (GLOBAL, "")] {
            if let Some(setting) = self.settings.get((section, name, key))
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
        for (section, name) in [(VCENTER, name), (GLOBAL, "")] {
            let Some(setting) = self.settings.get((section, name, "port")) else { continue };
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

    /// Adds a problem, once even if several vCenters inherit it.
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

    /// Adds a warning, once even if several vCenters inherit it.
    fn warn_once(&mut self, origin: String, message: impl Into<String>) {
        let warning = ConfigProblem::new(origin, message);
        if !self.findings.warnings.contains(&warning) {
            self.findings.warnings.push(warning);
        }
    }

    fn labels(&mut self) -> ZoneLabels {
        let text = |key: &str| self.settings.text((LABELS, "", key)).map(str::to_owned);
        let (zone, region) = (text("zone"), text("region"));
        if zone.is_some() != region.is_some() {
            let origin = self.settings.section_origin(LABELS, "");
            self.findings.warning(
                origin,
                "names one of zone and region; CPI gives a Node neither then, here it gets the one",
            );
        }
        ZoneLabels {
            zone,
            region,
            follow_moves: self.settings.flag((LABELS, "", "followMoves")).unwrap_or(true),
        }
    }

    fn addresses(&mut self) -> AddressRules {
        let name = |builder: &Self, key: &str| builder.settings.text((NODES, "", key)).map(str::to_owned);
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
            all: self.settings.flag((NODES, "", "allAddresses")).unwrap_or(false),
        }
    }

    fn machines(&mut self, vcenters: &[VCenterConfig]) -> MachineOptions {
        let names: Vec<_> = vcenters.iter().map(|one| one.reference.clone()).collect();
        let allow = self.settings.tree(allow::ALLOW);
        let allow = allow.map(|value| allow::read(value, &names, &mut self.findings.problems));
        let allow = allow.unwrap_or_default();
        self.findings.warnings.extend(allow::warnings(&allow));
        let flag = |key: &str| self.settings.flag((MACHINES, "", key)).unwrap_or(false);
        MachineOptions {
            remove_bootstrap_data: flag("removeBootstrapData"),
            node_anti_affinity: flag("nodeAntiAffinity"),
            allow,
        }
    }

    fn networks(&mut self, key: &'static str) -> Vec<IpNet> {
        let Some(setting) = self.settings.get((NODES, "", key)) else { return Vec::new() };
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

    fn address_pools(&mut self) -> Option<address_pools::Config> {
        let value = self.settings.tree(address_pools::Config::KEY)?;
        address_pools::Config::read(address_pools::Config::KEY, value, self.findings)
    }

    /// A faulty NSX-T configuration is not fatal. CPI runs without its NSX-T parts then, and this provider
    /// has none.
    fn nsx(&mut self) -> NsxParts {
        let settings = self.settings;
        let lb = LOAD_BALANCER;
        let text = |section: &str, key: &str| settings.text((section, "", key));
        let is_given = ["size", "lbServiceId", "ipPoolId", "ipPoolName", "tier1GatewayPath"];
        let classes = settings.names(LOAD_BALANCER_CLASS);
        let parts = NsxParts {
            load_balancer: !classes.is_empty() || is_given.iter().any(|key| text(lb, key).is_some()),
            routes: text(ROUTE, "routerPath").is_some(),
            manager: settings.has_values(NSXT),
        };
        if parts.manager || parts.load_balancer || parts.routes {
            self.check_manager();
        }
        if parts.load_balancer {
            self.check_load_balancer(&classes);
        }
        if settings.has_section(ROUTE, "") && !parts.routes {
            let origin = settings.origin((ROUTE, "", "routerPath"));
            self.findings.warning(origin, "is missing; give the path of a tier-1 gateway");
        }
        parts
    }

    fn check_manager(&mut self) {
        let settings = self.settings;
        let has = |key: &str| settings.text((NSXT, "", key)).is_some();
        let section = settings.section_origin(NSXT, "");
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
                let origin = settings.origin((NSXT, "", second));
                self.findings.warning(origin, format!("is missing; {first} needs it"));
            }
            None => self.findings.warning(
                section,
                "has no credentials; give user and password, a Secret, a client certificate or an access token",
            ),
        }
        if !has("host") {
            let origin = settings.origin((NSXT, "", "host"));
            self.findings.warning(origin, "is missing; give the NSX manager's host name");
        }
    }

    fn check_load_balancer(&mut self, classes: &[String]) {
        let settings = self.settings;
        let lb = LOAD_BALANCER;
        let has = |key: &str| settings.text((lb, "", key)).is_some();
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
        if !settings.text((lb, "", "size")).is_some_and(|size| LOAD_BALANCER_SIZES.contains(&size)) {
            let origin = settings.origin((lb, "", "size"));
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
                        .any(|key| settings.text((LOAD_BALANCER_CLASS, class.as_str(), *key)).is_some())
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
