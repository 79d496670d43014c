//! What a status says about an object.

use std::borrow::Cow;

/// A condition of an object, without the times that the controller adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type in CamelCase, such as `VCenterAvailable`. `Ready` and `Paused` are the controller's.
    pub condition_type: Cow<'static, str>,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in CamelCase.
    pub reason: Cow<'static, str>,
    /// Why, for people. May be empty. Without secrets.
    pub message: Cow<'static, str>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// That is not known.
    Unknown,
}

impl ConditionStatus {
    /// The status as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Condition {
    /// A condition without a message.
    pub fn new(
        condition_type: impl Into<Cow<'static, str>>,
        status: ConditionStatus,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (condition_type, reason) = (condition_type.into(), reason.into());
        Self { condition_type, status, reason, message: Cow::default() }
    }

    /// Sets the message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = message.into();
        self
    }
}
