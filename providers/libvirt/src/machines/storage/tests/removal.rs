use cloudprovider::ErrorKind;

use super::*;
use crate::machines::storage::removal::Removal;

const ROOT: &str = "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10-disk-root";
const SEED: &str = "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10-seed";
const LOG: &str = "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10-console.log";
const FOREIGN: [&str; 4] = [
    "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10-seed.bak",
    "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a11-seed",
    "ccm-image-sha256-00-qcow2.0123456789abcdef",
    "debian",
];

fn is_ours(name: &str) -> bool {
    [ROOT, SEED].contains(&name) || name.starts_with(LOG)
}

fn setup() -> (FakeHypervisor, FakeFetch) {
    let hypervisor = FakeHypervisor::new();
    hypervisor.add_pool("fast", "dir");
    for name in FOREIGN {
        hypervisor.put(POOL, name, &small_image());
    }
    hypervisor.put(POOL, SEED, b"seed");
    hypervisor.put(POOL, &format!("{ROOT}.0123456789abcdef"), b"root");
    hypervisor.put(POOL, &format!("{ROOT}.0123456789abcdef.complete-4"), b"");
    hypervisor.put(POOL, &format!("{ROOT}.aaaaaaaaaaaaaaaa"), b"ro");
    hypervisor.put(POOL, LOG, b"log");
    for number in 0..3 {
        hypervisor.put_by_hand(POOL, &format!("{LOG}.{number}"), b"rotated");
    }
    hypervisor.put("fast", ROOT, b"root");
    (hypervisor, FakeFetch::default())
}

async fn remove(daemon: &Daemon, pools: &[&str]) -> Result<Removal> {
    daemon.storage.remove(&daemon.calls, pools, LOG, &is_ours).await
}

#[tokio::test]
async fn everything_of_a_machine_is_deleted_and_nothing_else() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    for _ in 0..2 {
        let removal = remove(&daemon, &[POOL, "fast"]).await.expect("deleted");
        assert_eq!(removal, Removal::Gone { missing_pools: Vec::new() });
        assert_eq!(hypervisor.names(POOL), FOREIGN);
        assert!(hypervisor.names("fast").is_empty());
    }
}

#[tokio::test]
async fn a_pool_that_is_missing_is_told_apart_from_one_that_cannot_be_seen() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let removal = remove(&daemon, &["nowhere", POOL]).await.expect("deleted");
    assert_eq!(removal, Removal::Gone { missing_pools: vec!["nowhere".to_owned()] });
    hypervisor.set_active("fast", false);
    let error = remove(&daemon, &["fast"]).await.expect_err("not known");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.report().contains("virsh pool-start"), "{}", error.report());
    hypervisor.set_away(true);
    assert_eq!(remove(&daemon, &["nowhere"]).await.expect_err("away").kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_waited_for_by_whoever_began_it() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let calls = &daemon.calls;
    let base = daemon.storage.existing_image(calls, &existing("debian", Format::Qcow2)).await.expect("there");
    let copy =
        daemon.storage.copy(calls, "fast", ROOT, Format::Qcow2, (SIZE, 4 * GIB), &base, &machine(UID)).await;
    assert!(matches!(copy, Ok(Made::Working(_))));
    let Ok(Removal::Working(wait)) = remove(&daemon, &["fast"]).await else { panic!("gone") };
    assert_eq!(wait.reason, "DeletingVolumes");
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(daemon);
    // libvirtd is still at it
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let Ok(Removal::Working(wait)) = remove(&daemon, &["fast"]).await else { panic!("gone") };
    assert!(wait.message.contains("still being allocated"), "{}", wait.message);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(matches!(remove(&daemon, &["fast"]).await, Ok(Removal::Gone { .. })));
    assert!(hypervisor.names("fast").is_empty());
}

/// libvirt does not look at a pool that something is copied to.
#[tokio::test(start_paused = true)]
async fn the_log_is_deleted_when_libvirt_can_look_for_older_parts_of_it() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let calls = &daemon.calls;
    let base = daemon.storage.existing_image(calls, &existing("debian", Format::Qcow2)).await.expect("there");
    let other =
        daemon.storage.copy(calls, POOL, "other", Format::Qcow2, (SIZE, 4 * GIB), &base, &machine(UID)).await;
    assert!(matches!(other, Ok(Made::Working(_))));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let Ok(Removal::Working(wait)) = remove(&daemon, &[POOL]).await else { panic!("gone") };
    assert!(wait.message.contains("asynchronous jobs"), "{}", wait.message);
    let names = hypervisor.names(POOL);
    assert!(names.iter().any(|name| name == LOG) && !names.iter().any(|name| name == SEED), "{names:?}");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(matches!(remove(&daemon, &[POOL]).await, Ok(Removal::Gone { .. })));
    assert!(!hypervisor.names(POOL).iter().any(|name| is_ours(name)));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_survives_a_crash_at_each_point() {
    let work = async |daemon: &mut Daemon| remove(daemon, &[POOL, "fast"]).await;
    with_crashes(setup, work, async |hypervisor, _, removal| {
        assert_eq!(removal.expect("deleted"), Removal::Gone { missing_pools: Vec::new() });
        assert_eq!(hypervisor.names(POOL), FOREIGN);
        assert!(hypervisor.names("fast").is_empty());
    })
    .await;
}
