//! How far a task is.

use crate::{moref::MoRef, vim::element::Element};

/// How far a task is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// It is queued or runs.
    #[default]
    Running,
    /// It succeeded.
    Success,
    /// It succeeded in beginning the work, which goes on: by another task, if vCenter names one.
    Continued(Option<MoRef>),
    /// It failed.
    Failed(TaskFault),
}

/// Why a task failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskFault {
    /// The `xsi:type` of the fault, such as `NoDiskSpace`. Code decides by it.
    pub(crate) kind: Box<str>,
    /// vCenter's words, shortened.
    pub(crate) message: Box<str>,
}

impl TaskFault {
    /// Reads a `LocalizedMethodFault`.
    pub(crate) fn read(value: &Element) -> Self {
        /// Longer words are cut.
        const MAX_CHARS: usize = 300;
        let kind = value.child("fault").and_then(|fault| fault.kind.as_deref()).unwrap_or_default();
        let words = value.text_of("localizedMessage").unwrap_or_default();
        Self { kind: kind.into(), message: words.chars().take(MAX_CHARS).collect::<String>().into() }
    }
}

/// An error of a step whose source it is says that a task failed.
impl std::error::Error for TaskFault {}

impl std::fmt::Display for TaskFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&*self.kind, &*self.message) {
            ("", "") => f.write_str("an unknown fault"),
            (kind, "") => f.write_str(kind),
            ("", message) => f.write_str(message),
            (kind, message) => write!(f, "{kind} ({message})"),
        }
    }
}
