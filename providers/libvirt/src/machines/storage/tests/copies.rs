use super::*;

const NAME: &str = "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10-disk-root";

fn setup() -> (FakeHypervisor, FakeFetch) {
    let hypervisor = FakeHypervisor::new();
    hypervisor.put(POOL, "debian", &small_image());
    (hypervisor, FakeFetch::default())
}

async fn copy(daemon: &Daemon) -> Result<Made<Disk>> {
    let calls = &daemon.calls;
    let base = daemon.storage.existing_image(calls, &existing("debian", Format::Qcow2)).await?;
    daemon.storage.copy(calls, POOL, NAME, Format::Qcow2, (SIZE, 4 * GIB), &base, &machine(UID)).await
}

/// Nothing but a complete copy is there.
fn assert_one_copy(hypervisor: &FakeHypervisor) {
    let names = hypervisor.names(POOL);
    let found = Attempts::of(NAME, names.iter().map(String::as_str));
    let [(volume, _)] = &found.complete[..] else { panic!("{names:?}") };
    assert!(found.is_clean() && names.len() == 3, "{names:?}");
    assert_eq!(hypervisor.content(POOL, volume).expect("there").len(), small_image().len());
    let volume = hypervisor.volume(POOL, volume).expect("there");
    assert_eq!((volume.capacity, volume.backing), (4 * GIB, None));
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_a_task_and_gets_the_size_of_the_disk() {
    let (hypervisor, fetch) = setup();
    let mut daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let Ok(Made::Working(wait)) = copy(&daemon).await else { panic!("at once") };
    assert_eq!(wait.reason, "CopyingImage");
    assert_eq!(wait.message, "copy of volume \"debian\" to pool \"default\" on hypervisor \"kvm1\"");
    assert_eq!(daemon.woken().await, [UID]);
    let Ok(Made::Ready(disk)) = copy(&daemon).await else { panic!("not copied") };
    assert!(disk.volume.starts_with(NAME) && disk.backing.is_none(), "{disk:?}");
    assert_eq!(disk.path, format!("/default/{}", disk.volume));
    assert_one_copy(&hypervisor);
    let calls = daemon.calls_made();
    copy(&daemon).await.expect("there");
    assert_eq!(daemon.calls_made() - calls, 4);
}

#[tokio::test(start_paused = true)]
async fn a_copy_survives_a_crash_at_each_point() {
    let work = async |daemon: &mut Daemon| {
        // libvirtd refuses what comes in the way of a copy that it is still at
        loop {
            match made(daemon, async |daemon| copy(daemon).await).await {
                Err(error) => assert!(error.is_retryable(), "{}", error.report()),
                Ok(disk) => return disk,
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    with_crashes(setup, work, async |hypervisor, _, _| assert_one_copy(hypervisor)).await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_libvirtd_did_not_finish_is_made_again() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    copy(&daemon).await.expect("begun");
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(daemon);
    hypervisor.restart();
    let mut daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    made(&mut daemon, async |daemon| copy(daemon).await).await.expect("copied");
    assert_one_copy(&hypervisor);
}
