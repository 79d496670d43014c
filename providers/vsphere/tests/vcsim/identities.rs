//! Credentials that clusters name: sessions, wrong passwords, other passwords, and deletions without the cluster's object.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use cloudprovider::{
    Error, ErrorKind, SecretName, SecretSource, SecretStream, SecretVersion,
    machines::{
        AuxiliaryObject, ClusterReport, ClusterRequest, Deletion, MachineReport, Mark, Objects,
        ObserveRequest, Record,
    },
};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use test_env::{Vcsim, VcsimOptions};
use tokio::sync::watch;

use crate::{controller::*, support::*, take_over, zones};

/// User and password, unless there is no such Secret.
type Content = watch::Sender<Option<(String, String)>>;

/// Secrets of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets(Arc<Mutex<HashMap<String, Content>>>);

impl Secrets {
    fn of(&self, name: &str) -> Content {
        self.0.lock().entry(name.to_owned()).or_default().clone()
    }

    pub(crate) fn set(&self, name: &str, user: &str, password: &str) {
        self.of(name).send_replace(Some((user.to_owned(), password.to_owned())));
    }

    fn remove(&self, name: &str) {
        self.of(name).send_replace(None);
    }
}

impl SecretSource for Secrets {
    fn follow(&self, name: &SecretName) -> SecretStream {
        let mut versions = self.of(&name.to_string()).subscribe();
        versions.mark_changed();
        let next = |mut versions: watch::Receiver<Option<(String, String)>>| async move {
            versions.changed().await.ok()?;
            let version = match versions.borrow_and_update().clone() {
                Some((user, password)) => {
                    SecretVersion::Present([("username", user), ("password", password)].into_iter().collect())
                }
                None => SecretVersion::Absent,
            };
            Some((Ok(version), versions))
        };
        stream::unfold(versions, next).boxed()
    }
}

/// A cluster whose credentials are in the Secret of its name.
fn cluster(vcsim: &Vcsim, name: &str) -> ClusterRequest<Value> {
    let uid = format!("4d3c2b1a-0000-4000-8000-cccc{:08x}", name.as_bytes()[0]);
    let mark = Mark::cluster(uid, "default", name);
    let more = json!({
        "identityRef": {"kind": "Secret", "name": name}, "thumbprint": vcsim.thumbprint("sha1").expect("sha1"),
    });
    ClusterRequest::new(mark, merged(cluster_spec(vcsim), &more))
}

async fn step(running: &Running, request: &ClusterRequest<Value>) -> cloudprovider::Result<ClusterReport> {
    use cloudprovider::CloudProvider as _;
    let machines = running.provider.machines().expect("machines");
    let mut record = Record::default();
    let answer = machines.ensure_cluster(request, &mut record).await;
    let condition = record.conditions.iter().find(|one| one.condition_type == "VCenterAvailable");
    let condition = condition.expect("the condition");
    let expected = if answer.is_ok() { "Available" } else { "VCenterUnreachable" };
    assert_eq!(condition.reason, expected, "{condition:?}");
    answer
}

/// Steps until an answer is accepted.
async fn until(
    running: &Running,
    request: &ClusterRequest<Value>,
    what: &str,
    check: impl Fn(Option<&Error>) -> bool,
) -> Option<Error> {
    let began = Instant::now();
    loop {
        let error = step(running, request).await.err();
        if check(error.as_ref()) {
            return error;
        }
        assert!(began.elapsed() < LIMIT, "{what}: {error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn ready(running: &Running, request: &ClusterRequest<Value>) {
    until(running, request, "ready", |error| error.is_none()).await;
}

async fn fails(running: &Running, request: &ClusterRequest<Value>, kind: ErrorKind) -> String {
    let error =
        until(running, request, "fails", |error| error.is_some_and(|error| error.kind() == kind)).await;
    error.expect("an error").report()
}

async fn delete(running: &Running, request: &ClusterRequest<Value>) {
    use cloudprovider::CloudProvider as _;
    let machines = running.provider.machines().expect("machines");
    machines.delete_cluster(request, &mut Record::default()).await.expect("gone");
}

/// Waits until so many sessions are alive.
async fn sessions(vcsim: &Vcsim, expected: u64) {
    let began = Instant::now();
    loop {
        let (alive, ..) = vcsim.sessions().expect("sessions");
        if alive == expected {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{alive} sessions and not {expected}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_configuration_without_vcenters_is_enough_for_clusters_that_name_credentials() {
    use cloudprovider::CloudProvider as _;
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let secrets = Secrets::default();
    let running = Running::start_with(&without_vcenter(), secrets.clone()).await;
    assert!(running.provider.instances().is_none(), "no Node may be taken as gone");
    let named = cluster(&vcsim, "a");
    secrets.set("default/a", vcsim.user(), vcsim.password());
    ready(&running, &named).await;
    let mut unnamed = named.clone();
    unnamed.spec["identityRef"].take();
    let words = fails(&running, &unnamed, ErrorKind::InvalidInput).await;
    assert!(words.contains("the configuration of the controller has no vCenter"), "{words}");
    delete(&running, &named).await;
    running.stop().await;
    sessions(&vcsim, 0).await;
}

#[tokio::test]
async fn there_is_one_session_for_each_user_and_nobody_uses_that_of_another() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let secrets = Secrets::default();
    let running = Running::start_with(&config(&[&vcsim]), secrets.clone()).await;
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    // The simulator lets in one user at a time. Sessions stay.
    vcsim.set_credentials("tenant@vsphere.local", "hunter2").expect("another user");
    let [first, second, guesser] = ["a", "b", "c"].map(|name| cluster(&vcsim, name));
    // These trust the vCenter as the configuration does.
    let [intruder, insider] = ["d", "e"].map(|name| {
        let mut request = cluster(&vcsim, name);
        request.spec["thumbprint"] = "".into();
        request
    });
    let missing = fails(&running, &first, ErrorKind::NotFound).await;
    assert!(missing.contains("Secret default/a does not exist"), "{missing}");
    secrets.set("default/a", "tenant@vsphere.local", "hunter2");
    ready(&running, &first).await;
    sessions(&vcsim, 2).await;
    let ever = vcsim.sessions().expect("sessions").1;

    // The same user with the same password needs no login.
    secrets.set("default/b", "Tenant@vsphere.local", "hunter2");
    ready(&running, &second).await;
    assert_eq!(vcsim.sessions().expect("sessions").1, ever);

    // A well-known user is not enough, neither that of another cluster nor that of the daemon.
    for (request, user) in [(&guesser, "tenant@vsphere.local"), (&intruder, vcsim.user())] {
        secrets.set(&format!("default/{}", request.mark.name()), user, "a-guess");
        let refused = fails(&running, request, ErrorKind::Unauthenticated).await;
        assert!(refused.contains(user) && !refused.contains("a-guess"), "{refused}");
    }
    ready(&running, &first).await;

    // Whoever knows the password of the daemon's user shares its session.
    secrets.set("default/e", vcsim.user(), vcsim.password());
    ready(&running, &insider).await;
    assert_eq!(vcsim.sessions().expect("sessions").1, ever);
    sessions(&vcsim, 2).await;

    for request in [&first, &guesser, &intruder, &insider] {
        delete(&running, request).await;
    }
    ready(&running, &second).await;
    sessions(&vcsim, 2).await;
    delete(&running, &second).await;
    sessions(&vcsim, 1).await;
    running.stop().await;
    assert_eq!(vcsim.sessions().expect("sessions").0, 0, "logged out");
}

/// The object of a cluster is gone without a deletion, and so is the identity that another one names.
#[tokio::test]
async fn a_session_that_nothing_names_any_more_is_ended() {
    use cloudprovider::CloudProvider as _;
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let secrets = Secrets::default();
    let running = Running::start_with(&without_vcenter(), secrets.clone()).await;
    let machines = running.provider.machines().expect("machines");
    secrets.set("default/a", vcsim.user(), vcsim.password());
    secrets.set("kube-system/b", vcsim.user(), vcsim.password());
    let [by_secret, mut by_identity] = ["a", "b"].map(|name| cluster(&vcsim, name));
    ready(&running, &by_secret).await;
    machines.forget("4d3c2b1a-0000-4000-8000-cccc00000000");
    sessions(&vcsim, 1).await;
    machines.forget(&by_secret.mark.uid);
    sessions(&vcsim, 0).await;

    by_identity.spec["identityRef"]["kind"] = "VSphereClusterIdentity".into();
    let kind = take_over::kind_called(&running, "VSphereClusterIdentity");
    let spec = |allowed: Value| json!({"secretName": "b", "allowedNamespaces": allowed});
    let with = |spec: Value| Objects::of([(kind, AuxiliaryObject::new("b").with_spec(spec))]);
    for (objects, expected) in
        [(with(spec(Value::Null)), ErrorKind::PermissionDenied), (Objects::default(), ErrorKind::NotFound)]
    {
        by_identity = by_identity.with_objects(with(spec(json!({}))));
        ready(&running, &by_identity).await;
        sessions(&vcsim, 1).await;
        by_identity = by_identity.with_objects(objects);
        fails(&running, &by_identity, expected).await;
        sessions(&vcsim, 0).await;
    }
    running.stop().await;
}

/// vCenter locks an account after a few refused passwords, whoever has tried them.
#[tokio::test]
async fn guesses_for_a_user_share_a_few_tries_and_stop_nobody() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let secrets = Secrets::default();
    let running = Running::start_with(&config(&[&vcsim]), secrets.clone()).await;
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    let user = "tenant@vsphere.local";
    vcsim.set_credentials(user, "hunter2").expect("another user");
    let right = cluster(&vcsim, "a");
    secrets.set("default/a", user, "hunter2");
    ready(&running, &right).await;
    vcsim.reset_counts().expect("reset");
    for (namespace, expected) in [("red", 2), ("green", 3), ("blue", 3)] {
        let mut guesser = cluster(&vcsim, "b");
        guesser.mark.namespace = namespace.to_owned();
        for number in 0..5 {
            secrets.set(&format!("{namespace}/b"), user, &format!("guess-{number}"));
            let guess = format!("guess-{number} of {namespace}");
            until(&running, &guesser, &guess, |error| {
                error.is_some_and(|error| error.kind() == ErrorKind::Unauthenticated)
            })
            .await;
            // the Secret is read a moment later
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let words = fails(&running, &guesser, ErrorKind::Unauthenticated).await;
        assert!(words.contains("too many other passwords") && !words.contains("guess-"), "{words}");
        assert_eq!(calls(&vcsim).get("soap:Login"), Some(&expected), "{namespace}");
        ready(&running, &right).await;
    }

    // The password that vCenter has accepted needs no try.
    secrets.set("default/c", user, "hunter2");
    ready(&running, &cluster(&vcsim, "c")).await;
    assert_eq!(calls(&vcsim).get("soap:Login"), Some(&3));
    running.stop().await;
}

#[tokio::test]
async fn other_credentials_in_a_secret_are_used_at_once() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let secrets = Secrets::default();
    let running = Running::start_with(&config(&[&vcsim]), secrets.clone()).await;
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    let a = cluster(&vcsim, "a");
    for (user, password) in
        [("one@vsphere.local", "first"), ("one@vsphere.local", "second"), ("two@vsphere.local", "x")]
    {
        vcsim.set_credentials(user, password).expect("other credentials");
        secrets.set("default/a", user, password);
        ready(&running, &a).await;
        sessions(&vcsim, 2).await;
    }

    // A wrong password is told without it, and the right one is tried at once.
    secrets.remove("default/a");
    let words = fails(&running, &a, ErrorKind::NotFound).await;
    assert!(words.contains("Secret default/a does not exist"), "{words}");
    sessions(&vcsim, 1).await;
    secrets.set("default/a", "two@vsphere.local", "wrong-one");
    let words = fails(&running, &a, ErrorKind::Unauthenticated).await;
    assert!(words.contains("two@vsphere.local") && !words.contains("wrong-one"), "{words}");
    secrets.set("default/a", "two@vsphere.local", "x");
    ready(&running, &a).await;
    running.stop().await;
    assert_eq!(vcsim.sessions().expect("sessions").0, 0, "logged out");
}

/// A wrong password keeps no session of somebody else open, and one that was right before opens none any more.
#[tokio::test]
async fn a_session_is_for_those_whose_password_is_right_now() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let secrets = Secrets::default();
    let running = Running::start_with(&config(&[&vcsim]), secrets.clone()).await;
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    let user = "tenant@vsphere.local";
    vcsim.set_credentials(user, "first").expect("another user");
    let [right, wrong] = ["b", "a"].map(|name| cluster(&vcsim, name));
    // whoever comes first with a wrong password is in nobody's way
    secrets.set("default/a", user, "a-guess");
    fails(&running, &wrong, ErrorKind::Unauthenticated).await;
    secrets.set("default/b", user, "first");
    ready(&running, &right).await;
    sessions(&vcsim, 2).await;
    fails(&running, &wrong, ErrorKind::Unauthenticated).await;
    delete(&running, &right).await;
    sessions(&vcsim, 1).await;
    let words = fails(&running, &wrong, ErrorKind::Unauthenticated).await;
    assert!(!words.contains("default/"), "{words}");

    // Both share it, until one of them changes the password.
    secrets.set("default/a", user, "first");
    ready(&running, &right).await;
    ready(&running, &wrong).await;
    sessions(&vcsim, 2).await;
    vcsim.set_credentials(user, "second").expect("another password");
    secrets.set("default/b", user, "second");
    let began = Instant::now();
    while step(&running, &wrong).await.is_ok() {
        ready(&running, &right).await;
        assert!(began.elapsed() < LIMIT, "it is not shut out");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    fails(&running, &wrong, ErrorKind::Unauthenticated).await;
    ready(&running, &right).await;
    delete(&running, &right).await;
    sessions(&vcsim, 1).await;
    running.stop().await;
}

/// The vCenter is not in the configuration, and the cluster's object is gone when its machine goes.
#[tokio::test]
async fn a_machine_goes_without_the_object_of_its_cluster() {
    let Some(known) = simulator(&VcsimOptions::default()) else { return };
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let secrets = Secrets::default();
    secrets.set("default/prod", vcsim.user(), vcsim.password());
    let running = Running::start_with(&config(&[&known]), secrets.clone()).await;
    let mut object = Object::new(&vcsim, 1, &json!({}));
    object.request.cluster.spec = cluster(&vcsim, "prod").spec;
    let mut controller = Controller::new(&running);
    controller.make(&mut object).await;
    assert_eq!(names(&vcsim).len(), 2);
    running.stop().await;
    sessions(&vcsim, 0).await;

    secrets.remove("default/prod");
    let running = Running::start_with(&config(&[&known]), secrets.clone()).await;
    object.request.cluster.spec = Value::Null;
    let mut controller = Controller::new(&running);
    controller.limit = Duration::from_secs(600);
    let back = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(names(&vcsim).len(), 2, "nothing is gone without credentials");
        secrets.set("default/prod", vcsim.user(), vcsim.password());
    };
    tokio::join!(controller.delete(&mut object), back);
    assert!(
        controller.errors.iter().any(|words| words.contains("Secret default/prod does not exist")),
        "{:?}",
        controller.errors
    );
    assert_eq!(names(&vcsim), [machine(0)]);
    sessions(&vcsim, 0).await;
    running.stop().await;
}

#[tokio::test]
async fn an_identity_says_whether_its_secret_has_credentials() {
    use cloudprovider::CloudProvider as _;
    let secrets = Secrets::default();
    let running = Running::start_with(&without_vcenter(), secrets.clone()).await;
    let machines = running.provider.machines().expect("machines");
    let kind = take_over::kind_called(&running, "VSphereClusterIdentity");
    let object = AuxiliaryObject::new("team").with_uid("u-1").with_spec(json!({"secretName": "vc"}));
    let becomes = async |is_ready: bool, reason: &str, words: &str| {
        let began = Instant::now();
        loop {
            let told = machines.observe(&ObserveRequest::new(kind, object.clone())).await;
            let seen = told.as_ref().ok().map(|told| {
                let names = told.conditions.iter().map(|one| &*one.condition_type).collect::<Vec<_>>();
                assert_eq!(
                    (names, &told.conditions[0].message),
                    (vec!["Ready", "Available"], &told.conditions[1].message)
                );
                let reasons = told.conditions.iter().all(|one| one.reason == reason);
                told.status == json!({"ready": is_ready})
                    && reasons
                    && told.conditions[1].message.contains(words)
            });
            if seen == Some(true) {
                return;
            }
            assert!(began.elapsed() < LIMIT, "{is_ready} {reason}: {told:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    becomes(false, "SecretNotAvailable", "Secret kube-system/vc does not exist").await;
    secrets.set("kube-system/vc", "admin", "");
    becomes(false, "SecretNotAvailable", "no text under the key password").await;
    secrets.set("kube-system/vc", "admin", "hunter2");
    becomes(true, "Available", "").await;
    secrets.remove("kube-system/vc");
    becomes(false, "SecretNotAvailable", "does not exist").await;
    running.stop().await;
}

/// Without a vCenter in the configuration, a zone is looked at with the session of a cluster, and says so if there is none.
#[tokio::test]
async fn a_zone_is_looked_at_with_the_credentials_of_a_cluster() {
    use cloudprovider::CloudProvider as _;
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    zones::tag(&vcsim, 1);
    let secrets = Secrets::default();
    let running = Running::start_with(&without_vcenter(), secrets.clone()).await;
    let machines = running.provider.machines().expect("machines");
    let objects = zones::objects(&vcsim, &[("a", zones::domain(0))]);
    let kind = take_over::kind_called(&running, "VSphereDeploymentZone");
    let look = async || {
        let object = objects.get(&kind, None, "a").expect("an answer").expect("a zone");
        let request = ObserveRequest::new(kind, object).with_objects(objects.clone());
        machines.observe(&request).await.expect("told")
    };
    let told = look().await;
    assert_eq!(
        (told.status["ready"].as_bool(), &*told.conditions[1].reason),
        (Some(false), "VCenterUnreachable")
    );
    let words = &*told.conditions[0].message;
    assert!(words.contains("no VSphereCluster with spec.identityRef has a session"), "{words}");
    assert!(told.look_again_after.is_some(), "a session may begin");

    // One whose password is wrong opens nothing.
    let a = cluster(&vcsim, "a");
    secrets.set("default/a", vcsim.user(), "wrong");
    fails(&running, &a, ErrorKind::Unauthenticated).await;
    assert_eq!(look().await.status["ready"], false);
    secrets.set("default/a", vcsim.user(), vcsim.password());
    ready(&running, &a).await;
    let told = look().await;
    assert_eq!(told.status["ready"], true, "{told:?}");
    delete(&running, &a).await;
    assert_eq!(look().await.status["ready"], false);
    running.stop().await;
}

/// What one namespace has opened with its credentials serves no other one, whatever that one's objects say.
#[tokio::test]
async fn whoever_names_no_credentials_has_those_of_nobody_else() {
    use cloudprovider::CloudProvider as _;
    let Some(known) = simulator(&VcsimOptions::default()) else { return };
    let Some(vcsim) = simulator(&factory_options()) else { return };
    take_over::clone(&vcsim, true);
    let secrets = Secrets::default();
    secrets.set("default/a", vcsim.user(), vcsim.password());
    let running = Running::start_with(&config(&[&known]), secrets.clone()).await;
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    ready(&running, &cluster(&vcsim, "a")).await;

    // Everything that says which virtual machine it is can be written by whoever may make these objects.
    let mut object = Object::new(&known, 1, &json!({}));
    object.request.mark.namespace = "other".to_owned();
    object.request.provider_id = Some(format!("vsphere://{}", take_over::BIOS_UUID));
    let vm = AuxiliaryObject::new("worker-1").in_namespace("other").with_uid(take_over::OTHER_UID);
    let vm = vm.with_owners([object.request.object_uid.clone()]);
    let vm = vm.with_spec(json!({"biosUUID": take_over::BIOS_UUID}));
    object.request.objects = Objects::of([(take_over::kind(&running), vm)]);
    let machines = running.provider.machines().expect("machines");

    // With the vCenter of the configuration, it is the only one that is asked.
    object.request.mark.uid = take_over::VM_UID.to_owned();
    let report = Controller::new(&running).step(&mut object.clone()).await.expect("a report");
    assert!(matches!(report, MachineReport::Lost { .. }), "{report:?}");

    object.request.cluster.spec = Value::Null;
    let uid = machines.identify_machine(&object.request).await.ok().flatten();
    assert_ne!(uid.as_deref(), Some(take_over::VM_UID), "it sees nothing of the other vCenter");
    vcsim.reset_counts().expect("reset");
    for _ in 0..5 {
        let answer = machines.delete_machine(&object.request, &mut object.record).await;
        assert!(!matches!(answer, Ok(Deletion::Deleting(_))), "{answer:?}");
        let words = format!("{answer:?} {:?}", object.record);
        assert!(!words.contains(&format!(":{}", vcsim.port())), "{words}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(calls(&vcsim), BTreeMap::default(), "nothing is asked there");
    assert_eq!(names(&vcsim).len(), 2);
    running.stop().await;
}
