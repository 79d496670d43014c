//! Tests of the actor without a libvirtd.

use std::os::unix::net::UnixListener;

use tokio::sync::{broadcast, watch};

use super::*;
use crate::{config::Config, hypervisor::ProviderState};

/// An actor for a socket in `dir`, and the handle for look-ups.
fn actor(socket: &std::path::Path) -> (Actor, Arc<Hypervisor>) {
    let text = format!("hypervisors: [{{name: h, uri: 'qemu+unix:///system?socket={}'}}]", socket.display());
    let config = Arc::new(Config::parse(&text, None).expect("valid"));
    let shared = ProviderState::new(Arc::clone(&config), watch::channel(0).0, broadcast::channel(1).0);
    let (hypervisor, commands) = Hypervisor::new(config.hypervisors[0].clone(), shared);
    let actor = Actor {
        hypervisor: Arc::clone(&hypervisor),
        commands,
        abandoned: AbandonedThreads::default(),
        reconnect_limit: ReconnectLimit::default(),
    };
    (actor, hypervisor)
}

#[tokio::test]
async fn the_thread_of_a_refused_connection_does_not_end_the_pause() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let (accepted, mut tries) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Before the connection ends: the pause begins after that.
            let is_awaited = accepted.send(Instant::now()).is_ok();
            drop(stream);
            if !is_awaited {
                return;
            }
        }
    });
    let (mut actor, _hypervisor) = actor(&socket);
    let three = async {
        let mut times = Vec::new();
        while times.len() < 3 {
            times.push(tries.recv().await.expect("the listener"));
        }
        times
    };
    let times = tokio::select! {
        () = actor.keep_connected() => unreachable!("it tries for ever"),
        times = three => times,
    };
    let pauses: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, failures) in pauses.iter().zip(1..) {
        // The jitter takes a fifth at most.
        let least = Duration::from_millis(800) * failures;
        assert!(*pause >= least, "{pauses:?}");
    }
}

#[tokio::test]
async fn a_panic_leaves_nothing_live() {
    let (mut actor, hypervisor) = actor(std::path::Path::new("/nowhere/at/all"));
    hypervisor.set_status(Status::Live, |_| ());
    let ended = AssertUnwindSafe(async { panic!("a fault") }).catch_unwind().await;
    actor.take_end(ended).await;
    let state = hypervisor.state();
    let Status::Disconnected { failure, .. } = &state.status else { panic!("live") };
    assert_eq!(failure.message, "a fault of the provider: its actor panicked");
}
