//! Whether the API server serves the kinds that a part reads. Without them the part does nothing, and says what is missing.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use basics::LogOnce;
use cluster_api::definitions::VERSION;
use component::health::{Concerns, HealthChecks};
use controller_kit::writes::within_deadline;
use kube::Client;
use tokio::{sync::watch, time::sleep};

use crate::gate::Part;

/// What installs the definitions of the kinds.
pub const INSTALL_KINDS: &str =
    "cloud-controller-manager manifests --lifecycle --only-definitions | kubectl apply -f -";

/// How often the API server is asked while kinds are missing.
const MISSING_INTERVAL: Duration = Duration::from_secs(5);

/// How often otherwise: a definition may be deleted.
const SERVED_INTERVAL: Duration = Duration::from_secs(60);

/// The definitions that are missing, or why that is not known.
type Missing = Result<Vec<&'static str>, String>;

/// What is known of the kinds of a part. Clones share it.
#[derive(Clone, Debug)]
pub struct ServedKinds {
    part: &'static Part,
    /// `None`: nobody has looked.
    missing: watch::Sender<Option<Missing>>,
}

impl ServedKinds {
    /// Nothing is known yet. `/readyz` gets a check, [called](Part::kinds_check_name) after the part.
    pub fn new(part: &'static Part, health: &HealthChecks) -> Self {
        let missing = watch::Sender::<Option<Missing>>::new(None);
        let checked = missing.clone();
        health.add(&part.kinds_check_name(), Concerns::Readiness, move || match &*checked.borrow() {
            None => Err("the API server has not said yet which kinds it serves".to_owned()),
            Some(Err(why)) => Err(why.clone()),
            Some(Ok(missing)) => in_words(missing).map_or(Ok(()), Err),
        });
        Self { part, missing }
    }

    /// Asks the API server again and again. The log says once what is missing, until that changes.
    pub async fn follow(&self, client: &Client) -> Infallible {
        let mut logged = LogOnce::default();
        loop {
            let found = missing(client, self.part).await;
            let mut interval = MISSING_INTERVAL;
            if let Ok(missing) = &found {
                let words = in_words(missing);
                if logged.changes_to(words.as_deref()) {
                    let part = self.part.name;
                    match &words {
                        Some(words) => tracing::warn!(part, "waiting: {words}"),
                        None => tracing::info!(part, "the API server serves all kinds"),
                    }
                }
                if words.is_none() {
                    interval = SERVED_INTERVAL;
                }
            }
            self.missing.send_if_modified(|known| match (&found, &known) {
                // One request that fails says nothing of the kinds.
                (Err(_), Some(Ok(_))) => false,
                _ => {
                    *known = Some(found);
                    true
                }
            });
            sleep(interval).await;
        }
    }

    /// Waits until all kinds are served. Where the API server does not say it, the watches find out.
    pub async fn served(&self) {
        let mut missing = self.missing.subscribe();
        let is_over = |known: &Option<Missing>| match known {
            None => false,
            Some(Ok(missing)) => missing.is_empty(),
            Some(Err(_)) => true,
        };
        // The sender is there as long as this.
        drop(missing.wait_for(is_over).await);
    }
}

fn in_words(missing: &[&str]) -> Option<String> {
    let names = missing.join(", ");
    (!missing.is_empty())
        .then(|| format!("the API server does not serve {names} in {VERSION}; install them: {INSTALL_KINDS}"))
}

/// The definitions that a part reads and the API server does not serve.
///
/// # Errors
/// The API server does not say which kinds it serves.
async fn missing(client: &Client, part: &Part) -> Result<Vec<&'static str>, String> {
    let names: Vec<_> = part.reads.iter().flat_map(|provider| provider.read_kinds()).copied().collect();
    let served = within_deadline(served_versions(client, &names)).await;
    let served = served.map_err(|why| format!("the API server does not say which kinds it serves: {why}"))?;
    let is_served = |name: &str| served.get(name).is_some_and(|all| all.iter().any(|one| one == VERSION));
    Ok(names.into_iter().filter(|name| !is_served(name)).collect())
}

/// The versions in which each of these definitions is served: plural and group, with a dot between. Every user may ask for them, and few
/// may read definitions. One that is missing is not in the answer.
///
/// # Errors
/// The API server does not say it.
pub async fn served_versions<'a>(
    client: &Client,
    names: &[&'a str],
) -> kube::Result<BTreeMap<&'a str, Vec<String>>> {
    let mut served = BTreeMap::<&str, Vec<String>>::new();
    let split: Vec<_> = names.iter().filter_map(|name| Some((*name, name.split_once('.')?))).collect();
    for group in client.list_api_groups().await?.groups {
        let of_group: Vec<_> = split.iter().filter(|(_, (_, of))| *of == group.name).collect();
        let versions = group.versions.iter().filter(|_| !of_group.is_empty());
        for version in versions {
            let resources = client.list_api_group_resources(&version.group_version).await?.resources;
            for (name, (plural, _)) in &of_group {
                if resources.iter().any(|one| one.name == *plural) {
                    served.entry(name).or_default().push(version.version.clone());
                }
            }
        }
    }
    Ok(served)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use cluster_api::definitions::Provider;
    use http::Request;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::{
        Api,
        api::{DeleteParams, PostParams},
        client::Body,
    };
    use sandbox::Sandbox;

    use super::*;
    use crate::gate::{BOOTSTRAP, CORE};

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_named_until_it_is_served() {
        let sandbox = Sandbox::new();
        let definitions = Api::<CustomResourceDefinition>::all(sandbox.client());
        let all = Provider::ALL.iter().flat_map(|one| one.definitions().expect("definitions"));
        let (late, first): (Vec<_>, Vec<_>) =
            all.partition(|one| ["Machine", "KubeadmConfig"].contains(&&*one.spec.names.kind));
        for definition in &first {
            definitions.create(&PostParams::default(), definition).await.expect("created");
        }
        let health = HealthChecks::default();
        let parts = [&CORE, &BOOTSTRAP].map(|part| ServedKinds::new(part, &health));
        let check = |name: &str| {
            let all = health.all();
            all.into_iter().find(|(known, ..)| known == name).expect("the check").2()
        };
        check("lifecycle-core-kinds").expect_err("nobody has looked");
        let [core, bootstrap] = parts.clone();
        let (away, through) = (Arc::new(AtomicBool::new(false)), sandbox.client());
        let is_away = Arc::clone(&away);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (is_away, through) = (is_away.load(Ordering::Relaxed), through.clone());
            async move {
                if is_away {
                    Err(kube::Error::Service(std::io::Error::other("away").into()))
                } else {
                    through.send(request).await
                }
            }
        });
        let client = Client::new(service, "default");
        let following =
            tokio::spawn(async move { tokio::join!(core.follow(&client), bootstrap.follow(&client)) });
        sleep(Duration::from_secs(1)).await;
        let install = "in v1beta2; install them: cloud-controller-manager manifests --lifecycle --only-definitions | \
                       kubectl apply -f -";
        assert_eq!(
            check("lifecycle-core-kinds"),
            Err(format!("the API server does not serve machines.cluster.x-k8s.io {install}"))
        );
        assert_eq!(
            check("lifecycle-bootstrap-kinds"),
            Err(format!(
                "the API server does not serve machines.cluster.x-k8s.io, kubeadmconfigs.bootstrap.cluster.x-k8s.io {install}"
            ))
        );
        for definition in &late {
            definitions.create(&PostParams::default(), definition).await.expect("created");
        }
        for part in &parts {
            part.served().await;
        }
        assert_eq!(check("lifecycle-core-kinds"), Ok(()));

        // A request that fails says nothing, a deletion does.
        away.store(true, Ordering::Relaxed);
        sleep(SERVED_INTERVAL * 2).await;
        assert_eq!(check("lifecycle-core-kinds"), Ok(()));
        away.store(false, Ordering::Relaxed);
        definitions.delete("machines.cluster.x-k8s.io", &DeleteParams::default()).await.expect("deleted");
        sleep(SERVED_INTERVAL * 2).await;
        check("lifecycle-core-kinds").expect_err("it is gone");
        following.abort();
    }
}
