//! Configurations that do not say which Rancher they are for.

use crate::{
    rancher::{FakeRancher, Fault, TOKEN},
    support::{node, start},
};

#[tokio::test]
async fn a_configuration_for_rancher_1_6_is_told_what_is_missing() {
    let rancher = FakeRancher::start().await;
    let (name, secret) = TOKEN.split_once(':').expect("a name and a secret");
    let config = format!("url: {}\naccessKey: {name}\nsecretKey: {secret}\n", rancher.url());
    let running = start(&config).await;
    let answer = running.until(&node("node-1"), "unknown invalid_configuration").await;
    assert!(answer.contains("the server is Rancher 2.x") && answer.contains("clusterID"), "{answer}");
    // Neither of the two.
    rancher.set_fault(Some(("/v3", Fault::login_page())));
    let answer = running.until(&node("node-1"), "unknown unavailable").await;
    assert!(answer.contains("login page"), "{answer}");
    // A configuration that says the version is not second-guessed.
    let said = start(&format!("{config}apiVersion: v2-beta\n")).await;
    rancher.set_fault(None);
    said.until(&node("node-1"), "unknown unavailable").await;
}
