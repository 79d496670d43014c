//! How many trials run at once. Each takes as many tokens as it weighs, in the order in which they come.

use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// Trials mostly wait, so there are more tokens than cores.
const TOKENS_PER_CORE: usize = 3;

/// What a trial weighs, with or without a control plane of its own: those that have one wait for it most of the time.
const WITHOUT_GUEST: usize = 1;
/// What a trial with a virtual machine weighs, whose processor is emulated.
const WITH_GUEST: usize = 2;

/// The most tokens at a time. That is enough for any single trial.
pub(crate) fn tokens() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (TOKENS_PER_CORE * cores).max(WITH_GUEST)
}

/// What the trial of this name weighs.
fn weight(name: &str) -> usize {
    let has_guest = name.contains("qemu::")
        || ["apiserver::kubelet::", "libvirtd::", "e2e::"].iter().any(|prefix| name.starts_with(prefix));
    if has_guest { WITH_GUEST } else { WITHOUT_GUEST }
}

struct State {
    /// The number of the next trial that asks, and of the next one that is admitted.
    asking: usize,
    admitting: usize,
    taken: usize,
}

static STATE: Mutex<State> = Mutex::new(State { asking: 0, admitting: 0, taken: 0 });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// What the trial of this thread weighs. 0: none runs here.
    static WEIGHT: Cell<usize> = const { Cell::new(0) };
    /// For how long the trial of this thread was without its tokens.
    static ASIDE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The tokens of a trial. Returned when dropped.
pub(crate) struct Admitted(usize);

/// Waits until the trial of this name may run. A heavy one is not overtaken by light ones.
pub(crate) fn admit(name: &str) -> Admitted {
    let weight = weight(name);
    let mut state = STATE.lock();
    let number = state.asking;
    state.asking += 1;
    while state.admitting != number || state.taken + weight > tokens() {
        CHANGED.wait(&mut state);
    }
    state.admitting += 1;
    state.taken += weight;
    drop(state);
    CHANGED.notify_all();
    WEIGHT.set(weight);
    ASIDE.set(Duration::ZERO);
    Admitted(weight)
}

/// Lets other trials have this one's tokens while it waits for what one of them will return. Then it has precedence over those that
/// have not begun. `wait` may not return a lock: this trial could hold it while it waits for a token of one that waits for the lock.
pub(crate) fn aside<T>(wait: impl FnOnce() -> T) -> T {
    let (weight, began) = (WEIGHT.get(), Instant::now());
    STATE.lock().taken -= weight;
    CHANGED.notify_all();
    let result = wait();
    let mut state = STATE.lock();
    while state.taken + weight > tokens() {
        CHANGED.wait(&mut state);
    }
    state.taken += weight;
    ASIDE.set(ASIDE.get() + began.elapsed());
    result
}

/// For how long the trial of this thread was [`aside`].
pub(crate) fn was_aside() -> Duration {
    ASIDE.get()
}

impl Drop for Admitted {
    fn drop(&mut self) {
        WEIGHT.set(0);
        STATE.lock().taken -= self.0;
        CHANGED.notify_all();
    }
}
