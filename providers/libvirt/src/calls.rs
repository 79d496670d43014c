//! Calls to libvirt: their counts, the duration of the current call, and their errors.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cloudprovider::{Error, ErrorKind};
use virt::error::{Error as VirtError, ErrorNumber};

/// The operations that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Operation {
    Connect,
    SetKeepalive,
    RegisterEvents,
    NodeInfo,
    ListDomains,
    DomainStates,
    LookupDomain,
    DomainState,
    DomainXml,
    ListNetworks,
    DhcpLeases,
    LeaseAddresses,
    AgentAddresses,
    Capabilities,
    DefineDomain,
    StartDomain,
    SetAutostart,
    ShutdownDomain,
    ResetDomain,
    DestroyDomain,
    UndefineDomain,
    LookupPool,
    ListPools,
    RefreshPool,
    ListVolumes,
    LookupVolume,
    VolumeXml,
    CreateVolume,
    CopyVolume,
    ResizeVolume,
    DeleteVolume,
    UploadVolume,
    DownloadVolume,
    PoolInfo,
    LookupNetwork,
    NetworkState,
    NetworkXml,
    UpdateNetwork,
}

/// The operations' names in counts and messages, in the order of [`Operation`].
const NAMES: [&str; 38] = [
    "connect",
    "set_keepalive",
    "register_events",
    "node_info",
    "list_domains",
    "domain_states",
    "lookup_domain",
    "domain_state",
    "domain_xml",
    "list_networks",
    "dhcp_leases",
    "lease_addresses",
    "agent_addresses",
    "capabilities",
    "define_domain",
    "start_domain",
    "set_autostart",
    "shutdown_domain",
    "reset_domain",
    "destroy_domain",
    "undefine_domain",
    "lookup_pool",
    "list_pools",
    "refresh_pool",
    "list_volumes",
    "lookup_volume",
    "volume_xml",
    "create_volume",
    "copy_volume",
    "resize_volume",
    "delete_volume",
    "upload_volume",
    "download_volume",
    "pool_info",
    "lookup_network",
    "network_state",
    "network_xml",
    "update_network",
];

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// How often each operation was called at one hypervisor.
#[derive(Debug)]
pub(crate) struct Counts([AtomicU64; NAMES.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; NAMES.len()])
    }
}

impl Counts {
    /// Adds these counts to `sum`. Operations without calls are left out.
    pub(crate) fn add_to(&self, sum: &mut BTreeMap<&'static str, u64>) {
        for (name, count) in NAMES.iter().zip(&self.0) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                *sum.entry(name).or_default() += count;
            }
        }
    }
}

/// Since when a thread has been waiting for libvirt.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Milliseconds after [`START`], plus one; zero if no call is in progress.
    since: AtomicU64,
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Progress {
    fn begin(&self) {
        let now = u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.since.store(now + 1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// How long the current call has taken so far.
    pub(crate) fn waiting(&self) -> Duration {
        match self.since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => START.elapsed().saturating_sub(Duration::from_millis(since - 1)),
        }
    }
}

/// Makes calls to libvirt, counts them, and tracks their progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) counts: Arc<Counts>,
    pub(crate) progress: Arc<Progress>,
}

impl Calls {
    /// For a thread whose progress is not watched. Shares the counts.
    pub(crate) fn detached(&self) -> Self {
        Self { counts: Arc::clone(&self.counts), progress: Arc::default() }
    }

    pub(crate) fn call<T>(
        &self,
        operation: Operation,
        call: impl FnOnce() -> Result<T, VirtError>,
    ) -> Result<T, Failure> {
        self.counts.0[operation as usize].fetch_add(1, Ordering::Relaxed);
        self.progress.begin();
        let result = call();
        self.progress.end();
        result.map_err(|error| Failure::from_virt(operation, &error))
    }
}

/// A failed call, with libvirt's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    /// Whether the connection is lost.
    pub(crate) lost: bool,
    /// libvirt's error number, if libvirt reported the error.
    pub(crate) code: Option<ErrorNumber>,
}

impl Failure {
    /// A failure of the connection that this provider detected itself.
    pub(crate) fn lost(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), lost: true, code: None }
    }

    fn from_virt(operation: Operation, error: &VirtError) -> Self {
        use ErrorNumber::{
            AccessDenied, AuthCancelled, AuthFailed, AuthUnavailable, NoDomain, NoSupport, OperationDenied,
        };
        let code = Result::from(error.code()).ok();
        let kind = match code {
            Some(AuthFailed | AuthCancelled | AuthUnavailable) => ErrorKind::Unauthenticated,
            Some(AccessDenied | OperationDenied) => ErrorKind::PermissionDenied,
            Some(NoDomain) => ErrorKind::NotFound,
            Some(NoSupport) => ErrorKind::Unsupported,
            _ => ErrorKind::Unavailable,
        };
        // Neither the error number nor its origin shows whether the connection is lost: libvirt's RPC layer
        // also reports errors about single responses. The owner of the connection checks it.
        Self { kind, message: format!("{}: {}", operation.as_str(), error.message()), lost: false, code }
    }

    /// A failure that this provider detected itself, on a connection that is alive.
    pub(crate) fn of_provider(kind: ErrorKind, message: String) -> Self {
        Self { kind, message, lost: false, code: None }
    }

    /// The same of a call that changes something at most once: without libvirt's own answer it may have taken place.
    pub(crate) fn in_doubt(self) -> Self {
        let kind = if self.lost || self.code.is_none() || self.code == Some(ErrorNumber::Rpc) {
            ErrorKind::Timeout
        } else {
            self.kind
        };
        Self { kind, ..self }
    }

    /// A domain that libvirt has, although it is not in libvirt's list.
    pub(crate) fn unlisted(name: &str) -> Self {
        let message = format!("libvirt has a domain {name:?}, but does not list it");
        Self { kind: ErrorKind::Unavailable, message, lost: false, code: None }
    }

    /// Whether the domain asked about does not exist.
    pub(crate) fn is_no_domain(&self) -> bool {
        self.code == Some(ErrorNumber::NoDomain)
    }

    /// Whether the driver does not support the operation.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self.code, Some(ErrorNumber::NoSupport | ErrorNumber::OperationUnsupported))
    }

    pub(crate) fn to_error(&self) -> Error {
        let error = Error::new(self.kind, self.message.clone());
        match self.kind {
            // a rotated Secret or a changed policy resolves it without a change here
            ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => {
                error.with_retry_after(Duration::from_secs(30))
            }
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use virt::error::ErrorDomain;

    use super::*;

    #[test]
    fn an_error_of_the_rpc_layer_alone_loses_no_connection() {
        let uri = "qemu+unix:///system?socket=/nowhere/at/all";
        let error = crate::sys::open(uri, None).expect_err("nobody listens");
        assert_eq!(Result::from(error.domain()), Ok(ErrorDomain::Rpc));
        assert!(!Failure::from_virt(Operation::AgentAddresses, &error).lost);
    }
}
