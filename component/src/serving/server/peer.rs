//! The client of a connection: its certificates, and the result of their verification.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::pki_types::CertificateDer;
use tokio::sync::{Mutex, Semaphore};

use super::{
    client_certificate,
    source::Source,
    trust::{Authorities, FrontProxy},
    user::Opinion,
};

/// How long a failed verification is remembered. A certificate may become valid, and clocks may be set.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Maximum number of verifications at the same time, which limits their use of the CPU.
static VERIFYING: Semaphore = Semaphore::const_new(2);

/// The client of one connection.
pub(super) struct Peer {
    pub source: Source,
    /// The client's own certificate is first. Their number and size have been checked.
    certificates: Arc<[CertificateDer<'static>]>,
    /// Locked during a verification: requests that need the same result wait for it.
    remembered: Mutex<Option<Remembered>>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("certificates", &self.certificates.len()).finish_non_exhaustive()
    }
}

/// The result of a verification. It holds as long as the same authorities are trusted.
struct Remembered {
    by: Trusted,
    until: SystemTime,
    verdict: Arc<Verdict>,
}

/// One version of the trusted authorities.
#[derive(Clone, Debug, Default)]
pub(super) struct Trusted {
    pub proxy: Option<Arc<FrontProxy>>,
    pub clients: Option<Arc<Authorities>>,
}

impl Trusted {
    fn is_same(&self, other: &Self) -> bool {
        let same_proxy = match (&self.proxy, &other.proxy) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let same_clients = match (&self.clients, &other.clients) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same_proxy && same_clients
    }
}

/// The result of verifying a client's certificates.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Whether they are valid for the front proxy. `None`: no front proxy is trusted.
    pub proxy: Option<Result<(), String>>,
    /// The user that the certificate names.
    pub client: Opinion,
}

impl Verdict {
    /// Whether the certificates identify a front proxy or a user.
    pub(super) fn is_somebody(&self) -> bool {
        matches!(self.proxy, Some(Ok(()))) || matches!(self.client, Ok(Some(_)))
    }
}

impl Peer {
    pub(super) fn new(source: Source, certificates: Vec<CertificateDer<'static>>) -> Self {
        Self { source, certificates: certificates.into(), remembered: Mutex::default() }
    }

    pub(super) fn has_certificates(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// Total size of the certificates, in bytes.
    pub(super) fn size(&self) -> usize {
        self.certificates.iter().map(|certificate| certificate.len()).sum()
    }

    /// The verdict on the certificates. They are verified once for each connection and version of the trusted
    /// authorities, on a thread for blocking work.
    pub(super) async fn verdict(&self, by: Trusted) -> Arc<Verdict> {
        if !self.has_certificates() || (by.proxy.is_none() && by.clients.is_none()) {
            return Arc::new(Verdict { proxy: None, client: Ok(None) });
        }
        let mut remembered = self.remembered.lock().await;
        if let Some(known) = &*remembered
            && known.by.is_same(&by)
            && SystemTime::now() < known.until
        {
            return known.verdict.clone();
        }
        let (certificates, trusted) = (self.certificates.clone(), by.clone());
        // The semaphore is never closed. The verification keeps its permit until it ends, even if the caller
        // is gone.
        let turn = VERIFYING.acquire().await;
        let judging = move || {
            let _turn = turn;
            judge(&certificates, &trusted)
        };
        let judged = tokio::task::spawn_blocking(judging).await;
        let Ok((verdict, until)) = judged else {
            return Arc::new(Verdict { proxy: None, client: Err("it cannot be verified".to_owned()) });
        };
        let verdict = Arc::new(verdict);
        *remembered = Some(Remembered { by, until, verdict: verdict.clone() });
        verdict
    }
}

/// The verdict, and the time until which it holds.
fn judge(certificates: &[CertificateDer<'static>], by: &Trusted) -> (Verdict, SystemTime) {
    let now = SystemTime::now();
    let verdict = Verdict {
        proxy: by.proxy.as_ref().and_then(|proxy| is_proxy(certificates, proxy)),
        client: by.clients.as_ref().map_or(Ok(None), |authorities| {
            authorities.verify(certificates).map_err(|why| format!("client certificate: {why}"))?;
            certificates.first().map_or(Ok(None), client_certificate::user)
        }),
    };
    let end = if verdict.is_somebody() { client_certificate::end(certificates, now) } else { None };
    (verdict, end.unwrap_or(now + REFUSED_FOR))
}

fn is_proxy(certificates: &[CertificateDer<'static>], proxy: &FrontProxy) -> Option<Result<(), String>> {
    let authorities = proxy.authorities.as_ref()?;
    let judge = || {
        authorities.verify(certificates).map_err(|why| format!("not the front proxy: {why}"))?;
        let name = certificates.first().map_or(Ok(String::new()), client_certificate::common_name)?;
        if !proxy.allowed_names.is_empty() && !proxy.allowed_names.contains(&name) {
            return Err(format!("x509: subject with cn={name} is not in the allowed list"));
        }
        Ok(())
    };
    Some(judge())
}
