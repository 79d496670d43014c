//! The result of a run.

use std::fmt;

/// A group of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Suite {
    /// The answers of look-ups, zones and clusters included.
    Lookups,
    /// The stream of changes.
    Changes,
    /// Provider IDs and who owns them.
    ProviderIds,
    /// Load balancers for Services.
    LoadBalancers,
    /// Routes to the pods of Nodes.
    Routes,
    /// Machines and clusters for Cluster API.
    Machines,
    /// What the factory says about configurations.
    Configuration,
    /// Start, stop and end.
    Lifecycle,
}

impl Suite {
    /// Every suite, in the order in which they run.
    pub const ALL: &'static [Self] = &[
        Self::Lookups,
        Self::Changes,
        Self::ProviderIds,
        Self::LoadBalancers,
        Self::Routes,
        Self::Machines,
        Self::Configuration,
        Self::Lifecycle,
    ];

    /// The suite as a word, such as `provider-ids`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lookups => "lookups",
            Self::Changes => "changes",
            Self::ProviderIds => "provider-ids",
            Self::LoadBalancers => "load-balancers",
            Self::Routes => "routes",
            Self::Machines => "machines",
            Self::Configuration => "configuration",
            Self::Lifecycle => "lifecycle",
        }
    }
}

/// A rule of the contract. Prints as `lookups/order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule {
    /// The suite that the rule belongs to.
    pub suite: Suite,
    /// Its name in the suite.
    pub name: &'static str,
    /// The rule as a sentence.
    pub says: &'static str,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.suite.as_str(), self.name)
    }
}

/// The result of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed {
        /// What was checked.
        checked: String,
    },
    /// It does not hold.
    Failed {
        /// What was seen instead.
        reason: String,
    },
    /// It is not known whether it holds.
    NotChecked {
        /// What was missing.
        reason: String,
    },
}

/// A rule with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleResult {
    /// The rule.
    pub rule: Rule,
    /// Its result.
    pub outcome: Outcome,
}

/// The results of all rules that were run. Prints as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The provider's name.
    pub provider: String,
    /// In the order in which they were checked.
    pub results: Vec<RuleResult>,
}

impl Report {
    /// Whether no rule was broken. Rules that were not checked do not count.
    pub fn is_conforming(&self) -> bool {
        self.failed().next().is_none()
    }

    /// The rules that do not hold, each with the reason.
    pub fn failed(&self) -> impl Iterator<Item = (Rule, &str)> {
        self.results.iter().filter_map(|result| match &result.outcome {
            Outcome::Failed { reason } => Some((result.rule, reason.as_str())),
            _ => None,
        })
    }

    /// The rules that were not checked, each with what was missing.
    pub fn not_checked(&self) -> impl Iterator<Item = (Rule, &str)> {
        self.results.iter().filter_map(|result| match &result.outcome {
            Outcome::NotChecked { reason } => Some((result.rule, reason.as_str())),
            _ => None,
        })
    }

    /// Prints the report and asserts that no rule was broken. The test of a provider ends with this call.
    ///
    /// # Panics
    /// If a rule does not hold.
    #[track_caller]
    #[expect(clippy::print_stdout, reason = "the author of a provider reads it")]
    pub fn print_and_assert(&self) {
        println!("{self}");
        let failed: Vec<_> = self.failed().map(|(rule, reason)| format!("{rule}: {reason}")).collect();
        assert!(failed.is_empty(), "provider {:?} breaks the contract: {}", self.provider, failed.join("; "));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, not_checked) = (self.failed().count(), self.not_checked().count());
        let passed = self.results.len() - failed - not_checked;
        write!(
            f,
            "conformance of provider {:?}: {passed} rules hold, {failed} do not, {not_checked} were not checked",
            self.provider
        )?;
        for RuleResult { rule, outcome } in &self.results {
            let (word, label, detail) = match outcome {
                Outcome::Passed { checked } => ("holds", "checked", checked),
                Outcome::Failed { reason } => ("BROKEN", "seen", reason),
                Outcome::NotChecked { reason } => ("not checked", "missing", reason),
            };
            write!(f, "\n{word:<11}  {rule}: {}\n{:13}{label}: {detail}", rule.says, "")?;
        }
        Ok(())
    }
}
