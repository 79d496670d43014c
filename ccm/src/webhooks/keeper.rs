//! Keeps what the API server needs to trust the webhook: the authority in its Secret, the certificate of the server, and the
//! authority in the definitions. Where the flags name files with a certificate, it only looks at the definitions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::{Error, MachineTypes, Result, SecretName};
use component::{
    serving::{Authorities, MadeCertificate},
    watching,
};
use controller_kit::{api_errors::api_error, followed::follow};
use futures::{Stream, StreamExt as _, stream::select_all};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString, api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;

use super::{
    definitions::{Decision, Definition, Trust, decide},
    pace::Pace,
};
use crate::{
    flags::Flags,
    permissions::{authority_secret, definitions_of},
};

/// Who wrote a field, in `managedFields`.
const MANAGER: &str = "cloud-controller-manager-webhook";

/// How often it is looked whether an authority or a certificate is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The pause after a write that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How long the first look at the definitions may take before it is told which of them are missing.
const GATHERING_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a write is tried that another replica was faster with.
const ATTEMPTS: usize = 5;

/// What is wrong, for the health checks. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Report(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Whether the server has a certificate.
    can_serve: bool,
    faults: Vec<String>,
}

impl Default for Report {
    fn default() -> Self {
        let faults = vec!["the authority of the webhook is not known yet".to_owned()];
        Self(Arc::new(Mutex::new(State { can_serve: false, faults })))
    }
}

impl Report {
    /// Whether this replica can answer. What is wrong with a definition is not asked: it concerns all replicas alike, and if none
    /// were ready, the objects of the other definitions could not be converted either.
    pub(super) fn serving(&self) -> std::result::Result<(), String> {
        let state = self.0.lock();
        if state.can_serve { Ok(()) } else { Err(state.faults.join("; ")) }
    }

    /// Whether everything is right.
    pub(super) fn definitions(&self) -> std::result::Result<(), String> {
        let state = self.0.lock();
        if state.faults.is_empty() { Ok(()) } else { Err(state.faults.join("; ")) }
    }

    /// Replaces what is wrong, and logs what is new.
    fn set(&self, can_serve: bool, faults: Vec<String>) {
        let mut known = self.0.lock();
        for fault in faults.iter().filter(|fault| !known.faults.contains(fault)) {
            tracing::warn!(fault, "objects may not be converted");
        }
        if faults.is_empty() && !known.faults.is_empty() {
            tracing::info!("the API server can have objects converted here");
        }
        *known = State { can_serve, faults };
    }
}

/// See [the module](self).
pub(super) struct Keeper {
    client: Client,
    /// Where the authority is. `None`: files have the certificate.
    secret: Option<SecretName>,
    /// The names of the definitions, each with the versions that it has to serve.
    names: Vec<(String, Vec<&'static str>)>,
    /// Those that were read. `None`: there is no such definition.
    definitions: BTreeMap<String, Option<Definition>>,
    /// Those that were written.
    paces: BTreeMap<String, Pace>,
    authorities: Option<Authorities>,
    /// For which names and which authority the certificate is, and when another one is due.
    certificate: Option<(Vec<String>, String, Timestamp)>,
    made: MadeCertificate,
    report: Report,
}

/// Takes note of a change, or of what cannot be read.
fn take(
    definitions: &mut BTreeMap<String, Option<Definition>>,
    outages: &mut BTreeMap<String, String>,
    change: Change,
) {
    let (what, outage) = match change {
        Change::Secret(answer) => (String::new(), answer.err()),
        Change::Definition(name, Ok(definition)) => {
            definitions.insert(name.clone(), definition.map(|definition| *definition));
            (name, None)
        }
        Change::Definition(name, Err(error)) => (name, Some(error)),
    };
    match outage {
        Some(error) => outages.insert(what, error.report()),
        None => outages.remove(&what),
    };
}

/// What has changed.
enum Change {
    Secret(Result<()>),
    Definition(String, Result<Option<Box<Definition>>>),
}

impl Keeper {
    pub(super) fn new(
        client: Client,
        flags: &Flags,
        types: &[MachineTypes],
        made: MadeCertificate,
        report: Report,
    ) -> Self {
        let names = types.iter().flat_map(|types| {
            let versions = types.versions();
            definitions_of(types).into_iter().map(move |name| (name, versions.clone()))
        });
        Self {
            client,
            secret: Some(authority_secret(flags)),
            names: names.collect(),
            definitions: BTreeMap::new(),
            paces: BTreeMap::new(),
            authorities: None,
            certificate: None,
            made,
            report,
        }
    }

    /// One whose server has the certificate of files.
    pub(super) fn of_files(client: Client, flags: &Flags, types: &[MachineTypes], report: Report) -> Self {
        Self { secret: None, ..Self::new(client, flags, types, MadeCertificate::default(), report) }
    }

    /// Whether the server has a certificate.
    fn can_serve(&self) -> bool {
        self.secret.is_none() || self.certificate.is_some()
    }

    /// Never ends.
    pub(super) async fn run(mut self) {
        let mut changes = self.changes();
        let mut outages = BTreeMap::new();
        // All definitions come at once. Before that there is nothing to tell about those that are late.
        let all = async {
            while self.definitions.len() < self.names.len() {
                let Some(change) = changes.next().await else { break };
                take(&mut self.definitions, &mut outages, change);
            }
        };
        let _ = tokio::time::timeout(GATHERING_TIMEOUT, all).await;
        loop {
            let settled = self.settle(Timestamp::now()).await;
            let pause = if settled.is_failing { RETRY_INTERVAL } else { LOOK_INTERVAL };
            let pause = settled.wait.map_or(pause, |wait| pause.min(wait));
            let faults = settled.faults.into_iter().chain(outages.values().cloned());
            self.report.set(self.can_serve(), faults.collect());
            if let Ok(Some(change)) = tokio::time::timeout(pause, changes.next()).await {
                take(&mut self.definitions, &mut outages, change);
            }
        }
    }

    fn changes(&self) -> impl Stream<Item = Change> + use<> {
        let client = watching::client(self.client.clone());
        let secret = self.secret.as_ref().map(|secret| {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace);
            let changes = follow(secrets, &secret.name, format!("Secret {secret}"), drop);
            changes.map(|answer| Change::Secret(answer.map(drop))).boxed()
        });
        let definitions = self.names.iter().map(|(name, _)| name.clone()).map(|name| {
            let api: Api<CustomResourceDefinition> = Api::all(client.clone());
            let shown = format!("CustomResourceDefinition {name}");
            follow(api, &name.clone(), shown, |found| Box::new(Definition::from(found)))
                .map(move |answer| Change::Definition(name.clone(), answer))
                .boxed()
        });
        select_all(definitions.chain(secret))
    }

    /// Does all that is due.
    async fn settle(&mut self, now: Timestamp) -> Settled {
        let mut settled = Settled::default();
        let Some(secret) = self.secret.clone() else {
            self.keep_definitions(Trust::OfFiles, now, &mut settled).await;
            return settled;
        };
        match self.keep_authority(&secret, now).await {
            Ok(authorities) => {
                let bundle = authorities.bundle();
                self.authorities = Some(authorities);
                // They trust an authority before it signs.
                self.keep_definitions(Trust::Own(&bundle), now, &mut settled).await;
            }
            // The one that is known goes on serving. As it may be old, it is not written over a newer one.
            Err(error) => {
                settled.fails(format!("the authority of the webhook: {}", error.report()));
                self.keep_definitions(Trust::Unknown, now, &mut settled).await;
            }
        }
        if let Err(error) = self.certify(now) {
            settled.fails(format!("the certificate of the webhook: {error:#}"));
        }
        settled
    }

    /// The authority of all replicas. Makes it, or what takes its place, where that is due.
    async fn keep_authority(&self, secret: &SecretName, now: Timestamp) -> Result<Authorities> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &secret.namespace);
        let failed = |verb: &str, error: &kube::Error| {
            let what = format!("Secret {secret} cannot be {verb}");
            api_error(&what, "the service account needs get, create and update on it", error)
        };
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let found = secrets.get_opt(&secret.name).await.map_err(|error| failed("read", &error))?;
            let known = found.as_ref().map(parsed).transpose().map_err(|error| {
                let words = format!("Secret {secret}: {error:#}; delete it, and another one is made");
                Error::new(cloudprovider::ErrorKind::InvalidConfiguration, words)
            })?;
            let known = known.flatten();
            let internal = |error: anyhow::Error| {
                Error::new(cloudprovider::ErrorKind::Internal, format!("no authority can be made: {error:#}"))
            };
            let due = match (&known, &self.authorities) {
                // Somebody deleted it: what replicas have signed stays trusted until all of them have read this.
                (None, Some(before)) => Some(before.another(&secret.name, now)),
                (None, None) => Some(Authorities::first(&secret.name, now)),
                (Some(known), _) => known.due(&secret.name, now, |next| self.is_trusted(next)).transpose(),
            };
            let due = due.transpose().map_err(internal)?;
            let due = match (due, known) {
                (None, Some(known)) => return Ok(known),
                (None, None) => continue,
                (Some(due), _) => due,
            };
            let metadata = found.as_ref().map_or_else(
                || ObjectMeta {
                    name: Some(secret.name.clone()),
                    namespace: Some(secret.namespace.clone()),
                    ..ObjectMeta::default()
                },
                // With the version that was read, so that only one replica succeeds.
                |found| found.metadata.clone(),
            );
            let data = due.data().into_iter().map(|(key, value)| (key, ByteString(value))).collect();
            let body = Secret { metadata, data: Some(data), ..Secret::default() };
            let written = match found {
                None => secrets.create(&PostParams::default(), &body).await,
                Some(_) => secrets.replace(&secret.name, &PostParams::default(), &body).await,
            };
            match written {
                Ok(_) => return Ok(due),
                Err(kube::Error::Api(status)) if status.code == 409 => last = Some(kube::Error::Api(status)),
                Err(error) => return Err(failed("written", &error)),
            }
        }
        let words = format!("Secret {secret} changes all the time");
        Err(last.map_or_else(
            || Error::new(cloudprovider::ErrorKind::Conflict, words),
            |error| failed("written", &error),
        ))
    }

    /// Whether all definitions that there are trust this certificate.
    fn is_trusted(&self, certificate: &str) -> bool {
        let read = self.names.iter().map(|(name, _)| self.definitions.get(name));
        read.into_iter()
            .all(|known| known.is_some_and(|one| one.as_ref().is_none_or(|one| one.trusts(certificate))))
    }

    /// Makes the certificate of the server, if another one is due.
    fn certify(&mut self, now: Timestamp) -> anyhow::Result<()> {
        let known = self.definitions.values().flatten();
        let names: BTreeSet<String> = known.filter_map(Definition::host).collect();
        let names: Vec<String> = names.into_iter().collect();
        let Some(signer) = self.authorities.as_ref().map(Authorities::signer) else { return Ok(()) };
        if names.is_empty() {
            return Ok(());
        }
        let is_right = |(of, by, renew): &(Vec<String>, String, Timestamp)| {
            *of == names && by == signer.certificate() && now < *renew
        };
        if !self.certificate.as_ref().is_some_and(is_right) {
            let signed = signer.sign(&names, now)?;
            self.made.set(signed.certified);
            self.certificate = Some((names, signer.certificate().to_owned(), signed.renew));
        }
        Ok(())
    }

    /// Writes the authority where it is missing.
    async fn keep_definitions(&mut self, trust: Trust<'_>, now: Timestamp, settled: &mut Settled) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for (name, versions) in &self.names {
            let Some(definition) = self.definitions.get(name) else {
                settled.faults.push(format!("the CustomResourceDefinition {name} was not read yet"));
                continue;
            };
            let patch = match decide(name, definition.as_ref(), versions, trust) {
                Decision::Right => continue,
                Decision::Wrong(why) => {
                    settled.faults.push(why);
                    continue;
                }
                Decision::Apply(patch) => patch,
            };
            let Some(definition) = definition else { continue };
            let pace = self.paces.get(name);
            if let Some((pace, wait)) = pace.and_then(|pace| Some((pace, pace.wait(definition.uid(), now)?)))
            {
                settled.wait = Some(settled.wait.map_or(wait, |other| other.min(wait)));
                if pace.is_contested() {
                    settled.faults.push(contested(name, definition.writer()));
                }
                continue;
            }
            let params = PatchParams::apply(MANAGER).force();
            match definitions.patch(name, &params, &Patch::Apply(&patch)).await {
                Ok(written) => {
                    tracing::info!(name, "the authority of the webhook was written");
                    let pace = Pace::after_write(pace, definition.uid(), now);
                    self.paces.insert(name.clone(), pace);
                    self.definitions.insert(name.clone(), Some(written.into()));
                }
                Err(error) => {
                    let what = format!("CustomResourceDefinition {name} cannot be changed");
                    let error = api_error(&what, "the service account needs patch on it", &error);
                    settled.fails(error.report());
                }
            }
        }
    }
}

/// Somebody undoes what is written to the definition.
fn contested(name: &str, writer: Option<&str>) -> String {
    let who = match writer {
        Some(MANAGER) => "another cloud-controller-manager, whose authority is in another Secret,".to_owned(),
        Some(other) => format!("{other:?} (its name in managedFields)"),
        None => "somebody".to_owned(),
    };
    format!(
        "the CustomResourceDefinition {name}: {who} changes spec.conversion.webhook.clientConfig.caBundle again and again: only \
         one may write it"
    )
}

/// How it ended.
#[derive(Debug, Default)]
struct Settled {
    /// What is wrong.
    faults: Vec<String>,
    /// Whether another try may help.
    is_failing: bool,
    /// When a definition may be written that has to wait.
    wait: Option<Duration>,
}

impl Settled {
    fn fails(&mut self, fault: String) {
        self.faults.push(fault);
        self.is_failing = true;
    }
}

fn parsed(secret: &Secret) -> anyhow::Result<Option<Authorities>> {
    let data = secret.data.iter().flatten();
    let data: BTreeMap<_, _> = data.map(|(key, ByteString(value))| (key.clone(), value.clone())).collect();
    Authorities::parse(&data)
}

#[cfg(test)]
mod tests;
