//! Sessions: that there is only one, how it is opened, and what calls it costs.

use std::time::{Duration, Instant};

use serde_json::json;
use test_env::VcsimOptions;

use crate::support::*;

/// Sessions end one after another, each during a wait for changes.
#[tokio::test]
async fn no_session_is_left_behind() {
    const EXPIRIES: usize = 5;
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let running = Running::start(&config(&[&vcsim])).await;
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    for number in 0..EXPIRIES {
        vcsim.expire_sessions().expect("expired");
        // the waiting poll returns with this change, and the next poll finds the session gone
        for last in [100 + number, 200 + number] {
            let ip = format!("10.20.7.{last}");
            let nics = json!({"nics": [{"network": "VM Network", "ips": [format!("{ip}/16")]}]});
            vcsim.set_guest(&machine(0), nics).expect("guest");
            let has_it = |answer: &cloudprovider::InstanceLookup| {
                present(answer).is_some_and(|one| one.metadata.addresses.iter().any(|a| a.address == ip))
            };
            running.eventually(&node(0), "another address", has_it).await;
        }
    }
    let (alive, ever, _) = vcsim.sessions().expect("sessions");
    assert!(alive <= 1 && ever > 1, "{alive} of {ever} sessions are alive");
    running.stop().await;
    assert_eq!(vcsim.sessions().expect("sessions").0, 0, "logged out");
}

/// vCenter has made the session, and the provider is stopped before it has the answer.
#[tokio::test]
async fn a_stop_during_a_login_leaves_no_session_behind() {
    for login in ["soap:Login", "rest:POST /session"] {
        let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
        let late = json!([{"methods": [login], "delayMillis": 1000, "after": true}]);
        vcsim.set_rules(&late).expect("rules");
        let running = Running::start(&with_zones(&config(&[&vcsim]))).await;
        let is_made = async {
            loop {
                let (_, soap_ever, rest) = vcsim.sessions().expect("sessions");
                if if login.starts_with("soap") { soap_ever > 0 } else { rest > 0 } {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, is_made).await.expect("a session");
        running.stop().await;
        let (soap, _, rest) = vcsim.sessions().expect("sessions");
        assert_eq!((soap, rest), (0, 0), "logged out after {login}");
    }
}

#[tokio::test]
async fn who_is_trusted() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let ca = format!("    caFile: {}\n", vcsim.ca_file().display());
    let wrong = "    thumbprint: AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD\n";
    for (line, is_trusted) in [
        (ca.clone(), true),
        (String::new(), false),
        (wrong.to_owned(), false),
        (format!("    thumbprint: {}\n", vcsim.thumbprint("sha1").expect("sha1")), true),
        (format!("    thumbprint: {}\n", vcsim.thumbprint("sha256").expect("sha256")), true),
        ("    insecureFlag: true\n".to_owned(), true),
    ] {
        let running = Running::start(&config(&[&vcsim]).replace(&ca, &line)).await;
        let answer = running
            .eventually(&node(0), "an answer", |answer| {
                present(answer).is_some()
                    || unknown(answer).is_some_and(|e| e.to_string().contains("certificate"))
            })
            .await;
        assert_eq!(present(&answer).is_some(), is_trusted, "{line}: {answer:?}");
        running.stop().await;
    }
}

#[tokio::test]
async fn refused_credentials_are_tried_once() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let write = |password: &str| {
        std::fs::write(folder.path().join("127.0.0.1.username"), vcsim.user()).expect("written");
        std::fs::write(folder.path().join("127.0.0.1.password"), password).expect("written");
    };
    write("hunter2\n");
    let text = format!(
        "global:\n  secretsDirectory: {}\nvcenter:\n  vc0:\n    server: 127.0.0.1\n    port: {}\n    caFile: {}\n",
        folder.path().display(),
        vcsim.port(),
        vcsim.ca_file().display()
    );
    let running = Running::start(&text).await;
    let refused = |error: &cloudprovider::Error| error.to_string().contains("refused the credentials");
    let answer = running.eventually(&node(0), "refused", |answer| unknown(answer).is_some_and(refused)).await;
    assert!(!format!("{answer:?}").contains("hunter2"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let counts = vcsim.counts().expect("counts");
    assert_eq!(counts["soap:Login"], 1, "{counts:?}");
    write(&format!("{}\n", vcsim.password()));
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    running.stop().await;
}

/// Five refusals in three minutes lock an account, whichever client sent the requests.
#[tokio::test]
async fn entries_with_one_server_try_a_wrong_password_once() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let text = config(&[&vcsim; 6]).replace(&format!("{:?}", vcsim.password()), "hunter2");
    let running = Running::start(&with_zones(&text)).await;
    let refused = |error: &cloudprovider::Error| error.to_string().contains("refused the credentials");
    running.eventually(&node(0), "refused", |answer| unknown(answer).is_some_and(refused)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let counts = vcsim.counts().expect("counts");
    assert_eq!(counts["soap:Login"], 1, "{counts:?}");
    running.stop().await;
}

#[tokio::test]
async fn a_large_inventory_takes_few_calls() {
    const MACHINES: usize = 1_200;
    let options = VcsimOptions { machines: 1_200, ..VcsimOptions::default() };
    let Some(vcsim) = simulator(&options) else { return };
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
        line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number")
    };
    let before = resident();
    let began = Instant::now();
    let running = Running::start(&config(&[&vcsim])).await;
    running.eventually(&node(MACHINES - 1), "present", |answer| present(answer).is_some()).await;
    println!("the first look-up is answered after {:?}", began.elapsed());
    let counts = vcsim.counts().expect("counts");
    // The first update sets are the listing, with at most 100 objects each in vcsim. Nothing is read twice.
    assert!(!counts.contains_key("soap:RetrievePropertiesEx"), "{counts:?}");
    assert!(counts["soap:WaitForUpdatesEx"] <= 15, "{counts:?}");
    println!(
        "{MACHINES} machines: {} MiB before, {} MiB after, all pages read after {:?}",
        before / 1024,
        resident() / 1024,
        began.elapsed()
    );
    running.stop().await;
}

#[tokio::test]
async fn a_session_manager_is_not_trusted_because_the_vcenter_is() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let url = vcsim.session_manager_url();
    for (key, value) in [("url", url.as_str()), ("token", test_env::Vcsim::SESSION_MANAGER_TOKEN)] {
        let file = folder.path().join(format!("127.0.0.1.vc-session-manager-{key}"));
        std::fs::write(file, value).expect("written");
    }
    let config = |trust: &str| {
        format!(
            "global:\n  secretsDirectory: {}\nvcenter:\n  vc0:\n    server: 127.0.0.1\n    port: {}\n    {trust}\n",
            folder.path().display(),
            vcsim.port(),
        )
    };
    let part = format!("session manager 127.0.0.1:{}: ", vcsim.port());
    let thumbprint = format!("thumbprint: {}", vcsim.thumbprint("sha256").expect("a thumbprint"));
    for trust in ["insecureFlag: true", thumbprint.as_str()] {
        let running = Running::start(&config(trust)).await;
        let says_so = |error: &cloudprovider::Error| {
            let words = error.to_string();
            words.contains(&part) && words.contains("certificate")
        };
        running.eventually(&node(0), &part, |answer| unknown(answer).is_some_and(says_so)).await;
        running.stop().await;
    }
    assert_eq!(vcsim.counts().expect("counts").len(), 0, "nobody was shown the token");
    let running = Running::start(&config(&format!("caFile: {}", vcsim.ca_file().display()))).await;
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    running.stop().await;
    assert_eq!(vcsim.sessions().expect("sessions").0, 0, "logged out");
}
