//! A server with a certificate of a private authority.

use crate::{
    private_authority::private_authority,
    rancher::FakeRancher,
    support::{node, start},
};

/// While an authority is changed, the file holds both. The daemon makes another provider when the file changes.
#[tokio::test]
async fn a_private_authority_and_its_successor_are_trusted() {
    let (old, old_authority) = private_authority();
    let (new, new_authority) = private_authority();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    let more = format!("caFile: {}\n", file.display());
    for (acceptor, trusted, expected) in [
        (old.clone(), old_authority.clone(), "present"),
        (old, format!("{old_authority}{new_authority}"), "present"),
        (new.clone(), format!("{old_authority}{new_authority}"), "present"),
        (new, old_authority, "unknown unavailable"),
    ] {
        let rancher = FakeRancher::start_with(Some(acceptor), None).await;
        rancher.add_cluster("c-abcde", "imported", "fleet-default");
        rancher.add_node("c-abcde", "node-1");
        std::fs::write(&file, trusted).expect("written");
        let running = start(&rancher.config("c-abcde", &more)).await;
        let answer = running.until(&node("node-1"), expected).await;
        assert!(expected == "present" || answer.to_lowercase().contains("certificate"), "{answer}");
    }
}
