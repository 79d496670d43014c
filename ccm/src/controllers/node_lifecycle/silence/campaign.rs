//! Thousands of outages of all kinds, with kubelets that behave as real ones do. No living kubelet is ever
//! judged dead, and every dead one is detected. All times are in milliseconds of simulated time.

use std::{cmp::Reverse, collections::BinaryHeap};

use fastrand::Rng;

use super::*;

const HORIZON: u64 = 20 * 60_000;
const READ_TIMEOUT: u64 = 2_000;
const OBSERVATION_INTERVAL: u64 = 125;

/// A temporary fault.
#[derive(Clone, Copy, Debug)]
struct Outage {
    begin: u64,
    end: u64,
    /// Whether requests wait until its end. If not, they fail at once.
    freezes: bool,
    refuses: Refuses,
}

/// The requests that it affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refuses {
    All,
    /// Kubelets' requests. Ours are served.
    Kubelets,
    /// Kubelets' writes, but not their reads of leases: a quota, a webhook, a full etcd.
    Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Ours,
    KubeletReads,
    KubeletWrites,
}

impl Refuses {
    fn hits(self, request: Request) -> bool {
        match self {
            Self::All => true,
            Self::Kubelets => request != Request::Ours,
            Self::Writes => request == Request::KubeletWrites,
        }
    }
}

/// The result of a request.
enum Served {
    At(u64),
    Failed,
}

struct World {
    rng: Rng,
    outages: Vec<Outage>,
    /// When each kubelet's renewals were served. The first kubelet is the candidate's.
    renewals: Vec<Vec<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reader {
    Observer,
    Candidate,
}

impl World {
    /// `dies_at`: when the candidate's kubelet stops.
    fn new(seed: u64, peers: usize, dies_at: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut outages = Vec::new();
        let mut begin = rng.u64(20_000..60_000);
        while begin < HORIZON - 300_000 {
            let length = match rng.u8(0..5) {
                0 | 4 => rng.u64(100..3_000),
                1 => rng.u64(3_000..12_000),
                2 => rng.u64(8_000..15_000),
                _ => rng.u64(10_000..120_000),
            };
            let refuses = match rng.u8(0..3) {
                1 if peers > 0 => Refuses::Kubelets,
                2 if peers > 0 => Refuses::Writes,
                _ => Refuses::All,
            };
            outages.push(Outage { begin, end: begin + length, freezes: rng.bool(), refuses });
            begin += length + rng.u64(1_000..60_000);
        }
        let mut world = Self { rng, outages, renewals: Vec::new() };
        for kubelet in 0..=peers {
            let end = if kubelet == 0 { dies_at } else { HORIZON };
            let renewals = world.kubelet(end);
            world.renewals.push(renewals);
        }
        world
    }

    fn serve(&mut self, sent: u64, request: Request) -> Served {
        let outage =
            self.outages.iter().find(|o| (o.begin..o.end).contains(&sent) && o.refuses.hits(request));
        match outage {
            None => Served::At(sent + self.rng.u64(1..20)),
            // Waiting requests are served in any order.
            Some(outage) if outage.freezes => Served::At(outage.end + self.rng.u64(1..200)),
            Some(_) => Served::Failed,
        }
    }

    /// Sends one request of a kubelet at `now`. Returns whether it was served, and advances `now` to the time
    /// when the kubelet knows.
    fn kubelet_asks(&mut self, now: &mut u64, request: Request) -> bool {
        match self.serve(*now, request) {
            Served::At(served) if served - *now <= 10_000 => {
                *now = served;
                return true;
            }
            Served::At(_) => *now += 10_000,
            Served::Failed => *now += 2,
        }
        false
    }

    /// The renewals of one kubelet. It renews as `sync` of `k8s.io/component-helpers` does: five attempts to
    /// write; if all fail, reads with pauses that grow to 7 s until one succeeds, then five more attempts to
    /// write; after these, whatever their result, the wait for the next renewal.
    fn kubelet(&mut self, end: u64) -> Vec<u64> {
        let mut renewals = Vec::new();
        let mut now = self.rng.u64(0..10_000);
        while now < end {
            let writes = |world: &mut Self, now: &mut u64| {
                (0..5).any(|_| world.kubelet_asks(now, Request::KubeletWrites))
            };
            let mut is_renewed = writes(self, &mut now);
            if !is_renewed {
                let mut pause = 100;
                while !self.kubelet_asks(&mut now, Request::KubeletReads) {
                    pause = (pause * 2).min(7_000);
                    now += pause;
                }
                is_renewed = writes(self, &mut now);
            }
            if is_renewed && now < end {
                renewals.push(now);
            }
            now += 10_000 + self.rng.u64(0..400);
        }
        renewals
    }

    /// Reads this kubelet's lease. Returns the time of the result, and the result.
    fn read(&mut self, sent: u64, kubelet: usize) -> (u64, LeaseAnswer) {
        match self.serve(sent, Request::Ours) {
            Served::At(served) if served - sent <= READ_TIMEOUT => {
                let count = self.renewals[kubelet].partition_point(|renewal| *renewal <= served);
                let duration = Duration::from_secs(40);
                let view = LeaseView { renew_time: count.to_string(), duration };
                (served + self.rng.u64(0..5), LeaseAnswer::Found(view))
            }
            Served::At(_) => (sent + READ_TIMEOUT, LeaseAnswer::NoAnswer),
            Served::Failed => (sent + 1, LeaseAnswer::NoAnswer),
        }
    }

    /// When the candidate's kubelet is judged dead.
    fn verdict(&mut self, peers: usize) -> Option<u64> {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let names: Vec<String> = (1..=peers).map(|peer| peer.to_string()).collect();
        let mut api = Availability::default();
        api.listen_to(&names);
        let (mut history, mut turn) = (None, 0);
        let mut events = BinaryHeap::from([Reverse((0, Reader::Observer)), Reverse((0, Reader::Candidate))]);
        // Reads in progress, by the time of their results.
        let mut under_way: Vec<(u64, u64, Reader, usize, LeaseAnswer)> = Vec::new();
        loop {
            let next_done = under_way.iter().map(|read| read.0).min();
            let next_sent = events.peek().map(|Reverse((time, _))| *time);
            match (next_done, next_sent) {
                (Some(done), sent) if sent.is_none_or(|sent| done <= sent) => {
                    let index = under_way.iter().position(|read| read.0 == done).unwrap_or_default();
                    let (_, sent, reader, kubelet, answer) = under_way.swap_remove(index);
                    let took = Duration::from_millis(done - sent);
                    let read = LeaseRead::fake("u", at(sent), took, answer);
                    api.note(&read);
                    if reader == Reader::Observer {
                        api.hear(&kubelet.to_string(), &read);
                        events.push(Reverse((done.max(sent + OBSERVATION_INTERVAL), reader)));
                        continue;
                    }
                    LeaseHistory::update(&mut history, &read);
                    let again = match judge(&read, history.as_ref(), ReadyStatus::Unknown, &api, true) {
                        Kubelet::Silent(_) => return Some(done),
                        Kubelet::Renews { silent_at } => silent_at.min(at(done + 5_000)),
                        Kubelet::Undecided(_, again) => again,
                        Kubelet::ReadyWithoutLease => at(done + 5_000),
                    };
                    let again = u64::try_from(again.duration_since(start).as_millis()).unwrap_or_default();
                    // The cloud is asked before the lease is read again.
                    let cloud = if self.rng.u8(0..4) == 0 { self.rng.u64(0..8_000) } else { 5 };
                    events.push(Reverse((again.max(done) + cloud, reader)));
                }
                (_, Some(sent)) => {
                    if sent > HORIZON {
                        return None;
                    }
                    let reader = events.pop().map_or(Reader::Observer, |Reverse((_, reader))| reader);
                    turn += 1;
                    let kubelet = if reader == Reader::Observer && peers > 0 { 1 + turn % peers } else { 0 };
                    let (done, answer) = self.read(sent, kubelet);
                    under_way.push((done, sent, reader, kubelet, answer));
                }
                (_, None) => return None,
            }
        }
    }
}

#[test]
fn who_lives_is_never_taken_for_dead() {
    // In the listed worlds, the only peer renews between two faults that both affect the candidate.
    for (peers, worlds) in [(0, vec![]), (1, vec![2946, 3464]), (2, vec![]), (3, vec![]), (10, vec![])] {
        for seed in (0..50).chain(worlds) {
            let mut world = World::new(seed, peers, HORIZON);
            let verdict = world.verdict(peers);
            if let Some(wrong) = verdict {
                let last = world.renewals[0].iter().rfind(|renewal| **renewal <= wrong);
                let outage = world.outages.iter().rfind(|outage| outage.begin < wrong);
                panic!("seed {seed}, {peers} peers: dead at {wrong}, renewed at {last:?}, {outage:?}");
            }
        }
    }
}

#[test]
fn who_dies_is_found_out() {
    // After the outages, all kubelets renew at nearly the same time.
    for (peers, most) in [(0, 20_000), (1, 60_000), (2, 60_000), (3, 35_000), (10, 35_000)] {
        let mut took = 0;
        for seed in 0..10 {
            let dies_at = HORIZON - 200_000;
            let verdict = World::new(seed, peers, dies_at).verdict(peers);
            let verdict = verdict.expect("it is dead");
            assert!(verdict > dies_at && verdict < dies_at + 90_000, "seed {seed}, {peers} peers: {verdict}");
            took += verdict - dies_at;
        }
        assert!(took / 10 < most, "{peers} peers: {} ms", took / 10);
    }
}
