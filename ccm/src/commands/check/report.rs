//! The findings of a check, as a table and as JSON.

use serde::Serialize;

use super::super::tools::{one_line, table};

/// What concerns the machine controller.
pub(super) const MACHINES: &str = "machines";

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It works.
    Ok,
    /// The daemon works, but something is missing or will be lost.
    Warning,
    /// The daemon cannot work.
    Failed,
    /// The check could not be made.
    Skipped,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "WARNING",
            Self::Failed => "FAILED",
            Self::Skipped => "skipped",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The subject of the check.
    pub what: String,
    /// The result.
    pub verdict: Verdict,
    /// The observation, and advice.
    pub detail: String,
}

/// All findings, in order.
#[derive(Clone, Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn works(&mut self, what: &str, detail: impl AsRef<str>) {
        self.add(what, Verdict::Ok, detail.as_ref());
    }

    pub(super) fn warning(&mut self, what: &str, detail: impl AsRef<str>) {
        self.add(what, Verdict::Warning, detail.as_ref());
    }

    pub(super) fn failed(&mut self, what: &str, detail: impl AsRef<str>) {
        self.add(what, Verdict::Failed, detail.as_ref());
    }

    pub(super) fn skipped(&mut self, what: &str, detail: impl AsRef<str>) {
        self.add(what, Verdict::Skipped, detail.as_ref());
    }

    fn add(&mut self, what: &str, verdict: Verdict, detail: &str) {
        self.findings.push(Finding { what: what.to_owned(), verdict, detail: one_line(detail) });
    }

    /// All findings, in order.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether all required checks succeeded.
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| matches!(finding.verdict, Verdict::Ok | Verdict::Warning))
    }

    /// For people: one line for each finding, and a summary at the end.
    pub fn to_table(&self) -> String {
        let mut rows = vec![["CHECK", "RESULT", "DETAIL"].map(str::to_owned).to_vec()];
        rows.extend(self.findings.iter().map(|finding| {
            vec![finding.what.clone(), finding.verdict.as_str().to_owned(), finding.detail.clone()]
        }));
        let count = |verdict| self.findings.iter().filter(|finding| finding.verdict == verdict).count();
        let sum = match (count(Verdict::Failed), count(Verdict::Warning)) {
            (0, _) if !self.is_good() => "Something could not be tried.".to_owned(),
            (0, 0) => "Everything works.".to_owned(),
            (0, warnings) => format!("Everything that is needed works; {warnings} to look at."),
            (failed, warnings) => format!("{failed} failed, {warnings} more to look at."),
        };
        format!("{}\n{sum}\n", table(&rows))
    }

    /// For programs: an object with `ok` and `findings`.
    ///
    /// # Errors
    /// Never: all of its content is text.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let report = serde_json::json!({"ok": self.is_good(), "findings": self.findings});
        serde_json::to_string_pretty(&report).map(|text| text + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_sums_up() {
        let mut report = Report::default();
        report.works("flags", "good");
        report.warning("cloud", "a\n  b");
        assert!(report.is_good());
        assert_eq!(
            report.to_table(),
            "CHECK  RESULT   DETAIL\nflags  ok       good\ncloud  WARNING  a b\n\nEverything that is needed works; 1 to look at.\n"
        );
        report.failed("cloud", "c");
        assert!(!report.is_good() && report.to_table().ends_with("1 failed, 1 more to look at.\n"));
        let json: serde_json::Value = serde_json::from_str(&report.to_json().expect("JSON")).expect("JSON");
        assert_eq!(
            (json["ok"].clone(), json["findings"][2]["verdict"].clone()),
            (false.into(), "failed".into())
        );
    }

    #[test]
    fn what_could_not_be_tried_is_not_good() {
        let mut report = Report::default();
        report.skipped("permissions", "x");
        assert!(!report.is_good());
    }
}
