//! Tests of matching with hypervisors in various states, without libvirt.

use proptest::prelude::*;
use tokio::sync::{broadcast, watch};

use super::*;
use crate::{
    calls::Failure,
    config::Config,
    domain::{DomainState, NicSource},
    hypervisor::ProviderState,
    inventory::Listing,
    mac::Mac,
};

/// A domain's number, its name, and its power state.
type Spec<'a> = (u8, &'a str, PowerState);

use PowerState::{Off, Paused, Running};

fn uuid(number: u8) -> Uuid {
    Uuid::from_bytes([number, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, number])
}

fn domain((number, name, power): Spec<'_>) -> Domain {
    Domain {
        uuid: uuid(number),
        name: name.to_owned(),
        vcpus: 2,
        memory_mib: 4096,
        nics: vec![Nic {
            mac: Mac::parse(&format!("52:54:00:00:00:{number:02x}")).expect("valid"),
            source: NicSource::Other,
        }],
        agent: AgentChannel::None,
        metadata: None,
        state: Ok(DomainState { power }),
    }
}

fn down() -> Status {
    let failure = Failure {
        kind: ErrorKind::Unavailable,
        message: "connect: refused".to_owned(),
        lost: true,
        code: None,
    };
    Status::Disconnected { since: Timestamp::UNIX_EPOCH, failure }
}

/// Hypervisors `h0`, `h1`, ... in these states, with these domains in their inventories.
fn cloud(hosts: &[(Status, &[Spec<'_>])]) -> Vec<Arc<Hypervisor>> {
    let list: Vec<_> =
        (0..hosts.len()).map(|i| format!("{{name: h{i}, uri: 'qemu+tls://h{i}/system'}}")).collect();
    let config = Arc::new(Config::parse(&format!("hypervisors: [{}]", list.join(",")), None).expect("valid"));
    let shared = ProviderState::new(Arc::clone(&config), watch::channel(0).0, broadcast::channel(1).0);
    hosts
        .iter()
        .zip(&config.hypervisors)
        .map(|((status, domains), one)| {
            let (hypervisor, _) = Hypervisor::new(one.clone(), shared.clone());
            let snapshot =
                Listing { domains: domains.iter().map(|spec| domain(*spec)).collect(), ..Listing::default() };
            hypervisor.set_status(status.clone(), |state| {
                state.inventory.replace(snapshot);
                state.is_listed = !matches!(status, Status::Starting);
            });
            hypervisor
        })
        .collect()
}

fn ask(hosts: &[(Status, &[Spec<'_>])], node: &NodeIdentity) -> String {
    ask_cloud(&cloud(hosts), node)
}

fn ask_cloud(hypervisors: &[Arc<Hypervisor>], node: &NodeIdentity) -> String {
    let rules = AddressRules::default();
    match View::new(hypervisors, &rules, &LastSeen::default()).resolve(node) {
        Resolution::Settled(InstanceLookup::Present(instance)) => {
            format!("{} {}", instance.provider_id.as_ref().expect("an ID"), instance.power_state)
        }
        Resolution::Settled(InstanceLookup::Absent) => "absent".to_owned(),
        Resolution::Settled(InstanceLookup::Unknown(error)) => format!("{}: {error}", error.kind()),
        Resolution::NotListed => "nowhere".to_owned(),
        Resolution::Starting(error) => format!("starting: {error}"),
    }
}

fn by_id(number: u8) -> NodeIdentity {
    NodeIdentity {
        name: "node".to_owned(),
        provider_id: Some(format_provider_id(uuid(number)).as_str().to_owned()),
        ..NodeIdentity::default()
    }
}

fn by_name(name: &str, system_uuid: Option<Uuid>) -> NodeIdentity {
    NodeIdentity {
        name: name.to_owned(),
        system_uuid: system_uuid.map(|uuid| uuid.to_string()),
        ..NodeIdentity::default()
    }
}

/// A node as the kubelet describes it on a machine without DMI.
fn without_firmware(name: &str, machine_id: Uuid) -> NodeIdentity {
    let machine_id = machine_id.simple().to_string();
    NodeIdentity {
        system_uuid: Some(machine_id.clone()),
        machine_id: Some(machine_id),
        ..by_name(name, None)
    }
}

fn present(number: u8, power: PowerState) -> String {
    format!("{} {power}", format_provider_id(uuid(number)))
}

#[test]
fn a_domain_that_was_last_seen_on_a_lost_hypervisor_is_unknown() {
    let hosts: [(Status, &[Spec<'_>]); 2] =
        [(Status::Live, &[(1, "a", Running)]), (down(), &[(2, "b", Running)])];
    assert_eq!(ask(&hosts, &by_id(1)), present(1, Running));
    assert_eq!(
        ask(&hosts, &by_id(2)),
        "unavailable: domain \"b\" was last seen there: hypervisor \"h1\" has been unreachable since \
         1970-01-01T00:00:00Z: connect: refused"
    );
    assert!(ask(&hosts, &by_id(3)).starts_with("unavailable: cannot tell whether there is a domain"));
}

#[test]
fn nowhere_takes_all_of_them() {
    let none: &[Spec<'_>] = &[];
    assert_eq!(ask(&[(Status::Live, none), (Status::Live, none)], &by_id(1)), "nowhere");
    assert!(ask(&[(Status::Live, none), (down(), none)], &by_id(1)).starts_with("unavailable"));
    assert!(ask(&[(Status::Live, none), (Status::Starting, none)], &by_id(1)).starts_with("starting"));
}

#[test]
fn one_uuid_on_two_hypervisors() {
    let pair =
        |a, b, second: Status| ask(&[(Status::Live, &[(1, "a", a)]), (second, &[(1, "a", b)])], &by_id(1));
    assert_eq!(pair(Running, Off, Status::Live), present(1, Running));
    assert_eq!(pair(Running, Paused, Status::Live), present(1, Running), "incoming migration");
    assert_eq!(pair(Off, Paused, Status::Live), present(1, Paused));
    assert!(pair(Off, Off, Status::Live).starts_with("ambiguous"));
    assert!(pair(Running, Running, Status::Live).starts_with("ambiguous"));
    // of a lost hypervisor only the last known state is available
    assert_eq!(pair(Running, Off, down()), present(1, Running));
    assert!(pair(Off, Running, down()).starts_with("unavailable"));
    assert!(pair(Running, Running, down()).starts_with("unavailable"));
}

#[test]
fn of_copies_the_one_is_meant_that_is_the_nodes_by_what_is_known() {
    let pair = |a: Spec<'static>, b: Spec<'static>| cloud(&[(Status::Live, &[a]), (Status::Live, &[b])]);
    // a copy under another name, while neither runs
    let hypervisors = pair((1, "node_replica", Off), (1, "node", Off));
    let seen = LastSeen::default();
    let rules = AddressRules::default();
    let look =
        |hypervisors: &[Arc<Hypervisor>]| match View::new(hypervisors, &rules, &seen).resolve(&by_id(1)) {
            Resolution::Settled(InstanceLookup::Present(instance)) => Ok(instance.metadata.zone),
            Resolution::Settled(InstanceLookup::Unknown(error)) => Err(error.to_string()),
            _ => panic!("settled"),
        };
    assert!(look(&hypervisors).is_ok());
    // it was on h1, and is still meant where nothing else tells the two apart
    let hypervisors = pair((1, "a", Running), (1, "a", Running));
    assert!(look(&hypervisors).is_ok());
    let text = ask_cloud(&hypervisors, &by_id(1));
    assert!(text.starts_with("ambiguous") && text.contains("\"h0\"") && text.contains("\"h1\""), "{text}");
    // libvirt cannot tell the state of one
    hypervisors[0].update(|state| {
        let broken = Domain { state: Err("monitor hangs".to_owned()), ..domain((1, "a", Off)) };
        state.inventory.update(uuid(1), Some(broken));
        Vec::new()
    });
    assert_eq!(ask_cloud(&hypervisors, &by_id(1)), present(1, Running));
}

#[test]
fn a_name_alone_does_not_count_while_the_uuid_may_be_elsewhere() {
    let hosts: [(Status, &[Spec<'_>]); 2] = [(Status::Live, &[(1, "a", Running)]), (down(), &[])];
    assert_eq!(ask(&hosts, &by_name("a", None)), present(1, Running));
    let text = ask(&hosts, &by_name("a", Some(uuid(9))));
    assert!(text.contains("has the node's name but not its system UUID"), "{text}");
    // without firmware the system UUID is the machine ID, which does not identify the domain
    assert_eq!(ask(&hosts, &without_firmware("a", uuid(9))), present(1, Running));
    // a hypervisor that is starting is worth waiting for
    let hosts: [(Status, &[Spec<'_>]); 2] = [(Status::Live, &[(1, "a", Running)]), (Status::Starting, &[])];
    assert!(ask(&hosts, &by_name("a", None)).starts_with("starting"));
    assert_eq!(ask(&hosts, &by_name("x", Some(uuid(1)))), present(1, Running));
}

#[test]
fn the_machine_id_of_a_cloned_disk_is_not_believed() {
    // node b is domain 2 on h1; its disk was cloned from domain 1
    let node = NodeIdentity { machine_id: Some(uuid(1).simple().to_string()), ..by_name("b", Some(uuid(2))) };
    for second in [down(), Status::Starting] {
        let hosts: [(Status, &[Spec<'_>]); 2] = [(Status::Live, &[(1, "a", Running)]), (second, &[])];
        let text = ask(&hosts, &node);
        assert!(text.contains("cannot tell whether there is a domain"), "{text}");
    }
    let hosts: [(Status, &[Spec<'_>]); 1] = [(Status::Live, &[(1, "a", Running), (3, "b", Running)])];
    assert_eq!(ask(&hosts, &node), present(3, Running));
    assert_eq!(ask(&hosts[..1], &NodeIdentity { name: "x".to_owned(), ..node }), "nowhere");
}

#[test]
fn without_firmware_the_machine_id_counts_while_nothing_speaks_against_it() {
    let both: [(Status, &[Spec<'_>]); 1] = [(Status::Live, &[(1, "a", Running), (3, "b", Running)])];
    assert_eq!(ask(&both, &without_firmware("a", uuid(1))), present(1, Running));
    assert_eq!(ask(&both, &without_firmware("x", uuid(1))), present(1, Running));
    let only_machine_id = NodeIdentity { system_uuid: None, ..without_firmware("x", uuid(1)) };
    assert_eq!(ask(&both, &only_machine_id), present(1, Running));
    // a clone of a's disk in domain b
    assert!(ask(&both, &without_firmware("b", uuid(1))).starts_with("ambiguous"));
    let lost: [(Status, &[Spec<'_>]); 2] = [(Status::Live, &[(1, "a", Running)]), (down(), &[])];
    let text = ask(&lost, &without_firmware("x", uuid(1)));
    assert!(text.contains("machine ID, which a cloned disk carries as well"), "{text}");
}

#[test]
fn a_uuid_that_is_the_same_in_both_byte_orders_matches_once() {
    let same = Uuid::from_bytes([0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 4, 4, 5, 5, 5, 5, 5, 5]);
    assert_eq!(swapped(same), same);
    let hypervisors = cloud(&[(Status::Live, &[])]);
    hypervisors[0].update(|state| {
        state.inventory.update(same, Some(Domain { uuid: same, ..domain((2, "b", Running)) }));
        Vec::new()
    });
    let text = ask_cloud(&hypervisors, &by_name("b", Some(same)));
    assert_eq!(text, format!("{} running", format_provider_id(same)));
}

#[test]
fn a_hypervisor_that_was_never_listed_keeps_names_waiting_and_nothing_else() {
    let hypervisors = cloud(&[(Status::Live, &[(1, "a", Off), (2, "b", Running)]), (down(), &[])]);
    hypervisors[1].update(|state| {
        state.is_listed = false;
        Vec::new()
    });
    let unreachable = "unavailable: hypervisor \"h1\" has been unreachable";
    assert_eq!(ask_cloud(&hypervisors, &by_id(1)), present(1, Off));
    assert_eq!(ask_cloud(&hypervisors, &by_id(2)), present(2, Running));
    let by_name_in_id = NodeIdentity { provider_id: Some("libvirt:///b".to_owned()), ..by_name("x", None) };
    assert!(ask_cloud(&hypervisors, &by_name_in_id).starts_with(unreachable));
}

#[test]
fn a_name_in_a_provider_id_does_not_count_while_the_uuid_may_be_elsewhere() {
    let hosts: [(Status, &[Spec<'_>]); 2] = [(Status::Live, &[(1, "a", Running)]), (down(), &[])];
    let node = |system_uuid| NodeIdentity {
        provider_id: Some("libvirt:///a".to_owned()),
        ..by_name("a", system_uuid)
    };
    assert_eq!(ask(&hosts, &node(None)), present(1, Running));
    assert_eq!(ask(&hosts, &node(Some(swapped(uuid(1))))), present(1, Running));
    let text = ask(&hosts, &node(Some(uuid(9))));
    assert!(text.contains("has the node's name but not its system UUID"), "{text}");
}

#[test]
fn both_byte_orders_matching_different_domains_are_ambiguous() {
    let twin = swapped(uuid(1));
    let hypervisors = cloud(&[(Status::Live, &[(1, "a", Off)])]);
    hypervisors[0].update(|state| {
        state.inventory.update(twin, Some(Domain { uuid: twin, ..domain((2, "b", Off)) }));
        Vec::new()
    });
    let rules = AddressRules::default();
    let seen = LastSeen::default();
    let view = View::new(&hypervisors, &rules, &seen);
    let Resolution::Settled(InstanceLookup::Unknown(error)) = view.resolve(&by_name("x", Some(uuid(1))))
    else {
        panic!("ambiguous")
    };
    assert_eq!(
        error.to_string(),
        "more than one domain matches the node: \"a\" on hypervisor \"h0\" and \"b\" on hypervisor \"h0\""
    );
}

#[test]
fn a_domain_whose_state_libvirt_cannot_tell_is_unknown() {
    let hypervisors = cloud(&[(Status::Live, &[])]);
    hypervisors[0].update(|state| {
        let broken = Domain { state: Err("monitor hangs".to_owned()), ..domain((1, "a", Off)) };
        state.inventory.update(uuid(1), Some(broken));
        Vec::new()
    });
    let rules = AddressRules::default();
    let answer = View::new(&hypervisors, &rules, &LastSeen::default()).resolve(&by_id(1));
    assert!(matches!(answer, Resolution::Settled(InstanceLookup::Unknown(_))));
}

#[test]
fn while_the_guest_agent_is_asked_nothing_is_said_about_leases() {
    let hypervisors = cloud(&[(Status::Live, &[])]);
    hypervisors[0].update(|state| {
        let asked = Domain { agent: AgentChannel::Connected, ..domain((1, "a", Running)) };
        state.inventory.update(uuid(1), Some(asked)).into_iter().collect()
    });
    let why =
        || match View::new(&hypervisors, &AddressRules::default(), &LastSeen::default()).resolve(&by_id(1)) {
            Resolution::Settled(InstanceLookup::Present(instance)) => {
                instance.incomplete.map(|why| why.to_string())
            }
            _ => panic!("present"),
        };
    let asked = "domain \"a\" on hypervisor \"h0\" has no address yet: guest agent being asked";
    assert_eq!(why().as_deref(), Some(asked));
    hypervisors[0].update(|state| state.inventory.set_agent(uuid(1), None).into_iter().collect());
    assert!(why().is_some_and(|why| why.ends_with("guest agent knows none")));
}

#[test]
fn everything_that_a_node_could_be_known_by() {
    let (one, nine) = (uuid(1), uuid(9));
    let name = || DomainId::Name("n".to_owned());
    assert_eq!(domain_ids(&by_id(1)), [DomainId::Uuid(one)]);
    assert_eq!(
        domain_ids(&by_name("n", Some(one))),
        [DomainId::Uuid(one), DomainId::Uuid(swapped(one)), name()]
    );
    assert_eq!(domain_ids(&without_firmware("n", nine)), [DomainId::Uuid(nine), name()]);
    assert_eq!(domain_ids(&by_name("a/b", None)), []);
    let by_name_in_id = NodeIdentity { provider_id: Some("libvirt:///n".to_owned()), ..by_id(1) };
    assert_eq!(domain_ids(&by_name_in_id), [name()]);
}

#[tokio::test]
async fn a_list_from_before_the_last_removal_anywhere_confirms_nothing() {
    let hypervisors = cloud(&[(Status::Live, &[(1, "a", Running)]), (Status::Live, &[])]);
    let confirm = || {
        hypervisors[1].update(|state| {
            state.confirmed = Some(std::time::Instant::now());
            Vec::new()
        });
    };
    confirm();
    assert_eq!(hypervisors[1].confirm().await, Ok(()));
    hypervisors[0].update(|state| state.inventory.update(uuid(1), None).into_iter().collect());
    // no actor is running that could confirm it again
    assert!(hypervisors[1].confirm().await.is_err());
    confirm();
    assert_eq!(hypervisors[1].confirm().await, Ok(()));
    hypervisors[0].set_status(Status::Live, |_| ());
    assert!(hypervisors[1].confirm().await.is_err());
}

proptest! {
    /// Whatever a Node's identity is, a hypervisor that is not live keeps it from being absent.
    #[test]
    fn never_nowhere_with_one_down(
        name in ".{0,10}",
        id in prop::option::of("(libvirt://)?/?[a-f0-9-]{0,36}"),
        system_uuid in prop::option::of("[a-fA-F0-9-]{30,36}"),
        starting in any::<bool>(),
    ) {
        let status = if starting { Status::Starting } else { down() };
        let hosts: [(Status, &[Spec<'_>]); 2] = [(Status::Live, &[(1, "a", Running)]), (status, &[])];
        let node = NodeIdentity { name, provider_id: id, system_uuid, ..NodeIdentity::default() };
        let text = ask(&hosts, &node);
        prop_assert!(text != "nowhere" && text != "absent", "{}", text);
    }
}
