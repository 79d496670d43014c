use cloudprovider::Error;

use super::super::testing::{GROUPS, NO_GROUPS, answering};
use super::*;

/// A page of a proxy.
const PAGE: &str = "<html>not found</html>";

fn cluster(id: &str) -> Cluster {
    Cluster { id: id.to_owned(), name: Some("prod".to_owned()), ..Cluster::default() }
}

/// The cluster with Rancher's own note whether it provisions it.
fn says(id: &str, is_administrated: &str) -> Cluster {
    let note = serde_json::json!({"provisioning.cattle.io/administrated": is_administrated});
    let cluster = serde_json::json!({"id": id, "name": "prod", "annotations": note});
    serde_json::from_value(cluster).expect("a cluster")
}

fn absent() -> String {
    serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "clusters.provisioning.cattle.io \"prod\" not found",
        "details": {"name": "prod", "group": "provisioning.cattle.io", "kind": "clusters"},
    })
    .to_string()
}

fn server(object: (u16, String), groups: (u16, &'static str)) -> kube::Client {
    answering(move |path| Ok(if path == "/apis" { (groups.0, groups.1.to_owned()) } else { object.clone() }))
}

#[tokio::test]
async fn only_the_api_servers_own_404_says_that_there_is_no_object() {
    let kubernetes = server((404, absent()), (404, PAGE));
    let found = find(&kubernetes, &cluster("c-abcde"), None, false).await;
    assert_eq!(found.expect("certain"), Provisioning::Foreign(Foreign::NotFound));
    let other = absent().replace("\"kind\":\"clusters\"", "\"kind\":\"others\"");
    for body in [PAGE, "404 page not found\n", "", "{}", r#"{"type":"error","code":"NotFound"}"#, &other] {
        let kubernetes = server((404, body.to_owned()), (404, PAGE));
        for id in ["c-abcde", "c-m-abcdefgh"] {
            let error = find(&kubernetes, &cluster(id), None, false).await.expect_err(body);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{body}");
            assert!(error.report().contains("fleet-default/prod"), "{}", error.report());
        }
    }
}

#[tokio::test]
async fn a_server_without_the_kind_provisions_nothing() {
    let object = || (404, "404 page not found\n".to_owned());
    let found = find(&server(object(), (200, NO_GROUPS)), &cluster("c-abcde"), None, false).await;
    assert_eq!(found.expect("certain"), Provisioning::Foreign(Foreign::NotFound));
    find(&server(object(), (200, NO_GROUPS)), &cluster("c-m-abcdefgh"), None, false)
        .await
        .expect_err("an ID");
    // A server that has it, and a proxy before it.
    let groups = GROUPS.replace("rke.cattle.io", "provisioning.cattle.io");
    let kubernetes = answering(move |path| {
        Ok(if path == "/apis" { (200, groups.clone()) } else { (404, "404 page not found\n".to_owned()) })
    });
    find(&kubernetes, &cluster("c-abcde"), None, false).await.expect_err("it is served");
}

#[tokio::test]
async fn where_an_object_is_expected_a_404_is_an_error_that_says_what_to_check() {
    let kubernetes = server((404, absent()), (200, NO_GROUPS));
    let unnamed = Cluster { name: Some("Our Cluster?".to_owned()), ..cluster("c-m-abcdefgh") };
    for (cluster, configured, was_rancher) in [
        (cluster("c-m-abcdefgh"), None, false),
        (cluster("c-abcde"), Some("fleet-defualt"), false),
        (cluster("c-abcde"), None, true),
        (unnamed, None, false),
    ] {
        let error = find(&kubernetes, &cluster, configured, was_rancher).await.expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.report().contains("check namespace"), "{}", error.report());
    }
}

#[tokio::test]
async fn a_refusal_makes_no_cluster_an_imported_one_that_may_be_provisioned() {
    let kubernetes = answering(|_| Err(Error::new(ErrorKind::PermissionDenied, "refused (403)")));
    for (cluster, configured, was_rancher) in [
        (cluster("c-abcde"), None, false),
        (says("c-m-abcdefgh", "false"), None, false),
        (says("c-m-abcdefgh", "false"), Some("fleet-default"), false),
    ] {
        let found = find(&kubernetes, &cluster, configured, was_rancher).await;
        assert_eq!(found.expect("certain"), Provisioning::Foreign(Foreign::Forbidden));
    }
    for (cluster, configured, was_rancher) in [
        (cluster("c-m-abcdefgh"), None, false),
        (cluster("c-abcde"), Some("fleet-default"), false),
        (cluster("c-abcde"), None, true),
        (says("local", "true"), None, false),
        (says("c-m-abcdefgh", "false"), None, true),
        (says("c-m-abcdefgh", "odd"), None, false),
    ] {
        let error = find(&kubernetes, &cluster, configured, was_rancher).await.expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let words = "the right get on clusters (provisioning.cattle.io) in namespace fleet-default";
        assert!(error.report().contains(words), "{}", error.report());
    }
}

#[tokio::test]
async fn an_object_says_whose_the_machines_are() {
    let object = |config: &str| {
        let metadata = r#""metadata":{"name":"prod","namespace":"fleet-default","uid":"u-1"}"#;
        let status = r#""status":{"clusterName":"c-m-abcdefgh"}"#;
        (200, format!(r#"{{{metadata},{status},"spec":{{"rkeConfig":{config}}}}}"#))
    };
    let found = find(&server(object("{}"), (404, PAGE)), &cluster("c-m-abcdefgh"), None, false).await;
    let origin = Origin { uid: "u-1".to_owned(), ..Origin::default() };
    let (namespace, name) = ("fleet-default".to_owned(), "prod".to_owned());
    let expected = Provisioning::Rancher { namespace, name, origin };
    assert_eq!(found.expect("certain"), expected);
    let found = find(&server(object("null"), (404, PAGE)), &cluster("c-m-abcdefgh"), None, false).await;
    assert_eq!(found.expect("certain"), Provisioning::Foreign(Foreign::NotProvisioned));
    find(&server(object("{}"), (404, PAGE)), &cluster("c-m-other"), None, false)
        .await
        .expect_err("another's");
    // Without it, the machines were Rancher's before, or are by its own word.
    for (cluster, was_rancher) in [(cluster("c-m-abcdefgh"), true), (says("c-m-abcdefgh", "true"), false)] {
        let found = find(&server(object("null"), (404, PAGE)), &cluster, None, was_rancher).await;
        let words = found.expect_err("in doubt").report();
        assert!(words.contains("it has no rkeConfig, but"), "{words}");
    }
}

/// What a proxy may say. Taken for the object, it would make the cluster an imported one.
#[tokio::test]
async fn another_answer_is_not_the_object() {
    for body in ["{}", r#"{"metadata":{"name":"prod","namespace":"fleet-default"}}"#, r#"{"status":"ok"}"#] {
        for id in ["c-abcde", "c-m-abcdefgh"] {
            let kubernetes = server((200, body.to_owned()), (404, PAGE));
            find(&kubernetes, &cluster(id), None, false).await.expect_err(body);
        }
    }
}
