//! A daemon that ends before or after any call, and another one that goes on.

use cloudprovider::ErrorKind;
use http::Method;

use crate::{
    front::Fault,
    support::{World, ip, service_ref},
};

/// More calls than one of these takes.
const MAX_CALLS: usize = 12;

/// Gives up at the call with this number: neither it nor any later one gets through.
fn dies_at(world: &World, number: usize, has_effect: bool) {
    world.front.fault_with(move |at, _| match at.cmp(&number) {
        std::cmp::Ordering::Less => None,
        std::cmp::Ordering::Equal if has_effect => Some(Fault::After),
        _ => Some(Fault::Before),
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_call_leaves_one_load_balancer_that_is_found_again() {
    let Some(world) = World::start().await else { return };
    for more in [", announcedBy: none", ""] {
        let mut crashes = 0;
        for number in 0..MAX_CALLS {
            for has_effect in [false, true] {
                let web = world.service(&format!("web-{number}-{has_effect}"));
                let name = world.running(more).await.balancers().name(crate::support::CLUSTER, &web);
                // The first daemon makes it, as far as it comes.
                dies_at(&world, number, has_effect);
                let died = world.running(more).await.ensure(&web).await;
                crashes += usize::from(died.as_ref().is_err_and(cloudprovider::Error::is_retryable));
                // The second one finds it.
                world.front.heal();
                let second = world.running(more).await;
                let made = second.ensure(&web).await;
                let is_done = made
                    .as_ref()
                    .map_or_else(|error| error.kind() == ErrorKind::ImplementedElsewhere, |_| true);
                assert!(is_done, "call {number}, {has_effect}: {made:?}");
                let object = world.harvester.only().await.expect("one object, never two");
                assert_eq!(object["metadata"]["name"], name);
                let address = object["status"]["allocatedAddress"]["ip"].as_str().expect("an address");
                match made {
                    Ok(status) => assert_eq!(ip(&status), address),
                    Err(_) => {
                        let changes = world.services.changes();
                        let mut mine = changes.iter().filter(|(of, _)| *of == service_ref(&web));
                        let last = mine.next_back().expect("kube-vip was told");
                        assert_eq!(
                            last.1.annotations["kube-vip.io/loadbalancerIPs"].as_deref(),
                            Some(address)
                        );
                    }
                }
                // A third one deletes it, as far as it comes, and a fourth one the rest.
                dies_at(&world, number, has_effect);
                let died = world.running(more).await.delete(&web).await;
                crashes += usize::from(died.is_err());
                world.front.heal();
                let fourth = world.running(more).await;
                fourth.delete(&web).await.expect("deleted");
                assert_eq!(fourth.get(&web).await.expect("an answer"), None);
                assert_eq!(world.harvester.only().await, None, "nothing is left");
            }
        }
        assert!(crashes > 10, "{crashes} crashes only");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_create_makes_no_second_object() {
    let Some(world) = World::start().await else { return };
    let running = world.running(", announcedBy: none").await;
    let web = world.service("web");
    let mut lost = false;
    world.front.fault_with(move |_, method| {
        let loses = *method == Method::POST && !lost;
        lost |= loses;
        loses.then_some(Fault::After)
    });
    let error = running.ensure(&web).await.expect_err("the answer is lost");
    assert!(error.is_retryable(), "{error}");
    running.ensure(&web).await.expect("it is found");
    let creates = world.front.state().calls.iter().filter(|method| **method == Method::POST).count();
    assert_eq!(creates, 1);
    assert!(world.harvester.only().await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_at_once_make_one_object() {
    let Some(world) = World::start().await else { return };
    let (one, two) = (world.running(", announcedBy: none").await, world.running(", announcedBy: none").await);
    for number in 0..5 {
        let web = world.service(&format!("web-{number}"));
        let (first, second) = tokio::join!(one.ensure(&web), two.ensure(&web));
        assert_eq!(first.expect("ensured"), second.expect("ensured"));
        assert!(world.harvester.only().await.is_some());
        let (first, second) = tokio::join!(one.delete(&web), two.delete(&web));
        first.and(second).expect("deleted");
        assert_eq!(world.harvester.only().await, None);
    }
}
