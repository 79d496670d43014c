//! One machine with Cluster API's own managers.

use super::{arrival::from_apply_to_nodes, world::World};
use crate::{cluster_api::life::Life, trial::Outcome};

pub(super) fn whole() -> Outcome {
    World::with_managers()?.run(async |world, objects| {
        let life = Life::new(objects, &world.hypervisor);
        let machines = from_apply_to_nodes(world, &life, 1).await?;
        life.ends(&["LibvirtMachine", "LibvirtCluster"], &machines).await
    })
}
