use super::*;
use crate::machines::storage::{image::Base, volume::Format};

/// An attempt that nobody has finished.
const DEAD: &str = "ccm-image-sha256-00-qcow2.0123456789abcdef";

fn setup() -> (FakeHypervisor, Daemon, Image) {
    let (hypervisor, fetch) = (FakeHypervisor::new(), FakeFetch::default());
    let bytes = small_image();
    fetch.serve(&origin(), bytes.clone());
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    (hypervisor, daemon, image(&bytes))
}

#[tokio::test(start_paused = true)]
async fn what_does_not_change_is_deleted_once_in_a_while() {
    let (hypervisor, mut daemon, image) = setup();
    let lonely_marker = "ccm-image-sha256-00-qcow2.fedcba9876543210.complete-7";
    let foreign = ["ccm-image-sha256-00-qcow2", "other.0123456789abcdef", "ccm-image.img"];
    for name in foreign.into_iter().chain([DEAD, lonely_marker]) {
        hypervisor.put(POOL, name, b"half");
    }
    made(&mut daemon, async |daemon| import(daemon, &image, "m").await).await.expect("imported");
    assert!(hypervisor.names(POOL).contains(&DEAD.to_owned()), "not yet: somebody may be at work on it");
    tokio::time::sleep(SWEPT).await;
    let names = hypervisor.names(POOL);
    assert!(!names.iter().any(|name| name == DEAD || name == lonely_marker), "{names:?}");
    assert!(foreign.iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
    assert_eq!(images_of(&hypervisor).complete.len(), 1, "the image stays");
}

#[tokio::test(start_paused = true)]
async fn what_somebody_is_at_work_on_stays() {
    let (hypervisor, mut daemon, image) = setup();
    hypervisor.put(POOL, DEAD, b"");
    let file = hypervisor.file(POOL, DEAD).expect("there");
    made(&mut daemon, async |daemon| import(daemon, &image, "m").await).await.expect("imported");
    for at in 0..20 {
        hypervisor.write(file, at, b"x").expect("written");
        tokio::time::sleep(SWEPT / 4).await;
        import(&daemon, &image, "m").await.expect("there");
        assert!(hypervisor.names(POOL).contains(&DEAD.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_with_overlays_stays_though_its_marker_was_deleted() {
    let (hypervisor, mut daemon, image) = setup();
    hypervisor.put(POOL, DEAD, &small_image());
    let path = format!("/{POOL}/{DEAD}");
    let base = Base {
        pool: POOL.into(),
        volume: DEAD.into(),
        path,
        format: Format::Qcow2,
        capacity: GIB,
        length: 1,
    };
    hypervisor.add_pool("fast", "dir");
    daemon.storage.overlay(&daemon.calls, "fast", "disk", (SIZE, 4 * GIB), &base).await.expect("made");
    made(&mut daemon, async |daemon| import(daemon, &image, "m").await).await.expect("imported");
    tokio::time::sleep(SWEPT).await;
    assert!(hypervisor.names(POOL).contains(&DEAD.to_owned()));
    hypervisor.delete("fast", "disk").expect("deleted");
    import(&daemon, &image, "m").await.expect("there");
    tokio::time::sleep(SWEPT).await;
    assert!(!hypervisor.names(POOL).contains(&DEAD.to_owned()));
}
