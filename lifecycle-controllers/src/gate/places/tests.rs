use kube::api::PostParams;
use sandbox::{Action, Fault, Matcher, ResourceKind, Sandbox};
use serde_json::{Value, json};

use super::{
    super::part::{BOOTSTRAP, CORE},
    *,
};

const OWN: &str = "kube-system";

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn found(labelled: &[&str], inventory: &[&str], deployments: &[&str], has_usual: bool) -> Vec<String> {
    let found = Found {
        labelled: names(labelled),
        inventory: names(inventory),
        deployments: names(deployments),
        has_usual,
    };
    found.namespaces(&CORE, OWN).into_iter().collect()
}

#[test]
fn where_a_manager_runs_or_would_run() {
    assert_eq!(found(&[], &[], &[], false), [OWN], "nothing there");
    assert_eq!(found(&[], &[], &[], true), ["capi-system"]);
    assert_eq!(found(&["a"], &[], &[], true), ["a"], "the usual one is empty");
    assert_eq!(found(&["b"], &["a"], &["capi-system"], true), ["a", "b", "capi-system"], "all of them");
    assert_eq!(found(&[], &[], &[OWN], true), [OWN]);
}

#[test]
fn a_users_deployment_directs_nobody() {
    assert_eq!(found(&[], &[], &["tenant"], true), ["capi-system"]);
    assert_eq!(
        found(&["tenant"], &[], &["tenant"], true),
        ["tenant"],
        "an administrator labelled the namespace"
    );
    let all = Found { deployments: names(&["tenant", "capi-system"]), has_usual: true, ..Found::default() };
    assert_eq!(all.ignored(&CORE, OWN), names(&["tenant"]));
}

async fn create(sandbox: &Sandbox, resource: &ApiResource, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(sandbox.client(), namespace, resource),
        None => Api::all_with(sandbox.client(), resource),
    };
    api.create(&PostParams::default(), &object).await.expect("created");
}

async fn namespace(sandbox: &Sandbox, name: &str, labels: Value) {
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
    });
    create(sandbox, &resource("", "v1", "Namespace", "namespaces"), object).await;
}

async fn provider(sandbox: &Sandbox, namespace: &str, name: &str, of_type: &str) {
    let group = "clusterctl.cluster.x-k8s.io";
    let object = json!({
        "apiVersion": format!("{group}/v1alpha3"), "kind": "Provider",
        "metadata": {"namespace": namespace, "name": format!("{of_type}-{name}").to_lowercase()},
        "providerName": name, "type": of_type,
    });
    create(sandbox, &resource(group, "v1alpha3", "Provider", "providers"), object).await;
}

fn places(sandbox: &Sandbox, part: &'static Part) -> Places {
    Places { client: sandbox.client(), part, own: OWN.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn what_clusterctl_and_the_operator_installed_is_found() {
    let sandbox = Sandbox::new();
    let core = || async { places(&sandbox, &CORE).look().await.expect("found").namespaces(&CORE, OWN) };
    assert_eq!(core().await, names(&[OWN]), "none of the kinds is served");
    sandbox.register(
        ResourceKind::new("clusterctl.cluster.x-k8s.io", "v1alpha3", "Provider", "providers").namespaced(),
    );
    sandbox.register(
        ResourceKind::new("operator.cluster.x-k8s.io", "v1alpha2", "CoreProvider", "coreproviders")
            .namespaced(),
    );
    namespace(&sandbox, "capi-system", json!({})).await;
    assert_eq!(core().await, names(&["capi-system"]));
    for name in ["a", "b", "c"] {
        namespace(&sandbox, name, json!({})).await;
    }
    provider(&sandbox, "a", "cluster-api", "CoreProvider").await;
    provider(&sandbox, "b", "kubeadm", "BootstrapProvider").await;
    provider(&sandbox, "b", "other", "CoreProvider").await;
    assert_eq!(core().await, names(&["a"]));
    let bootstrap = places(&sandbox, &BOOTSTRAP).look().await.expect("found");
    assert_eq!(bootstrap.namespaces(&BOOTSTRAP, OWN), names(&["b"]));
    let kind = resource("operator.cluster.x-k8s.io", "v1alpha2", "CoreProvider", "coreproviders");
    let object = json!({
        "apiVersion": "operator.cluster.x-k8s.io/v1alpha2", "kind": "CoreProvider",
        "metadata": {"namespace": "c", "name": "cluster-api"},
    });
    create(&sandbox, &kind, object).await;
    assert_eq!(core().await, names(&["a", "c"]));
    namespace(&sandbox, "d", json!({"cluster.x-k8s.io/provider": "cluster-api"})).await;
    namespace(&sandbox, "e", json!({"cluster.x-k8s.io/provider": "bootstrap-kubeadm"})).await;
    assert_eq!(core().await, names(&["a", "c", "d"]));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_not_guessed() {
    let sandbox = Sandbox::new();
    let forbidden = Fault::new(Matcher::any().verb("list").resource("namespaces"), Action::ErrorEvent(403));
    sandbox.faults().inject(forbidden.times(1));
    let why = places(&sandbox, &CORE).look().await.expect_err("refused");
    assert!(why.starts_with("cannot list namespaces: "), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_appears_is_noticed_by_a_watch() {
    let sandbox = Sandbox::new();
    let places = places(&sandbox, &CORE);
    let known = names(&[OWN]);
    let began = Instant::now();
    let appears = async {
        sleep(Duration::from_secs(10)).await;
        namespace(&sandbox, "capi-system", json!({"cluster.x-k8s.io/provider": "cluster-api"})).await;
    };
    tokio::join!(places.changed(&known), appears);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(11), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_no_watch_shows_is_noticed_in_the_period() {
    let sandbox = Sandbox::new();
    sandbox.register(
        ResourceKind::new("clusterctl.cluster.x-k8s.io", "v1alpha3", "Provider", "providers").namespaced(),
    );
    namespace(&sandbox, "a", json!({})).await;
    let places = places(&sandbox, &CORE);
    let known = names(&[OWN]);
    let began = Instant::now();
    let appears = async {
        sleep(Duration::from_secs(5)).await;
        provider(&sandbox, "a", "cluster-api", "CoreProvider").await;
    };
    tokio::join!(places.changed(&known), appears);
    assert!(began.elapsed() <= PERIOD + Duration::from_secs(1), "{:?}", began.elapsed());
}
