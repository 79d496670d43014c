//! Where images come from: http servers, and files of this machine.
//!
//! A user who may write a machine names both, so [`allow`](crate::allow) decides which names are allowed, and
//! no link or redirect leads around that: a file is opened by descriptors ([`files`]), a host by its checked
//! addresses ([`reach`]).
//!
//! Certificates are checked against the authorities of the system, or those in the file that the environment
//! variable `SSL_CERT_FILE` names. Proxies are those of the environment.

mod download;
mod files;
mod reach;

use std::fmt;

use cloudprovider::{Error, ErrorKind, Result, async_trait};
use reqwest::Url;

pub(crate) use self::reach::Inside;
use self::reach::Network;
use super::limits::Source;
use crate::allow::{FileBelow, ImageHosts};

/// The longest image.
pub(super) const MAX_LENGTH: u64 = 1 << 40;

/// Where an image comes from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An http or https URL, and the hosts that it may reach beyond public addresses.
    Url(Url, ImageHosts),
    /// A file of the machine that the daemon runs on.
    File(FileBelow),
}

impl Origin {
    /// Reads an http or https URL. `field` names the field in messages, which never quote the URL.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`].
    pub(crate) fn url(field: &str, text: &str, hosts: ImageHosts) -> Result<Self> {
        let fault = |words: &str| Error::new(ErrorKind::InvalidInput, format!("{field}: {words}"));
        let url = Url::parse(text).map_err(|error| fault(&format!("is no URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(fault("must begin with http:// or https://"));
        }
        Ok(Self::Url(url, hosts))
    }
}

impl fmt::Display for Origin {
    /// Without what may be a secret: user, password, query and fragment of a URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url, _) => {
                let host = url.host_str().unwrap_or_default();
                write!(f, "{}://{host}", url.scheme())?;
                if let Some(port) = url.port() {
                    write!(f, ":{port}")?;
                }
                f.write_str(url.path())
            }
            Self::File(file) => write!(f, "{}", file.folder.join(&file.path).display()),
        }
    }
}

impl fmt::Debug for Origin {
    /// As [`Display`](fmt::Display).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Origin({self})")
    }
}

/// Opens images.
#[async_trait]
pub(super) trait Fetch: Send + Sync {
    /// Begins to read an image.
    async fn open(&self, origin: &Origin) -> Result<Box<dyn Source>>;
}

/// Fetches images for real.
#[derive(Debug)]
pub(super) struct Fetcher {
    network: Network,
}

impl Fetcher {
    /// With the proxies of the environment.
    pub(super) fn new(inside: Inside) -> Self {
        Self { network: Network::of_environment(inside) }
    }
}

#[async_trait]
impl Fetch for Fetcher {
    async fn open(&self, origin: &Origin) -> Result<Box<dyn Source>> {
        match origin {
            Origin::Url(url, hosts) => {
                let way = &self.network;
                Ok(Box::new(download::open(way, url, hosts, &origin.to_string()).await?))
            }
            Origin::File(file) => Ok(Box::new(files::open(file).await?)),
        }
    }
}

#[cfg(test)]
mod tests;
