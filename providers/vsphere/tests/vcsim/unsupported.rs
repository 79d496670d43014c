//! An unsupported kind of login is reported, and no request is sent.

use test_env::VcsimOptions;

use crate::support::*;

const CERTIFICATE: &str =
    "-----BEGIN CERTIFICATE-----\nhunter2hunter2hunter2hunter2\n-----END CERTIFICATE-----\n";

#[tokio::test]
async fn a_certificate_is_told_apart_from_faults() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (key, value) in [("username", CERTIFICATE), ("password", "hunter2")] {
        std::fs::write(folder.path().join(format!("127.0.0.1.{key}")), value).expect("written");
    }
    let text = format!(
        "global:\n  secretsDirectory: {}\nvcenter:\n  vc0:\n    server: 127.0.0.1\n    port: {}\n    caFile: {}\n",
        folder.path().display(),
        vcsim.port(),
        vcsim.ca_file().display()
    );
    let running = Running::start(&text).await;
    let part = "a certificate in place of a user is not supported";
    let says_so = |error: &cloudprovider::Error| error.to_string().contains(part);
    let answer = running.eventually(&node(0), part, |answer| unknown(answer).is_some_and(says_so)).await;
    let words = format!("{answer:?}");
    assert!(words.contains("give a user and a password") && !words.contains("hunter2"), "{words}");
    running.stop().await;
    let counts = vcsim.counts().expect("counts");
    assert!(counts.keys().all(|method| !method.contains("Login")), "{counts:?}");
}
