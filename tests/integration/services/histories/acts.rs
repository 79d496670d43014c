//! What can happen in a history.

use std::time::Duration;

use cloudprovider::{
    Error,
    testing::{Fault, Operation},
};
use sandbox::Matcher;

use crate::stage::{Trouble, pick};

/// How many Services and Nodes a history has at most.
const SERVICES: usize = 5;
const NODES: usize = 6;
pub(super) const DAEMONS: usize = 2;

#[derive(Clone, Debug)]
pub(super) enum Act {
    Create {
        service: usize,
        kind: &'static str,
        has_class: bool,
    },
    Delete {
        service: usize,
    },
    ChangeType {
        service: usize,
        kind: &'static str,
    },
    /// The type changes, and changes back with the class of another controller.
    TakeClass {
        service: usize,
    },
    Annotate {
        service: usize,
        value: u16,
    },
    ChangePort {
        service: usize,
        port: u16,
    },
    WipeStatus {
        service: usize,
    },
    AddNode {
        node: usize,
    },
    DeleteNode {
        node: usize,
    },
    Drain {
        node: usize,
        drains: bool,
    },
    Exclude {
        node: usize,
        value: Option<&'static str>,
    },
    Heartbeat {
        node: usize,
    },
    LoseLoadBalancer {
        service: usize,
    },
    Trouble(Trouble),
}

const KINDS: [&str; 5] = ["LoadBalancer", "LoadBalancer", "LoadBalancer", "ClusterIP", "NodePort"];

/// The next thing that happens.
pub(super) fn next(random: &mut fastrand::Rng) -> Act {
    let service = random.usize(..SERVICES);
    let node = random.usize(..NODES);
    let daemon = random.usize(..DAEMONS);
    let writes = Matcher::any().verb("patch").resource("services");
    match random.u8(..100) {
        0..16 => Act::Create { service, kind: pick(random, &KINDS), has_class: random.u8(..8) == 0 },
        16..24 => Act::Delete { service },
        24..30 => Act::ChangeType { service, kind: pick(random, &KINDS) },
        30..31 => Act::TakeClass { service },
        31..36 => Act::Annotate { service, value: random.u16(..) },
        36..40 => Act::ChangePort { service, port: random.u16(1..) },
        40..42 => Act::WipeStatus { service },
        42..49 => Act::AddNode { node },
        49..53 => Act::DeleteNode { node },
        53..57 => Act::Drain { node, drains: random.bool() },
        57..60 => {
            let values = [None, Some("true"), Some("false"), Some(""), Some("x"), Some("0")];
            Act::Exclude { node, value: pick(random, &values) }
        }
        60..62 => Act::Heartbeat { node },
        62..69 => Act::Trouble(Trouble::api_fault(random, &[writes.clone(), writes])),
        69..71 => Act::Trouble(Trouble::drop_watches(random)),
        71..78 => Act::Trouble(cloud_fault(random)),
        78..80 => Act::Trouble(Trouble::latency(random)),
        80..82 => Act::LoseLoadBalancer { service },
        82..86 => Act::Trouble(Trouble::Crash { daemon }),
        86..87 => Act::Trouble(Trouble::Stop { daemon }),
        87..89 => Act::Trouble(Trouble::freeze(random, daemon)),
        _ => Act::Trouble(Trouble::wait(random, 60.0)),
    }
}

fn cloud_fault(random: &mut fastrand::Rng) -> Trouble {
    let operations = [
        Operation::EnsureLoadBalancer,
        Operation::UpdateLoadBalancer,
        Operation::GetLoadBalancer,
        Operation::DeleteLoadBalancer,
    ];
    let later = Duration::from_secs(random.u64(1..20));
    let fault = match random.u8(..5) {
        0 => Fault::Panic,
        1 => Fault::Error(Error::in_progress(later, "still working").wrap("call")),
        2 => Fault::Error(
            Error::new(cloudprovider::ErrorKind::RateLimited, "too many").with_retry_after(later),
        ),
        _ => Fault::Error(Error::new(cloudprovider::ErrorKind::Unavailable, "the cloud is away")),
    };
    Trouble::CloudFault { operation: pick(random, &operations), fault }
}
