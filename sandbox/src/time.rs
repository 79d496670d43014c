//! The current time in the format of objects.

/// The current time, to the second, as `metav1.Time`.
pub(crate) fn now() -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
