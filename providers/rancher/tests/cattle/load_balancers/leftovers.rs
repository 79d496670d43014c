//! External services: those that are shared, those that a failure leaves behind, and those of an operator.

use super::*;

#[tokio::test]
async fn what_two_load_balancers_share_stays_until_both_are_gone() {
    let (server, running, nodes) = cluster().await;
    let web = service(&[(80, 30080)]);
    let other = LoadBalancerService {
        uid: "0a0a0a0a-0000-4000-8000-000000000001".to_owned(),
        ..service(&[(81, 30081)])
    };
    ensure(&running, &web, &nodes).await;
    ensure(&running, &other, &nodes).await;
    assert_eq!(externals(&server).len(), 3);
    running.balancers().delete(CLUSTER, &web).await.expect("deleted");
    assert_eq!(externals(&server).len(), 3, "the other one uses them");
    running.balancers().delete(CLUSTER, &other).await.expect("deleted");
    assert!(externals(&server).is_empty());
}

/// An external service of an operator in the stack of the load balancers, which nobody may touch.
fn add_foreign(server: &FakeCattle) {
    let mut cloud = server.cloud();
    let stack = cloud.objects.keys().find(|(kind, _)| *kind == "stack").map(|(_, id)| id.clone());
    cloud.create(
        "externalService",
        json!({"name": "database", "stackId": stack.expect("a stack"), "externalIpAddresses": ["192.0.2.3"], "state": "active"}),
    );
}

const FOREIGN: &str = "database [192.0.2.3] active";

#[tokio::test]
async fn what_a_failure_leaves_behind_is_deleted_later() {
    for (crash_point, forgets_marks) in [
        // The rules were changed, and the deletion failed.
        (("DELETE", "externalservices"), false),
        // As it was with load balancers of the old manager.
        (("DELETE", "externalservices"), true),
        (("PUT", "loadbalancerservices"), false),
    ] {
        let (server, running, nodes) = cluster().await;
        let web = service(&[(80, 30080)]);
        ensure(&running, &web, &nodes).await;
        add_foreign(&server);
        if forgets_marks {
            for ((kind, _), object) in &mut server.cloud().objects {
                if *kind == "externalService" {
                    object["description"] = Value::Null;
                }
            }
        }
        server.cloud().crash_point = Some(crash_point);
        let some: Vec<_> = nodes[..2].iter().collect();
        running.balancers().update(CLUSTER, &web, &some).await.expect_err("a crash point");
        assert_eq!(externals(&server).len(), 4, "{crash_point:?}: nothing is deleted yet");
        server.cloud().crash_point = None;
        // Another daemon takes over, and knows nothing.
        drop(running);
        let running = start(&server, "loadBalancer: {retryInterval: 1s}\n").await;
        running.balancers().update(CLUSTER, &web, &some).await.expect("updated");
        assert_eq!(
            externals(&server),
            [FOREIGN, "node-1-example-org [10.0.0.1] active", "node-2-example-org [10.0.0.2] active"],
            "{crash_point:?}"
        );
        running.balancers().delete(CLUSTER, &web).await.expect("deleted");
        assert_eq!(externals(&server), [FOREIGN], "{crash_point:?}");
    }
}

#[tokio::test]
async fn what_no_load_balancer_names_is_deleted_with_the_service() {
    let (server, running, nodes) = cluster().await;
    let web = service(&[(80, 30080)]);
    // The load balancer is not ready for its services, and then somebody deletes it by hand.
    let all: Vec<_> = nodes.iter().collect();
    server.cloud().crash_point = Some(("PUT", "loadbalancerservices"));
    for _ in 0..3 {
        running.balancers().ensure(CLUSTER, &web, &all).await.expect_err("a crash point");
    }
    assert_eq!(externals(&server).len(), 3);
    add_foreign(&server);
    server.cloud().crash_point = None;
    server.cloud().objects.retain(|(kind, _), _| *kind != "loadBalancerService");
    running.balancers().delete(CLUSTER, &web).await.expect("deleted");
    assert_eq!(externals(&server), [FOREIGN]);
}
