//! Which addresses Services get from kube-vip's ConfigMap: kube-vip's own allocator on the real API server.
//!
//! The tables of the modules say what it gives in each case. The same Services and `ConfigMap`s can be given to
//! any other allocator that reads them.

mod case;
mod families;
mod play;
mod presets;
mod sharing;
mod values;

use anyhow::{Context, ensure};
use libtest_mimic::Trial;
use test_env::{KubeVip, StartError};

use crate::{
    api::{Api, Target},
    trial::{Outcome, runtime, trial},
};
use case::Case;
use play::Player;

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("apiserver::address_pools::kube_vip_gives_what_the_tables_say", kube_vip)]
}

/// All cases.
fn cases() -> Vec<Case> {
    [values::cases(), families::cases(), sharing::cases(), presets::cases()].concat()
}

fn kube_vip() -> Outcome {
    runtime(false)?.block_on(async {
        let api = Api::connect(Target::ApiServer).await?;
        let control_plane = api.control_plane.as_ref().context("the control plane")?;
        let player = Player::new(&api.client);
        player.prepare().await?;
        let mut allocator = KubeVip::start(control_plane.kubeconfig(), &[], &["--kube-api-qps=500"])?;
        let outcome = differences(&player).await;
        // The control plane is used again, and only the allocator removes finalizers.
        let cleaned = player.clear().await;
        let different = outcome.with_context(|| format!("its log: {}", allocator.process().log_tail()))?;
        cleaned?;
        ensure_none(&different).map_err(StartError::from)
    })
}

/// Plays all cases. Returns those whose answers differ from the table.
async fn differences(player: &Player) -> anyhow::Result<Vec<String>> {
    let mut different = Vec::new();
    for case in cases() {
        let answers = player.play(&case).await.with_context(|| format!("case {}", case.name))?;
        if answers != case.answers() {
            different.push(format!(
                "{}:\n  it says {answers:#?}\n  the table {:#?}",
                case.name,
                case.answers()
            ));
        }
    }
    Ok(different)
}

fn ensure_none(different: &[String]) -> anyhow::Result<()> {
    ensure!(different.is_empty(), "{} cases differ:\n{}", different.len(), different.join("\n"));
    Ok(())
}
