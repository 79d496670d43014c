//! Where calls of the fake cloud wait.

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;

/// Where calls of an operation wait until a test lets them go on.
pub(super) struct Gate {
    /// One permit for each call that may go on.
    open: Semaphore,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    came: usize,
    went_on: usize,
}

impl Gate {
    /// A gate that is shut.
    pub(super) fn shut() -> Self {
        Self { open: Semaphore::new(0), counts: Mutex::default() }
    }

    /// Waits until the test lets this call go on.
    pub(super) async fn pass(&self) {
        self.counts().came += 1;
        // An error means that the gate is open for good.
        if let Ok(permit) = self.open.acquire().await {
            permit.forget();
        }
    }

    /// How many calls wait now.
    pub(super) fn inside(&self) -> usize {
        let counts = self.counts();
        counts.came - counts.went_on
    }

    /// Lets the calls go on that wait now, and no later ones.
    pub(super) fn let_go(&self) {
        let mut counts = self.counts();
        self.open.add_permits(counts.came - counts.went_on);
        counts.went_on = counts.came;
    }

    /// Opens the gate for good.
    pub(super) fn open(&self) {
        self.open.close();
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock()
    }
}
