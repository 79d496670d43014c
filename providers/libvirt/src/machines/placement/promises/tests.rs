use std::collections::BTreeMap;

use cloudprovider::ErrorKind;
use proptest::prelude::*;

use super::*;

const GIB: u64 = 1024;

fn mark(cluster: &str) -> Mark {
    Mark::machine("u", "default", cluster, "node")
}

fn machine(domain: u128) -> Identity {
    Identity { namespace: "default".to_owned(), uid: Uuid::from_u128(domain) }
}

fn limits() -> MachineLimits {
    MachineLimits { reserved_memory_mib: 0, ..MachineLimits::default() }
}

fn host(name: &str, gib: u64) -> HypervisorLoad {
    let total = Ok(Size { cpus: 1000, memory_mib: gib * GIB });
    HypervisorLoad { name: name.to_owned(), failure_domain: name.to_owned(), total, residents: Vec::new() }
}

fn wanted(mark: &Mark, domain: u128, gib: u64) -> Wanted<'_> {
    Wanted {
        domain: Uuid::from_u128(domain),
        mark,
        size: Size { cpus: 1, memory_mib: gib * GIB },
        is_control_plane: false,
        hypervisor: None,
        failure_domain: None,
        of_cluster: &[],
        of_role: &[],
        bound: None,
    }
}

/// The name of the hypervisor, or `None` if there is no room.
fn place(placer: &Placer, hosts: &[HypervisorLoad], wanted: &Wanted<'_>, now: Instant) -> Option<String> {
    match placer.place(|| hosts.to_vec(), &limits(), wanted, now).expect("nothing is wrong with it") {
        Placement::On(name) => Some(name),
        Placement::Wait(_) => None,
    }
}

#[test]
fn five_hundred_at_once_are_spread_and_the_next_one_waits() {
    let (placer, mark, now) = (Placer::default(), mark("prod"), Instant::now());
    let hosts: Vec<_> = (0..5).map(|n| host(&format!("h{n}"), 200)).collect();
    let mut counts = BTreeMap::new();
    for n in 0..500 {
        *counts.entry(place(&placer, &hosts, &wanted(&mark, n, 2), now)).or_insert(0) += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [100; 5]);
    assert_eq!(place(&placer, &hosts, &wanted(&mark, 500, 2), now), None);
    placer.release(&machine(7));
    assert!(place(&placer, &hosts, &wanted(&mark, 500, 2), now).is_some(), "one was deleted");
}

#[test]
fn a_promise_to_one_namespace_is_not_that_of_another_one_with_the_same_uid() {
    let (placer, ours, now) = (Placer::default(), mark("prod"), Instant::now());
    let theirs = Mark { namespace: "team-b".to_owned(), ..ours.clone() };
    let hosts = [host("h0", 10)];
    assert!(place(&placer, &hosts, &wanted(&ours, 1, 6), now).is_some());
    assert_eq!(place(&placer, &hosts, &wanted(&theirs, 1, 6), now), None, "both take room");
    placer.release(&Identity { namespace: "team-b".to_owned(), ..machine(1) });
    assert_eq!(place(&placer, &hosts, &wanted(&theirs, 2, 6), now), None, "the promise stands");
}

#[test]
fn threads_do_not_promise_the_same_room() {
    let (placer, mark, now) = (Placer::default(), mark("prod"), Instant::now());
    let hosts = [host("a", 10), host("b", 10)];
    let placed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u128)
            .map(|thread| {
                let (placer, hosts, mark) = (&placer, &hosts, &mark);
                let mine =
                    move |n: &u128| place(placer, hosts, &wanted(mark, thread * 100 + n, 1), now).is_some();
                scope.spawn(move || (0..20).filter(mine).count())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(placed, 20);
}

#[test]
fn a_step_that_asks_again_gets_the_same_answer() {
    let (placer, mark, now) = (Placer::default(), mark("prod"), Instant::now());
    let hosts = [host("a", 4), host("b", 4)];
    assert_eq!(place(&placer, &hosts, &wanted(&mark, 1, 3), now).as_deref(), Some("a"));
    assert_eq!(place(&placer, &hosts, &wanted(&mark, 2, 3), now).as_deref(), Some("b"));
    for _ in 0..3 {
        assert_eq!(
            place(&placer, &hosts, &wanted(&mark, 1, 3), now).as_deref(),
            Some("a"),
            "not counted twice"
        );
    }
    // a larger one does not fit beside the other's promise, so this one moves
    let hosts = [host("a", 2), host("b", 4), host("c", 4)];
    assert_eq!(place(&placer, &hosts, &wanted(&mark, 1, 3), now).as_deref(), Some("c"));
    let pinned = Wanted { hypervisor: Some("b"), ..wanted(&mark, 1, 1) };
    assert_eq!(place(&placer, &hosts, &pinned, now).as_deref(), Some("b"), "the spec says so now");
}

#[test]
fn a_domain_that_is_there_takes_the_place_of_its_promise() {
    let (placer, mark, now) = (Placer::default(), mark("prod"), Instant::now());
    let mut hosts = [host("a", 4)];
    assert!(place(&placer, &hosts, &wanted(&mark, 1, 3), now).is_some());
    let size = Size { cpus: 1, memory_mib: 3 * GIB };
    hosts[0].residents.push(Resident { domain: Uuid::from_u128(1), size, kin: Kin::Worker });
    assert!(place(&placer, &hosts, &wanted(&mark, 2, 1), now).is_some(), "3 GiB are not counted twice");
    hosts[0].residents.clear();
    assert!(place(&placer, &hosts, &wanted(&mark, 3, 3), now).is_some(), "it was undefined behind our back");
}

#[test]
fn promises_of_other_clusters_take_room_and_do_not_count_for_spreading() {
    let (placer, now) = (Placer::default(), Instant::now());
    let (prod, test) = (mark("prod"), mark("test"));
    let hosts = [host("a", 10), host("b", 10)];
    assert_eq!(place(&placer, &hosts, &wanted(&prod, 1, 1), now).as_deref(), Some("a"));
    assert_eq!(place(&placer, &hosts, &wanted(&test, 2, 1), now).as_deref(), Some("b"), "by load");
    assert_eq!(place(&placer, &hosts, &wanted(&test, 3, 1), now).as_deref(), Some("a"), "spread");
    assert_eq!(place(&placer, &hosts, &wanted(&prod, 4, 8), now).as_deref(), Some("b"), "spread");
    assert_eq!(place(&placer, &hosts, &wanted(&prod, 5, 9), now), None);
}

#[test]
fn a_promise_stands_while_its_hypervisor_is_unreachable() {
    let (placer, mark, now) = (Placer::default(), mark("prod"), Instant::now());
    let mut hosts = [host("a", 4), host("b", 4)];
    assert_eq!(place(&placer, &hosts, &wanted(&mark, 1, 3), now).as_deref(), Some("a"));
    hosts[0].total = Err("hypervisor \"a\" has been unreachable since today: refused".to_owned());
    let answer = placer.place(|| hosts.to_vec(), &limits(), &wanted(&mark, 1, 3), now).expect("no fault");
    let Placement::Wait(wait) = answer else { panic!("{answer:?}") };
    assert!(wait.message.ends_with("memory: a hypervisor cannot be used now"));
    assert_eq!(
        place(&placer, &hosts[1..], &wanted(&mark, 1, 3), now).as_deref(),
        Some("b"),
        "not configured any more"
    );
    let (placer, hosts) = (Placer::default(), [host("a", 4), host("b", 4)]);
    assert_eq!(place(&placer, &hosts, &wanted(&mark, 1, 3), now).as_deref(), Some("a"));
    placer.release(&machine(1));
    assert_eq!(place(&placer, &hosts[1..], &wanted(&mark, 1, 3), now).as_deref(), Some("b"));
}

#[test]
fn after_a_restart_what_is_there_decides() {
    let (mark, now) = (mark("prod"), Instant::now());
    let hosts = [host("a", 4), host("b", 4)];
    let restarted = Placer::default();
    let bound = Wanted { bound: Some("b"), ..wanted(&mark, 1, 3) };
    assert_eq!(place(&restarted, &hosts, &bound, now).as_deref(), Some("b"));
    assert_eq!(place(&restarted, &hosts, &wanted(&mark, 2, 3), now).as_deref(), Some("a"), "b is promised");
    let late = Wanted { bound: Some("b"), ..wanted(&mark, 3, 3) };
    assert_eq!(place(&restarted, &hosts, &late, now), None, "no room is left, so it waits there");
}

#[test]
fn a_promise_that_nobody_renews_ends() {
    let (placer, mark, start) = (Placer::default(), mark("prod"), Instant::now());
    let hosts = [host("a", 4)];
    let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
    assert!(place(&placer, &hosts, &wanted(&mark, 1, 3), at(0)).is_some());
    assert!(place(&placer, &hosts, &wanted(&mark, 1, 3), at(50)).is_some());
    assert_eq!(place(&placer, &hosts, &wanted(&mark, 2, 3), at(100)), None, "renewed");
    assert!(place(&placer, &hosts, &wanted(&mark, 2, 3), at(110)).is_some());
}

#[test]
fn a_fault_promises_nothing() {
    let (placer, mark, now) = (Placer::default(), mark("prod"), Instant::now());
    let hosts = [host("a", 4)];
    let nowhere = Wanted { hypervisor: Some("z"), ..wanted(&mark, 1, 4) };
    let error = placer.place(|| hosts.to_vec(), &limits(), &nowhere, now).expect_err("there is no z");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(place(&placer, &hosts, &wanted(&mark, 2, 4), now).is_some());
}

/// What happens to one of the machines.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A step asks for a place.
    Place,
    /// Its domain is defined.
    Define,
    /// It is deleted.
    Delete,
    /// The daemon restarts. Machines with parts are found again.
    Restart,
}

fn acts() -> impl Strategy<Value = Vec<(Act, usize)>> {
    let act = prop_oneof![6 => Just(Act::Place), 3 => Just(Act::Define), 2 => Just(Act::Delete), 1 => Just(Act::Restart)];
    prop::collection::vec((act, 0..20usize), 1..120)
}

proptest! {
    /// Machines whose domain is not defined yet have a volume on the hypervisor that they were told.
    #[test]
    fn no_order_of_events_overcommits(acts in acts(), sizes in prop::collection::vec(1..7u64, 20)) {
        let (mark, now) = (mark("prod"), Instant::now());
        let mut placer = Placer::default();
        let mut hosts = vec![host("a", 16), host("b", 10), host("c", 7)];
        // where the volume of each machine is, and whether a step since the restart has asked
        let mut volumes: BTreeMap<usize, (String, bool)> = BTreeMap::new();
        for (act, n) in acts {
            let domain = n as u128 + 1;
            let is_defined = hosts.iter().any(|host| host.residents.iter().any(|one| one.domain == Uuid::from_u128(domain)));
            match act {
                Act::Place if !is_defined => {
                    let volume = volumes.get(&n).cloned();
                    let bound = volume.as_ref().map(|(name, _)| name.as_str());
                    let answer = place(&placer, &hosts, &Wanted { bound, ..wanted(&mark, domain, sizes[n]) }, now);
                    if let Some(name) = answer {
                        prop_assert!(bound.is_none_or(|bound| bound == name), "a decision stands");
                        volumes.insert(n, (name, true));
                    }
                }
                Act::Define if !is_defined => {
                    // as a step does: with a promise only
                    if let Some((name, true)) = volumes.get(&n) {
                        let host = hosts.iter_mut().find(|host| host.name == *name).expect("it exists");
                        let size = Size { cpus: 1, memory_mib: sizes[n] * GIB };
                        host.residents.push(Resident { domain: Uuid::from_u128(domain), size, kin: Kin::Worker });
                    }
                }
                Act::Delete => {
                    for host in &mut hosts {
                        host.residents.retain(|one| one.domain != Uuid::from_u128(domain));
                    }
                    volumes.remove(&n);
                    placer.release(&machine(domain));
                }
                Act::Restart => {
                    placer = Placer::default();
                    for (_, asked) in volumes.values_mut() {
*asked = false;
}
                }
                Act::Place | Act::Define => {}
            }
            for host in &hosts {
                let taken: u64 = host.residents.iter().map(|one| one.size.memory_mib).sum();
                let total = host.total.as_ref().map_or(0, |size| size.memory_mib);
                prop_assert!(taken <= total, "{}: {taken} of {total} MiB", host.name);
            }
        }
    }
}
