//! Helpers for providers that keep an inventory, which is listed once and then follows changes.

use futures::{StreamExt as _, stream};
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{InstanceChange, InstanceStream};

/// Calls `look`, and calls it again after each of `changes` while `waits_for_listing` is true of an answer.
/// Once `deadline` has passed, returns the answers as they are. Without a deadline, or if it has already
/// passed, looks only once.
pub async fn look_once_listed<A>(
    look: impl Fn() -> Vec<A>,
    waits_for_listing: impl Fn(&A) -> bool,
    mut changes: watch::Receiver<u64>,
    deadline: Option<Instant>,
) -> Vec<A> {
    loop {
        // Marked before the look, so that a change during the look is not missed.
        changes.mark_unchanged();
        let answers = look();
        let deadline = deadline.filter(|deadline| *deadline > Instant::now());
        let (Some(deadline), true) = (deadline, answers.iter().any(&waits_for_listing)) else {
            return answers;
        };
        tokio::select! {
            () = sleep_until(deadline) => {}
            // Without a sender there are no more changes: only the deadline is waited for.
            Ok(()) = changes.changed() => {}
        }
    }
}

/// The changes of instances, until `stop` is cancelled. A reader that falls too far behind gets
/// [`InstanceChange::Resync`].
pub fn instance_stream(
    changes: broadcast::Receiver<InstanceChange>,
    stop: CancellationToken,
) -> InstanceStream {
    let changes = stream::unfold(changes, |mut changes| async {
        match changes.recv().await {
            Ok(change) => Some((change, changes)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some((InstanceChange::Resync, changes)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    });
    changes.take_until(stop.cancelled_owned()).boxed()
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    /// Looks at an inventory whose listing is there at look number `listed_at`. Returns the number of looks
    /// and the time that they took.
    async fn look(listed_at: u32, changes: watch::Receiver<u64>, grace: Option<Duration>) -> (u32, Duration) {
        let (start, looks) = (Instant::now(), Cell::new(0));
        let look = || {
            looks.set(looks.get() + 1);
            vec![looks.get() >= listed_at]
        };
        let found = look_once_listed(look, |is_listed| !is_listed, changes, grace.map(|grace| start + grace));
        assert_eq!(found.await, [looks.get() >= listed_at]);
        (looks.get(), start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_listing_is_waited_for_as_long_as_the_deadline_says() {
        let (sender, receiver) = watch::channel(0);
        assert_eq!(look(1, receiver.clone(), Some(GRACE)).await, (1, Duration::ZERO), "it is there");
        assert_eq!(look(9, receiver.clone(), None).await, (1, Duration::ZERO), "nobody waits");
        assert_eq!(look(9, receiver.clone(), Some(Duration::ZERO)).await, (1, Duration::ZERO), "it is over");
        assert_eq!(look(9, receiver.clone(), Some(GRACE)).await, (2, GRACE), "it does not come");
        let changes = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                sender.send_modify(|number| *number += 1);
            }
        };
        let (found, ()) = tokio::join!(look(3, receiver.clone(), Some(GRACE)), changes);
        assert_eq!(found, (3, Duration::from_secs(2)), "it comes");
        drop(sender);
        assert_eq!(look(9, receiver, Some(GRACE)).await, (2, GRACE), "nothing changes any more");
    }

    #[tokio::test]
    async fn whoever_is_slow_looks_at_everything_again() {
        let (sender, receiver) = broadcast::channel(2);
        let stop = CancellationToken::new();
        let mut changes = instance_stream(receiver, stop.clone());
        for _ in 0..5 {
            sender.send(InstanceChange::Changed(Vec::new())).expect("somebody listens");
        }
        assert!(matches!(changes.next().await, Some(InstanceChange::Resync)));
        assert!(matches!(changes.next().await, Some(InstanceChange::Changed(_))));
        stop.cancel();
        assert!(changes.next().await.is_none());
    }
}
