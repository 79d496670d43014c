//! Real peers that several tests share. They start when first needed and stop at the end of the run.

use std::{
    ops::Deref,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use test_env::{ControlPlane, ControlPlaneOptions, StartError};

/// Control planes at most: each takes some 400 MB, and its start some seconds.
const CONTROL_PLANES: usize = 3;

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: Vec::new(), running: 0 });
static RETURNED: Condvar = Condvar::new();

struct Pool {
    idle: Vec<ControlPlane>,
    running: usize,
}

/// A control plane for one test at a time: the controllers of another one would see its Nodes. Goes back when dropped.
pub(crate) struct Borrowed(Option<ControlPlane>);

impl Borrowed {
    /// One that is idle, a new one, or the next one that is given back.
    pub(crate) fn control_plane() -> Result<Self, StartError> {
        let mut pool = lock();
        loop {
            if let Some(control_plane) = pool.idle.pop() {
                return Ok(Self(Some(control_plane)));
            }
            if pool.running < CONTROL_PLANES {
                pool.running += 1;
                drop(pool);
                let started = ControlPlane::start(&ControlPlaneOptions::default());
                if started.is_err() {
                    lock().running -= 1;
                    RETURNED.notify_one();
                }
                return Ok(Self(Some(started?)));
            }
            pool = RETURNED.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Deref for Borrowed {
    type Target = ControlPlane;
    fn deref(&self) -> &ControlPlane {
        self.0.as_ref().expect("taken only when dropped")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        lock().idle.extend(self.0.take());
        RETURNED.notify_one();
    }
}

fn lock() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops what was started.
pub(crate) fn stop_all() {
    lock().idle.clear();
}
