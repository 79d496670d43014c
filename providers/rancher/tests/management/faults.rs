//! Servers that fail: nobody is absent.

use std::time::Duration;

use cloudprovider::{FactoryInput, InstanceLookup};
use cloudprovider_rancher::{Config, Credentials, Environment};
use secrecy::ExposeSecret as _;
use tokio::time::sleep;

use crate::{
    rancher::{FakeRancher, Fault, TOKEN},
    support::{in_a_word, node, node_with_id, start},
};

async fn with_nodes() -> FakeRancher {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "imported", "fleet-default");
    for n in 1..=25 {
        rancher.add_node("c-abcde", &format!("node-{n}"));
    }
    rancher
}

#[tokio::test]
async fn every_wrong_answer_is_unknown() {
    let rancher = with_nodes().await;
    let running = start(&rancher.config("c-abcde", "")).await;
    running.until(&node("node-1"), "present").await;
    let known = node_with_id("node-1", "rancher://c-abcde/machine-00000");
    let gone = node_with_id("node-99", "rancher://c-abcde/machine-fffff");
    for (path, fault, expected) in [
        ("/", Fault::unauthorized(), "unknown unauthenticated"),
        ("/", Fault::error(403, "PermissionDenied"), "unknown permission_denied"),
        ("/v3/nodes", Fault::error(403, "PermissionDenied"), "unknown permission_denied"),
        ("/v3", Fault::error(404, "NotFound"), "unknown unavailable"),
        ("/v3", Fault::error(500, "ServerError"), "unknown unavailable"),
        ("/apis", Fault::error(503, "ClusterUnavailable"), "unknown unavailable"),
        ("/", Fault::login_page(), "unknown unavailable"),
        ("/apis", Fault::login_page(), "unknown unavailable"),
        ("/apis", Fault::no_such_page(), "unknown unavailable"),
        ("/apis/management.cattle.io", Fault::refused_by_proxy(), "unknown unavailable"),
        ("/", Fault::redirect(), "unknown unavailable"),
    ] {
        rancher.set_fault(Some((path, fault.clone())));
        for node in [&known, &gone, &node("node-1")] {
            let answer = running.until(node, expected).await;
            assert!(!answer.contains("battery") && !answer.contains("<!doctype"), "{answer}");
        }
        rancher.set_fault(None);
        running.until(&known, "present").await;
    }
}

#[tokio::test]
async fn wrong_and_expired_tokens_are_unknown() {
    let rancher = with_nodes().await;
    let running = start(&rancher.config("c-abcde", "")).await;
    running.until(&node("node-1"), "present").await;
    rancher.server().expired.insert(TOKEN);
    let answer = running.until(&node("node-1"), "unknown unauthenticated").await;
    assert!(answer.contains("must authenticate") && !answer.contains("battery"), "{answer}");
    let wrong = start(&rancher.config("c-abcde", "").replace("battery", "staple")).await;
    wrong.until(&node("node-1"), "unknown unauthenticated").await;
}

/// The names of the token work as an API key, as Rancher's own pages show them.
#[tokio::test]
async fn a_token_works_as_an_api_key() {
    let rancher = with_nodes().await;
    let (name, secret) = TOKEN.split_once(':').expect("a name and a secret");
    let config =
        format!("url: {}/v3\naccessKey: {name}\nsecretKey: {secret}\nclusterName: imported\n", rancher.url());
    start(&config).await.until(&node("node-1"), "present").await;
}

#[tokio::test]
async fn a_page_that_fails_spoils_the_listing() {
    for (page, fault) in [
        (2, Fault::error(500, "ServerError")),
        (3, Fault::error(403, "PermissionDenied")),
        (3, Fault::login_page()),
    ] {
        let rancher = with_nodes().await;
        rancher.server().bad_page = Some((page, fault));
        let running = start(&rancher.config("c-abcde", "pageSize: 10\n")).await;
        // It is on the first page, which could be read.
        let answer = running.until(&node("node-1"), "unknown").await;
        let page = format!("page {page}");
        assert!(answer.contains(&page), "{answer}");
        rancher.server().bad_page = None;
        running.until(&node("node-25"), "present").await;
    }
}

/// The first node of the next page is gone before the page is read: the server begins anew, without a word.
#[tokio::test]
async fn a_node_that_leaves_between_two_pages_hides_no_other_one() {
    let rancher = with_nodes().await;
    rancher.server().leaves = Some(("/v3/nodes", 2, "c-abcde:machine-0000a".to_owned()));
    let running = start(&rancher.config("c-abcde", "pageSize: 10\npollInterval: 1h\n")).await;
    running.until(&node("node-1"), "present").await;
    let calls = rancher.server().calls["nodes"];
    let all: Vec<_> = (1..=25).filter(|n| *n != 11).map(|n| node(&format!("node-{n}"))).collect();
    for answer in running.look_up(&all).await {
        assert_eq!(in_a_word(&answer), "present running");
    }
    assert_eq!((calls, rancher.server().calls["nodes"]), (4, 4), "the first page twice");
}

#[tokio::test]
async fn a_server_that_asks_for_patience_gets_it() {
    let rancher = with_nodes().await;
    let fault = Fault::error(429, "TooManyRequests").with_header("retry-after", "7");
    rancher.set_fault(Some(("/", fault)));
    let running = start(&rancher.config("c-abcde", "")).await;
    running.until(&node("node-1"), "unknown rate_limited").await;
    let InstanceLookup::Unknown(error) = running.look_up(&[node("node-1")]).await.remove(0) else {
        panic!("unknown");
    };
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    let calls = rancher.calls();
    for _ in 0..20 {
        running.look_up(&[node("node-1"), node_with_id("n", "rancher://c-abcde/machine-fffff")]).await;
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(rancher.calls(), calls, "it is left alone");
}

#[tokio::test]
async fn while_the_server_is_away_nobody_is_absent() {
    let rancher = with_nodes().await;
    let running = start(&rancher.config("c-abcde", "")).await;
    running.until(&node("node-1"), "present").await;
    rancher.go_away();
    running.until(&node("node-1"), "unknown unavailable").await;
    for _ in 0..10 {
        for node in [node("node-1"), node("node-99"), node_with_id("n", "rancher://c-abcde/machine-fffff")] {
            assert!(running.answer(&node).await.starts_with("unknown"));
        }
        sleep(Duration::from_millis(50)).await;
    }
    rancher.come_back();
    running.until(&node("node-1"), "present").await;
}

/// The daemon makes another provider when a file changes. Here is what that provider then has.
#[tokio::test]
async fn a_changed_token_file_and_url_make_another_provider() {
    let (old, new) = (with_nodes().await, with_nodes().await);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    let read = |url: &str| {
        let text = format!("url: {url}\ntokenFile: token\nclusterID: c-abcde\n");
        let input = FactoryInput::new(text).with_path(folder.path().join("config.yaml"));
        Config::read(&input, &Environment::default()).expect("a good configuration")
    };
    std::fs::write(&file, "token-abcde:wrong\n").expect("written");
    let Credentials::Token(token) = read(&old.url()).server.credentials else { panic!("a token") };
    assert_eq!(token.expose_secret(), "token-abcde:wrong");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("written");
    let config = read(&new.url());
    let Credentials::Token(token) = &config.server.credentials else { panic!("a token") };
    assert_eq!(token.expose_secret(), TOKEN);
    let text = format!("url: {}\ntokenFile: {}\nclusterID: c-abcde\n", new.url(), file.display());
    start(&text).await.until(&node("node-1"), "present").await;
    assert_eq!(old.calls(), 0);
}
