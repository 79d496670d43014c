//! The API server's audit log: requests of service accounts that were refused, and what they have written.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::scratch::Scratch;

/// Logs service accounts only, with one line for each response.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: [\"system:serviceaccounts\"]
- level: None
";

/// A request that RBAC refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Such as `system:serviceaccount:kube-system:node-controller`.
    pub user: String,
    /// Such as `get`.
    pub verb: String,
    /// Empty for the core group.
    pub group: String,
    /// Such as `nodes`.
    pub resource: String,
    /// Such as `status`; empty for the resource itself.
    pub subresource: String,
    /// Path and query.
    pub uri: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, verb, uri, .. } = self;
        write!(f, "{user}: {verb} {uri}")
    }
}

/// A write that the API server accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Such as `system:serviceaccount:capi-system:capi-manager`.
    pub user: String,
    /// Empty for the core group.
    pub group: String,
    /// Verb and resource, such as `patch machines/status`.
    pub what: String,
    /// Empty for an object that is in no namespace.
    pub namespace: String,
    /// Empty for an object that is being created under a name that the API server makes.
    pub name: String,
    /// When the request arrived: RFC 3339 with six decimals, so these texts compare as the times do.
    pub received: String,
    /// When it was answered, likewise.
    pub answered: String,
}

/// The log's files.
#[derive(Debug)]
pub(crate) struct AuditLog {
    policy: PathBuf,
    log: PathBuf,
}

impl AuditLog {
    pub(crate) fn new(scratch: &Scratch) -> Result<Self> {
        let policy = scratch.write("audit-policy.yaml", POLICY)?;
        Ok(Self { policy, log: scratch.join("audit.log") })
    }

    /// The API server's flags for the log. Each line is written before the response to its request is
    /// complete.
    pub(crate) fn flags(&self) -> [String; 4] {
        [
            format!("--audit-policy-file={}", self.policy.display()),
            format!("--audit-log-path={}", self.log.display()),
            "--audit-log-mode=blocking".to_owned(),
            // keep a single file, even if tests write a lot
            "--audit-log-maxsize=10000".to_owned(),
        ]
    }

    pub(crate) fn length(&self) -> u64 {
        std::fs::metadata(&self.log).map_or(0, |metadata| metadata.len())
    }

    pub(crate) fn refusals_after(&self, position: u64) -> Result<Vec<Refusal>> {
        let refused = |event: &Value| event["annotations"]["authorization.k8s.io/decision"] == "forbid";
        let mut refusals = Vec::new();
        self.events_after(position, |event| {
            if refused(event) {
                refusals.push(refusal(event));
            }
        })?;
        Ok(refusals)
    }

    pub(crate) fn writes_after(&self, position: u64, user: &str) -> Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        self.events_after(position, |event| {
            if event["user"]["username"] == user
                && let Some(write) = written(event)
            {
                *counts.entry(write).or_default() += 1;
            }
        })?;
        Ok(counts)
    }

    pub(crate) fn accepted_after(&self, position: u64) -> Result<Vec<Accepted>> {
        let mut writes = Vec::new();
        self.events_after(position, |event| writes.extend(accepted(event)))?;
        writes.sort_by(|one: &Accepted, other| one.answered.cmp(&other.answered));
        Ok(writes)
    }

    fn events_after(&self, position: u64, mut look: impl FnMut(&Value)) -> Result<()> {
        let mut text = String::new();
        let mut file = File::open(&self.log).with_context(|| self.log.display().to_string())?;
        file.seek(SeekFrom::Start(position.saturating_sub(1)))?;
        file.read_to_string(&mut text)?;
        // An event that was being written at the position was before it.
        let text = if position == 0 { &text } else { text.split_once('\n').map_or("", |(_, lines)| lines) };
        // the last line may be incomplete
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        for line in whole.lines() {
            look(&serde_json::from_str(line).with_context(|| line.to_owned())?);
        }
        Ok(())
    }
}

/// Verb and resource of a request that changes something, such as `patch vspheremachines/status`.
fn written(event: &Value) -> Option<String> {
    let (verb, object) = (event["verb"].as_str()?, &event["objectRef"]);
    if matches!(verb, "get" | "list" | "watch") {
        return None;
    }
    let resource = object["resource"].as_str()?;
    let subresource = object["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
    Some(format!("{verb} {resource}{subresource}"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn accepted(event: &Value) -> Option<Accepted> {
    let is_accepted = event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300);
    let what = written(event).filter(|_| is_accepted)?;
    let object = &event["objectRef"];
    Some(Accepted {
        user: text(&event["user"]["username"]),
        group: text(&object["apiGroup"]),
        what,
        namespace: text(&object["namespace"]),
        name: text(&object["name"]),
        received: text(&event["requestReceivedTimestamp"]),
        answered: text(&event["stageTimestamp"]),
    })
}

fn refusal(event: &Value) -> Refusal {
    let object = &event["objectRef"];
    Refusal {
        user: text(&event["user"]["username"]),
        verb: text(&event["verb"]),
        group: text(&object["apiGroup"]),
        resource: text(&object["resource"]),
        subresource: text(&object["subresource"]),
        uri: text(&event["requestURI"]),
    }
}
