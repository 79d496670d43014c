//! The machine controller, which makes machines for Cluster API.

use std::time::Duration;

use clap::Args;
use cloudprovider::{dns, label_value_fault};
use component::command_line::{
    format_duration,
    notes::{Note, ours},
    values::{duration, list},
};
use serde_json::{Value, json};

/// Which objects it works on, and how often it looks at what nothing happens to. The names are those of Cluster API's
/// providers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Machine-controller flags")]
pub struct MachineControllerFlags {
    /// A provider whose machines the machine controller serves, and its configuration file. Can be repeated. Without this
    /// flag, the machines of --cloud-provider are served. With it, --cloud-provider is needed only for the other
    /// controllers. For the provider of --cloud-provider, NAME is enough.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME=FILE", value_parser = list)]
    pub machine_provider: std::vec::Vec<String>,

    /// The namespace whose machines and clusters the machine controller and the lifecycle controllers work on. Without it,
    /// all of them.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    pub namespace: String,

    /// The machine controller and the lifecycle controllers work only on objects whose label
    /// cluster.x-k8s.io/watch-filter has this value. Without it, on all of them.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "VALUE")]
    pub watch_filter: String,

    /// How often the machine controller and the lifecycle controllers look at an object to which nothing happens.
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub sync_period: Duration,
}

const WHY: &str = "Upstream has no machine controller; Cluster API's providers have this flag";

pub(super) const NOTES: &[Note] = &[
    ours("machine-provider", "Upstream has no machine controller, and one provider in a process"),
    ours("namespace", WHY),
    ours("watch-filter", WHY),
    ours("sync-period", WHY),
];

impl MachineControllerFlags {
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.namespace.is_empty() && !dns::is_label(&self.namespace) {
            faults.push(format!(
                "--namespace: {:?} is not a namespace; expected lower-case letters, digits and hyphens, 63 at most",
                self.namespace
            ));
        }
        if let Some(fault) = label_value_fault(&self.watch_filter) {
            faults.push(format!(
                "--watch-filter: {:?} is not the value of a label: {fault}",
                self.watch_filter
            ));
        }
        if self.sync_period.is_zero() {
            faults.push("--sync-period must be greater than 0".to_owned());
        }
        faults
    }

    /// Their place in `/configz`, and what stands there.
    pub(super) fn configz(&self) -> (&'static str, Value) {
        let value = json!({
            "MachineProviders": self.machine_provider,
            "Namespace": self.namespace,
            "WatchFilter": self.watch_filter,
            "SyncPeriod": format_duration(self.sync_period),
        });
        ("MachineController", value)
    }

    /// The namespace; `None`: all of them.
    pub fn namespace(&self) -> Option<String> {
        Some(self.namespace.clone()).filter(|name| !name.is_empty())
    }

    /// The value of the label; `None`: all objects.
    pub fn watch_filter(&self) -> Option<String> {
        Some(self.watch_filter.clone()).filter(|value| !value.is_empty())
    }
}
