use cluster_api::kubeadm::KubeadmConfigSpec;
use serde_json::{Value, json};

use crate::{Certificates, ClusterFacts, Request, Role, SecretValues, bootstrap_data};

fn error(spec: Value) -> String {
    let spec: KubeadmConfigSpec = serde_json::from_value(spec).expect("a spec");
    let request = Request {
        spec: &spec,
        role: Role::JoinWorker,
        kubernetes_version: "v1.35.0",
        cluster: &ClusterFacts::default(),
        certificates: &Certificates::default(),
        token: None,
        secrets: &SecretValues::default(),
        control_plane_version: None,
    };
    bootstrap_data(&request).expect_err("an error").to_string()
}

#[test]
fn errors_name_the_field() {
    let secret = json!({"secret": {"name": "s", "key": "k"}});
    let partition =
        |layout: Value| json!({"diskSetup": {"partitions": [{"device": "/a", "diskLayout": layout}]}});
    for (spec, message) in [
        (json!({"files": [{"path": ""}]}), "spec.files[0].path: is empty"),
        (
            json!({"files": [{"path": "/a"}, {"path": "/a"}]}),
            "spec.files[1].path: is the path of another file",
        ),
        (
            json!({"files": [{"path": "/a", "content": "x", "contentFrom": secret}]}),
            "spec.files[0]: has both content and contentFrom",
        ),
        (
            json!({"files": [{"path": "/a", "contentFrom": {"secret": {"name": "", "key": "k"}}}]}),
            "spec.files[0].contentFrom.secret.name: is empty",
        ),
        (
            json!({"users": [{"name": "a", "passwd": "x", "passwdFrom": secret}]}),
            "spec.users[0]: has both passwd and passwdFrom",
        ),
        (
            json!({"users": [{"name": "a", "passwdFrom": {"secret": {"name": "s", "key": ""}}}]}),
            "spec.users[0].passwdFrom.secret.key: is empty",
        ),
        (json!({"users": [{"name": ""}]}), "spec.users[0].name: is empty"),
        (
            json!({"diskSetup": {"partitions": [{"device": "/a"}]}}),
            "spec.diskSetup.partitions[0]: needs either layout or diskLayout",
        ),
        (
            json!({"diskSetup": {"partitions": [{"device": "/a", "layout": true}, {"device": "/a", "layout": true}]}}),
            "spec.diskSetup.partitions[1].device: is the device of another entry",
        ),
        (
            partition(json!([{"percentage": 60}, {"percentage": 60}])),
            "spec.diskSetup.partitions[0].diskLayout: has more than 100 percent",
        ),
        (
            partition(json!([{"percentage": 0}])),
            "spec.diskSetup.partitions[0].diskLayout[0].percentage: is not from 1 to 100",
        ),
        (
            partition(json!([{"percentage": 1, "partitionType": "83, 2], ["}])),
            "spec.diskSetup.partitions[0].diskLayout[0].partitionType: is neither a known type nor a GUID",
        ),
        (
            json!({"initConfiguration": {"bootstrapTokens": [{"token": "ABCDEF.0123456789abcdef"}]}}),
            "spec.initConfiguration.bootstrapTokens[0].token: is not of the form abcdef.0123456789abcdef",
        ),
        (
            json!({"joinConfiguration": {"timeouts": {"etcdAPICallSeconds": -1}}}),
            "spec.joinConfiguration.timeouts.etcdAPICallSeconds: is negative",
        ),
        (
            json!({"ignition": {"containerLinuxConfig": {"strict": true}}}),
            "spec.ignition.containerLinuxConfig: is not supported: the bootstrap data have no part for it",
        ),
        (
            json!({"joinConfiguration": {"controlPlane": {}}}),
            "spec.joinConfiguration.controlPlane: is for machines of the control plane, and this one has no such label",
        ),
        (
            json!({"files": [{"path": "/a", "content": "{{ x }}", "contentFormat": "Template"}]}),
            "spec.files[0].content: an action of the template is not supported",
        ),
        (
            json!({"files": [{"path": "/a", "contentFrom": secret}]}),
            "spec.files[0].contentFrom: Secret s with key k does not exist",
        ),
        (json!({}), "the Secret -ca has no certificate"),
    ] {
        assert_eq!(error(spec), message);
    }
}

/// An error never shows what may be a secret.
#[test]
fn errors_show_no_content() {
    for spec in [
        json!({"files": [{"path": "/a", "content": "s3cret {{", "contentFormat": "Template"}]}),
        json!({"initConfiguration": {"bootstrapTokens": [{"token": "s3cret"}]}}),
        json!({"format": "ignition", "files": [{"path": "/a", "content": "s3cret?", "encoding": "base64"}]}),
    ] {
        let message = error(spec);
        assert!(!message.contains("s3cret"), "{message}");
    }
}
