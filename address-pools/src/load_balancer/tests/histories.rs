//! Random histories of one daemon against a model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const POOLS: &str = r#"{"pools": [
    {"name": "main", "addresses": ["10.0.0.1-10.0.0.4"]},
    {"name": "fixed", "addresses": ["10.0.1.1-10.0.1.3"], "autoAssign": false}]}"#;

#[derive(Clone, Debug)]
enum Step {
    /// A Service comes or changes, with this wish.
    Ensure(u8, Option<u8>),
    Delete(u8),
    /// The daemon dies, and another one starts.
    Restart,
    /// The term ends, and another one begins in the same daemon.
    EndTerm,
    /// Somebody removes a Service with its finalizer.
    Force(u8),
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wish = prop::option::of(1_u8..4);
    let step = prop_oneof![
        6 => (0_u8..6, wish).prop_map(|(service, wish)| Step::Ensure(service, wish)),
        3 => (0_u8..6).prop_map(Step::Delete),
        1 => Just(Step::Restart),
        1 => Just(Step::EndTerm),
        1 => (0_u8..6).prop_map(Step::Force),
        1 => Just(Step::Sweep),
    ];
    prop::collection::vec(step, 1..40)
}

fn name(number: u8) -> String {
    format!("s{number}")
}

fn wanting(number: u8, wish: Option<u8>) -> LoadBalancerService {
    let service = service(&name(number));
    match wish {
        Some(last) => annotated(service, &[(KUBE_VIP_IPS, &format!("10.0.1.{last}"))]),
        None => service,
    }
}

async fn run(steps: Vec<Step>) {
    let cluster = FakeServiceAccess::new();
    let mut daemon = Daemon::start(&cluster, POOLS);
    // What each Service holds, and which Services are there.
    let mut model: BTreeMap<u8, IpAddr> = BTreeMap::new();
    let mut there: BTreeSet<u8> = BTreeSet::new();
    for step in steps {
        match step {
            Step::Ensure(number, wish) => {
                there.insert(number);
                cluster.add_service(service_ref(&name(number)));
                let others = model.iter().filter(|(other, _)| **other != number);
                let taken: BTreeSet<IpAddr> = others.map(|(_, address)| *address).collect();
                let gone: BTreeSet<IpAddr> = model
                    .iter()
                    .filter(|(other, _)| !there.contains(other))
                    .map(|(_, address)| *address)
                    .collect();
                let had = model.get(&number).copied();
                match daemon.ensure(&wanting(number, wish)).await {
                    Ok(status) => {
                        let address = addresses_of(&status)[0];
                        // Only what is free, or was held by one that is gone.
                        assert!(!taken.contains(&address) || gone.contains(&address), "{address}");
                        match (wish, had) {
                            (Some(last), _) => assert_eq!(address, ip(&format!("10.0.1.{last}"))),
                            (None, Some(had)) => assert_eq!(address, had, "an address that is kept"),
                            (None, None) => assert!(address < ip("10.0.1.0"), "{address}"),
                        }
                        if gone.contains(&address) {
                            // A sweep made room, and released everything of those that are gone.
                            model.retain(|number, _| there.contains(number));
                        }
                        model.insert(number, address);
                    }
                    Err(error) => match wish {
                        Some(last) => {
                            assert!(taken.contains(&ip(&format!("10.0.1.{last}"))), "{}", error.report());
                        }
                        None => assert!(
                            (1..=4).all(|last| taken.contains(&ip(&format!("10.0.0.{last}")))),
                            "{}",
                            error.report()
                        ),
                    },
                }
            }
            Step::Delete(number) => {
                daemon.delete(&wanting(number, None)).await.expect("deleted");
                cluster.remove_service(&name(number));
                there.remove(&number);
                model.remove(&number);
            }
            Step::Restart => daemon = Daemon::start(&cluster, POOLS),
            Step::EndTerm => cluster.end_term().await,
            Step::Force(number) => {
                cluster.remove_service(&name(number));
                there.remove(&number);
            }
            Step::Sweep => {
                daemon.get(&service("none")).await;
                for _ in 0..2 {
                    daemon.sweep().await;
                }
                model.retain(|number, _| there.contains(number));
            }
        }
        let stored: BTreeMap<u8, IpAddr> = cluster
            .stored_claims()
            .values()
            .map(|claim| (claim.holders[0].service.uid[1..].parse().expect("a number"), claim.address))
            .collect();
        // A sweep that made room for nobody may have released what those held that are gone.
        model.retain(|number, _| there.contains(number) || stored.contains_key(number));
        assert_eq!(stored, model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn claims_are_what_the_model_says(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(run(steps));
    }
}
