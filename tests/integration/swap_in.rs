//! The binary as a replacement for Go cloud-controller-managers: with the command lines of their shipped
//! manifests, with a pod's environment, and as the shipped service account. There are two replicas, and the
//! leader ends.

use std::{fs, ops::Range, process::Command, time::Duration};

use anyhow::{Context, ensure};
use ccm::{manifests::ManifestOptions, permissions};
use sandbox::kubelet;
use tempfile::TempDir;
use test_env::{Process, Signal, StartError};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    api::Api,
    daemon::{binary, parse},
    hypervisors::{name, test_driver_file},
    leader_election::{record, timeline::Timeline},
    scenarios::Trials,
    serving::curl::Curl,
    shipped_roles,
    support::*,
};

/// More than the sum of a lease's duration, a standby's pause and the delays of a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const MACHINES: Range<usize> = 0..400;

/// From deploy/ccm-networks.yaml of hcloud-cloud-controller-manager, without `--leader-elect=false`: that
/// manifest has one replica, and its chart omits the flag if there are several.
const HCLOUD: &[&str] = &[
    "--allow-untagged-cloud",
    "--cloud-provider=hcloud",
    "--route-reconciliation-period=30s",
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.244.0.0/16",
];
/// From releases/v1.36/vsphere-cloud-controller-manager.yaml of cloud-provider-vsphere.
const VSPHERE: &[&str] = &["--cloud-provider=vsphere", "--v=2", "--cloud-config=/etc/cloud/vsphere.conf"];
/// From manifests/controller-manager/openstack-cloud-controller-manager-ds.yaml of cloud-provider-openstack.
/// Its controllers use an account with a role from the API server's bootstrap.
const OPENSTACK: &[&str] = &[
    "--v=1",
    "--cloud-config=/etc/config/cloud.conf",
    "--cloud-provider=openstack",
    "--use-service-account-credentials=true",
    "--bind-address=127.0.0.1",
];

pub(crate) fn trials() -> Trials {
    let hcloud = &[("HCLOUD_TOKEN", "t"), ("HCLOUD_NETWORK", "n"), ("NODE_NAME", "a")];
    let openstack = &[("CLOUD_CONFIG", "/etc/config/cloud.conf")];
    Trials::new()
        .api_server("swap_in::with_the_command_line_of_hcloud", async move |api: &Api| {
            swap_in(api, HCLOUD, hcloud).await
        })
        .api_server("swap_in::with_the_command_line_of_vsphere", async |api: &Api| {
            swap_in(api, VSPHERE, &[]).await
        })
        .api_server("swap_in::with_the_command_line_of_openstack", async move |api: &Api| {
            swap_in(api, OPENSTACK, openstack).await
        })
}

async fn swap_in(
    api: &Api,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
) -> anyhow::Result<()> {
    binary()?;
    need_mounts()?;
    let cluster = Cluster::new(api, arguments, environment).await?;
    cluster.lives_on().await?;
    // Clean up for the next test on this control plane. Controllers' accounts are the same in all
    // deployments.
    let given = permissions::needed(&parse(arguments)?);
    shipped_roles::unbind(&api.client, &ManifestOptions::new("libvirt"), &given).await?;
    cluster.bind_roles(&[]).await
}

/// The files of a pod are at fixed paths, which need mounts of their own here.
fn need_mounts() -> Result<(), StartError> {
    let allowed =
        Command::new("unshare").args(["--mount", "true"]).output().is_ok_and(|o| o.status.success());
    if allowed {
        return Ok(());
    }
    Err(StartError::Unavailable(
        "a pod's configuration needs root and the right to make mount namespaces".into(),
    ))
}

/// A cluster in which kubelets register all the time.
struct Cluster<'a> {
    api: &'a Api,
    folder: TempDir,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    timeline: Timeline,
    _kubelets: AbortOnDropHandle<()>,
}

impl<'a> Cluster<'a> {
    async fn new(
        api: &'a Api,
        arguments: &'static [&'static str],
        environment: &'static [(&'static str, &'static str)],
    ) -> anyhow::Result<Self> {
        let control_plane = api.control_plane.as_ref().context("the control plane")?;
        // The service account's token and files, as in a pod.
        let (folder, account) = (TempDir::new()?, "cloud-controller-manager");
        let has_account =
            control_plane.kubectl_output(&["-n", "kube-system", "get", "serviceaccount", account]);
        if has_account.is_err() {
            control_plane.kubectl_output(&["-n", "kube-system", "create", "serviceaccount", account])?;
        }
        let token = control_plane.kubectl_output(&["-n", "kube-system", "create", "token", account])?;
        let pod = folder.path().join("serviceaccount");
        fs::create_dir(&pod)?;
        fs::write(pod.join("token"), token.trim())?;
        fs::write(pod.join("namespace"), "kube-system")?;
        fs::copy(control_plane.ca_pem(), pod.join("ca.crt"))?;
        fs::write(folder.path().join("machines.xml"), test_driver_file(MACHINES)?)?;

        let timeline = Timeline::record(&api.client).await?;
        let client = api.client.clone();
        let kubelets = tokio::spawn(async move {
            for number in MACHINES {
                if kubelet::register(&client, &kubelet::node(&name(number), &uuid(number))).await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(500)).await;
            }
        });
        let kubelets = AbortOnDropHandle::new(kubelets);
        let cluster = Self { api, folder, arguments, environment, timeline, _kubelets: kubelets };
        cluster.bind_roles(arguments).await?;
        Ok(cluster)
    }

    /// Gives the service account the shipped roles for this command line.
    async fn bind_roles(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let control_plane = self.api.control_plane.as_ref().context("the control plane")?;
        let permissions = permissions::needed(&parse(arguments)?);
        shipped_roles::bind(control_plane, &ManifestOptions::new("libvirt"), &permissions).await?;
        Ok(())
    }

    /// Starts a replica that gives Nodes the zone `zone`.
    fn replica(&self, zone: &'static str) -> anyhow::Result<Replica> {
        let port = test_env::free_port()?;
        let folder = self.folder.path();
        let config = folder.join(format!("{zone}.yaml"));
        fs::write(
            &config,
            format!(
                "hypervisors:\n- {{name: kvm1, uri: 'test://{}/machines.xml', zone: {zone}, region: lab}}\n",
                folder.display()
            ),
        )?;
        // Only the cloud is replaced; all other arguments stay.
        let is_the_clouds = |argument: &str| {
            argument.starts_with("--cloud-provider=") || argument.starts_with("--cloud-config=")
        };
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-ec"])
            .arg(
                "mount -t tmpfs tmpfs /run\n\
                 mkdir -p /run/secrets/kubernetes.io\n\
                 ln -s \"$0\" /run/secrets/kubernetes.io/serviceaccount\n\
                 exec \"$@\"",
            )
            .arg(folder.join("serviceaccount"))
            .arg(binary()?)
            .args(self.arguments.iter().filter(|argument| !is_the_clouds(argument)))
            .arg("--cloud-provider=libvirt")
            .arg(format!("--cloud-config={}", config.display()))
            // Pods with a host network run on different machines. Here they share one, so each needs its own
            // port, on loopback only.
            .args(["--bind-address=127.0.0.1".to_owned(), format!("--secure-port={port}")])
            .envs(self.environment.iter().copied())
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env(
                "KUBERNETES_SERVICE_PORT",
                self.api.control_plane.as_ref().context("one")?.port().to_string(),
            )
            .env_remove("KUBECONFIG");
        Ok(Replica { zone, port, process: Process::spawn(zone, &command, folder.join(zone))? })
    }

    /// Waits until this replica has initialised three more Nodes.
    async fn fills_in(&self, replica: &Replica) -> anyhow::Result<()> {
        let filled_in = || self.timeline.filled_in_by(replica.zone);
        let before = filled_in();
        let outcome = eventually(LIMIT, &format!("{} fills Nodes in", replica.zone), || async {
            Ok((filled_in() > before + 2).then_some(()))
        })
        .await;
        outcome.with_context(|| replica.process.log_tail())
    }

    async fn lives_on(&self) -> anyhow::Result<()> {
        let mut first = self.replica("replica-1")?;
        self.fills_in(&first).await?;
        let mut second = self.replica("replica-2")?;
        first.is_healthy().await?;
        second.is_healthy().await?;
        self.fills_in(&first).await?;
        ensure!(self.timeline.filled_in_by(second.zone) == 0, "a standby fills nothing in");
        let holder = || async { Ok::<_, anyhow::Error>(record(&self.api.client).await?.holder) };
        let of_first = holder().await?;

        let start = Instant::now();
        first.process.signal(Signal::Term)?;
        self.fills_in(&second).await?;
        let of_second = holder().await?;
        println!("SIGTERM to {of_first}: {of_second} has filled three Nodes in after {:?}", start.elapsed());
        ensure!(of_first != of_second && !of_second.is_empty());
        first.ended_well()?;

        let mut third = self.replica("replica-3")?;
        third.is_healthy().await?;
        self.fills_in(&second).await?;
        let start = Instant::now();
        second.process.kill()?;
        self.fills_in(&third).await?;
        let of_third = holder().await?;
        println!("SIGKILL to {of_second}: {of_third} has filled three Nodes in after {:?}", start.elapsed());
        ensure!(of_second != of_third && !of_third.is_empty());
        second.was_refused_nothing()?;
        third.is_healthy().await?;

        let strangers = self.timeline.filled_in_by_others(&[first.zone, second.zone, third.zone]);
        ensure!(strangers.is_empty(), "filled in by one that did not lead: {strangers:?}");
        third.process.signal(Signal::Term)?;
        third.ended_well()
    }
}

/// One replica of the workload.
struct Replica {
    zone: &'static str,
    port: u16,
    process: Process,
}

impl Replica {
    /// Waits until the kubelet's probe, which has no credentials, succeeds.
    async fn is_healthy(&self) -> anyhow::Result<()> {
        let url = format!("https://127.0.0.1:{}/healthz", self.port);
        let outcome = eventually(LIMIT, &format!("{} is healthy", self.zone), || async {
            let answer = Curl::get(&url).send().await?;
            Ok((answer.status == 200 && answer.text() == "ok").then_some(()))
        })
        .await;
        outcome.with_context(|| self.process.log_tail())
    }

    /// Waits for its successful end after SIGTERM.
    fn ended_well(&mut self) -> anyhow::Result<()> {
        let status = self.process.wait(test_env::PATIENCE)?;
        ensure!(status.success(), "{status}: {}", self.process.log_tail());
        self.was_refused_nothing()
    }

    fn was_refused_nothing(&self) -> anyhow::Result<()> {
        let log = fs::read_to_string(self.process.log())?;
        let refused: Vec<&str> =
            log.lines().filter(|line| line.to_lowercase().contains("forbidden")).collect();
        ensure!(refused.is_empty(), "the shipped roles are not enough: {refused:#?}");
        Ok(())
    }
}
