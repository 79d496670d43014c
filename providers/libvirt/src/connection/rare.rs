//! When to try to connect although many threads still wait for the answers of earlier tries.

use std::time::Duration;

use tokio::time::Instant;

/// With this many threads still waiting for the answers of earlier connections, tries become rare: nothing ever ends a
/// wait for a host that has vanished from the network, and each try may cost one more thread.
const MANY_THREADS: usize = 16;
/// The first pause between rare tries; doubled each time ...
const RARE: Duration = Duration::from_secs(300);
/// ... up to this.
const RAREST: Duration = Duration::from_secs(3600);

/// When there may be a try although many threads still wait for the answers of earlier ones.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// When the last try began, and how long after it there may be another one.
    last: Option<(Instant, Duration)>,
}

impl Rare {
    /// Whether there may be a try now, while so many threads wait; if so, it is taken as begun.
    pub(super) fn may_try(&mut self, waiting: usize, now: Instant) -> bool {
        let pause = match self.last {
            _ if waiting < MANY_THREADS => RARE,
            Some((last, pause)) if now < last + pause => return false,
            Some((_, pause)) => (pause * 2).min(RAREST),
            None => RARE,
        };
        self.last = Some((now, pause));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rare_and_never_end() {
        let mut rare = Rare::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(rare.may_try(0, at(0)) && rare.may_try(MANY_THREADS - 1, at(1)), "few threads wait");
        assert!(!rare.may_try(MANY_THREADS, at(300)));
        assert!(rare.may_try(MANY_THREADS, at(301)));
        assert!(!rare.may_try(MANY_THREADS, at(900)));
        assert!(rare.may_try(50, at(901)), "however many there are");
        let (mut now, mut tries) = (901, Vec::new());
        while tries.len() < 10 {
            now += 60;
            if rare.may_try(50, at(now)) {
                tries.push(now);
            }
        }
        let last = tries.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
        assert!((3600..3600 + 60).contains(&last), "{tries:?}");
        assert!(rare.may_try(0, at(now + 1)), "a thread has come back");
    }
}
