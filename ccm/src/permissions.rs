//! The permissions of the daemon in the cluster. The shipped roles and `check` use this one table. The
//! permissions of each controller are in the controller's row.

use cloudprovider::{SecretName, ServiceAccessNeeds, machines::Kinds};

pub use crate::rbac::Permission;

use crate::{
    clients::SERVICE_CONTROLLER_CLIENT,
    controllers::{CONTROLLERS, ControllerDescriptor, ControllerPermissions, MACHINE_CLIENT, SubjectKind},
    flags::{Flags, MACHINE_CONTROLLER},
    rbac::SYSTEM_NAMESPACE,
};

/// The `ConfigMap` with the CAs that the API server trusts.
const AUTHENTICATION_CONFIG_MAP: &str = "extension-apiserver-authentication";

/// Exactly the permissions that a daemon with these flags has to be granted. With
/// `--use-service-account-credentials`, these do not include the permissions that the API server grants to
/// the controllers' accounts by default.
pub fn needed(flags: &Flags) -> Vec<Permission> {
    let mut needed = vec![
        Permission::new("", "nodes", "list", "all controllers"),
        Permission::new("", "nodes", "watch", "all controllers"),
    ];
    needed.extend(needed_for_controllers(flags));
    if !flags.misc.dry_run {
        needed.extend(events());
    }
    if flags.leader_election.enabled && !flags.misc.dry_run {
        needed.extend(election(flags));
    }
    if flags.secure_serving.port().is_some() {
        needed.extend(serving(flags));
    }
    needed
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
    let account = has_accounts(flags).then_some(MACHINE_CLIENT);
    let mut needed = Vec::new();
    for kind in SubjectKind::ALL {
        let of_kind = |subresource: &'static str, verb| Permission {
            resource: kind.plural(kinds).into(),
            subresource: subresource.into(),
            ..Permission::new(kinds.group, "", verb, "machines and clusters of Cluster API")
        };
        needed.extend(["list", "watch"].map(|verb| of_kind("", verb)));
        if kind != SubjectKind::Template {
            needed.extend(["get", "patch"].map(|verb| of_kind("", verb)));
        }
        needed.push(of_kind("status", "patch"));
    }
    let mut needed: Vec<_> = needed.into_iter().map(|one| of_namespace(flags, one)).collect();
    if account.is_some() {
        needed.extend(events());
    }
    if flags.misc.dry_run {
        needed.retain(|permission| matches!(&*permission.verb, "list" | "watch" | "get"));
    }
    needed.into_iter().map(|permission| permission.for_account(account)).collect()
}

/// What the machine controller does only in the namespace that it works on.
fn of_namespace(flags: &Flags, permission: Permission) -> Permission {
    match flags.controllers.machine.namespace() {
        Some(namespace) => permission.in_namespace(namespace),
        None => permission,
    }
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

fn events() -> [Permission; 2] {
    [("create", "events"), ("patch", "events that repeat")]
        .map(|(verb, needed_for)| Permission::new("", "events", verb, needed_for).optional())
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

/// Whether each controller writes with its own account. A dry run does not write, so it needs no other
/// accounts.
fn has_accounts(flags: &Flags) -> bool {
    flags.generic.use_service_account_credentials && !flags.misc.dry_run
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
mod tests {
    use std::collections::BTreeSet;

    use cloudprovider::machines::Kind;

    use super::*;

    fn texts(args: &[&str]) -> Vec<String> {
        let flags = crate::flags::parse(["ccm"].iter().chain(args)).expect("good flags");
        needed(&flags).iter().map(ToString::to_string).collect()
    }

    fn given(args: &[&str]) -> Vec<Permission> {
        given_to_accounts(&crate::flags::parse(["ccm"].iter().chain(args)).expect("good flags"))
    }

    #[test]
    fn only_what_the_flags_ask_for() {
        let all = texts(&[]);
        for text in [
            "list nodes",
            "patch nodes/status",
            "delete nodes",
            "list services",
            "watch services",
            "patch services/status",
            "get leases.coordination.k8s.io in kube-node-lease",
            "create events",
            "create leases.coordination.k8s.io in kube-system",
            "update leases.coordination.k8s.io \"cloud-controller-manager\" in kube-system",
            "create subjectaccessreviews.authorization.k8s.io",
            "get configmaps \"extension-apiserver-authentication\" in kube-system",
        ] {
            assert!(all.iter().any(|known| known == text), "{text} in {all:#?}");
        }
        let migrating = texts(&["--enable-leader-migration"]);
        for verb in ["get", "update", "watch"] {
            let second = format!(
                "{verb} leases.coordination.k8s.io \"cloud-provider-extraction-migration\" in kube-system"
            );
            assert!(migrating.contains(&second) && !all.contains(&second), "{migrating:#?}");
        }
        let few = texts(&["--leader-elect=false", "--secure-port=0", "--controllers=cloud-node"]);
        assert_eq!(
            few,
            [
                "list nodes",
                "watch nodes",
                "patch nodes",
                "patch nodes/status",
                "create events",
                "patch events",
            ]
        );
        let accounts = texts(&["--use-service-account-credentials"]);
        let more: Vec<_> = accounts.iter().filter(|text| !all.contains(text)).collect();
        assert_eq!(
            more,
            [
                "get serviceaccounts \"node-controller\" in kube-system",
                "create serviceaccounts in kube-system",
                "create serviceaccounts/token \"node-controller\" in kube-system",
                "get leases.coordination.k8s.io in kube-node-lease for the service account kube-system/node-controller",
                "get serviceaccounts \"service-controller\" in kube-system",
                "create serviceaccounts/token \"service-controller\" in kube-system",
                "get serviceaccounts \"route-controller\" in kube-system",
                "create serviceaccounts/token \"route-controller\" in kube-system",
            ]
        );
        let fewer: Vec<_> = all.iter().filter(|text| !accounts.contains(text)).collect();
        assert_eq!(
            fewer,
            [
                "patch nodes",
                "patch nodes/status",
                "delete nodes",
                "get leases.coordination.k8s.io in kube-node-lease",
                "patch services/status",
            ]
        );
        let dry = texts(&["--use-service-account-credentials", "--dry-run"]);
        assert_eq!(dry, texts(&["--dry-run"]), "as itself");
        let writes: Vec<_> = dry.iter().filter(|text| !text.contains("reviews")).collect();
        assert!(
            writes.iter().all(|text| ["get ", "list ", "watch "].iter().any(|verb| text.starts_with(verb))),
            "{dry:#?}"
        );
        assert!(dry.iter().all(|text| all.contains(text)), "{dry:#?}");
        let own = "--use-service-account-credentials";
        assert_eq!(given(&[own]).len(), 11);
        assert_eq!(given(&[own, "--configure-cloud-routes=false"]).len(), 8);
        assert_eq!(given(&[own, "--controllers=cloud-node"]).len(), 4);
        assert!(
            given(&[]).is_empty() && given(&["--use-service-account-credentials", "--dry-run"]).is_empty()
        );
        for asked in [all, accounts] {
            let once: BTreeSet<&String> = asked.iter().collect();
            assert_eq!(once.len(), asked.len(), "nothing is asked for twice: {asked:#?}");
        }
    }

    #[test]
    fn what_a_provider_does_with_services() {
        let map = cloudprovider::ConfigMapName { namespace: "kube-system".into(), name: "kubevip".into() };
        let needs = ServiceAccessNeeds { claims: true, changes: true, config_maps: vec![map] };
        let texts = |needs: &ServiceAccessNeeds, args: &[&str]| -> Vec<String> {
            let flags = crate::flags::parse(["ccm"].iter().chain(args)).expect("good flags");
            needed_for_service_access(&flags, needs).iter().map(ToString::to_string).collect()
        };
        let own = texts(&needs, &[]);
        assert_eq!(
            own,
            [
                "list ipaddresses.networking.k8s.io",
                "get ipaddresses.networking.k8s.io",
                "create ipaddresses.networking.k8s.io",
                "patch ipaddresses.networking.k8s.io",
                "delete ipaddresses.networking.k8s.io",
                "patch services",
                "list configmaps \"kubevip\" in kube-system",
                "watch configmaps \"kubevip\" in kube-system",
            ]
        );
        let accounts = texts(&needs, &["--use-service-account-credentials"]);
        let of_account = accounts.iter().filter(|text| text.ends_with("kube-system/service-controller"));
        assert_eq!(of_account.count(), 4, "{accounts:#?}");
        let dry = texts(&needs, &["--dry-run"]);
        assert_eq!(dry, [&own[..2], &own[6..]].concat());
        assert!(texts(&ServiceAccessNeeds::default(), &[]).is_empty());
    }

    #[test]
    fn what_machines_need() {
        let kinds =
            Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));
        let texts = |args: &[&str]| -> Vec<String> {
            let flags = crate::flags::parse(["ccm"].iter().chain(args)).expect("good flags");
            let core = needed(&flags)
                .into_iter()
                .filter(|one| one.group == "cluster.x-k8s.io" || one.resource == "secrets");
            core.chain(needed_for_machines(&flags, &kinds)).map(|one| one.to_string()).collect()
        };
        assert!(texts(&[]).is_empty(), "the machine controller runs only if it is asked for");
        let core = [
            "list machines.cluster.x-k8s.io",
            "watch machines.cluster.x-k8s.io",
            "list clusters.cluster.x-k8s.io",
            "watch clusters.cluster.x-k8s.io",
            "get secrets",
        ];
        let own = [
            "list mymachines",
            "watch mymachines",
            "get mymachines",
            "patch mymachines",
            "patch mymachines/status",
            "list myclusters",
            "watch myclusters",
            "get myclusters",
            "patch myclusters",
            "patch myclusters/status",
            "list mymachinetemplates",
            "watch mymachinetemplates",
            "patch mymachinetemplates/status",
        ]
        .map(|text| format!("{text}.infrastructure.cluster.x-k8s.io"));
        let all: Vec<String> = core.map(str::to_owned).into_iter().chain(own).collect();
        assert_eq!(texts(&["--controllers=*,machine-controller"]), all);
        let one = texts(&["--controllers=machine-controller", "--namespace=team-a"]);
        assert_eq!(one, all.iter().map(|text| format!("{text} in team-a")).collect::<Vec<_>>());
        let dry = texts(&["--controllers=machine-controller", "--dry-run"]);
        assert!(dry.len() == 13 && !dry.iter().any(|text| text.starts_with("patch")), "{dry:#?}");
        let account = texts(&["--controllers=machine-controller", "--use-service-account-credentials"]);
        let of_account =
            account.iter().filter(|text| text.ends_with("kube-system/machine-controller")).count();
        assert_eq!(of_account, all.len() + 2, "events too: {account:#?}");
    }

    #[test]
    fn of_secrets_those_that_are_named() {
        let name = SecretName { namespace: "vault".into(), name: "vc".into() };
        let texts: Vec<_> = needed_for_secrets(&[name]).iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["list secrets \"vc\" in vault", "watch secrets \"vc\" in vault"]);
    }
}
