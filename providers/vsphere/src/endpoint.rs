//! The address of a vCenter and how it is authenticated.

use std::{net::IpAddr, path::PathBuf};

use crate::thumbprint::Thumbprint;

/// The address of a vCenter and how it is authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// A DNS name or an IP address, without brackets.
    pub(crate) host: String,
    /// The HTTPS port.
    pub(crate) port: u16,
    /// PEM files with the certificate authorities to trust instead of the system's.
    pub(crate) ca_files: Vec<PathBuf>,
    /// The hash of a certificate that is trusted whatever its issuer.
    pub(crate) thumbprint: Option<Thumbprint>,
    /// Whether any certificate is accepted.
    pub(crate) insecure: bool,
}

impl Endpoint {
    /// `host:port`, with brackets around an IPv6 address.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whether the host is this machine. As in Go, no proxy is used for it then.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}
