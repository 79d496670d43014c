//! Handing controllers over from another controller manager.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::{
    LeaderElectionFlags,
    values::{boolean, path},
};
use crate::leader_migration::{KnownControllers, LeaderMigration};

/// `--enable-leader-migration` and its configuration.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Leader-migration flags")]
pub struct LeaderMigrationFlags {
    /// Migrate controllers from another controller manager to this one, or back, without a time when both run them.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub enable_leader_migration: bool,

    /// A file of kind LeaderMigrationConfiguration, group controllermanager.config.k8s.io. Without it upstream's
    /// default configuration holds.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub leader_migration_config: std::option::Option<PathBuf>,
}

impl LeaderMigrationFlags {
    /// What of the controllers `known` runs under which lock; `None` without migration.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub fn migration(&self, known: &KnownControllers) -> Result<Option<LeaderMigration>, Vec<String>> {
        if !self.enable_leader_migration {
            return Ok(None);
        }
        self.leader_migration_config
            .as_ref()
            .map_or_else(
                || Ok(LeaderMigration::without_file(known)),
                |path| LeaderMigration::read(path, known),
            )
            .map(Some)
    }

    /// Everything that is wrong. Without an election there is no migration, but upstream reads its file all the same.
    pub(super) fn faults(&self, election: &LeaderElectionFlags, known: &KnownControllers) -> Vec<String> {
        match self.migration(known) {
            Ok(Some(migration)) if election.enabled && migration.lease_name == election.resource_name => {
                vec![format!(
                    "leaderName of --leader-migration-config and --leader-elect-resource-name must differ, but both are {:?}",
                    migration.lease_name
                )]
            }
            Ok(_) => Vec::new(),
            Err(faults) => faults,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use crate::{
        flags::{Flags, MIGRATED_CONTROLLERS, parse},
        leader_migration::LeaderMigration,
    };

    fn flags(args: &[&str]) -> Flags {
        let all = ["ccm", "--cloud-provider=x"].iter().chain(args);
        parse(all.map(|arg| (*arg).to_owned())).expect("a good command line")
    }

    #[test]
    fn off_default_and_file() {
        // Not even looked at.
        let off = flags(&["--leader-migration-config=/nonexistent"]);
        assert!(off.faults().is_empty());
        assert_eq!(off.migration(), Ok(None));
        let default = flags(&["--enable-leader-migration"]);
        assert_eq!(default.migration(), Ok(Some(LeaderMigration::without_file(&MIGRATED_CONTROLLERS))));
        let missing = flags(&["--enable-leader-migration", "--leader-migration-config=/nonexistent"]);
        assert!(missing.faults()[0].starts_with("--leader-migration-config /nonexistent: unable to read"));
    }

    #[test]
    fn two_locks_are_two_leases() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let text = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: one\n";
        file.write_all(text.as_bytes()).expect("written");
        let config = format!("--leader-migration-config={}", file.path().display());
        let faults = |more: &str| flags(&["--enable-leader-migration", &config, more]).faults();
        assert!(faults("--leader-elect").is_empty());
        let same = faults("--leader-elect-resource-name=one");
        assert!(same[0].contains("must differ"), "{same:?}");
    }
}
