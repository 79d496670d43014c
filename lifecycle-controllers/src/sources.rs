//! Sources of keys that several controllers have.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use futures::{StreamExt as _, future::ready, stream};
use tokio::time::{Instant, sleep_until};

use crate::{
    engine::{
        control::Source,
        external::{Externals, GroupKind},
        object::Kind,
        stores::Store,
    },
    gate::Writers,
    workload::{ClusterChange, ClusterKey, WorkloadClusters},
};

/// The keys of objects that refer to changed objects of other groups, as `keys_of` translates them.
pub(crate) fn external_source(
    externals: &Externals,
    mut keys_of: impl FnMut(&GroupKind, HashSet<String>) -> HashSet<String> + Send + 'static,
) -> Source {
    let changes = stream::unfold(externals.changes(), |mut changes| async move {
        let change = changes.next().await;
        Some((change, changes))
    });
    let keys = changes.map(move |(kind, keys)| keys_of(&kind, keys));
    keys.filter(|keys| ready(!keys.is_empty())).boxed()
}

/// The keys of objects that changes in workload clusters concern.
pub(crate) fn workload_source(
    workload: &WorkloadClusters,
    mut keys_of: impl FnMut(&BTreeMap<ClusterKey, ClusterChange>) -> HashSet<String> + Send + 'static,
) -> Source {
    let changes = stream::unfold(workload.changes(), |mut changes| async move {
        let change = changes.next().await;
        Some((change, changes))
    });
    changes.map(move |changes| keys_of(&changes)).filter(|keys| ready(!keys.is_empty())).boxed()
}

/// Tells the gate who wrote these objects.
pub(crate) fn saw<K: Kind>(store: &Store<K>, keys: &HashSet<String>, writers: &Writers) {
    for object in keys.iter().filter_map(|key| store.get(key)) {
        writers.saw(&K::kind(&()), object.meta());
    }
}

/// The pause between two batches of keys. What comes meanwhile is looked up together.
const BATCH: Duration = Duration::from_millis(100);

/// How many items of a source make one batch at most.
const MERGED: usize = 1_000;

/// The same keys, but each one once in this time at most. The first time it comes at once. So users who change objects without end cost a
/// pass now and then, and a change that stands alone is not late.
pub(crate) fn paced(source: Source, pause: Duration) -> Source {
    let source = source.ready_chunks(MERGED).map(|items| items.into_iter().flatten().collect()).boxed();
    let paced = Paced { source, pause, rests_until: Instant::now(), given: HashMap::new() };
    let batches = stream::unfold(paced, |mut paced| async move { Some((paced.next().await?, paced)) });
    batches.boxed()
}

struct Paced {
    source: Source,
    pause: Duration,
    rests_until: Instant,
    /// Until when a key that was given has to wait, and whether it has come again.
    given: HashMap<String, (Instant, bool)>,
}

impl Paced {
    /// Keys that are due. `None`: the source has ended.
    async fn next(&mut self) -> Option<HashSet<String>> {
        loop {
            sleep_until(self.rests_until).await;
            let due = self.given.values().map(|(until, _)| *until).min();
            let keys = tokio::select! {
                keys = self.source.next() => self.first(keys?),
                () = sleep_until(due.unwrap_or(self.rests_until)), if due.is_some() => self.again(),
            };
            self.rests_until = Instant::now() + BATCH;
            if !keys.is_empty() {
                return Some(keys);
            }
        }
    }

    /// Those of these keys that need not wait.
    fn first(&mut self, keys: HashSet<String>) -> HashSet<String> {
        let until = Instant::now() + self.pause;
        let mut first = HashSet::new();
        for key in keys {
            match self.given.get_mut(&key) {
                Some((_, comes_again)) => *comes_again = true,
                None => {
                    self.given.insert(key.clone(), (until, false));
                    first.insert(key);
                }
            }
        }
        first
    }

    /// The keys that came again and have waited.
    fn again(&mut self) -> HashSet<String> {
        let now = Instant::now();
        let until = now + self.pause;
        let mut again = HashSet::new();
        self.given.retain(|key, (waits_until, comes_again)| {
            if *waits_until > now {
                return true;
            }
            if *comes_again {
                again.insert(key.clone());
            }
            *waits_until = until;
            std::mem::take(comes_again)
        });
        again
    }
}

/// Whether what is read of an object differs from the last time. `new`: `None` once it is gone.
pub(crate) fn is_news<T: PartialEq>(known: &mut HashMap<String, T>, key: &str, new: Option<T>) -> bool {
    match new {
        Some(new) if known.get(key) == Some(&new) => false,
        Some(new) => {
            known.insert(key.to_owned(), new);
            true
        }
        None => known.remove(key).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::{sync::mpsc, time::sleep};

    use super::*;

    const PAUSE: Duration = Duration::from_secs(1);

    /// A paced source of what is sent.
    fn source() -> (mpsc::UnboundedSender<&'static str>, Source) {
        let (send, receive) = mpsc::unbounded_channel::<&'static str>();
        let keys = stream::unfold(receive, |mut receive| async move {
            let key = receive.recv().await?;
            Some((HashSet::from([key.to_owned()]), receive))
        });
        (send, paced(keys.boxed(), PAUSE))
    }

    /// The next keys, and after which time they come.
    async fn next(source: &mut Source) -> (Vec<String>, Duration) {
        let began = Instant::now();
        let mut keys: Vec<_> = source.next().await.expect("keys").into_iter().collect();
        keys.sort_unstable();
        (keys, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_comes_at_once_and_then_once_in_a_while() {
        let (send, mut source) = source();
        send.send("a").expect("it listens");
        assert_eq!(next(&mut source).await, (vec!["a".to_owned()], Duration::ZERO));
        for key in ["a", "a", "b"] {
            send.send(key).expect("it listens");
        }
        let (keys, after) = next(&mut source).await;
        assert_eq!(keys, ["b"], "another one does not wait for it");
        assert!(after <= 3 * BATCH, "{after:?}");
        let (keys, left) = next(&mut source).await;
        assert_eq!(keys, ["a"]);
        assert!(after + left >= PAUSE && after + left <= PAUSE + 2 * BATCH, "{after:?} {left:?}");
        assert!(next(&mut source).now_or_never().is_none());
        sleep(10 * PAUSE).await;
        send.send("a").expect("it listens");
        let (keys, after) = next(&mut source).await;
        assert_eq!(keys, ["a"]);
        assert!(after <= 2 * BATCH, "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_many_change_comes_in_few_batches() {
        let (send, mut source) = source();
        let all: Vec<&'static str> = (0..MERGED).map(|number| &*number.to_string().leak()).collect();
        for key in &all {
            send.send(key).expect("it listens");
        }
        let (mut found, mut batches) = (0, 0);
        while found < all.len() {
            found += next(&mut source).await.0.len();
            batches += 1;
        }
        // The runtime lets other tasks run after a hundred items or so.
        assert!(batches <= 10, "{batches}");
    }
}
