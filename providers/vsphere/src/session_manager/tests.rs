//! Tests with scripted session managers.

use std::{fs, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

/// A session manager that gives the tickets `ticket-1`, `ticket-2`, ... unless a test sets another answer.
pub(crate) struct Manager {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
    /// The status and the body to answer instead of a ticket.
    instead: Arc<Mutex<Option<(u16, String)>>>,
}

impl Manager {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/session?key=hunter3", listener.local_addr().expect("an address"));
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let instead: Arc<Mutex<Option<(u16, String)>>> = Arc::default();
        let (kept, answer) = (Arc::clone(&requests), Arc::clone(&instead));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut request = String::new();
                while !request.contains("\r\n\r\n") {
                    let mut buffer = [0; 4096];
                    let length = stream.read(&mut buffer).await.expect("a request");
                    request.push_str(std::str::from_utf8(&buffer[..length]).expect("text"));
                }
                let count = {
                    let mut requests = kept.lock();
                    requests.push(request);
                    requests.len()
                };
                let ticket = || (200, format!(r#"{{"token":"ticket-{count}","more":1}}"#));
                let (status, body) = answer.lock().clone().unwrap_or_else(ticket);
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                stream.write_all(format!("{head}{body}").as_bytes()).await.expect("answered");
                stream.shutdown().await.expect("closed");
            }
        });
        Self { url, requests, instead }
    }

    pub(crate) fn client(&self) -> SessionManager {
        SessionManager::new(self.url.as_str().into(), Some("hunter2".into()), Vec::new())
    }

    pub(crate) fn answers(&self, instead: Option<(u16, &str)>) {
        *self.instead.lock() = instead.map(|(status, body)| (status, body.to_owned()));
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().len()
    }

    /// The head of the last request.
    fn last(&self) -> String {
        self.requests.lock().last().expect("a request").clone()
    }
}

async fn ticket(manager: &SessionManager) -> Result<String, String> {
    let outcome = manager.ticket().await;
    outcome.map(|ticket| ticket.expose_secret().to_owned()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_ticket_is_asked_for_with_the_token() {
    let manager = Manager::start().await;
    assert_eq!(ticket(&manager.client()).await.as_deref(), Ok("ticket-1"));
    let request = manager.last();
    assert!(request.starts_with("GET /session?key=hunter3 HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nauthorization: Bearer hunter2\r\n"), "{request}");
    assert_eq!(ticket(&manager.client()).await.as_deref(), Ok("ticket-2"), "a new one each time");
}

#[tokio::test]
async fn a_user_in_the_url_does_not_take_the_place_of_the_token() {
    let manager = Manager::start().await;
    let url = manager.url.replace("http://", "http://root:hunter3@");
    let client = SessionManager::new(url.into(), Some("hunter2".into()), Vec::new());
    assert!(ticket(&client).await.is_ok());
    let request = manager.last();
    assert!(request.contains("authorization: Bearer hunter2") && !request.contains("Basic"), "{request}");
}

#[tokio::test]
async fn the_pods_token_is_read_anew_each_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let token_file = folder.path().join("token");
    // No server listens: only the request is checked.
    let url = "https://127.0.0.1:1/".into();
    let client =
        SessionManager { token_file: token_file.clone(), ..SessionManager::new(url, None, Vec::new()) };
    let error = ticket(&client).await.expect_err("no file");
    assert!(error.contains("the Secret has no token") && error.contains("service account"), "{error}");
    for content in ["from-a-file", "renewed\n"] {
        fs::write(&token_file, content).expect("written");
        let expected = format!("Bearer {}", content.trim());
        assert_eq!(client.authorization().expect("a header"), expected);
    }
}

#[tokio::test]
async fn the_pods_token_is_not_sent_in_plain_text() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let token_file = folder.path().join("token");
    fs::write(&token_file, "hunter2").expect("written");
    let of_the_pod = |url: &str| SessionManager {
        token_file: token_file.clone(),
        ..SessionManager::new(url.into(), None, Vec::new())
    };
    for url in [manager.url.clone(), manager.url.replace("http://", " HTTP://")] {
        let error = of_the_pod(&url).ticket().await.expect_err("refused");
        let words = format!("{error} {error:?}");
        assert!(matches!(error, CallError::Misconfigured(_)) && error.is_refused(), "{words}");
        for part in ["its URL is http", "vc-session-manager-token", "127.0.0.1"] {
            assert!(words.contains(part), "{words}");
        }
        assert!(!words.contains("hunter"), "{words}");
    }
    assert_eq!(manager.count(), 0, "nothing was sent");
    // With a token that is for the session manager alone, plain http is the operator's decision.
    assert!(ticket(&manager.client()).await.is_ok());
}

#[tokio::test]
async fn a_token_does_not_follow_a_redirect_into_plain_text() {
    let policy = |from: &str| may_follow(from.starts_with("https"), &"http://h/".parse().expect("a URL"), 1);
    assert!(policy("https://h/").is_err() && policy("http://h/").is_ok());
    assert!(may_follow(true, &"https://h/".parse().expect("a URL"), MAX_REDIRECTS).is_ok());
    assert!(may_follow(true, &"https://h/".parse().expect("a URL"), MAX_REDIRECTS + 1).is_err());
}

#[tokio::test]
async fn what_is_no_ticket_is_told_without_secrets() {
    let manager = Manager::start().await;
    let long = format!(r#"{{"token":"{}"}}"#, "x".repeat(LARGEST_ANSWER));
    let cases = [
        (401, "hunter2 is unknown", "HTTP status 401: it does not take the token of the Secret", true),
        (403, "", "HTTP status 403", true),
        (503, "hunter2", "HTTP status 503", false),
        (204, "", "HTTP status 204", false),
        (200, "", "not of the form", false),
        (200, "hunter3", "not of the form", false),
        (200, r#"{"token":""}"#, "not of the form", false),
        (200, r#"{"token":7}"#, "not of the form", false),
        (200, r#"{"ticket":"hunter3"}"#, "not of the form", false),
        (200, r#"["hunter3"]"#, "not of the form", false),
        (200, &long, "too large", false),
    ];
    for (status, body, expected, is_denied) in cases {
        manager.answers(Some((status, body)));
        let error = manager.client().ticket().await.expect_err("no ticket");
        let words = format!("{error} {error:?}");
        assert!(words.contains(expected) && !words.contains("hunter"), "{words}");
        assert!(words.contains("127.0.0.1"), "{words}");
        assert!(
            matches!(error, CallError::NotShared { is_denied: told, .. } if told == is_denied),
            "{words}"
        );
        assert!(!error.is_refused(), "it is tried again, less and less often: {words}");
    }
}

#[test]
fn go_reads_the_name_of_a_member_in_any_letter_case() {
    for body in [r#"{"token":"t"}"#, r#"{"Token":"t","expires":7}"#, r#"{"TOKEN":"t"}"#] {
        assert_eq!(read_ticket(body.as_bytes()).as_deref(), Some("t"), "{body}");
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_told_without_secrets() {
    for (url, token, expected) in [
        ("hunter3", "t", "session manager: its URL must be one of https"),
        ("ftp://sessions.example.org/hunter3", "t", "session manager sessions.example.org: its URL must be"),
        ("http://127.0.0.1:1/hunter3", "t", "session manager 127.0.0.1:1: "),
        ("http://root:hunter3@127.0.0.1:1/", "t", "session manager 127.0.0.1:1: "),
        ("http://127.0.0.1:1/", "hunter\n3", "its token has characters"),
    ] {
        let manager = SessionManager::new(url.into(), Some(token.into()), Vec::new());
        let words = format!("{} {manager:?}", ticket(&manager).await.expect_err("nothing there"));
        assert!(words.contains(expected) && !words.contains("hunter"), "{words}");
    }
    let manager =
        SessionManager::new("https://127.0.0.1:1/".into(), Some("t".into()), vec!["/does/not/exist".into()]);
    assert!(ticket(&manager).await.expect_err("no CA file").contains("/does/not/exist"));
}
