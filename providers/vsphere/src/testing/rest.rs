//! A server for the Automation REST API, with scripted answers.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{
    http::HttpClient,
    session::{AccessSource, Credentials},
};

/// A REST endpoint with scripted answers.
pub(crate) struct RestServer {
    pub(crate) http: HttpClient,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

impl RestServer {
    /// `answer` gets the method and the path, and how many such requests there were before.
    pub(crate) async fn start(answer: impl Fn(&str, usize) -> (u16, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut request = String::new();
                while !is_complete(&request) {
                    let mut buffer = [0; 4096];
                    let length = stream.read(&mut buffer).await.expect("a request");
                    request.push_str(std::str::from_utf8(&buffer[..length]).expect("text"));
                }
                let asked: Vec<_> = request.split_whitespace().take(2).collect();
                let asked = asked.join(" ");
                let before = kept.lock().iter().filter(|known| **known == asked).count();
                let (status, body) = answer(&asked, before);
                kept.lock().push(asked);
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                stream.write_all(format!("{head}{body}").as_bytes()).await.expect("answered");
                stream.shutdown().await.expect("closed");
            }
        });
        Self { http: HttpClient::plain(address), requests }
    }

    /// How many requests began so.
    pub(crate) fn count(&self, wanted: &str) -> usize {
        self.requests.lock().iter().filter(|asked| asked.starts_with(wanted)).count()
    }
}

fn is_complete(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

/// The way to log in to it.
pub(crate) fn credentials() -> AccessSource {
    Arc::new(|| Ok(Credentials::new("ccm", "hunter2").into()))
}
