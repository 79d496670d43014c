//! Tests of the actor without a libvirtd.

use std::{
    os::unix::net::UnixListener,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{broadcast, watch};

use super::*;
use crate::{config::Config, hypervisor::Shared};

/// An actor for a socket in `dir`, and the handle for look-ups.
fn actor(socket: &std::path::Path) -> (Actor, Arc<Hypervisor>) {
    let text = format!("hypervisors: [{{name: h, uri: 'qemu+unix:///system?socket={}'}}]", socket.display());
    let config = Arc::new(Config::parse(&text, None).expect("valid"));
    let shared = Shared::new(Arc::clone(&config), watch::channel(0).0, broadcast::channel(1).0);
    let (hypervisor, commands) = Hypervisor::new(config.hypervisors[0].clone(), shared);
    let actor = Actor {
        hypervisor: Arc::clone(&hypervisor),
        commands,
        abandoned: ThreadCount::default(),
        rare: Rare::default(),
    };
    (actor, hypervisor)
}

#[tokio::test]
async fn the_thread_of_a_refused_connection_does_not_end_the_pause() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            drop(stream);
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (mut actor, _hypervisor) = actor(&socket);
    // the pauses between the first three tries are at least 0.8 s and 1.6 s
    assert!(tokio::time::timeout(Duration::from_millis(2300), actor.keep_connected()).await.is_err());
    let tries = count.load(Ordering::Relaxed);
    assert!((1..=2).contains(&tries), "{tries} tries");
}

#[tokio::test]
async fn a_panic_leaves_nothing_live() {
    let (mut actor, hypervisor) = actor(std::path::Path::new("/nowhere/at/all"));
    hypervisor.set_status(Status::Live, |_| ());
    let ended = AssertUnwindSafe(async { panic!("a fault") }).catch_unwind().await;
    actor.take_end(ended).await;
    let state = hypervisor.state();
    let Status::Down { failure, .. } = &state.status else { panic!("live") };
    assert_eq!(failure.message, "a fault of the provider: its actor panicked");
}
