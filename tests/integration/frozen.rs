//! A frozen libvirtd, with a guest agent that hangs, is used again after it resumes: only the provider, with
//! a real libvirtd.

use std::time::Duration;

use anyhow::{Context, ensure};
use cloudprovider::{CloudProvider, StartContext};
use cloudprovider_libvirt::HypervisorHandle;
use test_env::{Libvirtd, MicroGuest, MicroGuestOptions};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    hypervisors::provider,
    scenarios::Trials,
    support::eventually,
    trial::{Outcome, runtime},
};

const SOON: Duration = test_env::PATIENCE;
/// Longer than the timeouts of keepalive and calls, so that calls are abandoned and others are tried.
const FROZEN: Duration = Duration::from_secs(8);
const ROUNDS: usize = 3;

pub(crate) fn trials() -> Trials {
    Trials::new().trial("libvirtd::frozen_while_a_guest_agent_hangs", frozen_while_a_guest_agent_hangs)
}

fn frozen_while_a_guest_agent_hangs() -> Outcome {
    let libvirtd = Libvirtd::start()?;
    let guest = MicroGuest::define(&libvirtd, "worker-1", &MicroGuestOptions::default())?;
    guest.start()?;
    guest.wait_for_agent(SOON)?;
    runtime(false)?.block_on(async {
        for round in 0..ROUNDS {
            let thawed = freeze(&libvirtd, &guest).await.with_context(|| format!("round {round}"))?;
            println!("round {round}: from the thaw to the connection: {thawed:?}");
        }
        anyhow::Ok(())
    })?;
    Ok(())
}

/// Returns the time from the thaw to the connection.
async fn freeze(libvirtd: &Libvirtd, guest: &MicroGuest) -> anyhow::Result<Duration> {
    let provider = provider(&format!(
        "hypervisors: [{{name: kvm1, uri: '{}'}}]\nkeepalive: {{interval: 1s, count: 2}}\ncallTimeout: 5s\n",
        libvirtd.uri()
    ))?;
    let hypervisor = provider.hypervisor("kvm1").context("the hypervisor")?;
    let calls = |operation| provider.call_counts().get(operation).copied().unwrap_or_default();
    // Its agent is connected and does not answer.
    guest.freeze()?;
    let stop = CancellationToken::new();
    provider.start(StartContext::new(stop.clone(), "test")).await?;
    becomes(&hypervisor, true, "connected").await?;
    eventually(SOON, "the agent is asked", || async { Ok((calls("agent_addresses") > 0).then_some(())) })
        .await?;
    // libvirt's client crashes if two threads have calls on a connection that dies.
    ensure!(calls("connect") >= 2, "guest agents are not asked over a connection of their own");
    libvirtd.freeze()?;
    becomes(&hypervisor, false, "lost").await?;
    sleep(FROZEN).await;
    libvirtd.thaw()?;
    let thawed = Instant::now();
    becomes(&hypervisor, true, "connected again").await?;
    let thawed = thawed.elapsed();
    guest.thaw()?;
    stop.cancel();
    Ok(thawed)
}

async fn becomes(hypervisor: &HypervisorHandle, live: bool, what: &str) -> anyhow::Result<()> {
    eventually(SOON, what, || async { Ok((hypervisor.is_live() == live).then_some(())) }).await
}
