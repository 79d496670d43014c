//! vSphere's own cloud-controller-manager (CPI) and our binary, run one after the other with the same
//! configuration file, on the same vCenter and the same Nodes: their writes are compared field by field.

mod compare;
mod machines;
mod rounds;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Node, Secret},
};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use sandbox::kubelet;
use tempfile::TempDir;
use test_env::{Cpi, Vcsim, built};
use tokio::time::{Instant, sleep};

use self::{
    compare::{Fields, INITIALIZED, Wanted, compare, fields},
    machines::{LATE, OFF, WITH_NODE, name, node, simulator},
    rounds::Round,
};
use super::LIMIT;
use crate::{
    api::{Api, delete_node},
    daemon::{DaemonProcess, binary},
    scenarios::Trials,
    support::*,
};

/// The flags of both programs. One Node at a time: with several, CPI 1.36 reads and writes its map of names
/// from several goroutines, and may end in a fatal error.
const FLAGS: [&str; 3] = [
    "--concurrent-node-syncs=1",
    "--node-monitor-period=1s",
    "--node-labels=example.com/site=lab-1,node.example.com/managed=",
];

pub(super) fn trials() -> Trials {
    Trials::new()
        .api_server("vsphere::beside_cpi::the_same_fields", every_round)
        .api_server("vsphere::beside_cpi::nodes_of_cpi_are_taken_over", taken_over)
}

/// A vCenter, an API server, and a folder for configuration files.
struct World<'a> {
    api: &'a Api,
    vcsim: Vcsim,
    second: Vcsim,
    kubeconfig: PathBuf,
    folder: TempDir,
}

impl<'a> World<'a> {
    fn new(api: &'a Api) -> anyhow::Result<Self> {
        binary()?;
        // fails with the missing requirement before anything is started
        built("cpi")?;
        let kubeconfig = api.control_plane.as_ref().context("the control plane")?.kubeconfig().to_owned();
        Ok(Self {
            api,
            vcsim: simulator()?,
            second: machines::second()?,
            kubeconfig,
            folder: TempDir::new().context("no folder")?,
        })
    }

    fn write(&self, title: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join(format!("{title}.conf"));
        fs::write(&path, text)?;
        Ok(path)
    }

    fn cpi(&self, config: &Path) -> anyhow::Result<Cpi> {
        Ok(Cpi::start(&self.kubeconfig, config, &[("ENABLE_ALPHA_DUAL_STACK", "true")], &FLAGS)?)
    }

    fn ours(&self, title: &str, config: &Path) -> anyhow::Result<DaemonProcess> {
        let mut arguments = vec![
            "--cloud-provider=vsphere".to_owned(),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            "--leader-elect=false".to_owned(),
        ];
        arguments.extend(FLAGS.map(str::to_owned));
        DaemonProcess::start(&arguments, &self.folder.path().join(format!("{title}.log")))
    }

    async fn register(&self, numbers: &[usize]) -> anyhow::Result<()> {
        for number in numbers {
            kubelet::register(&self.api.client, &node(*number)).await?;
        }
        Ok(())
    }

    async fn clear(&self) -> anyhow::Result<()> {
        for node in nodes(&self.api.client).list(&ListParams::default()).await? {
            delete_node(&self.api.client, &named(&node)).await?;
        }
        Ok(())
    }

    /// The resource version and the fields of each Node.
    async fn versions(&self) -> anyhow::Result<BTreeMap<String, (String, Fields)>> {
        let all = nodes(&self.api.client).list(&ListParams::default()).await?;
        let of = |node: Node| {
            let version = node.metadata.resource_version.clone().unwrap_or_default();
            (named(&node), (version, fields(&node)))
        };
        Ok(all.items.into_iter().map(of).collect())
    }

    /// Waits until all Nodes but these are complete, and returns all Nodes' fields.
    async fn complete(
        &self,
        title: &str,
        waiting: &BTreeSet<String>,
        log: impl Fn() -> String,
    ) -> anyhow::Result<BTreeMap<String, Fields>> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let all = nodes(&self.api.client).list(&ListParams::default()).await?.items;
            let is_complete = |node: &Node| {
                is_initialized(node)
                    && addresses(node).iter().any(|address| address.contains("IP "))
                    && (named(node) != name(OFF) || has_taint(node, SHUTDOWN))
            };
            let missing: Vec<_> = all
                .iter()
                .filter(|node| !waiting.contains(&named(node)) && !is_complete(node))
                .map(named)
                .collect();
            if missing.is_empty() {
                return Ok(all.iter().map(|node| (named(node), fields(node))).collect());
            }
            ensure!(
                Instant::now() < deadline,
                "{title}: not complete after {LIMIT:?}: {missing:?}; the end of the log:\n{}",
                tail(&log())
            );
            sleep(Duration::from_millis(200)).await;
        }
    }
}

fn named(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

/// The Nodes that are expected to stay uninitialised with CPI (`by_cpi`) or with us, from this list and these
/// differences.
fn waiting(both: &[usize], wanted: &[Wanted], by_cpi: bool) -> BTreeSet<String> {
    let only_one = wanted.iter().filter(|difference| {
        difference.field == INITIALIZED && (if by_cpi { difference.cpi } else { difference.ours }) == "false"
    });
    both.iter().map(|number| name(*number)).chain(only_one.map(|one| one.node.clone())).collect()
}

async fn every_round(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api)?;
    let secrets = kube::Api::<Secret>::namespaced(world.api.client.clone(), "kube-system");
    let (user, password) = ("<ENTER_YOUR_VCENTER_USERNAME>", "<ENTER_YOUR_VCENTER_PASSWORD>");
    for secret in [
        credentials(rounds::SECRET, world.vcsim.user(), world.vcsim.password()),
        credentials(rounds::UNFILLED, user, password),
    ] {
        secrets.create(&PostParams::default(), &secret).await.context("the Secret")?;
    }
    let mut faults = Vec::new();
    for round in rounds::all() {
        // the differences of all rounds are reported together
        if let Err(error) = both(&world, &round).await? {
            faults.push(format!("{error:#}"));
        }
    }
    for name in [rounds::SECRET, rounds::UNFILLED] {
        secrets.delete(name, &DeleteParams::default()).await.context("the Secret")?;
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn credentials(name: &str, user: &str, password: &str) -> Secret {
    let value = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([
            ("127.0.0.1.username".to_owned(), value(user)),
            ("127.0.0.1.password".to_owned(), value(password)),
        ])),
        ..Secret::default()
    }
}

/// Runs CPI, then our binary, each on newly registered Nodes.
async fn both(world: &World<'_>, round: &Round) -> anyhow::Result<anyhow::Result<()>> {
    let title = round.title;
    let config = world.write(title, &(round.config)(world)?)?;
    let wanted = (round.wanted)(world)?;
    let register = async || -> anyhow::Result<()> {
        world.register(&WITH_NODE).await?;
        if round.with_second {
            world.register(&[machines::OF_SECOND]).await?;
        }
        Ok(())
    };
    register().await?;
    let began = Instant::now();
    let cpi = world.cpi(&config)?;
    let theirs = world.complete(title, &waiting(round.both_wait, &wanted, true), || cpi.log()).await;
    let (theirs, after) = (theirs?, began.elapsed());
    drop(cpi);
    world.clear().await?;
    register().await?;
    let began = Instant::now();
    let daemon = world.ours(title, &config)?;
    let ours = world.complete(title, &waiting(round.both_wait, &wanted, false), || daemon.log()).await?;
    println!("{title}: CPI is done after {after:.1?}, ours after {:.1?}", began.elapsed());
    daemon.terminate()?;
    world.clear().await?;
    Ok(compare(title, &theirs, &ours, &wanted))
}

/// Runs our binary on Nodes that CPI has initialised: it makes only necessary writes.
async fn taken_over(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api)?;
    let round = rounds::in_yaml();
    let config = world.write("takeover", &(round.config)(&world)?)?;
    let wanted = (round.wanted)(&world)?;
    world.register(&WITH_NODE).await?;
    let mut cpi = world.cpi(&config)?;
    world.complete("takeover", &waiting(round.both_wait, &wanted, true), || cpi.log()).await?;
    cpi.process().stop()?;
    let before = world.versions().await?;
    let daemon = world.ours("takeover", &config)?;
    world.register(&[LATE]).await?;
    world.complete("takeover", &waiting(round.both_wait, &wanted, false), || daemon.log()).await?;
    // enough time for some periodic comparisons
    sleep(Duration::from_secs(3)).await;
    let after = world.versions().await?;
    daemon.terminate()?;
    for (node, (version, fields)) in &before {
        let (now, fields_now) = &after[node];
        let is_meant = wanted.iter().any(|difference| difference.node == *node);
        ensure!(
            version == now || is_meant || fields[INITIALIZED] == "false",
            "{node} was written to, of what is compared here {:?}",
            fields_now.iter().filter(|(name, value)| fields.get(*name) != Some(value)).collect::<Vec<_>>()
        );
    }
    let fields_of = |all: BTreeMap<String, (String, Fields)>| -> BTreeMap<String, Fields> {
        all.into_iter().map(|(node, (_, fields))| (node, fields)).collect()
    };
    let mut ours = fields_of(after);
    let late = ours.remove(&name(LATE)).context("the late one")?;
    ensure!(late[INITIALIZED] == "true", "{late:?}");
    compare("takeover", &fields_of(before), &ours, &wanted)?;
    world.clear().await
}
