use cloudprovider::{
    DynMachines,
    machines::{ForeignVersion, Kind, KindDefinition, Kinds, Schemas},
    testing::FakeCloud,
};
use kube::ResourceExt as _;
use sandbox::{Action, Fault, Matcher, Sandbox};
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "cloud-controller-manager-webhook-ca";

fn kinds() -> Kinds {
    FakeCloud::new().with_machines().provider().machines().map(DynMachines::kinds).expect("machines")
}

fn schemas() -> Schemas {
    FakeCloud::new().with_machines().provider().machines().map(DynMachines::schemas).expect("machines")
}

fn older() -> ForeignVersion {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let machines = KindDefinition::new(Kind::new("FakeMachine", "fakemachines"), "A machine.", any);
    ForeignVersion::new("v0", "v1beta1", vec![machines])
}

#[expect(clippy::unnecessary_wraps, reason = "as the contract has it")]
fn same(object: Value, _version: &str) -> cloudprovider::Result<Value> {
    Ok(object)
}

/// A keeper of one replica.
fn keeper(sandbox: &Sandbox) -> Keeper {
    let flags = crate::flags::parse(["ccm", "--cloud-provider=fake"]).expect("good flags");
    let types = MachineTypes::new(kinds(), schemas).with_older(older, same);
    let mut keeper =
        Keeper::new(sandbox.client(), &flags, &[types], MadeCertificate::default(), Report::default());
    keeper.names.truncate(1);
    keeper
}

fn definitions(sandbox: &Sandbox) -> Api<CustomResourceDefinition> {
    Api::all(sandbox.client())
}

async fn secret(sandbox: &Sandbox) -> Option<Secret> {
    Api::namespaced(sandbox.client(), "kube-system").get_opt(SECRET).await.expect("an answer")
}

async fn create_definition(sandbox: &Sandbox) {
    let kinds = kinds();
    let name = format!("{}.{}", kinds.machine.plural, kinds.group);
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let crd = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "group": kinds.group, "scope": "Namespaced",
            "names": {"kind": kinds.machine.kind, "plural": kinds.machine.plural},
            "versions": [version(kinds.version, true), version("v0", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "s", "namespace": "n"}},
            }},
        },
    }));
    let crd: CustomResourceDefinition = crd.expect("a definition");
    definitions(sandbox).create(&PostParams::default(), &crd).await.expect("created");
}

/// Reads the definitions as the watches do.
async fn read(sandbox: &Sandbox, keeper: &mut Keeper) {
    for (name, _) in keeper.names.clone() {
        let found = definitions(sandbox).get_opt(&name).await.expect("an answer");
        keeper.definitions.insert(name, found.map(Definition::from));
    }
}

/// The authority in the definition.
async fn bundle(sandbox: &Sandbox, keeper: &Keeper) -> Option<String> {
    let crd = definitions(sandbox).get(&keeper.names[0].0).await.expect("there");
    let client = crd.spec.conversion?.webhook?.client_config?;
    client.ca_bundle.map(|bundle| String::from_utf8(bundle.0).expect("text"))
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

fn writes(verb: &str, plural: &str) -> Matcher {
    Matcher::any().verb(verb).resource(plural)
}

#[tokio::test]
async fn all_replicas_share_one_authority() {
    let sandbox = Sandbox::new();
    create_definition(&sandbox).await;
    let mut replicas = [keeper(&sandbox), keeper(&sandbox)];
    let mut bundles = Vec::new();
    for keeper in &mut replicas {
        read(&sandbox, keeper).await;
        let settled = keeper.settle(now()).await;
        assert!(settled.faults.is_empty(), "{settled:?}");
        assert!(keeper.certificate.as_ref().is_some_and(|(names, ..)| *names == ["s.n.svc"]));
        bundles.push(bundle(&sandbox, keeper).await.expect("an authority"));
    }
    assert_eq!(bundles[0], bundles[1]);
    let data = secret(&sandbox).await.and_then(|secret| secret.data).expect("data");
    assert_eq!(data["ca.crt"].0, bundles[0].as_bytes());
    assert_eq!(sandbox.requests_matching(&writes("patch", "customresourcedefinitions")).len(), 1);
}

#[tokio::test]
async fn one_of_two_that_make_it_at_once_gives_way() {
    let sandbox = Sandbox::new();
    sandbox.faults().inject(Fault::new(writes("create", "secrets"), Action::Conflict).times(1));
    let mut keeper = keeper(&sandbox);
    create_definition(&sandbox).await;
    read(&sandbox, &mut keeper).await;
    assert!(keeper.settle(now()).await.faults.is_empty());
    assert_eq!(sandbox.requests_matching(&writes("create", "secrets")).len(), 2);
}

/// A crash is a write that nobody saw the end of: it never came, or its answer was lost.
#[tokio::test]
async fn a_crash_at_any_write_leaves_one_authority() {
    for (verb, plural) in [("create", "secrets"), ("patch", "customresourcedefinitions")] {
        for crash in [Action::ResetConnection, Action::LoseResponse] {
            let sandbox = Sandbox::new();
            create_definition(&sandbox).await;
            sandbox.faults().inject(Fault::new(writes(verb, plural), crash.clone()).times(1));
            let mut first = keeper(&sandbox);
            read(&sandbox, &mut first).await;
            let settled = first.settle(now()).await;
            assert!(settled.is_failing, "{verb} {plural} {crash:?}: {settled:?}");
            let before = secret(&sandbox).await.map(|secret| secret.data);
            let mut second = keeper(&sandbox);
            read(&sandbox, &mut second).await;
            let settled = second.settle(now()).await;
            assert!(settled.faults.is_empty(), "{verb} {plural} {crash:?}: {settled:?}");
            let after = secret(&sandbox).await.map(|secret| secret.data);
            assert!(before.is_none() || before == after, "{verb} {plural} {crash:?}: a second authority");
            let data = after.flatten().expect("data");
            let bundle = bundle(&sandbox, &second).await.map(String::into_bytes);
            assert_eq!(bundle, Some(data["ca.crt"].0.clone()));
        }
    }
}

#[tokio::test]
async fn a_successor_is_written_once_and_trusted() {
    let sandbox = Sandbox::new();
    create_definition(&sandbox).await;
    let mut keeper = keeper(&sandbox);
    read(&sandbox, &mut keeper).await;
    assert!(keeper.settle(now()).await.faults.is_empty());
    let late = now() + Duration::from_secs(10 * 365 * 24 * 60 * 60 - 1000);
    for crash in [Action::ResetConnection, Action::LoseResponse] {
        sandbox.faults().inject(Fault::new(writes("update", "secrets"), crash).times(1));
        keeper.settle(late).await;
    }
    read(&sandbox, &mut keeper).await;
    assert!(keeper.settle(late).await.faults.is_empty());
    let bundle = bundle(&sandbox, &keeper).await.expect("an authority");
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
    let secret = secret(&sandbox).await.expect("there");
    assert!(secret.data.expect("data").contains_key("next.key"));
}

/// A second daemon with a Secret of its own, so with another authority.
#[tokio::test]
async fn two_that_write_do_not_fight_at_full_speed() {
    let sandbox = Sandbox::new();
    create_definition(&sandbox).await;
    let mut both = [keeper(&sandbox), keeper(&sandbox)];
    if let Some(secret) = &mut both[1].secret {
        secret.name = "other".to_owned();
    }
    // Each sees every write of the other one, for ten minutes.
    for second in 0..600 {
        for keeper in &mut both {
            read(&sandbox, keeper).await;
            keeper.settle(now() + Duration::from_secs(second)).await;
        }
    }
    let writes = sandbox.requests_matching(&writes("patch", "customresourcedefinitions")).len();
    assert!((10..30).contains(&writes), "{writes}");
    read(&sandbox, &mut both[0]).await;
    let settled = both[0].settle(now() + Duration::from_secs(600)).await;
    assert!(settled.faults[0].contains("again and again"), "{settled:?}");
    assert!(settled.wait.is_some_and(|wait| wait <= Duration::from_secs(300)), "{settled:?}");
}

#[tokio::test]
async fn a_successor_waits_until_it_is_trusted() {
    let sandbox = Sandbox::new();
    create_definition(&sandbox).await;
    let mut keeper = keeper(&sandbox);
    read(&sandbox, &mut keeper).await;
    assert!(keeper.settle(now()).await.faults.is_empty());
    let first = bundle(&sandbox, &keeper).await;
    let refused = Fault::new(writes("patch", "customresourcedefinitions"), Action::InternalError);
    sandbox.faults().inject(refused);
    let late = now() + Duration::from_secs(9 * 365 * 24 * 60 * 60 + 60 * 60);
    for day in 0..3_u64 {
        keeper.settle(late + Duration::from_secs(day * 24 * 60 * 60)).await;
        let signer = keeper.authorities.as_ref().map(|all| all.signer().certificate().to_owned());
        assert_eq!(signer, first, "the definition trusts no other one");
    }
    sandbox.faults().clear();
    for day in 3..6_u64 {
        assert!(keeper.settle(late + Duration::from_secs(day * 24 * 60 * 60)).await.faults.is_empty());
    }
    let signer = keeper.authorities.as_ref().map(|all| all.signer().certificate().to_owned());
    assert_ne!(signer, first);
}

#[tokio::test]
async fn after_its_secret_is_gone_the_old_authority_stays_trusted() {
    let sandbox = Sandbox::new();
    create_definition(&sandbox).await;
    let mut keeper = keeper(&sandbox);
    read(&sandbox, &mut keeper).await;
    assert!(keeper.settle(now()).await.faults.is_empty());
    let first = bundle(&sandbox, &keeper).await.expect("an authority");
    let secrets: Api<Secret> = Api::namespaced(sandbox.client(), "kube-system");
    secrets.delete(SECRET, &kube::api::DeleteParams::default()).await.expect("deleted");
    read(&sandbox, &mut keeper).await;
    assert!(keeper.settle(now() + Duration::from_secs(60)).await.faults.is_empty());
    let both = bundle(&sandbox, &keeper).await.expect("an authority");
    assert!(both.ends_with(&first) && both.len() > first.len(), "{both}");
}

#[tokio::test]
async fn certificates_of_files_leave_the_authority_to_people() {
    let sandbox = Sandbox::new();
    create_definition(&sandbox).await;
    let mut keeper = Keeper { secret: None, ..keeper(&sandbox) };
    read(&sandbox, &mut keeper).await;
    let settled = keeper.settle(now()).await;
    assert!(
        settled.faults[0].contains("caBundle: write the authority") && !settled.is_failing,
        "{settled:?}"
    );
    assert!(keeper.can_serve() && secret(&sandbox).await.is_none());
    assert!(sandbox.requests_matching(&writes("patch", "customresourcedefinitions")).is_empty());
}

#[tokio::test]
async fn an_authority_that_may_be_old_is_not_written() {
    let sandbox = Sandbox::new();
    create_definition(&sandbox).await;
    let mut keeper = keeper(&sandbox);
    read(&sandbox, &mut keeper).await;
    assert!(keeper.settle(now()).await.faults.is_empty());
    let newer = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "bmV3"}}}}});
    let name = keeper.names[0].0.clone();
    let patched = definitions(&sandbox).patch(&name, &PatchParams::default(), &Patch::Merge(&newer)).await;
    patched.expect("patched");
    read(&sandbox, &mut keeper).await;
    sandbox.faults().inject(Fault::new(writes("get", "secrets"), Action::ResetConnection).times(1));
    let late = now() + Duration::from_secs(60);
    assert!(keeper.settle(late).await.is_failing);
    assert_eq!(bundle(&sandbox, &keeper).await.as_deref(), Some("new"));
    assert!(keeper.settle(late).await.faults.is_empty());
    assert_ne!(bundle(&sandbox, &keeper).await.as_deref(), Some("new"), "it was read again");
}

#[tokio::test]
async fn what_somebody_changed_is_mended_or_told() {
    let sandbox = Sandbox::new();
    let mut keeper = keeper(&sandbox);
    let settled = keeper.settle(now()).await;
    assert!(settled.faults[0].contains("was not read yet") && !settled.is_failing, "{settled:?}");
    read(&sandbox, &mut keeper).await;
    let settled = keeper.settle(now()).await;
    assert!(settled.faults[0].contains("is missing") && !settled.is_failing, "{settled:?}");
    create_definition(&sandbox).await;
    read(&sandbox, &mut keeper).await;
    assert!(keeper.settle(now()).await.faults.is_empty());
    let right = bundle(&sandbox, &keeper).await;
    assert!(right.is_some());

    // Somebody replaces the definition by one without the authority.
    let gone = definitions(&sandbox).delete(&keeper.names[0].0, &kube::api::DeleteParams::default()).await;
    gone.expect("deleted");
    create_definition(&sandbox).await;
    read(&sandbox, &mut keeper).await;
    assert!(keeper.settle(now()).await.faults.is_empty());
    assert_eq!(bundle(&sandbox, &keeper).await, right);

    // Somebody spoils the Secret: it is not overwritten, and nothing of it is told.
    let secrets: Api<Secret> = Api::namespaced(sandbox.client(), "kube-system");
    let mut spoilt = secret(&sandbox).await.expect("there");
    spoilt.data.get_or_insert_default().insert("ca.key".to_owned(), ByteString(b"hush".to_vec()));
    secrets.replace(&spoilt.name_any(), &PostParams::default(), &spoilt).await.expect("replaced");
    let settled = keeper.settle(now()).await;
    assert!(settled.faults[0].contains("delete it, and another one is made"), "{settled:?}");
    assert!(!settled.faults[0].contains("hush"), "{settled:?}");
    assert_eq!(bundle(&sandbox, &keeper).await, right, "the known one goes on");
}
