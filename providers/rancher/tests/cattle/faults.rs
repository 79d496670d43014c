//! Faults of the server. None of them may make a Node look as if its host were gone.

use std::time::Duration;

use cloudprovider::{ErrorKind, FactoryInput, InstanceLookup};
use cloudprovider_rancher::{Config, Environment, RancherProvider};

use crate::{
    support::{in_a_word, node, start, start_with},
    testing::{ACCESS_KEY, FakeCattle, Fault, SECRET_KEY},
};

#[tokio::test]
async fn no_fault_is_an_absence() {
    let server = FakeCattle::start().await;
    server.add_host("node-1", "10.0.0.1");
    let running = start(&server, "").await;
    running.until(&node("node-1"), "present").await;
    for (fault, expected) in [
        (Fault::error(401, "Unauthorized"), "unknown unauthenticated"),
        (Fault::error(403, "PermissionDenied"), "unknown permission_denied"),
        (Fault::error(404, "NotFound"), "unknown unavailable"),
        (Fault::error(500, "ServerError"), "unknown unavailable"),
        (Fault::error(503, "ClusterUnavailable"), "unknown unavailable"),
        (Fault::login_page(), "unknown unavailable"),
        (Fault::redirect(), "unknown unavailable"),
        (Fault { status: 200, headers: Vec::new(), body: "{}".to_owned() }, "unknown unavailable"),
        (
            Fault { status: 200, headers: Vec::new(), body: r#"{"type":"collection","data":[]}"#.to_owned() },
            "unknown unavailable",
        ),
        (
            Fault {
                status: 200,
                headers: Vec::new(),
                body:
                    r#"{"type":"collection","data":[{"id":"1h9","uuid":"u"}],"pagination":{"partial":true}}"#
                        .to_owned(),
            },
            "unknown unavailable",
        ),
    ] {
        server.set_fault(Some(fault));
        let told = running.until(&node("node-1"), expected).await;
        assert!(!told.contains(SECRET_KEY) && !told.contains("10.0.0.1:"), "{told}");
        assert!(running.answer(&node("node-2")).await.starts_with("unknown"), "a host that nobody ever saw");
        server.set_fault(None);
        running.until(&node("node-1"), "present").await;
    }
    assert_eq!(running.answer(&node("node-2")).await, "absent");
}

#[tokio::test]
async fn a_wrong_key_is_told_and_a_new_one_is_taken_from_its_file() {
    let server = FakeCattle::start().await;
    server.add_host("node-1", "10.0.0.1");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, "wrong\n").expect("written");
    let config =
        format!("url: {}\naccessKey: {ACCESS_KEY}\nsecretKeyFile: {}\n", server.url(), file.display());
    let running = start_with(&config).await;
    let told = running.until(&node("node-1"), "unknown unauthenticated").await;
    assert!(told.contains("the API key is refused (401)") && !told.contains("wrong\n"), "{told}");
    // The daemon sees the file change, and makes another provider, with whatever the configuration says then.
    std::fs::write(&file, format!("{SECRET_KEY}\n")).expect("written");
    let running = start_with(&config).await;
    running.until(&node("node-1"), "present").await;
    // The key expires, and the server has another one.
    server.cloud().key.1 = "another".to_owned();
    server.go_away();
    server.come_back();
    running.until(&node("node-1"), "unknown unauthenticated").await;
    std::fs::write(&file, "another").expect("written");
    start_with(&config).await.until(&node("node-1"), "present").await;
    // Another URL.
    let other = FakeCattle::start().await;
    other.add_host("node-7", "10.0.0.7");
    start_with(&other.config("")).await.until(&node("node-7"), "present").await;
}

#[tokio::test]
async fn too_many_requests_are_not_made_more() {
    let server = FakeCattle::start().await;
    server.add_host("node-1", "10.0.0.1");
    let running = start(&server, "").await;
    running.until(&node("node-1"), "present").await;
    server.set_fault(Some(Fault::error(429, "TooMany").with_header("retry-after", "3600")));
    running.until(&node("node-1"), "unknown rate_limited").await;
    let calls = server.calls();
    for _ in 0..20 {
        let answers = running.look_up(&[node("node-1"), node("node-2")]).await;
        let InstanceLookup::Unknown(error) = &answers[0] else { panic!("{answers:?}") };
        assert_eq!(
            (error.kind(), error.retry_after()),
            (ErrorKind::RateLimited, Some(Duration::from_secs(600)))
        );
        assert!(in_a_word(&answers[1]).starts_with("unknown rate_limited"));
    }
    assert_eq!(server.calls(), calls, "the server asked for a pause");
}

#[tokio::test]
async fn ten_thousand_hosts_and_a_page_that_fails() {
    let server = FakeCattle::start().await;
    for n in 0..10_000 {
        server.cloud().add_host(&format!("node-{n}"), &format!("10.{}.{}.1", n / 250, n % 250));
    }
    server.cloud().bad_page = Some((6, Fault::error(500, "ServerError")));
    let running = start(&server, "pageSize: 1000\n").await;
    // Nothing is known, not even of the hosts of the first pages.
    for name in ["node-1", "node-9999", "node-10000"] {
        let told = running.until(&node(name), "unknown unavailable").await;
        assert!(told.contains("list hosts (page 6)"), "{told}");
    }
    server.cloud().bad_page = None;
    for name in ["node-1", "node-9999"] {
        running.until(&node(name), "present").await;
    }
    assert_eq!(running.answer(&node("node-10000")).await, "absent");
    // What was there becomes unknown, and not absent, when a page fails later.
    server.cloud().bad_page = Some((3, Fault::login_page()));
    let calls = server.calls();
    assert!(running.answer(&node("node-10001")).await.starts_with("unknown unavailable"));
    // One listing up to the page that fails, and the one that may be under way.
    let calls = server.calls() - calls;
    assert!(calls <= 6, "{calls} calls for an answer");
    assert!(running.answer(&node("node-2500")).await.starts_with("unknown unavailable"));
}

#[tokio::test]
async fn a_listing_that_may_have_no_end_is_not_complete() {
    let server = FakeCattle::start().await;
    for n in 1..=3 {
        server.add_host(&format!("node-{n}"), &format!("10.0.0.{n}"));
    }
    let running = start(&server, "pageSize: 2\n").await;
    running.until(&node("node-1"), "present").await;
    let page = |rest: &str| Fault {
        status: 200,
        headers: Vec::new(),
        body: format!(
            r#"{{"type":"collection","data":[{{"id":"1h2","uuid":"u","hostname":"node-1"}}]{rest}}}"#
        ),
    };
    for (name, number, rest, expected) in [
        ("node-8", 2, "", "does not say whether it is the last one"),
        ("node-9", 1, r#","pagination":{"total":3}"#, "1 objects came, and the server has 3"),
    ] {
        server.cloud().bad_page = Some((number, page(rest)));
        let told = running.until(&node(name), "unknown unavailable").await;
        assert!(told.contains(expected), "{told}");
        server.cloud().bad_page = None;
        running.until(&node(name), "absent").await;
    }
}

#[tokio::test]
async fn an_odd_host_hides_no_other_and_no_absence_is_certain_beside_it() {
    let server = FakeCattle::start().await;
    server.add_host("node-1", "10.0.0.1");
    let odd = server.add_host("node-2", "10.0.0.2");
    server.cloud().change("host", &odd, serde_json::json!({"uuid": 5}));
    let running = start(&server, "").await;
    running.until(&node("node-1"), "present").await;
    for name in ["node-2", "node-3"] {
        let told = running.until(&node(name), "unknown unavailable").await;
        assert!(told.contains(&format!("host {odd} cannot be read")), "{told}");
    }
    running.until(&node("node-1"), "present").await;
    server.remove_host(&odd);
    running.until(&node("node-3"), "absent").await;
}

#[tokio::test]
async fn pages_of_another_server_are_not_read() {
    let server = FakeCattle::start().await;
    server.add_host("node-1", "10.0.0.1");
    let page =
        r#"{"type":"collection","data":[],"pagination":{"next":"http://192.0.2.1/v2-beta/hosts?marker=m1"}}"#;
    server.set_fault(Some(Fault { status: 200, headers: Vec::new(), body: page.to_owned() }));
    let running = start(&server, "").await;
    let told = running.until(&node("node-1"), "unknown unavailable").await;
    assert!(told.contains("a URL of another server"), "{told}");
}

#[tokio::test]
async fn a_server_that_nobody_answers_for_is_told() {
    let config = "url: http://127.0.0.1:1\naccessKey: a\nsecretKey: b\n";
    let config = Config::read(&FactoryInput::new(config), &Environment::default()).expect("good");
    let provider = RancherProvider::new(&config).expect("a provider");
    // Not started: nobody listed anything.
    let answers = cloudprovider::Instances::lookup(&provider, &[&node("node-1")]).await;
    assert!(in_a_word(&answers[0]).contains("have not been listed yet"));
}
