//! Sources of keys that several controllers have.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use futures::{StreamExt as _, future::ready, stream};
use tokio::time::sleep;

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

/// How many batches of keys are merged into one at most.
const MERGED: usize = 1_000;

/// The same keys, each batch after this time, with those that come meanwhile. So users who change objects without end cost a pass
/// now and then.
pub(crate) fn paced(source: Source, pause: Duration) -> Source {
    let batches = source.ready_chunks(MERGED).then(move |batches| async move {
        sleep(pause).await;
        batches.into_iter().flatten().collect()
    });
    batches.boxed()
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
