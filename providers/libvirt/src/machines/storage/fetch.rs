//! Where images come from: http servers, and files of this machine.
//!
//! Certificates are checked against the authorities of the system, or those in the file that the environment variable
//! `SSL_CERT_FILE` names. Proxies are those of the environment.

use std::{
    fmt,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use cloudprovider::{Error, ErrorKind, Result, async_trait, error_chain, tls};
use reqwest::{Client, Response, StatusCode, Url, redirect::Policy};

/// The timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may send nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;
/// The longest image.
pub(super) const MAX_LENGTH: u64 = 1 << 40;
/// What is read from a file at once.
const BLOCK: usize = 1 << 20;

/// Where an image comes from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An http or https URL.
    Url(Url),
    /// A file of the machine that the daemon runs on.
    File(PathBuf),
}

impl Origin {
    /// Reads an http or https URL. `field` names the field in messages, which never quote the URL.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`].
    pub(crate) fn url(field: &str, text: &str) -> Result<Self> {
        let fault = |words: &str| Error::new(ErrorKind::InvalidInput, format!("{field}: {words}"));
        let url = Url::parse(text).map_err(|error| fault(&format!("is no URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(fault("must begin with http:// or https://"));
        }
        Ok(Self::Url(url))
    }

    /// A file. `field` names the field in messages.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`].
    pub(crate) fn file(field: &str, path: &str) -> Result<Self> {
        let path = PathBuf::from(path);
        if !path.is_absolute() {
            let words = format!("{field}: must be an absolute path");
            return Err(Error::new(ErrorKind::InvalidInput, words));
        }
        Ok(Self::File(path))
    }
}

impl fmt::Display for Origin {
    /// Without what may be a secret: user, password, query and fragment of a URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => {
                let host = url.host_str().unwrap_or_default();
                write!(f, "{}://{host}", url.scheme())?;
                if let Some(port) = url.port() {
                    write!(f, ":{port}")?;
                }
                f.write_str(url.path())
            }
            Self::File(path) => write!(f, "{}", path.display()),
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

/// An image that is being read.
#[async_trait]
pub(super) trait Source: Send {
    /// Its length, if that is known before its end.
    fn length(&self) -> Option<u64>;

    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>>;
}

/// Fetches images for real.
#[derive(Debug)]
pub(super) struct Fetcher;

#[async_trait]
impl Fetch for Fetcher {
    async fn open(&self, origin: &Origin) -> Result<Box<dyn Source>> {
        match origin {
            Origin::Url(url) => Ok(Box::new(download(url, origin).await?)),
            Origin::File(path) => Ok(Box::new(open(path).await?)),
        }
    }
}

struct Download {
    response: Response,
    /// The length of the whole image: the response tells what is left of it.
    length: Option<u64>,
    /// For messages.
    origin: String,
}

async fn download(url: &Url, origin: &Origin) -> Result<Download> {
    let origin = origin.to_string();
    let request = client(url)?.get(url.clone()).send();
    let late = |_| {
        Error::new(ErrorKind::Timeout, format!("{origin}: no answer within {} s", IDLE_TIMEOUT.as_secs()))
    };
    let response = tokio::time::timeout(IDLE_TIMEOUT, request).await.map_err(late)?;
    let response = response.map_err(|error| unreachable(&origin, error))?;
    let status = response.status();
    let kind = match status {
        StatusCode::OK => {
            let length = response.content_length();
            return Ok(Download { response, length, origin });
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => ErrorKind::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::PermissionDenied,
        _ => ErrorKind::Unavailable,
    };
    Err(Error::new(kind, format!("{origin}: the server answers {status}")))
}

/// A client for one download: images are fetched rarely, and the certificates to trust may have changed.
fn client(url: &Url) -> Result<Client> {
    let cannot = |why: String| Error::new(ErrorKind::Internal, format!("cannot make an http client: {why}"));
    let is_encrypted = url.scheme() == "https";
    let builder = Client::builder()
        .tls_backend_preconfigured(tls::client_config(tls::system_roots()).map_err(cannot)?)
        .http1_only()
        .redirect(Policy::custom(move |attempt| {
            match may_follow(is_encrypted, attempt.url(), attempt.previous().len()) {
                Ok(()) => attempt.follow(),
                Err(why) => attempt.error(why),
            }
        }))
        // the URL may hold secrets
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(IDLE_TIMEOUT)
        .user_agent(concat!("cloud-controller-manager/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(|error| cannot(error_chain(&error)))
}

/// Whether a redirect is followed: not too many, and none from https to http.
fn may_follow(is_encrypted: bool, to: &Url, followed: usize) -> std::result::Result<(), &'static str> {
    if followed > MAX_REDIRECTS {
        return Err("too many redirects");
    }
    match to.scheme() {
        "https" => Ok(()),
        "http" if !is_encrypted => Ok(()),
        "http" => Err("a redirect from https to http"),
        _ => Err("a redirect to something else than http and https"),
    }
}

fn unreachable(origin: &str, error: reqwest::Error) -> Error {
    let kind = if error.is_timeout() { ErrorKind::Timeout } else { ErrorKind::Unavailable };
    Error::new(kind, format!("{origin}: {}", error_chain(&error.without_url())))
}

#[async_trait]
impl Source for Download {
    fn length(&self) -> Option<u64> {
        self.length
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        self.response.chunk().await.map_err(|error| unreachable(&self.origin, error))
    }
}

struct OpenFile {
    file: Option<File>,
    length: u64,
    path: PathBuf,
}

async fn open(path: &Path) -> Result<OpenFile> {
    let path = path.to_owned();
    blocking(move || {
        let fault = |error: std::io::Error| unreadable(&path, &error);
        // looked at before it is opened: opening a pipe would wait for its other end
        let is_file = std::fs::metadata(&path).map_err(fault)?.is_file();
        if !is_file {
            let words = format!("{} is not a regular file", path.display());
            return Err(Error::new(ErrorKind::InvalidInput, words));
        }
        let file = File::open(&path).map_err(fault)?;
        let length = file.metadata().map_err(fault)?.len();
        Ok(OpenFile { file: Some(file), length, path })
    })
    .await
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("cannot read {} where the provider runs: {error}", path.display()))
}

/// Runs work that waits for a disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(ErrorKind::Internal, "the work with a file did not end")),
    }
}

#[async_trait]
impl Source for OpenFile {
    fn length(&self) -> Option<u64> {
        Some(self.length)
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(mut file) = self.file.take() else { return Ok(None) };
        let path = self.path.clone();
        let (file, block) = blocking(move || {
            let mut block = Vec::with_capacity(BLOCK);
            let limit = u64::try_from(BLOCK).unwrap_or(u64::MAX);
            (&mut file).take(limit).read_to_end(&mut block).map_err(|error| unreadable(&path, &error))?;
            Ok((file, block))
        })
        .await?;
        if block.is_empty() {
            return Ok(None);
        }
        self.file = Some(file);
        Ok(Some(block.into()))
    }
}

#[cfg(test)]
mod tests;
