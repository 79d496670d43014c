use super::*;
use crate::{
    session::{Access, CALL_DEADLINE, Credentials, Session},
    session_manager::tests::Manager,
    testing::{
        rest::{RestServer, credentials},
        scripted::Scripted,
    },
    vim::{Call, Transport},
};

fn client(server: &RestServer, accounts: &Arc<Accounts>) -> TagClient {
    TagClient::new(server.http.clone(), credentials(), Arc::clone(accounts), "8.0.3.0", wanted())
}

fn wanted() -> Vec<String> {
    vec!["k8s-zone".to_owned(), "k8s-region".to_owned()]
}

fn root() -> [MoRef; 1] {
    [MoRef::new("Folder", "group-d1")]
}

/// Advances the clock without waiting. The clock is not paused while a connection is used, since timeouts
/// would expire.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn rest_that_refuses_what_soap_accepts_is_tried_again_and_stops_nobody() {
    let server = RestServer::start(|asked, before| match asked {
        "POST /rest/com/vmware/cis/session" if before < 2 => (401, String::new()),
        "POST /rest/com/vmware/cis/session" => (200, r#"{"value":"s"}"#.to_owned()),
        _ => (200, r#"{"value":[]}"#.to_owned()),
    })
    .await;
    let accounts: Arc<Accounts> = Arc::default();
    let vcenter = Arc::new(Scripted::default());
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
    let session = Session::new(transport, credentials(), Arc::clone(&accounts), false);
    session.open(0).await.expect("SOAP is logged in");
    let tags = client(&server, &accounts);
    for _ in 0..5 {
        assert!(tags.attached(&root()).await.expect_err("refused").is_refused());
    }
    assert_eq!(server.count("POST"), 1, "not again at once");
    vcenter.fault("CurrentTime", "NotAuthenticated");
    let call = Call {
        this: MoRef::new("ServiceInstance", "ServiceInstance"),
        method: "CurrentTime",
        arguments: Vec::new(),
        since: None,
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
    let server = RestServer::start(|_, _| (401, String::new())).await;
    let accounts: Arc<Accounts> = Arc::default();
    let tags = client(&server, &accounts);
    assert!(tags.attached(&root()).await.expect_err("refused").is_refused());
    let vcenter = Arc::new(Scripted::default());
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
    let session = Session::new(transport, credentials(), accounts, false);
    assert!(session.open(0).await.expect_err("not tried").is_refused());
    assert!(vcenter.calls().is_empty());
}

#[tokio::test]
async fn a_session_that_vcenter_does_not_take_is_not_left_behind() {
    let server = RestServer::start(|asked, _| match asked {
        "POST /rest/com/vmware/cis/session" => (200, r#"{"value":"s"}"#.to_owned()),
        "DELETE /rest/com/vmware/cis/session" => (200, String::new()),
        _ => (401, String::new()),
    })
    .await;
    let tags = client(&server, &Arc::default());
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

/// A vCenter with 100 categories, of which two are wanted, and one tag in each. Each of `machines` has all
/// tags.
async fn many_tags(machines: usize) -> (RestServer, Vec<MoRef>) {
    const CATEGORIES: usize = 100;
    let machine = |number: usize| json!({"id": format!("vm-{number}"), "type": "VirtualMachine"});
    let server = RestServer::start(move |asked, _| {
        let (method, path) = asked.split_once(' ').expect("two words");
        let path = path.strip_prefix("/rest/com/vmware/cis/").expect("the older dialect");
        let number = || path.rsplit('-').next().and_then(|n| n.parse::<usize>().ok()).expect("a number");
        let value = match (method, path) {
            ("POST", "session") => json!("s"),
            ("GET", "tagging/category") => {
                json!((0..CATEGORIES).map(|n| format!("c-{n}")).collect::<Vec<_>>())
            }
            ("GET", _) if path.starts_with("tagging/category/id:c-") => {
                let name = match number() {
                    17 => "k8s-zone".to_owned(),
                    42 => "k8s-region".to_owned(),
                    other => format!("other-{other}"),
                };
                json!({ "name": name })
            }
            ("GET", _) if path.starts_with("tagging/tag/id:t-") => {
                json!({"name": format!("tag-{}", number()), "category_id": format!("c-{}", number())})
            }
            ("POST", "tagging/tag/id:c-17?~action=list-tags-for-category") => json!(["t-17"]),
            ("POST", "tagging/tag/id:c-42?~action=list-tags-for-category") => json!(["t-42"]),
            ("POST", "tagging/tag-association?~action=list-attached-objects-on-tags") => {
                json!([17, 42].map(|tag| json!({
                    "tag_id": format!("t-{tag}"),
                    // one machine more than asked about: it is in a datacenter that is not configured
                    "object_ids": (0..=machines).map(machine).collect::<Vec<_>>(),
                })))
            }
            ("POST", "tagging/tag-association?~action=list-attached-tags-on-objects") => {
                let tags: Vec<_> = (0..CATEGORIES).map(|n| format!("t-{n}")).collect();
                let with_tags = |n| json!({"object_id": machine(n), "tag_ids": tags});
                json!((0..machines).map(with_tags).collect::<Vec<_>>())
            }
            _ => return (500, String::new()),
        };
        (200, json!({ "value": value }).to_string())
    })
    .await;
    let objects = (0..machines).map(|number| MoRef::new("VirtualMachine", &format!("vm-{number}")));
    (server, objects.collect())
}

#[tokio::test]
async fn neither_many_machines_nor_many_other_tags_cost_calls() {
    for (machines, first_question) in [(2001, 0), (3, 1)] {
        let (server, objects) = many_tags(machines).await;
        let client = client(&server, &Arc::default());
        for round in 1..=3 {
            let tags = client.attached(&objects).await.expect("tags");
            assert_eq!(tags.len(), machines);
            let of_last = tags[&objects[machines - 1]].iter().map(|tag| (&*tag.category, &*tag.name));
            let of_last: Vec<_> = of_last.collect();
            assert_eq!(of_last, [("k8s-region", "tag-42"), ("k8s-zone", "tag-17")]);
            let path = "/rest/com/vmware/cis/tagging";
            assert_eq!(server.count(&format!("GET {path}/tag/")), 2, "those of others have no names");
            assert!(server.count(&format!("GET {path}/category/")) <= 44);
            let association = format!("POST {path}/tag-association?~action=");
            assert_eq!(server.count(&format!("{association}list-attached-tags")), first_question);
            assert_eq!(server.count(&format!("{association}list-attached-objects")), round);
        }
        let calls = server.requests.lock().len();
        let found = 1 + 1 + 44 + 2;
        assert_eq!(calls, first_question + found + 3 * 3, "three calls for each round");
    }
}

/// A client beside a cloned SOAP session, and that session.
async fn beside_a_cloned_session(
    server: &RestServer,
    manager: &Manager,
    for_rest: Option<Credentials>,
) -> (TagClient, Arc<Scripted>, Session) {
    let shared = Access::Shared { manager: manager.client(), for_rest };
    let access: AccessSource = Arc::new(move || Ok(shared.clone().into()));
    let vcenter = Arc::new(Scripted::default());
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
    let session = Session::new(Arc::clone(&transport), Arc::clone(&access), Arc::default(), false);
    session.open(0).await.expect("cloned");
    let tags = TagClient::new(server.http.clone(), access, Arc::default(), "8.0.3.0", wanted());
    (tags.beside(transport), vcenter, session)
}

#[tokio::test]
async fn a_cloned_session_is_borrowed_and_not_ended() {
    for path in ["/rest/com/vmware/cis/tagging", "/api/cis/tagging"] {
        let server = RestServer::start(move |asked, _| match asked {
            asked if !asked.contains(path) => (404, String::new()),
            _ if path.starts_with("/rest") => (200, r#"{"value":[]}"#.to_owned()),
            _ => (200, "[]".to_owned()),
        })
        .await;
        let manager = Manager::start().await;
        let (tags, _, session) = beside_a_cloned_session(&server, &manager, None).await;
        for _ in 0..3 {
            tags.attached(&root()).await.expect("tags");
        }
        assert_eq!(server.count(&format!("GET {path}/category")), 1);
        // a new session that REST does not know of
        session.open(session.generation()).await.expect("cloned again");
        tags.attached(&root()).await.expect("tags");
        assert_eq!(server.count(&format!("GET {path}/category")), 2);
        tags.close().await;
        let ended_or_opened = server.count("DELETE") + server.count("POST /rest/com/vmware/cis/session");
        assert_eq!(ended_or_opened + server.count("POST /api/session"), 0);
    }
}

#[tokio::test]
async fn a_cloned_session_that_rest_does_not_take_needs_a_user() {
    let server = RestServer::start(|asked, _| match asked {
        "POST /rest/com/vmware/cis/session" => (200, r#"{"value":"own"}"#.to_owned()),
        "GET /rest/com/vmware/cis/tagging/category" => (401, String::new()),
        _ => (200, r#"{"value":[]}"#.to_owned()),
    })
    .await;
    let manager = Manager::start().await;
    let (tags, ..) = beside_a_cloned_session(&server, &manager, None).await;
    let error = tags.attached(&root()).await.expect_err("401");
    assert!(matches!(error, CallError::NotShared { .. }) && !error.is_refused(), "{error:?}");
    let words = error.to_string();
    assert!(words.contains("8.0 U3") && words.contains("need a user name and a password"), "{words}");
    assert!(!words.contains("soap-1") && !words.contains("hunter"), "{words}");
    tags.attached(&root()).await.expect_err("still");
    assert_eq!(
        server.count("GET /rest/com/vmware/cis/tagging/category"),
        1,
        "that session is not tried again"
    );

    let user = Credentials::new("ccm", "hunter2");
    let (tags, ..) = beside_a_cloned_session(&server, &manager, Some(user)).await;
    tags.attached(&root()).await.expect("logged in");
    tags.attached(&root()).await.expect("logged in");
    tags.close().await;
    let session = "/rest/com/vmware/cis/session";
    let counts = ["POST", "DELETE"].map(|verb| server.count(&format!("{verb} {session}")));
    assert_eq!(counts, [1, 1], "its own is ended");
}

#[tokio::test]
async fn a_borrowed_session_that_ends_is_not_used_again() {
    let server = RestServer::start(|asked, before| match asked {
        "GET /rest/com/vmware/cis/tagging/category" => (200, r#"{"value":[]}"#.to_owned()),
        _ if before == 1 => (401, String::new()),
        _ => (200, r#"{"value":[]}"#.to_owned()),
    })
    .await;
    let manager = Manager::start().await;
    let (tags, _, session) = beside_a_cloned_session(&server, &manager, None).await;
    tags.attached(&root()).await.expect("tags");
    let error = tags.attached(&root()).await.expect_err("until another one is cloned");
    assert!(matches!(error, CallError::Status { status: 401, .. }), "{error:?}");
    session.open(session.generation()).await.expect("cloned again");
    tags.attached(&root()).await.expect("tags");
    assert_eq!(server.count("DELETE"), 0);
}
