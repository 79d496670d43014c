//! Daemons that die at any point, and several at once.

use super::*;
use crate::machines::storage::testing::Body;

#[tokio::test(start_paused = true)]
async fn an_import_survives_a_crash_at_each_point() {
    let bytes = small_image();
    let image = image(&bytes);
    let prepare = || {
        let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
        fetch.serve(&origin(), bytes.clone());
        (hypervisor, fetch)
    };
    let work =
        async |daemon: &mut Daemon| made(daemon, async |daemon| import(daemon, &image, "m").await).await;
    with_crashes(prepare, work, async |hypervisor, daemon, base| {
        let base = base.expect("imported");
        assert!(hypervisor.content(POOL, &base.volume).expect("there") == bytes);
        // what the first daemon has left is found when the image is next asked for
        import(daemon, &image, "m").await.expect("there");
        tokio::time::sleep(SWEPT).await;
        assert_one_image(hypervisor, &bytes);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_dies_while_it_deletes_leftovers_is_followed_by_one_that_goes_on() {
    let bytes = small_image();
    let image = image(&bytes);
    let prepare = || {
        let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
        fetch.serve(&origin(), bytes.clone());
        for n in 0..3 {
            hypervisor.put(POOL, &format!("ccm-image-sha256-0{n}-raw.0123456789abcdef"), b"half");
            hypervisor.put(POOL, &format!("ccm-image-sha256-0{n}-raw.aaaaaaaaaaaaaaaa.complete-7"), b"");
        }
        (hypervisor, fetch)
    };
    let work = async |daemon: &mut Daemon| {
        made(daemon, async |daemon| import(daemon, &image, "m").await).await.expect("imported");
        import(daemon, &image, "m").await.expect("there");
        tokio::time::sleep(SWEPT).await;
    };
    with_crashes(prepare, work, async |hypervisor, _, ()| assert_one_image(hypervisor, &bytes)).await;
}

/// Whatever the order of their calls, each gets a complete image, and what each got stays.
#[tokio::test(start_paused = true)]
async fn two_daemons_that_import_the_same_image_do_not_harm_each_other() {
    let bytes = small_image();
    let wanted = image(&bytes);
    for _ in 0..200 {
        let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
        let pace = Duration::from_millis(3);
        fetch.serve(&origin(), Body { pace, ..bytes.clone().into() });
        let daemons = [(); 2].map(|()| Daemon::new(FakeCalls::with_jitter(&hypervisor, 20), &fetch));
        let overlays = daemons.into_iter().enumerate().map(async |(n, mut daemon)| {
            let base = made(&mut daemon, async |daemon| import(daemon, &wanted, "m").await).await;
            let base = base.expect("imported");
            let (name, size) = (format!("disk-{n}"), (SIZE, 4 * GIB));
            daemon.storage.overlay(&daemon.calls, POOL, &name, size, &base).await.expect("made");
            // both look for leftovers, too
            tokio::time::sleep(SWEPT).await;
            base
        });
        for base in futures::future::join_all(overlays).await {
            assert!(hypervisor.content(POOL, &base.volume).expect("still there") == bytes);
        }
        let found = images_of(&hypervisor);
        assert!(found.is_clean() && (1..=2).contains(&found.complete.len()), "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_of_two_daemons_removes_its_own_copy() {
    let bytes = small_image();
    let wanted = image(&bytes);
    let hypervisor = FakeHypervisor::new();
    let imports = [1, 2].map(|pace| {
        let fetch = FakeFetch::default();
        fetch.serve(&origin(), Body { pace: Duration::from_secs(pace), ..bytes.clone().into() });
        Daemon::new(FakeCalls::new(&hypervisor), &fetch)
    });
    let imports = imports.into_iter().map(async |mut daemon| {
        made(&mut daemon, async |daemon| import(daemon, &wanted, "m").await).await.expect("imported")
    });
    let bases = futures::future::join_all(imports).await;
    assert_eq!(bases[0], bases[1]);
    assert_one_image(&hypervisor, &bytes);
}

#[tokio::test(start_paused = true)]
async fn an_import_whose_volume_is_deleted_meanwhile_is_repeated() {
    let bytes = small_image();
    let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
    fetch.serve(&origin(), Body { pace: Duration::from_secs(1), ..bytes.clone().into() });
    let image = image(&bytes);
    let mut daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    import(&daemon, &image, "m").await.expect("begun");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let names = hypervisor.names(POOL);
    let [volume] = &names[..] else { panic!("{names:?}") };
    hypervisor.delete(POOL, volume).expect("deleted");
    made(&mut daemon, async |daemon| import(daemon, &image, "m").await).await.expect("imported");
    assert_eq!(fetch.opened(), 2);
    assert_one_image(&hypervisor, &bytes);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_stops_ends_its_import() {
    let bytes = small_image();
    let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
    fetch.serve(&origin(), Body { pace: Duration::from_secs(1), ..bytes.clone().into() });
    let image = image(&bytes);
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    import(&daemon, &image, "m").await.expect("begun");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let calls = daemon.calls_made();
    drop(daemon);
    tokio::time::sleep(SWEPT).await;
    let found = images_of(&hypervisor);
    assert!(found.complete.is_empty() && found.incomplete.len() == 1, "{found:?}");
    assert!(calls > 0 && fetch.opened() == 1);
}
