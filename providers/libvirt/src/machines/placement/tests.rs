use jiff::Timestamp;
use tokio::sync::{broadcast, watch};
use uuid::Uuid;

use cloudprovider::{ErrorKind, PowerState};

use super::*;
use crate::{
    Config,
    calls::Failure,
    domain::{DomainMetadata, DomainState},
    hypervisor::{ProviderState, Status},
    inventory::Listing,
};

const SIZE: Size = Size { cpus: 8, memory_mib: 16_384 };

fn domain(n: u8, power: PowerState, cluster: &str, role: &str) -> Domain {
    let metadata = DomainMetadata {
        cluster: Some(cluster.into()),
        role: Some(role.into()),
        ..DomainMetadata::default()
    };
    Domain {
        vcpus: 2,
        memory_mib: 2048,
        metadata: Some(Box::new(metadata)),
        state: Ok(DomainState { power }),
        ..Domain::unreadable(Uuid::from_u128(n.into()), format!("d{n}"), String::new())
    }
}

/// What [`gather`] makes of a hypervisor `h` in this state.
fn gathered(status: Status, size: Result<Size, String>, domains: Vec<Domain>) -> HypervisorLoad {
    let text = "hypervisors: [{name: h, uri: 'qemu+tls://h/system', zone: z}]";
    let config = Arc::new(Config::parse(text, None).expect("valid"));
    let shared = ProviderState::new(Arc::clone(&config), watch::channel(0).0, broadcast::channel(1).0);
    let (hypervisor, _) = Hypervisor::new(config.hypervisors[0].clone(), shared);
    hypervisor.set_status(status, |state| {
        state.inventory.replace(Listing { domains, ..Listing::default() });
        state.size = size;
    });
    let mark = Mark::machine("u", "default", "prod", "node");
    gather(&[hypervisor], &mark).pop().expect("one hypervisor")
}

#[test]
fn every_domain_counts_whether_it_runs_or_not() {
    let domains = vec![
        domain(1, PowerState::Running, "prod", "control-plane"),
        domain(2, PowerState::Off, "prod", "worker"),
        domain(3, PowerState::Crashed, "test", "worker"),
        Domain { metadata: None, ..domain(4, PowerState::Paused, "", "") },
    ];
    let mut host = gathered(Status::Live, Ok(SIZE), domains);
    assert_eq!((host.name.as_str(), host.failure_domain.as_str(), host.total), ("h", "z", Ok(SIZE)));
    host.residents.sort_by_key(|one| one.domain);
    assert!(host.residents.iter().all(|one| one.size == Size { cpus: 2, memory_mib: 2048 }));
    let kin: Vec<_> = host.residents.iter().map(|one| one.kin).collect();
    assert_eq!(kin, [Kin::ControlPlane, Kin::Worker, Kin::Stranger, Kin::Stranger]);
}

#[test]
fn what_is_not_known_takes_no_machine() {
    let why = |host: HypervisorLoad| host.total.expect_err("not usable");
    let failure = Failure { kind: ErrorKind::Unavailable, message: "refused".into(), lost: true, code: None };
    let down = Status::Disconnected { since: Timestamp::UNIX_EPOCH, failure };
    let lost = gathered(down, Ok(SIZE), vec![domain(1, PowerState::Running, "prod", "worker")]);
    assert_eq!(lost.residents.len(), 1, "they still count when machines are spread");
    assert_eq!(why(lost), "hypervisor \"h\" has been unreachable since 1970-01-01T00:00:00Z: refused");
    assert_eq!(why(gathered(Status::Starting, Ok(SIZE), vec![])), "hypervisor \"h\" has not answered yet");
    assert_eq!(
        why(gathered(Status::Live, Err("node_info: denied".into()), vec![])),
        "hypervisor \"h\" does not tell its CPUs and memory: node_info: denied"
    );
    let unread = Domain::unreadable(Uuid::from_u128(9), "secret".into(), "denied".into());
    assert_eq!(
        why(gathered(Status::Live, Ok(SIZE), vec![unread])),
        "hypervisor \"h\" has a domain \"secret\" that cannot be read"
    );
    let was_read = Domain { state: Err("denied".into()), ..domain(1, PowerState::Off, "prod", "worker") };
    assert!(gathered(Status::Live, Ok(SIZE), vec![was_read]).total.is_ok(), "its size is known");
}
