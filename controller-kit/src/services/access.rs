//! What providers do in the cluster for load balancers that no cloud runs.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use cloudprovider::{
    AddressClaim, AddressUse, ConfigMapName, ConfigMapStream, EndOfTerm, Error, ErrorKind, Result,
    ServiceAccess, ServiceChange, ServiceRef, UsedAddresses, async_trait,
};
use component::{
    events::{EventObject, EventRecorder, EventType},
    watching,
};
use futures::future::join_all;
use k8s_openapi::api::{core::v1::ConfigMap, networking::v1::IPAddress};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    Service, ServiceStore,
    activity::ProviderActivity,
    claims,
    in_use::{ControlPlanes, InUse},
    wire::WireService,
};
use crate::{api_errors::api_error, clients::TermFence, followed::follow, nodes::NodeStore};

/// How long what ends with a term may take. If it takes longer, the Lease is not given back.
const END_OF_TERM_TIMEOUT: Duration = Duration::from_secs(2);

/// Deadline of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How many objects one page of a list has.
const PAGE: u32 = 500;

/// Access to the Services of the cluster. Reads work at any time, and writes in a term of the service controller.
pub struct ClusterServices {
    reads: Client,
    watches: Client,
    /// The Services as a watch shows them, if there is one.
    shown: ServiceStore,
    in_use: InUse,
    activity: ProviderActivity,
    term: Mutex<Option<Term>>,
    ends: Mutex<Vec<Weak<dyn EndOfTerm>>>,
}

/// With what a leader writes.
#[derive(Clone)]
struct Term {
    client: Client,
    fence: TermFence,
    events: EventRecorder,
}

/// A term of the service controller, until this is dropped.
#[derive(Debug)]
pub struct AccessTerm(Arc<ClusterServices>);

impl ClusterServices {
    /// `reads` is for single requests, and `informers` for watches. `shown` are the Services as a watch shows them, and empty
    /// where nothing watches. Nothing can be written until a [term](Self::begin_term) begins.
    pub fn new(reads: Client, informers: Client, shown: ServiceStore) -> Self {
        let (term, ends) = (Mutex::default(), Mutex::default());
        let activity = ProviderActivity::default();
        let in_use = InUse::new(NodeStore::new(), shown.clone(), None);
        Self { reads, watches: watching::client(informers), shown, in_use, activity, term, ends }
    }

    /// With the Nodes as a watch shows them, and the URL of the API server: their addresses are in use.
    #[must_use]
    pub fn with_users(self, nodes: NodeStore, api_server: Option<&str>) -> Self {
        let url = api_server.and_then(|url| url.parse::<http::Uri>().ok());
        let host = url.as_ref().and_then(http::Uri::host).map(|host| host.trim_matches(['[', ']']));
        let host = host.and_then(|host| host.parse().ok());
        Self { in_use: InUse::new(nodes, self.shown.clone(), host), ..self }
    }

    /// From now on the endpoints of these control planes are in use.
    pub fn add_control_planes(&self, control_planes: ControlPlanes) {
        self.in_use.add(control_planes);
    }

    /// What the provider does by this access.
    pub fn activity(&self) -> &ProviderActivity {
        &self.activity
    }

    /// From now on `client` writes. It must not be able to write after the term, which `fence` ends.
    pub fn begin_term(
        self: &Arc<Self>,
        client: Client,
        fence: TermFence,
        events: EventRecorder,
    ) -> AccessTerm {
        *self.term.lock() = Some(Term { client, fence, events });
        AccessTerm(Arc::clone(self))
    }

    fn term(&self) -> Result<Term> {
        self.term.lock().clone().ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "nothing can be written: this daemon does not lead")
        })
    }

    fn addresses(&self) -> Api<IPAddress> {
        Api::all(self.reads.clone())
    }
}

/// The error of a write that somebody else was faster with.
fn conflict(claim: &AddressClaim) -> Error {
    let address = claim.address;
    let words = if claim.version.is_empty() {
        format!("{address} is in use already")
    } else {
        format!("the claim of {address} was changed by somebody else")
    };
    Error::new(ErrorKind::Conflict, words)
}

impl AccessTerm {
    /// Ends what only a leader does, for two seconds at most, and then the term.
    ///
    /// # Errors
    /// Something that only a leader does may go on for some seconds, so the Lease must not be given back.
    pub async fn end(self) -> Result<()> {
        let ends: Vec<Arc<dyn EndOfTerm>> = {
            let mut ends = self.0.ends.lock();
            ends.retain(|end| end.strong_count() > 0);
            ends.iter().filter_map(Weak::upgrade).collect()
        };
        let all = join_all(ends.iter().map(|end| end.stand_down()));
        let Ok(outcomes) = timeout(END_OF_TERM_TIMEOUT, all).await else {
            let words = format!("the cloud provider did not stand down within {END_OF_TERM_TIMEOUT:?}");
            return Err(Error::new(ErrorKind::Timeout, words));
        };
        outcomes.into_iter().collect()
    }
}

impl Drop for AccessTerm {
    fn drop(&mut self) {
        *self.0.term.lock() = None;
    }
}

impl fmt::Debug for ClusterServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterServices").finish_non_exhaustive()
    }
}

#[async_trait]
impl ServiceAccess for ClusterServices {
    async fn claims(&self) -> Result<Vec<AddressClaim>> {
        let (api, what) = (self.addresses(), "the claims of addresses cannot be read");
        let mut params = ListParams::default().labels(&claims::selector()).limit(PAGE);
        let mut all = Vec::new();
        loop {
            let page = match in_time(what, "list on ipaddresses", api.list(&params)).await {
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(no_claims(what)),
                page => page?,
            };
            all.extend(page.items.iter().filter_map(claims::from_object));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    async fn assigned(&self) -> Result<Vec<(ServiceRef, IpAddr)>> {
        let (api, what) = (Api::<WireService>::all(self.reads.clone()), "the Services cannot be read");
        let mut params = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            let page = in_time(what, "list on services", api.list(&params)).await?;
            all.extend(page.items.into_iter().map(Service::from).flat_map(assigned_to));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    async fn in_use(&self) -> Result<Arc<UsedAddresses>> {
        Ok(self.in_use.get(&self.reads).await)
    }

    async fn use_of(&self, address: IpAddr) -> Result<AddressUse> {
        let (what, name) = (format!("the claim of {address} cannot be read"), address.to_string());
        let found = in_time(&what, "get on ipaddresses", self.addresses().get_opt(&name)).await?;
        Ok(match found {
            None => AddressUse::Free,
            Some(object) => match claims::from_object(&object) {
                Some(claim) => AddressUse::Claimed(claim),
                None => AddressUse::Elsewhere(claims::parent(&object)),
            },
        })
    }

    async fn write_claim(&self, claim: &AddressClaim) -> Result<AddressClaim> {
        let api: Api<IPAddress> = Api::all(self.term()?.client);
        let (address, name) = (claim.address, claim.address.to_string());
        let what = format!("the claim of {address} cannot be written");
        let written = if claim.version.is_empty() {
            let (params, object) = (PostParams::default(), claims::to_object(claim));
            in_time(&what, "create on ipaddresses", api.create(&params, &object)).await
        } else {
            let (params, body) = (PatchParams::default(), Patch::Merge(claims::to_patch(claim)));
            in_time(&what, "patch on ipaddresses", api.patch(&name, &params, &body)).await
        };
        match written {
            Ok(object) => Ok(AddressClaim {
                version: object.metadata.resource_version.unwrap_or_default(),
                ..claim.clone()
            }),
            Err(error) if error.kind() == ErrorKind::Conflict => Err(conflict(claim)),
            // A patch of a claim that is gone. A cluster without this kind answers like this too.
            Err(error) if error.kind() == ErrorKind::NotFound => Err(if claim.version.is_empty() {
                no_claims(&what)
            } else {
                Error::new(ErrorKind::Conflict, format!("the claim of {address} is gone"))
            }),
            Err(error) => Err(error),
        }
    }

    async fn delete_claim(&self, claim: &AddressClaim) -> Result<()> {
        let api: Api<IPAddress> = Api::all(self.term()?.client);
        let (address, name) = (claim.address, claim.address.to_string());
        let resource_version = Some(claim.version.clone()).filter(|version| !version.is_empty());
        let preconditions = Some(Preconditions { resource_version, uid: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let what = format!("the claim of {address} cannot be deleted");
        let deleted = in_time(&what, "delete on ipaddresses", api.delete(&name, &params)).await;
        match deleted {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == ErrorKind::Conflict => Err(conflict(claim)),
            Err(error) => Err(error),
        }
    }

    async fn exists(&self, service: &ServiceRef) -> Result<bool> {
        // Nearly all are there, and there may be thousands.
        if self.shown.get(&service.to_string()).is_some_and(|shown| is_this(&shown, service)) {
            return Ok(true);
        }
        let api: Api<WireService> = Api::namespaced(self.reads.clone(), &service.namespace);
        // The daemon may list Services, but may not get one. Without a version the answer is not from a cache.
        let one = ListParams::default().fields(&format!("metadata.name={}", service.name));
        let what = format!("Service {service} cannot be read");
        let found = in_time(&what, "list on services", api.list(&one)).await?;
        Ok(found.items.into_iter().map(Service::from).any(|found| is_this(&found, service)))
    }

    async fn change_service(&self, service: &ServiceRef, change: &ServiceChange) -> Result<()> {
        if change.is_empty() {
            return Ok(());
        }
        let api: Api<WireService> = Api::namespaced(self.term()?.client, &service.namespace);
        let body = change_patch(service, change, self.activity.version_of(service));
        let (params, body) = (PatchParams::default(), Patch::Merge(body));
        let what = format!("Service {service} cannot be changed");
        let patched = api.patch_metadata(&service.name, &params, &body);
        match in_time(&what, "patch on services", patched).await {
            Ok(now) => {
                self.activity.note(service, change, now.metadata.resource_version.unwrap_or_default());
                Ok(())
            }
            Err(error) => {
                if error.kind() == ErrorKind::Conflict {
                    self.activity.note_outdated(service);
                }
                Err(error)
            }
        }
    }

    fn alone_for(&self) -> Duration {
        self.term.lock().as_ref().map_or(Duration::ZERO, |term| term.fence.alone_for())
    }

    fn retry_waiting(&self) {
        self.activity.retry();
    }

    fn waits_for_more(&self, service: &ServiceRef) {
        self.activity.note_wait_for_more(service);
    }

    fn warn(&self, service: &ServiceRef, reason: &'static str, message: String) {
        let ServiceRef { namespace, name, uid } = service.clone();
        match self.term() {
            Ok(term) => {
                let object = EventObject { api_version: "v1".into(), kind: "Service", namespace, name, uid };
                term.events.record(object, EventType::Warning, reason, message);
            }
            Err(_) => tracing::warn!(service = %service, reason, "{message}"),
        }
    }

    fn follow_config_map(&self, name: &ConfigMapName) -> ConfigMapStream {
        let api: Api<ConfigMap> = Api::namespaced(self.watches.clone(), &name.namespace);
        follow(api, &name.name, format!("ConfigMap {name}"), |map: ConfigMap| map.data.unwrap_or_default())
    }

    fn at_end_of_term(&self, what: Weak<dyn EndOfTerm>) {
        let mut ends = self.ends.lock();
        ends.retain(|end| end.strong_count() > 0);
        ends.push(what);
    }
}

/// The addresses in the status of a Service that wants a load balancer of ours.
fn assigned_to(service: Service) -> Vec<(ServiceRef, IpAddr)> {
    if !service.wants_load_balancer() {
        return Vec::new();
    }
    let content = service.content;
    let service = ServiceRef { namespace: content.namespace, name: content.name, uid: content.uid };
    let addresses = content.status.ingress.into_iter().filter_map(|ingress| ingress.ip?.parse().ok());
    addresses.map(|address| (service.clone(), address)).collect()
}

/// Whether it has this name, and this UID if one is given.
fn is_this(found: &Service, service: &ServiceRef) -> bool {
    found.content.name == service.name && (service.uid.is_empty() || found.uid() == service.uid)
}

/// With a version, the API server refuses the patch if the Service has another one.
fn change_patch(service: &ServiceRef, change: &ServiceChange, version: Option<String>) -> Value {
    let texts = |map: &std::collections::BTreeMap<String, Option<String>>| {
        map.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Map<String, Value>>()
    };
    let mut metadata = json!({"uid": service.uid});
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
    }
    for (field, map) in [("annotations", &change.annotations), ("labels", &change.labels)] {
        if !map.is_empty() {
            metadata[field] = texts(map).into();
        }
    }
    let mut body = json!({"metadata": metadata});
    if let Some(address) = &change.load_balancer_ip {
        body["spec"] = json!({"loadBalancerIP": address});
    }
    body
}

/// The cluster cannot store claims. It is tried again, since the cluster may be upgraded.
fn no_claims(what: &str) -> Error {
    let words = "the cluster has no IPAddress of networking.k8s.io/v1, which comes with Kubernetes 1.33";
    Error::new(ErrorKind::Unavailable, format!("{what}: {words}"))
}

/// Makes a request with a deadline.
async fn in_time<T>(
    what: &str,
    verb_and_resource: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            Err(api_error(what, &format!("the service account needs {verb_and_resource}"), &error))
        }
        Err(_) => {
            Err(Error::new(ErrorKind::Timeout, format!("{what}: no answer within {REQUEST_TIMEOUT:?}")))
        }
    }
}

#[cfg(test)]
mod tests;
