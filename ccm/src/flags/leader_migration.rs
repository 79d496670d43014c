//! Handing controllers over from another controller manager.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::values::{boolean, path};

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
