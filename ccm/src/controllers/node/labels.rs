//! Which labels a Node gets.

use std::collections::BTreeMap;

use cloudprovider::{InstanceMetadata, label_key_fault, label_value_fault};
use controller_kit::nodes::Node;

use crate::flags::Flags;

/// Label, its deprecated twin, and what the value is called in messages.
const PAIRS: [(&str, &str, Field); 3] = [
    ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", Field::InstanceType),
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", Field::Zone),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region", Field::Region),
];

/// Annotation that records which additional labels came from the cloud, as a JSON map. Only these labels are
/// ever changed or removed. A Node without additional labels does not have the annotation.
pub(super) const ADDITIONAL_LABELS: &str = "node.cloudprovider.kubernetes.io/additional-labels";

#[derive(Clone, Copy)]
enum Field {
    InstanceType,
    Zone,
    Region,
}

/// Changes to labels and annotations: `Some` sets, `None` removes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LabelChanges {
    /// By label key.
    pub labels: BTreeMap<String, Option<String>>,
    /// By annotation key.
    pub annotations: BTreeMap<String, Option<String>>,
    /// What was left unchanged and why, for the log.
    pub warnings: Vec<String>,
}

impl LabelChanges {
    /// Whether nothing is to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// A value that cannot be a label.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the cloud's {name} {value:?} is not a valid label value: {fault}")]
pub(super) struct InvalidLabel {
    name: &'static str,
    value: String,
    fault: &'static str,
}

/// What happens to an additional label that has another client's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignValue {
    /// It stays, and the cloud's value is dropped with a warning.
    #[default]
    Stays,
    /// The cloud's value replaces it: upstream's rule for initialised Nodes with the gate
    /// `CloudNodeAdditionalLabelsReconciliation`.
    IsReplaced,
}

impl ForeignValue {
    /// By the gate.
    pub fn of(flags: &Flags) -> Self {
        if flags.generic.has_additional_labels_reconciled() { Self::IsReplaced } else { Self::Stays }
    }
}

/// What has to change for `node` to carry the labels that `metadata` asks for.
///
/// Instance type, zone and region follow the cloud, and the deprecated labels follow them.
///
/// # Errors
/// Instance type, zone or region is not a valid label value. The API server would refuse the whole write.
pub(super) fn label_changes(
    node: &Node,
    metadata: &InstanceMetadata,
    foreign: ForeignValue,
) -> Result<LabelChanges, InvalidLabel> {
    let mut changes = LabelChanges::default();
    for (label, beta_label, field) in PAIRS {
        let (name, from_cloud) = field.of(metadata);
        let label_now = node.identity.labels.get(label);
        let beta_now = node.identity.labels.get(beta_label);
        let (wanted, wanted_beta) = match from_cloud {
            Some(value) => {
                label_value_fault(value)
                    .map_or(Ok(()), |fault| Err(InvalidLabel { name, value: value.clone(), fault }))?;
                (Some(value), Some(value))
            }
            // The cloud says nothing. A Node that has only the beta label gets the other one from it, but never the reverse.
            None => match (label_now, beta_now) {
                (Some(value), Some(_)) => (Some(value), Some(value)),
                (None, Some(beta)) => (Some(beta), Some(beta)),
                (_, None) => (label_now, None),
            },
        };
        for (key, now, wanted) in [(label, label_now, wanted), (beta_label, beta_now, wanted_beta)] {
            if let Some(value) = wanted
                && now != Some(value)
            {
                changes.labels.insert(key.to_owned(), Some(value.clone()));
            }
        }
    }
    additional_label_changes(node, metadata, foreign, &mut changes);
    Ok(changes)
}

fn additional_label_changes(
    node: &Node,
    metadata: &InstanceMetadata,
    foreign: ForeignValue,
    changes: &mut LabelChanges,
) {
    let remembered: BTreeMap<String, String> = node
        .identity
        .annotations
        .get(ADDITIONAL_LABELS)
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default();
    let mut ours: BTreeMap<&String, &String> = BTreeMap::new();
    for (key, value) in &metadata.additional_labels {
        if let Some(why) = refused(key, value) {
            changes.warnings.push(format!("additional label {key}={value} from the cloud is dropped: {why}"));
            continue;
        }
        let now = node.identity.labels.get(key);
        let is_foreign = now.is_some_and(|now| now != value && remembered.get(key) != Some(now));
        if is_foreign && foreign == ForeignValue::Stays {
            changes.warnings.push(format!(
                "additional label {key}={value} from the cloud is dropped: the Node has another value already"
            ));
            continue;
        }
        if now != Some(value) {
            changes.labels.insert(key.clone(), Some(value.clone()));
        }
        // A label that somebody else set stays theirs, even where it happens to have the cloud's value.
        if now.is_none() || is_foreign || remembered.contains_key(key) {
            ours.insert(key, value);
        }
    }
    for (key, value) in &remembered {
        if !ours.contains_key(key)
            && node.identity.labels.get(key) == Some(value)
            && refused(key, value).is_none()
        {
            changes.labels.insert(key.clone(), None);
        }
    }
    let wanted = if ours.is_empty() { None } else { serde_json::to_string(&ours).ok() };
    if wanted.as_ref() != node.identity.annotations.get(ADDITIONAL_LABELS) {
        changes.annotations.insert(ADDITIONAL_LABELS.to_owned(), wanted);
    }
}

impl Field {
    fn of(self, metadata: &InstanceMetadata) -> (&'static str, Option<&String>) {
        let (name, value) = match self {
            Self::InstanceType => ("instance type", &metadata.instance_type),
            Self::Zone => ("zone", &metadata.zone),
            Self::Region => ("region", &metadata.region),
        };
        (name, value.as_ref().filter(|value| !value.is_empty()))
    }
}

/// Why an additional label cannot be set, if so. Upstream refuses keys in `kubernetes.io` and `k8s.io` domains.
fn refused(key: &str, value: &str) -> Option<&'static str> {
    let is_reserved = key.split_once('/').is_some_and(|(prefix, _)| {
        ["kubernetes.io", "k8s.io"].iter().any(|reserved| {
            prefix.strip_suffix(reserved).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    });
    if is_reserved {
        return Some("its key is in a domain reserved for Kubernetes");
    }
    label_key_fault(key).or_else(|| label_value_fault(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: serde_json::Value) -> Node {
        Node::from_json(json!({"metadata": {"name": "n", "labels": labels}}))
    }

    fn zone(zone: &str) -> InstanceMetadata {
        InstanceMetadata { zone: Some(zone.into()), ..InstanceMetadata::default() }
    }

    fn additional(key: &str, value: &str) -> InstanceMetadata {
        InstanceMetadata {
            additional_labels: [(key.into(), value.into())].into(),
            ..InstanceMetadata::default()
        }
    }

    fn set(changes: &LabelChanges) -> Vec<(&str, &str)> {
        changes.labels.iter().map(|(k, v)| (k.as_str(), v.as_deref().unwrap_or("(removed)"))).collect()
    }

    const ZONE: &str = "topology.kubernetes.io/zone";
    const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

    #[test]
    fn both_labels_follow_the_cloud() {
        for labels in [json!({}), json!({ZONE: "old"}), json!({ZONE: "old", BETA_ZONE: "older"})] {
            let changes = label_changes(&node(labels), &zone("new"), ForeignValue::Stays).expect("valid");
            assert_eq!(set(&changes), [(BETA_ZONE, "new"), (ZONE, "new")]);
        }
        let right = node(json!({ZONE: "new", BETA_ZONE: "new"}));
        assert!(label_changes(&right, &zone("new"), ForeignValue::Stays).expect("valid").is_empty());
    }

    #[test]
    fn the_beta_label_follows_where_the_cloud_does_not_say() {
        let silent = InstanceMetadata::default();
        let changes = |labels| label_changes(&node(labels), &silent, ForeignValue::Stays).expect("valid");
        assert_eq!(set(&changes(json!({ZONE: "a", BETA_ZONE: "b"}))), [(BETA_ZONE, "a")]);
        assert_eq!(set(&changes(json!({BETA_ZONE: "b"}))), [(ZONE, "b")]);
        assert!(changes(json!({ZONE: "a"})).is_empty());
        assert!(changes(json!({})).is_empty());
    }

    #[test]
    fn values_that_are_no_labels_are_named() {
        let error =
            label_changes(&node(json!({})), &zone("rack 7/b"), ForeignValue::Stays).expect_err("a blank");
        assert!(error.to_string().contains("zone \"rack 7/b\""), "{error}");
        assert!(label_changes(&node(json!({})), &zone("-a"), ForeignValue::Stays).is_err());
        assert!(label_changes(&node(json!({})), &zone(&"a".repeat(64)), ForeignValue::Stays).is_err());
        assert!(
            label_changes(&node(json!({})), &zone(""), ForeignValue::Stays)
                .expect("empty is silence")
                .is_empty()
        );
    }

    #[test]
    fn reserved_keys_are_dropped_as_upstream_does() {
        for key in ["foo.k8s.io/x", "kubernetes.io/x", "k8s.io/x", "a.b.kubernetes.io/x"] {
            let changes =
                label_changes(&node(json!({})), &additional(key, "v"), ForeignValue::Stays).expect("valid");
            assert!(changes.is_empty() && changes.warnings.len() == 1, "{key}");
        }
        for key in ["app.k8snio/x", "mykubernetes.io/x", "plain", "example.com/x"] {
            let changes =
                label_changes(&node(json!({})), &additional(key, "v"), ForeignValue::Stays).expect("valid");
            assert_eq!(set(&changes), [(key, "v")]);
        }
        for (key, value) in
            [("a/b/c", "v"), ("/x", "v"), ("a b", "v"), ("a", "b c"), ("UPPER.example/x", "v")]
        {
            assert!(
                label_changes(&node(json!({})), &additional(key, value), ForeignValue::Stays)
                    .expect("valid")
                    .is_empty(),
                "{key}"
            );
        }
    }

    #[test]
    fn additional_labels_of_others_stay() {
        let changes =
            label_changes(&node(json!({"a": "mine"})), &additional("a", "cloud"), ForeignValue::Stays)
                .expect("valid");
        assert!(changes.is_empty());
        assert_eq!(changes.warnings.len(), 1);
    }

    #[test]
    fn with_upstreams_gate_the_clouds_value_replaces_that_of_others() {
        let changes = |labels, metadata: InstanceMetadata| {
            label_changes(&node(labels), &metadata, ForeignValue::IsReplaced).expect("valid")
        };
        let changed = changes(json!({"a": "mine"}), additional("a", "cloud"));
        assert_eq!(set(&changed), [("a", "cloud")]);
        assert_eq!(changed.annotations[ADDITIONAL_LABELS].as_deref(), Some(r#"{"a":"cloud"}"#));
        assert!(changed.warnings.is_empty());
        // What has the value already costs no write, and a label that the cloud does not give stays.
        assert!(changes(json!({"a": "cloud", "b": "mine"}), additional("a", "cloud")).is_empty());
        let reserved = changes(json!({"x.k8s.io/a": "mine"}), additional("x.k8s.io/a", "cloud"));
        assert!(reserved.is_empty());
        assert_eq!(reserved.warnings.len(), 1);
    }

    #[test]
    fn a_label_of_others_with_the_clouds_value_is_not_claimed() {
        let changes =
            label_changes(&node(json!({"env": "prod"})), &additional("env", "prod"), ForeignValue::Stays)
                .expect("valid");
        assert!(changes.is_empty() && changes.warnings.is_empty());
    }

    #[test]
    fn additional_labels_of_ours_follow() {
        let node = |value: &str| {
            Node::from_json(json!({"metadata": {"name": "n", "labels": {"a": value},
                "annotations": {ADDITIONAL_LABELS: r#"{"a":"one"}"#}}}))
        };
        assert!(
            label_changes(&node("one"), &additional("a", "one"), ForeignValue::Stays)
                .expect("valid")
                .is_empty()
        );
        let changed =
            label_changes(&node("one"), &additional("a", "two"), ForeignValue::Stays).expect("valid");
        assert_eq!(set(&changed), [("a", "two")]);
        assert_eq!(changed.annotations[ADDITIONAL_LABELS].as_deref(), Some(r#"{"a":"two"}"#));
        let vanished =
            label_changes(&node("one"), &InstanceMetadata::default(), ForeignValue::Stays).expect("valid");
        assert_eq!(set(&vanished), [("a", "(removed)")]);
        assert_eq!(vanished.annotations[ADDITIONAL_LABELS], None);
        let taken_over =
            label_changes(&node("users"), &InstanceMetadata::default(), ForeignValue::Stays).expect("valid");
        assert!(taken_over.labels.is_empty());
    }
}
