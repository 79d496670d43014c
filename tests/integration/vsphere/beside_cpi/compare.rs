//! Compares Nodes field by field, and knows the expected differences.

use std::collections::BTreeMap;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Node;

use crate::support::{addresses, is_initialized, provider_id};

/// The final state of a Node: each field that a cloud-controller-manager may write, by name.
pub(super) type Fields = BTreeMap<String, String>;

/// A field that is expected to differ.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) node: String,
    pub(super) field: &'static str,
    pub(super) cpi: &'static str,
    pub(super) ours: &'static str,
    pub(super) why: &'static str,
}

/// The field that says whether a Node was initialised. An uninitialised Node has no other field: writes
/// before the removal of the taint are not compared.
pub(super) const INITIALIZED: &str = "initialized";

/// Fields that only we write, and why.
const ONLY_HERE: [(&str, &str); 1] = [(
    "annotation node.cloudprovider.kubernetes.io/additional-labels",
    "remembers which of the labels came from us, so that they can follow and go",
)];

/// The fields of a Node.
pub(super) fn fields(node: &Node) -> Fields {
    let mut fields = Fields::from([(INITIALIZED.to_owned(), is_initialized(node).to_string())]);
    if !is_initialized(node) {
        return fields;
    }
    fields.insert("providerID".to_owned(), provider_id(node).unwrap_or_default());
    fields.insert("addresses".to_owned(), addresses(node).join(", "));
    let of = |kind: &str, values: &Option<BTreeMap<String, String>>| -> Vec<(String, String)> {
        values.iter().flatten().map(|(key, value)| (format!("{kind} {key}"), value.clone())).collect()
    };
    fields.extend(of("label", &node.metadata.labels));
    fields.extend(of("annotation", &node.metadata.annotations));
    for taint in node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()) {
        let value = format!("{}:{}", taint.value.as_deref().unwrap_or_default(), taint.effect);
        fields.insert(format!("taint {}", taint.key), value);
    }
    fields
}

/// Fails with all unexpected differences, and with all expected ones that are missing.
pub(super) fn compare(
    title: &str,
    cpi: &BTreeMap<String, Fields>,
    ours: &BTreeMap<String, Fields>,
    wanted: &[Wanted],
) -> anyhow::Result<()> {
    ensure!(cpi.keys().eq(ours.keys()), "{title}: other Nodes: {:?} and {:?}", cpi.keys(), ours.keys());
    let (mut faults, mut compared, mut seen) = (Vec::new(), 0, 0);
    for (node, theirs) in cpi {
        let own = &ours[node];
        let is_waiting = |fields: &Fields| fields[INITIALIZED] == "false";
        let only_one_waits = is_waiting(theirs) != is_waiting(own);
        let mut names: Vec<_> = theirs.keys().chain(own.keys()).collect();
        names.sort();
        names.dedup();
        for name in names.into_iter().filter(|name| !only_one_waits || **name == INITIALIZED) {
            compared += 1;
            if ONLY_HERE.iter().any(|(field, _)| field == name) && !theirs.contains_key(name) {
                continue;
            }
            let value = |fields: &Fields| fields.get(name).cloned().unwrap_or_default();
            let (theirs, own) = (value(theirs), value(own));
            let difference = wanted.iter().find(|wanted| wanted.node == *node && wanted.field == name);
            match difference {
                Some(difference) if theirs == difference.cpi && own == difference.ours => {
                    seen += 1;
                }
                Some(difference) => faults.push(format!(
                    "{node}: {name}: CPI {theirs:?}, here {own:?}; meant are {:?} and {:?}, since {}",
                    difference.cpi, difference.ours, difference.why
                )),
                None if theirs != own => {
                    faults.push(format!("{node}: {name}: CPI {theirs:?}, here {own:?}"));
                }
                None => {}
            }
        }
    }
    println!("{title}: {compared} fields of {} Nodes, {seen} wanted differences", cpi.len());
    ensure!(faults.is_empty(), "{title}:\n  {}", faults.join("\n  "));
    ensure!(seen == wanted.len(), "{title}: of {wanted:?} only {seen} are there");
    Ok(())
}
