//! The cluster's settings for servers such as this one: the `ConfigMap` `extension-apiserver-authentication`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use basics::{backoff::Backoff, error_chain};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, runtime::watcher};
use tokio::{sync::watch, time::Instant};

use super::trust::{Authorities, CONFIG_MAP, CONFIG_MAP_NAMESPACE, FrontProxy, Origin, Trust};
use crate::{
    reload::{ReloadReporter, Source},
    serving::{AuthenticationOptions, RequestHeaderOptions},
    watching,
};

/// The Role that permits reading it.
const ROLE: &str = "extension-apiserver-authentication-reader";

/// How long a refusal by the API server has to last before it counts: as long as the API server may be away
/// for a leader.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// Pauses between attempts.
const RETRY: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(5) };

/// Reads the `ConfigMap` and passes it to `trust`.
pub(super) struct ClusterTrust {
    trust: Trust,
    api: Api<ConfigMap>,
    reporter: ReloadReporter,
    needs_proxy: bool,
    tolerates_failure: bool,
}

impl std::fmt::Debug for ClusterTrust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterTrust").finish_non_exhaustive()
    }
}

impl ClusterTrust {
    /// `None`: `trust` needs nothing from the cluster.
    pub(super) fn new(
        trust: &Trust,
        options: &AuthenticationOptions,
        client: Client,
        reporter: &ReloadReporter,
    ) -> Option<Self> {
        let is_needed = |origin: Option<Origin>| origin == Some(Origin::Cluster);
        let needs_proxy = is_needed(trust.front_proxy.as_ref().map(|proxy| proxy.origin));
        let needs_clients = is_needed(trust.clients.as_ref().map(|clients| clients.origin));
        (needs_proxy || needs_clients).then(|| Self {
            trust: trust.clone(),
            api: Api::namespaced(watching::client(client), CONFIG_MAP_NAMESPACE),
            reporter: reporter.clone(),
            needs_proxy,
            tolerates_failure: options.tolerate_lookup_failure,
        })
    }

    /// Reads the `ConfigMap`, retrying while the API server is away, then sets `known`, and follows changes
    /// for ever.
    ///
    /// # Errors
    /// The API server keeps refusing the read, or the content is unusable, and that is not tolerated.
    pub(super) async fn follow(self, known: watch::Sender<bool>) -> anyhow::Result<()> {
        if let Err(error) = self.read().await {
            // As in upstream, whose watch reads the authorities of clients later.
            if self.needs_proxy && !self.tolerates_failure {
                return Err(error).context(
                    "unable to load configmap based request-header-client-ca-file (--authentication-tolerate-lookup-failure goes on without)",
                );
            }
            tracing::warn!("Error looking up in-cluster authentication configuration: {error:#}");
            tracing::warn!(
                "Continuing without authentication configuration. This may treat all requests as anonymous."
            );
            tracing::warn!(
                "To require authentication configuration lookup to succeed, set --authentication-tolerate-lookup-failure=false"
            );
        }
        known.send_replace(true);
        keep_up(self.api, self.trust, self.reporter).await;
        Ok(())
    }

    async fn read(&self) -> anyhow::Result<()> {
        let (mut failures, mut refused_since) = (0, None);
        loop {
            let error = match self.api.get_opt(CONFIG_MAP).await {
                Ok(None) => return Ok(()),
                Ok(Some(config_map)) => return take(&self.trust, &config_map).map(drop),
                Err(error) => error,
            };
            let (now, text) = (Instant::now(), error_chain(&error));
            if is_refusal(&error) {
                let since = *refused_since.get_or_insert(now);
                if self.tolerates_failure || now.duration_since(since) >= REFUSED_FOR {
                    warn_if_forbidden(&error);
                    bail!(text);
                }
            } else {
                refused_since = None;
            }
            if failures == 0 {
                tracing::warn!(error = text, "configmap/{CONFIG_MAP} cannot be read, trying again");
            }
            failures += 1;
            tokio::time::sleep(RETRY.after(failures)).await;
        }
    }
}

/// Whether the API server is up and refuses the request. Just after its start, it may not know all users yet.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

/// Logs upstream's hint.
fn warn_if_forbidden(error: &kube::Error) {
    if matches!(error, kube::Error::Api(status) if status.code == 403) {
        tracing::warn!(
            "Unable to get configmap/{CONFIG_MAP} in {CONFIG_MAP_NAMESPACE}.  Usually fixed by 'kubectl create rolebinding -n {CONFIG_MAP_NAMESPACE} ROLEBINDING_NAME --role={ROLE} --serviceaccount=YOUR_NS:YOUR_SA'"
        );
    }
}

async fn keep_up(api: Api<ConfigMap>, trust: Trust, reporter: ReloadReporter) {
    let config = watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}"));
    let events = watching::watch(api, config);
    pin_mut!(events);
    let mut failing = false;
    while let Some(event) = events.next().await {
        let config_map = match event {
            Ok(watcher::Event::Apply(config_map) | watcher::Event::InitApply(config_map)) => config_map,
            // If the object is deleted, the last known settings stay in force.
            Ok(_) => continue,
            Err(error) => {
                // One log line for each outage.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(
                        error = %error_chain(&error),
                        "watch of configmap/{CONFIG_MAP} failed, trying again"
                    );
                }
                continue;
            }
        };
        failing = false;
        match take(&trust, &config_map) {
            Ok(true) => reporter.succeeded(Source::ClusterTrust),
            Ok(false) => reporter.unchanged(Source::ClusterTrust),
            Err(error) => {
                reporter.failed(Source::ClusterTrust, &format!("configmap/{CONFIG_MAP}: {error:#}"));
            }
        }
    }
}

/// Puts the settings in the object into force. Returns whether earlier settings changed.
fn take(trust: &Trust, config_map: &ConfigMap) -> anyhow::Result<bool> {
    let empty = BTreeMap::new();
    let data = config_map.data.as_ref().unwrap_or(&empty);
    let mut changed = false;
    let mut faults = Vec::new();
    if let Some(clients) = trust.clients.as_ref().filter(|clients| clients.origin == Origin::Cluster) {
        match data.get("client-ca-file").filter(|pem| !pem.is_empty()) {
            // As in upstream: the previous authorities stay in force.
            None => {}
            Some(pem) => match Authorities::parse(pem.as_bytes()) {
                Err(error) => faults.push(format!("client-ca-file: {error:#}")),
                Ok(read) => {
                    let before = clients.now.load_full();
                    if before.as_deref() != Some(&read) {
                        changed |= before.is_some();
                        clients.now.store(Some(Arc::new(read)));
                    }
                }
            },
        }
    }
    if let Some(proxy) = trust.front_proxy.as_ref().filter(|proxy| proxy.origin == Origin::Cluster) {
        match front_proxy(data) {
            Err(error) => faults.push(format!("{error:#}")),
            Ok(read) => {
                let before = proxy.now.load_full();
                if before.as_deref() != Some(&read) {
                    changed |= before.is_some();
                    proxy.now.store(Some(Arc::new(read)));
                }
            }
        }
    }
    if faults.is_empty() { Ok(changed) } else { Err(anyhow!(faults.join("; "))) }
}

fn front_proxy(data: &BTreeMap<String, String>) -> anyhow::Result<FrontProxy> {
    let list = |key: &str| match data.get(key).filter(|text| !text.is_empty()) {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str::<Vec<String>>(text)
            .map_err(|error| anyhow!("{key} is not a list of texts: {error}")),
    };
    let headers = RequestHeaderOptions {
        client_ca_file: None,
        allowed_names: list("requestheader-allowed-names")?,
        username_headers: list("requestheader-username-headers")?,
        group_headers: list("requestheader-group-headers")?,
        extra_headers_prefix: list("requestheader-extra-headers-prefix")?,
        uid_headers: list("requestheader-uid-headers")?,
    };
    let authorities = match data.get("requestheader-client-ca-file").filter(|pem| !pem.is_empty()) {
        None => None,
        Some(pem) => Some(Authorities::parse(pem.as_bytes()).context("requestheader-client-ca-file")?),
    };
    Ok(FrontProxy::new(authorities, &headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map(data: &[(&str, &str)]) -> ConfigMap {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    #[test]
    fn what_is_broken_leaves_the_rest_in_force() {
        let authority = |name: &str| {
            let mut parameters = rcgen::CertificateParams::default();
            parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
            parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            parameters.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("a CA").pem()
        };
        let (one, other) = (authority("one"), authority("other"));
        let trust = Trust::load(&AuthenticationOptions::default(), true).expect("nothing to read");
        let hints = || trust.hints().expect("asked").len();
        assert!(!take(&trust, &ConfigMap::default()).expect("empty"));
        assert_eq!(hints(), 0);
        let full = [
            ("client-ca-file", one.as_str()),
            ("requestheader-client-ca-file", &other),
            ("requestheader-username-headers", "[\"X-Remote-User\"]"),
            ("requestheader-allowed-names", "[]"),
        ];
        take(&trust, &config_map(&full)).expect("good");
        assert_eq!(hints(), 2);
        assert!(!take(&trust, &config_map(&full)).expect("the same"));
        let error = take(&trust, &config_map(&[("client-ca-file", "garbage"), full[1], full[2]]));
        assert!(format!("{:#}", error.expect_err("broken")).starts_with("client-ca-file: "));
        assert_eq!(hints(), 2, "the one before stays");
        let error = take(&trust, &config_map(&[full[0], ("requestheader-allowed-names", "proxy")]));
        assert!(format!("{:#}", error.expect_err("no list")).contains("requestheader-allowed-names"));
        assert!(take(&trust, &config_map(&[("client-ca-file", &other), full[1], full[2]])).expect("new"));
        assert!(take(&trust, &config_map(&[full[0]])).expect("no proxy any more"));
        assert_eq!(hints(), 1);
    }
}
