//! The Secret of a Cluster whose control plane is Machines.

use k8s_openapi::ByteString;

use super::*;
use crate::{
    cluster::tests::{CORE, create, stage, until},
    testing::{NAMESPACE, Stage, object},
};

const CERTIFICATE: &[u8] = include_bytes!("authority/tests/rsa.crt");
const KEY: &[u8] = include_bytes!("authority/tests/rsa.key");

async fn kubeconfig_secret(stage: &Stage) -> Option<Secret> {
    let found = stage.get("v1", "Secret", "c-kubeconfig").await?;
    Some(serde_json::from_value(found).expect("a Secret"))
}

fn value(secret: &Secret) -> &[u8] {
    let ByteString(value) = &secret.data.as_ref().expect("data")["value"];
    value
}

async fn certificate_authority(stage: &Stage) {
    let data =
        json!({"tls.crt": BASE64_STANDARD.encode(CERTIFICATE), "tls.key": BASE64_STANDARD.encode(KEY)});
    let mut secret = object("v1", "Secret", "c-ca");
    secret["data"] = data;
    stage.create(secret).await;
}

/// Waits until a pass has been made after the last change.
async fn look_again(stage: &Stage) {
    tokio::time::sleep(Duration::from_secs(3600)).await;
    until(stage, |cluster| cluster.status.is_some()).await;
}

fn stand_alone() -> Value {
    let infrastructure =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "FakeInfrastructure", "name": "i"});
    json!({"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}, "infrastructureRef": infrastructure})
}

#[tokio::test(start_paused = true)]
async fn it_is_made_once_there_is_a_certificate_authority() {
    let stage = stage().await;
    let uid = create(&stage, stand_alone()).await;
    look_again(&stage).await;
    assert_eq!(kubeconfig_secret(&stage).await, None);
    certificate_authority(&stage).await;
    look_again(&stage).await;
    let secret = kubeconfig_secret(&stage).await.expect("a Secret");
    assert_eq!(secret.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
    assert!(secret.is_owned_by(&uid));
    assert_eq!(secret.label(labels::CLUSTER_NAME), Some("c"));
    let now = Timestamp::now().as_second();
    let left = validity(value(&secret)).and_then(|validity| validity.until_half(now));
    assert!(left.is_some_and(|left| left > Duration::from_secs(180 * 24 * 3600)), "{left:?}");
    let version = secret.metadata.resource_version.clone();
    look_again(&stage).await;
    let again = kubeconfig_secret(&stage).await.expect("a Secret");
    assert_eq!(again.metadata.resource_version, version, "it stays");
}

#[tokio::test(start_paused = true)]
async fn it_is_renewed_and_that_of_a_user_stays() {
    for (kind, is_renewed) in [("cluster.x-k8s.io/secret", true), ("Opaque", false)] {
        let stage = stage().await;
        certificate_authority(&stage).await;
        let mut spec = stand_alone();
        spec["paused"] = json!(true);
        let uid = create(&stage, spec).await;
        let authority = Authority::read(CERTIFICATE, KEY).expect("an authority");
        let old = Timestamp::from_second(Timestamp::now().as_second() - 200 * 24 * 3600).expect("a time");
        let old = authority.kubeconfig("c", "https://10.0.0.1:6443", old).expect("a kubeconfig");
        let mut secret = object("v1", "Secret", "c-kubeconfig");
        secret["type"] = json!(kind);
        secret["metadata"]["ownerReferences"] =
            json!([{"apiVersion": CORE, "kind": "Cluster", "name": "c", "uid": uid}]);
        secret["data"] = json!({"value": BASE64_STANDARD.encode(&old)});
        stage.create(secret).await;
        stage.patch(CORE, "Cluster", "c", &json!({"spec": {"paused": false}})).await;
        look_again(&stage).await;
        let secret = kubeconfig_secret(&stage).await.expect("a Secret");
        assert_eq!(value(&secret) != old.as_bytes(), is_renewed, "{kind} in {NAMESPACE}");
    }
}
