//! The cloud's configuration changes while the daemon runs.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use ccm::reload::ReloadMetrics;
use cloudprovider::{CloudProvider, ConfigProblem, Error, FactoryInput, InstanceChange, Registry};
use controller_kit::cloud::CloudMetrics;
use parking_lot::Mutex;
use sandbox::kubelet;
use tempfile::TempDir;
use test_env::{ControlPlane, ControlPlaneOptions};
use tokio::time::sleep;

use crate::{
    api::{self, Api},
    daemon::{DaemonProcess, InProcess, binary},
    fake_cloud::{FakeCloud, Lookups, running, unavailable},
    guest::command_line,
    hypervisors::{name, test_driver_file},
    scenarios::Trials,
    support::*,
    trial::{Outcome, runtime},
};

/// The time limit for a change: it is noticed within seconds, and different answers are observed for ten.
const SOON: Duration = Duration::from_secs(40);
/// How long the daemon waits for a new version before it refuses it, with a margin.
const REFUSED: Duration = Duration::from_secs(110);
/// Longer than the writes of an initialisation take, on the paused clock.
const WRITTEN: Duration = Duration::from_secs(6);

pub(crate) fn trials() -> Trials {
    Trials::new()
        .sandbox("config::a_change_takes_effect", change)
        .sandbox("config::a_standby_follows_and_a_stop_ends_a_try", standby)
        .sandbox("config::a_broken_change_is_refused", broken)
        .sandbox("config::the_last_of_quick_changes_counts", quick)
        .sandbox("config::other_credentials_interrupt_nothing", credentials)
        .sandbox("config::a_node_that_was_never_initialised_does_not_delay_good_credentials", expired)
        .sandbox("config::a_version_that_loses_machines_is_refused", loses)
        .sandbox("config::a_hanging_call_is_finished_by_the_old_one", hanging)
        .sandbox("config::credentials_that_see_less_delete_nothing", sees_less)
        .trial("apiserver::config::the_binary_follows_its_config", the_binary)
}

/// The clouds that the factory has made, in order.
type Made = Arc<Mutex<Vec<FakeCloud>>>;

/// A mounted ConfigMap with a configuration and a file with a password.
struct Mounted {
    folder: TempDir,
    made: Made,
}

impl Mounted {
    fn new(config: &str, password: &str) -> anyhow::Result<Self> {
        let mounted = Self { folder: TempDir::new()?, made: Made::default() };
        symlink("..data/config", mounted.config())?;
        symlink("..data/password", mounted.folder.path().join("password"))?;
        mounted.swap(config, password)?;
        Ok(mounted)
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// Replaces both files atomically, as the kubelet does.
    fn swap(&self, config: &str, password: &str) -> anyhow::Result<()> {
        let version = TempDir::with_prefix_in("..version", self.folder.path())?.keep();
        fs::write(version.join("config"), config)?;
        fs::write(version.join("password"), password)?;
        let new = self.folder.path().join("..data_tmp");
        symlink(&version, &new)?;
        Ok(fs::rename(new, self.folder.path().join("..data"))?)
    }

    fn start(&self, api: &Api, elect: bool) -> anyhow::Result<InProcess> {
        let mut registry = Registry::new();
        let made = self.made.clone();
        registry.register("test", move |input| factory(input, &made))?;
        let config = format!("--cloud-config={}", self.config().display());
        InProcess::start_configured(&api.daemon_client, &registry, &[&config], elect)
    }

    /// The cloud of the nth readable version.
    fn made(&self, n: usize) -> anyhow::Result<FakeCloud> {
        let made = self.made.lock();
        made.get(n).cloned().with_context(|| format!("{} clouds were made", made.len()))
    }
}

/// Words in the configuration: numbers of machines, or `away` for a cloud that does not respond.
fn factory(input: &FactoryInput, made: &Made) -> cloudprovider::Result<Arc<dyn CloudProvider>> {
    let cloud = FakeCloud::new();
    let mut problems = Vec::new();
    for word in input.config.as_deref().unwrap_or_default().split_whitespace() {
        match word.parse::<usize>() {
            Ok(number) => cloud.put(&uuid(number), running(number)),
            Err(_) if word == "away" => cloud.fail_lookups(unavailable("the cloud is away")),
            Err(_) => problems.push(ConfigProblem::new("machines", "a word is not a number")),
        }
    }
    let folder = input.config_path.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    match input.read_file(folder.join("password")) {
        Ok(password) if password.is_empty() => problems.push(ConfigProblem::new("password", "is empty")),
        Ok(_) => {}
        Err(error) => problems.push(ConfigProblem::new("password", format!("cannot be read: {error}"))),
    }
    if !problems.is_empty() {
        return Err(Error::invalid_configuration(problems));
    }
    made.lock().push(cloud.clone());
    Ok(cloud.provider())
}

fn reloads(daemon: &InProcess, result: &str) -> u64 {
    daemon.counted::<ReloadMetrics>().config_reloads.with_label_values(&["cloud-config", result]).get()
}

fn is_refused(daemon: &InProcess) -> bool {
    daemon.counted::<ReloadMetrics>().config_reload_failed.with_label_values(&["cloud-config"]).get() == 1
}

async fn reloaded(daemon: &InProcess, times: u64) -> anyhow::Result<()> {
    eventually(SOON, &format!("{times} reloads"), || async {
        Ok((reloads(daemon, "success") == times).then_some(()))
    })
    .await
}

async fn refused(daemon: &InProcess, limit: Duration) -> anyhow::Result<()> {
    eventually(limit, "the change is refused", || async { Ok(is_refused(daemon).then_some(())) }).await
}

/// Waits until this cloud has been asked more often than `before`.
async fn is_asked_again(cloud: &FakeCloud, before: usize) -> anyhow::Result<()> {
    eventually(SOON, "the cloud is asked", || async { Ok((cloud.lookups() > before).then_some(())) }).await
}

/// The credentials of this cloud expire, which the daemon notices.
async fn expires(cloud: &FakeCloud) -> anyhow::Result<()> {
    let before = cloud.lookups();
    cloud.fail_lookups(unavailable("the password has expired"));
    is_asked_again(cloud, before).await
}

async fn register(api: &Api, number: usize) -> anyhow::Result<()> {
    kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
    Ok(())
}

async fn initialized(api: &Api, number: usize) -> anyhow::Result<()> {
    node_becomes(&api.client, &name(number), SOON, "initialized", is_initialized).await?;
    Ok(())
}

async fn daemon_event(api: &Api, reason: &str) -> anyhow::Result<String> {
    let event = event(&api.client, "kube-system", "cloud-controller-manager", reason).await?;
    Ok(event.message.unwrap_or_default())
}

async fn change(api: &Api) -> anyhow::Result<()> {
    let mounted = Mounted::new("1", "x")?;
    let daemon = mounted.start(api, false)?;
    register(api, 1).await?;
    register(api, 2).await?;
    initialized(api, 1).await?;
    mounted.swap("1 2", "x")?;
    initialized(api, 2).await?;
    reloaded(&daemon, 1).await?;
    ensure!(daemon_event(api, "ConfigReloaded").await? == "The changed cloud-config is in force");
    let old = mounted.made(0)?;
    eventually(SOON, "the old cloud is stopped", || async { Ok(old.is_stopped().then_some(())) }).await?;
    // Changes that the new cloud pushes are received.
    register(api, 3).await?;
    mounted.made(1)?.put(&uuid(3), running(3));
    initialized(api, 3).await?;
    daemon.stop().await?;
    let new = mounted.made(1)?;
    ensure!(new.is_stopped());
    Ok(())
}

async fn broken(api: &Api) -> anyhow::Result<()> {
    let mounted = Mounted::new("1", "x")?;
    let daemon = mounted.start(api, false)?;
    register(api, 1).await?;
    initialized(api, 1).await?;
    mounted.swap("1 hunter2", "")?;
    refused(&daemon, SOON).await?;
    let message = daemon_event(api, "ConfigReloadFailed").await?;
    for words in
        ["stays in force", "machines: a word is not a number", "password: is empty", "--cloud-config"]
    {
        ensure!(message.contains(words), "{words:?} in {message:?}");
    }
    ensure!(!message.contains("hunter2"));
    // The previous cloud is still used.
    register(api, 2).await?;
    mounted.made(0)?.put(&uuid(2), running(2));
    initialized(api, 2).await?;

    // A file that disappears for a while and returns unchanged.
    fs::remove_file(mounted.config())?;
    eventually(SOON, "refused again", || async { Ok((reloads(&daemon, "failure") == 2).then_some(())) })
        .await?;
    mounted.swap("1", "x")?;
    symlink("..data/config", mounted.config())?;
    eventually(SOON, "back", || async { Ok((!is_refused(&daemon)).then_some(())) }).await?;
    let cloud = mounted.made(0)?;
    ensure!(!cloud.is_stopped(), "the version in force is the one that is back");
    daemon.stop().await
}

async fn credentials(api: &Api) -> anyhow::Result<()> {
    let mounted = Mounted::new("1 2", "old")?;
    let daemon = mounted.start(api, false)?;
    for number in 1..=2 {
        register(api, number).await?;
        initialized(api, number).await?;
    }
    sleep(WRITTEN).await;
    let before = api.requests.writes();
    mounted.swap("1 2", "new")?;
    reloaded(&daemon, 1).await?;
    ensure!(mounted.made(0)?.is_stopped() && !mounted.made(1)?.is_stopped());
    sleep(Duration::from_secs(12)).await;
    let after = api.requests.writes();
    ensure!(before == after, "writes: {before:?}, then {after:?}");
    let calls = |result| daemon.counted::<CloudMetrics>().of("fake").calls("lookup", result).get();
    ensure!(calls("ok") > 0 && calls("partial") == 0, "nothing was unknown meanwhile");
    ensure!(!is_refused(&daemon) && reloads(&daemon, "failure") == 0);
    daemon.stop().await
}

/// The credentials have expired. The new ones see all that the old ones saw, and no machine of one Node.
async fn expired(api: &Api) -> anyhow::Result<()> {
    let mounted = Mounted::new("1", "old")?;
    let daemon = mounted.start(api, false)?;
    register(api, 1).await?;
    register(api, 2).await?;
    initialized(api, 1).await?;
    expires(&mounted.made(0)?).await?;
    mounted.swap("1", "new")?;
    // Sooner than a doubtful version would take over.
    reloaded(&daemon, 1).await?;
    ensure!(!is_refused(&daemon) && reloads(&daemon, "failure") == 0);
    let cloud = mounted.made(1)?;
    cloud.put(&uuid(2), running(2));
    initialized(api, 2).await?;
    daemon.stop().await
}

async fn loses(api: &Api) -> anyhow::Result<()> {
    let mounted = Mounted::new("1 2", "x")?;
    let daemon = mounted.start(api, false)?;
    for number in 1..=2 {
        register(api, number).await?;
        initialized(api, number).await?;
        set_ready_unknown(&api.client, &name(number)).await?;
    }
    mounted.swap("1", "x")?;
    refused(&daemon, REFUSED).await?;
    let message = daemon_event(api, "ConfigReloadFailed").await?;
    ensure!(message.contains("node vm-2 would lose its instance"), "{message}");
    node_stays(&api.client, &name(2), Duration::from_secs(20)).await?;
    // The new version takes effect without another change once it loses no machine any more.
    api::delete_node(&api.client, &name(2)).await?;
    reloaded(&daemon, 1).await?;
    ensure!(!is_refused(&daemon));
    daemon.stop().await
}

/// An expired password is replaced by credentials that cannot read one folder. A machine in that folder is
/// switched off.
async fn sees_less(api: &Api) -> anyhow::Result<()> {
    let mounted = Mounted::new("1 2", "x")?;
    let daemon = mounted.start(api, false)?;
    for number in 1..=2 {
        register(api, number).await?;
        initialized(api, number).await?;
        set_ready_unknown(&api.client, &name(number)).await?;
    }
    expires(&mounted.made(0)?).await?;
    mounted.swap("1", "new")?;
    refused(&daemon, REFUSED).await?;
    let message = daemon_event(api, "ConfigReloadFailed").await?;
    ensure!(message.contains("node vm-2 would count as gone"), "{message}");
    reloaded(&daemon, 1).await?;
    // Visible machines are known at once; the others may exist.
    let status = |status: &'static str, reason: &'static str| {
        move |node: &_| {
            condition(node, "CloudProviderInstanceExists").is_some_and(|(s, r, _)| s == status && r == reason)
        }
    };
    node_becomes(&api.client, &name(1), SOON, "exists", status("True", "InstanceFound")).await?;
    let kept = status("False", "InstanceNeverSeen");
    node_becomes(&api.client, &name(2), SOON, "is kept", kept).await?;
    node_stays(&api.client, &name(2), Duration::from_secs(100)).await?;
    // With credentials that see it, everything is well again, and a removed machine's Node goes as soon as
    // usual.
    mounted.swap("1 2", "x")?;
    node_becomes(&api.client, &name(2), SOON, "exists", status("True", "InstanceFound")).await?;
    mounted.made(2)?.remove(&uuid(2));
    node_vanishes(&api.client, &name(2), SOON).await?;
    daemon.stop().await
}

async fn quick(api: &Api) -> anyhow::Result<()> {
    let mounted = Mounted::new("1", "x")?;
    let daemon = mounted.start(api, false)?;
    register(api, 1).await?;
    initialized(api, 1).await?;
    mounted.swap("1 away", "x")?;
    eventually(SOON, "the second version is tried", || async { Ok(mounted.made(1).ok()) }).await?;
    mounted.swap("1 2", "x")?;
    register(api, 2).await?;
    initialized(api, 2).await?;
    reloaded(&daemon, 1).await?;
    ensure!(mounted.made(1)?.is_stopped(), "a version that was overtaken is dropped");
    ensure!(reloads(&daemon, "failure") == 0);
    daemon.stop().await
}

async fn hanging(api: &Api) -> anyhow::Result<()> {
    let mounted = Mounted::new("1", "x")?;
    let daemon = mounted.start(api, false)?;
    register(api, 1).await?;
    initialized(api, 1).await?;
    let old = mounted.made(0)?;
    old.set_latency(Duration::from_secs(50));
    let before = old.lookups();
    old.push(InstanceChange::Resync);
    is_asked_again(&old, before).await?;
    mounted.swap("1 2", "x")?;
    register(api, 2).await?;
    node_becomes(&api.client, &name(2), REFUSED, "initialized", is_initialized).await?;
    eventually(REFUSED, "the old cloud ends after its last call", || async {
        Ok(old.is_stopped().then_some(()))
    })
    .await?;
    daemon.stop().await
}

async fn standby(api: &Api) -> anyhow::Result<()> {
    let mounted = Mounted::new("1", "x")?;
    let first = mounted.start(api, true)?;
    eventually(SOON, "leads", || async { Ok(first.leads().then_some(())) }).await?;
    let second = mounted.start(api, true)?;
    register(api, 1).await?;
    initialized(api, 1).await?;
    mounted.swap("1 2", "x")?;
    reloaded(&first, 1).await?;
    reloaded(&second, 1).await?;
    ensure!(!second.leads());
    first.stop().await?;
    register(api, 2).await?;
    initialized(api, 2).await?;
    ensure!(second.leads());

    mounted.swap("away", "x")?;
    let tried = eventually(SOON, "a further version is tried", || async { Ok(mounted.made(4).ok()) }).await?;
    second.stop().await?;
    eventually(SOON, "it is stopped", || async { Ok(tried.is_stopped().then_some(())) }).await
}

/// The real binary with libvirt's test driver: another hypervisor is added to its configuration.
fn the_binary() -> Outcome {
    binary()?;
    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    let folder = TempDir::new()?;
    let path = |name: &str| folder.path().join(name);
    for (file, number) in [("kvm1.xml", 1), ("kvm2.xml", 2)] {
        fs::write(path(file), test_driver_file(std::iter::once(number))?).context("a file")?;
    }
    let hypervisor = |number: usize| {
        let file = path(&format!("kvm{number}.xml"));
        format!("- {{name: kvm{number}, uri: 'test://{}', region: lab, zone: z{number}}}\n", file.display())
    };
    let config = path("cloud.yaml");
    let write = |text: &str| fs::write(&config, text).context("the configuration");
    write(&format!("hypervisors:\n{}", hypervisor(1)))?;
    let arguments = command_line(&control_plane, &config.display().to_string())?;
    let daemon = DaemonProcess::start(&arguments, &path("daemon.log"))?;
    let outcome = runtime(false)?.block_on(async {
        let client = api::client(control_plane.kubeconfig()).await?;
        for number in 1..=2 {
            kubelet::register(&client, &kubelet::node(&name(number), &uuid(number))).await?;
        }
        node_becomes(&client, &name(1), SOON, "initialized", is_initialized).await?;
        write("hypervisors: [{name: kvm1, uri: 'test:///x', zon: hunter2}]")?;
        let refused = event(&client, "kube-system", "cloud-controller-manager", "ConfigReloadFailed").await?;
        let message = refused.message.unwrap_or_default();
        ensure!(message.contains("did you mean \"zone\"?") && !message.contains("hunter2"), "{message}");
        write(&format!("hypervisors:\n{}{}", hypervisor(1), hypervisor(2)))?;
        let done = node_becomes(&client, &name(2), SOON, "initialized", is_initialized).await?;
        ensure!(label(&done, "topology.kubernetes.io/zone") == Some("z2"));
        event(&client, "kube-system", "cloud-controller-manager", "ConfigReloaded").await?;
        ensure!(node_becomes(&client, &name(1), SOON, "still there", is_initialized).await.is_ok());
        anyhow::Ok(())
    });
    outcome.with_context(|| format!("the daemon's log: {}", daemon.log()))?;
    daemon.terminate()?;
    Ok(())
}
