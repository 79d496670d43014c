//! The entries of the suites' lists of rules.

use std::any::Any;

use futures::future::BoxFuture;

use super::run::{Checked, Run};

/// A rule and the function that checks it.
pub(super) struct Check {
    pub name: &'static str,
    pub says: &'static str,
    pub look: for<'a> fn(&'a Run<'a>) -> BoxFuture<'a, Checked>,
}

/// The message of a panic.
pub(super) fn panic_words(panic: &(dyn Any + Send)) -> &str {
    let words = panic.downcast_ref::<&str>().copied();
    words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}
