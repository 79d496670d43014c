//! Whether a spec has an optional part.

/// Whether the spec has the part: optional parts are plain fields with their default when they are absent.
pub(crate) fn is_set<T: Default + PartialEq>(part: &T) -> bool {
    *part != T::default()
}
