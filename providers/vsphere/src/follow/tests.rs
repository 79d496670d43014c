//! Tests of following a vCenter, with scripted answers.

use cloudprovider::InstanceChange;
use tokio::sync::{broadcast, watch};
use uuid::Uuid;

use super::*;
use crate::{
    http::{Endpoint, HttpClient},
    session::{Credentials, Session},
    testing::scripted::{Scripted, collector, node, reference, text},
    vcenter::Settings,
    vim::{Transport, Value},
};

pub(super) struct Rig {
    pub(super) vcenter: Arc<VCenter>,
    pub(super) transport: Arc<Scripted>,
    pub(super) connection: Connection,
    pub(super) changes: broadcast::Receiver<InstanceChange>,
}

pub(super) fn rig(datacenters: &[&str]) -> Rig {
    let endpoint = Endpoint {
        host: "vc.example".to_owned(),
        port: 443,
        ca_files: Vec::new(),
        thumbprint: None,
        insecure: true,
    };
    let http = HttpClient::new(&endpoint).expect("a client");
    let credentials = || Ok(Credentials::new("ccm", "hunter2").into());
    let settings = Settings {
        name: "vc".to_owned(),
        endpoint,
        datacenters: datacenters.iter().map(|&word| word.to_owned()).collect(),
        access: Arc::new(credentials),
        tag_refresh: None,
    };
    let (sender, changes) = broadcast::channel(64);
    let vcenter = Arc::new(VCenter::new(settings, sender, watch::channel(0).0));
    let transport = Arc::new(Scripted::default());
    let dynamic: Arc<dyn Transport> = Arc::<Scripted>::clone(&transport);
    let session = Session::new(
        Arc::clone(&dynamic),
        Arc::clone(&vcenter.settings.access),
        Arc::clone(&vcenter.accounts),
        false,
    );
    let connection =
        Connection { http, transport: dynamic, session: Arc::new(session), tags: Arc::default() };
    Rig { vcenter, transport, connection, changes }
}

impl Rig {
    pub(super) fn follower(&self) -> Follower<'_> {
        Follower::new(&self.vcenter)
    }

    pub(super) fn answers(&self, method: &'static str, answers: impl IntoIterator<Item = Element>) {
        for answer in answers {
            self.transport.answer(method, Ok(answer));
        }
    }

    pub(super) fn machines(&self) -> Vec<String> {
        let state = self.vcenter.state();
        let mut names: Vec<_> = state.inventory.machines().map(|vm| vm.moref.id().to_owned()).collect();
        names.sort();
        names
    }

    /// The values of one argument in all calls of a method.
    pub(super) fn sent(&self, method: &str, argument: &str) -> Vec<String> {
        let calls = self.transport.requests(method);
        let arguments = calls.iter().flat_map(|call| &call.arguments);
        arguments
            .filter(|(name, _)| *name == argument)
            .map(|(_, value)| match value {
                Value::Text(text) => text.clone(),
                other => format!("{other:?}"),
            })
            .collect()
    }
}

fn object(kind: &str, id: &str, name: &str, parent: Option<(&str, &str)>) -> (MoRef, Vec<(String, Element)>) {
    let mut properties = vec![("name".to_owned(), text("val", name))];
    properties
        .extend(parent.map(|(kind, id)| ("parent".to_owned(), reference("val", &MoRef::new(kind, id)))));
    (MoRef::new(kind, id), properties)
}

pub(super) fn vm(id: &str) -> (MoRef, Vec<(String, Element)>) {
    object("VirtualMachine", id, id, None)
}

/// A machine with an instance UUID.
pub(super) fn machine(id: &str, instance_uuid: Uuid) -> (MoRef, Vec<(String, Element)>) {
    let (object, mut properties) = vm(id);
    properties.push(("config.instanceUuid".to_owned(), text("val", &instance_uuid.to_string())));
    (object, properties)
}

/// A `RetrieveResult`.
fn listing(objects: &[(MoRef, Vec<(String, Element)>)], token: Option<&str>) -> Element {
    let mut children: Vec<_> = token.into_iter().map(|token| text("token", token)).collect();
    children.extend(objects.iter().map(|(object, properties)| {
        let mut content = vec![reference("obj", object)];
        content.extend(
            properties.iter().map(|(name, value)| node("propSet", vec![text("name", name), value.clone()])),
        );
        node("objects", content)
    }));
    node("returnval", children)
}

/// An `UpdateSet`.
pub(super) fn updates(
    version: &str,
    kind: &str,
    objects: &[(MoRef, Vec<(String, Element)>)],
    truncated: bool,
) -> Element {
    let objects = objects.iter().map(|(object, properties)| {
        let mut update = vec![text("kind", kind), reference("obj", object)];
        update.extend(properties.iter().map(|(name, value)| {
            node("changeSet", vec![text("name", name), text("op", "assign"), value.clone()])
        }));
        node("objectSet", update)
    });
    let mut children = vec![text("version", version), node("filterSet", objects.collect())];
    children.extend(truncated.then(|| text("truncated", "true")));
    node("returnval", children)
}

#[tokio::test(start_paused = true)]
async fn pages_are_read_to_their_end_and_what_they_lack_is_gone() {
    let mut rig = rig(&[]);
    // the state after an earlier connection
    rig.vcenter.update(|state| {
        let before = updates("9", "enter", &[vm("vm-3")], false);
        state.inventory.apply(&read_updates("WaitForUpdatesEx", &before).expect("updates").objects)
    });
    rig.answers(
        "WaitForUpdatesEx",
        [
            updates("1", "enter", &[vm("vm-1")], true),
            updates("2", "enter", &[vm("vm-2")], false),
            // the wait timed out
            Element::default(),
            updates("3", "enter", &[vm("vm-4")], false),
        ],
    );
    rig.transport.fault("WaitForUpdatesEx", "InvalidCollectorVersion");
    let mut follower = rig.follower();
    let error = follower.follow(&rig.connection).await;
    assert!(error.is_fault("InvalidCollectorVersion"), "{error}");
    assert_eq!(rig.sent("WaitForUpdatesEx", "version"), ["", "1", "2", "2", "3"]);
    assert_eq!(rig.machines(), ["vm-1", "vm-2", "vm-4"], "vm-3 vanished meanwhile");
    assert!(rig.vcenter.state().is_live);
    assert_eq!(follower.note(error), Duration::ZERO, "the connection is good");
    assert!(!rig.vcenter.state().is_live);
    assert!(rig.changes.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_lost_is_built_anew_without_a_storm() {
    let rig = rig(&[]);
    let mut follower = rig.follower();
    let faults = ["InvalidCollectorVersion", "ManagedObjectNotFound", "NotAuthenticated"];
    let mut pauses = Vec::new();
    for fault in faults {
        rig.answers("WaitForUpdatesEx", [updates("1", "enter", &[vm("vm-1")], false)]);
        rig.transport.fault("WaitForUpdatesEx", fault);
        let error = follower.follow(&rig.connection).await;
        assert!(error.is_fault(fault), "{error}");
        assert_eq!(rig.machines(), ["vm-1"], "what is known is kept");
        pauses.push(follower.note(error));
    }
    assert!(pauses[0].is_zero() && pauses[1] < pauses[2] && !pauses[1].is_zero(), "{pauses:?}");
    // everything that was created in a session ends with it, so the logouts leave nothing on the server
    assert_eq!((rig.transport.count("Login"), rig.transport.count("Logout")), (3, 2));
    assert_eq!(rig.transport.count("CreateFilter"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_in_the_midst_of_a_listing_is_no_empty_vcenter() {
    let rig = rig(&[]);
    rig.answers("WaitForUpdatesEx", [updates("1", "enter", &[vm("vm-1")], false)]);
    rig.transport.fault("WaitForUpdatesEx", "NotAuthenticated");
    let mut follower = rig.follower();
    let error = follower.follow(&rig.connection).await;
    follower.note(error);
    // the answer of a real vCenter: status 200, and all properties missing
    let mut fault = node("fault", Vec::new());
    fault.kind = Some("NotAuthenticated".into());
    let missing = node("missingSet", vec![text("path", "name"), node("fault", vec![fault])]);
    let kind = text("kind", "enter");
    let object = vec![kind, reference("obj", &MoRef::new("VirtualMachine", "vm-1")), missing];
    let set = node("filterSet", vec![node("objectSet", object)]);
    rig.answers("WaitForUpdatesEx", [node("returnval", vec![text("version", "1"), set])]);
    let error = follower.follow(&rig.connection).await;
    assert!(error.is_session_lost(), "{error}");
    assert_eq!(rig.machines(), ["vm-1"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_listing_that_broke_off_brought_is_told_after_the_next_one() {
    let rig = rig(&[]);
    let mut changes = rig.changes.resubscribe();
    let mut follower = rig.follower();
    let renamed = object("VirtualMachine", "vm-1", "renamed", None);
    let all = [renamed.clone(), vm("vm-2")];
    let listings: [&[Element]; 3] = [
        &[updates("1", "enter", &[vm("vm-1"), vm("vm-2")], false)],
        &[updates("1", "enter", &[renamed], true)],
        &[updates("1", "enter", &all, false)],
    ];
    let mut told = Vec::new();
    for pages in listings {
        rig.answers("WaitForUpdatesEx", pages.iter().cloned());
        rig.transport.fault("WaitForUpdatesEx", "NotAuthenticated");
        let error = follower.follow(&rig.connection).await;
        follower.note(error);
        told.push(std::iter::from_fn(|| changes.try_recv().ok()).count());
    }
    assert!(told[0] > 0 && told[1] == 0 && told[2] > 0, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn each_datacenter_that_is_listed_has_a_view() {
    let rig = rig(&["DC0", "DC7"]);
    let root = Some(("Folder", "group-d1"));
    let places = |name| {
        vec![
            object("Folder", "group-d1", "Datacenters", None),
            object("Datacenter", "datacenter-2", name, root),
            object("Datacenter", "datacenter-3", "DC1", root),
        ]
    };
    let below = [vm("vm-1"), object("Folder", "group-v4", "vm", Some(("Datacenter", "datacenter-2")))];
    let (first, rest) = (places("DC0"), Some("T1"));
    rig.answers("RetrievePropertiesEx", [listing(&first[..1], rest)]);
    rig.answers("ContinueRetrievePropertiesEx", [listing(&first[1..], None)]);
    let all: Vec<_> = places("DC0").into_iter().chain(below).collect();
    rig.answers("WaitForUpdatesEx", [updates("1", "enter", &all, false)]);
    rig.answers("WaitForUpdatesEx", [updates("2", "modify", &[vm("vm-1")], false)]);
    let renamed = object("Datacenter", "datacenter-3", "DC7", root);
    rig.answers("WaitForUpdatesEx", [updates("3", "modify", &[renamed], false)]);
    let mut follower = rig.follower();
    let error = follower.follow(&rig.connection).await;
    assert_eq!(error, CallError::Outdated { method: "WaitForUpdatesEx" });
    assert_eq!(follower.note(error), Duration::ZERO);
    assert_eq!(
        rig.sent("CreateContainerView", "container"),
        ["Folder:group-d1", "Datacenter:datacenter-2"].map(|name| {
            let (kind, id) = name.split_once(':').expect("two parts");
            format!("{:?}", MoRef::new(kind, id))
        })
    );
    let filter = rig.sent("CreateFilter", "spec").remove(0);
    // two views, and the object that tells the version
    assert_eq!(filter.matches("objectSet").count(), 3, "{filter}");
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_a_moment_is_tried_again_and_a_lost_answer_of_a_wait_is_not() {
    let rig = rig(&[]);
    rig.transport.fault("CreateContainerView", "HostCommunication");
    rig.transport.fault("CreateFilter", "TaskInProgress");
    let lost = CallError::Unreachable { method: "WaitForUpdatesEx", reason: "reset".into() };
    rig.transport.answer("WaitForUpdatesEx", Err(lost.clone()));
    assert_eq!(rig.follower().follow(&rig.connection).await, lost);
    let counts = ["CreateContainerView", "CreateFilter", "WaitForUpdatesEx"];
    assert_eq!(counts.map(|method| rig.transport.count(method)), [2, 2, 1]);
    for _ in 0..10 {
        rig.transport.fault("CreateFilter", "HostCommunication");
    }
    assert!(rig.follower().follow(&rig.connection).await.is_fault("HostCommunication"));
    assert_eq!(rig.transport.count("CreateFilter"), 2 + 4, "not for ever");
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_by_a_property_collector_of_its_own() {
    let asked = |rig: &Rig| {
        let of = |method| rig.transport.requests(method).into_iter().map(|call| call.this);
        of("CreateFilter").chain(of("WaitForUpdatesEx")).collect::<BTreeSet<_>>()
    };
    let sessions_own = MoRef::new("PropertyCollector", "propertyCollector");
    for refusal in [None, Some("NoPermission"), Some("MethodNotFound"), Some("NotSupported")] {
        let rig = rig(&[]);
        let mut follower = rig.follower();
        if let Some(refusal) = refusal {
            rig.transport.fault("CreatePropertyCollector", refusal);
        }
        for _ in 0..2 {
            rig.transport.fault("WaitForUpdatesEx", "InvalidCollectorVersion");
            let error = follower.follow(&rig.connection).await;
            assert!(error.is_fault("InvalidCollectorVersion"), "{error}");
        }
        let (expected, tries) = match refusal {
            None => (collector(), 2),
            Some(_) => (sessions_own.clone(), 1),
        };
        assert_eq!(asked(&rig), BTreeSet::from([expected]), "{refusal:?}");
        assert_eq!(rig.transport.count("CreatePropertyCollector"), tries, "{refusal:?}");
    }
    // the end of a session does not mean that property collectors cannot be created
    let ended = rig(&[]);
    let mut follower = ended.follower();
    ended.transport.fault("CreatePropertyCollector", "NotAuthenticated");
    assert!(follower.follow(&ended.connection).await.is_session_lost());
    ended.transport.fault("WaitForUpdatesEx", "InvalidCollectorVersion");
    follower.follow(&ended.connection).await;
    assert_eq!(asked(&ended), BTreeSet::from([collector()]));
    // after a temporary failure, the next session tries to create one again
    let failing = rig(&[]);
    let mut follower = failing.follower();
    for _ in 0..TRIES {
        failing.transport.fault("CreatePropertyCollector", "HostCommunication");
    }
    for expected in [BTreeSet::from([sessions_own.clone()]), BTreeSet::from([sessions_own, collector()])] {
        failing.transport.fault("WaitForUpdatesEx", "InvalidCollectorVersion");
        follower.follow(&failing.connection).await;
        assert_eq!(asked(&failing), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn each_further_session_waits_longer_for_a_slow_server() {
    let rig = rig(&[]);
    let mut follower = rig.follower();
    let mut deadlines = Vec::new();
    for _ in 0..3 {
        rig.answers("WaitForUpdatesEx", [updates("1", "enter", &[vm("vm-1")], false)]);
        let after = follower.patience.deadline(LONGEST_WAIT);
        deadlines.push(after);
        let late = CallError::Timeout { method: "WaitForUpdatesEx", after };
        rig.transport.answer("WaitForUpdatesEx", Err(late));
        follower.follow(&rig.connection).await;
    }
    assert!(deadlines.is_sorted_by(|one, next| one < next), "{deadlines:?}");
    rig.transport.fault("WaitForUpdatesEx", "NotAuthenticated");
    follower.follow(&rig.connection).await;
    assert_eq!(follower.patience.deadline(LONGEST_WAIT), deadlines[0]);
}

#[tokio::test(start_paused = true)]
async fn an_old_vcenter_that_cannot_read_single_keys_is_asked_without_them() {
    let rig = rig(&[]);
    rig.transport.fault("CreateFilter", "InvalidProperty");
    rig.transport.fault("WaitForUpdatesEx", "RequestCanceled");
    let error = rig.follower().follow(&rig.connection).await;
    assert!(error.is_watch_lost(), "{error}");
    let specs = rig.sent("CreateFilter", "spec");
    assert!(specs[0].contains("guestinfo.metadata") && !specs[1].contains("guestinfo.metadata"), "{specs:?}");
}

#[tokio::test(start_paused = true)]
async fn pages_that_are_too_large_are_halved() {
    let rig = rig(&[]);
    let mut follower = rig.follower();
    for _ in 0..20 {
        let too_large = CallError::TooLarge { method: "WaitForUpdatesEx", limit_mib: 64 };
        rig.transport.answer("WaitForUpdatesEx", Err(too_large.clone()));
        let error = follower.follow(&rig.connection).await;
        assert_eq!(error, too_large);
        follower.note(error);
    }
    let options = rig.sent("WaitForUpdatesEx", "options");
    assert!(options[0].contains(r#"("maxObjectUpdates", "500")"#), "{}", options[0]);
    assert!(options[1].contains(r#"("maxObjectUpdates", "250")"#), "{}", options[1]);
    assert!(options[19].contains(r#"("maxObjectUpdates", "10")"#), "{}", options[19]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_tried_once() {
    let rig = rig(&[]);
    let mut follower = rig.follower();
    rig.transport.fault("Login", "InvalidLogin");
    for _ in 0..5 {
        let error = follower.follow(&rig.connection).await;
        assert!(error.is_refused() && !error.to_string().contains("hunter2"), "{error}");
        assert_eq!(follower.note(error), CREDENTIALS_PAUSE);
    }
    assert_eq!(rig.transport.calls(), ["Login"]);
}

#[tokio::test(start_paused = true)]
async fn a_good_password_that_vcenter_refuses_for_a_while_is_taken_in_the_end() {
    let rig = rig(&[]);
    let mut follower = rig.follower();
    for _ in 0..2 {
        rig.transport.fault("Login", "InvalidLogin");
    }
    let began = Instant::now();
    loop {
        let outcome = tokio::time::timeout(Duration::from_secs(1), follower.follow(&rig.connection)).await;
        let Ok(error) = outcome else { break };
        assert!(error.is_refused(), "{error}");
        let pause = follower.note(error);
        assert_eq!(pause, CREDENTIALS_PAUSE);
        sleep(pause).await;
    }
    assert_eq!(rig.transport.count("Login"), 3);
    let took = began.elapsed().as_secs() / 60;
    assert_eq!(took, 30, "ten minutes, and twenty");
    assert_eq!(follower.failures, 0, "what was not tried is no failure of the vCenter");
}

#[tokio::test(start_paused = true)]
async fn an_idle_vcenter_is_asked_about_once_a_minute() {
    let rig = rig(&[]);
    rig.answers("WaitForUpdatesEx", [updates("1", "enter", &[vm("vm-1")], false)]);
    let mut follower = rig.follower();
    let ten_minutes = Duration::from_secs(600);
    assert!(tokio::time::timeout(ten_minutes, follower.follow(&rig.connection)).await.is_err(), "for ever");
    let calls = rig.transport.calls();
    assert_eq!(calls[..4], ["Login", "CreatePropertyCollector", "CreateContainerView", "CreateFilter"]);
    assert!(calls[4..].iter().all(|method| *method == "WaitForUpdatesEx"), "{calls:?}");
    assert!((13..=16).contains(&calls[4..].len()), "{calls:?}");
}

#[test]
fn a_vcenter_that_is_away_is_tried_more_often_than_one_that_fails() {
    let rig = rig(&[]);
    let longest = |error: &CallError| {
        let mut follower = rig.follower();
        (0..20).map(|_| follower.note(error.clone())).max().expect("some")
    };
    let away = CallError::Unreachable { method: "Login", reason: "refused".into() };
    let broken = CallError::Status { method: "Login", status: 503 };
    assert!(longest(&away) <= BACKOFF_WHILE_AWAY.most);
    assert!(longest(&broken) > BACKOFF_WHILE_AWAY.most && longest(&broken) <= BACKOFF.most);
}
