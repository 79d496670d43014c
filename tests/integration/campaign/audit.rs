//! The API server's audit log, which tells what the API server did.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::Value;

use super::world::Micros;

/// Logs the daemons' writes to Nodes, with one line for each response.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: [\"system:serviceaccounts\"]
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - group: \"\"
    resources: [nodes, nodes/status]
- level: None
";

/// The log, and the position up to which it was read.
#[derive(Debug)]
pub(super) struct AuditLog {
    log: PathBuf,
    position: u64,
    rest: String,
}

/// A request of a daemon with a response.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) audit_id: String,
    pub(super) verb: String,
    pub(super) node: String,
    pub(super) code: u64,
    pub(super) at: Micros,
}

impl Answered {
    /// The number of the process that sent it, from the ID that the proxy made.
    pub(super) fn life(&self) -> Option<u32> {
        self.audit_id.strip_prefix('L')?.split_once('-')?.0.parse().ok()
    }
}

impl AuditLog {
    /// The log and the API server's flags for it.
    pub(super) fn new(folder: &Path) -> anyhow::Result<(Self, [String; 4])> {
        let (policy, log) = (folder.join("audit-policy.yaml"), folder.join("audit.log"));
        std::fs::write(&policy, POLICY)?;
        let flags = [
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
            "--audit-log-mode=blocking".to_owned(),
            "--audit-log-maxsize=10000".to_owned(),
        ];
        Ok((Self { log, position: 0, rest: String::new() }, flags))
    }

    /// The requests since the last call.
    pub(super) fn news(&mut self) -> anyhow::Result<Vec<Answered>> {
        let Ok(mut file) = File::open(&self.log) else { return Ok(Vec::new()) };
        file.seek(SeekFrom::Start(self.position))?;
        let mut bytes = Vec::new();
        self.position += u64::try_from(file.read_to_end(&mut bytes)?)?;
        self.rest.push_str(&String::from_utf8_lossy(&bytes));
        // The last line may be incomplete.
        let Some((lines, rest)) = self.rest.rsplit_once('\n') else { return Ok(Vec::new()) };
        let mut answered = Vec::new();
        for line in lines.lines() {
            // A killed API server leaves an incomplete line, and its successor continues that line.
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            answered.push(Answered {
                audit_id: text(&event["auditID"]),
                verb: text(&event["verb"]),
                node: text(&event["objectRef"]["name"]),
                at: text(&event["stageTimestamp"]).parse::<Timestamp>()?.as_microsecond(),
                code: event["responseStatus"]["code"].as_u64().context("an answer without a code")?,
            });
        }
        self.rest = rest.to_owned();
        Ok(answered)
    }
}
