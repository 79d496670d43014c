//! Selectors by labels, as everywhere in Kubernetes.

use std::collections::BTreeMap;

use cloudprovider::{Error, ErrorKind, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Selects objects by their labels. All requirements must be met; without any, every object is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub(crate) struct LabelSelector {
    /// Labels that an object must have, with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub(crate) match_expressions: Vec<LabelSelectorRequirement>,
}

/// A requirement of a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LabelSelectorRequirement {
    /// The key of the label.
    pub(crate) key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub(crate) operator: String,
    /// The values, for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub(crate) values: Vec<String>,
}

impl LabelSelector {
    /// Whether an object with these labels is selected. `field` is where the selector is, for errors.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](cloudprovider::ErrorKind::InvalidInput) for an operator that there is not, or values that do not
    /// belong to it.
    pub(crate) fn selects(&self, field: &str, labels: &BTreeMap<String, String>) -> Result<bool> {
        let mut is_met = self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        for (number, requirement) in self.match_expressions.iter().enumerate() {
            is_met &= requirement.is_met(&format!("{field}.matchExpressions[{number}]"), labels)?;
        }
        Ok(is_met)
    }
}

impl LabelSelectorRequirement {
    fn is_met(&self, field: &str, labels: &BTreeMap<String, String>) -> Result<bool> {
        let Self { key, operator, values } = self;
        let has_values = !values.is_empty();
        let is_one_of_them = labels.get(key).is_some_and(|value| values.contains(value));
        let why = match (operator.as_str(), has_values) {
            ("In", true) => return Ok(is_one_of_them),
            ("NotIn", true) => return Ok(!is_one_of_them),
            ("Exists", false) => return Ok(labels.contains_key(key)),
            ("DoesNotExist", false) => return Ok(!labels.contains_key(key)),
            ("In" | "NotIn", false) => format!("{field}.values: missing; {operator} needs some"),
            ("Exists" | "DoesNotExist", true) => {
                format!("{field}.values: {operator} has none; leave them out")
            }
            _ => format!("{field}.operator: {operator:?} is none of In, NotIn, Exists, DoesNotExist"),
        };
        Err(Error::new(ErrorKind::InvalidInput, why))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_selected_by_their_labels() {
        let labels =
            BTreeMap::from([("site".to_owned(), "east".to_owned()), ("gpu".to_owned(), String::new())]);
        let one = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"site": "east"}}), true),
            (json!({"matchLabels": {"site": "east", "gpu": "no"}}), false),
            (json!({"matchLabels": {"other": ""}}), false),
            (one("site", "In", &["west", "east"]), true),
            (one("site", "In", &["west"]), false),
            (one("other", "In", &["west"]), false),
            (one("site", "NotIn", &["west"]), true),
            (one("other", "NotIn", &["west"]), true),
            (one("site", "NotIn", &["east"]), false),
            (one("gpu", "Exists", &[]), true),
            (one("gpu", "DoesNotExist", &[]), false),
            (one("other", "DoesNotExist", &[]), true),
        ] {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).expect("a selector");
            assert_eq!(parsed.selects("spec.selector", &labels).ok(), Some(expected), "{selector}");
        }
        for (selector, words) in [
            (one("a", "Is", &[]), "spec.selector.matchExpressions[0].operator: \"Is\" is none of In, "),
            (one("a", "In", &[]), "spec.selector.matchExpressions[0].values: missing"),
            (one("a", "Exists", &["b"]), "spec.selector.matchExpressions[0].values: Exists has none"),
        ] {
            let parsed: LabelSelector = serde_json::from_value(selector).expect("a selector");
            let error = parsed.selects("spec.selector", &labels).expect_err(words);
            assert!(error.to_string().starts_with(words), "{error}");
        }
    }
}
