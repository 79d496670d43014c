//! A server with a certificate of a private authority.

use crate::{
    private_authority::private_authority,
    support::{node, start},
    testing::FakeCattle,
};

#[tokio::test]
async fn a_private_authority_is_trusted_if_the_configuration_says_so() {
    let (acceptor, authority) = private_authority();
    let server = FakeCattle::start_with_tls(acceptor).await;
    server.add_host("node-1", "10.0.0.1");
    let running = start(&server, "").await;
    let told = running.until(&node("node-1"), "unknown unavailable").await;
    assert!(told.to_lowercase().contains("certificate"), "{told}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, &authority).expect("written");
    for trusting in [
        format!("caFile: {}\n", file.display()),
        format!("caCert: |\n  {}\n", authority.trim().replace('\n', "\n  ")),
        "insecureSkipVerify: true\n".to_owned(),
    ] {
        let running = start(&server, &trusting).await;
        running.until(&node("node-1"), "present").await;
        // Events take the same way.
        let id = server.add_host("node-2", "10.0.0.2");
        running.until(&node("node-2"), "present").await;
        server.remove_host(&id);
    }
}
