//! What conditions are called in the contract v1beta1 of Cluster API.

/// A condition in the form of the contract v1beta1, for programs that still read it. It follows one in the
/// present form: the controller derives it in the same write, in `status.deprecated.v1beta1.conditions`. A
/// provider that takes over the objects of another program names those that this program has written, with a
/// [`Kind`](super::Kind).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct V1Beta1Condition {
    /// Its type, such as `VMProvisioned`.
    pub name: &'static str,
    /// The type of the condition that it follows. While an object does not have that one, it does not have
    /// this one either.
    pub follows: &'static str,
    /// How bad it is that it does not hold, unless the reason says otherwise.
    pub severity: Severity,
    /// Reasons that have another name or another severity.
    pub reasons: &'static [V1Beta1Reason],
}

/// The reason of a [`V1Beta1Condition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct V1Beta1Reason {
    /// That of the condition which is followed.
    pub reason: &'static str,
    /// What it is called in the older form.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
}

/// How bad it is that a [`V1Beta1Condition`] does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Somebody has to act.
    Error,
    /// It may pass, or somebody has to act.
    Warning,
    /// Something is waited for.
    Info,
}

impl Severity {
    /// The severity as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
        }
    }
}

impl V1Beta1Condition {
    /// A condition whose reasons are called the same in both forms.
    pub const fn new(name: &'static str, follows: &'static str, severity: Severity) -> Self {
        Self { name, follows, severity, reasons: &[] }
    }

    /// Sets the reasons that have another name or another severity.
    #[must_use]
    pub const fn with_reasons(mut self, reasons: &'static [V1Beta1Reason]) -> Self {
        self.reasons = reasons;
        self
    }

    /// The reason in the older form, and how bad it is. A reason that begins with `WaitingFor` is never bad.
    pub fn reason<'r>(&self, reason: &'r str) -> (&'r str, Severity) {
        if let Some(found) = self.reasons.iter().find(|one| one.reason == reason) {
            return (found.name, found.severity);
        }
        let is_wait = reason.starts_with("WaitingFor");
        (reason, if is_wait { Severity::Info } else { self.severity })
    }
}

impl V1Beta1Reason {
    /// A reason of the same name.
    pub const fn new(reason: &'static str, severity: Severity) -> Self {
        Self { reason, name: reason, severity }
    }

    /// Sets what it is called in the older form.
    #[must_use]
    pub const fn called(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_how_bad_it_is() {
        const MADE: V1Beta1Condition = V1Beta1Condition::new("VMProvisioned", "Made", Severity::Warning)
            .with_reasons(&[
                V1Beta1Reason::new("WaitingForClone", Severity::Info).called("Cloning"),
                V1Beta1Reason::new("PoweringOn", Severity::Info),
                V1Beta1Reason::new("WaitingForEver", Severity::Error),
            ]);
        for (reason, name, severity) in [
            ("WaitingForClone", "Cloning", Severity::Info),
            ("PoweringOn", "PoweringOn", Severity::Info),
            ("WaitingForAddress", "WaitingForAddress", Severity::Info),
            ("WaitingForEver", "WaitingForEver", Severity::Error),
            ("TaskFailed", "TaskFailed", Severity::Warning),
        ] {
            assert_eq!(MADE.reason(reason), (name, severity));
        }
        assert_eq!(Severity::Info.as_str(), "Info");
    }
}
