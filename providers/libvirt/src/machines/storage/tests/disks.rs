use cloudprovider::ErrorKind;

use super::*;

fn setup() -> (FakeHypervisor, FakeFetch) {
    let hypervisor = FakeHypervisor::new();
    hypervisor.put(POOL, "debian", &small_image());
    hypervisor.put(POOL, "other", &small_image());
    (hypervisor, FakeFetch::default())
}

async fn base(daemon: &Daemon, name: &str) -> Base {
    daemon.storage.existing_image(&daemon.calls, &existing(name, Format::Qcow2)).await.expect("there")
}

async fn overlay(daemon: &Daemon, size: u64, base: &Base) -> Result<Disk> {
    daemon.storage.overlay(&daemon.calls, POOL, "root", (SIZE, size), base).await
}

#[tokio::test]
async fn an_overlay_is_made_once() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let base = base(&daemon, "debian").await;
    let disk = overlay(&daemon, 4 * GIB, &base).await.expect("made");
    assert_eq!((disk.path.as_str(), disk.format), ("/default/root", Format::Qcow2));
    let backing = disk.backing.clone().expect("an overlay");
    assert_eq!((backing.path, backing.format), (base.path.clone(), Format::Qcow2));
    assert_eq!(overlay(&daemon, 4 * GIB, &base).await.expect("there"), disk);
    let volume = hypervisor.volume(POOL, "root").expect("there");
    assert_eq!((volume.capacity, volume.backing.as_deref()), (4 * GIB, Some("/default/debian")));
}

#[tokio::test]
async fn a_volume_that_is_something_else_is_left_alone() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let [debian, other] = [base(&daemon, "debian").await, base(&daemon, "other").await];
    overlay(&daemon, 4 * GIB, &debian).await.expect("made");
    let words = "volume \"root\" in pool \"default\" on hypervisor \"kvm1\" exists and is not the disk that the machine \
                 needs: ";
    for (size, base, difference) in [
        (5 * GIB, &debian, "its size is 4 GiB instead of 5 GiB; it is left alone"),
        (4 * GIB, &other, "it is an overlay on /default/debian instead of /default/other; it is left alone"),
    ] {
        let error = overlay(&daemon, size, base).await.expect_err("another one");
        assert_eq!((error.kind(), error.report()), (ErrorKind::Conflict, format!("{words}{difference}")));
    }
    hypervisor.put(POOL, "data", b"somebody's");
    let blank =
        daemon.storage.blank(&daemon.calls, POOL, "data", Format::Qcow2, GIB).await.expect_err("another one");
    assert!(blank.report().contains("its format is raw instead of qcow2"), "{}", blank.report());
    assert_eq!(hypervisor.content(POOL, "data").expect("there"), b"somebody's");
}

#[tokio::test]
async fn a_disk_is_not_smaller_than_its_image() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let base = base(&daemon, "debian").await;
    let error = overlay(&daemon, GIB, &base).await.expect_err("too small");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let words = "spec.disks[0].sizeGiB: 1 GiB is smaller than the disk in the image, which has 2 GiB";
    assert_eq!(error.report(), words);
    overlay(&daemon, 2 * GIB, &base).await.expect("as large as the image");
}

#[tokio::test]
async fn sizes_are_whole_mebibytes() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    for format in [Format::Qcow2, Format::Raw] {
        let name = format.as_str();
        for _ in 0..2 {
            let disk = daemon.storage.blank(&daemon.calls, POOL, name, format, GIB + 1).await.expect("made");
            assert_eq!((disk.format, disk.backing), (format, None));
        }
        assert_eq!(hypervisor.volume(POOL, name).expect("there").capacity, GIB + (1 << 20));
    }
}

#[tokio::test]
async fn a_file_without_content_is_made_again() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    hypervisor.put(POOL, "root", b"");
    overlay(&daemon, 4 * GIB, &base(&daemon, "debian").await).await.expect("made");
}

#[tokio::test]
async fn a_disk_whose_file_was_deleted_by_hand_is_made_again() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let base = base(&daemon, "debian").await;
    let disk = overlay(&daemon, 4 * GIB, &base).await.expect("made");
    hypervisor.delete_by_hand(POOL, "root");
    assert_eq!(overlay(&daemon, 4 * GIB, &base).await.expect("made again"), disk);
    assert_eq!(hypervisor.volume(POOL, "root").expect("there").capacity, 4 * GIB);
}

#[tokio::test(start_paused = true)]
async fn disks_survive_a_crash_at_each_point() {
    let prepare = || {
        let (hypervisor, fetch) = setup();
        hypervisor.put(POOL, "root", b"");
        (hypervisor, fetch)
    };
    let work = async |daemon: &mut Daemon| {
        let base = base(daemon, "debian").await;
        overlay(daemon, 4 * GIB, &base).await.expect("made");
        daemon.storage.blank(&daemon.calls, POOL, "data", Format::Qcow2, GIB).await.expect("made");
    };
    with_crashes(prepare, work, async |hypervisor, _, ()| {
        assert_eq!(hypervisor.names(POOL), ["data", "debian", "other", "root"]);
        assert_eq!(hypervisor.volume(POOL, "root").expect("there").capacity, 4 * GIB);
    })
    .await;
}
