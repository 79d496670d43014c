//! The order in which trials are admitted, on an admission that no other trial uses.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
};

use super::{Admission, WITH_GUEST, WITHOUT_GUEST, weight};
use crate::scenarios::Trials;

pub(super) fn trials() -> Trials {
    let tests: [(_, fn()); 3] = [
        ("a_trial_with_a_guest_weighs_more", weights),
        ("a_heavy_trial_is_not_overtaken", not_overtaken),
        ("a_trial_that_steps_aside_lends_its_tokens_and_returns_first", aside),
    ];
    tests.into_iter().fold(Trials::new(), |trials, (name, test)| {
        trials.trial(&format!("admission::{name}"), move || {
            test();
            Ok(())
        })
    })
}

fn weights() {
    let heavy = [
        "apiserver::kubelet::joins",
        "libvirtd::starts",
        "e2e::a_machine",
        "apiserver::cluster_api::qemu::life",
    ];
    for name in heavy {
        assert_eq!(weight(name), WITH_GUEST, "{name}");
    }
    for name in ["apiserver::node::kubelet::name", "sandbox::node::initialized", "vsphere::e2e::sessions"] {
        assert_eq!(weight(name), WITHOUT_GUEST, "{name}");
    }
}

/// A trial in a thread of its own, which says when it is admitted, and ends when it is let go.
struct Running {
    admitted: Receiver<()>,
    go: Sender<()>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Returns when the trial has asked.
    fn start(admission: &Arc<Admission>, weight: usize) -> Self {
        let (before, (say, admitted), (go, gone)) =
            (admission.state.lock().asking, mpsc::channel(), mpsc::channel());
        let thread = {
            let admission = admission.clone();
            thread::spawn(move || {
                let _admitted = admission.admit(weight);
                say.send(()).expect("the test waits");
                gone.recv().expect("the test lets it go");
            })
        };
        until(|| admission.state.lock().asking > before);
        Self { admitted, go, thread }
    }

    fn is_admitted(&self) -> bool {
        self.admitted.recv_timeout(test_env::PATIENCE).is_ok()
    }

    fn end(self) {
        self.go.send(()).expect("it waits");
        self.thread.join().expect("it does not panic");
    }
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

fn not_overtaken() {
    let admission = Arc::new(Admission::new(2));
    let first = Running::start(&admission, 1);
    assert!(first.is_admitted());
    let heavy = Running::start(&admission, 2);
    let light = Running::start(&admission, 1);
    // One token is free. The light one, which came later, does not take it.
    assert_eq!(admission.state.lock().taken, 1);
    first.end();
    assert!(heavy.is_admitted());
    assert!(light.admitted.try_recv().is_err(), "all tokens are taken");
    heavy.end();
    assert!(light.is_admitted());
    light.end();
    assert_eq!(admission.state.lock().taken, 0);
}

fn aside() {
    let admission = Arc::new(Admission::new(1));
    let (free, freed) = mpsc::channel::<()>();
    let (say, is_back) = mpsc::channel();
    let waiting = {
        let admission = admission.clone();
        thread::spawn(move || {
            let _admitted = admission.admit(1);
            admission.aside(|| freed.recv().expect("the test frees it"));
            say.send(admission.state.lock().admitting).expect("the test waits");
        })
    };
    until(|| admission.state.lock().admitting == 1);
    let borrower = Running::start(&admission, 1);
    assert!(borrower.is_admitted(), "the token of the trial that waits");
    let newcomer = Running::start(&admission, 1);
    free.send(()).expect("it waits");
    until(|| admission.state.lock().returning == 1);
    borrower.end();
    let admitted = is_back.recv_timeout(test_env::PATIENCE).expect("it has its token again");
    assert_eq!(admitted, 2, "the newcomer was admitted first");
    waiting.join().expect("it does not panic");
    assert!(newcomer.is_admitted());
    newcomer.end();
}
