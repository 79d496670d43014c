use std::sync::atomic::AtomicUsize;

mod expiries;

use super::*;
use crate::{session_manager::tests::Manager, testing::scripted::Scripted};

fn credentials(password: &str) -> Credentials {
    Credentials::new("user", password)
}

fn session(transport: &Arc<Scripted>, password: &'static str) -> Session {
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(transport);
    Session::new(transport, Arc::new(move || Ok(credentials(password).into())), Arc::default(), false)
}

fn some_call() -> Call {
    Call {
        this: MoRef::new("ServiceInstance", "ServiceInstance"),
        method: "CurrentTime",
        arguments: Vec::new(),
        since: None,
    }
}

#[tokio::test]
async fn many_who_see_the_session_end_log_in_once() {
    let vcenter = Arc::new(Scripted::default());
    let session = session(&vcenter, "p");
    session.open(0).await.expect("open");
    for _ in 0..10 {
        vcenter.fault("CurrentTime", "NotAuthenticated");
    }
    let call = some_call();
    let outcomes = futures::future::join_all((0..10).map(|_| session.call(&call, CALL_DEADLINE))).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(vcenter.count("Login"), 2, "one at the start, one again");
    assert_eq!(vcenter.count("RetrieveServiceContent"), 0);
    assert_eq!(vcenter.count("Logout"), 1, "the one that seemed to be gone is not left behind");
}

#[tokio::test]
async fn the_session_of_a_login_that_was_given_up_is_ended() {
    let vcenter = Arc::new(Scripted::default());
    let session = session(&vcenter, "p");
    {
        let mut open = std::pin::pin!(session.open(0));
        while vcenter.count("Login") == 0 {
            assert!(futures::poll!(&mut open).is_pending());
            tokio::task::yield_now().await;
        }
    }
    session.close().await;
    assert_eq!(vcenter.calls(), ["Login", "Logout"]);
    // Another login ends it too.
    {
        let mut open = std::pin::pin!(session.open(0));
        while vcenter.count("Login") == 1 {
            assert!(futures::poll!(&mut open).is_pending());
            tokio::task::yield_now().await;
        }
    }
    session.open(0).await.expect("open");
    assert_eq!(vcenter.calls()[2..], ["Login", "Logout", "Login"]);
}

#[tokio::test]
async fn refused_credentials_are_tried_once() {
    let vcenter = Arc::new(Scripted::default());
    let tried = Arc::new(AtomicUsize::new(0));
    let current = Arc::new(Mutex::new("wrong"));
    let source = {
        let (current, tried) = (Arc::clone(&current), Arc::clone(&tried));
        move || {
            tried.fetch_add(1, Ordering::SeqCst);
            Ok(credentials(*current.lock()).into())
        }
    };
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
    let session = Session::new(transport, Arc::new(source), Arc::default(), false);
    vcenter.fault("Login", "InvalidLogin");
    assert!(session.open(0).await.expect_err("wrong").is_refused());
    for _ in 0..20 {
        let error = session.open(0).await.expect_err("still wrong");
        assert_eq!(error, CallError::Refused { user: "user".into() });
        assert!(!error.to_string().contains("wrong"));
    }
    assert_eq!(vcenter.count("Login"), 1);
    *current.lock() = "right";
    session.open(0).await.expect("the Secret has changed");
    assert_eq!(vcenter.count("Login"), 2);
}

#[tokio::test]
async fn a_second_refusal_of_the_session_is_told() {
    let vcenter = Arc::new(Scripted::default());
    let session = session(&vcenter, "p");
    session.open(0).await.expect("open");
    vcenter.fault("CurrentTime", "NotAuthenticated");
    vcenter.fault("CurrentTime", "NotAuthenticated");
    let error = session.call(&some_call(), CALL_DEADLINE).await.expect_err("no loop");
    assert!(error.is_session_lost());
    assert_eq!(vcenter.count("Login"), 2);
    session.close().await;
    session.close().await;
    assert_eq!(vcenter.calls().last(), Some(&"Logout"));
    assert_eq!(vcenter.count("Logout"), 2);
}

#[tokio::test]
async fn the_next_credentials_serve_where_the_first_ones_are_refused() {
    let vcenter = Arc::new(Scripted::default());
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
    let choices = |trouble: Option<&str>| {
        let way = |user: &str, origin: &str| {
            let access = Access::Password(Credentials::new(user, "hunter2"));
            (access, Box::from(origin))
        };
        let accesses = vec![way("a", "the configuration"), way("b", "Secret n/s")];
        Choices { accesses, trouble: trouble.map(str::to_owned) }
    };
    let session =
        Session::new(Arc::clone(&transport), Arc::new(move || Ok(choices(None))), Arc::default(), false);
    vcenter.fault("Login", "InvalidLogin");
    session.open(0).await.expect("the second ones are good");
    assert_eq!(vcenter.count("Login"), 2);
    session.open(session.generation()).await.expect("again");
    assert_eq!(vcenter.count("Login"), 3, "what was refused lately is not tried");

    let session =
        Session::new(transport, Arc::new(move || Ok(choices(Some("it is late")))), Arc::default(), false);
    vcenter.fault("Login", "InvalidLogin");
    vcenter.fault("Login", "InvalidLogin");
    let error = session.open(0).await.expect_err("both are refused");
    assert!(error.is_refused());
    assert_eq!(
        error.to_string(),
        "vCenter refused the credentials of user \"a\" from the configuration; vCenter refused the credentials of user \
         \"b\" from Secret n/s; it is late; they are tried again when they change, and else rarely, so that no account is \
         locked"
    );
}

#[tokio::test]
async fn trouble_that_is_no_refusal_tries_nothing_else() {
    let vcenter = Arc::new(Scripted::default());
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
    let twice = || {
        let way = || (Access::Password(credentials("p")), Box::from("x"));
        Ok(Choices { accesses: vec![way(), way()], trouble: None })
    };
    let session = Session::new(transport, Arc::new(twice), Arc::default(), false);
    vcenter.fault("Login", "HostNotConnected");
    assert!(session.open(0).await.expect_err("trouble").is_fault("HostNotConnected"));
    assert_eq!(vcenter.count("Login"), 1);
}

#[tokio::test]
async fn without_credentials_nothing_is_called() {
    let vcenter = Arc::new(Scripted::default());
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
    let none = || Err("the Secret is not there".to_owned());
    let session = Session::new(transport, Arc::new(none), Arc::default(), false);
    let error = session.open(0).await.expect_err("nothing");
    assert!(error.is_refused() && error.to_string() == "the Secret is not there");
    assert!(vcenter.calls().is_empty());
}

#[tokio::test]
async fn a_vcenter_whose_parts_have_other_names_is_asked_for_them() {
    let vcenter = Arc::new(Scripted::default());
    let session = session(&vcenter, "p");
    vcenter.fault("Login", "ManagedObjectNotFound");
    let content = session.open(0).await.expect("open");
    assert_eq!(content.session_manager, MoRef::new("SessionManager", "sessionManager"));
    assert_eq!(vcenter.calls(), ["Login", "RetrieveServiceContent", "Login"]);
}

#[tokio::test]
async fn a_vcenter_that_is_followed_is_asked_who_it_is() {
    let vcenter = Arc::new(Scripted::default());
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
    let session = Session::new(transport, Arc::new(|| Ok(credentials("p").into())), Arc::default(), true);
    session.open(0).await.expect("open");
    assert_eq!(vcenter.calls(), ["RetrieveServiceContent", "Login"]);
    // Another one may have its name by the next login.
    session.open(session.generation()).await.expect("open");
    assert_eq!(vcenter.count("RetrieveServiceContent"), 2, "{:?}", vcenter.calls());
}

#[tokio::test(start_paused = true)]
async fn entries_with_the_same_server_try_a_wrong_password_once_together() {
    let vcenter = Arc::new(Scripted::default());
    for _ in 0..6 {
        vcenter.fault("Login", "InvalidLogin");
    }
    let accounts: Arc<Accounts> = Arc::default();
    let sessions: Vec<_> = (0..6)
        .map(|_| {
            let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(&vcenter);
            Session::new(
                transport,
                Arc::new(|| Ok(credentials("wrong").into())),
                Arc::clone(&accounts),
                false,
            )
        })
        .collect();
    let opened = futures::future::join_all(sessions.iter().map(|session| session.open(0))).await;
    assert!(opened.iter().all(|outcome| outcome.as_ref().is_err_and(CallError::is_refused)), "{opened:?}");
    assert_eq!(vcenter.count("Login"), 1);
    tokio::time::advance(Duration::from_secs(600)).await;
    futures::future::join_all(sessions.iter().map(|session| session.open(0))).await;
    assert_eq!(vcenter.count("Login"), 2, "once more, by one of them");
}

fn sharing(vcenter: &Arc<Scripted>, manager: &Manager) -> Session {
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(vcenter);
    let client = manager.client();
    let access = move || Ok(Access::Shared { manager: client.clone(), for_rest: None }.into());
    Session::new(transport, Arc::new(access), Arc::default(), false)
}

/// The tickets that were sent to vCenter.
fn tickets(vcenter: &Scripted) -> Vec<String> {
    let arguments = vcenter.requests("CloneSession").into_iter().flat_map(|call| call.arguments);
    arguments
        .map(|(name, value)| match value {
            Value::Secret(ticket) if name == "cloneTicket" => ticket,
            other => panic!("{name} {other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn a_shared_session_is_cloned_with_a_new_ticket_each_time() {
    let (vcenter, manager) = (Arc::new(Scripted::default()), Manager::start().await);
    let session = sharing(&vcenter, &manager);
    session.open(0).await.expect("open");
    for _ in 0..10 {
        vcenter.fault("CurrentTime", "NotAuthenticated");
    }
    let call = some_call();
    let outcomes = futures::future::join_all((0..10).map(|_| session.call(&call, CALL_DEADLINE))).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(tickets(&vcenter), ["ticket-1", "ticket-2"], "one at the start, one again");
    session.close().await;
    assert_eq!((vcenter.count("Login"), vcenter.count("Logout"), manager.count()), (0, 2, 2));
}

#[tokio::test]
async fn without_a_ticket_vcenter_is_not_called_and_the_session_is_kept() {
    let (vcenter, manager) = (Arc::new(Scripted::default()), Manager::start().await);
    let session = sharing(&vcenter, &manager);
    manager.answers(Some((401, "")));
    let error = session.open(0).await.expect_err("401");
    assert!(error.to_string().contains("HTTP status 401") && !error.is_refused(), "{error}");
    assert!(vcenter.calls().is_empty());
    manager.answers(None);
    session.open(0).await.expect("open");
    manager.answers(Some((503, "")));
    session.open(1).await.expect_err("503");
    assert_eq!(vcenter.calls(), ["CloneSession"], "not logged out: it may be alive");
}

#[tokio::test]
async fn no_ticket_is_drawn_for_a_vcenter_that_is_not_there() {
    let (vcenter, manager) = (Arc::new(Scripted::default()), Manager::start().await);
    let session = sharing(&vcenter, &manager);
    for method in ["CloneSession", "RetrieveServiceContent", "RetrieveServiceContent"] {
        vcenter.answer(method, Err(CallError::Unreachable { method, reason: "refused".into() }));
        assert!(matches!(session.open(0).await, Err(CallError::Unreachable { .. })));
    }
    assert_eq!(manager.count(), 1);
}

#[tokio::test]
async fn a_ticket_that_vcenter_refuses_is_the_session_managers_fault() {
    let (vcenter, manager) = (Arc::new(Scripted::default()), Manager::start().await);
    let session = sharing(&vcenter, &manager);
    vcenter.fault("CloneSession", "InvalidLogin");
    let error = session.open(0).await.expect_err("refused");
    assert!(matches!(&error, CallError::NotShared { is_denied: true, .. }), "{error:?}");
    assert!(error.to_string().contains("vCenter refused its ticket"), "{error}");
    vcenter.fault("CloneSession", "ManagedObjectNotFound");
    session.open(0).await.expect("its parts have other names");
    assert_eq!(tickets(&vcenter), ["ticket-1", "ticket-2", "ticket-2"]);
}

/// A session that is cloned, or otherwise opened by the user `u`.
fn sharing_beside_a_user(vcenter: &Arc<Scripted>, manager: SessionManager) -> Session {
    let transport: Arc<dyn Transport> = Arc::<Scripted>::clone(vcenter);
    let access = move || {
        let shared = Access::Shared { manager: manager.clone(), for_rest: None };
        let user = Access::Password(Credentials::new("u", "hunter2"));
        let accesses = vec![(shared, "Secret n/s".into()), (user, "the configuration".into())];
        Ok(Choices { accesses, trouble: None })
    };
    Session::new(transport, Arc::new(access), Arc::default(), false)
}

#[tokio::test]
async fn a_user_serves_where_the_session_manager_or_its_ticket_is_refused() {
    let (vcenter, manager) = (Arc::new(Scripted::default()), Manager::start().await);
    let session = sharing_beside_a_user(&vcenter, manager.client());
    manager.answers(Some((401, "")));
    session.open(0).await.expect("the token is refused, the user is not");
    assert_eq!(vcenter.calls(), ["Login"]);
    manager.answers(None);
    vcenter.fault("CloneSession", "InvalidLogin");
    session.open(session.generation()).await.expect("the ticket is refused, the user is not");
    assert_eq!((vcenter.count("CloneSession"), vcenter.count("Login")), (1, 2));
    // An unreachable session manager may come back, and has not refused anything.
    manager.answers(Some((503, "")));
    session.open(session.generation()).await.expect_err("503");
    assert_eq!(vcenter.count("Login"), 2);
}

#[tokio::test]
async fn where_all_are_refused_the_kind_is_that_which_says_most() {
    let (vcenter, manager) = (Arc::new(Scripted::default()), Manager::start().await);
    manager.answers(Some((401, "")));
    vcenter.fault("Login", "InvalidLogin");
    let error = sharing_beside_a_user(&vcenter, manager.client()).open(0).await.expect_err("both");
    assert!(!error.is_refused(), "the session manager is asked less and less often: {error:?}");
    for part in ["session manager 127.0.0.1", "HTTP status 401", "user \"u\" from the configuration"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(cloudprovider::Error::from(error).kind(), cloudprovider::ErrorKind::Unauthenticated);

    // without a token of its own it would get the pod's token over http
    let client = SessionManager::new(manager.url.as_str().into(), None, Vec::new());
    vcenter.fault("Login", "InvalidLogin");
    let error = sharing_beside_a_user(&vcenter, client).open(0).await.expect_err("both");
    assert!(error.is_refused() && error.to_string().contains("its URL is http"), "{error}");
    assert!(error.to_string().contains("user \"u\" from the configuration"), "{error}");
    assert_eq!(cloudprovider::Error::from(error).kind(), cloudprovider::ErrorKind::InvalidConfiguration);
}
