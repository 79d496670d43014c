//! SOAP tests with a server that answers as a real vCenter does.

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{
    moref::MoRef,
    session::{CALL_DEADLINE, Credentials, Session},
    vim::objects::{CreateContainerView, WaitForUpdatesEx, WaitOptions},
};

/// Answers requests in the order of its script, and keeps the requests.
struct Server {
    transport: Arc<SoapTransport>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&requests);
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut request = Vec::new();
                while !is_complete(&request) {
                    let mut buffer = [0; 4096];
                    let length = stream.read(&mut buffer).await.expect("a request");
                    request.extend_from_slice(&buffer[..length]);
                }
                kept.lock().push(String::from_utf8(request).expect("text"));
                stream.write_all(answer.as_bytes()).await.expect("answered");
                stream.shutdown().await.expect("closed");
            }
        });
        Self { transport: Arc::new(SoapTransport::new(HttpClient::plain(address))), requests }
    }

    async fn call(&self, call: &Call) -> Result<Element, CallError> {
        self.transport.call(call, CALL_DEADLINE).await
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    /// The cookie of each request.
    fn cookies(&self) -> Vec<Option<String>> {
        let cookie = |request: &String| {
            let line = request.lines().find_map(|line| line.strip_prefix("cookie: "));
            line.map(str::to_owned)
        };
        self.requests().iter().map(cookie).collect()
    }
}

fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}")
}

/// An envelope with the prefixes of a real vCenter, declared at the top.
fn envelope(body: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<soapenv:Envelope \
         xmlns:soapenc=\"http://schemas.xmlsoap.org/soap/encoding/\" \
         xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\n<soapenv:Body>\n{body}\n</soapenv:Body>\n</soapenv:Envelope>"
    )
}

fn good(method: &str, headers: &str) -> String {
    answer(
        "200 OK",
        headers,
        &envelope(&format!("<{method}Response xmlns=\"urn:vim25\"></{method}Response>")),
    )
}

fn fault(kind: &str, words: &str) -> String {
    let body = format!(
        "<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>{words}</faultstring><detail>\
         <{kind}Fault xmlns=\"urn:vim25\" xsi:type=\"{kind}\"></{kind}Fault></detail></soapenv:Fault>"
    );
    answer(
        "500 Internal Server Error",
        "Set-Cookie: vmware_soap_session=\"of a fault\"; Path=/\r\n",
        &envelope(&body),
    )
}

fn now() -> Call {
    let this = MoRef::new("ServiceInstance", "ServiceInstance");
    Call { this, method: "CurrentTime", arguments: Vec::new(), since: None }
}

const SESSION: &str = "Set-Cookie: other=1\r\nSet-Cookie: \
     vmware_soap_session=\"4c1b0f28a9=\"; Path=/; HttpOnly; Secure; SameSite=None\r\n";

#[tokio::test]
async fn the_cookie_goes_back_with_its_quotes() {
    let script = vec![
        good("Login", SESSION),
        good("CurrentTime", ""),
        fault("HostCommunication", "A specified parameter was not correct."),
        good("CurrentTime", ""),
        good("CurrentTime", ""),
    ];
    let server = Server::start(script).await;
    for _ in 0..4 {
        let _ = server.call(&now()).await;
    }
    assert!(server.transport.has_session());
    server.transport.forget_session();
    server.call(&now()).await.expect("answered");
    let session = Some("vmware_soap_session=\"4c1b0f28a9=\"".to_owned());
    assert_eq!(server.cookies(), [None, session.clone(), session.clone(), session, None]);
    let head = server.requests().remove(0).to_lowercase();
    assert!(
        head.starts_with("post /sdk http/1.1") && head.contains("\r\nsoapaction: urn:vim25/7.0\r\n"),
        "{head}"
    );
    let later = Server::start(vec![good("CurrentTime", "")]).await;
    later.call(&now().since(Some("7.0.2.0"))).await.expect("answered");
    let later = later.requests().remove(0).to_lowercase();
    assert!(later.contains("\r\nsoapaction: urn:vim25/7.0.2.0\r\n"), "{later}");
    assert!(head.contains("\r\ncontent-type: text/xml; charset=\"utf-8\"\r\n"), "{head}");
    assert!(!format!("{:?}", server.transport).contains("4c1b"));
}

#[tokio::test]
async fn a_session_is_opened_again_with_the_old_one_ended() {
    let words = "The session is not authenticated.";
    let script = vec![
        good("Login", SESSION),
        fault("NotAuthenticated", words),
        fault("NotAuthenticated", words),
        good("Login", "Set-Cookie: vmware_soap_session=\"second\"; Path=/\r\n"),
        good("CurrentTime", ""),
    ];
    let server = Server::start(script).await;
    let transport: Arc<dyn Transport> = Arc::<SoapTransport>::clone(&server.transport);
    let credentials = || Ok(Credentials::new("ccm", "hunter2").into());
    let session = Session::new(transport, Arc::new(credentials), Arc::default(), false);
    session.open(0).await.expect("logged in");
    session.call(&now(), CALL_DEADLINE).await.expect("answered in the second session");
    let methods: Vec<_> = server
        .requests()
        .iter()
        .map(|request| {
            let body = request.split_once("<Body><").map(|(_, body)| body.to_owned()).unwrap_or_default();
            body.split(' ').next().unwrap_or_default().to_owned()
        })
        .collect();
    assert_eq!(methods, ["Login", "CurrentTime", "Logout", "Login", "CurrentTime"]);
    let cookies = server.cookies();
    assert_eq!(cookies[3], None, "a login over a session is refused");
    assert_eq!(cookies[4].as_deref(), Some("vmware_soap_session=\"second\""));
}

#[tokio::test]
async fn faults_in_the_words_of_a_real_vcenter() {
    let login = "Cannot complete login due to an incorrect user name or password.";
    let gone = "The object 'vim.view.ContainerView:session[52]5' has already been deleted or has not been completely created";
    let script = vec![
        fault("InvalidLogin", login),
        fault("ManagedObjectNotFound", gone),
        fault("NoPermission", "Permission to perform this operation was denied."),
        answer(
            "503 Service Unavailable",
            "",
            "<html><body>503 Service Unavailable (Failed to connect)</body></html>",
        ),
        answer("301 Moved Permanently", "Location: https://elsewhere.example/sdk\r\n", ""),
    ];
    let server = Server::start(script).await;
    let mut errors = Vec::new();
    for _ in 0..5 {
        errors.push(server.call(&now()).await.expect_err("a fault"));
    }
    assert!(errors[0].is_refused() && errors[1].is_watch_lost() && errors[2].is_fault("NoPermission"));
    assert_eq!(errors[3], CallError::Status { method: "CurrentTime", status: 503 });
    assert_eq!(errors[4], CallError::Status { method: "CurrentTime", status: 301 }, "not followed");
    assert!(!server.transport.has_session(), "a cookie beside a fault is none");
}

#[tokio::test]
async fn arguments_go_in_the_order_of_the_wsdl() {
    let server = Server::start(vec![good("CreateContainerView", ""), good("WaitForUpdatesEx", "")]).await;
    let container = MoRef::new("Folder", "group-d1");
    let view = CreateContainerView { container, kinds: vec!["VirtualMachine", "Folder"], recursive: true };
    server.call(&view.of(&MoRef::new("ViewManager", "ViewManager"))).await.expect("answered");
    let options = WaitOptions { max_wait_seconds: Some(60), max_object_updates: None };
    let wait = WaitForUpdatesEx { version: String::new(), options };
    server.call(&wait.of(&MoRef::new("PropertyCollector", "propertyCollector"))).await.expect("answered");
    let requests = server.requests();
    assert!(requests[0].contains(
        "<_this type=\"ViewManager\">ViewManager</_this><container type=\"Folder\">group-d1</container>\
         <type>VirtualMachine</type><type>Folder</type><recursive>true</recursive></CreateContainerView>"
    ));
    assert!(requests[1].contains(
        "<version></version><options><maxWaitSeconds>60</maxWaitSeconds></options></WaitForUpdatesEx>"
    ));
}
