//! JSON patch (RFC 6902), with the deviations of the library that the API server uses.

use json_patch::PatchOperation;
use serde_json::Value;

use crate::status::{ApiError, ApiResult};

/// Applies the operations in order.
///
/// 422 Invalid if one of them is malformed or cannot be applied. As on the API server, `replace` adds a
/// missing member, and `test` for null succeeds for a missing one.
pub(super) fn apply(object: &mut Value, operations: &[Value]) -> ApiResult<()> {
    for operation in operations {
        let parsed: PatchOperation =
            serde_json::from_value(operation.clone()).map_err(|_| ApiError::patch_rejected())?;
        let parsed = match parsed {
            PatchOperation::Replace(replace) if object.pointer(replace.path.as_str()).is_none() => {
                PatchOperation::Add(json_patch::AddOperation { path: replace.path, value: replace.value })
            }
            PatchOperation::Test(test)
                if test.value.is_null() && object.pointer(test.path.as_str()).is_none() =>
            {
                continue;
            }
            other => other,
        };
        json_patch::patch_unsafe(object, &[parsed]).map_err(|_| ApiError::patch_rejected())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn liberties_and_failures() {
        let mut object = json!({"spec": {}});
        let ok = json!([{"op": "test", "path": "/spec/a", "value": null}, {"op": "replace", "path": "/spec/a", "value": 1}]);
        apply(&mut object, ok.as_array().unwrap()).unwrap();
        assert_eq!(object, json!({"spec": {"a": 1}}));
        for bad in [
            json!({"op": "test", "path": "/spec/a", "value": 2}),
            json!({"op": "test", "path": "/spec/b", "value": 2}),
            json!({"op": "remove", "path": "/spec/b"}),
            json!({"op": "replace", "path": "/nothing/b", "value": 2}),
            json!({"op": "frobnicate", "path": "/spec"}),
        ] {
            assert_eq!(apply(&mut object, &[bad]).unwrap_err().code, 422);
        }
    }
}
