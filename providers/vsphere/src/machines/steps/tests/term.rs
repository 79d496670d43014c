//! Calls that a step has begun and that go on without it.

use std::sync::atomic::{AtomicBool, Ordering};

use cloudprovider::Term;
use futures::FutureExt as _;

use super::{
    rig::{mark, rig},
    *,
};

#[tokio::test(start_paused = true)]
async fn what_is_begun_is_not_sent_after_the_term() {
    for is_over in [true, false] {
        let mut rig = rig().await;
        rig.begins("PowerOffVM_Task", "task-1");
        let lasts = Arc::new(AtomicBool::new(true));
        let of_term = Arc::clone(&lasts);
        let term = Term::new(move || of_term.load(Ordering::Relaxed));
        // the step has begun its call, and is given up before the call is made
        let mut step = Box::pin(term.scope(rig.delete()));
        assert!(step.as_mut().now_or_never().is_none());
        drop(step);
        lasts.store(!is_over, Ordering::Relaxed);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let expected: &[&str] = if is_over { &[] } else { &["PowerOffVM_Task"] };
        assert_eq!(rig.calls(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_begun_keeps_the_lock_of_its_machine() {
    let mut rig = rig().await;
    rig.begins("PowerOffVM_Task", "task-1");
    let lock = rig.machines.object_locks.lock(&mark()).await.expect("it is free");
    let mut step = Box::pin(lock.scope(rig.delete()));
    assert!(step.as_mut().now_or_never().is_none());
    drop(step);
    assert!(rig.machines.object_locks.lock(&mark()).now_or_never().is_none(), "the call goes on");
    rig.machines.object_locks.lock(&mark()).await.expect("the call has ended");
    assert_eq!(rig.calls(), ["PowerOffVM_Task"]);
}
