//! Requests to servers among the peers, made in this process: a start asks many times whether a server is ready, and a
//! process for each of these requests costs more than the server that starts.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A server on 127.0.0.1.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    port: u16,
    /// How long it may say nothing.
    silence: Duration,
    /// `None` if it serves without TLS.
    tls: Option<Arc<ClientConfig>>,
}

impl Server {
    /// One that serves without TLS.
    pub(crate) fn plain(port: u16, silence: Duration) -> Self {
        Self { port, silence, tls: None }
    }

    /// One that serves TLS with a certificate for 127.0.0.1, which an authority of this PEM file has signed.
    pub(crate) fn tls(port: u16, silence: Duration, ca: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca).with_context(|| ca.display().to_string())? {
            roots.add(certificate?)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { port, silence, tls: Some(Arc::new(config)) })
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The response body of a GET of `path`, with this bearer token if there is one.
    ///
    /// # Errors
    /// If there is no response, or not one of success.
    pub(crate) fn get(&self, path: &str, token: Option<&str>) -> Result<String> {
        self.ask("GET", path, token, "")
    }

    /// The response body of a POST of JSON to `path`, with this bearer token if there is one.
    ///
    /// # Errors
    /// If there is no response, or not one of success.
    pub(crate) fn post(&self, path: &str, token: Option<&str>, body: &str) -> Result<String> {
        let headers = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        self.ask("POST", path, token, &format!("{headers}\r\n{body}"))
    }

    /// `rest` is what follows the headers that every request has.
    fn ask(&self, method: &str, path: &str, token: Option<&str>, rest: &str) -> Result<String> {
        let authorization =
            token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let rest = if rest.is_empty() { "\r\n" } else { rest };
        let port = self.port;
        let request = format!("{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n{authorization}{rest}");
        self.exchange(&request).with_context(|| format!("{method} {path}"))
    }

    /// HTTP/1.0, whose response ends with the connection.
    fn exchange(&self, request: &str) -> Result<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = TcpStream::connect_timeout(&address, self.silence)?;
        stream.set_read_timeout(Some(self.silence))?;
        stream.set_write_timeout(Some(self.silence))?;
        let mut response = Vec::new();
        match &self.tls {
            None => {
                stream.write_all(request.as_bytes())?;
                stream.read_to_end(&mut response)?;
            }
            Some(config) => {
                let name = ServerName::from(address.ip());
                let mut stream = StreamOwned::new(ClientConnection::new(config.clone(), name)?, stream);
                stream.write_all(request.as_bytes())?;
                stream.read_to_end(&mut response)?;
            }
        }
        body(&String::from_utf8_lossy(&response))
    }
}

/// The body of a response of success.
fn body(response: &str) -> Result<String> {
    let (head, body) = response.split_once("\r\n\r\n").context("the response has no end of its headers")?;
    let (status_line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
    let Some(status) = status else { bail!("{status_line:?} is no status line") };
    ensure!((200..300).contains(&status), "{status_line}: {}", body.trim());
    let length = headers.lines().filter_map(|line| line.split_once(':'));
    let mut length = length.filter(|(name, _)| name.eq_ignore_ascii_case("Content-Length"));
    if let Some(length) = length.find_map(|(_, value)| value.trim().parse::<usize>().ok()) {
        ensure!(body.len() >= length, "{} of {length} bytes", body.len());
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PATIENCE;
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::thread;

    /// The first line of a request, and what stands after its headers.
    type Asked = thread::JoinHandle<Result<(String, String)>>;

    /// A server that answers one request with `response`, and what it was asked.
    fn answering(response: &'static str) -> Result<(Server, Asked)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let server = Server::plain(listener.local_addr()?.port(), PATIENCE);
        let asked = thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let mut lines = BufReader::new(stream.try_clone()?);
            let (mut first, mut length) = (String::new(), 0);
            lines.read_line(&mut first)?;
            loop {
                let mut line = String::new();
                lines.read_line(&mut line)?;
                if let Some(value) = line.strip_prefix("Content-Length: ") {
                    length = value.trim().parse()?;
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut rest = vec![0; length];
            lines.read_exact(&mut rest)?;
            stream.write_all(response.as_bytes())?;
            Ok((first, String::from_utf8(rest)?))
        });
        Ok((server, asked))
    }

    fn asked(asked: thread::JoinHandle<Result<(String, String)>>) -> Result<(String, String)> {
        asked.join().map_err(|_| anyhow::anyhow!("the server panicked"))?
    }

    #[test]
    fn a_body_is_returned_with_the_status_of_success_alone() -> Result<()> {
        let (server, request) = answering("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        assert_eq!(server.get("/readyz", Some("secret"))?, "ok");
        assert_eq!(asked(request)?.0, "GET /readyz HTTP/1.0\r\n");

        let (server, request) = answering("HTTP/1.0 500 Internal Server Error\r\n\r\nnot yet\n")?;
        let error = format!("{:#}", server.get("/readyz", None).expect_err("no success"));
        assert_eq!(error, "GET /readyz: HTTP/1.0 500 Internal Server Error: not yet");
        asked(request).map(drop)
    }

    #[test]
    fn a_post_carries_its_body() -> Result<()> {
        let (server, request) = answering("HTTP/1.0 200 OK\r\n\r\n{}")?;
        assert_eq!(server.post("/rules", None, r#"[{"methods":["soap:Login"]}]"#)?, "{}");
        let (first, body) = asked(request)?;
        assert_eq!((&*first, &*body), ("POST /rules HTTP/1.0\r\n", r#"[{"methods":["soap:Login"]}]"#));
        Ok(())
    }

    #[test]
    fn a_response_that_breaks_off_is_an_error() -> Result<()> {
        for response in
            ["", "HTTP/1.0 200 OK\r\nContent-Le", "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]
        {
            let (server, request) = answering(response)?;
            assert!(server.get("/", None).is_err(), "{response:?}");
            asked(request)?;
        }
        Ok(())
    }
}
