//! What the absence of a host is remembered by.

use crate::provider_id::parse_provider_id;
use cloudprovider::{NodeIdentity, Result};

/// What the host of a Node is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sought {
    /// The UUID of its provider ID, in lower case.
    Uuid(String),
    /// Its name in lower case, if it has no provider ID.
    Name(String),
}

impl Sought {
    /// What the host of this Node is found by.
    ///
    /// # Errors
    /// If the provider ID is not that of a host.
    pub(crate) fn of(node: &NodeIdentity) -> Result<Self> {
        match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => parse_provider_id(id).map(Self::Uuid),
            None => Ok(Self::Name(node.name.to_ascii_lowercase())),
        }
    }
}

/// Absences that a listing has confirmed.
pub(crate) type Absences = crate::absences::Absences<Sought>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_is_all_that_counts() {
        let node = |id: &str| NodeIdentity {
            name: "Node-1".to_owned(),
            provider_id: Some(id.to_owned()),
            ..NodeIdentity::default()
        };
        assert_eq!(Sought::of(&node("rancher://ABC")).expect("ours"), Sought::Uuid("abc".to_owned()));
        assert_eq!(Sought::of(&node("")).expect("a name"), Sought::Name("node-1".to_owned()));
        Sought::of(&node("k3s://node-1")).expect_err("of another cloud");
    }
}
