//! Where a vCenter is.

use std::{net::IpAddr, path::PathBuf};

use crate::thumbprint::Thumbprint;

/// Where a vCenter is and how it proves that it is the one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// A DNS name or an IP address, without brackets.
    pub(crate) host: String,
    /// The port of HTTPS.
    pub(crate) port: u16,
    /// Files with the certificates of authorities to trust, instead of the system's.
    pub(crate) ca_files: Vec<PathBuf>,
    /// A certificate that is trusted whoever signed it.
    pub(crate) thumbprint: Option<Thumbprint>,
    /// Whether any certificate is taken.
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

    /// Whether it is this machine: proxies are for others, as in Go.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}
