//! Two daemons that both believe that they lead.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream::FuturesUnordered};

use super::*;
use crate::{SHARING_KEY, testing::port};

const POOL: &str =
    r#"{"pools": [{"name": "main", "addresses": ["10.0.0.1-10.0.0.8"], "allowSharing": true}]}"#;

async fn wait_a_little(mut steps: u8) {
    while steps > 0 {
        tokio::task::yield_now().await;
        steps -= 1;
    }
}

/// A Service; some share by a key.
fn one_of(random: &mut fastrand::Rng, number: usize) -> LoadBalancerService {
    let name = format!("s{number}");
    let mut wanted = LoadBalancerService { ports: vec![port(random.u16(80..82))], ..service(&name) };
    if number.is_multiple_of(3) {
        wanted = annotated(wanted, &[(SHARING_KEY, "web")]);
    }
    if random.u8(0..4) == 0 {
        let address = format!("10.0.0.{}", random.u8(1..9));
        wanted = annotated(wanted, &[(KUBE_VIP_IPS, &address)]);
    }
    wanted
}

/// Checks that no address has two holders that do not share it.
fn check(cluster: &FakeServiceAccess, seed: u64) {
    for (address, claim) in cluster.stored_claims() {
        for (at, one) in claim.holders.iter().enumerate() {
            for other in &claim.holders[at + 1..] {
                let share = one.sharing_key.is_some() && one.sharing_key == other.sharing_key;
                let is_free = one.ports.iter().all(|port| !other.ports.contains(port));
                assert!(share && is_free, "seed {seed}: {address} {:?}", claim.holders);
                assert_ne!(one.service, other.service, "seed {seed}: {address}");
            }
        }
    }
}

async fn history(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let cluster = FakeServiceAccess::new();
    let daemons = [Daemon::start(&cluster, POOL), Daemon::start(&cluster, POOL)];
    let mut busy: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut running = FuturesUnordered::new();
    for _ in 0..60 {
        let (daemon, number) = (random.usize(0..2), random.usize(0..10));
        // A daemon never works on one Service twice at once.
        if busy.insert((daemon, number)) {
            let wanted = one_of(&mut random, number);
            cluster.add_service(service_ref(&wanted.name));
            let (deletes, waits, daemons) = (random.u8(0..3) == 0, random.u8(0..6), &daemons);
            running.push(async move {
                wait_a_little(waits).await;
                let daemon_of = &daemons[daemon];
                if deletes {
                    let _ = daemon_of.delete(&wanted).await;
                } else if let Ok(status) = daemon_of.ensure(&wanted).await {
                    assert_eq!(addresses_of(&status).len(), 1);
                }
                (daemon, number)
            });
        }
        if random.u8(0..2) == 0
            && let Some(done) = running.next().await
        {
            busy.remove(&done);
        }
        check(&cluster, seed);
    }
    while running.next().await.is_some() {
        check(&cluster, seed);
    }
    drop(running);
    // All Services go. The daemon that leads then leaves nothing behind.
    for number in 0..10 {
        cluster.remove_service(&format!("s{number}"));
    }
    let last = Daemon::start(&cluster, POOL);
    assert_eq!(last.get(&service("none")).await, None);
    last.sweep().await;
    assert!(cluster.stored_claims().is_empty(), "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn never_hand_out_one_address_twice() {
    for seed in 0..400 {
        history(seed).await;
    }
}
