//! Real peers that several tests share. They start when first needed and stop at the end of the run.

use std::ops::Deref;

use parking_lot::{Condvar, Mutex, MutexGuard};
use test_env::{ControlPlane, ControlPlaneOptions, StartError};

use crate::admission;

/// Control planes of one version.
struct Shared {
    pool: Mutex<Pool>,
    returned: Condvar,
    /// The most control planes: each needs some 400 MB, and some seconds to start.
    most: usize,
    is_previous: bool,
}

struct Pool {
    idle: Vec<ControlPlane>,
    running: usize,
}

/// What a trial may do whose turn it is.
enum Turn {
    Take(Box<ControlPlane>),
    /// Start one more, which is counted already.
    Start,
}

static CURRENT: Shared = Shared::new(4, false);
static PREVIOUS: Shared = Shared::new(1, true);

/// A control plane that one test uses at a time, since another test's controllers would see its Nodes.
/// Returned when dropped.
pub(crate) struct Borrowed(Option<ControlPlane>, &'static Shared);

impl Borrowed {
    /// Takes an idle one, starts a new one, or waits for one to be returned.
    pub(crate) fn control_plane() -> Result<Self, StartError> {
        CURRENT.borrow()
    }

    /// The same, with the API server of the previous minor version.
    pub(crate) fn previous_control_plane() -> Result<Self, StartError> {
        PREVIOUS.borrow()
    }
}

impl Pool {
    /// An idle one, or leave to start one. `None`: all `most` are taken.
    fn take(&mut self, most: usize) -> Option<Turn> {
        if let Some(control_plane) = self.idle.pop() {
            return Some(Turn::Take(Box::new(control_plane)));
        }
        (self.running < most).then(|| {
            self.running += 1;
            Turn::Start
        })
    }
}

impl Shared {
    const fn new(most: usize, is_previous: bool) -> Self {
        let pool = Mutex::new(Pool { idle: Vec::new(), running: 0 });
        Self { pool, returned: Condvar::new(), most, is_previous }
    }

    fn borrow(&'static self) -> Result<Borrowed, StartError> {
        let now = self.lock().take(self.most);
        match now.unwrap_or_else(|| admission::aside(|| self.wait())) {
            Turn::Take(control_plane) => Ok(Borrowed(Some(*control_plane), self)),
            Turn::Start => {
                let options = ControlPlaneOptions::default();
                let options = if self.is_previous { options.previous_version() } else { options };
                let started = ControlPlane::start(&options);
                if started.is_err() {
                    self.lock().running -= 1;
                    self.returned.notify_one();
                }
                Ok(Borrowed(Some(started?), self))
            }
        }
    }

    fn wait(&self) -> Turn {
        let mut pool = self.lock();
        loop {
            match pool.take(self.most) {
                Some(turn) => return turn,
                None => self.returned.wait(&mut pool),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
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
        self.1.lock().idle.extend(self.0.take());
        self.1.returned.notify_one();
    }
}

/// Stops all control planes.
pub(crate) fn stop_all() {
    for shared in [&CURRENT, &PREVIOUS] {
        shared.lock().idle.clear();
    }
}
