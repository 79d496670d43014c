//! Whether the workload cluster answers.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    conditions::{Statement, Status},
    machine::Probe,
};

/// So many failed probes in a row say that a cluster cannot be reached which never could.
const MANY_FAILURES: u32 = 5;

/// When to look again while they are fewer. The pauses between the probes are of this order.
const UNTIL_MANY: Duration = Duration::from_secs(30);

/// How the message begins while the first attempts are made.
const NOT_YET: &str = "Remote connection not established yet";

/// What is said of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The condition `RemoteConnectionProbe`. `None`: it stays as it is.
    pub statement: Option<Statement>,
    /// When to look again, if nothing changes before.
    pub again: Option<Duration>,
}

/// `RemoteConnectionProbe`. It is `False` once the last success is longer ago than `grace`.
///
/// `trouble`: why there is no connection, which upstream's messages do not say. `None`: there is one, whose loss is an event.
/// `before`: the message of the condition that the Cluster has. It stays after a start of this program, until enough probes have
/// been made.
#[must_use]
pub fn remote_connection(
    probe: &Probe,
    trouble: Option<&str>,
    before: Option<&str>,
    grace: Duration,
    now: i64,
) -> Remote {
    let failed = |message: String| {
        // Before the first attempt, there is no reason.
        let message = match trouble.filter(|_| probe.failures > 0 || probe.last_success.is_some()) {
            Some(why) => format!("{message}: {why}"),
            None => message,
        };
        Statement::new(Status::False, "ProbeFailed", message)
    };
    let Some(success) = probe.last_success else {
        if probe.failures < MANY_FAILURES {
            let is_open = before.is_none_or(|message| message.starts_with(NOT_YET) && probe.failures > 0);
            let statement = is_open.then(|| failed(NOT_YET.to_owned()));
            // Nothing is probed before the Cluster is followed.
            let again = (probe.failures > 0).then_some(UNTIL_MANY);
            return Remote { statement, again };
        }
        return Remote { statement: Some(failed("Remote connection probe failed".into())), again: None };
    };
    let ago = now.saturating_sub(success);
    let left = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX).saturating_sub(ago);
    if left < 0 {
        let time = Timestamp::from_second(success).unwrap_or_default();
        let message = format!("Remote connection probe failed, probe last succeeded at {time}");
        return Remote { statement: Some(failed(message)), again: None };
    }
    let again = u64::try_from(left).unwrap_or(0).saturating_add(1);
    Remote {
        statement: Some(Statement::new(Status::True, "ProbeSucceeded", "")),
        again: trouble.is_some().then_some(Duration::from_secs(again)),
    }
}
