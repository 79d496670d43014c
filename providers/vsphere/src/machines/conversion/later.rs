//! Fields that v1beta1 got after v1beta2 had them.
//!
//! While v1beta1 had no place for them, they were kept in the annotation alone, and objects that were stored then still have them there.
//! So they are never kept now: what is found there is from that time.

use serde_json::{Map, Value};

use super::shape::{Body, Shape};
use crate::machines::v1beta1::LATER_FIELDS;

/// Takes the fields out of a body in v1beta2.
pub(super) fn take(shape: Shape, body: &mut Body) -> Map<String, Value> {
    let Some(spec) = shape.spec(body).filter(|_| shape.has_clone_spec()) else { return Map::new() };
    LATER_FIELDS.into_iter().filter_map(|field| spec.remove_entry(field)).collect()
}

/// Puts the fields into a body that does not have them.
pub(super) fn put_back(shape: Shape, body: &mut Body, taken: Map<String, Value>) {
    if let Some(spec) = shape.spec(body) {
        for (field, value) in taken {
            spec.entry(field).or_insert(value);
        }
    }
}
