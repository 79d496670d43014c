//! How many trials run at once. Each takes as many tokens as it weighs, in the order in which they come.

use std::{
    cell::Cell,
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::scenarios::Trials;

mod tests;

/// Trials mostly wait, so there are more tokens than cores.
const TOKENS_PER_CORE: usize = 3;

/// What a trial weighs, with or without a control plane of its own: those that have one wait for it most of the time.
const WITHOUT_GUEST: usize = 1;
/// What a trial with a virtual machine weighs, whose processor is emulated.
const WITH_GUEST: usize = 2;

/// The tokens of this process: enough for any single trial.
static ADMISSION: LazyLock<Admission> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Admission::new((TOKENS_PER_CORE * cores).max(WITH_GUEST))
});

pub(crate) fn trials() -> Trials {
    tests::trials()
}

/// What the trial of this name weighs.
fn weight(name: &str) -> usize {
    let has_guest = name.contains("qemu::")
        || ["apiserver::kubelet::", "libvirtd::", "e2e::"].iter().any(|prefix| name.starts_with(prefix));
    if has_guest { WITH_GUEST } else { WITHOUT_GUEST }
}

/// A number of tokens, and who has them.
struct Admission {
    tokens: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the next trial that asks, and of the next one that is admitted.
    asking: usize,
    admitting: usize,
    taken: usize,
    /// Trials that want their tokens back.
    returning: usize,
}

thread_local! {
    /// What the trial of this thread weighs. 0: none runs here.
    static WEIGHT: Cell<usize> = const { Cell::new(0) };
    /// For how long the trial of this thread was without its tokens.
    static ASIDE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The tokens of a trial. Returned when dropped.
pub(crate) struct Admitted<'a>(usize, &'a Admission);

/// Waits until the trial of this name may run. A heavy one is not overtaken by light ones.
pub(crate) fn admit(name: &str) -> Admitted<'static> {
    ADMISSION.admit(weight(name))
}

/// Lets other trials have this one's tokens while it waits for what one of them will return, or build. Then it has precedence over
/// those that have not begun. The caller may hold no lock meanwhile, and `wait` may not return one: this trial could hold it while it
/// waits for a token of one that waits for the lock.
pub(crate) fn aside<T>(wait: impl FnOnce() -> T) -> T {
    ADMISSION.aside(wait)
}

/// For how long the trial of this thread was [`aside`].
pub(crate) fn was_aside() -> Duration {
    ASIDE.get()
}

impl Admission {
    fn new(tokens: usize) -> Self {
        Self { tokens, state: Mutex::default(), changed: Condvar::new() }
    }

    fn admit(&self, weight: usize) -> Admitted<'_> {
        let mut state = self.state.lock();
        let number = state.asking;
        state.asking += 1;
        while state.admitting != number || state.returning > 0 || state.taken + weight > self.tokens {
            self.changed.wait(&mut state);
        }
        state.admitting += 1;
        state.taken += weight;
        drop(state);
        self.changed.notify_all();
        WEIGHT.set(weight);
        ASIDE.set(Duration::ZERO);
        Admitted(weight, self)
    }

    fn aside<T>(&self, wait: impl FnOnce() -> T) -> T {
        let (weight, began) = (WEIGHT.get(), Instant::now());
        self.state.lock().taken -= weight;
        self.changed.notify_all();
        let result = wait();
        let mut state = self.state.lock();
        state.returning += 1;
        while state.taken + weight > self.tokens {
            self.changed.wait(&mut state);
        }
        state.returning -= 1;
        state.taken += weight;
        drop(state);
        self.changed.notify_all();
        ASIDE.set(ASIDE.get() + began.elapsed());
        result
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        WEIGHT.set(0);
        self.1.state.lock().taken -= self.0;
        self.1.changed.notify_all();
    }
}
