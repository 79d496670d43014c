//! Webhooks: upstream's framework can host those of a provider. Here one is served where it is needed: the one that converts
//! objects between the versions of a provider's machines.

use std::{net::IpAddr, path::PathBuf};

use clap::{ArgAction, Args};
use component::{
    command_line::{
        notes::{Note, differs, no_effect},
        tls,
        values::{boolean, int32_list, integer, ip, list, named_certificate, path},
    },
    serving::NamedCertificate,
};

/// Which webhooks run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Webhook flags")]
pub struct WebhookFlags {
    /// Webhooks to serve; no provider here has one with a name.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "LIST", value_parser = list)]
    pub webhooks: std::vec::Vec<String>,
}

/// Where they are served.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Webhook serving flags")]
pub struct WebhookServingFlags {
    /// Address for webhooks.
    #[arg(id = "webhook-bind-address", long = "webhook-bind-address", default_value = "0.0.0.0", value_name = "IP", value_parser = ip)]
    pub bind_address: IpAddr,

    /// Port for webhooks; 0 to serve none.
    #[arg(id = "webhook-secure-port", long = "webhook-secure-port", default_value = "10260", value_name = "PORT", value_parser = integer)]
    pub secure_port: i64,

    /// Serve webhooks by HTTP/1.1 only.
    #[arg(id = "webhook-disable-http2-serving", long = "webhook-disable-http2-serving", default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub disable_http2_serving: bool,

    /// Folder of the self-signed certificate for webhooks: cloud-controller-manager-webhook.crt and .key. Without a folder and
    /// a file, an authority in a Secret signs one.
    #[arg(id = "webhook-cert-dir", long = "webhook-cert-dir", default_value = "", hide_default_value = true, value_name = "FOLDER", value_parser = path)]
    pub cert_dir: std::option::Option<PathBuf>,

    /// File with the serving certificate for webhooks.
    #[arg(id = "webhook-tls-cert-file", long = "webhook-tls-cert-file", default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub tls_cert_file: std::option::Option<PathBuf>,

    /// File with the private key of --webhook-tls-cert-file.
    #[arg(id = "webhook-tls-private-key-file", long = "webhook-tls-private-key-file", default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub tls_private_key_file: std::option::Option<PathBuf>,

    /// Cipher suites for webhooks.
    #[arg(id = "webhook-tls-cipher-suites", long = "webhook-tls-cipher-suites", default_value = "", hide_default_value = true, value_name = "LIST", value_parser = list)]
    pub tls_cipher_suites: std::vec::Vec<String>,

    /// Key exchanges for webhooks.
    #[arg(id = "webhook-tls-curve-preferences", long = "webhook-tls-curve-preferences", value_name = "LIST", value_parser = int32_list)]
    pub tls_curve_preferences: Option<std::vec::Vec<i32>>,

    /// The oldest version of TLS for webhooks.
    #[arg(
        id = "webhook-tls-min-version",
        long = "webhook-tls-min-version",
        default_value = "",
        hide_default_value = true,
        value_name = "VERSION"
    )]
    pub tls_min_version: String,

    /// Certificate and key for some host names of webhooks.
    #[arg(id = "webhook-tls-sni-cert-key", long = "webhook-tls-sni-cert-key", value_name = "CERT,KEY[:NAMES]", value_parser = named_certificate)]
    pub tls_sni_cert_key: Vec<NamedCertificate>,
}

pub(super) const NOTES: &[Note] = &[
    no_effect("webhooks", "the webhook that converts objects has no name, and is served where it is needed"),
    differs(
        "webhook-secure-port",
        "Served is the webhook that converts objects of machines between versions, where the machine controller is enabled and \
         the provider has several versions (vSphere)",
    ),
    differs(
        "webhook-cert-dir",
        "Without it and --webhook-tls-cert-file, the daemon makes an authority and writes it into the definitions",
    ),
];

impl WebhookFlags {
    pub(super) fn faults(&self) -> Vec<String> {
        let mut names: Vec<&str> = self
            .webhooks
            .iter()
            .filter(|name| *name != "*")
            .map(|name| name.strip_prefix('-').unwrap_or(name))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
            .into_iter()
            .map(|name| {
                format!(
                    "{name:?} is not in the list of known webhooks (--webhooks; no provider here has one with a name)"
                )
            })
            .collect()
    }
}

impl WebhookServingFlags {
    pub(super) fn faults(&self, secure_port: i64) -> Vec<String> {
        let mut faults = Vec::new();
        if !(0..=65535).contains(&self.secure_port) {
            faults.push(format!(
                "--webhook-secure-port {} must be between 0 and 65535, inclusive. A value of 0 disables the webhook endpoint entirely.",
                self.secure_port
            ));
        }
        if self.tls_cert_file.is_some() != self.tls_private_key_file.is_some() {
            faults.push(
                "--webhook-tls-cert-file and --webhook-tls-private-key-file must be given together"
                    .to_owned(),
            );
        }
        if self.secure_port == secure_port && secure_port != 0 {
            faults.push("--webhook-secure-port cannot be the same value as --secure-port".to_owned());
        }
        let curves = self.tls_curve_preferences.as_deref().unwrap_or_default();
        faults.extend(tls::faults("webhook-", &self.tls_cipher_suites, curves, &self.tls_min_version));
        faults
    }

    /// The port, `None` where nothing is to be served.
    pub fn port(&self) -> Option<u16> {
        u16::try_from(self.secure_port).ok().filter(|port| *port != 0)
    }

    /// Whether the certificates come from files. Otherwise an authority of our own signs one.
    pub fn has_certificates(&self) -> bool {
        self.cert_dir.is_some() || self.tls_cert_file.is_some() || !self.tls_sni_cert_key.is_empty()
    }
}
