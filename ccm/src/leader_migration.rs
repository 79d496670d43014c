//! Leader migration: controllers that move between kube-controller-manager and this program run under a lock of their
//! own, which both take, so that never both run them.
//!
//! The file is upstream's `LeaderMigrationConfiguration`. Its controllers are found by canonical names, by the aliases
//! of `--controllers` and by the names of older releases. Upstream knows the canonical ones alone, and so leaves
//! `route-controller` and `service-controller`, which its own default lists, under the main lock.

mod file;

use std::collections::BTreeMap;

use crate::flags::{
    NODE_CONTROLLER, NODE_LIFECYCLE_CONTROLLER, ROUTE_CONTROLLER, SERVICE_CONTROLLER, canonical_name,
};

/// What we are called in `component`.
const COMPONENT: &str = "cloud-controller-manager";

/// In `component`: whoever has the lock runs it.
const ANY_COMPONENT: &str = "*";

/// Names of older releases, beside the aliases that `--controllers` knows.
const FORMER_NAMES: [(&str, &str); 2] =
    [("route-controller", ROUTE_CONTROLLER), ("service-controller", SERVICE_CONTROLLER)];

/// The controllers that this program may run.
pub(crate) const CONTROLLERS: [&str; 4] =
    [NODE_CONTROLLER, NODE_LIFECYCLE_CONTROLLER, ROUTE_CONTROLLER, SERVICE_CONTROLLER];

/// Which controllers run under which lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderMigration {
    /// Name of the second Lease.
    pub lease_name: String,
    /// Canonical names where they are ours, and whether we are one that runs them.
    listed: BTreeMap<String, bool>,
}

/// Under which lock a controller runs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The daemon's own.
    Main,
    /// The one that both managers take.
    Migration,
    /// None: another component runs it.
    Elsewhere,
}

impl Default for LeaderMigration {
    /// Upstream's, for `--enable-leader-migration` without a file.
    fn default() -> Self {
        let listed = ["route-controller", "service-controller", "cloud-node-lifecycle-controller"];
        Self::new(
            "cloud-provider-extraction-migration".to_owned(),
            listed.map(|name| (name.to_owned(), ANY_COMPONENT.to_owned())),
        )
    }
}

impl LeaderMigration {
    /// `listed` are controllers and their components; of two for one controller the last counts, as upstream.
    fn new(lease_name: String, listed: impl IntoIterator<Item = (String, String)>) -> Self {
        let listed = listed.into_iter().map(|(name, component)| {
            (canonical(&name), component == COMPONENT || component == ANY_COMPONENT)
        });
        Self { lease_name, listed: listed.collect() }
    }

    /// Under which lock the controller of this canonical name runs.
    pub fn lock_of(&self, controller: &str) -> Lock {
        match self.listed.get(controller) {
            None => Lock::Main,
            Some(true) => Lock::Migration,
            Some(false) => Lock::Elsewhere,
        }
    }

    /// The listed names that mean nothing here, such as other controllers of kube-controller-manager.
    pub fn not_ours(&self) -> Vec<&str> {
        self.listed.keys().map(String::as_str).filter(|name| !CONTROLLERS.contains(name)).collect()
    }
}

/// The name that counts, for one that was ever written for it.
fn canonical(name: &str) -> String {
    let known = FORMER_NAMES.iter().find(|(former, _)| *former == name);
    known.map_or_else(|| canonical_name(name), |(_, canonical)| canonical).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_default_means_what_it_says() {
        let migration = LeaderMigration::default();
        assert_eq!(migration.lease_name, "cloud-provider-extraction-migration");
        let locks = CONTROLLERS.map(|name| migration.lock_of(name));
        assert_eq!(locks, [Lock::Main, Lock::Migration, Lock::Migration, Lock::Migration]);
        assert!(migration.not_ours().is_empty());
    }

    #[test]
    fn the_component_decides() {
        for (component, expected) in [
            ("cloud-controller-manager", Lock::Migration),
            ("*", Lock::Migration),
            ("kube-controller-manager", Lock::Elsewhere),
            ("Cloud-Controller-Manager", Lock::Elsewhere),
        ] {
            for name in ["route", "route-controller", "node-route-controller"] {
                let listed = [(name.to_owned(), component.to_owned())];
                let migration = LeaderMigration::new("m".into(), listed);
                assert_eq!(migration.lock_of("node-route-controller"), expected, "{name} {component}");
                assert_eq!(migration.lock_of("service-lb-controller"), Lock::Main);
            }
        }
    }

    #[test]
    fn the_last_of_two_counts_whatever_it_is_called() {
        let listed =
            [("service", "kube-controller-manager"), ("service-lb-controller", "*"), ("nodeipam", "*")];
        let listed = listed.map(|(name, component)| (name.to_owned(), component.to_owned()));
        let migration = LeaderMigration::new("m".into(), listed);
        assert_eq!(migration.lock_of("service-lb-controller"), Lock::Migration);
        assert_eq!(migration.not_ours(), ["nodeipam"]);
    }
}
