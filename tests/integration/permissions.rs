//! The shipped roles contain exactly the permissions that the daemon needs: without any one of them,
//! something that the daemon does in its life is refused.

use std::{collections::BTreeSet, path::Path, time::Duration};

use anyhow::{Context, bail, ensure};
use ccm::{
    api_client::ClientOptions,
    daemon::Parts,
    manifests::ManifestOptions,
    permissions::{self, Permission},
    serving::ServingOptions,
};
use cloudprovider::{Error, ErrorKind, PowerState, testing::Operation};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Service, ServiceAccount},
};
use kube::{
    Client,
    api::{DeleteParams, ListParams, PostParams},
};
use sandbox::kubelet;
use serde_json::json;
use test_env::{ControlPlane, Refusal};

use crate::{
    api::Api,
    clients::from_file,
    daemon::{InProcess, parse},
    fake_cloud::{FakeCloud, Fault, running},
    scenarios::Trials,
    serving::{Curl, grant, service_account},
    shipped_roles,
    support::*,
};

/// Only ends a hang.
const SOON: Duration = test_env::PATIENCE;

/// The time limit of a life, which takes some seconds.
const LIFETIME: Duration = test_env::PATIENCE;

/// Flags that make a life short.
const QUICK: [&str; 7] = [
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--node-deletion-minimum-age=0s",
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=500ms",
    "--cluster-cidr=10.64.0.0/12",
];

/// The accounts of the controllers. The API server has a role and a binding for each.
const ACCOUNTS: [&str; 3] = ["node-controller", "route-controller", "service-controller"];

/// The name of an account's role and of its binding.
fn account_role(account: &str) -> String {
    format!("system:controller:{account}")
}

/// A kind of daemon with permissions of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Its controllers have service accounts of their own.
    Accounts,
    /// Some of its controllers have a Lease of their own.
    Migrating,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Accounts => "accounts",
            Self::Migrating => "migrating",
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &[],
            Self::Accounts => &["--use-service-account-credentials"],
            Self::Migrating => &["--enable-leader-migration"],
        }
    }

    fn needed(self) -> anyhow::Result<Vec<Permission>> {
        Ok(permissions::needed(&parse(self.flags())?))
    }

    /// The permissions that its controllers' accounts have from the API server.
    fn given(self) -> anyhow::Result<Vec<Permission>> {
        Ok(permissions::given_to_accounts(&parse(self.flags())?))
    }
}

/// The permission that is removed.
#[derive(Clone, Copy)]
enum Missing {
    Nothing,
    /// One of the daemon's own, by its number.
    Needed(usize),
    /// One of those that the API server gives to the controllers' accounts. The test grants the others.
    Given(usize),
}

pub(crate) fn trials() -> Trials {
    // A command line that does not parse fails in every other test.
    let plain = Kind::Plain.needed().unwrap_or_default();
    let mut trials = Trials::new();
    for kind in [Kind::Plain, Kind::Accounts, Kind::Migrating] {
        let folder = format!("permissions::{}", kind.as_str());
        let without = |trials: Trials, what: &str, missing: Missing| {
            trials.api_server(&format!("{folder}::{what}"), async move |api: &Api| {
                life_without(api, kind, missing).await
            })
        };
        trials = without(trials, "all_of_them_are_enough", Missing::Nothing);
        for (number, permission) in kind.needed().unwrap_or_default().iter().enumerate() {
            // The permissions that all kinds need are tested once.
            if kind == Kind::Plain || !plain.contains(permission) {
                let what = format!("nothing_replaces_{}", name(permission));
                trials = without(trials, &what, Missing::Needed(number));
            }
        }
        for (number, permission) in kind.given().unwrap_or_default().iter().enumerate() {
            let account = permission.account.as_deref().unwrap_or_default();
            let what = format!("nothing_replaces_{}_of_{account}", name(permission));
            trials = without(trials, &what, Missing::Given(number));
        }
    }
    trials
}

/// Such as `create_leases_in_kube-system`.
fn name(permission: &Permission) -> String {
    let mut name = format!("{}_{}", permission.verb, permission.resource);
    for part in [&permission.subresource].into_iter().chain(&permission.resource_names) {
        if !part.is_empty() {
            name.push('_');
            name.push_str(part);
        }
    }
    if let Some(namespace) = &permission.namespace {
        name.push_str("_in_");
        name.push_str(namespace);
    }
    name
}

/// Runs a life: with all permissions, which must succeed without a refusal, or with one less, which must be
/// the only one that is refused.
async fn life_without(api: &Api, kind: Kind, missing: Missing) -> anyhow::Result<()> {
    let mut permissions = kind.needed()?;
    let mut options = ManifestOptions::new("libvirt");
    let missing = match missing {
        Missing::Nothing => {
            options.name = format!("{}-with-all", kind.as_str());
            None
        }
        Missing::Needed(number) => {
            options.name = format!("{}-less-{number}", kind.as_str());
            let missing = permissions.remove(number);
            // The account's own role may contain it too, as it contains leases from Kubernetes 1.37 on.
            if missing.account.is_some() {
                permissions.extend(kind.given()?);
            }
            Some(missing)
        }
        Missing::Given(number) => {
            options.name = format!("{}-account-less-{number}", kind.as_str());
            let mut given = kind.given()?;
            let missing = given.remove(number);
            permissions.extend(given);
            Some(missing)
        }
    };
    let takes_given = missing.as_ref().is_some_and(|missing| missing.account.is_some());
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    if takes_given {
        for account in ACCOUNTS {
            control_plane.kubectl_output(&["delete", "clusterrolebinding", &account_role(account)])?;
        }
    }
    let kubeconfig = shipped_roles::bind(control_plane, &options, &permissions).await?;
    let users: BTreeSet<String> =
        permissions.iter().chain(&missing).map(|needed| shipped_roles::holder(&options, needed)).collect();
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    let outcome = async {
        if let Some(missing) = &missing {
            shipped_roles::becomes_known(&api.client, &options, missing, false).await?;
        }
        let is_refused = || async { Ok((!api.refused_to(&users)?.is_empty()).then_some(())) };
        let lived = tokio::select! {
            outcome = life(&api.client, control_plane, &kubeconfig, kind) => outcome,
            refused = eventually(LIFETIME, "a refusal", is_refused) => refused,
        };
        let refused = api.refused_to(&users)?;
        match missing {
            None => {
                ensure!(refused.is_empty(), "refused with all permissions: {refused:?}");
                lived
            }
            Some(missing) if refused.is_empty() => {
                lived?;
                bail!("nobody misses {missing}")
            }
            Some(missing) => {
                let holder = shipped_roles::holder(&options, &missing);
                let other = refused.iter().find(|refusal| !is_of(refusal, &holder, &missing));
                ensure!(other.is_none(), "missing is {missing}, refused: {refused:?}");
                Ok(())
            }
        }
    }
    .await;
    shipped_roles::unbind(&api.client, &options, &permissions).await?;
    if takes_given {
        for account in ACCOUNTS {
            let role = account_role(account);
            control_plane.kubectl_output(&[
                "create",
                "clusterrolebinding",
                &role,
                &format!("--clusterrole={role}"),
                &format!("--serviceaccount=kube-system:{account}"),
            ])?;
        }
        for given in kind.given()? {
            shipped_roles::becomes_known(&api.client, &options, &given, true).await?;
        }
    }
    outcome
}

fn is_of(refusal: &Refusal, holder: &str, permission: &Permission) -> bool {
    refusal.user == holder
        && refusal.verb == permission.verb
        && refusal.group == permission.group
        && refusal.resource == permission.resource
        && refusal.subresource == permission.subresource
        && permission.resource_names.iter().all(|name| refusal.uri.contains(&**name))
}

/// A daemon as its binary assembles it, with this secure port.
async fn parts(kubeconfig: &Path, kind: Kind, cloud: &FakeCloud, flags: &[&str]) -> anyhow::Result<Parts> {
    let options = ClientOptions { service_accounts: kind == Kind::Accounts, ..ClientOptions::default() };
    let parts = from_file(kubeconfig, options, cloud.provider()).await?;
    Ok(Parts { serving: Some(ServingOptions::from(&parse(flags)?)), ..parts })
}

async fn start(kubeconfig: &Path, kind: Kind, cloud: &FakeCloud, port: u16) -> anyhow::Result<InProcess> {
    let path = kubeconfig.display();
    let serving = [
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--authentication-kubeconfig={path}"),
        format!("--authorization-kubeconfig={path}"),
    ];
    let flags: Vec<&str> =
        QUICK.iter().chain(kind.flags()).copied().chain(serving.iter().map(String::as_str)).collect();
    InProcess::run_parts(parts(kubeconfig, kind, cloud, &flags).await?, &flags, true)
}

/// A Lease that another manager holds and lets expire, so that a candidate has to wait for it.
async fn held_by_another(admin: &Client, name: &str) -> anyhow::Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"holderIdentity": "another", "leaseDurationSeconds": 8, "acquireTime": now, "renewTime": now},
    }))?;
    kube::Api::namespaced(admin.clone(), "kube-system").create(&PostParams::default(), &lease).await?;
    Ok(())
}

/// Waits for an event with such a reason that was repeated, which is counted in one object.
async fn event_counts(admin: &Client, is_reason: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let events: kube::Api<Event> = kube::Api::namespaced(admin.clone(), "default");
    eventually(SOON, "an event that counts", || async {
        let found = events.list(&ListParams::default()).await?;
        let is_it = |event: &&Event| {
            event.reason.as_deref().is_some_and(&is_reason) && event.count.is_some_and(|count| count > 1)
        };
        Ok(found.items.iter().find(is_it).map(drop))
    })
    .await
}

/// Reads the metrics as two permitted users: with a token, and with a client certificate.
async fn read_metrics(admin: &Client, control_plane: &ControlPlane, port: u16) -> anyhow::Result<()> {
    let url = format!("https://127.0.0.1:{port}/metrics");
    let token = service_account(admin, "scraper-of-all").await?;
    let certificate = control_plane.kubeconfig_for("scraper", &["scrapers"])?.with_extension("crt");
    grant(
        admin,
        "scrapers-of-all",
        "{kind: ServiceAccount, name: scraper-of-all, namespace: default}, \
         {kind: Group, name: scrapers, apiGroup: rbac.authorization.k8s.io}",
        "/metrics",
    )
    .await?;
    let is_read = |answer: crate::serving::Answer| Ok((answer.status == 200).then_some(()));
    eventually(SOON, "metrics for a token", || async {
        is_read(Curl::get(&url).token(&token).send().await?)
    })
    .await?;
    eventually(SOON, "metrics for a certificate", || async {
        is_read(Curl::get(&url).certificate(&certificate).send().await?)
    })
    .await
}

/// Everything that the daemon does at the API server: two daemons elect a leader, metrics are read, one Node
/// is initialised, repaired, tainted and deleted, it gets a route, a Service gets a load balancer, and events of each
/// controller are repeated.
async fn life(
    admin: &Client,
    control_plane: &ControlPlane,
    kubeconfig: &Path,
    kind: Kind,
) -> anyhow::Result<()> {
    // The accounts do not exist, so that the daemon has to create them.
    let accounts = kube::Api::<ServiceAccount>::namespaced(admin.clone(), "kube-system");
    for account in ACCOUNTS {
        let _ = accounts.delete(account, &DeleteParams::default()).await;
    }
    if kind == Kind::Migrating {
        held_by_another(admin, "cloud-provider-extraction-migration").await?;
    }
    let cloud = FakeCloud::new().with_routes().with_load_balancers();
    let again = Error::new(ErrorKind::Unavailable, "away").with_retry_after(Duration::from_millis(100));
    cloud.fail(Operation::CreateRoute, Fault::Error(again.clone()));
    cloud.fail(Operation::EnsureLoadBalancer, Fault::Error(again));
    let port = test_env::free_port()?;
    let leader = start(kubeconfig, kind, &cloud, port).await?;
    let leads = eventually(SOON, "the first one leads", || async { Ok(leader.leads().then_some(())) }).await;
    if let Err(error) = leads {
        // The reason, if the daemon ended with one.
        tokio::time::timeout(Duration::from_secs(1), leader.ended()).await.unwrap_or(Ok(()))?;
        return Err(error);
    }
    let standby = start(kubeconfig, kind, &cloud, test_env::free_port()?).await?;
    read_metrics(admin, control_plane, port).await?;

    cloud.put(&uuid(1), running(1));
    let mut node = kubelet::node("n1", &uuid(1));
    let spec = node.spec.get_or_insert_default();
    spec.pod_cidr = Some("10.64.1.0/24".to_owned());
    spec.pod_cidrs = spec.pod_cidr.clone().map(|cidr| vec![cidr]);
    kubelet::register(admin, &node).await?;
    node_becomes(admin, "n1", SOON, "initialized", is_initialized).await?;
    event_counts(admin, |reason| reason == "FailedToCreateRoute").await?;
    let services = kube::Api::<Service>::namespaced(admin.clone(), "default");
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "s1"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }))?;
    services.create(&PostParams::default(), &service).await?;
    event_counts(admin, |reason| reason == "SyncLoadBalancerFailed").await?;
    cloud.mend();
    eventually(SOON, "the Service has its load balancer", || async {
        let status = services.get("s1").await?.status.and_then(|status| status.load_balancer);
        Ok(status.and_then(|status| status.ingress).map(drop))
    })
    .await?;
    services.delete("s1", &DeleteParams::default()).await?;
    eventually(SOON, "the Service is gone", || async {
        Ok(services.get_opt("s1").await?.is_none().then_some(()))
    })
    .await?;
    let has_route = |node: &_| condition_status(node, "NetworkUnavailable").as_deref() == Some("False");
    node_becomes(admin, "n1", SOON, "has its route", has_route).await?;
    cloud.change(&uuid(1), |machine| machine.metadata.zone = Some("rack-z".into()));
    let moved = |node: &_| label(node, "topology.kubernetes.io/zone") == Some("rack-z");
    node_becomes(admin, "n1", SOON, "follows the cloud", moved).await?;
    set_ready_unknown(admin, "n1").await?;
    cloud.change(&uuid(1), |machine| machine.power_state = PowerState::Off);
    node_becomes(admin, "n1", SOON, "is tainted", |node| has_taint(node, SHUTDOWN)).await?;

    // A Ready Node is kept. Its kubelet would be judged by its lease, which does not exist.
    cloud.change(&uuid(1), |machine| machine.power_state = PowerState::Running);
    kubelet::heartbeat(admin, "n1", true).await?;
    node_becomes(admin, "n1", SOON, "is not tainted", |node| !has_taint(node, SHUTDOWN)).await?;
    let exists = |status: &'static str| {
        move |node: &_| condition_status(node, "CloudProviderInstanceExists").as_deref() == Some(status)
    };
    cloud.remove(&uuid(1));
    node_becomes(admin, "n1", SOON, "is held back", exists("False")).await?;
    cloud.put(&uuid(1), running(1));
    node_becomes(admin, "n1", SOON, "is well again", exists("True")).await?;
    cloud.remove(&uuid(1));
    event_counts(admin, |reason| reason.starts_with("Deletion")).await?;
    set_ready_unknown(admin, "n1").await?;
    node_vanishes(admin, "n1", SOON).await?;

    leader.stop().await?;
    eventually(SOON, "the standby leads", || async { Ok(standby.leads().then_some(())) }).await?;
    standby.stop().await?;
    Ok(())
}
