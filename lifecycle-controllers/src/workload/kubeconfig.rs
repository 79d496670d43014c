//! Kubeconfigs that users write into Secrets.
//!
//! A kubeconfig may name files, programs and proxies. All of that would be the daemon's own, so it is refused. A server whose
//! certificate is not verified, and acting as another user, are refused too.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{Uri, uri::Scheme};
use kube::config::{AuthInfo, Cluster, Config, Kubeconfig};
use secrecy::ExposeSecret as _;

/// The largest kubeconfig, in bytes. With certificates of a long chain one has some 20 kB.
const LARGEST: usize = 64 * 1024;

/// How an API server is reached, and as whom.
#[derive(Clone)]
pub struct Access {
    config: Config,
}

/// Why a kubeconfig is not used. The text names a field and never its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KubeconfigError(String);

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Access").field(&self.config.cluster_url.host()).finish()
    }
}

impl Access {
    /// Reads the current context of a kubeconfig.
    ///
    /// # Errors
    /// What is wrong with it, by the name of the field.
    pub fn parse(kubeconfig: &[u8]) -> Result<Self, KubeconfigError> {
        if kubeconfig.len() > LARGEST {
            return Err(problem(format!("it has more than {LARGEST} bytes")));
        }
        let text = std::str::from_utf8(kubeconfig).map_err(|_| problem("it is not UTF-8"))?;
        // The library's own words may quote the text, which holds secrets.
        let options = serde_saphyr::options! { with_snippet: false };
        let read: Kubeconfig = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let place =
                error.location().map(|place| format!(" (line {}, column {})", place.line(), place.column()));
            problem(format!("it is no kubeconfig{}", place.unwrap_or_default()))
        })?;
        let (cluster, user) = current(read)?;
        refuse_cluster(&cluster)?;
        refuse_user(&user)?;
        Ok(Self { config: config(cluster, user)? })
    }

    /// The configuration of a client. It names no file.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }
}

fn problem(text: impl Into<String>) -> KubeconfigError {
    KubeconfigError(text.into())
}

/// The cluster and the user of the current context. Two of one name leave open which is meant.
fn current(read: Kubeconfig) -> Result<(Cluster, AuthInfo), KubeconfigError> {
    let name = read
        .current_context
        .filter(|name| !name.is_empty())
        .ok_or_else(|| problem("current-context is not set"))?;
    let mut contexts = read.contexts.into_iter().filter(|one| one.name == name);
    let context = contexts.next().and_then(|one| one.context);
    let context = context.ok_or_else(|| problem("contexts has none with the name in current-context"))?;
    let mut clusters = read.clusters.into_iter().filter(|one| one.name == context.cluster);
    let cluster = clusters.next().and_then(|one| one.cluster);
    let cluster = cluster.ok_or_else(|| problem("clusters has none with the name in the current context"))?;
    let wanted = context.user.unwrap_or_default();
    let mut users = read.auth_infos.into_iter().filter(|one| one.name == wanted);
    let user = users.next().and_then(|one| one.auth_info);
    let user = user.ok_or_else(|| problem("users has none with the name in the current context"))?;
    for (more, list) in
        [(contexts.count(), "contexts"), (clusters.count(), "clusters"), (users.count(), "users")]
    {
        if more > 0 {
            return Err(problem(format!("{list} has two of the name that the current context uses")));
        }
    }
    Ok((cluster, user))
}

fn refuse_cluster(cluster: &Cluster) -> Result<(), KubeconfigError> {
    let of_files = "names a file; put the certificates into certificate-authority-data";
    if is_set(cluster.certificate_authority.as_ref()) {
        return Err(problem(format!("cluster.certificate-authority {of_files}")));
    }
    if is_set(cluster.proxy_url.as_ref()) {
        return Err(problem("cluster.proxy-url is not supported"));
    }
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Err(problem(
            "cluster.insecure-skip-tls-verify is not permitted; set certificate-authority-data",
        ));
    }
    Ok(())
}

fn refuse_user(user: &AuthInfo) -> Result<(), KubeconfigError> {
    let inline = [
        ("client-certificate", user.client_certificate.as_ref(), "client-certificate-data"),
        ("client-key", user.client_key.as_ref(), "client-key-data"),
        ("tokenFile", user.token_file.as_ref(), "token"),
    ];
    for (field, value, instead) in inline {
        if is_set(value) {
            return Err(problem(format!("user.{field} names a file; put its content into {instead}")));
        }
    }
    let acts_as = [
        ("as", user.impersonate.is_some()),
        ("as-uid", user.impersonate_uid.is_some()),
        ("as-groups", user.impersonate_groups.is_some()),
        ("as-user-extra", user.impersonate_user_extra.is_some()),
    ];
    if let Some((field, _)) = acts_as.into_iter().find(|(_, is_there)| *is_there) {
        return Err(problem(format!("user.{field} is not supported: the user cannot act as another one")));
    }
    if user.exec.is_some() {
        return Err(problem("user.exec is not permitted: the daemon runs no program of a kubeconfig"));
    }
    if user.auth_provider.is_some() {
        return Err(problem("user.auth-provider is not supported"));
    }
    Ok(())
}

fn is_set(value: Option<&String>) -> bool {
    value.is_some_and(|value| !value.is_empty())
}

fn config(cluster: Cluster, user: AuthInfo) -> Result<Config, KubeconfigError> {
    let mut config = Config::new(server(cluster.server.as_deref().unwrap_or_default())?);
    config.tls_server_name = cluster.tls_server_name.filter(|name| !name.is_empty());
    config.root_cert = match cluster.certificate_authority_data.filter(|data| !data.is_empty()) {
        Some(data) => Some(authorities(&data)?),
        None => None,
    };
    let has_certificate = is_set(user.client_certificate_data.as_ref());
    let has_key = user.client_key_data.as_ref().is_some_and(|key| !key.expose_secret().is_empty());
    match (has_certificate, has_key) {
        (true, false) => {
            return Err(problem("user.client-key-data is not set, but client-certificate-data is"));
        }
        (false, true) => {
            return Err(problem("user.client-certificate-data is not set, but client-key-data is"));
        }
        _ => {}
    }
    let has_token = user.token.as_ref().is_some_and(|token| !token.expose_secret().is_empty());
    let has_password = is_set(user.username.as_ref()) && user.password.is_some();
    if !(has_certificate || has_token || has_password) {
        return Err(problem(
            "user has no credentials: neither client-certificate-data nor token nor username and password",
        ));
    }
    // Nothing else of the user is taken over.
    config.auth_info = AuthInfo {
        client_certificate_data: user.client_certificate_data.filter(|_| has_certificate),
        client_key_data: user.client_key_data.filter(|_| has_key),
        token: user.token.filter(|_| has_token),
        username: user.username.filter(|_| has_password),
        password: user.password.filter(|_| has_password),
        ..AuthInfo::default()
    };
    Ok(config)
}

/// The address of the API server.
fn server(text: &str) -> Result<Uri, KubeconfigError> {
    if text.is_empty() {
        return Err(problem("cluster.server is not set"));
    }
    let url: Uri = text.parse().map_err(|_| problem("cluster.server is no URL"))?;
    if url.scheme() != Some(&Scheme::HTTPS) {
        return Err(problem("cluster.server does not begin with https://"));
    }
    let authority = url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    if url.host().is_none_or(str::is_empty) || authority.contains('@') || url.query().is_some() {
        return Err(problem("cluster.server has a user or a query, or no host"));
    }
    Ok(url)
}

/// The certificates of the authorities, in DER.
fn authorities(data: &str) -> Result<Vec<Vec<u8>>, KubeconfigError> {
    let bad = || problem("cluster.certificate-authority-data is no base64 of PEM certificates");
    let pem = BASE64_STANDARD.decode(data.trim()).map_err(|_| bad())?;
    let text = String::from_utf8(pem).map_err(|_| bad())?;
    let mut certificates = Vec::new();
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("-----BEGIN CERTIFICATE-----") {
        let (body, next) = after.split_once("-----END CERTIFICATE-----").ok_or_else(bad)?;
        let body: String = body.chars().filter(|character| !character.is_ascii_whitespace()).collect();
        certificates.push(BASE64_STANDARD.decode(body).map_err(|_| bad())?);
        rest = next;
    }
    if certificates.is_empty() { Err(bad()) } else { Ok(certificates) }
}

#[cfg(test)]
mod tests;
