//! The permissions of Cluster API's own controllers. With `--use-service-account-credentials` their accounts have no default
//! role for anything.

use controller_kit::rbac::Permission;
use lifecycle_controllers::gate::{self, Part};

use super::shared::{events, has_accounts, of_namespace};
use crate::flags::{Flags, LIFECYCLE_CORE};

const READ: &[&str] = &["get", "list", "watch"];
const WATCH: &[&str] = &["list", "watch"];
const CHANGE: &[&str] = &["get", "list", "watch", "patch"];
const ALL: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

/// What a part does with one resource: the group, the resource, the verbs, and what for.
type Use = (&'static str, &'static str, &'static [&'static str], &'static str);

const OWN_KINDS: &str = "Cluster API's own kinds";
const CONTRACT: &str = "objects of providers of Cluster API";
const DATA: &str = "kubeconfigs, authorities and bootstrap data of clusters";
const RESOURCES: &str = "what a ClusterResourceSet applies";

/// In the namespaces of clusters. RBAC's `*` are all kinds of a group, among them those of providers that come later.
const CORE: &[Use] = &[
    ("cluster.x-k8s.io", "clusters", CHANGE, OWN_KINDS),
    ("cluster.x-k8s.io", "clusters/finalizers", &["update"], OWN_KINDS),
    ("cluster.x-k8s.io", "clusters/status", &["patch"], OWN_KINDS),
    ("cluster.x-k8s.io", "machinedeployments", &["get", "list", "watch", "patch", "delete"], OWN_KINDS),
    ("cluster.x-k8s.io", "machinedeployments/finalizers", &["update"], OWN_KINDS),
    ("cluster.x-k8s.io", "machinedeployments/status", &["patch"], OWN_KINDS),
    ("cluster.x-k8s.io", "machinedrainrules", WATCH, OWN_KINDS),
    ("cluster.x-k8s.io", "machinehealthchecks", CHANGE, OWN_KINDS),
    ("cluster.x-k8s.io", "machinehealthchecks/finalizers", &["update"], OWN_KINDS),
    ("cluster.x-k8s.io", "machinehealthchecks/status", &["patch"], OWN_KINDS),
    ("cluster.x-k8s.io", "machines", ALL, OWN_KINDS),
    ("cluster.x-k8s.io", "machines/finalizers", &["update"], OWN_KINDS),
    ("cluster.x-k8s.io", "machines/status", &["patch"], OWN_KINDS),
    ("cluster.x-k8s.io", "machinesets", ALL, OWN_KINDS),
    ("cluster.x-k8s.io", "machinesets/finalizers", &["update"], OWN_KINDS),
    ("cluster.x-k8s.io", "machinesets/status", &["patch"], OWN_KINDS),
    ("addons.cluster.x-k8s.io", "*", ALL, OWN_KINDS),
    // `update` for the finalizers of owners, which RBAC's wildcard includes.
    ("addons.cluster.x-k8s.io", "*", &["update"], OWN_KINDS),
    ("bootstrap.cluster.x-k8s.io", "*", ALL, CONTRACT),
    ("controlplane.cluster.x-k8s.io", "*", ALL, CONTRACT),
    ("infrastructure.cluster.x-k8s.io", "*", ALL, CONTRACT),
    ("", "secrets", &["get", "list", "watch", "create", "patch"], DATA),
    ("", "configmaps", &["get", "list", "watch", "patch"], RESOURCES),
];

const BOOTSTRAP: &[Use] = &[
    ("bootstrap.cluster.x-k8s.io", "kubeadmconfigs", WATCH, OWN_KINDS),
    ("bootstrap.cluster.x-k8s.io", "kubeadmconfigs/finalizers", &["update"], OWN_KINDS),
    ("bootstrap.cluster.x-k8s.io", "kubeadmconfigs/status", &["patch"], OWN_KINDS),
    ("cluster.x-k8s.io", "clusters", WATCH, "the clusters of machines"),
    ("cluster.x-k8s.io", "machines", WATCH, "the owners of bootstrap data"),
    ("", "secrets", &["get", "list", "watch", "create"], DATA),
    ("", "configmaps", &["get", "create", "delete"], "the lock for the first control plane"),
];

/// In the whole cluster.
const EVERYWHERE: &[Use] = &[
    ("", "namespaces", READ, "where Cluster API's managers run"),
    ("apps", "deployments", &["list", "watch"], "where Cluster API's managers run"),
    ("clusterctl.cluster.x-k8s.io", "providers", &["list"], "where Cluster API's managers run"),
];

/// In the whole cluster too, for the core part.
const DEFINITIONS: &[Use] =
    &[("apiextensions.k8s.io", "customresourcedefinitions", &["get"], "the versions of providers' kinds")];

/// Additional permissions for the enabled parts of Cluster API's own controllers. In a dry run they do nothing.
pub(super) fn needed(flags: &Flags) -> Vec<Permission> {
    let mut needed = Vec::new();
    if flags.misc.dry_run {
        return needed;
    }
    for part in gate::PARTS.into_iter().filter(|part| flags.enables(part.name)) {
        let account = has_accounts(flags).then_some(part.name);
        let (own, everywhere) =
            if part.name == LIFECYCLE_CORE { (CORE, DEFINITIONS) } else { (BOOTSTRAP, &[][..]) };
        let own = own.iter().flat_map(permissions).map(|one| of_namespace(flags, one));
        let operator = operator(part);
        let mut of_part: Vec<_> =
            own.chain(EVERYWHERE.iter().chain(everywhere).flat_map(permissions)).chain([operator]).collect();
        if account.is_some() {
            of_part.extend(events());
        }
        needed.extend(leases(part));
        needed.extend(of_part.into_iter().map(|permission| permission.for_account(account)));
    }
    needed
}

fn permissions((group, resource, verbs, needed_for): &Use) -> Vec<Permission> {
    verbs.iter().map(|verb| Permission::new(group, resource, verb, needed_for)).collect()
}

fn operator(part: &Part) -> Permission {
    let why = "where Cluster API's managers run";
    Permission::new("operator.cluster.x-k8s.io", part.provider.plural, "list", why)
}

/// The Leases of Cluster API's managers, by the daemon's own account as for its own Lease. In all namespaces, since an
/// administrator chooses the namespace of a manager.
fn leases(part: &Part) -> Vec<Permission> {
    let why = "never beside a manager of Cluster API";
    let lease = |verb| Permission::new("coordination.k8s.io", "leases", verb, why);
    // RBAC cannot restrict the creation of objects by name.
    let mut needed = vec![lease("create")];
    needed.extend(["get", "update"].map(|verb| lease(verb).on(part.lease)));
    needed.push(lease("watch").on(part.lease).optional());
    needed
}
