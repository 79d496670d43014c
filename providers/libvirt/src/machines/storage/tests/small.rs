use cloudprovider::ErrorKind;

use super::*;
use crate::machines::storage::small::{MAX_SMALL, ensure_small};

const SEED: &str = "ccm-5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10-seed";

fn setup() -> (FakeHypervisor, FakeFetch) {
    (FakeHypervisor::new(), FakeFetch::default())
}

#[tokio::test]
async fn content_is_written_once_and_again_if_it_differs() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let content = noise(100_000);
    let path = ensure_small(&daemon.calls, POOL, SEED, &content).await.expect("made");
    assert_eq!(path, format!("/default/{SEED}"));
    assert_eq!(daemon.calls_made(), 3, "made, uploaded and measured");
    ensure_small(&daemon.calls, POOL, "empty", b"").await.expect("made");
    assert_eq!(daemon.calls_made(), 4, "made");
    assert_eq!(hypervisor.content(POOL, SEED).expect("there"), content);
    let calls = daemon.calls_made();
    ensure_small(&daemon.calls, POOL, SEED, &content).await.expect("there");
    assert_eq!(daemon.calls_made() - calls, 3, "not made, looked at and read");
    for other in [&content[..50_000], &noise(100_001)[1..], b""] {
        hypervisor.put(POOL, SEED, other);
        ensure_small(&daemon.calls, POOL, SEED, &content).await.expect("made");
        assert_eq!(hypervisor.content(POOL, SEED).expect("there"), content);
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_its_size() {
    let (hypervisor, fetch) = setup();
    let daemon = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
    let error =
        ensure_small(&daemon.calls, POOL, SEED, &vec![0; MAX_SMALL + 1]).await.expect_err("too large");
    assert_eq!((error.kind(), daemon.calls_made()), (ErrorKind::InvalidInput, 0));
}

#[tokio::test(start_paused = true)]
async fn a_small_volume_survives_a_crash_at_each_point() {
    let content = noise(100_000);
    let prepare = || {
        let (hypervisor, fetch) = setup();
        hypervisor.put(POOL, SEED, b"other");
        (hypervisor, fetch)
    };
    let work = async |daemon: &mut Daemon| ensure_small(&daemon.calls, POOL, SEED, &content).await;
    with_crashes(prepare, work, async |hypervisor, _, path| {
        path.expect("made");
        assert_eq!(hypervisor.content(POOL, SEED).expect("there"), content);
        assert_eq!(hypervisor.names(POOL), [SEED]);
    })
    .await;
}
