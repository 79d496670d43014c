//! What can happen in a history.

use std::time::Duration;

use cloudprovider::{
    Error, ErrorKind,
    testing::{Fault, Operation},
};
use sandbox::Matcher;

use crate::stage::{Trouble, pick};

/// How many machines a history has at most.
const MACHINES: usize = 4;
pub(super) const DAEMONS: usize = 2;
/// The name of the Cluster of all machines.
pub(super) const CLUSTER: &str = "prod";

#[derive(Clone, Debug)]
pub(super) enum Act {
    AddMachine {
        machine: usize,
        has_data: bool,
    },
    AddData {
        machine: usize,
    },
    DeleteMachine {
        machine: usize,
    },
    /// Somebody writes another name of a Cluster, or the right one, or none.
    Relabel {
        machine: usize,
        cluster: Option<&'static str>,
    },
    ChangeSpec {
        machine: usize,
        cpus: u32,
    },
    PauseMachine {
        machine: usize,
        is_paused: bool,
    },
    PauseCluster {
        is_paused: bool,
    },
    WipeStatus {
        machine: usize,
    },
    /// Somebody destroys the instance.
    LoseMachine {
        machine: usize,
    },
    /// Somebody deletes the object of the guest.
    LoseGuest {
        machine: usize,
    },
    /// Somebody makes a disk with the name that the machine needs.
    PutForeign {
        machine: usize,
    },
    RemoveForeign {
        machine: usize,
    },
    /// As `clusterctl move` does it: all objects get new UIDs and lose their status. They keep their finalizers.
    Move,
    FailTask,
    TaskTime(Duration),
    /// All daemons die as soon as the cloud has made this many changes.
    CrashAfter {
        changes: usize,
    },
    Trouble(Trouble),
}

/// The next thing that happens.
pub(super) fn next(random: &mut fastrand::Rng) -> Act {
    let machine = random.usize(..MACHINES);
    let daemon = random.usize(..DAEMONS);
    match random.u8(..100) {
        0..14 => Act::AddMachine { machine, has_data: random.u8(..4) > 0 },
        14..18 => Act::AddData { machine },
        18..25 => Act::DeleteMachine { machine },
        25..27 => Act::ChangeSpec { machine, cpus: random.u32(1..9) },
        27..28 => Act::Relabel { machine, cluster: pick(random, &[None, Some("other"), Some(CLUSTER)]) },
        28..31 => Act::PauseMachine { machine, is_paused: random.bool() },
        31..33 => Act::PauseCluster { is_paused: random.bool() },
        33..35 => Act::WipeStatus { machine },
        35..38 => Act::LoseMachine { machine },
        38..40 => Act::PutForeign { machine },
        40..42 => Act::RemoveForeign { machine },
        42..45 => Act::Move,
        45..48 => Act::FailTask,
        48..56 => Act::Trouble(cloud_fault(random)),
        56..58 => Act::Trouble(Trouble::latency(random)),
        58..60 => Act::TaskTime(pick(random, &[0, 1, 30, 300].map(Duration::from_secs))),
        60..68 => Act::Trouble(Trouble::api_fault(random, &own_requests())),
        68..70 => Act::Trouble(Trouble::drop_watches(random)),
        70..74 => Act::Trouble(Trouble::Crash { daemon }),
        74..79 => Act::CrashAfter { changes: random.usize(1..5) },
        79..80 => Act::Trouble(Trouble::Stop { daemon }),
        80..82 => Act::LoseGuest { machine },
        82..84 => Act::Trouble(Trouble::freeze(random, daemon)),
        _ => Act::Trouble(Trouble::wait(random, 120.0)),
    }
}

/// The requests that only this controller makes.
fn own_requests() -> [Matcher; 7] {
    let patches = Matcher::any().verb("patch").resource("fakemachines");
    [
        patches.clone(),
        patches,
        Matcher::any().verb("patch").resource("fakeclusters"),
        Matcher::any().verb("get").resource("secrets"),
        Matcher::any().verb("create").resource("fakeguests"),
        Matcher::any().verb("patch").resource("fakeguests"),
        Matcher::any().verb("delete").resource("fakeguests"),
    ]
}

fn cloud_fault(random: &mut fastrand::Rng) -> Trouble {
    let operations = [
        Operation::EnsureMachine,
        Operation::DeleteMachine,
        Operation::EnsureCluster,
        Operation::CreateDisk,
        Operation::CreateMachine,
        Operation::PowerOn,
        Operation::PowerOff,
        Operation::DestroyMachine,
        Operation::DeleteDisk,
    ];
    let later = Duration::from_secs(random.u64(1..20));
    let error = |kind: ErrorKind| Fault::Error(Error::new(kind, "the cloud has a bad day"));
    let fault = match random.u8(..8) {
        0 => Fault::Panic,
        1 => Fault::Hang,
        2 => Fault::Error(Error::new(ErrorKind::RateLimited, "too many").with_retry_after(later)),
        3 => error(ErrorKind::NotFound),
        4 => error(ErrorKind::Unauthenticated),
        5 => error(ErrorKind::Timeout),
        _ => error(ErrorKind::Unavailable),
    };
    Trouble::CloudFault { operation: pick(random, &operations), fault }
}
