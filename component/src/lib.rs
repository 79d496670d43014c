//! What any daemon of Kubernetes needs, whatever it does: a command line, a connection to the API server, an election, a secure
//! port, a log, metrics and events, with upstream's names and rules.
//!
//! Nothing here knows a cloud, a Node or a controller. What these parts have to know of the daemon they are given, as a value
//! or as a narrow type: its name ([`program`]), its metrics (a [`MetricSet`](metrics::MetricSet) of each part), the objects
//! that its events are about, the controllers that can migrate.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`program`], [`version`] | name, version and commit of the program; `--version` |
//! | [`command_line`] | Go's grammar of flags, feature gates, and the flags that every such program has |
//! | [`api_client`] | the API server: where it is, who we are, how fast we may ask, `--dry-run` |
//! | [`watching`], [`events`], [`api_text`] | watches that leave nothing out; events; times and messages as the API has them |
//! | [`leader_election`], [`leader_migration`] | who works, and which controllers under which Lease |
//! | [`serving`], [`health`], [`inspection`], [`debug_state`] | the secure port, and what is asked of a daemon there |
//! | [`logging`], [`metrics`] | what a daemon says, and what it counts |
//! | [`files`], [`reload`] | files that change while the daemon runs |
//! | [`work_queue`], [`backoff`] | work by name, each at once once, and when it is tried again |
//! | [`yaml`] | objects as YAML that a person likes to read |

pub mod api_client;
pub mod api_text;
pub mod backoff;
mod classified;
pub mod command_line;
pub mod debug_state;
pub mod events;
pub mod files;
pub mod health;
pub mod inspection;
pub mod leader_election;
pub mod leader_migration;
pub mod logging;
pub mod metrics;
pub mod program;
pub mod reload;
pub mod serving;
pub mod version;
pub mod watching;
pub mod work_queue;
pub mod yaml;
