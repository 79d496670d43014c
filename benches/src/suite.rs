//! All that is measured, and how often.

use anyhow::Result;

use crate::{
    cases::{
        Case, End, Handover, Initialize, Join, Lifecycle, Machines, Restart, Routes, ServiceNodes, Services,
        Settled, Startup, Vsphere, VsphereChange, VsphereLost, VsphereMachines,
    },
    cluster::NodeSize,
    managers::Manager,
    results::Results,
    say::say,
};

/// How much of the suite is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// What the report needs: hours.
    Full,
    /// Everything once, with few Nodes: minutes.
    Quick,
}

/// A case and how often each manager runs it.
type Plan = (Case, Vec<(Manager, usize)>);

/// Runs everything whose name contains one of the texts of `only`, such as `initialize 1000 Nodes, ours`, or
/// everything if there are none. A run that fails is reported and left out, and the others go on. No manager
/// runs a case more often than `most` times.
pub(crate) async fn run(amount: Amount, only: &[String], most: usize, results: &Results) -> Result<()> {
    let plans = match amount {
        Amount::Full => full(),
        Amount::Quick => quick(),
    };
    let (mut done, mut failed) = (0, 0);
    for (case, mut managers) in plans {
        let name = |manager: Manager| format!("{} {}, {}", case.name(), case.variant(), manager.name());
        managers
            .retain(|(manager, _)| only.is_empty() || only.iter().any(|text| name(*manager).contains(text)));
        let most = managers.iter().map(|(_, runs)| *runs).max().unwrap_or_default().min(most);
        // Interleaved, so that other work of the machine affects all managers alike.
        for run in 0..most {
            for (manager, _) in managers.iter().filter(|(_, runs)| run < *runs) {
                let what = format!("{}, run {}", name(*manager), run + 1);
                match case.run(*manager).await {
                    Ok(measurement) => {
                        say(&format!("{what}: {:?}", measurement.values));
                        results.add(&measurement)?;
                        done += 1;
                    }
                    Err(error) => {
                        failed += 1;
                        say(&format!("{what} failed: {error:#}"));
                    }
                }
            }
        }
    }
    anyhow::ensure!(failed == 0, "{failed} runs failed");
    anyhow::ensure!(done > 0, "nothing holds any of {only:?}, as in `initialize 1000 Nodes, ours`");
    Ok(())
}

/// The variants of a case, in the order in which the report shows them.
pub(crate) fn variants(case: &str) -> Vec<String> {
    full().iter().filter(|(one, _)| one.name() == case).map(|(one, _)| one.variant()).collect()
}

fn initialize(nodes: usize) -> Initialize {
    Initialize { nodes, size: NodeSize::Real, delay_millis: 0 }
}

fn service_nodes(services: usize, nodes: usize) -> ServiceNodes {
    ServiceNodes { services, nodes, delay_millis: 20 }
}

fn vsphere_machines(machines: usize, delay_millis: u64) -> Case {
    Case::VsphereMachines(VsphereMachines { machines, delay_millis })
}

fn lifecycle(machines: usize, rest_minutes: u64) -> Case {
    Case::Lifecycle(Lifecycle { machines, rest_minutes })
}

fn full() -> Vec<Plan> {
    use Manager::{
        CapvBest, CapvDefaults, ClusterApiBest, ClusterApiDefaults, CpiBest, CpiDefaults, Floor, GoBest,
        GoDefaults, Ours,
    };
    let (bare, slow) = (
        Initialize { size: NodeSize::Bare, ..initialize(1000) },
        Initialize { delay_millis: 20, ..initialize(1000) },
    );
    vec![
        (Case::Startup(Startup), vec![(Ours, 5), (GoDefaults, 5)]),
        (Case::Initialize(initialize(100)), vec![(Ours, 5), (GoBest, 5)]),
        (Case::Initialize(initialize(1000)), vec![(Ours, 5), (Floor, 5), (GoBest, 5), (GoDefaults, 2)]),
        (Case::Initialize(initialize(5000)), vec![(Ours, 5), (Floor, 5), (GoBest, 5), (GoDefaults, 1)]),
        (Case::Initialize(initialize(10_000)), vec![(Ours, 3), (GoBest, 1)]),
        (Case::Initialize(bare), vec![(Ours, 5), (Floor, 5), (GoBest, 5)]),
        (Case::Initialize(slow), vec![(Ours, 5), (GoBest, 5)]),
        (Case::Vsphere(Vsphere { nodes: 1000 }), vec![(Ours, 5), (CpiBest, 5), (CpiDefaults, 1)]),
        (Case::VsphereChange(VsphereChange::PoweredOff), vec![(Ours, 5), (CpiDefaults, 5)]),
        (Case::VsphereChange(VsphereChange::Noticed), vec![(Ours, 5)]),
        (Case::VsphereChange(VsphereChange::Destroyed), vec![(Ours, 5), (CpiDefaults, 5)]),
        (Case::Join(Join { nodes: 5000, joining: 200 }), vec![(Ours, 3), (GoBest, 2)]),
        (Case::Restart(Restart { nodes: 5000 }), vec![(Ours, 5), (GoBest, 5)]),
        (Case::Handover(Handover { end: End::Terminated }), vec![(Ours, 5), (GoDefaults, 5)]),
        (Case::Handover(Handover { end: End::Killed }), vec![(Ours, 5), (GoDefaults, 5)]),
        (Case::Settled(Settled { nodes: 5000, minutes: 10 }), vec![(Ours, 1), (Floor, 1), (GoBest, 1)]),
        (
            Case::Services(Services { services: 2000, delay_millis: 200 }),
            vec![(Ours, 3), (GoBest, 3), (GoDefaults, 1)],
        ),
        (Case::ServiceNodes(service_nodes(500, 200)), vec![(Ours, 3), (GoBest, 3), (GoDefaults, 1)]),
        (Case::Routes(Routes { nodes: 1000, delay_millis: 20 }), vec![(Ours, 3), (GoDefaults, 3)]),
        (Case::Machines(Machines { machines: 500 }), vec![(Ours, 3)]),
        (Case::Machines(Machines { machines: 2000 }), vec![(Ours, 1)]),
        (vsphere_machines(20, 0), vec![(Ours, 3), (CapvBest, 3), (CapvDefaults, 1)]),
        (vsphere_machines(20, 20), vec![(Ours, 3), (CapvBest, 3)]),
        (vsphere_machines(200, 0), vec![(Ours, 3), (CapvBest, 1), (CapvDefaults, 1)]),
        (vsphere_machines(200, 20), vec![(Ours, 3), (CapvBest, 1)]),
        (Case::VsphereLost(VsphereLost { machines: 20 }), vec![(Ours, 3), (CapvDefaults, 1)]),
        (lifecycle(20, 0), vec![(Ours, 3), (ClusterApiBest, 3), (ClusterApiDefaults, 3)]),
        (lifecycle(200, 10), vec![(Ours, 3), (ClusterApiBest, 3), (ClusterApiDefaults, 1)]),
        (lifecycle(2000, 0), vec![(Ours, 1), (ClusterApiBest, 1), (ClusterApiDefaults, 1)]),
    ]
}

fn quick() -> Vec<Plan> {
    use Manager::{
        CapvBest, CapvDefaults, ClusterApiBest, ClusterApiDefaults, CpiBest, CpiDefaults, Floor, GoBest,
        GoDefaults, Ours,
    };
    vec![
        (Case::Startup(Startup), vec![(Ours, 1), (GoDefaults, 1)]),
        (Case::Initialize(initialize(100)), vec![(Ours, 1), (Floor, 1), (GoBest, 1), (GoDefaults, 1)]),
        (Case::Vsphere(Vsphere { nodes: 20 }), vec![(Ours, 1), (CpiBest, 1), (CpiDefaults, 1)]),
        (Case::VsphereChange(VsphereChange::PoweredOff), vec![(Ours, 1), (CpiDefaults, 1)]),
        (Case::VsphereChange(VsphereChange::Noticed), vec![(Ours, 1)]),
        (Case::VsphereChange(VsphereChange::Destroyed), vec![(Ours, 1), (CpiDefaults, 1)]),
        (Case::Join(Join { nodes: 100, joining: 10 }), vec![(Ours, 1), (GoBest, 1)]),
        (Case::Restart(Restart { nodes: 100 }), vec![(Ours, 1), (GoBest, 1)]),
        (Case::Handover(Handover { end: End::Terminated }), vec![(Ours, 1), (GoDefaults, 1)]),
        (Case::Settled(Settled { nodes: 100, minutes: 1 }), vec![(Ours, 1), (Floor, 1), (GoBest, 1)]),
        (
            Case::Services(Services { services: 100, delay_millis: 200 }),
            vec![(Ours, 1), (GoBest, 1), (GoDefaults, 1)],
        ),
        (Case::ServiceNodes(service_nodes(20, 10)), vec![(Ours, 1), (GoBest, 1)]),
        (Case::Routes(Routes { nodes: 50, delay_millis: 20 }), vec![(Ours, 1), (GoDefaults, 1)]),
        (Case::Machines(Machines { machines: 50 }), vec![(Ours, 1)]),
        (vsphere_machines(5, 20), vec![(Ours, 1), (CapvBest, 1), (CapvDefaults, 1)]),
        (lifecycle(5, 0), vec![(Ours, 1), (ClusterApiBest, 1), (ClusterApiDefaults, 1)]),
    ]
}
