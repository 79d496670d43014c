use std::net::Ipv4Addr;

use jiff::Timestamp;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::metrics::MetricSet as _;
use crate::{
    reload::ReloadMetrics,
    serving::{Authority, TlsOptions},
};

/// The length of an answer that is long.
const MUCH: usize = 4 << 20;

/// Says the length of the body, refuses an empty one, panics at the word "panic", and says much at "much".
struct Length;

impl Webhook for Length {
    fn answer(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        assert!(body != b"panic", "as asked");
        if body == b"much" {
            Ok(vec![b'x'; MUCH])
        } else if body.is_empty() {
            Err("nothing was sent".to_owned())
        } else {
            Ok(body.len().to_string().into_bytes())
        }
    }
}

struct Running {
    server: WebhookServer,
    made: MadeCertificate,
    authority: Authority,
}

async fn start() -> Running {
    let options = WebhookOptions {
        bind_address: Ipv4Addr::LOCALHOST.into(),
        secure_port: 0,
        disable_http2_serving: false,
        certificates: None,
        tls: TlsOptions::default(),
    };
    let reporter = ReloadReporter::new(ReloadMetrics::unregistered().expect("metrics"), None);
    let made = MadeCertificate::default();
    let server = WebhookServer::start(&options, "/convert", Arc::new(Length), made.clone(), &reporter);
    let server = server.await.expect("it serves");
    let authority = Authority::make("test", Timestamp::now()).expect("made");
    Running { server, made, authority }
}

impl Running {
    fn has_certificate(&self) {
        let names = ["127.0.0.1".to_owned()];
        self.made.set(self.authority.sign(&names, Timestamp::now()).expect("signed").certified);
    }

    async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let pem = self.authority.certificate().as_bytes();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.server.address()).await?;
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// The answer to these bytes.
    async fn ask(&self, request: &[u8]) -> std::io::Result<String> {
        let mut stream = self.connect().await?;
        stream.write_all(request).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    async fn post(&self, path: &str, body: &str) -> String {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.ask(request.as_bytes()).await.expect("an answer")
    }
}

#[tokio::test]
async fn it_answers_once_it_has_a_certificate() {
    let running = start().await;
    running.ask(b"").await.expect_err("there is no certificate");
    running.has_certificate();
    let answer = running.post("/convert", "abc").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n3"), "{answer}");
    running.server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_answered_is_said() {
    let running = start().await;
    running.has_certificate();
    for (path, body, status, words) in [
        ("/convert", "", "400", "nothing was sent"),
        ("/convert", "panic", "500", "failed at this request"),
        ("/other", "abc", "404", "the webhook is at /convert"),
    ] {
        let answer = running.post(path, body).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(words), "{answer}");
    }
    let get = b"GET /convert HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = running.ask(get).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    let long = "POST /convert HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 99999999\r\n\r\n";
    let answer = running.ask(long.as_bytes()).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let again = running.post("/convert", "ab").await;
    assert!(again.ends_with("\r\n\r\n2"), "it goes on after a panic: {again}");
}

#[tokio::test]
async fn a_new_connection_takes_the_place_of_an_idle_one() {
    let running = start().await;
    running.has_certificate();
    let mut idle = Vec::new();
    for _ in 0..=CONNECTIONS_OF_ONE {
        idle.push(TcpStream::connect(running.server.address()).await.expect("a connection"));
    }
    let answer = running.post("/convert", "abc").await;
    assert!(answer.ends_with("\r\n\r\n3"), "{answer}");
    assert_eq!(idle[0].read(&mut [0]).await.unwrap_or_default(), 0, "the oldest one went");
}

/// As an API server asks: by HTTP/1.1, each request on a connection of its own.
#[tokio::test]
async fn an_api_server_at_work_is_answered() {
    const MANY: usize = 100;
    let running = start().await;
    running.has_certificate();
    let connected = futures::future::join_all((0..MANY).map(|_| running.connect())).await;
    let answers = connected.into_iter().zip(1..).map(async |(stream, length): (_, usize)| {
        let mut stream = stream.expect("a connection");
        let body = "x".repeat(length);
        let request = format!("POST /convert HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.expect("the connection is still there");
        // With so many of them in one task, a part may wait for its turn to be written.
        stream.flush().await.expect("sent");
        let (mut answer, end) = (String::new(), format!("\r\n\r\n{length}"));
        while !answer.ends_with(&end) {
            let mut part = [0; 1024];
            let read = stream.read(&mut part).await.expect("an answer");
            assert!(read > 0, "the answer to {length} ended with {answer:?}");
            answer.push_str(&String::from_utf8_lossy(&part[..read]));
        }
    });
    futures::future::join_all(answers).await;
}

#[tokio::test]
async fn answers_that_nobody_reads_are_bounded() {
    let running = start().await;
    running.has_certificate();
    let request = "POST /convert HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nmuch";
    let mut waiting = Vec::new();
    for _ in 0..=MEMORY / MUCH as u64 {
        let mut stream = running.connect().await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.expect("the start of an answer");
        assert_eq!(&start, b"HTTP/1.1 200");
        waiting.push(stream);
    }
    let mut taken = Vec::new();
    let _ = waiting[0].read_to_end(&mut taken).await;
    assert!(taken.len() < MUCH, "the first one is gone: {}", taken.len());
    assert!(running.post("/convert", "ab").await.ends_with("\r\n\r\n2"));
}

#[tokio::test]
async fn a_body_that_does_not_come_keeps_nobody_waiting() {
    let running = start().await;
    running.has_certificate();
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut stream = running.connect().await.expect("a connection");
        let head = b"POST /convert HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab";
        stream.write_all(head).await.expect("sent");
        slow.push(stream);
    }
    let answer = timeout(BODY_TIMEOUT / 2, running.post("/convert", "abc")).await.expect("at once");
    assert!(answer.ends_with("\r\n\r\n3"), "{answer}");
}

#[tokio::test]
async fn a_part_that_ends_by_itself_is_noticed() {
    let mut running = start().await;
    running.server.tasks.abort_all();
    running.server.failed().await;
}
