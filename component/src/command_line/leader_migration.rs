//! Moves controllers from another controller manager to this one, or back.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::values::{boolean, path};
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
    /// Which of the `known` controllers runs under which lock. `None` without migration.
    ///
    /// # Errors
    /// All faults of the file.
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

    /// All faults. `election` is the name of the election's Lease. Without an election there is no migration,
    /// but upstream reads the file all the same.
    pub fn faults(&self, election: Option<&str>, known: &KnownControllers) -> Vec<String> {
        match self.migration(known) {
            Ok(Some(migration)) if election == Some(&migration.lease_name) => {
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
