//! Secrets of a namespace.

use k8s_openapi::{ByteString, api::core::v1::Secret};

use crate::engine::place::Place;

/// Where a Secret of the namespace is.
pub(super) fn secret(namespace: &str, name: &str) -> Place {
    Place::of_core("secrets", namespace, name)
}

/// One value of a Secret.
pub(super) fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|ByteString(value)| value.as_slice())
}
