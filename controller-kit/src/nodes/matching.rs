//! Which Nodes may belong to instances that a provider names.

use std::collections::HashSet;

use cloudprovider::InstanceRef;

use super::NodeStore;

impl NodeStore {
    /// Names of the Nodes that any of `instances` may belong to: by provider ID, or, for Nodes without one, by
    /// system UUID or name.
    pub fn matching(&self, instances: &[InstanceRef]) -> Vec<String> {
        let texts = |field: fn(&InstanceRef) -> Option<&String>| -> HashSet<String> {
            instances.iter().filter_map(field).map(|text| text.to_ascii_lowercase()).collect()
        };
        let provider_ids = texts(|i| i.provider_id.as_ref());
        let system_uuids = texts(|i| i.system_uuid.as_ref());
        let names = texts(|i| i.name.as_ref());
        // Whatever happens to a machine that no Node belongs to yet is told too.
        if [&provider_ids, &system_uuids, &names].iter().all(|set| set.is_empty()) {
            return Vec::new();
        }
        let has = |set: &HashSet<String>, text: &str| set.contains(&text.to_ascii_lowercase());
        self.read()
            .values()
            .map(|node| &node.identity)
            .filter(|node| {
                node.provider_id.as_deref().is_some_and(|id| has(&provider_ids, id))
                    || node.system_uuid.as_deref().is_some_and(|uuid| has(&system_uuids, uuid))
                    || has(&names, &node.name)
            })
            .map(|node| node.name.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::NodeIdentity;

    use super::*;
    use crate::nodes::Node;

    fn node(name: &str, version: &str) -> Node {
        let identity =
            NodeIdentity { name: name.into(), uid: format!("uid-{name}"), ..NodeIdentity::default() };
        Node { identity, resource_version: version.into(), ..Node::default() }
    }

    #[test]
    fn instances_find_their_nodes() {
        let store = NodeStore::new();
        let mut by_id = node("a", "1");
        by_id.identity.provider_id = Some("libvirt:///X".into());
        let mut by_uuid = node("b", "1");
        by_uuid.identity.system_uuid = Some("ABC".into());
        store.replace(vec![by_id, by_uuid, node("c", "1"), node("d", "1")]);
        let refs = [
            InstanceRef { provider_id: Some("libvirt:///x".into()), ..InstanceRef::default() },
            InstanceRef { system_uuid: Some("abc".into()), name: Some("c".into()), ..InstanceRef::default() },
        ];
        let mut found = store.matching(&refs);
        found.sort();
        assert_eq!(found, ["a", "b", "c"]);
        let of_a_machine = InstanceRef { machine: Some("uid-a".into()), ..InstanceRef::default() };
        assert!(store.matching(&[of_a_machine]).is_empty());
    }
}
