//! When a definition may be written again. Pure.

use std::time::Duration;

use jiff::Timestamp;

/// The pause after the first write. It doubles with each further one.
const MIN_PAUSE: Duration = Duration::from_secs(1);

const MAX_PAUSE: Duration = Duration::from_secs(5 * 60);

/// A write that lasted so long was not undone by somebody who undoes all of them.
const FORGET_AFTER: Duration = Duration::from_secs(10 * 60);

/// The last write of a definition, and when the next one may come. Somebody else may undo each write. The API server ends the
/// watches of a kind with each change of its definition, so such a writer is not fought at full speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    uid: String,
    pause: Duration,
    next: Timestamp,
}

impl Pace {
    /// After a write of the definition with this UID. `before` is what was known before it.
    pub(super) fn after_write(before: Option<&Self>, uid: &str, now: Timestamp) -> Self {
        let before = before.filter(|before| before.uid == uid && now < before.next + FORGET_AFTER);
        let pause = before.map_or(MIN_PAUSE, |before| (before.pause * 2).min(MAX_PAUSE));
        Self { uid: uid.to_owned(), pause, next: now + pause }
    }

    /// How long to wait until the definition with this UID may be written. `None`: now.
    pub(super) fn wait(&self, uid: &str, now: Timestamp) -> Option<Duration> {
        (self.uid == uid && now < self.next).then(|| self.next.duration_since(now).unsigned_abs())
    }

    /// Whether several writes were undone, one after the other. After the first one, an old event may have come late.
    pub(super) fn is_contested(&self) -> bool {
        self.pause > MIN_PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    #[test]
    fn pauses_grow_while_writes_are_undone() {
        let (mut now, mut pace, mut pauses) = (at(0), None, Vec::new());
        for _ in 0..11 {
            let after = Pace::after_write(pace.as_ref(), "u", now);
            let wait = after.wait("u", now).expect("a pause");
            pauses.push(wait.as_secs());
            assert_eq!(after.is_contested(), wait > MIN_PAUSE);
            now += wait;
            assert_eq!(after.wait("u", now), None);
            pace = Some(after);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        let later = Pace::after_write(pace.as_ref(), "u", now + FORGET_AFTER);
        assert_eq!(later.wait("u", now + FORGET_AFTER), Some(MIN_PAUSE), "a write that lasted");
        let other = pace.expect("a pace");
        assert_eq!(other.wait("v", at(0)), None, "another definition of that name");
        assert_eq!(Pace::after_write(Some(&other), "v", now).wait("v", now), Some(MIN_PAUSE));
    }
}
