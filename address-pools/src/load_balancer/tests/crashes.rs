//! Every call of the cluster fails once, before and after its effect, and the daemon dies at every one.

use std::sync::atomic::{AtomicUsize, Ordering};

use cloudprovider::IpFamilyPolicy;

use super::*;

const ANNOUNCED_BY_KUBE_VIP: &str = r#"{"announcedBy": "kube-vip", "pools": [{"name": "main", "addresses": ["10.0.0.1-10.0.0.6", "fd00::1-fd00::6"], "allowSharing": true}]}"#;

/// Makes the call with this number fail. Tells how many calls there were.
fn fail_at(cluster: &FakeServiceAccess, number: usize, fault: AccessFault) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    cluster.fault_with(move |_| {
        if counted.fetch_add(1, Ordering::Relaxed) == number { fault } else { AccessFault::None }
    });
    calls
}

/// The life of a Service: it comes, changes its wish, and goes.
fn life() -> Vec<Option<LoadBalancerService>> {
    let shared = |service| annotated(service, &[(crate::SHARING_KEY, "web")]);
    vec![
        Some(dual_stack("a", IpFamilyPolicy::RequireDualStack)),
        Some(annotated(
            dual_stack("a", IpFamilyPolicy::RequireDualStack),
            &[(KUBE_VIP_IPS, "10.0.0.5,fd00::5")],
        )),
        Some(annotated(shared(service("a")), &[(KUBE_VIP_IPS, "10.0.0.6")])),
        Some(shared(LoadBalancerService { ports: vec![crate::testing::port(443)], ..service("a") })),
        None,
    ]
}

/// Takes a step, again and again as the controller does, and with another daemon if this one hangs.
async fn take(
    cluster: &FakeServiceAccess,
    mut daemon: Daemon,
    step: Option<&LoadBalancerService>,
    restarts: bool,
) -> Daemon {
    for _ in 0..4 {
        let done = async {
            match step {
                Some(service) => daemon.ensure(service).await.map(drop),
                None => daemon.delete(&service("a")).await,
            }
        };
        match tokio::time::timeout(Duration::from_secs(1), done).await {
            Ok(Ok(())) => return daemon,
            Ok(Err(error)) if error.kind() == ErrorKind::ImplementedElsewhere => return daemon,
            Ok(Err(_)) if !restarts => {}
            _ if restarts => daemon = Daemon::start(cluster, ANNOUNCED_BY_KUBE_VIP),
            // The call was given up, and the daemon lives on.
            _ => {}
        }
    }
    panic!("the step {step:?} never ends");
}

#[tokio::test(start_paused = true)]
async fn nothing_leaks_and_nothing_is_handed_out_twice() {
    let faults = [AccessFault::Before, AccessFault::After, AccessFault::HangBefore, AccessFault::HangAfter];
    let mut tried = 0;
    for (fault, restarts) in faults.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        for number in 0.. {
            let cluster = cluster(&["a", "b", "c"]);
            cluster
                .set_claims(vec![crate::testing::shared_claim("10.0.0.6", &[("b", Some("web"), "53/UDP")])]);
            let calls = fail_at(&cluster, number, fault);
            let mut daemon = Daemon::start(&cluster, ANNOUNCED_BY_KUBE_VIP);
            for step in life() {
                daemon = take(&cluster, daemon, step.as_ref(), restarts).await;
                for (address, claim) in cluster.stored_claims() {
                    let holders: Vec<_> =
                        claim.holders.iter().map(|holder| holder.service.uid.as_str()).collect();
                    let expected = if address == ip("10.0.0.6") { 2 } else { 1 };
                    assert!(
                        holders.len() <= expected && !holders.is_empty(),
                        "{fault:?} {number} {address} {holders:?}"
                    );
                }
            }
            // What the Service held is free for another one, and what others held is untouched.
            let left = cluster.stored_claims();
            assert_eq!(
                left.keys().copied().collect::<Vec<_>>(),
                ips(&["10.0.0.6"]),
                "{fault:?} {restarts} {number}"
            );
            assert_eq!(left[&ip("10.0.0.6")].holders.len(), 1, "{fault:?} {restarts} {number}");
            cluster.heal();
            daemon.told_elsewhere(&dual_stack("c", IpFamilyPolicy::RequireDualStack)).await;
            let claims = cluster.stored_claims();
            assert!(
                claims.contains_key(&ip("10.0.0.1")) && claims.contains_key(&ip("fd00::1")),
                "{fault:?} {number}"
            );
            if calls.load(Ordering::Relaxed) <= number {
                break;
            }
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried} fault points");
}
