use std::collections::BTreeSet;

use cloudprovider::ErrorKind;

use super::*;
use crate::machines::storage::volume::{Backing, NewVolume};
use crate::{allow::FileBelow, machines::storage::testing::Body};

fn setup() -> (FakeHypervisor, FakeFetch, Daemon) {
    let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    (hypervisor, fetch, daemon)
}

#[tokio::test(start_paused = true)]
async fn an_image_is_imported_once_for_all_who_wait() {
    let (hypervisor, fetch, mut daemon) = setup();
    let bytes = small_image();
    let pace = Duration::from_secs(1);
    fetch.serve(&origin(), Body { pace, ..bytes.clone().into() });
    let image = image(&bytes);
    let mut waiting = BTreeSet::new();
    for n in 0..100 {
        let Ok(Made::Working(wait)) = import(&daemon, &image, &format!("m{n}")).await else {
            panic!("too fast")
        };
        assert_eq!(wait.reason, "ImportingImage");
        let words = "import of https://images.example.org/a.qcow2 to pool \"default\" on hypervisor \"kvm1\"";
        assert!(wait.message.starts_with(words), "{}", wait.message);
        assert!(!wait.message.contains("secret"), "{}", wait.message);
        waiting.insert(format!("m{n}"));
    }
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let Ok(Made::Working(wait)) = import(&daemon, &image, "m0").await else { panic!("too fast") };
    assert!(wait.message.ends_with(", 50 %"), "{}", wait.message);
    assert_eq!(daemon.woken().await.into_iter().collect::<BTreeSet<_>>(), waiting);
    let Ok(Made::Ready(base)) = import(&daemon, &image, "m0").await else { panic!("not imported") };
    assert_eq!((base.capacity, base.format, base.pool.as_str()), (2 * GIB, Format::Qcow2, POOL));
    assert_eq!(base.path, format!("/default/{}", base.volume));
    assert!(base.volume.starts_with(&format!("ccm-image-{}-qcow2.", image.checksum.joined('-'))));
    assert_eq!(fetch.opened(), 1);
    assert_one_image(&hypervisor, &bytes);
    // the same bytes from elsewhere are the same image
    let elsewhere = Origin::File(FileBelow { folder: "/images".into(), path: "a".into() });
    let Ok(Made::Ready(same)) = import(&daemon, &Image { origin: elsewhere, ..image }, "m0").await else {
        panic!("imported again")
    };
    assert_eq!((same, fetch.opened()), (base, 1));
}

#[tokio::test(start_paused = true)]
async fn an_image_of_unknown_length_and_a_raw_one() {
    let (hypervisor, fetch, mut daemon) = setup();
    let bytes = bytes::Bytes::from(noise(123_456));
    fetch.serve(&origin(), Body { has_length: false, ..bytes.clone().into() });
    let image = Image { format: Format::Raw, ..image(&bytes) };
    let base = made(&mut daemon, async |daemon| import(daemon, &image, "m").await).await.expect("imported");
    assert_eq!((base.format, base.capacity), (Format::Raw, 123_456));
    assert_one_image(&hypervisor, &bytes);
}

#[tokio::test(start_paused = true)]
async fn other_bytes_are_refused_until_the_right_ones_come() {
    let (hypervisor, fetch, mut daemon) = setup();
    let (wrong, right) = (qcow2(3 * GIB, 35_000), small_image());
    fetch.serve(&origin(), wrong.clone());
    let wanted = image(&right);
    let error = first_error(&mut daemon, async |daemon| import(daemon, &wanted, "m").await).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let words = "spec.image.checksum: https://images.example.org/a.qcow2 does not have this checksum; nothing of it was kept";
    assert_eq!(error.report(), words);
    assert!(
        !error.report().contains(&image(&wrong).checksum.joined(':')[7..]),
        "the digest is the content's key"
    );
    assert!(error.retry_after().is_some() && hypervisor.names(POOL).is_empty());
    // all others are told the same, and nothing is fetched for them
    let other = import(&daemon, &wanted, "other").await.expect_err("it has failed");
    assert_eq!((other.report().as_str(), fetch.opened()), (words, 1));
    fetch.serve(&origin(), right.clone());
    made(&mut daemon, async |daemon| import(daemon, &wanted, "m").await).await.expect("imported");
    assert_eq!(fetch.opened(), 2);
    assert_one_image(&hypervisor, &right);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_breaks_in_the_middle_leaves_nothing() {
    let bytes = small_image();
    let broken = Body { breaks_after: Some(20_000), ..bytes.clone().into() };
    let silent = Body { breaks_after: Some(0), ..bytes.clone().into() };
    let none = Body { has_length: false, ..bytes::Bytes::new().into() };
    for body in [broken, silent, none] {
        let (hypervisor, fetch, mut daemon) = setup();
        fetch.serve(&origin(), body);
        let image = image(&bytes);
        first_error(&mut daemon, async |daemon| import(daemon, &image, "m").await).await;
        assert!(hypervisor.names(POOL).is_empty());
        fetch.serve(&origin(), bytes.clone());
        made(&mut daemon, async |daemon| import(daemon, &image, "m").await).await.expect("imported");
        assert_one_image(&hypervisor, &bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_such_image_is_told_before_anything_is_made() {
    let mut overlay = small_image().to_vec();
    overlay[15] = 104;
    let raw = noise(4096);
    let gzip = [b"\x1f\x8b".to_vec(), noise(4096)].concat();
    let origin_words = "https://images.example.org/a.qcow2";
    for (bytes, words) in [
        (overlay, format!("spec.image: {origin_words} has only the differences to another file")),
        (gzip, format!("spec.image: {origin_words} is compressed with gzip")),
        (raw, format!("spec.image.format: is qcow2, and {origin_words} has the format raw")),
    ] {
        let (hypervisor, fetch, mut daemon) = setup();
        let bytes = bytes::Bytes::from(bytes);
        fetch.serve(&origin(), bytes.clone());
        let image = image(&bytes);
        let error = first_error(&mut daemon, async |daemon| import(daemon, &image, "m").await).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.report().starts_with(&words), "{}", error.report());
        assert!(hypervisor.names(POOL).is_empty());
    }
}

/// Brings a hypervisor into a state.
type Fault = fn(&FakeHypervisor);

#[tokio::test(start_paused = true)]
async fn faults_of_a_pool_are_told_apart() {
    let bytes = small_image();
    let image = image(&bytes);
    let cases: [(Fault, ErrorKind, &str); 5] = [
        (|kvm| kvm.set_available(POOL, 10_000), ErrorKind::Unavailable, "has only 9.7 KiB left"),
        (|kvm| kvm.add_pool(POOL, "logical"), ErrorKind::Unsupported, "is of type logical"),
        (|kvm| kvm.set_active(POOL, false), ErrorKind::Unavailable, "the pool is not active"),
        (|kvm| kvm.set_away(true), ErrorKind::Unavailable, "no connection"),
        (|_| {}, ErrorKind::NotFound, "there is no such pool"),
    ];
    for (fault, kind, words) in cases {
        let (hypervisor, fetch, mut daemon) = setup();
        fetch.serve(&origin(), bytes.clone());
        fault(&hypervisor);
        let pool = if kind == ErrorKind::NotFound { "other" } else { POOL };
        let error = first_error(&mut daemon, async |daemon| {
            daemon.storage.imported_image(&daemon.calls, pool, &image, &machine("m")).await
        })
        .await;
        assert_eq!(error.kind(), kind, "{}", error.report());
        assert!(error.report().contains(words) && error.report().contains("kvm1"), "{}", error.report());
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_image_is_imported_again_beside_it() {
    let (hypervisor, fetch, mut daemon) = setup();
    let bytes = small_image();
    fetch.serve(&origin(), bytes.clone());
    let image = image(&bytes);
    let first = made(&mut daemon, async |daemon| import(daemon, &image, "m").await).await.expect("imported");
    // the hypervisor has lost its power
    hypervisor.put(POOL, &first.volume, &bytes[..20_000]);
    let second = made(&mut daemon, async |daemon| import(daemon, &image, "m").await).await.expect("imported");
    assert!(second.volume != first.volume && fetch.opened() == 2);
    assert!(hypervisor.content(POOL, &second.volume).expect("there") == bytes);
    assert!(hypervisor.names(POOL).contains(&first.volume), "disks may be overlays on it");
}

#[tokio::test(start_paused = true)]
async fn volumes_that_are_there_can_be_used() {
    let (hypervisor, _, daemon) = setup();
    hypervisor.put(POOL, "debian.qcow2", &small_image());
    hypervisor.put(POOL, "debian.img", &noise(5000));
    let find = async |pool: &str, name, format| {
        let wanted = Existing { pool: pool.to_owned(), ..existing(name, format) };
        daemon.storage.existing_image(&daemon.calls, &wanted).await
    };
    let base = find(POOL, "debian.qcow2", Format::Qcow2).await.expect("there");
    assert_eq!(
        (base.format, base.capacity, base.path.as_str()),
        (Format::Qcow2, 2 * GIB, "/default/debian.qcow2")
    );
    assert_eq!(find(POOL, "debian.img", Format::Raw).await.expect("there").format, Format::Raw);
    for (pool, name, words) in [
        (
            POOL,
            "a",
            "spec.image.volume: volume \"a\" in pool \"default\" on hypervisor \"kvm1\": there is no such volume",
        ),
        (
            "b",
            "a",
            "spec.image.volume: volume \"a\" in pool \"b\" on hypervisor \"kvm1\": there is no such pool",
        ),
    ] {
        let error = find(pool, name, Format::Qcow2).await.expect_err("not there");
        assert_eq!((error.kind(), error.report().as_str()), (ErrorKind::NotFound, words));
    }
    hypervisor.set_active(POOL, false);
    assert_eq!(
        find(POOL, "debian.img", Format::Raw).await.expect_err("not known").kind(),
        ErrorKind::Unavailable
    );
}

/// What a guest may have written to a disk, or what has another file behind it.
#[tokio::test]
async fn a_volume_that_leads_to_another_file_is_no_image() {
    let (hypervisor, _, daemon) = setup();
    let qcow2 = |at: usize, byte: u8| {
        let mut bytes = small_image().to_vec();
        bytes[at] = byte;
        bytes
    };
    hypervisor.put(POOL, "whole", &small_image());
    let backing = Some(Backing { path: "/default/whole".to_owned(), format: Format::Qcow2 });
    hypervisor
        .create(POOL, &NewVolume { backing, ..NewVolume::new("overlay", Format::Qcow2, GIB) })
        .expect("made");
    for (name, content) in [
        ("backing", qcow2(15, 104)),
        ("data-file", qcow2(79, 4)),
        ("encrypted", qcow2(35, 1)),
        ("torn", qcow2(79, 1)),
        ("unknown", qcow2(79, 1 << 6)),
        ("empty", Vec::new()),
        ("vmdk", b"# Disk DescriptorFile\n".repeat(40)),
    ] {
        hypervisor.put(POOL, name, &content);
    }
    for (name, format, words) in [
        ("overlay", Format::Qcow2, "has only the differences to another file"),
        ("backing", Format::Qcow2, "has only the differences to another file"),
        ("backing", Format::Raw, "has only the differences to another file"),
        ("data-file", Format::Qcow2, "has its data in another file"),
        ("data-file", Format::Raw, "has its data in another file"),
        ("encrypted", Format::Qcow2, "is encrypted"),
        ("torn", Format::Qcow2, "is marked as damaged or not closed"),
        ("unknown", Format::Qcow2, "has features of qcow2 that are not known here"),
        ("empty", Format::Raw, "is too short"),
        ("vmdk", Format::Raw, "has the format vmdk"),
        ("whole", Format::Raw, "spec.image.format: is raw, and"),
    ] {
        let before = hypervisor.names(POOL);
        let error =
            daemon.storage.existing_image(&daemon.calls, &existing(name, format)).await.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
        assert!(error.report().contains(words) && error.report().contains(name), "{}", error.report());
        assert!(!error.report().contains("/default/"), "no path of the hypervisor: {}", error.report());
        assert_eq!(hypervisor.names(POOL), before);
    }
}
