//! The controllers on the command line: their names, which of them `--controllers` lets run, and the flags of each one.

mod cloud_node;
mod cloud_node_lifecycle;
mod lifecycle;
mod machine;
mod service_lb;

use clap::Args;
use component::{command_line::notes::Note, leader_migration::KnownControllers};
use lifecycle_controllers::gate::{BOOTSTRAP, CORE};
use serde_json::Value;

pub use cloud_node::CloudNodeControllerFlags;
pub use cloud_node_lifecycle::CloudNodeLifecycleControllerFlags;
pub use lifecycle::LifecycleFlags;
pub use machine::MachineControllerFlags;
pub use service_lb::ServiceLbControllerFlags;

/// Fills new Nodes in.
pub const NODE_CONTROLLER: &str = "cloud-node-controller";
/// Taints and deletes Nodes.
pub const NODE_LIFECYCLE_CONTROLLER: &str = "cloud-node-lifecycle-controller";
/// Makes load balancers.
pub const SERVICE_CONTROLLER: &str = "service-lb-controller";
/// Makes routes.
pub const ROUTE_CONTROLLER: &str = "node-route-controller";
/// Makes machines for Cluster API.
pub const MACHINE_CONTROLLER: &str = "machine-controller";

/// The core part of Cluster API's own controllers.
pub const LIFECYCLE_CORE: &str = CORE.name;
/// The bootstrap part of Cluster API's own controllers.
pub const LIFECYCLE_BOOTSTRAP: &str = BOOTSTRAP.name;

/// The controllers that run only if `--controllers` names them: `*` is not enough, as upstream. They need Cluster API's kinds,
/// which a workload cluster does not have.
pub const DISABLED_BY_DEFAULT: [&str; 3] = [MACHINE_CONTROLLER, LIFECYCLE_CORE, LIFECYCLE_BOOTSTRAP];

/// Names for several controllers at once in `--controllers`.
const GROUPS: [(&str, &[&str]); 1] = [(LIFECYCLE, &LIFECYCLE_PARTS)];

/// The name for all parts of Cluster API's own controllers.
pub const LIFECYCLE: &str = "lifecycle";
/// These parts.
pub const LIFECYCLE_PARTS: [&str; 2] = [LIFECYCLE_CORE, LIFECYCLE_BOOTSTRAP];

/// What a controller is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerNames {
    /// The canonical name.
    pub name: &'static str,
    /// Upstream's name of before 1.28, which `--controllers` takes too, and which the metric of running controllers has.
    pub alias: &'static str,
    /// Names of older releases, which only the file of leader migration may have.
    pub older: &'static [&'static str],
}

/// The names of all controllers, in the order in which they start.
pub const CONTROLLERS: &[ControllerNames] =
    &[NODE, NODE_LIFECYCLE, SERVICE, ROUTE, MACHINE, CORE_PART, BOOTSTRAP_PART];

/// Those of [`NODE_CONTROLLER`].
pub const NODE: ControllerNames = ControllerNames { name: NODE_CONTROLLER, alias: "cloud-node", older: &[] };
/// Those of [`NODE_LIFECYCLE_CONTROLLER`].
pub const NODE_LIFECYCLE: ControllerNames =
    ControllerNames { name: NODE_LIFECYCLE_CONTROLLER, alias: "cloud-node-lifecycle", older: &[] };
/// Those of [`SERVICE_CONTROLLER`].
pub const SERVICE: ControllerNames =
    ControllerNames { name: SERVICE_CONTROLLER, alias: "service", older: &["service-controller"] };
/// Those of [`ROUTE_CONTROLLER`].
pub const ROUTE: ControllerNames =
    ControllerNames { name: ROUTE_CONTROLLER, alias: "route", older: &["route-controller"] };

/// Those of [`MACHINE_CONTROLLER`].
pub const MACHINE: ControllerNames =
    ControllerNames { name: MACHINE_CONTROLLER, alias: "machine", older: &[] };

/// Those of [`LIFECYCLE_CORE`].
pub const CORE_PART: ControllerNames =
    ControllerNames { name: LIFECYCLE_CORE, alias: LIFECYCLE_CORE, older: &[] };
/// Those of [`LIFECYCLE_BOOTSTRAP`].
pub const BOOTSTRAP_PART: ControllerNames =
    ControllerNames { name: LIFECYCLE_BOOTSTRAP, alias: LIFECYCLE_BOOTSTRAP, older: &[] };

/// The flags of the controllers, in the order in which the help shows them.
#[derive(Clone, Debug, Args)]
pub struct ControllerFlags {
    /// The controller that initialises Nodes.
    #[command(flatten)]
    pub cloud_node: CloudNodeControllerFlags,
    /// The controller that taints and deletes Nodes.
    #[command(flatten)]
    pub cloud_node_lifecycle: CloudNodeLifecycleControllerFlags,
    /// The controller for load balancers.
    #[command(flatten)]
    pub service_lb: ServiceLbControllerFlags,
    /// The controller for machines.
    #[command(flatten)]
    pub machine: MachineControllerFlags,
    /// Cluster API's own controllers.
    #[command(flatten)]
    pub lifecycle: LifecycleFlags,
}

pub(super) const NOTES: [&[Note]; 5] =
    [cloud_node::NOTES, cloud_node_lifecycle::NOTES, service_lb::NOTES, machine::NOTES, lifecycle::NOTES];

impl ControllerFlags {
    pub(super) fn faults(&self) -> Vec<String> {
        [
            self.cloud_node.faults(),
            self.cloud_node_lifecycle.faults(),
            self.machine.faults(),
            self.lifecycle.faults(),
        ]
        .concat()
    }

    /// What stands about each controller in `/configz`, and where.
    pub(crate) fn configz(&self) -> [(&'static str, Value); 5] {
        [
            self.cloud_node.configz(),
            self.cloud_node_lifecycle.configz(),
            self.service_lb.configz(),
            self.machine.configz(),
            self.lifecycle.configz(),
        ]
    }
}

/// The controllers as leader migration knows them, with upstream's default.
pub const MIGRATED_CONTROLLERS: KnownControllers = KnownControllers {
    component: "cloud-controller-manager",
    names: &canonical_names::<{ CONTROLLERS.len() }>(),
    aliases: &aliases::<{ count_aliases() }>(),
    default: (
        "cloud-provider-extraction-migration",
        &["route-controller", "service-controller", "cloud-node-lifecycle-controller"],
    ),
};

const fn canonical_names<const COUNT: usize>() -> [&'static str; COUNT] {
    let (mut names, mut row) = ([""; COUNT], 0);
    while row < COUNT {
        names[row] = CONTROLLERS[row].name;
        row += 1;
    }
    names
}

const fn count_aliases() -> usize {
    let (mut count, mut row) = (0, 0);
    while row < CONTROLLERS.len() {
        count += 1 + CONTROLLERS[row].older.len();
        row += 1;
    }
    count
}

/// Each with the canonical name.
const fn aliases<const COUNT: usize>() -> [(&'static str, &'static str); COUNT] {
    let (mut aliases, mut count, mut row) = ([("", ""); COUNT], 0, 0);
    while row < CONTROLLERS.len() {
        let ControllerNames { name, alias, older, .. } = CONTROLLERS[row];
        aliases[count] = (alias, name);
        count += 1;
        let mut number = 0;
        while number < older.len() {
            aliases[count] = (older[number], name);
            count += 1;
            number += 1;
        }
        row += 1;
    }
    aliases
}

/// The canonical name for a name or its alias.
pub fn canonical_name(name: &str) -> &str {
    CONTROLLERS.iter().find(|known| known.alias == name).map_or(name, |known| known.name)
}

/// Unknown names, in upstream's words.
pub(super) fn faults(list: &[String]) -> Vec<String> {
    // An empty list is allowed: no controller runs then.
    let bare = list.iter().map(|name| name.strip_prefix('-').unwrap_or(name)).filter(|name| !name.is_empty());
    let is_known = |name: &str| !members(name).is_empty();
    let unknown = bare.filter(|name| *name != "*" && !is_known(name));
    let known = || {
        let shown = CONTROLLERS.iter().map(|known| match known.alias {
            same if same == known.name => same.to_owned(),
            alias => format!("{} ({alias})", known.name),
        });
        let groups = GROUPS.iter().map(|(group, _)| (*group).to_owned());
        shown.chain(groups).collect::<Vec<_>>().join(", ")
    };
    unknown
        .map(|name| {
            format!("{name:?} is not in the list of known controllers (--controllers; known: *, {})", known())
        })
        .collect()
}

/// A warning if no controller is enabled.
pub(super) fn warning(list: &[String]) -> Option<String> {
    let names = || CONTROLLERS.iter().map(|known| known.name);
    if names().any(|name| enables(list, name)) {
        return None;
    }
    let names = names().collect::<Vec<_>>().join(", ");
    Some(format!("--controllers: no controller runs; there are {names}"))
}

/// The canonical names of the controllers that the list names, `*` left out.
pub(super) fn names(list: &[String]) -> impl Iterator<Item = &'static str> {
    list.iter().flat_map(|name| members(name))
}

/// The canonical names of the controllers that a name means: one, those of a group, or none.
fn members(name: &str) -> Vec<&'static str> {
    if let Some((_, members)) = GROUPS.iter().find(|(group, _)| *group == name) {
        return members.to_vec();
    }
    let canonical = canonical_name(name);
    CONTROLLERS.iter().map(|known| known.name).filter(|known| *known == canonical).collect()
}

/// Whether the list enables the controller of this canonical name: the first exact `name` or `-name` decides, else the first
/// group that the controller is in, else a `*` anywhere, unless the controller is disabled by default.
pub(super) fn enables(list: &[String], controller: &str) -> bool {
    let names = || {
        list.iter().map(|name| match name.strip_prefix('-') {
            Some(bare) => (false, canonical_name(bare)),
            None => (true, canonical_name(name)),
        })
    };
    let exact = names().find(|(_, name)| *name == controller);
    let group = || names().find(|(_, name)| members(name).contains(&controller));
    match exact.or_else(group) {
        Some((on, _)) => on,
        None => !DISABLED_BY_DEFAULT.contains(&controller) && names().any(|name| name == (true, "*")),
    }
}
