//! Random histories: whatever happens, in the end each Node has the routes that it may have, and nobody else's route is touched.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider::{Error, ErrorKind, testing::Fault};
use ipnet::IpNet;
use sandbox::{Action, Fault as ApiFault};

use super::*;

/// How many histories are among the tests, and the variable that says how many there are to be.
const FEW: u64 = 60;
const COUNT: &str = "CCM_ROUTE_HISTORIES";

/// How much happens in each.
const STEPS: usize = 40;

/// Nodes that come and go.
const NODES: usize = 8;

/// The CIDRs of Nodes that are after the traffic of others: around those of several, a part, the same, the whole range, and outside of it.
const HOSTILE: [&str; 6] =
    ["10.0.0.0/22", "10.0.6.128/25", "10.0.2.0/24", "10.0.0.0/8", "192.0.2.0/24", "8.0.0.0/6"];

/// What happens in a history.
struct History {
    random: fastrand::Rng,
    cluster: Cluster,
    controller: JoinHandle<()>,
    /// The numbers of the Nodes that exist.
    there: BTreeSet<usize>,
    /// The numbers of the hostile Nodes that exist.
    hostile: BTreeSet<usize>,
    /// Routes of another cluster, by their CIDRs.
    foreign: BTreeSet<String>,
}

impl History {
    fn begin(seed: u64) -> Self {
        let cluster = Cluster::new();
        let (controller, _) = cluster.start_with(PERIOD, false);
        let random = fastrand::Rng::with_seed(seed);
        Self {
            random,
            cluster,
            controller,
            there: BTreeSet::new(),
            hostile: BTreeSet::new(),
            foreign: BTreeSet::new(),
        }
    }

    fn crash(&mut self) {
        self.controller.abort();
        self.controller = self.cluster.start_with(PERIOD, false).0;
    }

    fn cloud_fault(&mut self) -> Fault {
        let error = Error::new(ErrorKind::Unavailable, "away");
        match self.random.u8(0..5) {
            0 => Fault::Panic,
            1 => Fault::Hang,
            2 => error.with_retry_after(Duration::from_secs(self.random.u64(0..60))).into(),
            _ => error.into(),
        }
    }

    fn api_fault(&mut self) -> ApiFault {
        let patches = Matcher::any().verb("patch").resource("nodes").subresource("status");
        let action = match self.random.u8(0..4) {
            0 => Action::LoseResponse,
            1 => Action::Conflict,
            2 => Action::ResetConnection,
            _ => Action::InternalError,
        };
        ApiFault::new(patches, action).times(self.random.u64(1..4))
    }

    async fn step(&mut self) {
        let index = self.random.usize(0..NODES);
        match self.random.u8(0..23) {
            0..=6 => {
                if self.there.insert(index) {
                    self.cluster.register(index).await;
                } else {
                    self.there.remove(&index);
                    self.cluster.delete(index).await;
                }
            }
            7..=8 if self.there.contains(&index) => {
                let address = format!("10.200.0.{}", self.random.u8(..));
                // A fault that is meant for the controller may meet this write.
                let _ = self.cluster.try_set_address(index, &address).await;
            }
            9..=12 => {
                let operations = [Operation::ListRoutes, Operation::CreateRoute, Operation::DeleteRoute];
                let operation = operations[self.random.usize(0..operations.len())];
                let fault = self.cloud_fault();
                self.cluster.fake.fail_next(operation, fault);
            }
            13 => {
                let fault = self.api_fault();
                self.cluster.sandbox.faults().inject(fault);
            }
            14 => self.crash(),
            // An old route, perhaps with the CIDR of a Node, and one of somebody else.
            15 => {
                let cidr = cidr(self.random.usize(0..NODES + 2));
                if self.cluster.fake.routes().iter().all(|route| route.destination_cidr != cidr) {
                    self.cluster.fake.put_route("c", route("gone", &cidr));
                }
            }
            16 => {
                let cidr = format!("192.168.{}.0/24", self.random.u8(..));
                if self.foreign.insert(cidr.clone()) {
                    self.cluster.fake.put_route("other", route("gone", &cidr));
                }
            }
            // What an earlier version made of a Node outside of the range.
            19 => {
                let cidr = format!("172.16.{}.0/24", self.random.u8(..));
                if self.cluster.fake.routes().iter().all(|route| route.destination_cidr != cidr) {
                    let target = ["gone", "n1", "z4"][self.random.usize(0..3)];
                    self.cluster.fake.put_route("c", route(target, &cidr));
                }
            }
            20..=21 => {
                let number = self.random.usize(0..HOSTILE.len());
                let name = format!("z{number}");
                if self.hostile.insert(number) {
                    self.cluster.register_with(&name, HOSTILE[number]).await;
                } else {
                    self.hostile.remove(&number);
                    self.cluster.delete_named(&name).await;
                }
            }
            17 => self.cluster.sandbox.faults().drop_watches(),
            18 => self.cluster.fake.set_latency(Duration::from_millis(self.random.u64(0..3000))),
            _ => {}
        }
        sleep(Duration::from_millis(self.random.u64(0..2000))).await;
    }

    /// The Nodes with their CIDRs, and whether they may have a route.
    async fn nodes(&self) -> BTreeMap<String, (String, bool)> {
        let range: IpNet = "10.0.0.0/8".parse().expect("a range");
        let listed = self.cluster.api().list(&ListParams::default()).await.expect("Nodes").items;
        let mut nodes: Vec<_> = listed
            .into_iter()
            .map(|node| {
                let cidr = node.spec.and_then(|spec| spec.pod_cidr).expect("a CIDR");
                let network: IpNet = cidr.parse().expect("a CIDR");
                let name = node.metadata.name.expect("a name");
                (network == range, node.metadata.creation_timestamp.map(|time| time.0), name, cidr, network)
            })
            .collect();
        nodes.sort();
        let mut granted: Vec<IpNet> = Vec::new();
        let mut decided = BTreeMap::new();
        for (_, _, name, cidr, network) in nodes {
            let is_free = !granted.iter().any(|other| other.contains(&network) || network.contains(other));
            let is_right = range.contains(&network) && is_free;
            granted.extend(is_right.then_some(network));
            decided.insert(name, (cidr, is_right));
        }
        decided
    }

    async fn end(self, seed: u64) {
        self.cluster.fake.mend();
        self.cluster.fake.set_latency(Duration::ZERO);
        self.cluster.sandbox.faults().clear();
        // A provider may have asked for a minute's wait, and a period repairs what nothing else tells.
        sleep(PERIOD + Duration::from_secs(70)).await;
        let nodes = self.nodes().await;
        assert_eq!(nodes.len(), self.there.len() + self.hostile.len(), "history {seed}");
        let right = nodes.iter().filter(|(_, (_, is_right))| *is_right);
        let ours = right.map(|(name, (cidr, _))| (name.clone(), cidr.clone()));
        let foreign = self.foreign.iter().map(|cidr| ("gone".to_owned(), cidr.clone()));
        let mut expected: Vec<_> = ours.chain(foreign).collect();
        expected.sort();
        assert_eq!(self.cluster.routes(), expected, "history {seed}");
        for (name, (_, is_right)) in &nodes {
            let expected = if *is_right { "False RouteCreated" } else { "True NoRouteCreated" };
            assert_eq!(self.cluster.condition_of(name).await.0, expected, "history {seed}, {name}");
        }
        self.cluster.fake.forget_calls();
        sleep(PERIOD).await;
        self.cluster.made(1, 0, 0);
        self.controller.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn in_the_end_everything_is_right() {
    let count = std::env::var(COUNT).ok().map_or(FEW, |text| text.parse().expect("a number"));
    for seed in 0..count {
        let mut history = History::begin(seed);
        for _ in 0..STEPS {
            history.step().await;
        }
        history.end(seed).await;
    }
}
