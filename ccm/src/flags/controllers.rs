//! `--controllers`: names, and which of them run.

use component::leader_migration::KnownControllers;

/// Fills new Nodes in.
pub const NODE_CONTROLLER: &str = "cloud-node-controller";
/// Taints and deletes Nodes.
pub const NODE_LIFECYCLE_CONTROLLER: &str = "cloud-node-lifecycle-controller";
/// Makes load balancers; not there yet.
pub const SERVICE_CONTROLLER: &str = "service-lb-controller";
/// Makes routes; not there yet.
pub const ROUTE_CONTROLLER: &str = "node-route-controller";

/// The controllers: canonical name and the alias of before 1.28.
const CONTROLLERS: [(&str, &str); 4] = [
    (NODE_CONTROLLER, "cloud-node"),
    (NODE_LIFECYCLE_CONTROLLER, "cloud-node-lifecycle"),
    (SERVICE_CONTROLLER, "service"),
    (ROUTE_CONTROLLER, "route"),
];

/// The controllers as leader migration knows them, with upstream's default.
pub const MIGRATED_CONTROLLERS: KnownControllers = KnownControllers {
    component: "cloud-controller-manager",
    names: &[NODE_CONTROLLER, NODE_LIFECYCLE_CONTROLLER, ROUTE_CONTROLLER, SERVICE_CONTROLLER],
    aliases: &[
        ("cloud-node", NODE_CONTROLLER),
        ("cloud-node-lifecycle", NODE_LIFECYCLE_CONTROLLER),
        ("service", SERVICE_CONTROLLER),
        ("route", ROUTE_CONTROLLER),
        // Of older releases.
        ("service-controller", SERVICE_CONTROLLER),
        ("route-controller", ROUTE_CONTROLLER),
    ],
    default: (
        "cloud-provider-extraction-migration",
        &["route-controller", "service-controller", "cloud-node-lifecycle-controller"],
    ),
};

/// The canonical name for a name or its alias.
pub fn canonical_name(name: &str) -> &str {
    CONTROLLERS.iter().find(|(_, alias)| *alias == name).map_or(name, |(canonical, _)| canonical)
}

/// Unknown names, in upstream's words.
pub(super) fn faults(list: &[String]) -> Vec<String> {
    // An empty list is a way to run nothing.
    let bare = list.iter().map(|name| name.strip_prefix('-').unwrap_or(name)).filter(|name| !name.is_empty());
    let is_known = |name: &str| CONTROLLERS.iter().any(|(known, _)| canonical_name(name) == *known);
    let unknown = bare.filter(|name| *name != "*" && !is_known(name));
    let known = || CONTROLLERS.map(|(name, alias)| format!("{name} ({alias})")).join(", ");
    unknown
        .map(|name| {
            format!("{name:?} is not in the list of known controllers (--controllers; known: *, {})", known())
        })
        .collect()
}

/// What is asked for and cannot be had.
pub(super) fn warnings(list: &[String]) -> Vec<String> {
    let is_named = |controller: &str| list.iter().any(|name| canonical_name(name) == controller);
    let missing = [SERVICE_CONTROLLER, ROUTE_CONTROLLER].into_iter();
    let mut warnings: Vec<String> = missing
        .filter(|name| is_named(name) && enables(list, name))
        .map(|name| format!("--controllers: {name} is asked for and does not exist yet"))
        .collect();
    if ![NODE_CONTROLLER, NODE_LIFECYCLE_CONTROLLER].into_iter().any(|name| enables(list, name)) {
        warnings.push(format!(
            "--controllers: no controller runs; there are {NODE_CONTROLLER} and {NODE_LIFECYCLE_CONTROLLER}"
        ));
    }
    warnings
}

/// Whether the list enables the controller of this canonical name: the first exact `name` or `-name` decides, else a
/// `*` anywhere.
pub(super) fn enables(list: &[String], controller: &str) -> bool {
    let names = || {
        list.iter().map(|name| match name.strip_prefix('-') {
            Some(bare) => (false, canonical_name(bare)),
            None => (true, canonical_name(name)),
        })
    };
    match names().find(|(_, name)| *name == controller) {
        Some((on, _)) => on,
        None => names().any(|name| name == (true, "*")),
    }
}
