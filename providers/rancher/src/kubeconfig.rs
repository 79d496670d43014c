//! A kubeconfig file as a part of the configuration. The files that its current context names are read with
//! it, so that the daemon follows them too.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use cloudprovider::FactoryInput;
use http::Uri;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use secrecy::{ExposeSecret, SecretString};

use crate::tls;

/// How a Kubernetes API server is reached.
#[derive(Clone)]
pub struct KubernetesAccess {
    server: Uri,
    namespace: Option<String>,
    authorities: Option<Vec<Vec<u8>>>,
    insecure: bool,
    server_name: Option<String>,
    auth: AuthInfo,
}

impl KubernetesAccess {
    /// Reads a kubeconfig. Its current context counts. Opens no connection.
    ///
    /// # Errors
    /// What is wrong with the file, without any secret of it.
    pub(crate) fn read(input: &FactoryInput, path: &Path) -> Result<Self, String> {
        let text = Source { input, path }.text(path)?;
        let of_file = |why: String| format!("{}: {why}", path.display());
        Self::parse(input, path, &text).map_err(of_file)
    }

    fn parse(input: &FactoryInput, path: &Path, text: &str) -> Result<Self, String> {
        let source = Source { input, path };
        let (context, cluster, user) = current(text)?;
        let server = server(&cluster)?;
        if cluster.proxy_url.is_some_and(|url| !url.is_empty()) {
            return Err("has a proxy-url, which is not supported; leave it out".to_owned());
        }
        let insecure = cluster.insecure_skip_tls_verify.unwrap_or(false);
        let authorities = source.pem(
            "certificate-authority",
            cluster.certificate_authority.as_deref(),
            cluster.certificate_authority_data.as_deref(),
        )?;
        let roots = match &authorities {
            Some(pem) => Some(tls::certificates(pem).map_err(|why| format!("certificate-authority {why}"))?),
            None => None,
        };
        let auth = source.auth(user)?;
        check_identity(roots, &auth)?;
        let authorities = match authorities {
            Some(pem) => Some(certificates(&pem)?.into_iter().map(|one| one.to_vec()).collect()),
            None => None,
        };
        Ok(Self {
            server,
            namespace: context.namespace.filter(|name| !name.is_empty()),
            authorities,
            insecure,
            server_name: cluster.tls_server_name.filter(|name| !name.is_empty()),
            auth,
        })
    }

    /// The namespace of the context.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether the server's certificate is not verified.
    pub fn is_insecure(&self) -> bool {
        self.insecure
    }

    /// A client of this server. It must be made in a runtime.
    ///
    /// # Errors
    /// Why there can be none.
    pub(crate) fn client(&self, namespace: &str, timeout: Duration) -> Result<kube::Client, kube::Error> {
        let mut config = kube::Config::new(self.server.clone());
        namespace.clone_into(&mut config.default_namespace);
        config.root_cert.clone_from(&self.authorities);
        config.accept_invalid_certs = self.insecure;
        config.tls_server_name.clone_from(&self.server_name);
        config.auth_info.clone_from(&self.auth);
        config.connect_timeout = Some(timeout);
        // The controller decides when a call is repeated.
        config.default_retry = false;
        tls::install_crypto_provider();
        kube::Client::try_from(config)
    }
}

impl fmt::Debug for KubernetesAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KubernetesAccess").field(&self.server).finish()
    }
}

/// The current context with its cluster and user.
fn current(text: &str) -> Result<(Context, Cluster, AuthInfo), String> {
    // The library's own words may quote the text, which holds secrets. So only the place is shown.
    let options = serde_saphyr::options! { with_snippet: false };
    let kubeconfig: Kubeconfig = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place =
            error.location().map(|place| format!(" (line {}, column {})", place.line(), place.column()));
        format!("is no kubeconfig{}", place.unwrap_or_default())
    })?;
    let Some(name) = kubeconfig.current_context.filter(|name| !name.is_empty()) else {
        return Err("has no current-context; set it with kubectl config use-context".to_owned());
    };
    let context = kubeconfig.contexts.into_iter().find(|one| one.name == name).and_then(|one| one.context);
    let context = context.ok_or("has no context with the name in current-context")?;
    let cluster = kubeconfig.clusters.into_iter().find(|one| one.name == context.cluster);
    let cluster = cluster.and_then(|one| one.cluster).ok_or("has no cluster with the name in its context")?;
    let wanted = context.user.as_deref().unwrap_or_default();
    let user = kubeconfig.auth_infos.into_iter().find(|one| one.name == wanted);
    let user = user.and_then(|one| one.auth_info).ok_or("has no user with the name in its context")?;
    Ok((context, cluster, user))
}

fn server(cluster: &Cluster) -> Result<Uri, String> {
    let text = cluster.server.as_deref().unwrap_or_default();
    let url =
        text.parse::<Uri>().ok().filter(|url| url.scheme_str() == Some("https") && url.host().is_some());
    url.ok_or_else(|| "has a cluster whose server is not a URL such as https://10.0.0.1:6443".to_owned())
}

/// The file that the others stand beside.
struct Source<'a> {
    input: &'a FactoryInput,
    path: &'a Path,
}

impl Source<'_> {
    /// Reads a file that the kubeconfig names: relative paths begin at its folder.
    fn bytes(&self, name: &str) -> Result<Vec<u8>, String> {
        let path = self.path.parent().map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
        self.input.read_file(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    }

    fn text(&self, path: &Path) -> Result<String, String> {
        let shown = path.display();
        let bytes = self.input.read_file(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        String::from_utf8(bytes).map_err(|_| format!("{shown} is not valid UTF-8"))
    }

    /// A PEM text, from its data or from its file. Data takes precedence, as in kubectl.
    fn pem(&self, key: &str, file: Option<&str>, data: Option<&str>) -> Result<Option<Vec<u8>>, String> {
        let (file, data) = (file.filter(|text| !text.is_empty()), data.filter(|text| !text.is_empty()));
        match (data, file) {
            (Some(data), _) => {
                let pem = BASE64_STANDARD.decode(data.trim());
                pem.map(Some).map_err(|_| format!("has {key}-data that is no base64"))
            }
            (None, Some(file)) => self.bytes(file).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// A user whose credentials are all in memory.
    fn auth(&self, user: AuthInfo) -> Result<AuthInfo, String> {
        if user.exec.is_some() || user.auth_provider.is_some() {
            return Err(
                "has a user with a credential plugin (exec or auth-provider), which is not supported; use a \
                        kubeconfig with a token or a client certificate"
                    .to_owned(),
            );
        }
        let mut auth = AuthInfo {
            username: user.username,
            password: user.password,
            token: user.token.filter(|token| !token.expose_secret().is_empty()),
            impersonate: user.impersonate,
            impersonate_uid: user.impersonate_uid,
            impersonate_groups: user.impersonate_groups,
            impersonate_user_extra: user.impersonate_user_extra,
            ..AuthInfo::default()
        };
        if let (None, Some(file)) = (&auth.token, user.token_file.filter(|file| !file.is_empty())) {
            let token = String::from_utf8(self.bytes(&file)?).unwrap_or_default();
            let token = token.trim();
            if token.is_empty() || token.chars().any(char::is_control) {
                return Err(format!("has a tokenFile {file} that does not hold a token"));
            }
            auth.token = Some(token.into());
        }
        let certificate = self.pem(
            "client-certificate",
            user.client_certificate.as_deref(),
            user.client_certificate_data.as_deref(),
        )?;
        let key_data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
        let key = self.pem("client-key", user.client_key.as_deref(), key_data)?;
        auth.client_certificate_data = certificate.map(|pem| BASE64_STANDARD.encode(pem));
        auth.client_key_data = key.map(|pem| SecretString::from(BASE64_STANDARD.encode(pem)));
        if auth.token.is_none() && auth.client_certificate_data.is_none() && auth.username.is_none() {
            return Err("has a user without credentials: a token or a client certificate".to_owned());
        }
        Ok(auth)
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.map_err(|_| "has a certificate that is not in PEM format".to_owned())
}

/// Whether the client certificate can be used with its key.
fn check_identity(roots: Option<RootCertStore>, auth: &AuthInfo) -> Result<(), String> {
    let decoded = |text: &str| BASE64_STANDARD.decode(text).unwrap_or_default();
    let certificate = auth.client_certificate_data.as_deref().map(decoded);
    let key = auth.client_key_data.as_ref().map(|key| decoded(key.expose_secret()));
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return Ok(()),
        (Some(_), None) => return Err("has a client-certificate without a client-key".to_owned()),
        (None, Some(_)) => return Err("has a client-key without a client-certificate".to_owned()),
    };
    let chain = certificates(&certificate)?;
    let key =
        PrivateKeyDer::from_pem_slice(&key).map_err(|_| "has a client-key that is not in PEM format")?;
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let fits = builder.with_root_certificates(roots.unwrap_or_else(RootCertStore::empty));
    let fits = fits.with_client_auth_cert(chain, key);
    fits.map(drop).map_err(|_| "has a client-key that does not belong to its client-certificate".to_owned())
}

#[cfg(test)]
mod tests;
