//! `--node-labels`, a flag of vSphere's cloud-controller-manager that serves every cloud: labels for all Nodes.

use std::collections::BTreeMap;

use cloudprovider::{label_key_fault, label_value_fault};
use component::command_line::values::list;

/// Labels by their keys. A key that stands there twice has the last value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLabels(pub BTreeMap<String, String>);

impl NodeLabels {
    /// Reads `key=value,...`, as Go's pflag reads such maps: with more than one pair, one that holds a comma stands in
    /// double quotes.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let pairs = match text.matches('=').count() {
            0 if text.is_empty() => return Ok(Self::default()),
            0 => return Err(format!("{text} must be formatted as key=value")),
            1 => vec![text.trim_matches('"').to_owned()],
            _ => list(text)?,
        };
        let pair = |pair: String| match pair.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(format!("{pair} must be formatted as key=value")),
        };
        pairs.into_iter().map(pair).collect::<Result<_, _>>().map(Self)
    }

    /// What cannot be a label.
    pub(super) fn faults(&self) -> Vec<String> {
        let keys = self.0.keys().filter_map(|key| {
            label_key_fault(key).map(|fault| format!("invalid --node-labels key {key:?}: {fault}"))
        });
        let values = self.0.iter().filter_map(|(key, value)| {
            label_value_fault(value)
                .map(|fault| format!("invalid --node-labels value {value:?} of {key:?}: {fault}"))
        });
        keys.chain(values).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_as_go_reads_them() {
        let read = |text: &str| {
            let labels = NodeLabels::parse(text).expect(text);
            labels.0.into_iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>()
        };
        assert_eq!(read("node.foo.bar=vsphere,foo.bar/mapi="), ["foo.bar/mapi ", "node.foo.bar vsphere"]);
        assert_eq!(read("\"a=b\""), ["a b"]);
        assert_eq!(read("a=1,a=2"), ["a 2"]);
        assert_eq!(read("\"a=b,c\",d=e=f"), ["a b,c", "d e=f"]);
        assert_eq!(read(""), [""; 0]);
        for text in ["a", "a,b", "a=1,b=2,c", "\"a=1,b=2"] {
            NodeLabels::parse(text).expect_err(text);
        }
        // one pair is not split
        assert_eq!(read("a=1,b"), ["a 1,b"]);
    }
}
