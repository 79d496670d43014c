//! Leader migration: controllers that move between kube-controller-manager and this program run under a lock of their
//! own, which both take, so that never both run them.
//!
//! The file is upstream's `LeaderMigrationConfiguration`. Its controllers are found by canonical names, and by all names
//! that were ever written for them. Upstream knows the canonical ones alone, and so leaves
//! `route-controller` and `service-controller`, which its own default lists, under the main lock.

mod file;

use std::collections::BTreeMap;

/// In `component`: whoever has the lock runs it.
const ANY_COMPONENT: &str = "*";

/// The controllers of a program, as leader migration has to know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownControllers {
    /// What the program is called in `component`.
    pub component: &'static str,
    /// The controllers that it may run, by their canonical names.
    pub names: &'static [&'static str],
    /// Other names that were ever written for one, each with the canonical one.
    pub aliases: &'static [(&'static str, &'static str)],
    /// What holds without a file: the name of the second Lease, and the controllers that run under it, whatever component
    /// has the lock.
    pub default: (&'static str, &'static [&'static str]),
}

impl KnownControllers {
    /// The name that counts, for one that was ever written for it.
    fn canonical(&self, name: &str) -> String {
        let known = self.aliases.iter().find(|(alias, _)| *alias == name);
        known.map_or(name, |(_, canonical)| canonical).to_owned()
    }
}

/// Which controllers run under which lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderMigration {
    /// Name of the second Lease.
    pub lease_name: String,
    /// Canonical names where they are ours, and whether we are one that runs them.
    listed: BTreeMap<String, bool>,
    /// Those that this program may run.
    names: &'static [&'static str],
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

impl LeaderMigration {
    /// What holds without a file.
    pub fn without_file(known: &KnownControllers) -> Self {
        let (lease_name, listed) = known.default;
        let listed = listed.iter().map(|name| ((*name).to_owned(), ANY_COMPONENT.to_owned()));
        Self::new(lease_name.to_owned(), listed, known)
    }

    /// `listed` are controllers and their components; of two for one controller the last counts, as upstream.
    fn new(
        lease_name: String,
        listed: impl IntoIterator<Item = (String, String)>,
        known: &KnownControllers,
    ) -> Self {
        let listed = listed.into_iter().map(|(name, component)| {
            (known.canonical(&name), component == known.component || component == ANY_COMPONENT)
        });
        Self { lease_name, listed: listed.collect(), names: known.names }
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
        self.listed.keys().map(String::as_str).filter(|name| !self.names.contains(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of a cloud-controller-manager.
    pub(super) const KNOWN: KnownControllers = KnownControllers {
        component: "cloud-controller-manager",
        names: &["cloud-node-controller", "node-route-controller", "service-lb-controller"],
        aliases: &[
            ("service", "service-lb-controller"),
            ("route", "node-route-controller"),
            ("service-controller", "service-lb-controller"),
            ("route-controller", "node-route-controller"),
        ],
        default: ("m", &["service"]),
    };

    fn migration(listed: impl IntoIterator<Item = (String, String)>) -> LeaderMigration {
        LeaderMigration::new("m".into(), listed, &KNOWN)
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
                let migration = migration(listed);
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
        let migration = migration(listed);
        assert_eq!(migration.lock_of("service-lb-controller"), Lock::Migration);
        assert_eq!(migration.not_ours(), ["nodeipam"]);
    }
}
