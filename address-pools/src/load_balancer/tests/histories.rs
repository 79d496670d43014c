//! Random histories of one daemon against a model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// The pools, where the daemon writes the status, and where another component does.
const POOLS: [&str; 2] = [
    r#"{"pools": [
        {"name": "main", "addresses": ["10.0.0.1-10.0.0.4"]},
        {"name": "fixed", "addresses": ["10.0.1.1-10.0.1.3"], "autoAssign": false}]}"#,
    r#"{"announcedBy": "metallb", "pools": [
        {"name": "main", "addresses": ["10.0.0.1-10.0.0.4"]},
        {"name": "fixed", "addresses": ["10.0.1.1-10.0.1.3"], "autoAssign": false}]}"#,
];

#[derive(Clone, Debug)]
enum Step {
    /// A Service comes or changes, with this wish.
    Ensure(u8, Option<u8>),
    /// The status of a Service shows what it got last.
    Show(u8),
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
        4 => (0_u8..6).prop_map(Step::Show),
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

/// A Service as the model knows it.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Whether it is there. One that somebody removed by force may hold addresses.
    is_there: bool,
    /// What it got last.
    address: Option<IpAddr>,
    /// What its status shows.
    shown: Option<IpAddr>,
    /// What it holds.
    held: BTreeSet<IpAddr>,
}

struct History {
    cluster: FakeServiceAccess,
    pools: &'static str,
    daemon: Daemon,
    model: BTreeMap<u8, Known>,
}

impl History {
    fn new(pools: &'static str) -> Self {
        let cluster = FakeServiceAccess::new();
        let daemon = Daemon::start(&cluster, pools);
        Self { cluster, pools, daemon, model: BTreeMap::new() }
    }

    fn service(&self, number: u8, wish: Option<u8>) -> LoadBalancerService {
        let mut service = service(&name(number));
        if let Some(shown) = self.model.get(&number).and_then(|known| known.shown) {
            let ip = Some(shown.to_string());
            service.status.ingress = vec![LoadBalancerIngress { ip, ..LoadBalancerIngress::default() }];
        }
        match wish {
            Some(last) => annotated(service, &[(KUBE_VIP_IPS, &format!("10.0.1.{last}"))]),
            None => service,
        }
    }

    /// What others hold: those that are there, and those that are gone.
    fn taken(&self, number: u8) -> [BTreeSet<IpAddr>; 2] {
        [true, false].map(|is_there| {
            let others =
                self.model.iter().filter(|(other, known)| **other != number && known.is_there == is_there);
            others.flat_map(|(_, known)| known.held.iter().copied()).collect()
        })
    }

    async fn ensure(&mut self, number: u8, wish: Option<u8>) {
        self.cluster.add_service(service_ref(&name(number)));
        self.model.entry(number).or_default().is_there = true;
        let [taken, of_gone] = self.taken(number);
        let before = self.model[&number].clone();
        let outcome = self.daemon.ensure(&self.service(number, wish)).await;
        let Some(address) = address_of(&outcome) else {
            let is_taken = |address: IpAddr| taken.contains(&address) || of_gone.contains(&address);
            let is_full = match wish {
                Some(last) => is_taken(IpAddr::from([10, 0, 1, last])),
                None => (1..=4).all(|last| is_taken(IpAddr::from([10, 0, 0, last]))),
            };
            assert!(is_full, "{outcome:?}");
            return;
        };
        // Only what is free, or was held by one that is gone.
        assert!(!taken.contains(&address), "{address}");
        match wish {
            Some(last) => assert_eq!(address, IpAddr::from([10, 0, 1, last])),
            // Of several the one that clients know.
            None if before.shown.is_some() => assert_eq!(Some(address), before.shown),
            None if before.held.is_empty() => assert!(address < ip("10.0.1.0"), "{address}"),
            None => assert!(before.held.contains(&address), "{address}"),
        }
        let known = self.model.entry(number).or_default();
        known.address = Some(address);
        // What the status shows is not given back.
        known.held = known.shown.into_iter().chain([address]).collect();
    }

    fn gone(&mut self, number: u8) {
        self.cluster.remove_service(&name(number));
        if let Some(known) = self.model.get_mut(&number) {
            *known = Known { held: std::mem::take(&mut known.held), ..Known::default() };
        }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Ensure(number, wish) => self.ensure(number, wish).await,
            Step::Show(number) => {
                if let Some(known) = self.model.get_mut(&number).filter(|known| known.is_there) {
                    known.shown = known.address;
                }
            }
            Step::Delete(number) => {
                self.daemon.delete(&self.service(number, None)).await.expect("deleted");
                self.gone(number);
                self.model.remove(&number);
            }
            Step::Restart => self.daemon = Daemon::start(&self.cluster, self.pools),
            Step::EndTerm => self.cluster.end_term().await.expect("all released"),
            Step::Force(number) => self.gone(number),
            Step::Sweep => {
                self.daemon.get(&service("none")).await;
                for _ in 0..2 {
                    self.daemon.sweep().await;
                }
                self.model.retain(|_, known| known.is_there);
            }
        }
        let shown =
            self.model.iter().filter_map(|(number, known)| Some((service_ref(&name(*number)), known.shown?)));
        self.cluster.set_assigned(shown.collect());
    }

    /// Compares what is stored with the model.
    fn check(&mut self) {
        let mut stored: BTreeMap<u8, BTreeSet<IpAddr>> = BTreeMap::new();
        for claim in self.cluster.stored_claims().into_values() {
            assert_eq!(claim.holders.len(), 1, "{claim:?}");
            let number = claim.holders[0].service.uid[1..].parse().expect("a number");
            stored.entry(number).or_default().insert(claim.address);
        }
        // To make room for others, what those held that are gone may have been released: all of it, or nothing.
        self.model.retain(|number, known| known.is_there || stored.contains_key(number));
        let model = self.model.iter().filter(|(_, known)| !known.held.is_empty());
        let model: BTreeMap<u8, BTreeSet<IpAddr>> =
            model.map(|(number, known)| (*number, known.held.clone())).collect();
        assert_eq!(stored, model);
    }
}

/// The address that a Service got, whoever writes the status.
fn address_of(outcome: &Result<LoadBalancerStatus>) -> Option<IpAddr> {
    match outcome {
        Ok(status) => addresses_of(status).first().copied(),
        Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => {
            let words = error.to_string();
            let address = words.strip_prefix("metallb announces ")?.split(' ').next()?;
            address.parse().ok()
        }
        Err(_) => None,
    }
}

async fn run(steps: Vec<Step>, pools: &'static str) {
    let mut history = History::new(pools);
    for step in steps {
        history.take(step).await;
        history.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn claims_are_what_the_model_says(steps in steps()) {
        for pools in POOLS {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
            runtime.expect("a runtime").block_on(run(steps.clone(), pools));
        }
    }
}
