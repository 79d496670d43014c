//! Who is at the other end of a connection: the certificates that it showed, and what they were found to be.

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

/// How long a refusal is remembered: a certificate may become valid, and clocks are set.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Certificates that are verified at the same time: no more of the machine than that.
static VERIFYING: Semaphore = Semaphore::const_new(2);

/// The other end of one connection.
pub(super) struct Peer {
    pub source: Source,
    /// Its own first. They were few and small enough to be looked at.
    certificates: Arc<[CertificateDer<'static>]>,
    /// Held while they are verified: whoever asks for the same meanwhile waits for that.
    remembered: Mutex<Option<Remembered>>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("certificates", &self.certificates.len()).finish_non_exhaustive()
    }
}

/// What was found, for as long as the same are trusted.
struct Remembered {
    by: Trusted,
    until: SystemTime,
    verdict: Arc<Verdict>,
}

/// One version of whom the server believes.
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

/// What the certificates of a peer are.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Whether they are the front proxy's. `None`: nobody is.
    pub proxy: Option<Result<(), String>>,
    /// Whose they are by their names.
    pub client: Opinion,
}

impl Verdict {
    /// Whether the peer proved to be somebody who is known.
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

    /// Bytes of its certificates.
    pub(super) fn size(&self) -> usize {
        self.certificates.iter().map(|certificate| certificate.len()).sum()
    }

    /// What the certificates are. They are verified once for each connection and version of whom the server believes, on
    /// a thread that nobody waits for.
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
        // Nobody closes it. The work has the turn until it ends, also where nobody waits for it any more.
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

/// The verdict, and when it ends.
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
