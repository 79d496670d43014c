//! Helpers of the unit tests.

pub(crate) mod scripted;
