//! Roles that allow what the daemon does, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use controller_kit::rbac::{Permission, SYSTEM_NAMESPACE};
use serde_json::{Value, json};

use super::options::{ManifestOptions, labels};
use crate::{
    flags::{Flags, LIFECYCLE_CORE},
    permissions,
};

const API_GROUP: &str = "rbac.authorization.k8s.io";

/// What one rule of a role applies to. Rules are sorted by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuleKey<'p> {
    group: &'p str,
    resource: String,
    names: Vec<&'p str>,
}

/// What is allowed on it, and why.
#[derive(Clone, Debug, Default)]
struct Rule<'p> {
    verbs: Vec<&'p str>,
    reasons: Vec<&'p str>,
}

/// The suffix of the names of the roles for Secrets.
const FOR_SECRETS: &str = "-secrets";

/// A Role, and its binding, in each namespace with Secrets that the cloud configuration names.
pub(super) fn secret_roles(options: &ManifestOptions) -> Vec<Value> {
    named_roles(options, FOR_SECRETS, &permissions::needed_for_secrets(&options.secrets))
}

/// The suffix of the names of the roles for what the provider does with Services.
const FOR_SERVICES: &str = "-services";

/// Roles for what the provider does with Services, and their bindings.
pub(super) fn service_access_roles(options: &ManifestOptions, flags: &Flags) -> Vec<Value> {
    let needed = permissions::needed_for_service_access(flags, &options.service_access);
    named_roles(options, FOR_SERVICES, &needed)
}

/// The suffix of the names of the roles for machines.
const FOR_MACHINES: &str = "-machines";

/// The groups that Cluster API's core manager may work on by itself.
const GROUPS_OF_CORE: &str = ".cluster.x-k8s.io";

/// Roles for machines of the providers, and their bindings. For groups of their own also the role that lets Cluster API's core
/// manager work on them: its own role takes up all roles with that label.
pub(super) fn machine_roles(options: &ManifestOptions, flags: &Flags) -> Vec<Value> {
    let types = || options.machines.iter().map(|machines| &machines.types);
    let mut needed = Vec::new();
    for types in types() {
        needed.extend(permissions::needed_for_machines(flags, &types.kinds));
        needed.extend(permissions::needed_for_conversion(flags, types));
    }
    let mut roles = named_roles(options, FOR_MACHINES, &needed);
    let groups = types().map(|types| types.kinds.group);
    let groups: BTreeSet<&str> = groups.filter(|group| !group.ends_with(GROUPS_OF_CORE)).collect();
    if !groups.is_empty() {
        let mut labels = labels(options);
        labels[FOR_CORE] = json!("true");
        roles.push(json!({
            "apiVersion": format!("{API_GROUP}/v1"),
            "kind": "ClusterRole",
            "metadata": {"name": format!("{}{FOR_MACHINES}-core", options.name), "labels": labels},
            "rules": [{
                "apiGroups": groups,
                "resources": ["*"],
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            }],
        }));
    }
    roles
}

/// The label of roles that let Cluster API's core work on the kinds of a provider.
const FOR_CORE: &str = "cluster.x-k8s.io/aggregate-to-manager";

/// The suffix of the name of the role for providers' kinds.
const FOR_PROVIDERS: &str = "-lifecycle-providers";

/// The role that takes up all roles of providers for Cluster API's core, as that of its Go manager does, and its binding. Each
/// provider brings a role for its kinds in groups of its own.
pub(super) fn lifecycle_roles(options: &ManifestOptions, flags: &Flags) -> Vec<Value> {
    if !flags.enables(LIFECYCLE_CORE) || flags.misc.dry_run {
        return Vec::new();
    }
    let name = format!("{}{FOR_PROVIDERS}", options.name);
    let has_account = flags.generic.use_service_account_credentials;
    let (account, of_account) =
        if has_account { (LIFECYCLE_CORE, SYSTEM_NAMESPACE) } else { (&*options.name, &*options.namespace) };
    let mut metadata = json!({"name": name, "labels": labels(options)});
    // The rules are the API server's: a file with rules would take back what it has filled in.
    let role = json!({
        "apiVersion": format!("{API_GROUP}/v1"),
        "kind": "ClusterRole",
        "metadata": metadata,
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {FOR_CORE: "true"}}]},
    });
    let namespace = flags.controllers.machine.namespace();
    let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    let binding = json!({
        "apiVersion": format!("{API_GROUP}/v1"),
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": API_GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": of_account}],
    });
    vec![role, binding]
}

/// A ClusterRole for what is needed in the whole cluster, a Role for each namespace, and their bindings to
/// the service account. The same for each controller that has a service account of its own.
pub(super) fn roles(options: &ManifestOptions, permissions: &[Permission]) -> Vec<Value> {
    named_roles(options, "", permissions)
}

fn named_roles(options: &ManifestOptions, suffix: &str, permissions: &[Permission]) -> Vec<Value> {
    let mut groups: BTreeMap<(Option<&str>, Option<&str>), Vec<&Permission>> = BTreeMap::new();
    for permission in permissions {
        let key = (permission.account.as_deref(), permission.namespace.as_deref());
        groups.entry(key).or_default().push(permission);
    }
    groups
        .into_iter()
        .flat_map(|((account, namespace), permissions)| {
            let name = match account {
                None => format!("{}{suffix}", options.name),
                Some(account) => format!("{}-{account}{suffix}", options.name),
            };
            let subject =
                account.map_or((&*options.name, &*options.namespace), |account| (account, SYSTEM_NAMESPACE));
            let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
            let mut metadata = json!({"name": name, "labels": labels(options)});
            if let Some(namespace) = namespace {
                metadata["namespace"] = json!(namespace);
            }
            let role = json!({
                "apiVersion": format!("{API_GROUP}/v1"),
                "kind": kind,
                "metadata": metadata,
                "rules": rules(&permissions),
            });
            let binding = json!({
                "apiVersion": format!("{API_GROUP}/v1"),
                "kind": format!("{kind}Binding"),
                "metadata": metadata,
                "roleRef": {"apiGroup": API_GROUP, "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": subject.0, "namespace": subject.1}],
            });
            [role, binding]
        })
        .collect()
}

/// One rule for each resource; its comment says what needs it.
fn rules(permissions: &[&Permission]) -> Vec<Value> {
    let mut rules: BTreeMap<RuleKey<'_>, Rule<'_>> = BTreeMap::new();
    for permission in permissions {
        let resource = match &*permission.subresource {
            "" => permission.resource.to_string(),
            subresource => format!("{}/{subresource}", permission.resource),
        };
        let names = permission.resource_names.iter().map(AsRef::as_ref).collect();
        let rule = rules.entry(RuleKey { group: &permission.group, resource, names }).or_default();
        if !rule.verbs.contains(&&*permission.verb) {
            rule.verbs.push(&permission.verb);
        }
        if !rule.reasons.contains(&&*permission.needed_for) {
            rule.reasons.push(&permission.needed_for);
        }
    }
    rules
        .into_iter()
        .map(|(key, rule)| {
            let mut object = json!({
                "#": rule.reasons.join("; "),
                "apiGroups": [key.group],
                "resources": [key.resource],
                "verbs": rule.verbs,
            });
            if !key.names.is_empty() {
                object["resourceNames"] = json!(key.names);
            }
            object
        })
        .collect()
}
