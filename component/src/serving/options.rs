//! Options of the secure port.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

use serde_json::Value;

use crate::program::Program;

/// The secure port. Every field is named like its flag; [`new`](ServingOptions::new) has upstream's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingOptions {
    /// Name of the component on `/statusz` and `/flagz`: the Kubernetes component that this program replaces,
    /// not the name of the program.
    pub component: &'static str,
    /// `--bind-address`: an unspecified one means all addresses of all families.
    pub bind_address: IpAddr,
    /// `--secure-port`: 0 means no server.
    pub secure_port: u16,
    /// `--permit-port-sharing`
    pub permit_port_sharing: bool,
    /// `--permit-address-sharing`
    pub permit_address_sharing: bool,
    /// `--disable-http2-serving`
    pub disable_http2_serving: bool,
    /// `--http2-max-streams-per-connection`: 0 means upstream's default, 100.
    pub http2_max_streams_per_connection: u32,
    /// Where the certificates come from.
    pub certificates: CertificateOptions,
    /// TLS versions and algorithms.
    pub tls: TlsOptions,
    /// How clients are authenticated.
    pub authentication: AuthenticationOptions,
    /// How requests are authorized.
    pub authorization: AuthorizationOptions,
    /// `--profiling`: whether paths under `/debug/` are served.
    pub profiling: bool,
    /// What `/configz` shows.
    pub configz: Value,
    /// The version on `/statusz`. `None`: the feature gate `ComponentStatusz` is off.
    pub statusz: Option<String>,
    /// Flags and their values on `/flagz`. `None`: the feature gate `ComponentFlagz` is off.
    pub flagz: Option<BTreeMap<String, String>>,
}

/// The serving certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateOptions {
    /// `--cert-dir`: the folder in which a self-signed pair is written and read.
    pub cert_dir: Option<PathBuf>,
    /// File name of the certificate and of its key in that folder, without extensions.
    pub pair_name: &'static str,
    /// `--tls-cert-file`
    pub tls_cert_file: Option<PathBuf>,
    /// `--tls-private-key-file`
    pub tls_private_key_file: Option<PathBuf>,
    /// `--tls-sni-cert-key`, once for each time the flag is given.
    pub tls_sni_cert_key: Vec<NamedCertificate>,
    /// What stands between `--` and the names of these flags, such as `webhook-`.
    pub flags: &'static str,
}

/// Where a webhook is served. Every field is named like its flag, without `webhook-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookOptions {
    /// `--webhook-bind-address`: an unspecified one means all addresses of all families.
    pub bind_address: IpAddr,
    /// `--webhook-secure-port`: 0 means any free one.
    pub secure_port: u16,
    /// `--webhook-disable-http2-serving`
    pub disable_http2_serving: bool,
    /// Files with the serving certificates. `None`: it is made while the server runs.
    pub certificates: Option<CertificateOptions>,
    /// TLS versions and algorithms.
    pub tls: TlsOptions,
}

/// A serving certificate for some names: `--tls-sni-cert-key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCertificate {
    /// The certificate with its chain.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
    /// Host names, possibly with a wildcard, and IP addresses. Empty: the names in the certificate.
    pub names: Vec<String>,
}

/// TLS versions and algorithms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `--tls-min-version`: `VersionTLS10` to `VersionTLS13`. Empty: the default.
    pub tls_min_version: String,
    /// `--tls-cipher-suites`: Go's names. Empty: the default. They apply to TLS 1.2 only, as in Go.
    pub tls_cipher_suites: Vec<String>,
    /// `--tls-curve-preferences`: Go's numbers. Empty: the default. The order has no effect.
    pub tls_curve_preferences: Vec<i32>,
}

/// How clients are authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationOptions {
    /// `--authentication-kubeconfig`. If unset, the cluster in which this pod runs is asked. Outside a
    /// cluster, there are no reviews.
    pub kubeconfig: Option<PathBuf>,
    /// `--authentication-skip-lookup`
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`: zero means no cache.
    pub token_webhook_cache_ttl: Duration,
    /// `--client-ca-file`. If unset, the authorities come from the cluster.
    pub client_ca_file: Option<PathBuf>,
    /// The front proxy.
    pub request_header: RequestHeaderOptions,
}

/// A proxy that names its client in headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderOptions {
    /// `--requestheader-client-ca-file`. If unset, all settings of the proxy come from the cluster.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-allowed-names`: common names of proxies. Empty: every certificate that the CA signed.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`
    pub username_headers: Vec<String>,
    /// `--requestheader-group-headers`
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`
    pub extra_headers_prefix: Vec<String>,
    /// `--requestheader-uid-headers`
    pub uid_headers: Vec<String>,
}

/// How requests are authorized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationOptions {
    /// `--authorization-kubeconfig`. If unset, the cluster in which this pod runs is asked. Outside a
    /// cluster, there are no reviews.
    pub kubeconfig: Option<PathBuf>,
    /// `--authorization-webhook-cache-authorized-ttl`: zero means no cache.
    pub authorized_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`: zero means no cache.
    pub unauthorized_ttl: Duration,
    /// `--authorization-always-allow-paths`: exact paths, or prefixes that end with `*`.
    pub always_allow_paths: Vec<String>,
}

const CACHE_TTL: Duration = Duration::from_secs(10);

impl ServingOptions {
    /// Upstream's defaults for this component with this port.
    pub fn new(component: &'static str, secure_port: u16) -> Self {
        Self {
            component,
            bind_address: Ipv4Addr::UNSPECIFIED.into(),
            secure_port,
            permit_port_sharing: false,
            permit_address_sharing: false,
            disable_http2_serving: false,
            http2_max_streams_per_connection: 0,
            certificates: CertificateOptions { pair_name: component, ..CertificateOptions::default() },
            tls: TlsOptions::default(),
            authentication: AuthenticationOptions::default(),
            authorization: AuthorizationOptions::default(),
            profiling: true,
            configz: Value::Object(serde_json::Map::new()),
            statusz: Some(Program::current().version().to_owned()),
            flagz: Some(BTreeMap::new()),
        }
    }
}

impl Default for CertificateOptions {
    fn default() -> Self {
        Self {
            cert_dir: None,
            pair_name: "server",
            tls_cert_file: None,
            tls_private_key_file: None,
            tls_sni_cert_key: Vec::new(),
            flags: "",
        }
    }
}

impl Default for AuthenticationOptions {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            skip_lookup: false,
            tolerate_lookup_failure: false,
            token_webhook_cache_ttl: CACHE_TTL,
            client_ca_file: None,
            request_header: RequestHeaderOptions::default(),
        }
    }
}

impl Default for RequestHeaderOptions {
    fn default() -> Self {
        Self {
            client_ca_file: None,
            allowed_names: Vec::new(),
            username_headers: vec!["x-remote-user".to_owned()],
            group_headers: vec!["x-remote-group".to_owned()],
            extra_headers_prefix: vec!["x-remote-extra-".to_owned()],
            uid_headers: Vec::new(),
        }
    }
}

impl Default for AuthorizationOptions {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            authorized_ttl: CACHE_TTL,
            unauthorized_ttl: CACHE_TTL,
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_owned).into(),
        }
    }
}
