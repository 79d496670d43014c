//! What is decided, and in which words a refusal says why.

/// What upstream calls whoever reviews, in the reason of who is allowed nothing.
const REVIEWER: &str = "kubernetes.io/webhook";

/// What is decided about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Decision {
    Allowed,
    /// With the reviewer's reason, which may be empty.
    Denied(String),
    /// Nobody allows it, which is a refusal too.
    NoOpinion(String),
}

impl Decision {
    /// As in upstream's metrics.
    pub(in super::super) fn as_str(&self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied(_) => "denied",
            Self::NoOpinion(_) => "no-opinion",
        }
    }

    /// The decision with the reviewer's name where upstream says it: not before a refusal that the reviewer insists on.
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
