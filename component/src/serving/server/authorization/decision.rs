//! Decisions, and the reason in the text of a refusal.

/// Upstream's name of the reviewer in the reason of a refusal.
const REVIEWER: &str = "kubernetes.io/webhook";

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Decision {
    Allowed,
    /// With the reviewer's reason, which may be empty.
    Denied(String),
    /// No rule allows the request. It is refused.
    NoOpinion(String),
}

impl Decision {
    /// The value of the label in upstream's metrics.
    pub(in super::super) fn as_str(&self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied(_) => "denied",
            Self::NoOpinion(_) => "no-opinion",
        }
    }

    /// Adds the reviewer's name where upstream does: not to an explicit denial by the reviewer.
    pub(super) fn by_reviewer(self) -> Self {
        match self {
            Self::NoOpinion(reason) if !reason.is_empty() => Self::NoOpinion(format!("{REVIEWER}: {reason}")),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_opinion_is_named_with_its_reason() {
        let reason = || "no such role".to_owned();
        let named = Decision::NoOpinion("kubernetes.io/webhook: no such role".to_owned());
        assert_eq!(Decision::NoOpinion(reason()).by_reviewer(), named);
        for other in [Decision::Allowed, Decision::Denied(reason()), Decision::NoOpinion(String::new())] {
            assert_eq!(other.clone().by_reviewer(), other);
        }
    }
}
