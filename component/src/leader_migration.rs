//! Leader migration: controllers that move between kube-controller-manager and this program run under a
//! second lock, which both programs take. So the two never run them at the same time.
//!
//! The file is upstream's `LeaderMigrationConfiguration`. Its controllers are found by their canonical names
//! and by all names that were ever used for them. Upstream knows only the canonical names. It therefore
//! leaves `route-controller` and `service-controller`, which its own default configuration lists, under the
//! main lock.

mod file;

use std::collections::BTreeMap;

/// In `component`: the controller runs in the program that has the lock.
const ANY_COMPONENT: &str = "*";

/// What leader migration has to know about the controllers of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownControllers {
    /// The program's name in `component`.
    pub component: &'static str,
    /// The controllers that the program may run, by their canonical names.
    pub names: &'static [&'static str],
    /// Other names that were ever used for a controller, each with the canonical name.
    pub aliases: &'static [(&'static str, &'static str)],
    /// The configuration without a file: the name of the second Lease, and the controllers that run under it
    /// in the component that holds it.
    pub default: (&'static str, &'static [&'static str]),
}

impl KnownControllers {
    /// The canonical name for any name of a controller.
    fn canonical(&self, name: &str) -> String {
        let known = self.aliases.iter().find(|(alias, _)| *alias == name);
        known.map_or(name, |(_, canonical)| canonical).to_owned()
    }
}

/// Which controllers run under which lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderMigration {
    /// The name of the second Lease.
    pub lease_name: String,
    /// The listed controllers, by their canonical names if they are the program's own. The value says whether
    /// this program may run the controller.
    listed: BTreeMap<String, bool>,
    /// The controllers that this program may run.
    names: &'static [&'static str],
}

/// The lock under which a controller runs in this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The daemon's own lock.
    Main,
    /// The lock that both controller managers take.
    Migration,
    /// No lock: another component runs the controller.
    Elsewhere,
}

impl LeaderMigration {
    /// The configuration without a file.
    pub fn without_file(known: &KnownControllers) -> Self {
        let (lease_name, listed) = known.default;
        let listed = listed.iter().map(|name| ((*name).to_owned(), ANY_COMPONENT.to_owned()));
        Self::new(lease_name.to_owned(), listed, known)
    }

    /// `listed` are controllers and their components. As in upstream, the last entry for a controller counts.
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

    /// The lock under which the controller of this canonical name runs.
    pub fn lock_of(&self, controller: &str) -> Lock {
        match self.listed.get(controller) {
            None => Lock::Main,
            Some(true) => Lock::Migration,
            Some(false) => Lock::Elsewhere,
        }
    }

    /// The listed names that this program does not know, such as other controllers of
    /// kube-controller-manager.
    pub fn not_ours(&self) -> Vec<&str> {
        self.listed.keys().map(String::as_str).filter(|name| !self.names.contains(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The controllers of a cloud-controller-manager.
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
