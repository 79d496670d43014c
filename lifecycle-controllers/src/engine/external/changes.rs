//! Changes of all kinds that Clusters and Machines refer to.

use std::collections::HashSet;

use controller_kit::cache::Changes;
use tokio::sync::watch;

use super::{Externals, GroupKind};

/// The keys of objects that changed, with their kinds. It follows kinds that are watched later too.
#[derive(Debug)]
pub struct ExternalChanges {
    externals: Externals,
    news: watch::Receiver<u64>,
    kinds: Vec<(GroupKind, String)>,
    changes: Vec<Changes>,
}

impl ExternalChanges {
    pub(super) fn new(externals: Externals, mut news: watch::Receiver<u64>) -> Self {
        news.mark_changed();
        Self { externals, news, kinds: Vec::new(), changes: Vec::new() }
    }

    /// Waits until objects of a kind change. Cancel-safe.
    pub async fn next(&mut self) -> (GroupKind, HashSet<String>) {
        loop {
            tokio::select! {
                Ok(()) = self.news.changed() => self.subscribe(),
                (number, keys) = Changes::next_of(&mut self.changes) => {
                    return (self.kinds[number].0.clone(), keys);
                }
            }
        }
    }

    fn subscribe(&mut self) {
        for kind in self.externals.all() {
            let known = self.kinds.iter().position(|(of, _)| *of == kind.of);
            match known {
                Some(number) if self.kinds[number].1 == kind.version => {}
                Some(number) => {
                    self.kinds[number].1 = kind.version;
                    self.changes[number] = kind.objects.subscribe();
                }
                None => {
                    self.kinds.push((kind.of, kind.version));
                    self.changes.push(kind.objects.subscribe());
                }
            }
        }
    }
}
