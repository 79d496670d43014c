//! The rows of Cluster API's own controllers in the table of controllers. Each part runs once in the daemon, beside machines of
//! any provider, and behind its gate: it works while it holds the Lease of Cluster API's manager.

use cluster_api::definitions::Provider;
use component::{
    inspection::Inspection,
    leader_election::{ElectionMetrics, identity},
    program::Program,
};
use futures::future::BoxFuture;
use lifecycle_controllers::{
    engine::metrics::{LoopMetrics, PassMetrics},
    gate::{self, Gate, GateOptions, Part, PartTerm},
    kinds::ServedKinds,
    options::LifecycleOptions,
    parts::{bootstrap, core},
};
use tokio_util::sync::CancellationToken;

use crate::{
    controllers::{Build, ControllerContext, ControllerDescriptor, ControllerPermissions, Run},
    flags::{BOOTSTRAP_PART, CORE_PART, ControllerNames, Flags, LIFECYCLE_BOOTSTRAP, LIFECYCLE_CORE},
};

/// The core part.
pub(crate) const CORE: ControllerDescriptor = row(CORE_PART, |context| {
    behind_gate(&gate::CORE, context, |term, options, metrics, stop, inspection| {
        Box::pin(core::run(term, options, metrics, stop, inspection))
    })
});

/// The bootstrap part.
pub(crate) const BOOTSTRAP: ControllerDescriptor = row(BOOTSTRAP_PART, |context| {
    behind_gate(&gate::BOOTSTRAP, context, |term, options, metrics, stop, inspection| {
        Box::pin(bootstrap::run(term, options, metrics, stop, inspection))
    })
});

/// The providers of Cluster API in whose place the enabled parts work.
pub(crate) fn providers(flags: &Flags) -> Vec<Provider> {
    let all = [(LIFECYCLE_CORE, Provider::Core), (LIFECYCLE_BOOTSTRAP, Provider::KubeadmBootstrap)];
    all.into_iter().filter(|(part, _)| flags.enables(part)).map(|(_, provider)| provider).collect()
}

/// The controllers of a part for one term.
type Controllers = fn(
    PartTerm,
    LifecycleOptions,
    LoopMetrics,
    CancellationToken,
    Inspection,
) -> BoxFuture<'static, cloudprovider::Result<()>>;

/// The permissions of the parts follow further flags: they are in [`crate::permissions::needed_for_lifecycle`].
const fn row(
    names: ControllerNames,
    build: fn(ControllerContext<'_>) -> anyhow::Result<Run>,
) -> ControllerDescriptor {
    ControllerDescriptor {
        names,
        client: names.name,
        events_from: names.name,
        needs: None,
        build: Build::Once(build),
        metrics: |metrics| metrics.get::<PassMetrics>().map(drop),
        permissions: ControllerPermissions::default,
        explain: None,
    }
}

fn behind_gate(
    part: &'static Part,
    context: ControllerContext<'_>,
    controllers: Controllers,
) -> anyhow::Result<Run> {
    let ControllerContext { flags, fence, metrics, clients, events, health, debug_state, election, .. } =
        context;
    let options = options(flags)?;
    let reader = clients.unthrottled.clone();
    let of_loops = LoopMetrics { passes: metrics.get()?, queues: metrics.get()? };
    let gate = Gate {
        part,
        options: GateOptions {
            election: flags.leader_election.options(identity()?),
            namespace: options.namespace.clone(),
            dry_run: flags.misc.dry_run,
            field_manager: Program::current().name().to_owned(),
        },
        fence,
        election,
        clients,
        events,
        events_from: part.name,
        metrics: metrics.get::<ElectionMetrics>()?,
        health: health.clone(),
        debug_state: debug_state.clone(),
    };
    if flags.misc.dry_run {
        // The gate runs no controllers then.
        return Ok(Box::new(|stop, inspection| {
            let nothing = |_, _, _| -> BoxFuture<'static, _> { Box::pin(std::future::ready(Ok(()))) };
            Box::pin(gate::run(gate, stop, inspection, nothing))
        }));
    }
    let kinds = ServedKinds::new(part, health);
    let followed = kinds.clone();
    let controllers = move |term: PartTerm, stop: CancellationToken, inspection: Inspection| {
        let (kinds, options, of_loops) = (kinds.clone(), options.clone(), of_loops.clone());
        let run: BoxFuture<'static, _> = Box::pin(async move {
            if stop.run_until_cancelled(inspection.beside(kinds.served())).await.is_none() {
                return Ok(());
            }
            controllers(term, options, of_loops, stop, inspection).await
        });
        run
    };
    Ok(Box::new(move |stop, inspection| {
        Box::pin(async move {
            tokio::select! {
                ended = gate::run(gate, stop, inspection, controllers) => ended,
                never = followed.follow(&reader) => match never {},
            }
        })
    }))
}

/// What the flags say to the parts.
///
/// # Errors
/// A value that is no network.
pub(crate) fn options(flags: &Flags) -> anyhow::Result<LifecycleOptions> {
    let (own, shared) = (&flags.controllers.lifecycle, &flags.controllers.machine);
    let (additional_machine_labels, additional_machine_annotations) = own.patterns();
    let workload_networks = own.workload_networks().map_err(|faults| anyhow::anyhow!(faults.join("; ")))?;
    Ok(LifecycleOptions {
        namespace: shared.namespace(),
        watch_filter: shared.watch_filter(),
        sync_period: shared.sync_period,
        additional_machine_labels,
        additional_machine_annotations,
        bootstrap_token_ttl: own.bootstrap_token_ttl,
        workload_networks,
    })
}
