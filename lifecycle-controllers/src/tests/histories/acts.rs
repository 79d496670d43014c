//! What can happen in a history.

use std::time::Duration;

use super::super::line::Side;

/// The most Machines that a deployment wants.
const MOST: i64 = 4;

#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Scale(i64),
    /// Each of these two changes replaces all Machines.
    Version(u8),
    Template(&'static str),
    /// No Machine is replaced for it.
    Label(u8),
    RollingUpdate {
        surge: u8,
        unavailable: u8,
    },
    OnDelete,
    Order(&'static str),
    PauseRollout(bool),
    PauseDeployment(bool),
    PauseCluster(bool),
    DeleteDeployment,
    DeleteSet(usize),
    DeleteMachine(usize),
    /// A user or an autoscaler chooses the Machine that goes next.
    Mark(usize),
    /// The machine is gone, and its Node too if the cloud says so.
    Lose {
        machine: usize,
        node_goes: bool,
    },
    Ready {
        machine: usize,
        is_ready: bool,
    },
    HealthCheck(bool),
    Hold(bool),
    SlowProvider(Duration),
    BadRequests(bool),
    DropWatches {
        with_history: bool,
    },
    /// Watches of a kind show nothing for this time.
    LateWatch(&'static str, Duration),
    Crash,
    /// The daemon dies with its next writes.
    CrashAfter {
        writes: usize,
        side: Side,
    },
    /// The term of the daemon is over. It goes on, but writes nothing any more, and another one works.
    Succeed,
    /// As `clusterctl move` does it.
    Move,
    Wait,
}

impl Act {
    /// Whether the daemon may not learn of something for a while.
    pub(super) fn makes_blind(self) -> bool {
        matches!(
            self,
            Self::BadRequests(true)
                | Self::DropWatches { .. }
                | Self::LateWatch(..)
                | Self::Crash
                | Self::CrashAfter { .. }
                | Self::Succeed
                | Self::Move
        )
    }
}

fn pick<T: Copy>(random: &mut fastrand::Rng, of: &[T]) -> T {
    of[random.usize(..of.len())]
}

/// The next thing that happens.
pub(super) fn next(random: &mut fastrand::Rng) -> Act {
    let machine = random.usize(..8);
    match random.u8(..100) {
        0..14 => Act::Scale(random.i64(0..=MOST)),
        14..26 => Act::Version(random.u8(1..5)),
        26..29 => Act::Template(pick(random, &["t", "t2"])),
        29..32 => Act::Label(random.u8(1..4)),
        32..35 => {
            let (surge, unavailable) =
                pick(random, &[(0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (0, 2), (0, 0)]);
            Act::RollingUpdate { surge, unavailable }
        }
        35..37 => Act::OnDelete,
        37..38 => Act::Order(pick(random, &["Random", "Newest", "Oldest"])),
        38..40 => Act::PauseRollout(random.bool()),
        40..42 => Act::PauseDeployment(random.bool()),
        42..46 => Act::PauseCluster(random.bool()),
        46..48 => Act::DeleteDeployment,
        48..50 => Act::DeleteSet(random.usize(..3)),
        50..56 => Act::DeleteMachine(machine),
        56..58 => Act::Mark(machine),
        58..62 => Act::Lose { machine, node_goes: random.bool() },
        62..66 => Act::Ready { machine, is_ready: random.u8(..3) == 0 },
        66..70 => Act::HealthCheck(random.u8(..4) > 0),
        70..73 => Act::Hold(random.bool()),
        73..75 => Act::SlowProvider(Duration::from_millis(pick(random, &[0, 700, 5000]))),
        75..79 => Act::BadRequests(random.u8(..4) > 0),
        79..81 => Act::DropWatches { with_history: random.bool() },
        81..86 => {
            let kinds = [
                "machines",
                "machinesets",
                "machinedeployments",
                "fakemachines",
                "fakeconfigs",
                "nodes",
                "clusters",
            ];
            Act::LateWatch(pick(random, &kinds), Duration::from_secs(random.u64(1..16)))
        }
        86..89 => Act::Crash,
        89..94 => {
            Act::CrashAfter { writes: random.usize(..12), side: pick(random, &[Side::Before, Side::After]) }
        }
        94..96 => Act::Succeed,
        96..98 => Act::Move,
        _ => Act::Wait,
    }
}

/// How long it takes until the next thing happens.
pub(super) fn pause(random: &mut fastrand::Rng) -> Duration {
    match random.u8(..8) {
        0..2 => Duration::ZERO,
        2..4 => Duration::from_millis(random.u64(..2000)),
        4..7 => Duration::from_millis(random.u64(..30_000)),
        _ => Duration::from_secs(random.u64(30..200)),
    }
}
