//! The trusted authorities: for client certificates, and for the front proxy.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context as _, anyhow, bail};
use arc_swap::ArcSwapOption;
use basics::tls::check_chain;
use rustls::{
    DistinguishedName, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    files::FileChanges,
    reload::{ReloadReporter, Source},
    serving::{AuthenticationOptions, RequestHeaderOptions},
};

/// The `ConfigMap` with the authorities that the cluster trusts.
pub(super) const CONFIG_MAP: &str = "extension-apiserver-authentication";
pub(super) const CONFIG_MAP_NAMESPACE: &str = "kube-system";

/// The trusted authorities now. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Trust {
    /// `None`: client certificates do not count.
    pub clients: Option<Arc<Followed<Authorities>>>,
    /// `None`: the front proxy's headers do not count.
    pub front_proxy: Option<Arc<Followed<FrontProxy>>>,
}

/// A value that is reloaded when it changes.
#[derive(Debug)]
pub(super) struct Followed<T> {
    /// `None`: not known yet.
    pub now: ArcSwapOption<T>,
    pub origin: Origin,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    File,
    Cluster,
}

impl<T> Followed<T> {
    fn new(origin: Origin, now: Option<T>) -> Arc<Self> {
        Arc::new(Self { now: ArcSwapOption::from(now.map(Arc::new)), origin })
    }
}

/// A bundle of certificate authorities.
pub(super) struct Authorities {
    pem: Vec<u8>,
    subjects: Vec<DistinguishedName>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorities").field("count", &self.subjects.len()).finish_non_exhaustive()
    }
}

impl PartialEq for Authorities {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Authorities {
    /// Parses a bundle in PEM.
    ///
    /// # Errors
    /// The bundle has no certificate, or an invalid one.
    pub(super) fn parse(pem: &[u8]) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| anyhow!("the CA bundle is not PEM"))?;
            roots.add(certificate).map_err(|error| anyhow!("the CA bundle cannot be used: {error}"))?;
        }
        if roots.is_empty() {
            bail!("the CA bundle holds no certificate");
        }
        let subjects = roots.subjects();
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { pem: pem.to_vec(), subjects, verifier })
    }

    fn read(path: &Path, flag: &str) -> anyhow::Result<Self> {
        let pem = fs::read(path).with_context(|| format!("{flag}: {} cannot be read", path.display()))?;
        Self::parse(&pem).with_context(|| format!("{flag}: {}", path.display()))
    }

    /// Whether one of the authorities signed this chain for clients, and whether the chain is valid now. The
    /// client's own certificate comes first.
    ///
    /// # Errors
    /// Why the chain is not valid.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let Some((own, intermediates)) = chain.split_first() else {
            return Err("no certificate".to_owned());
        };
        check_chain(own, intermediates).map_err(|error| error.to_string())?;
        let verified = self.verifier.verify_client_cert(own, intermediates, UnixTime::now());
        verified.map(drop).map_err(|error| error.to_string())
    }
}

/// The front proxy and its headers.
#[derive(Debug, PartialEq)]
pub(super) struct FrontProxy {
    /// `None`: no proxy is trusted.
    pub authorities: Option<Authorities>,
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_headers_prefix: Vec<String>,
    pub uid_headers: Vec<String>,
}

impl FrontProxy {
    pub(super) fn new(authorities: Option<Authorities>, headers: &RequestHeaderOptions) -> Self {
        let trimmed = |names: &[String]| names.iter().map(|name| name.trim().to_owned()).collect::<Vec<_>>();
        Self {
            authorities,
            allowed_names: headers.allowed_names.clone(),
            username_headers: trimmed(&headers.username_headers),
            group_headers: trimmed(&headers.group_headers),
            extra_headers_prefix: trimmed(&headers.extra_headers_prefix),
            uid_headers: trimmed(&headers.uid_headers),
        }
    }
}

const CLIENT_CA_FILE: &str = "--client-ca-file";
const PROXY_CA_FILE: &str = "--requestheader-client-ca-file";

impl Trust {
    /// Reads the given files. Other settings come from the cluster, if its API server can be asked.
    ///
    /// # Errors
    /// A file that cannot be read or used, with its flag.
    pub(super) fn load(options: &AuthenticationOptions, cluster_can_be_asked: bool) -> anyhow::Result<Self> {
        let from_cluster = |what: &str, consequence: &str| {
            if options.skip_lookup {
                return false;
            }
            if !cluster_can_be_asked {
                // In upstream's words.
                tracing::warn!(
                    "No authentication-kubeconfig provided in order to lookup {what} in configmap/{CONFIG_MAP} in {CONFIG_MAP_NAMESPACE}, so {consequence} won't work."
                );
            }
            cluster_can_be_asked
        };
        let clients = match &options.client_ca_file {
            Some(path) => Some(Followed::new(Origin::File, Some(Authorities::read(path, CLIENT_CA_FILE)?))),
            None if from_cluster("client-ca-file", "client certificate authentication") => {
                Some(Followed::new(Origin::Cluster, None))
            }
            None => None,
        };
        let headers = &options.request_header;
        let front_proxy = match &headers.client_ca_file {
            Some(path) => {
                let authorities = Authorities::read(path, PROXY_CA_FILE)?;
                Some(Followed::new(Origin::File, Some(FrontProxy::new(Some(authorities), headers))))
            }
            None if from_cluster(
                "requestheader-client-ca-file",
                "request-header client certificate authentication",
            ) =>
            {
                Some(Followed::new(Origin::Cluster, None))
            }
            None => None,
        };
        Ok(Self { clients, front_proxy })
    }

    /// What is wrong with the given files.
    pub(super) fn faults(options: &AuthenticationOptions) -> Vec<anyhow::Error> {
        let of_clients = options.client_ca_file.as_ref().map(|path| (path, CLIENT_CA_FILE));
        let of_proxy = options.request_header.client_ca_file.as_ref().map(|path| (path, PROXY_CA_FILE));
        let all = of_clients.into_iter().chain(of_proxy);
        all.filter_map(|(path, flag)| Authorities::read(path, flag).err()).collect()
    }

    /// The names of the authorities that the server sends with its request for a client certificate. `None`:
    /// the server requests none.
    pub(super) fn hints(&self) -> Option<Vec<DistinguishedName>> {
        if self.clients.is_none() && self.front_proxy.is_none() {
            return None;
        }
        let mut hints = Vec::new();
        if let Some(authorities) = self.clients.as_ref().and_then(|clients| clients.now.load_full()) {
            hints.extend(authorities.subjects.iter().cloned());
        }
        if let Some(proxy) = self.front_proxy.as_ref().and_then(|proxy| proxy.now.load_full()) {
            hints.extend(proxy.authorities.iter().flat_map(|authorities| authorities.subjects.clone()));
        }
        Some(hints)
    }
}

/// Reloads the files when they change.
pub(super) fn follow(
    trust: &Trust,
    options: &AuthenticationOptions,
    reporter: &ReloadReporter,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) {
    if let (Some(clients), Some(path)) = (&trust.clients, &options.client_ca_file) {
        let (clients, path) = (clients.clone(), path.clone());
        let reload = move || {
            let read = Authorities::read(&path, CLIENT_CA_FILE)?;
            if clients.now.load().as_deref() == Some(&read) {
                return Ok(false);
            }
            clients.now.store(Some(Arc::new(read)));
            Ok(true)
        };
        spawn_follower(Source::ClientCa, options.client_ca_file.clone(), reload, reporter, stop, tasks);
    }
    if let (Some(proxy), Some(path)) = (&trust.front_proxy, &options.request_header.client_ca_file) {
        let (proxy, path, headers) = (proxy.clone(), path.clone(), options.request_header.clone());
        let reload = move || {
            let read = FrontProxy::new(Some(Authorities::read(&path, PROXY_CA_FILE)?), &headers);
            if proxy.now.load().as_deref() == Some(&read) {
                return Ok(false);
            }
            proxy.now.store(Some(Arc::new(read)));
            Ok(true)
        };
        let path = options.request_header.client_ca_file.clone();
        spawn_follower(Source::RequestHeaderClientCa, path, reload, reporter, stop, tasks);
    }
}

/// `reload` returns whether something changed.
fn spawn_follower(
    source: Source,
    path: Option<std::path::PathBuf>,
    reload: impl Fn() -> anyhow::Result<bool> + Send + Sync + 'static,
    reporter: &ReloadReporter,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) {
    let (reporter, stop) = (reporter.clone(), stop.clone());
    let reload = Arc::new(reload);
    let work = async move {
        let mut changes = FileChanges::new(path).await;
        loop {
            let reload = reload.clone();
            match tokio::task::spawn_blocking(move || reload()).await {
                Ok(Ok(true)) => reporter.succeeded(source),
                Ok(Ok(false)) => reporter.unchanged(source),
                Ok(Err(error)) => reporter.failed(source, &format!("{error:#}")),
                Err(_) => {}
            }
            changes.changed().await;
        }
    };
    tasks.spawn(async move {
        stop.run_until_cancelled(work).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_is_none() {
        for (pem, words) in [
            ("", "holds no certificate"),
            ("garbage", "holds no certificate"),
            ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "is not PEM"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be used"),
        ] {
            let error = Authorities::parse(pem.as_bytes()).expect_err(words);
            assert!(format!("{error:#}").contains(words), "{words} in {error:#}");
        }
    }

    #[test]
    fn what_comes_from_where() {
        let options = AuthenticationOptions::default();
        let trust = Trust::load(&options, true).expect("nothing to read");
        let origin = |trust: &Trust| {
            (
                trust.clients.as_ref().map(|followed| followed.origin),
                trust.front_proxy.as_ref().map(|followed| followed.origin),
            )
        };
        assert_eq!(origin(&trust), (Some(Origin::Cluster), Some(Origin::Cluster)));
        assert_eq!(trust.hints().map(|hints| hints.len()), Some(0), "asked, though nobody is known yet");
        let trust = Trust::load(&options, false).expect("nothing to read");
        assert_eq!(origin(&trust), (None, None));
        assert!(trust.hints().is_none(), "not asked");
        let skip = AuthenticationOptions { skip_lookup: true, ..options.clone() };
        assert_eq!(origin(&Trust::load(&skip, true).expect("nothing to read")), (None, None));
        let missing = AuthenticationOptions { client_ca_file: Some("/no/such".into()), ..options };
        let error = format!("{:#}", Trust::load(&missing, true).expect_err("no file"));
        assert!(error.contains("--client-ca-file: /no/such cannot be read"), "{error}");
    }
}
