//! The rules for `IPAddress`: one object for each address, whose name is the address.

use std::net::IpAddr;

use serde_json::Value;

use crate::status::FieldError;

/// What is wrong with the name, if anything: it is the canonical form of an IP address.
pub(crate) fn name_fault(name: &str) -> Option<String> {
    match name.parse::<IpAddr>() {
        Err(_) => Some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()),
        Ok(address) if address.to_string() != name => {
            Some(format!("must be in canonical form (\"{address}\")"))
        }
        Ok(_) => None,
    }
}

/// Checks the reference to the object that owns the address. It never changes.
pub(crate) fn validate(address: &Value, before: Option<&Value>, errors: &mut Vec<FieldError>) {
    let parent = |of: &Value| of.pointer("/spec/parentRef").cloned().unwrap_or_default();
    let wanted = parent(address);
    if wanted.is_null() {
        errors.push(FieldError::required("spec.parentRef", ""));
    } else {
        for field in ["resource", "name"] {
            if wanted[field].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::required(format!("spec.parentRef.{field}"), ""));
            }
        }
    }
    if before.is_some_and(|before| parent(before) != wanted) {
        errors.push(FieldError::invalid("spec.parentRef", &wanted, "field is immutable"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_canonical_addresses() {
        for name in ["10.0.0.1", "2001:db8::1", "::ffff:1.2.3.4"] {
            assert_eq!(name_fault(name), None, "{name}");
        }
        for name in ["10.0.0.01", "2001:DB8::1", "2001:db8:0::1", "address", "", "10.0.0.1/24"] {
            assert!(name_fault(name).is_some(), "{name}");
        }
    }
}
