//! The command line: upstream's flags with upstream's defaults, one module for each of the sections that `--help`
//! shows. Those that any Kubernetes daemon has are in [`component::command_line`].
//!
//! A flag is a field of its section. What is different from upstream stands in the section's `NOTES`, from which
//! warnings and docs/reference/flags.md are made.

mod controllers;
#[cfg(test)]
mod documentation;
mod generic;
mod known_gates;
mod leader_election;
mod machine_providers;
mod misc;
mod node_labels;
mod secure_serving;
#[cfg(test)]
mod upstream;
mod webhook;

use std::{
    any::TypeId,
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
};

use clap::{ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use component::{
    command_line::{
        debugging, global,
        notes::{Note, NoteKind},
        pflag, shown,
    },
    leader_migration::LeaderMigration,
    program::Program,
};

pub use component::command_line::{
    AuthenticationFlags, AuthorizationFlags, CommandLineError, DebuggingFlags, FeatureGate, FeatureGates,
    FeatureMetrics, Gate, GlobalFlags, KnownGates, LeaderMigrationFlags, Stage, VModule, VersionRequest,
};
pub use controllers::{
    BOOTSTRAP_PART, CONTROLLERS, CORE_PART, CloudNodeControllerFlags, CloudNodeLifecycleControllerFlags,
    ControllerFlags, ControllerNames, DISABLED_BY_DEFAULT, LIFECYCLE, LIFECYCLE_BOOTSTRAP, LIFECYCLE_CORE,
    LIFECYCLE_PARTS, LifecycleFlags, MACHINE, MACHINE_CONTROLLER, MIGRATED_CONTROLLERS,
    MachineControllerFlags, NODE, NODE_CONTROLLER, NODE_LIFECYCLE, NODE_LIFECYCLE_CONTROLLER, ROUTE,
    ROUTE_CONTROLLER, SERVICE, SERVICE_CONTROLLER, ServiceLbControllerFlags, canonical_name,
};
pub use generic::GenericFlags;
pub use known_gates::{KNOWN_GATES, OF_NEXT_RELEASE};
pub use leader_election::LeaderElectionFlags;
pub use machine_providers::{MachineProvider, ServedMachines, machine_providers};
pub use misc::MiscFlags;
pub use node_labels::NodeLabels;
pub use secure_serving::SecureServingFlags;
pub use webhook::{WebhookFlags, WebhookServingFlags};

/// Types of flags that add to their value when they are given again. Lists do that too.
pub(crate) const ACCUMULATING: [TypeId; 1] = [TypeId::of::<NodeLabels>()];

/// The flags of the daemon.
#[derive(Clone, Debug, Args)]
pub struct Flags {
    /// Profiles and other insights.
    #[command(flatten)]
    pub debugging: DebuggingFlags,
    /// Handing controllers over from another controller manager.
    #[command(flatten)]
    pub leader_migration: LeaderMigrationFlags,
    /// The cloud, the API server, and which controllers run.
    #[command(flatten)]
    pub generic: GenericFlags,
    /// The leader election.
    #[command(flatten)]
    pub leader_election: LeaderElectionFlags,
    /// What is for one controller only.
    #[command(flatten)]
    pub controllers: ControllerFlags,
    /// Which webhooks run.
    #[command(flatten)]
    pub webhook: WebhookFlags,
    /// Where they are served.
    #[command(flatten)]
    pub webhook_serving: WebhookServingFlags,
    /// The HTTPS port.
    #[command(flatten)]
    pub secure_serving: SecureServingFlags,
    /// How a request says who it is.
    #[command(flatten)]
    pub authentication: AuthenticationFlags,
    /// What a user may do.
    #[command(flatten)]
    pub authorization: AuthorizationFlags,
    /// Where the API server is, and the rest.
    #[command(flatten)]
    pub misc: MiscFlags,
    /// The log and the version.
    #[command(flatten)]
    pub global: GlobalFlags,
    /// The flags that are on the command line, without their hyphens.
    #[arg(skip)]
    given: BTreeSet<String>,
    /// Every flag with its value as it may be shown.
    #[arg(skip)]
    shown: BTreeMap<String, String>,
}

/// Reads the command line of the daemon; the first argument is the program.
///
/// # Errors
/// Every fault in it, or that help was asked for.
pub fn parse(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Flags, CommandLineError> {
    let command = Flags::augment_args(Command::new("cloud-controller-manager"));
    let matches = pflag::read(command, arguments.into_iter().map(Into::into).collect(), &ACCUMULATING)?;
    Flags::read(&matches)
}

impl Flags {
    /// Makes the flags from what clap has read, and notes which of them were given.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, CommandLineError> {
        let mut flags = Self::from_arg_matches(matches)
            .map_err(|error| CommandLineError::Faults(vec![error.to_string()]))?;
        flags.remember_given(matches);
        Ok(flags)
    }

    /// Remembers which flags are on the command line, and the value to be shown of each.
    pub(crate) fn remember_given(&mut self, matches: &ArgMatches) {
        let command = Self::augment_args(Command::new(""));
        let is_given =
            |arg: &&clap::Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let given = command.get_arguments().filter(is_given).filter_map(clap::Arg::get_long);
        self.given = given.map(str::to_owned).collect();
        self.shown = shown(&command, matches);
    }

    /// Whether a flag, named without its hyphens, is on the command line.
    pub fn is_given(&self, flag: &str) -> bool {
        self.given.contains(flag)
    }

    /// Every flag of the daemon, without its hyphens, with its value in Go's notation. It is empty where there is no value. In
    /// a URL the user, and what follows the question mark, are replaced by `CLASSIFIED`.
    pub fn shown(&self) -> &BTreeMap<String, String> {
        &self.shown
    }

    /// Everything that is wrong with the values, each fault with its flag.
    pub fn faults(&self) -> Vec<String> {
        let gates = &self.generic.feature_gates;
        [
            self.global.faults(gates),
            self.faults_of_providers(),
            self.generic.faults(),
            self.leader_election.faults(),
            self.leader_migration.faults(self.leader_election.lease(), &MIGRATED_CONTROLLERS),
            self.controllers.faults(),
            self.misc.faults(),
            self.secure_serving.faults(),
            self.authentication.faults(gates),
            self.authorization.faults(),
            self.webhook.faults(),
            self.webhook_serving.faults(self.secure_serving.secure_port),
        ]
        .concat()
    }

    /// What the person who set the flags should know. Logged once.
    pub fn warnings(&self) -> Vec<String> {
        let deprecated = DEPRECATED
            .iter()
            .filter(|(flag, _)| self.is_given(flag))
            .map(|(flag, text)| format!("Flag --{flag} has been deprecated, {text}"));
        let without_effect = notes()
            .filter(|note| note.kind == NoteKind::NoEffect)
            .filter(|note| self.is_given(note.flag) && !self.asks_for_nothing(note.flag))
            .map(|note| format!("--{} has no effect here: {}", note.flag, note.text));
        deprecated
            .chain(without_effect)
            .chain(controllers::warning(&self.generic.controllers))
            .chain(self.warning_of_providers())
            .chain(self.warning_of_all_without_cloud())
            .chain(self.controllers.service_lb.warning())
            .chain(self.generic.warnings())
            .chain(self.leader_election.warnings(self.misc.dry_run))
            .chain(self.secure_serving.warnings())
            .chain(self.authentication.warnings())
            .collect()
    }

    /// Whether a flag without effect has a value that wants none.
    fn asks_for_nothing(&self, flag: &str) -> bool {
        match flag {
            "concurrent-node-status-updates" => {
                self.controllers.cloud_node.status_updates() == self.controllers.cloud_node.syncs()
            }
            "contention-profiling" => !self.debugging.contention_profiling,
            "webhooks" => self.webhook.webhooks.is_empty(),
            "log-text-info-buffer-size" => self.global.log_text_info_buffer_size == 0,
            "log-json-info-buffer-size" => self.global.log_json_info_buffer_size == 0,
            _ => false,
        }
    }

    /// Whether the flags enable the controller of this canonical name.
    pub fn enables(&self, controller: &str) -> bool {
        self.switched_off_by(controller).is_none()
    }

    /// The flag that switches the controller of this canonical name off. `None`: it is enabled.
    pub fn switched_off_by(&self, controller: &str) -> Option<&'static str> {
        if !controllers::enables(&self.generic.controllers, controller) {
            return Some("--controllers");
        }
        if self.has_no_cloud_for(controller) {
            return Some("--cloud-provider, which is not given");
        }
        let is_off = controller == ROUTE_CONTROLLER && !self.generic.configure_cloud_routes;
        is_off.then_some("--configure-cloud-routes=false")
    }

    /// Which of our controllers run under which lock; `None` without leader migration.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub fn migration(&self) -> Result<Option<LeaderMigration>, Vec<String>> {
        self.leader_migration.migration(&MIGRATED_CONTROLLERS)
    }

    /// The version to report: the program's, or the one that `--version` says.
    pub fn version(&self) -> &str {
        match &self.global.version {
            VersionRequest::Report(version) => version,
            VersionRequest::No | VersionRequest::Print | VersionRequest::PrintRaw => {
                Program::current().version()
            }
        }
    }
}

/// Upstream's deprecated flags, each with upstream's words.
const DEPRECATED: [(&str, &str); 2] = [
    (
        "allow-untagged-cloud",
        "This flag is deprecated and will be removed in a future release. A cluster-id will be required on cloud instances.",
    ),
    ("node-sync-period", "This flag is currently no-op and will be deleted."),
];

/// What is different from upstream, of all sections.
fn notes() -> impl Iterator<Item = &'static Note> {
    [debugging::NOTES, generic::NOTES]
        .into_iter()
        .chain(controllers::NOTES)
        .chain([webhook::NOTES, secure_serving::NOTES, misc::NOTES, global::NOTES])
        .flatten()
}

#[cfg(test)]
mod tests;
