use proptest::prelude::*;

use super::*;

const GIB: u64 = 1024;

fn mark() -> Mark {
    Mark::machine("u", "default", "prod", "node")
}

fn limits() -> MachineLimits {
    MachineLimits { cpu_overcommit: 200, memory_overcommit: 100, reserved_memory_mib: GIB }
}

fn wanted(mark: &Mark, cpus: u64, gib: u64) -> Wanted<'_> {
    Wanted {
        domain: Uuid::nil(),
        mark,
        size: Size { cpus, memory_mib: gib * GIB },
        is_control_plane: false,
        hypervisor: None,
        failure_domain: None,
        of_cluster: &[],
        of_role: &[],
        bound: None,
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A hypervisor with 8 CPUs and 17 GiB, so room for 16 vCPUs and 16 GiB.
fn host(name: &str, failure_domain: &str, residents: &[(Kin, u64)]) -> HypervisorLoad {
    HypervisorLoad {
        name: name.to_owned(),
        failure_domain: if failure_domain.is_empty() { name } else { failure_domain }.to_owned(),
        total: Ok(Size { cpus: 8, memory_mib: 17 * GIB }),
        residents: residents
            .iter()
            .enumerate()
            .map(|(i, (kin, gib))| Resident {
                domain: Uuid::from_u128(i as u128 + 1),
                size: Size { cpus: 1, memory_mib: gib * GIB },
                kin: *kin,
            })
            .collect(),
    }
}

fn down(mut host: HypervisorLoad) -> HypervisorLoad {
    host.total = Err(format!("hypervisor {:?} has been unreachable since today: refused", host.name));
    host
}

/// The name, or the message.
fn ask(hosts: &[HypervisorLoad], wanted: &Wanted<'_>) -> String {
    match choose(hosts, &limits(), wanted) {
        Ok(Placement::On(name)) => name,
        Ok(Placement::Wait(wait)) => {
            assert_eq!((&*wait.reason, wait.look_again_after), ("WaitingForCapacity", Some(LOOK_AGAIN)));
            wait.message.into_owned()
        }
        Err(error) => format!("{}: {error}", error.kind()),
    }
}

#[test]
fn machines_are_spread_over_failure_domains_then_hypervisors_then_by_load() {
    use Kin::{ControlPlane, Stranger, Worker};
    let mark = mark();
    for (why, hosts, expected) in [
        ("all empty: by name", vec![host("b", "1", &[]), host("a", "1", &[])], "a"),
        ("the least loaded", vec![host("a", "", &[(Stranger, 2)]), host("b", "", &[(Stranger, 1)])], "b"),
        (
            "its own kind weighs more than load",
            vec![host("a", "", &[(Worker, 1)]), host("b", "", &[(Stranger, 12)])],
            "b",
        ),
        (
            "a failure domain weighs more than a hypervisor",
            vec![
                host("a1", "a", &[(Worker, 1), (Worker, 1)]),
                host("a2", "a", &[]),
                host("b1", "b", &[(Worker, 1)]),
            ],
            "b1",
        ),
        (
            "its role weighs more than its cluster",
            vec![host("a", "", &[(ControlPlane, 1), (ControlPlane, 1)]), host("b", "", &[(Worker, 1)])],
            "a",
        ),
        (
            "the rest of its cluster still weighs",
            vec![host("a", "", &[(ControlPlane, 1)]), host("b", "", &[(Stranger, 3)])],
            "b",
        ),
        (
            "machines on a lost hypervisor still count",
            vec![
                down(host("a1", "a", &[(Worker, 1)])),
                host("a2", "a", &[]),
                host("b", "b", &[(Stranger, 9)]),
            ],
            "b",
        ),
        ("no room is no room", vec![host("a", "a", &[(Stranger, 16)]), host("b", "a", &[(Worker, 1)])], "b"),
    ] {
        assert_eq!(ask(&hosts, &wanted(&mark, 2, 1)), expected, "{why}");
    }
    let control_plane = Wanted { is_control_plane: true, ..wanted(&mark, 2, 1) };
    let hosts = [host("a", "", &[(ControlPlane, 1)]), host("b", "", &[(Worker, 1), (Worker, 1)])];
    assert_eq!(ask(&hosts, &control_plane), "b");
}

#[test]
fn what_is_asked_for_is_obeyed() {
    let mark = mark();
    let hosts = [host("a", "1", &[]), host("b", "2", &[(Kin::Worker, 9)]), host("c", "", &[])];
    let plain = || wanted(&mark, 1, 1);
    for (why, wanted, expected) in [
        ("a failure domain", Wanted { failure_domain: Some("2"), ..plain() }, "b"),
        ("a hypervisor", Wanted { hypervisor: Some("b"), ..plain() }, "b"),
        ("both", Wanted { hypervisor: Some("b"), failure_domain: Some("2"), ..plain() }, "b"),
        (
            "parts that are there already",
            Wanted { bound: Some("c"), hypervisor: Some("b"), failure_domain: Some("2"), ..plain() },
            "c",
        ),
        (
            "an unknown failure domain",
            Wanted { failure_domain: Some("3"), ..plain() },
            "not_found: no hypervisor is in failure domain \"3\"; known: 1, 2, c",
        ),
        (
            "an unknown hypervisor",
            Wanted { hypervisor: Some("d"), ..plain() },
            "not_found: spec.hypervisor: the configuration has no hypervisor \"d\"; known: a, b, c",
        ),
        (
            "a contradiction",
            Wanted { hypervisor: Some("a"), failure_domain: Some("2"), ..plain() },
            "invalid_input: no hypervisor is all that is asked for: hypervisor \"a\", failure domain \"2\"; known: a, b, c",
        ),
        ("the hypervisors of the cluster", Wanted { of_cluster: &names(&["b", "z"]), ..plain() }, "b"),
        ("the failure domains of its role", Wanted { of_role: &names(&["2", "c"]), ..plain() }, "c"),
        (
            "nothing that is allowed",
            Wanted { of_cluster: &names(&["a", "b"]), of_role: &names(&["c"]), ..plain() },
            "invalid_input: no hypervisor is all that is asked for: one of the cluster's hypervisors (a, b), \
             one of the failure domains for its role (c); known: a, b, c",
        ),
    ] {
        assert_eq!(ask(&hosts, &wanted), expected, "{why}");
    }
    let gone = Wanted { bound: Some("z"), ..plain() };
    assert!(ask(&hosts, &gone).starts_with("not_found: parts of the machine are on hypervisor \"z\""));
}

#[test]
fn a_wait_says_why_hypervisors_were_refused_and_not_which_ones() {
    let mark = mark();
    let many: Vec<_> = (0..14).map(|_| (Kin::Stranger, 0)).collect();
    let hosts = [
        host("full", "1", &[(Kin::Stranger, 12)]),
        host("almost", "1", &[(Kin::Stranger, 16)]),
        host("busy", "1", &many),
        down(host("lost", "1", &[])),
    ];
    assert_eq!(
        ask(&hosts, &wanted(&mark, 4, 8)),
        "no room for 4 CPUs and 8192 MiB of memory: a hypervisor cannot be used now; \
         a hypervisor has too few CPUs left; a hypervisor has too little memory left"
    );
    let bound = Wanted { bound: Some("full"), ..wanted(&mark, 4, 8) };
    assert_eq!(
        ask(&hosts, &bound),
        "no room on hypervisor \"full\", which has parts of the machine already, \
         for 4 CPUs and 8192 MiB of memory: a hypervisor has too little memory left"
    );
    let in_domain = Wanted { failure_domain: Some("2"), ..wanted(&mark, 4, 20) };
    assert_eq!(
        ask(&[host("a", "1", &[]), host("b", "2", &[])], &in_domain),
        "no room in failure domain \"2\" for 4 CPUs and 20480 MiB of memory: \
         a hypervisor has too little memory left"
    );
}

#[test]
fn the_last_of_the_room_is_used() {
    let mark = mark();
    assert_eq!(ask(&[host("a", "", &[(Kin::Stranger, 8)])], &wanted(&mark, 15, 8)), "a");
    assert!(
        ask(&[host("a", "", &[(Kin::Stranger, 8)])], &wanted(&mark, 16, 8)).contains("too few CPUs left")
    );
}

fn any_host(n: usize) -> impl Strategy<Value = HypervisorLoad> {
    let resident = (1..6u64, 1..6u64, 0..3u8);
    (0..3u8, prop::collection::vec(resident, 0..6), prop::bool::weighted(0.8)).prop_map(
        move |(domain, residents, is_up)| {
            let mut host = host(&format!("h{n}"), ["", "a", "b"][usize::from(domain)], &[]);
            host.residents = residents
                .iter()
                .enumerate()
                .map(|(i, (cpus, gib, kin))| Resident {
                    domain: Uuid::from_u128((n * 100 + i + 1) as u128),
                    size: Size { cpus: *cpus, memory_mib: gib * GIB },
                    kin: [Kin::Stranger, Kin::Worker, Kin::ControlPlane][usize::from(*kin)],
                })
                .collect();
            if is_up { host } else { down(host) }
        },
    )
}

fn hosts() -> impl Strategy<Value = Vec<HypervisorLoad>> {
    (any_host(0), any_host(1), any_host(2), any_host(3)).prop_map(|(a, b, c, d)| vec![a, b, c, d])
}

proptest! {
    #[test]
    fn the_order_of_hypervisors_does_not_matter(
        (hosts, other) in hosts().prop_flat_map(|hosts| (Just(hosts.clone()), Just(hosts).prop_shuffle())),
        cpus in 1..8u64, gib in 1..8u64,
    ) {
        let mark = mark();
        prop_assert_eq!(ask(&hosts, &wanted(&mark, cpus, gib)), ask(&other, &wanted(&mark, cpus, gib)));
    }

    #[test]
    fn a_hypervisor_is_chosen_if_and_only_if_one_has_room(
        hosts in hosts(), cpus in 1..16u64, gib in 1..16u64,
    ) {
        let has_room = |host: &HypervisorLoad| {
            let taken: (u64, u64) = host.residents.iter().fold((cpus, gib * GIB), |sum, one| {
                (sum.0 + one.size.cpus, sum.1 + one.size.memory_mib)
            });
            host.total.is_ok() && taken.0 <= 16 && taken.1 <= 16 * GIB
        };
        let mark = mark();
        let answer = ask(&hosts, &wanted(&mark, cpus, gib));
        match hosts.iter().find(|host| host.name == answer) {
            Some(chosen) => prop_assert!(has_room(chosen)),
            None => prop_assert!(!hosts.iter().any(has_room), "{}", answer),
        }
    }
}
