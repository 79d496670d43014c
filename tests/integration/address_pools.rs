//! Which addresses Services get from kube-vip's ConfigMap: kube-vip's own allocator on the real API server, and that of this
//! repository in memory.
//!
//! The tables of the modules say what kube-vip's gives in each case, and [`wanted`] where the other one differs on purpose.

mod case;
mod daemon;
mod families;
mod ours;
mod play;
mod presets;
mod sharing;
mod shown;
mod values;
mod wanted;

use anyhow::{Context, ensure};
use test_env::{KubeVip, StartError};

use crate::{
    api::Api,
    scenarios::Trials,
    trial::{Outcome, runtime},
};
use case::Case;
use play::Player;

/// How often a case is played whose answers differ. On a busy machine kube-vip's allocator may give an address twice.
const PLAYS: usize = 3;

pub(crate) fn trials() -> Trials {
    Trials::in_real_time()
        .api_server("address_pools::kube_vip_gives_what_the_tables_say", kube_vip)
        .api_server("libvirt::claims_are_objects", daemon::claims_are_objects)
        .sandbox("libvirt::one_call_for_each_service", daemon::one_call_for_each_service)
        .sandbox("libvirt::what_is_shown_is_claimed", shown::what_is_shown_is_claimed)
        .trial("memory::address_pools::ours_gives_the_same_but_for_wanted_differences", ours)
}

/// All cases.
fn cases() -> Vec<Case> {
    [values::cases(), families::cases(), sharing::cases(), presets::cases()].concat()
}

async fn kube_vip(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let player = Player::new(&api.client);
    player.prepare().await?;
    let mut allocator = KubeVip::start(control_plane.kubeconfig(), &[], &["--kube-api-qps=500"])?;
    let outcome = differences(&player).await;
    // The control plane is used again, and only the allocator removes finalizers.
    let cleaned = player.clear().await;
    let different = outcome.with_context(|| format!("its log: {}", allocator.process().log_tail()))?;
    cleaned?;
    ensure_none(&different)
}

fn ours() -> Outcome {
    runtime(true)?.block_on(async {
        let mut all = Vec::new();
        for case in cases() {
            let answers = ours::play(&case).await.with_context(|| format!("case {}", case.name))?;
            all.push((case, answers));
        }
        ensure_none(&ours::unexpected(&all)).map_err(StartError::from)
    })
}

/// Plays all cases. Returns those whose answers differ from the table each time.
async fn differences(player: &Player) -> anyhow::Result<Vec<String>> {
    let mut different = Vec::new();
    for case in cases() {
        let mut seen = Vec::new();
        while seen.len() < PLAYS {
            let answers = player.play(&case).await.with_context(|| format!("case {}", case.name))?;
            if answers == case.answers() {
                break;
            }
            println!("{}: once it says {answers:?}", case.name);
            seen.push(answers);
        }
        if seen.len() == PLAYS {
            let (name, table) = (case.name, case.answers());
            different.push(format!("{name}:\n  it says {seen:#?}\n  the table {table:#?}"));
        }
    }
    Ok(different)
}

fn ensure_none(different: &[String]) -> anyhow::Result<()> {
    ensure!(different.is_empty(), "{} cases differ:\n{}", different.len(), different.join("\n"));
    Ok(())
}
