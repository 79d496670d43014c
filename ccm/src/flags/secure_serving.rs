//! The HTTPS port.

use std::{net::IpAddr, path::PathBuf};

use clap::{ArgAction, Args};
use component::{
    command_line::{
        notes::{Note, differs},
        tls,
        values::{boolean, int32_list, integer, ip, list, named_certificate, path},
    },
    serving::NamedCertificate,
};

/// Upstream's, where there is a server.
const DEFAULT_PORT: &str = if cfg!(feature = "serving") { "10258" } else { "0" };

/// Where HTTPS is served, and with which certificates.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Secure serving flags")]
pub struct SecureServingFlags {
    /// Address to serve HTTPS on. An unspecified one (0.0.0.0 or ::) means all interfaces and both address families.
    #[arg(long, default_value = "0.0.0.0", value_name = "IP", value_parser = ip)]
    pub bind_address: IpAddr,

    /// Port to serve HTTPS on, with authentication and authorization; 0 to serve nothing.
    #[arg(long, default_value = DEFAULT_PORT, value_name = "PORT", value_parser = integer)]
    pub secure_port: i64,

    /// Serve HTTP/1.1 only.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub disable_http2_serving: bool,

    /// Folder of the self-signed certificate that is made where --tls-cert-file and --tls-private-key-file are not
    /// given: cloud-controller-manager.crt and .key. Without a folder it is kept in memory.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FOLDER", value_parser = path)]
    pub cert_dir: std::option::Option<PathBuf>,

    /// File with the serving certificate, followed by its chain; read again when it changes.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub tls_cert_file: std::option::Option<PathBuf>,

    /// File with the private key of --tls-cert-file.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub tls_private_key_file: std::option::Option<PathBuf>,

    /// Cipher suites to offer, by their Go names. TLS 1.3 has always all of its own.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "LIST", value_parser = list)]
    pub tls_cipher_suites: std::vec::Vec<String>,

    /// Key exchanges to offer, by the numbers of Go's tls.CurveID: 23 (P-256), 24 (P-384), 29 (X25519).
    #[arg(long, value_name = "LIST", value_parser = int32_list)]
    pub tls_curve_preferences: Option<std::vec::Vec<i32>>,

    /// The oldest version of TLS to accept: VersionTLS12 or VersionTLS13. [default: VersionTLS12]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "VERSION")]
    pub tls_min_version: String,

    /// Certificate and key for some host names: cert,key or cert,key:name,name. May be given several times.
    #[arg(long, value_name = "CERT,KEY[:NAMES]", value_parser = named_certificate)]
    pub tls_sni_cert_key: Vec<NamedCertificate>,

    /// Requests at the same time on one HTTP/2 connection; with 0 100.
    #[arg(long, default_value = "0", value_name = "N", value_parser = integer)]
    pub http2_max_streams_per_connection: i64,

    /// Bind the port with SO_REUSEPORT.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub permit_port_sharing: bool,

    /// Bind the port with SO_REUSEADDR.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub permit_address_sharing: bool,
}

pub(super) const NOTES: &[Note] = &[
    differs(
        "tls-cipher-suites",
        "Suites that rustls does not have (CBC modes, RC4, RSA key exchange) are accepted and not offered, with a warning",
    ),
    differs(
        "tls-curve-preferences",
        "Curves that rustls does not have (P-521, post-quantum hybrids) are accepted and not offered, with a warning",
    ),
    differs(
        "tls-min-version",
        "VersionTLS10 and VersionTLS11 are accepted and mean VersionTLS12, with a warning",
    ),
];

impl SecureServingFlags {
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !(0..=65535).contains(&self.secure_port) {
            faults.push(format!(
                "--secure-port {} must be between 0 and 65535, inclusive. 0 for turning off secure port",
                self.secure_port
            ));
        }
        if self.secure_port != 0 && !cfg!(feature = "serving") {
            faults.push(format!(
                "--secure-port={}: this program is built without the secure port, so the only value is 0",
                self.secure_port
            ));
        }
        if self.tls_cert_file.is_some() != self.tls_private_key_file.is_some() {
            faults.push("--tls-cert-file and --tls-private-key-file must be given together".to_owned());
        }
        if u32::try_from(self.http2_max_streams_per_connection).is_err() {
            faults.push(
                "--http2-max-streams-per-connection cannot be a negative number or beyond 32 bits".to_owned(),
            );
        }
        faults.extend(tls::faults("", &self.tls_cipher_suites, self.curves(), &self.tls_min_version));
        faults
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        tls::warnings(&self.tls_cipher_suites, self.curves(), &self.tls_min_version)
    }

    /// The port, `None` where nothing is to be served.
    pub fn port(&self) -> Option<u16> {
        u16::try_from(self.secure_port).ok().filter(|port| *port != 0)
    }

    /// The wanted key exchanges, empty for the usual ones.
    pub fn curves(&self) -> &[i32] {
        self.tls_curve_preferences.as_deref().unwrap_or_default()
    }
}
