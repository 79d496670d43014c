//! All requests to libvirt over one connection. They block, so they run on a [`Worker`](crate::worker).

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use cloudprovider::ErrorKind;
use secrecy::{ExposeSecret, SecretString};
use uuid::Uuid;
use virt::{connect::Connect, domain::Domain as Handle, network::Network};

use crate::{
    addresses::{AgentInterface, Lease},
    calls::{Calls, Failure, Operation},
    config::{Auth, Credential, HypervisorConfig, Keepalive, PKI_FILES, credential_of},
    domain::{Domain, DomainState},
    inventory::{Listing, NetworkLeases},
    provider_id::DomainId,
    size::Size,
    sys::{self, AddressSource, Credentials, EventSink, Registration},
    uri,
};

/// The result of reading domains again.
#[derive(Debug, Default)]
pub(crate) struct Reread {
    /// Their current state; `None` if libvirt reports that there is no such domain.
    pub(crate) domains: Vec<(Uuid, Option<Domain>)>,
    /// Domains that could not be read, and why.
    pub(crate) failed: Vec<(Uuid, String)>,
}

/// The answer to a probe for domains that are in no list.
#[derive(Debug, Default)]
pub(crate) struct Probed {
    /// For each node, why its absence is not confirmed; `None` if it has no domain here.
    pub(crate) unconfirmed: Vec<Option<Failure>>,
    /// Domains that exist after all.
    pub(crate) found: Vec<Uuid>,
}

/// An open connection, for one thread.
///
/// Two threads must not make calls over one connection to a daemon. libvirt's client before 10.4 keeps
/// pointers into the stack of the thread that waits for the responses of both, and uses them after that
/// thread has gone on (CVE-2024-4418). If a keepalive times out meanwhile, the process crashes when the
/// daemon answers again.
pub(crate) struct Session {
    connect: Connect,
    /// Whether the connection is to a daemon, and not to a driver inside this process.
    is_remote: bool,
    config: HypervisorConfig,
    keepalive: Keepalive,
    registration: Option<Registration>,
    networks: HashMap<String, Network>,
    calls: Calls,
    /// Cleared when the driver cannot report all states at once.
    has_domain_states: bool,
    /// Cleared when the driver cannot list the leases of a network.
    has_network_leases: bool,
}

impl Session {
    /// Connects, then registers for events before the first listing, so that no later change is missed.
    pub(crate) fn open(
        config: &HypervisorConfig,
        keepalive: Keepalive,
        calls: Calls,
        sink: &EventSink,
    ) -> Result<Self, Failure> {
        sys::initialize().map_err(|words| Failure::lost(ErrorKind::Internal, words))?;
        let (connect, is_remote) = open_connection(config, keepalive, &calls)?;
        let registration =
            calls.call(Operation::RegisterEvents, || Registration::register(&connect, sink, is_remote))?;
        Ok(Self {
            connect,
            is_remote,
            config: config.clone(),
            keepalive,
            registration: Some(registration),
            networks: HashMap::new(),
            calls,
            has_domain_states: true,
            has_network_leases: true,
        })
    }

    /// Returns a function that opens a connection for another thread. It may block for a while.
    pub(crate) fn connection_for_another(
        &self,
    ) -> impl FnOnce() -> Result<Connect, Failure> + Send + 'static {
        let shared = self.share();
        let (config, keepalive, calls) = (self.config.clone(), self.keepalive, self.calls.detached());
        move || shared.map_or_else(|| Ok(open_connection(&config, keepalive, &calls)?.0), Ok)
    }

    /// A second handle on the same connection, for another thread; `None` if that thread needs a connection
    /// of its own. With a driver inside this process the domains belong to the connection, so it is shared.
    pub(crate) fn share(&self) -> Option<Connect> {
        (!self.is_remote).then(|| self.connect.clone())
    }

    fn call<T>(
        &self,
        operation: Operation,
        call: impl FnOnce() -> Result<T, virt::error::Error>,
    ) -> Result<T, Failure> {
        self.calls.call(operation, call).map_err(|mut failure| {
            failure.lost |= self.connect.is_alive() == Ok(false);
            failure
        })
    }

    /// Lists everything. With N domains on M networks in use this takes 3 + N + M calls. If the driver cannot
    /// report all states at once it takes 2 + 2 N + M. If the driver cannot list the leases of a network it
    /// takes one more for each running domain. Each of the `known` domains that is missing in the list takes
    /// one more, or three if it exists: libvirt silently omits domains that the user may not see.
    pub(crate) fn list(&mut self, known: &[Uuid]) -> Result<Listing, Failure> {
        let handles = self.call(Operation::ListDomains, || self.connect.list_all_domains(0))?;
        let mut states = self.all_states()?;
        let mut domains = Vec::with_capacity(handles.len());
        let mut running = Vec::new();
        for handle in handles {
            let state = handle.uuid().ok().and_then(|uuid| states.remove(&uuid));
            let Some(domain) = self.read(&handle, state)? else { continue };
            if domain.is_running() && !domain.nics.is_empty() {
                running.push(handle);
            }
            domains.push(domain);
        }
        let listed: HashSet<Uuid> = domains.iter().map(|domain| domain.uuid).collect();
        let missing: Vec<Uuid> = known.iter().filter(|uuid| !listed.contains(uuid)).copied().collect();
        let Reread { domains: found, failed: unreadable } = self.reread(&missing)?;
        domains.extend(found.into_iter().filter_map(|(_, domain)| domain));
        let networks: HashSet<String> = domains
            .iter()
            .filter(|domain| domain.is_running())
            .flat_map(Domain::networks)
            .map(str::to_owned)
            .collect();
        self.networks.clear();
        let mut leases = self.network_leases(&networks)?;
        if !self.has_network_leases {
            leases.extend(self.leases_by_domain(&running)?);
        }
        Ok(Listing { domains, unreadable, leases })
    }

    fn all_states(&mut self) -> Result<HashMap<Uuid, (i32, i32)>, Failure> {
        if !self.has_domain_states {
            return Ok(HashMap::new());
        }
        match self.call(Operation::DomainStates, || sys::all_states(&self.connect)) {
            Ok(states) => {
                Ok(states.into_iter().map(|(uuid, state, reason)| (uuid, (state, reason))).collect())
            }
            Err(failure) if failure.lost => Err(failure),
            Err(failure) => {
                // any other error may be temporary
                self.has_domain_states = !failure.is_unsupported();
                Ok(HashMap::new())
            }
        }
    }

    /// Reads a domain; `None` if it is gone. A domain that cannot be read is kept with the
    /// reason, since it still exists.
    fn read(&self, handle: &Handle, state: Option<(i32, i32)>) -> Result<Option<Domain>, Failure> {
        let state = match state {
            Some(state) => Ok(state),
            None => self.call(Operation::DomainState, || sys::state(handle)),
        };
        let state = match state {
            Ok((state, reason)) => DomainState::from_raw(state, reason)
                .ok_or_else(|| format!("libvirt gives the unknown state {state}")),
            Err(failure) if failure.is_no_domain() => return Ok(None),
            Err(failure) if failure.lost => return Err(failure),
            Err(failure) => Err(failure.message),
        };
        let problem = match self.call(Operation::DomainXml, || handle.xml_desc(0)) {
            Ok(xml) => match Domain::parse(&xml, state) {
                Ok(domain) => return Ok(Some(domain)),
                Err(problem) => problem,
            },
            Err(failure) if failure.is_no_domain() => return Ok(None),
            Err(failure) if failure.lost => return Err(failure),
            Err(failure) => failure.message,
        };
        let (Ok(uuid), Ok(name)) = (handle.uuid(), handle.name()) else { return Ok(None) };
        Ok(Some(Domain::unreadable(uuid, name, problem)))
    }

    /// Reads these domains again, with three calls for each.
    pub(crate) fn reread(&mut self, uuids: &[Uuid]) -> Result<Reread, Failure> {
        let mut read = Reread::default();
        for uuid in uuids {
            let handle = self.call(Operation::LookupDomain, || self.connect.lookup_domain_by_uuid(*uuid));
            let domain = match handle {
                Ok(handle) => self.read(&handle, None)?,
                Err(failure) if failure.is_no_domain() => None,
                Err(failure) if failure.lost => return Err(failure),
                Err(failure) => {
                    tracing::debug!(domain = %uuid, reason = failure.message, "cannot read the domain");
                    read.failed.push((*uuid, failure.message));
                    continue;
                }
            };
            read.domains.push((*uuid, domain));
        }
        Ok(read)
    }

    /// Asks for each node by all of its keys, with one call for each key. Only libvirt's "no such domain"
    /// proves that there is none.
    pub(crate) fn probe(&mut self, nodes: &[Vec<DomainId>]) -> Result<Probed, Failure> {
        let mut probed = Probed::default();
        for keys in nodes {
            let mut unconfirmed = None;
            for key in keys {
                let found = self.call(Operation::LookupDomain, || match key {
                    DomainId::Uuid(uuid) => self.connect.lookup_domain_by_uuid(*uuid),
                    DomainId::Name(name) => self.connect.lookup_domain_by_name(name),
                });
                match found {
                    Ok(handle) => {
                        probed.found.extend(handle.uuid());
                        unconfirmed = Some(Failure::unlisted(&handle.name().unwrap_or_default()));
                    }
                    Err(failure) if failure.is_no_domain() => {}
                    Err(failure) if failure.lost => return Err(failure),
                    Err(failure) => unconfirmed = Some(failure),
                }
            }
            probed.unconfirmed.push(unconfirmed);
        }
        Ok(probed)
    }

    /// The hypervisor's CPUs and memory, or why they are not known, with one call.
    pub(crate) fn size(&self) -> Result<Result<Size, String>, Failure> {
        match self.call(Operation::NodeInfo, || self.connect.node_info()) {
            Ok(info) => Ok(Ok(Size { cpus: info.cpus.into(), memory_mib: info.memory >> 10 })),
            Err(failure) if failure.lost => Err(failure),
            Err(failure) => Ok(Err(failure.message)),
        }
    }

    /// UUIDs and names of all domains, with one call.
    pub(crate) fn names(&mut self) -> Result<Vec<(Uuid, String)>, Failure> {
        let handles = self.call(Operation::ListDomains, || self.connect.list_all_domains(0))?;
        Ok(handles.iter().filter_map(|handle| Some((handle.uuid().ok()?, handle.name().ok()?))).collect())
    }

    /// The leases of these networks. If the driver cannot list the leases of a network, each of `domains` is
    /// asked instead, with two calls.
    pub(crate) fn leases(
        &mut self,
        networks: &HashSet<String>,
        domains: &[Uuid],
    ) -> Result<NetworkLeases, Failure> {
        let mut leases = self.network_leases(networks)?;
        if !self.has_network_leases {
            let mut handles = Vec::with_capacity(domains.len());
            for uuid in domains {
                match self.call(Operation::LookupDomain, || self.connect.lookup_domain_by_uuid(*uuid)) {
                    Ok(handle) => handles.push(handle),
                    Err(failure) if failure.lost => return Err(failure),
                    Err(_) => {}
                }
            }
            leases.extend(self.leases_by_domain(&handles)?);
        }
        Ok(leases)
    }

    /// Takes one call for each network, and one more for a network that is not known yet.
    fn network_leases(&mut self, networks: &HashSet<String>) -> Result<NetworkLeases, Failure> {
        let mut leases = NetworkLeases::new();
        if self.has_network_leases && !networks.is_empty() {
            if networks.iter().any(|name| !self.networks.contains_key(name)) {
                self.find_networks()?;
            }
            for name in networks {
                let Some(network) = self.networks.get(name) else { continue };
                match self.call(Operation::DhcpLeases, || sys::dhcp_leases(network)) {
                    Ok(found) => drop(leases.insert(name.clone(), found)),
                    Err(failure) if failure.lost => return Err(failure),
                    Err(failure) if failure.is_unsupported() => {
                        self.has_network_leases = false;
                        break;
                    }
                    // for example a network that was stopped or undefined; the next try looks it up by name
                    // again
                    Err(failure) => {
                        tracing::debug!(network = name, reason = failure.message, "no leases");
                        self.networks.remove(name);
                    }
                }
            }
        }
        Ok(leases)
    }

    fn find_networks(&mut self) -> Result<(), Failure> {
        let active = virt_sys::VIR_CONNECT_LIST_NETWORKS_ACTIVE;
        match self.call(Operation::ListNetworks, || self.connect.list_all_networks(active)) {
            Ok(found) => {
                self.networks =
                    found.into_iter().filter_map(|network| Some((network.name().ok()?, network))).collect();
                Ok(())
            }
            Err(failure) if failure.lost => Err(failure),
            // a host without libvirt's network driver: only the guest agents are left
            Err(failure) => {
                tracing::debug!(reason = failure.message, "no networks");
                Ok(())
            }
        }
    }

    /// Leases by the UUIDs of their domains after a slash, which is not valid in a network's name.
    fn leases_by_domain(&self, handles: &[Handle]) -> Result<NetworkLeases, Failure> {
        let mut leases = NetworkLeases::new();
        for handle in handles {
            let Ok(uuid) = handle.uuid() else { continue };
            let found = self
                .call(Operation::LeaseAddresses, || sys::interface_addresses(handle, AddressSource::Lease));
            let interfaces = match found {
                Ok(interfaces) => interfaces,
                Err(failure) if failure.lost => return Err(failure),
                Err(_) => continue,
            };
            let of_domain = interfaces.into_iter().filter_map(|one| Some((one.mac?, one.ips)));
            let of_domain = of_domain
                .flat_map(|(mac, ips)| ips.into_iter().map(move |ip| (mac, Lease { ip, expires: None })));
            leases.insert(format!("/{uuid}"), of_domain.collect());
        }
        Ok(leases)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take() {
            registration.deregister(&self.connect);
        }
    }
}

/// Opens a connection with keepalive, and tells whether it is to a daemon.
pub(crate) fn open_connection(
    config: &HypervisorConfig,
    keepalive: Keepalive,
    calls: &Calls,
) -> Result<(Connect, bool), Failure> {
    let uri = connection_uri(config)?;
    let credentials = config.auth.as_ref().map(read_credentials).transpose()?;
    let connect =
        calls.call(Operation::Connect, || sys::open(&uri, credentials.as_ref())).map_err(|mut failure| {
            if let Some(credentials) = &credentials {
                failure.message = failure.message.replace(credentials.password.expose_secret(), "***");
            }
            // libvirt's messages often quote the URI
            failure.message = failure.message.replace(&uri, &uri::redacted(&uri));
            failure.lost = true;
            failure
        })?;
    let interval = i32::try_from(keepalive.interval.as_secs()).unwrap_or(i32::MAX);
    let is_remote =
        match calls.call(Operation::SetKeepalive, || connect.set_keep_alive(interval, keepalive.count)) {
            Ok(()) => true,
            Err(failure) if failure.is_unsupported() => false,
            Err(failure) => {
                tracing::warn!(hypervisor = config.name, reason = failure.message, "no keepalive");
                true
            }
        };
    Ok((connect, is_remote))
}

/// Asks a domain's guest agent for its addresses, with two calls. The agent may be slow.
pub(crate) fn ask_agent(
    connect: &Connect,
    calls: &Calls,
    uuid: Uuid,
) -> Result<Vec<AgentInterface>, Failure> {
    let handle = calls.call(Operation::LookupDomain, || connect.lookup_domain_by_uuid(uuid))?;
    calls.call(Operation::AgentAddresses, || sys::interface_addresses(&handle, AddressSource::Agent))
}

/// The URI with parameters for the configuration's other keys.
fn connection_uri(config: &HypervisorConfig) -> Result<String, Failure> {
    let Some(pkipath) = &config.pkipath else { return Ok(config.uri.clone()) };
    let fault = |what: String| Failure::lost(ErrorKind::InvalidConfiguration, what);
    for file in PKI_FILES {
        let path = pkipath.join(file);
        std::fs::File::open(&path)
            .map_err(|error| fault(format!("pkipath: cannot read {}: {error}", path.display())))?;
    }
    let text = pkipath.to_str().ok_or_else(|| fault("pkipath is not valid UTF-8".to_owned()))?;
    Ok(uri::with_parameter(&config.uri, "pkipath", text))
}

fn read_credentials(auth: &Auth) -> Result<Credentials, Failure> {
    Ok(Credentials {
        username: read_credential("username", &auth.username)?,
        password: read_credential("password", &auth.password)?,
    })
}

fn read_credential(what: &str, credential: &Credential) -> Result<SecretString, Failure> {
    let fault = |path: &Path, why: &dyn std::fmt::Display| {
        let path: PathBuf = path.into();
        Failure::lost(
            ErrorKind::Unauthenticated,
            format!("auth: cannot read the {what} from {}: {why}", path.display()),
        )
    };
    match credential {
        Credential::Inline(secret) => Ok(secret.clone()),
        Credential::File(path) => {
            let text =
                SecretString::from(std::fs::read_to_string(path).map_err(|error| fault(path, &error))?);
            credential_of(&text).map_err(|why| fault(path, &why))
        }
    }
}

#[cfg(test)]
mod tests;
