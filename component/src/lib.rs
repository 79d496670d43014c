//! What any Kubernetes daemon needs: a command line, a connection to the API server, an election, a secure
//! port, a log, metrics and events, with upstream's names and rules.
//!
//! Nothing here knows a cloud, a Node or a controller. What these parts need to know about the daemon is
//! passed to them, as a value or as a narrow type: its name ([`program`]), its metrics (a
//! [`MetricSet`](metrics::MetricSet) of each part), the objects that its events are about, the controllers
//! that can migrate.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`program`], [`version`] | name, version and commit of the program; `--version` |
//! | [`command_line`] | Go's grammar of flags, feature gates, and the flags that every such program has |
//! | [`api_client`] | the API server: its address, credentials, rate limits, `--dry-run` |
//! | [`watching`], [`events`], [`api_text`] | watches that miss nothing; events; times and messages in the form of the API |
//! | [`leader_election`], [`leader_migration`] | which process leads, and which controllers run under which Lease |
//! | [`serving`], [`health`], [`inspection`], [`debug_state`] | the secure port and what it serves |
//! | [`logging`], [`metrics`] | the log and the metrics |
//! | [`files`], [`reload`] | files that change while the daemon runs |
//! | [`work_queue`], [`loop_tasks`], [`backoff`] | what loops work with: a queue of names, each at work only once at a time; their tasks; pauses before retries |
//! | [`yaml`] | objects as readable YAML |

pub mod api_client;
pub mod api_text;
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
pub mod loop_tasks;
pub mod metrics;
pub mod program;
pub mod reload;
pub mod serving;
pub mod version;
pub mod watching;
pub mod work_queue;
pub mod yaml;

pub use basics::backoff;
