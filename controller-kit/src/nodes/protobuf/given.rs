//! What was passed on of each Node. A kubelet writes its Node's status every few minutes. Usually only the version and times
//! change then, which nobody here reads. In a settled cluster all events are like that.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher as _, Hasher},
};

/// A Node as it was received.
pub(super) trait VersionedNode {
    /// `metadata.name`
    fn name(&self) -> &[u8];
    /// `metadata.resourceVersion`, where it is a number.
    fn version(&self) -> Option<u64>;
    /// Feeds everything that is passed on, except the version.
    fn hash_content(&self, hasher: &mut impl Hasher);
}

/// A digest of what was passed on of each Node, and its version.
#[derive(Debug, Default)]
pub(super) struct GivenNodes {
    /// By the digest of the name. Where two names share one, both Nodes are always passed on in full.
    nodes: HashMap<u64, Given>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Given {
    content: u64,
    version: u64,
}

impl GivenNodes {
    /// Whether everything that was passed on of this Node is the same in `node`, except its version.
    pub(super) fn has(&self, node: &impl VersionedNode) -> bool {
        let given = self.nodes.get(&self.digest_of_name(node));
        given.is_some_and(|given| given.content == self.digest_of_content(node))
    }

    /// Takes note that a Node is passed on.
    pub(super) fn note(&mut self, node: &impl VersionedNode) {
        let name = self.digest_of_name(node);
        match node.version() {
            Some(version) => {
                self.nodes.insert(name, Given { content: self.digest_of_content(node), version });
            }
            // Without a version, it could not be told later whether it arrived.
            None => {
                self.nodes.remove(&name);
            }
        }
    }

    /// Notes that a Node is gone.
    pub(super) fn forget(&mut self, node: &impl VersionedNode) {
        self.nodes.remove(&self.digest_of_name(node));
    }

    /// A list begins. It contains every Node in full.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
    }

    /// A watch begins after this version. Nodes that were passed on with a later one may have been lost on the way.
    pub(super) fn keep_until(&mut self, version: Option<u64>) {
        self.nodes.retain(|_, given| version.is_some_and(|version| given.version <= version));
    }

    fn digest_of_name(&self, node: &impl VersionedNode) -> u64 {
        self.hasher.hash_one(node.name())
    }

    fn digest_of_content(&self, node: &impl VersionedNode) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        node.hash_content(&mut hasher);
        hasher.finish()
    }
}
