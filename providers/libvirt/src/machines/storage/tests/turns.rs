//! Many imports at once: what they take, and whose turn it is.

use super::*;
use crate::machines::storage::{testing::Body, work::MAX_WAITING};

/// Checksums that no image has.
fn wrong(number: u16) -> Image {
    let mut digest = [0; 32];
    digest[..2].copy_from_slice(&number.to_be_bytes());
    Image { checksum: Checksum::Sha256(digest), ..image(b"") }
}

async fn import_of(daemon: &Daemon, namespace: &str, image: &Image) -> Result<Made<Base>> {
    daemon.storage.imported_image(&daemon.calls, POOL, image, &machine_of(namespace, "m")).await
}

/// The origin of another server.
fn other_origin() -> Origin {
    Origin::url("spec.image.url", "https://other.example.org/b.qcow2", ImageHosts::default()).expect("a URL")
}

/// A server that sends what it has only when it is let.
fn held(bytes: &bytes::Bytes) -> (Body, std::sync::Arc<tokio::sync::Semaphore>) {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    (Body { gate: Some(std::sync::Arc::clone(&gate)), ..bytes.clone().into() }, gate)
}

#[tokio::test(start_paused = true)]
async fn thousands_of_wrong_checksums_take_what_one_takes() {
    let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
    let mut daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let (body, gate) = held(&small_image());
    fetch.serve(&origin(), body);
    for number in 0..5000 {
        let Ok(Made::Working(wait)) = import_of(&daemon, "hostile", &wrong(number)).await else {
            panic!("made")
        };
        assert_eq!(wait.reason, "ImportingImage");
        assert!(wait.look_again_after.is_some());
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(daemon.storage.work.counts(), (1, MAX_WAITING), "one runs, and few wait");
    assert_eq!((fetch.opened(), hypervisor.names(POOL).len()), (1, 0), "before its first bytes");
    // another namespace has a place at once
    let right = Image { origin: other_origin(), ..image(&small_image()) };
    fetch.serve(&right.origin, small_image());
    let Ok(Made::Working(_)) = import_of(&daemon, "other", &right).await else { panic!("made") };
    daemon.woken().await;
    assert!(matches!(import_of(&daemon, "other", &right).await, Ok(Made::Ready(_))));
    assert_eq!(daemon.storage.work.counts(), (1, MAX_WAITING), "the others stand still");
    // two namespaces have both places; a third one is next, whoever ends first
    let (slow, other_gate) = held(&small_image());
    let slow_origin = Origin::url("f", "https://slow.example.org/c", ImageHosts::default()).expect("a URL");
    fetch.serve(&slow_origin, slow);
    let slow = Image { origin: slow_origin, ..wrong(6000) };
    import_of(&daemon, "slow", &slow).await.expect("begun");
    let third = Image { checksum: Checksum::Sha256([9; 32]), ..right.clone() };
    import_of(&daemon, "third", &third).await.expect("waits");
    assert_eq!(daemon.storage.work.counts(), (2, MAX_WAITING + 1));
    let opened = fetch.opened_from(&right.origin);
    gate.add_permits(1000);
    while fetch.opened_from(&right.origin) == opened {
        assert!(fetch.opened_from(&origin()) == 1, "a second one of the first namespace was before it");
        daemon.woken().await;
    }
    other_gate.add_permits(1000);
    // the rest comes to its end, one at a time
    while daemon.storage.work.counts() != (0, 0) {
        daemon.woken().await;
        assert!(hypervisor.names(POOL).len() <= 4, "{:?}", hypervisor.names(POOL));
    }
    assert_eq!(fetch.most_at_once(), 2);
    tokio::time::sleep(SWEPT).await;
    assert_one_image(&hypervisor, &small_image());
}

/// A namespace whose source does not answer is in nobody's way that names the same checksum.
#[tokio::test(start_paused = true)]
async fn the_same_checksum_from_a_bad_source_blocks_nobody_else() {
    let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
    let mut daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let (body, _gate) = held(&small_image());
    fetch.serve(&origin(), body);
    fetch.serve(&other_origin(), small_image());
    let bad = image(&small_image());
    let good = Image { origin: other_origin(), ..bad.clone() };
    import_of(&daemon, "hostile", &bad).await.expect("begun");
    import_of(&daemon, "other", &good).await.expect("begun");
    daemon.woken().await;
    assert!(matches!(import_of(&daemon, "other", &good).await, Ok(Made::Ready(_))));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_too_slow_loses_its_place() {
    let bytes = qcow2(2 * GIB, 3_000_000);
    // A block of 10,000 bytes in each pause.
    for (pace, words) in [
        (Duration::from_secs(1), "https://images.example.org/a.qcow2 sends less than 64 KiB a second"),
        (Duration::from_secs(59), "https://images.example.org/a.qcow2 sends less than 64 KiB a second"),
        (Duration::from_millis(100), ""),
    ] {
        let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
        let mut daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
        fetch.serve(&origin(), Body { pace, ..bytes.clone().into() });
        let image = image(&bytes);
        let began = tokio::time::Instant::now();
        if words.is_empty() {
            made(&mut daemon, async |daemon| import(daemon, &image, "m").await).await.expect("imported");
            continue;
        }
        let error = first_error(&mut daemon, async |daemon| import(daemon, &image, "m").await).await;
        assert_eq!(error.report(), words);
        assert!(began.elapsed() < Duration::from_secs(180) && hypervisor.names(POOL).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_import_has_an_end() {
    let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
    let mut daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    daemon.storage.limits.speed = 0;
    let bytes = qcow2(2 * GIB, 16_000_000);
    fetch.serve(&origin(), Body { pace: Duration::from_secs(10), ..bytes.clone().into() });
    let image = image(&bytes);
    let error = first_error(&mut daemon, async |daemon| import(daemon, &image, "m").await).await;
    let words =
        "the import of https://images.example.org/a.qcow2 has taken longer than 4 h; nothing of it was kept";
    assert_eq!(error.report(), words);
    assert!(hypervisor.names(POOL).is_empty());
}

/// Guests of others stop when their disks have no room to grow.
#[tokio::test(start_paused = true)]
async fn some_room_of_a_pool_stays_free() {
    let bytes = small_image();
    for has_length in [true, false] {
        let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
        let mut daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
        daemon.storage.limits.room_step = 10_000;
        let (body, gate) = held(&bytes);
        fetch.serve(&origin(), Body { has_length, ..body });
        let image = image(&bytes);
        hypervisor.set_available(POOL, GIB - 1);
        let error = first_error(&mut daemon, async |daemon| import(daemon, &image, "m").await).await;
        assert!(error.report().contains("of which 1 GiB stay free"), "{}", error.report());
        assert!(hypervisor.names(POOL).is_empty());
        tokio::time::sleep(error.retry_after().expect("a time")).await;
        // it becomes short on the way
        hypervisor.set_available(POOL, 2 * GIB);
        import(&daemon, &image, "m").await.expect("begun");
        gate.add_permits(2);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(hypervisor.names(POOL).len(), 1);
        hypervisor.set_available(POOL, GIB - 1);
        gate.add_permits(10);
        daemon.woken().await;
        let error = import(&daemon, &image, "m").await.expect_err("no room");
        assert!(error.report().contains("needs room, and pool"), "{}", error.report());
        assert!(hypervisor.names(POOL).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_leaves_some_room_too_and_follows_nothing() {
    let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
    hypervisor.put(POOL, "debian", &small_image());
    let mut daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let base = daemon
        .storage
        .existing_image(&daemon.calls, &existing("debian", Format::Qcow2))
        .await
        .expect("there");
    let copy = async |daemon: &Daemon| {
        let size = (SIZE, 4 * GIB);
        daemon.storage.copy(&daemon.calls, POOL, "disk", Format::Qcow2, size, &base, &machine("m")).await
    };
    hypervisor.set_available(POOL, GIB + 34_999);
    let error = first_error(&mut daemon, copy).await;
    assert!(error.report().contains("of which 1 GiB stay free"), "{}", error.report());
    hypervisor.set_available(POOL, 2 * GIB);
    tokio::time::sleep(error.retry_after().expect("a time")).await;
    // somebody writes to the image meanwhile
    hypervisor.put(POOL, "debian", &[7; 4096]);
    let error = first_error(&mut daemon, copy).await;
    assert!(error.report().contains("it is not copied"), "{}", error.report());
    assert_eq!(hypervisor.names(POOL), ["debian"]);
}

/// A machine that is deleted while its copy waits gets none.
#[tokio::test(start_paused = true)]
async fn a_copy_that_waits_for_its_turn_ends_with_its_machine() {
    let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
    hypervisor.put(POOL, "debian", &small_image());
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let base = daemon
        .storage
        .existing_image(&daemon.calls, &existing("debian", Format::Qcow2))
        .await
        .expect("there");
    for name in ["a", "b", "c"] {
        let size = (SIZE, 4 * GIB);
        let copy =
            daemon.storage.copy(&daemon.calls, POOL, name, Format::Qcow2, size, &base, &machine(name)).await;
        assert!(matches!(copy, Ok(Made::Working(_))));
    }
    assert_eq!(daemon.storage.work.counts(), (2, 1));
    let removal = daemon.storage.remove(&daemon.calls, &[POOL], "log", &|name| name == "c").await;
    assert_eq!(removal.expect("gone"), super::super::Removal::Gone { missing_pools: Vec::new() });
    assert_eq!(daemon.storage.work.counts(), (2, 0));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        !hypervisor.names(POOL).iter().any(|name| name.starts_with("c.")),
        "{:?}",
        hypervisor.names(POOL)
    );
}
