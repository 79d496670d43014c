//! What came of one piece of work.

use controller_kit::writes::WrittenVersion;

use super::{
    condition::RouteCondition,
    retries::{Failure, Work},
};

/// What came of one piece of work.
#[derive(Debug)]
pub(super) enum Step {
    Deleted,
    Created,
    Failed(Failure),
    /// The provider waits for something first, such as the addresses of a new Node.
    InProgress(Failure),
    /// It failed before, and its time has not come.
    NotDue(Work),
    /// An earlier pass still works on the same routes or the same Node.
    UnderWay(Work),
    Written {
        node: String,
        written: WrittenCondition,
    },
    /// A dry run: what would be done.
    Would(String),
    /// It was not begun, since the controller stops, the term has ended, or another provider has taken over.
    Stopped,
}

/// A condition that was written, and that the watch may not show yet.
#[derive(Clone, Debug)]
pub(super) struct WrittenCondition {
    pub(super) uid: String,
    pub(super) version: WrittenVersion,
    pub(super) condition: RouteCondition,
}
