//! Helpers of the unit tests.

pub(crate) mod rest;
pub(crate) mod scripted;
