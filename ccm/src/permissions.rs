//! What the daemon has to be allowed in the cluster: the one table of the shipped roles and of `check`.

use std::borrow::Cow;

use crate::flags::Flags;

/// One thing that the daemon does at the API server, as RBAC counts: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// API group, empty for the core one.
    pub group: Cow<'static, str>,
    /// Plural name of the resource, as in `nodes`.
    pub resource: Cow<'static, str>,
    /// As in `status`; empty for the resource itself.
    pub subresource: Cow<'static, str>,
    /// As in `get`.
    pub verb: Cow<'static, str>,
    /// Where: in one namespace, or everywhere (`None`).
    pub namespace: Option<Cow<'static, str>>,
    /// On the objects of these names only; empty for all.
    pub resource_names: Vec<Cow<'static, str>>,
    /// What does not work without it, for operators.
    pub needed_for: Cow<'static, str>,
}

impl Permission {
    fn new(
        group: &'static str,
        resource: &'static str,
        verb: &'static str,
        needed_for: &'static str,
    ) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Self {
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            verb: verb.into(),
            namespace: None,
            resource_names: Vec::new(),
            needed_for: needed_for.into(),
        }
    }

    fn in_namespace(mut self, namespace: impl Into<Cow<'static, str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    fn on(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.resource_names = vec![name.into()];
        self
    }
}

/// What a daemon with these flags needs, no more and no less.
pub fn needed(flags: &Flags) -> Vec<Permission> {
    let mut needed = vec![
        Permission::new("", "nodes", "list", "all controllers"),
        Permission::new("", "nodes", "watch", "all controllers"),
        Permission::new("", "nodes", "patch", "initialising Nodes, labels, taints"),
        Permission::new("", "nodes", "delete", "deleting Nodes whose instance is gone"),
        Permission::new("", "nodes/status", "patch", "addresses and conditions of Nodes"),
        Permission::new("", "events", "create", "events"),
        Permission::new("", "events", "patch", "events that repeat"),
        // Every kubelet has a lease of its Node's name.
        Permission::new("coordination.k8s.io", "leases", "get", "telling a dead kubelet from a living one")
            .in_namespace("kube-node-lease"),
    ];
    if flags.leader_election.enabled {
        let namespace = flags.leader_election.resource_namespace.clone();
        let name = flags.leader_election.resource_name.clone();
        let lease = |verb, needed_for| {
            Permission::new("coordination.k8s.io", "leases", verb, needed_for).in_namespace(namespace.clone())
        };
        // RBAC knows no names of objects that do not exist yet.
        needed.push(lease("create", "the first leader election"));
        for (verb, needed_for) in [
            ("get", "leader election"),
            ("update", "leader election"),
            ("watch", "a standby's taking over at once"),
        ] {
            needed.push(lease(verb, needed_for).on(name.clone()));
        }
    }
    needed
}
