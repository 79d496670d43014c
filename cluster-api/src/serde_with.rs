//! Helpers of the derived implementations of serde.

/// Whether an optional object says nothing and is left out at writing.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
