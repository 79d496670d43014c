//! A place in the row of a daemon's requests and calls at which it is caught, to be killed there.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// Before or after what a request or a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Before,
    After,
}

/// Counts requests and calls, and lets one of them never return. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trap(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    passed: usize,
    set: Option<(usize, Side, Arc<Notify>)>,
}

impl Trap {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Lets `act` happen, until the request or call with this number, counted from now, is caught, or until `settles` ends. Whether it
    /// was caught: then it never returns.
    pub(crate) async fn catches(
        &self,
        (at, side): (usize, Side),
        act: impl Future<Output = anyhow::Result<()>>,
        settles: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<bool> {
        let caught = self.set(at, side);
        act.await?;
        tokio::select! {
            biased;
            () = caught.notified() => Ok(true),
            settled = settles => settled.map(|()| false),
        }
    }

    fn set(&self, at: usize, side: Side) -> Arc<Notify> {
        let caught = Arc::<Notify>::default();
        *self.lock() = State { passed: 0, set: Some((at, side, Arc::clone(&caught))) };
        caught
    }

    pub(crate) fn remove(&self) {
        self.lock().set = None;
    }

    /// Counts a request or call that begins, and returns its number.
    pub(crate) fn pass(&self) -> usize {
        let mut state = self.lock();
        state.passed += 1;
        state.passed - 1
    }

    /// Hangs if the trap is here.
    pub(crate) async fn stumble(&self, number: usize, side: Side) {
        let caught = {
            let state = self.lock();
            let set = state.set.as_ref().filter(|(at, of, _)| *at == number && *of == side);
            set.map(|(.., caught)| Arc::clone(caught))
        };
        if let Some(caught) = caught {
            caught.notify_one();
            std::future::pending::<()>().await;
        }
    }
}
