//! Turns for work that only a few may do at the same time. Waiting sources take turns in rotation, so that a
//! source with much work delays only itself.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::source::Source;

/// Gives turns. Clones share the state.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    state: Arc<Mutex<State>>,
    most: usize,
    of_one_source: usize,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    taken: usize,
    taken_by: HashMap<Source, usize>,
    /// Waiting requests for a turn, in order of arrival for each source.
    waiting: HashMap<Source, BTreeMap<u64, oneshot::Sender<Turn>>>,
    /// The sources of these. The next one is first.
    order: VecDeque<Source>,
}

/// A turn. It ends when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    source: Source,
}

/// A waiting request for a turn. Dropped when it gets the turn, or is cancelled.
struct Ticket<'a> {
    turns: &'a Turns,
    source: Source,
    id: u64,
}

impl Turns {
    /// `most` turns at the same time, and `of_one_source` for each source.
    pub(super) fn new(most: usize, of_one_source: usize) -> Self {
        Self { state: Arc::default(), most, of_one_source }
    }

    /// Waits for a turn. Callers must limit how many of them wait. `None`: never happens.
    pub(super) async fn take(&self, source: Source) -> Option<Turn> {
        let (sender, turn) = oneshot::channel();
        let _ticket = self.queue(source, sender);
        self.give();
        turn.await.ok()
    }

    fn queue(&self, source: Source, sender: oneshot::Sender<Turn>) -> Ticket<'_> {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        let waiting = state.waiting.entry(source).or_default();
        let is_first = waiting.is_empty();
        waiting.insert(id, sender);
        if is_first {
            state.order.push_back(source);
        }
        Ticket { turns: self, source, id }
    }

    /// Gives all free turns.
    fn give(&self) {
        let mut unwanted = Vec::new();
        let mut state = self.lock();
        while state.taken < self.most
            && let Some((source, sender)) = state.next(self.of_one_source)
        {
            state.taken += 1;
            *state.taken_by.entry(source).or_default() += 1;
            if let Err(turn) = sender.send(Turn { turns: self.clone(), source }) {
                unwanted.push(turn);
            }
        }
        drop(state);
        // Dropped only after the lock is released: each unwanted turn ends like any other.
        drop(unwanted);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// The next waiting request, from a source below its share.
    fn next(&mut self, share: usize) -> Option<(Source, oneshot::Sender<Turn>)> {
        let may = |source: &Source| self.taken_by.get(source).is_none_or(|taken| *taken < share);
        let source = self.order.remove(self.order.iter().position(may)?)?;
        let waiting = self.waiting.get_mut(&source)?;
        let (_, sender) = waiting.pop_first()?;
        if waiting.is_empty() {
            self.waiting.remove(&source);
        } else {
            self.order.push_back(source);
        }
        Some((source, sender))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.taken -= 1;
        if let Some(taken) = state.taken_by.get_mut(&self.source) {
            *taken -= 1;
            if *taken == 0 {
                state.taken_by.remove(&self.source);
            }
        }
        drop(state);
        self.turns.give();
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        let Some(waiting) = state.waiting.get_mut(&self.source) else { return };
        waiting.remove(&self.id);
        if waiting.is_empty() {
            state.waiting.remove(&self.source);
            state.order.retain(|source| *source != self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, task::Poll};

    use futures::FutureExt as _;

    use super::*;

    fn there(last: u8) -> Source {
        Source::Address(IpAddr::from([192, 0, 2, last]))
    }

    #[tokio::test]
    async fn sources_have_turns_one_after_the_other() {
        let turns = Turns::new(1, 1);
        let first = turns.take(there(1)).await.expect("a turn");
        let order = Mutex::new(Vec::new());
        let wait = async |last: u8| {
            let turn = turns.take(there(last)).await.expect("a turn");
            order.lock().push(last);
            tokio::task::yield_now().await;
            drop(turn);
        };
        let all = [1, 1, 1, 1, 2, 2, 3].map(wait);
        let all = futures::future::join_all(all);
        let end = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        tokio::join!(all, end);
        assert_eq!(*order.lock(), [1, 2, 3, 1, 2, 1, 1]);
    }

    #[tokio::test]
    async fn one_source_has_a_share() {
        let turns = Turns::new(3, 2);
        let take = |last: u8| turns.take(there(last)).now_or_never().flatten();
        let taken = [take(1), take(1)];
        assert!(taken.iter().all(Option::is_some));
        assert!(take(1).is_none(), "it has its share");
        let other = take(2);
        assert!(other.is_some());
        assert!(take(3).is_none(), "there are no more");
        drop(taken);
        assert!(take(3).is_some() && take(1).is_some());
        drop(other);
        let state = turns.lock();
        assert_eq!((state.taken, state.taken_by.len()), (0, 0));
    }

    #[tokio::test]
    async fn who_waits_no_more_leaves_nothing() {
        let turns = Turns::new(1, 1);
        let first = turns.take(there(1)).await;
        let mut waiting = [1, 2, 2].map(|last| Box::pin(turns.take(there(last))));
        for one in &mut waiting {
            assert!(futures::poll!(one).is_pending());
        }
        drop(waiting);
        {
            let state = turns.lock();
            assert!(state.waiting.is_empty() && state.order.is_empty());
        }
        // A request that got its turn but was never polled again.
        let mut given = Box::pin(turns.take(there(2)));
        assert!(futures::poll!(&mut given).is_pending());
        drop(first);
        drop(given);
        assert!(matches!(futures::poll!(Box::pin(turns.take(there(3)))), Poll::Ready(Some(_))));
        assert_eq!(turns.lock().taken, 0);
    }
}
