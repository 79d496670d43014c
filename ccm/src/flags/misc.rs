//! Where the API server is, and what fits nowhere else.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args};
use component::command_line::{
    notes::{Note, differs, ours},
    values::{boolean, duration, path},
};

/// Flags without a section of their own.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Misc flags")]
pub struct MiscFlags {
    /// Path to a kubeconfig with the API server's address and credentials for it. With neither this nor --master the
    /// configuration of the cluster that runs this pod is used.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub kubeconfig: std::option::Option<PathBuf>,

    /// The address of the API server, in place of the one in the kubeconfig.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "URL")]
    pub master: String,

    /// Period of the comparison of all Nodes' addresses and labels with the cloud.
    #[arg(long, default_value = "5m0s", value_parser = duration, value_name = "DURATION")]
    pub node_status_update_frequency: Duration,

    /// Run everything and write nothing: each write is logged and counted in place of being sent. It takes part in no
    /// election, so it can run beside the one that works; on the same machine it needs another --secure-port. The lifecycle
    /// controllers do nothing then.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub dry_run: bool,
}

pub(super) const NOTES: &[Note] = &[
    differs(
        "node-status-update-frequency",
        "Labels are compared too, all Nodes in one batch, and what is right costs no write; 0 is refused",
    ),
    ours("dry-run", "Upstream cannot be tried without writing"),
];

impl MiscFlags {
    pub(super) fn faults(&self) -> Vec<String> {
        let zero = self.node_status_update_frequency.is_zero();
        zero.then(|| "--node-status-update-frequency must be greater than 0".to_owned()).into_iter().collect()
    }
}
