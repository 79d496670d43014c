//! The permissions of the daemon in the cluster. The shipped roles and `check` use this one table. The
//! permissions of each controller are in the controller's row.

mod lifecycle;
mod shared;

use cloudprovider::{
    MachineTypes, SecretName, ServiceAccessNeeds,
    machines::{AuxiliaryKind, Kinds},
};
use controller_kit::{clients::SERVICE_CONTROLLER_CLIENT, rbac::SYSTEM_NAMESPACE};
use machine_controller::names::{CORE_GROUP, auxiliary_kinds};

pub use controller_kit::rbac::Permission;

use self::shared::{events, has_accounts, of_namespace};
use crate::{
    controllers::{CONTROLLERS, ControllerDescriptor, ControllerPermissions},
    flags::{Flags, MACHINE_CONTROLLER},
};

/// The `ConfigMap` with the CAs that the API server trusts.
const AUTHENTICATION_CONFIG_MAP: &str = "extension-apiserver-authentication";

/// Exactly the permissions that a daemon with these flags has to be granted. With
/// `--use-service-account-credentials`, these do not include the permissions that the API server grants to
/// the controllers' accounts by default.
pub fn needed(flags: &Flags) -> Vec<Permission> {
    let mut needed = Vec::new();
    if flags.cloud_provider().is_some() {
        needed.extend(["list", "watch"].map(|verb| Permission::new("", "nodes", verb, "all controllers")));
    }
    needed.extend(needed_for_controllers(flags));
    needed.extend(needed_for_lifecycle(flags));
    if !flags.misc.dry_run {
        needed.extend(events());
    }
    if flags.leader_election.enabled && !flags.misc.dry_run {
        needed.extend(election(flags));
    }
    if flags.secure_serving.port().is_some() {
        needed.extend(serving(flags));
    }
    once(needed)
}

/// What the enabled parts of Cluster API's own controllers need.
pub(crate) fn needed_for_lifecycle(flags: &Flags) -> Vec<Permission> {
    once(lifecycle::needed(flags))
}

/// Additional permissions for a cloud configuration that names these Secrets.
pub fn needed_for_secrets(secrets: &[SecretName]) -> Vec<Permission> {
    let one = |secret: &SecretName, verb| {
        Permission::new("", "secrets", verb, "the cloud's credentials")
            .in_namespace(secret.namespace.clone())
            .on(secret.name.clone())
    };
    secrets.iter().flat_map(|secret| ["list", "watch"].map(|verb| one(secret, verb))).collect()
}

/// Additional permissions for a provider that [does this](ServiceAccessNeeds) in the cluster. With
/// `--use-service-account-credentials` the service controller's account writes, and has no default role for it.
pub fn needed_for_service_access(flags: &Flags, needs: &ServiceAccessNeeds) -> Vec<Permission> {
    let account = has_accounts(flags).then_some(SERVICE_CONTROLLER_CLIENT);
    let claims = |verb| Permission::new("networking.k8s.io", "ipaddresses", verb, "claims of addresses");
    let mut needed = Vec::new();
    if needs.claims {
        needed.extend(["list", "get"].map(claims));
        let api_server = "addresses of the API server, which no Service must get";
        needed.push(
            Permission::new("discovery.k8s.io", "endpointslices", "get", api_server)
                .in_namespace("default")
                .on("kubernetes")
                .optional(),
        );
        needed.extend(["create", "patch", "delete"].map(|verb| claims(verb).for_account(account)));
    }
    if needs.changes {
        let change = Permission::new("", "services", "patch", "annotations for those who announce addresses");
        needed.push(change.for_account(account));
    }
    if flags.misc.dry_run {
        needed.retain(|permission| matches!(&*permission.verb, "list" | "get"));
    }
    for map in &needs.config_maps {
        needed.extend(["list", "watch"].map(|verb| {
            Permission::new("", "configmaps", verb, "the address pools")
                .in_namespace(map.namespace.clone())
                .on(map.name.clone())
        }));
    }
    needed
}

/// Additional permissions for the machines of a provider with these kinds. With `--use-service-account-credentials` the
/// machine controller's account has no default role for anything.
pub fn needed_for_machines(flags: &Flags, kinds: &Kinds) -> Vec<Permission> {
    if !flags.enables(MACHINE_CONTROLLER) {
        return Vec::new();
    }
    let account = has_accounts(flags).then_some(machine_controller::names::COMPONENT);
    let mut needed = Vec::new();
    for kind in machine_controller::object_key::ObjectKind::ALL {
        let of_kind = |subresource: &'static str, verb| Permission {
            resource: kind.plural(kinds).into(),
            subresource: subresource.into(),
            ..Permission::new(kinds.group, "", verb, "machines and clusters of Cluster API")
        };
        needed.extend(["list", "watch"].map(|verb| of_kind("", verb)));
        if kind != machine_controller::object_key::ObjectKind::Template {
            needed.extend(["get", "patch"].map(|verb| of_kind("", verb)));
        }
        needed.push(of_kind("status", "patch"));
    }
    let mut needed: Vec<_> = needed.into_iter().map(|one| of_namespace(flags, one)).collect();
    needed.extend(auxiliary_kinds(kinds).flat_map(|kind| needed_for_auxiliary(flags, &kind)));
    needed.extend(needed_for_reboots().map(|one| of_namespace(flags, one)));
    if account.is_some() {
        needed.extend(events());
    }
    if flags.misc.dry_run {
        needed.retain(|permission| matches!(&*permission.verb, "list" | "watch" | "get"));
    }
    let needed = needed.into_iter().map(|permission| permission.for_account(account));
    needed.chain(secrets_of_machines(flags, kinds)).collect()
}

/// What is needed to reboot unhealthy Machines, and to ask their owners to replace them.
fn needed_for_reboots() -> [Permission; 2] {
    let why = "unhealthy Machines that are rebooted";
    let of_machines = |verb| Permission::new(CORE_GROUP, "machines", verb, why);
    [of_machines("get"), Permission { subresource: "status".into(), ..of_machines("patch") }]
}

/// Secrets that clusters name are followed by the provider, and so with the account of the daemon.
fn secrets_of_machines(flags: &Flags, kinds: &Kinds) -> Vec<Permission> {
    if !kinds.has_secrets {
        return Vec::new();
    }
    let all = |verb: &'static str| Permission::new("", "secrets", verb, "credentials that clusters name");
    let own = flags.leader_election.resource_namespace.clone();
    let of_verb = |verb| match flags.controllers.machine.namespace() {
        Some(namespace) if namespace != own => {
            vec![all(verb).in_namespace(namespace), all(verb).in_namespace(own.clone())]
        }
        _ => vec![of_namespace(flags, all(verb))],
    };
    ["list", "watch"].into_iter().flat_map(of_verb).collect()
}

/// What is needed for an auxiliary kind, which may not be installed.
fn needed_for_auxiliary(flags: &Flags, kind: &AuxiliaryKind) -> Vec<Permission> {
    let of_kind = |subresource: &'static str, verb| {
        let needed = Permission {
            subresource: subresource.into(),
            ..Permission::new(kind.group, kind.plural, verb, "objects that machines and clusters refer to")
        };
        if kind.is_namespaced { of_namespace(flags, needed) } else { needed }
    };
    let mut needed = vec![of_kind("", "list"), of_kind("", "watch")];
    if kind.is_made {
        needed.extend(["get", "create", "patch", "delete"].map(|verb| of_kind("", verb)));
        needed.push(of_kind("status", "patch"));
    } else if kind.is_status_only {
        needed.push(of_kind("status", "patch"));
        if !kind.left_finalizers.is_empty() || kind.failure_domain.is_some() {
            needed.push(of_kind("", "patch"));
        }
    }
    needed
}

/// Additional permissions for objects with an [older version](MachineTypes::older): the authority of the webhook that converts them, and
/// the definitions that trust it.
pub fn needed_for_conversion(flags: &Flags, types: &MachineTypes) -> Vec<Permission> {
    let serving = &flags.webhook_serving;
    let is_served = flags.enables(MACHINE_CONTROLLER) && serving.port().is_some() && !flags.misc.dry_run;
    if types.older.is_none() || !is_served {
        return Vec::new();
    }
    let of_definitions = |verbs: &[&'static str]| -> Vec<Permission> {
        let needed_for = "the authority of the webhook for conversions";
        let group = "apiextensions.k8s.io";
        let on = |name: String| {
            let permission = |verb: &&'static str| {
                Permission::new(group, "customresourcedefinitions", verb, needed_for).on(name.clone())
            };
            verbs.iter().map(permission).collect::<Vec<_>>()
        };
        definitions_of(types).into_iter().flat_map(on).collect()
    };
    if serving.has_certificates() {
        return of_definitions(&["list", "watch"]);
    }
    let secret = authority_secret(flags);
    let of_secret = |verb| {
        Permission::new("", "secrets", verb, "the authority of the webhook for conversions")
            .in_namespace(secret.namespace.clone())
    };
    // RBAC cannot restrict the creation of objects by name.
    let mut needed = vec![of_secret("create")];
    needed.extend(["get", "list", "watch", "update"].map(|verb| of_secret(verb).on(secret.name.clone())));
    needed.extend(of_definitions(&["list", "watch", "patch"]));
    needed
}

/// The Secret with the authority of the webhook. It is beside the Lease, in the daemon's namespace.
pub(crate) fn authority_secret(flags: &Flags) -> SecretName {
    let election = &flags.leader_election;
    SecretName {
        namespace: election.resource_namespace.clone(),
        name: format!("{}-webhook-ca", election.resource_name),
    }
}

/// The names of the definitions of a provider's kinds.
pub(crate) fn definitions_of(types: &MachineTypes) -> Vec<String> {
    let Kinds { group, machine, cluster, .. } = types.kinds;
    let of_machines = [machine, cluster]
        .into_iter()
        .flat_map(|kind| [kind.plural.to_owned(), format!("{}templates", kind.kind.to_ascii_lowercase())]);
    let further = (types.auxiliary)().into_iter().map(|kind| kind.kind.plural.to_owned());
    of_machines.chain(further).map(|plural| format!("{plural}.{group}")).collect()
}

/// The permissions that have to be granted for the enabled controllers.
fn needed_for_controllers(flags: &Flags) -> Vec<Permission> {
    let mut needed = Vec::new();
    for (client, ControllerPermissions { writes, reads, watches }) in controllers(flags) {
        needed.extend(watches);
        let account = has_accounts(flags).then_some(client);
        match account {
            Some(account) => needed.extend(token_requests(account)),
            None if flags.misc.dry_run => {}
            None => needed.extend(writes),
        }
        needed.extend(reads.into_iter().map(|permission| permission.for_account(account)));
    }
    once(needed)
}

/// Additional permissions of the controllers' own accounts, beside [`needed`]. The API server grants them by
/// default, for example to `kube-system/node-controller` by the role `system:controller:node-controller`.
pub fn given_to_accounts(flags: &Flags) -> Vec<Permission> {
    if !has_accounts(flags) {
        return Vec::new();
    }
    let controllers = controllers(flags);
    let writes = controllers.iter().flat_map(|(account, permissions)| {
        permissions.writes.iter().map(move |write| write.clone().for_account(Some(*account)))
    });
    let events =
        controllers.iter().flat_map(|(account, _)| events().map(|event| event.for_account(Some(*account))));
    once(writes.chain(events))
}

/// The enabled controllers: the name of each one's client, which is also the name of its account, and its
/// permissions.
fn controllers(flags: &Flags) -> Vec<(&'static str, ControllerPermissions)> {
    let enabled = CONTROLLERS.iter().filter(|controller| flags.enables(controller.names.name));
    let of_controller = |controller: &ControllerDescriptor| {
        let mut permissions = (controller.permissions)();
        if controller.names.name == MACHINE_CONTROLLER {
            let reads = permissions.reads.into_iter().map(|one| of_namespace(flags, one));
            permissions.reads = reads.collect();
        }
        (controller.client, permissions)
    };
    enabled.map(of_controller).collect()
}

/// Removes duplicates. The first permission of each kind stays. Controllers may share an account.
fn once(permissions: impl IntoIterator<Item = Permission>) -> Vec<Permission> {
    let mut once = Vec::new();
    for permission in permissions {
        if !once.contains(&permission) {
            once.push(permission);
        }
    }
    once
}

/// The permissions that the daemon needs to act as this account.
fn token_requests(account: &'static str) -> [Permission; 3] {
    let request = |resource, verb| {
        Permission::new("", resource, verb, "a service account for each controller")
            .in_namespace(SYSTEM_NAMESPACE)
    };
    // Only for this account: tokens for all accounts of the namespace would give the rights of the most
    // powerful one.
    [
        request("serviceaccounts", "get").on(account),
        // RBAC cannot restrict the creation of objects by name.
        request("serviceaccounts", "create"),
        request("serviceaccounts/token", "create").on(account),
    ]
}

fn election(flags: &Flags) -> Vec<Permission> {
    let namespace = flags.leader_election.resource_namespace.clone();
    let lease = |verb, needed_for| {
        Permission::new("coordination.k8s.io", "leases", verb, needed_for).in_namespace(namespace.clone())
    };
    // A faulty file is reported elsewhere.
    let migration = flags.migration().ok().flatten().map(|migration| migration.lease_name);
    // RBAC cannot restrict the creation of objects by name.
    let mut needed = vec![lease("create", "the first leader election")];
    for name in [Some(flags.leader_election.resource_name.clone()), migration].into_iter().flatten() {
        needed.extend([
            lease("get", "leader election").on(name.clone()),
            lease("update", "leader election").on(name.clone()),
            lease("watch", "a standby's taking over at once").on(name).optional(),
        ]);
    }
    needed
}

fn serving(flags: &Flags) -> Vec<Permission> {
    let mut needed = vec![
        Permission::new(
            "authentication.k8s.io",
            "tokenreviews",
            "create",
            "clients of the HTTPS port with a token",
        )
        .optional(),
        Permission::new(
            "authorization.k8s.io",
            "subjectaccessreviews",
            "create",
            "clients of the HTTPS port that read more than health",
        )
        .optional(),
    ];
    if !flags.authentication.skip_lookup {
        for verb in ["get", "list", "watch"] {
            let mut permission =
                Permission::new("", "configmaps", verb, "the CAs of clients of the HTTPS port")
                    .in_namespace(SYSTEM_NAMESPACE)
                    .on(AUTHENTICATION_CONFIG_MAP);
            permission.required = !flags.authentication.tolerate_lookup_failure;
            needed.push(permission);
        }
    }
    needed
}

#[cfg(test)]
mod tests;
