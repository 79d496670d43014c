//! The simulator ends a session a thousand times: each is replaced by one new session, and one is left at the
//! end.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::sync::Arc;

use serde_json::json;
use test_env::{StartError, Vcsim, VcsimOptions};

use crate::{
    http::{Endpoint, HttpClient},
    moref::MoRef,
    session::{Access, AccessSource, CALL_DEADLINE, Credentials, Session},
    session_manager::SessionManager,
    soap::SoapTransport,
    tags::TagClient,
    vim::Call,
};

const EXPIRIES: u64 = 1000;

/// Starts a simulator; `None` if this machine cannot run one.
fn simulator() -> Option<Vcsim> {
    match Vcsim::start(&VcsimOptions::default()) {
        Ok(vcsim) => Some(vcsim),
        Err(StartError::Unavailable(reason)) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn client(vcsim: &Vcsim) -> (HttpClient, AccessSource) {
    let endpoint = Endpoint {
        host: "127.0.0.1".to_owned(),
        port: vcsim.port(),
        ca_files: vec![vcsim.ca_file()],
        thumbprint: None,
        insecure: false,
    };
    let (user, password) = (vcsim.user().to_owned(), vcsim.password().to_owned());
    let credentials = move || Ok(Credentials::new(user.clone(), password.as_str()).into());
    (HttpClient::new(&endpoint).expect("a client"), Arc::new(credentials))
}

/// Makes every second call find its session ended. The repeated call finds the new session.
fn expire_at_every_second(vcsim: &Vcsim, method: &str) {
    let rules = json!([{"methods": [method], "expire": true, "every": 2}]);
    vcsim.set_rules(&rules).expect("rules");
}

#[tokio::test]
async fn a_thousand_sessions_that_end_leave_one() {
    let Some(vcsim) = simulator() else { return };
    let (http, credentials) = client(&vcsim);
    let session = Session::new(Arc::new(SoapTransport::new(http)), credentials, Arc::default(), false);
    session.open(0).await.expect("opened");
    expire_at_every_second(&vcsim, "soap:CurrentTime");
    let call = Call {
        this: MoRef::new("ServiceInstance", "ServiceInstance"),
        method: "CurrentTime",
        arguments: Vec::new(),
        since: None,
    };
    for _ in 0..EXPIRIES {
        session.call(&call, CALL_DEADLINE).await.expect("an answer");
    }
    assert_eq!(vcsim.counts().expect("counts")["soap:Login"], EXPIRIES + 1);
    assert_eq!(vcsim.sessions().expect("sessions"), (1, EXPIRIES + 1, 0));
    session.close().await;
    assert_eq!(vcsim.sessions().expect("sessions").0, 0, "logged out");
}

#[tokio::test]
async fn a_thousand_sessions_of_rest_that_end_leave_one() {
    let Some(vcsim) = simulator() else { return };
    let (http, credentials) = client(&vcsim);
    let tags = TagClient::new(http, credentials, Arc::default(), "8.0.3.0", Vec::new());
    let object = [MoRef::new("Folder", "group-d1")];
    tags.attached(&object).await.expect("tags");
    expire_at_every_second(&vcsim, "rest:POST /tagging/tag-association?list-attached-tags-on-objects");
    for _ in 0..EXPIRIES {
        tags.attached(&object).await.expect("tags");
    }
    assert_eq!(vcsim.counts().expect("counts")["rest:POST /session"], EXPIRIES + 1);
    assert_eq!(vcsim.sessions().expect("sessions").2, 1);
    tags.close().await;
    assert_eq!(vcsim.sessions().expect("sessions").2, 0, "logged out");
}

#[tokio::test]
async fn a_hundred_clones_of_a_shared_session_that_end_leave_one() {
    const EXPIRIES: u64 = 100;
    let Some(vcsim) = simulator() else { return };
    let (http, _) = client(&vcsim);
    let (url, token) = (vcsim.session_manager_url(), Vcsim::SESSION_MANAGER_TOKEN);
    let manager = SessionManager::new(url.into(), Some(token.into()), vec![vcsim.ca_file()]);
    let access = move || Ok(Access::Shared { manager: manager.clone(), for_rest: None }.into());
    let session = Session::new(Arc::new(SoapTransport::new(http)), Arc::new(access), Arc::default(), false);
    session.open(0).await.expect("opened");
    expire_at_every_second(&vcsim, "soap:CurrentTime");
    let call = Call {
        this: MoRef::new("ServiceInstance", "ServiceInstance"),
        method: "CurrentTime",
        arguments: Vec::new(),
        since: None,
    };
    for _ in 0..EXPIRIES {
        session.call(&call, CALL_DEADLINE).await.expect("an answer");
    }
    let counts = vcsim.counts().expect("counts");
    let asked = ["rest:GET /session-manager", "soap:CloneSession"].map(|method| counts[method]);
    assert_eq!(asked, [EXPIRIES + 1; 2]);
    assert_eq!(vcsim.sessions().expect("sessions"), (1, EXPIRIES + 1, 0));
    session.close().await;
    assert_eq!(vcsim.sessions().expect("sessions").0, 0, "logged out");
    assert!(vcsim.is_shared_session_alive().expect("an answer"), "what was cloned is not ended");
}
