//! The Nodes of which a provider has reported an instance.

use std::{collections::HashSet, sync::Arc};

use cloudprovider::InstanceLookup;
use parking_lot::{Mutex, MutexGuard};

use crate::nodes::Node;

/// UIDs of the Nodes whose instance one provider, with one configuration, has reported as present at least
/// once.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<HashSet<String>>);

impl Seen {
    /// Notes the provider's answers, one for each Node.
    pub(super) fn note(&self, nodes: &[Arc<Node>], answers: &[InstanceLookup]) {
        let mut seen = self.lock();
        for (node, answer) in nodes.iter().zip(answers) {
            let uid = &node.identity.uid;
            if matches!(answer, InstanceLookup::Present(_)) && !uid.is_empty() && !seen.contains(uid) {
                seen.insert(uid.clone());
            }
        }
    }

    pub(super) fn has(&self, uid: &str) -> bool {
        self.lock().contains(uid)
    }

    pub(super) fn keep(&self, is_there: impl Fn(&str) -> bool) {
        self.lock().retain(|uid| is_there(uid));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock()
    }
}
