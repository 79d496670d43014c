use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{
    scripted::Scripted,
    session::{CALL_DEADLINE, Credentials, Session},
    vim::{Call, Transport},
};

/// A REST endpoint that answers what a test says.
struct Server {
    http: HttpClient,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// `answer` gets the method and the path, and how often they were asked for before.
    async fn start(answer: impl Fn(&str, usize) -> (u16, &'static str) + Send + 'static) -> Self {
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
                let before = kept.lock().expect("lock").iter().filter(|known| **known == asked).count();
                let (status, body) = answer(&asked, before);
                kept.lock().expect("lock").push(asked);
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                stream.write_all(format!("{head}{body}").as_bytes()).await.expect("answered");
                stream.shutdown().await.expect("closed");
            }
        });
        Self { http: HttpClient::plain(address), requests }
    }

    fn client(&self, accounts: &Arc<Accounts>) -> TagClient {
        TagClient::new(self.http.clone(), credentials(), Arc::clone(accounts), "8.0.3.0")
    }

    fn count(&self, wanted: &str) -> usize {
        self.requests.lock().expect("lock").iter().filter(|asked| asked.starts_with(wanted)).count()
    }
}

fn is_complete(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

fn credentials() -> CredentialSource {
    Arc::new(|| Ok(Credentials { user: "ccm".to_owned(), password: "hunter2".into() }))
}

fn root() -> [MoRef; 1] {
    [MoRef::new("Folder", "group-d1")]
}

/// Lets time pass without waiting. Not paused while a connection is used: timeouts would pass.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn rest_that_refuses_what_soap_accepts_is_tried_again_and_stops_nobody() {
    let server = Server::start(|asked, before| match asked {
        "POST /rest/com/vmware/cis/session" if before < 2 => (401, ""),
        "POST /rest/com/vmware/cis/session" => (200, r#"{"value":"s"}"#),
        _ => (200, r#"{"value":[]}"#),
    })
    .await;
    let accounts: Arc<Accounts> = Arc::default();
    let vcenter = Arc::new(Scripted::default());
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
    let session = Session::new(transport, credentials(), Arc::clone(&accounts), false);
    session.open(0).await.expect("SOAP is logged in");
    let tags = server.client(&accounts);
    for _ in 0..5 {
        assert!(tags.attached(&root()).await.expect_err("refused").is_refused());
    }
    assert_eq!(server.count("POST"), 1, "not again at once");
    vcenter.fault("CurrentTime", "NotAuthenticated");
    let call = Call {
        this: MoRef::new("ServiceInstance", "ServiceInstance"),
        method: "CurrentTime",
        arguments: Vec::new(),
    };
    session.call(&call, CALL_DEADLINE).await.expect("SOAP logs in again");
    for (minutes, is_good) in [(1, false), (1, false), (1, true)] {
        later(Duration::from_secs(60 * minutes)).await;
        assert_eq!(tags.attached(&root()).await.is_ok(), is_good);
    }
    assert_eq!(server.count("POST /rest/com/vmware/cis/session"), 3);
}

#[tokio::test]
async fn what_both_refuse_is_tried_once_by_both_together() {
    let server = Server::start(|_, _| (401, "")).await;
    let accounts: Arc<Accounts> = Arc::default();
    let tags = server.client(&accounts);
    assert!(tags.attached(&root()).await.expect_err("refused").is_refused());
    let vcenter = Arc::new(Scripted::default());
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
    let session = Session::new(transport, credentials(), accounts, false);
    assert!(session.open(0).await.expect_err("not tried").is_refused());
    assert!(vcenter.calls().is_empty());
}

#[tokio::test]
async fn a_session_that_vcenter_does_not_take_is_not_left_behind() {
    let server = Server::start(|asked, _| match asked {
        "POST /rest/com/vmware/cis/session" => (200, r#"{"value":"s"}"#),
        "DELETE /rest/com/vmware/cis/session" => (200, ""),
        _ => (401, ""),
    })
    .await;
    let tags = server.client(&Arc::default());
    for _ in 0..3 {
        let error = tags.attached(&root()).await.expect_err("401");
        assert!(matches!(error, CallError::Status { status: 401, .. }), "{error}");
    }
    let opened = server.count("POST /rest/com/vmware/cis/session");
    assert_eq!((opened, server.count("DELETE")), (4, 3), "one is kept");
    tags.close().await;
    assert_eq!(server.count("DELETE"), opened);
}

#[test]
fn basic_authentication() {
    // the examples of RFC 7617
    assert_eq!(basic("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    assert_eq!(basic("test", "123\u{a3}"), "Basic dGVzdDoxMjPCow==");
    assert_eq!(basic("a", ""), "Basic YTo=");
}

#[test]
fn both_dialects_are_read() {
    let list: Option<Vec<String>> = Dialect::Legacy.read("m", br#"{"value":["a"]}"#).expect("good");
    assert_eq!(list.as_deref(), Some(&["a".to_owned()][..]));
    let list: Option<Vec<String>> = Dialect::Legacy.read("m", br#"{"value":null}"#).expect("good");
    assert_eq!(list, None);
    let id: String = Dialect::Modern.read("m", br#""id""#).expect("good");
    assert_eq!(id, "id");
    let error = Dialect::Modern.read::<Vec<u8>>("m", br#""secret-session""#).expect_err("another form");
    assert!(!error.to_string().contains("secret"), "{error}");
}
