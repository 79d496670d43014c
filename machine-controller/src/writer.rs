//! Reads and writes of single objects.

use std::sync::Arc;

use cloudprovider::{
    FairPermit, FairPermits,
    machines::{AuxiliaryKind, Kinds},
};
use component::api_client::describe;
use controller_kit::writes::{
    JSON_PATCH, MERGE_PATCH, WHOLE_OBJECT, WriteError, create_as, delete, patch_as, within_deadline,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use serde_json::{Map, Value, json};

use super::{
    auxiliary::{Auxiliary, WireAuxiliary},
    cluster_api::Bootstrap,
    names::{CLUSTER_NAME_LABEL, CORE_GROUP},
    object::InfraObject,
    object_key::ObjectKind,
    owned::Write,
};

/// Asks for the metadata of a list alone.
const ONLY_METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// How many requests wait for an answer at the same time. Each takes a connection, with its buffers, and the
/// API server answers no faster if there are more.
pub(super) const MAX_REQUESTS: usize = 32;

/// Reads and writes objects of the provider's kinds, and reads Secrets. Clones share the limit on requests.
#[derive(Clone)]
pub(super) struct ObjectWriter {
    client: Client,
    kinds: Kinds,
    turns: FairPermits<Arc<str>>,
}

impl std::fmt::Debug for ObjectWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectWriter").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

impl ObjectWriter {
    /// A writer over this client.
    pub(super) fn new(client: Client, kinds: Kinds) -> Self {
        Self { client, kinds, turns: FairPermits::new(MAX_REQUESTS) }
    }

    /// Waits until a request for an object of this namespace may be sent. Namespaces take turns. It counts
    /// until this is dropped.
    async fn turn(&self, namespace: &str) -> Option<FairPermit<Arc<str>>> {
        // it is never closed
        self.turns.acquire(namespace.into()).await.ok()
    }

    fn path(&self, kind: ObjectKind, object: &InfraObject) -> String {
        let Kinds { group, version, .. } = self.kinds;
        let (namespace, plural, name) = (object.namespace(), kind.plural(&self.kinds), object.name());
        format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}")
    }

    /// Sends a merge patch that carries UID and version, and gives the object as it is then.
    pub(super) async fn patch(
        &self,
        kind: ObjectKind,
        object: &InfraObject,
        body: &Value,
    ) -> Result<InfraObject, WriteError> {
        let _turn = self.turn(object.namespace()).await;
        let path = self.path(kind, object);
        let answer = patch_as::<InfraObject>(&self.client, &path, MERGE_PATCH, body, WHOLE_OBJECT).await;
        answer.map(InfraObject::lean)
    }

    /// Writes this whole status to this very version of the object, and gives the object as it is then.
    pub(super) async fn write_status(
        &self,
        kind: ObjectKind,
        object: &InfraObject,
        status: &Map<String, Value>,
    ) -> Result<InfraObject, WriteError> {
        let _turn = self.turn(object.namespace()).await;
        let path = format!("{}/status", self.path(kind, object));
        let body = json!([
            {"op": "test", "path": "/metadata/uid", "value": object.metadata.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": object.metadata.resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let answer = patch_as::<InfraObject>(&self.client, &path, JSON_PATCH, &body, WHOLE_OBJECT).await;
        answer.map(InfraObject::lean)
    }

    /// The object as it is now.
    ///
    /// # Errors
    /// [`WriteError::Gone`] if it does not exist any more, or if another one has its name.
    pub(super) async fn read(
        &self,
        kind: ObjectKind,
        object: &InfraObject,
    ) -> Result<InfraObject, WriteError> {
        let _turn = self.turn(object.namespace()).await;
        let request = http::Request::get(self.path(kind, object))
            .body(Vec::new())
            .map_err(|error| WriteError::Failed(error.to_string()))?;
        let found = within_deadline(self.client.request::<InfraObject>(request)).await?;
        if found.metadata.uid == object.metadata.uid { Ok(found.lean()) } else { Err(WriteError::Gone) }
    }

    /// Makes one write of an owned object, and gives it as it is then. `None` after a deletion.
    ///
    /// # Errors
    /// [`WriteError::Stale`] also if one of this name exists already.
    pub(super) async fn write_owned(
        &self,
        kind: &AuxiliaryKind,
        namespace: &str,
        name: &str,
        found: Option<&Auxiliary>,
        write: &Write,
    ) -> Result<Option<Auxiliary>, WriteError> {
        let _turn = self.turn(namespace).await;
        let all = collection(kind, namespace);
        let one = format!("{all}/{name}");
        let (uid, version) = match found {
            Some(found) => (&found.metadata.uid, &found.metadata.resource_version),
            None => (&None, &None),
        };
        let written = match write {
            Write::Create(body) => create_as::<WireAuxiliary>(&self.client, &all, body).await?,
            Write::Change(body) => {
                patch_as::<WireAuxiliary>(&self.client, &one, MERGE_PATCH, body, WHOLE_OBJECT).await?
            }
            Write::Status(status) => {
                let body = json!([
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                    {"op": "add", "path": "/status", "value": status},
                ]);
                let path = format!("{one}/status");
                patch_as::<WireAuxiliary>(&self.client, &path, JSON_PATCH, &body, WHOLE_OBJECT).await?
            }
            Write::Delete => {
                let body = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
                return delete(&self.client, &one, &body).await.map(|()| None);
            }
        };
        Ok(Some(written.into()))
    }

    /// Makes one write of an object that nobody owns, and gives it as it is then.
    pub(super) async fn write_status_only(
        &self,
        kind: &AuxiliaryKind,
        found: &Auxiliary,
        write: &Write,
    ) -> Result<Auxiliary, WriteError> {
        let _turn = self.turn(found.object.namespace.as_deref().unwrap_or_default()).await;
        let AuxiliaryKind { group, version, plural, .. } = kind;
        let all = match &found.object.namespace {
            Some(namespace) => collection(kind, namespace),
            None => format!("/apis/{group}/{version}/{plural}"),
        };
        let one = format!("{all}/{}", found.object.name);
        let written = match write {
            Write::Status(status) => {
                let body = json!([
                    {"op": "test", "path": "/metadata/uid", "value": found.metadata.uid},
                    {"op": "test", "path": "/metadata/resourceVersion", "value": found.metadata.resource_version},
                    {"op": "add", "path": "/status", "value": status},
                ]);
                let path = format!("{one}/status");
                patch_as::<WireAuxiliary>(&self.client, &path, JSON_PATCH, &body, WHOLE_OBJECT).await?
            }
            Write::Change(body) => {
                patch_as::<WireAuxiliary>(&self.client, &one, MERGE_PATCH, body, WHOLE_OBJECT).await?
            }
            Write::Create(_) | Write::Delete => {
                let words = format!("{one} is neither made nor deleted by the controller");
                return Err(WriteError::Failed(words));
            }
        };
        Ok(written.into())
    }

    /// An owned object as it is now.
    ///
    /// # Errors
    /// [`WriteError::Gone`] if there is none.
    pub(super) async fn read_owned(
        &self,
        kind: &AuxiliaryKind,
        namespace: &str,
        name: &str,
    ) -> Result<Auxiliary, WriteError> {
        let _turn = self.turn(namespace).await;
        let request = http::Request::get(format!("{}/{name}", collection(kind, namespace)))
            .body(Vec::new())
            .map_err(|error| WriteError::Failed(error.to_string()))?;
        within_deadline(self.client.request::<WireAuxiliary>(request)).await.map(Auxiliary::from)
    }

    /// Whether an object of this kind names an owner with this UID, among those of a Cluster. The API server
    /// is asked.
    ///
    /// # Errors
    /// It does not give the list.
    pub(super) async fn has_owned(
        &self,
        kind: &AuxiliaryKind,
        namespace: &str,
        cluster: Option<&str>,
        uid: &str,
    ) -> Result<bool, WriteError> {
        let _turn = self.turn(namespace).await;
        let selector = cluster.map(|name| format!("?labelSelector={CLUSTER_NAME_LABEL}%3D{name}"));
        let path = format!("{}{}", collection(kind, namespace), selector.unwrap_or_default());
        let request = http::Request::get(path)
            .header(http::header::ACCEPT, ONLY_METADATA)
            .body(Vec::new())
            .map_err(|error| WriteError::Failed(error.to_string()))?;
        let found = within_deadline(self.client.request::<Value>(request)).await?;
        let all = found["items"].as_array().into_iter().flatten();
        let mut owners = all.filter_map(|one| one["metadata"]["ownerReferences"].as_array()).flatten();
        Ok(owners.any(|owner| owner["uid"] == uid))
    }

    /// A Machine of Cluster API's core, as it is now.
    ///
    /// # Errors
    /// [`WriteError::Gone`] if there is none.
    pub(super) async fn core_machine(
        &self,
        version: &str,
        namespace: &str,
        name: &str,
    ) -> Result<InfraObject, WriteError> {
        self.get(namespace, core_machine(version, namespace, name)).await
    }

    /// The infrastructure with this name, as it is now.
    ///
    /// # Errors
    /// [`WriteError::Gone`] if there is none, and [`WriteError::Failed`] also if it cannot be read as such an object.
    pub(super) async fn infra_machine(&self, namespace: &str, name: &str) -> Result<InfraObject, WriteError> {
        let Kinds { group, version, machine, .. } = &self.kinds;
        let path = format!("/apis/{group}/{version}/namespaces/{namespace}/{}/{name}", machine.plural);
        self.get(namespace, path).await
    }

    async fn get(&self, namespace: &str, path: String) -> Result<InfraObject, WriteError> {
        let _turn = self.turn(namespace).await;
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|error| WriteError::Failed(error.to_string()))?;
        within_deadline(self.client.request::<InfraObject>(request)).await
    }

    /// Writes all conditions of this very version of a Machine of Cluster API's core, and nothing else of it.
    pub(super) async fn write_core_conditions(
        &self,
        version: &str,
        machine: &InfraObject,
        conditions: &Value,
    ) -> Result<(), WriteError> {
        let _turn = self.turn(machine.namespace()).await;
        let path = format!("{}/status", core_machine(version, machine.namespace(), machine.name()));
        let body = json!([
            {"op": "test", "path": "/metadata/uid", "value": machine.metadata.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": machine.metadata.resource_version},
            {"op": "add", "path": "/status/conditions", "value": conditions},
        ]);
        patch_as::<InfraObject>(&self.client, &path, JSON_PATCH, &body, WHOLE_OBJECT).await.map(drop)
    }

    /// The bootstrap data in this Secret.
    ///
    /// # Errors
    /// The API server does not answer. A refusal is no error: it is said in a condition.
    pub(super) async fn bootstrap(&self, namespace: &str, name: &str) -> Result<Bootstrap, WriteError> {
        let _turn = self.turn(namespace).await;
        let secrets = kube::Api::<Secret>::namespaced(self.client.clone(), namespace);
        let read = async {
            match secrets.get_opt(name).await {
                Err(error @ kube::Error::Api(_)) if is_refusal(&error) => {
                    Ok(Bootstrap::Unusable(format!("it cannot be read: {}", describe(&error))))
                }
                Err(error) => Err(error),
                Ok(None) => Ok(Bootstrap::Missing),
                Ok(Some(secret)) => {
                    let data = secret.data.unwrap_or_default();
                    Ok(Bootstrap::from_secret(|key| data.get(key).map(|content| content.0.as_slice())))
                }
            }
        };
        within_deadline(read).await
    }
}

/// The path of a Machine of Cluster API's core.
fn core_machine(version: &str, namespace: &str, name: &str) -> String {
    format!("/apis/{CORE_GROUP}/{version}/namespaces/{namespace}/machines/{name}")
}

/// The path of the objects of an auxiliary kind in a namespace.
fn collection(kind: &AuxiliaryKind, namespace: &str) -> String {
    let AuxiliaryKind { group, version, plural, .. } = kind;
    format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")
}

fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cloudprovider::machines::Kind;
    use futures::future::join_all;

    use super::*;

    const KINDS: Kinds =
        Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));

    /// A writer whose requests take a second each, and the most requests at a time.
    fn slow_writer() -> (ObjectWriter, Arc<AtomicUsize>) {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&most);
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let (now, seen) = (Arc::clone(&now), Arc::clone(&seen));
            async move {
                seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("away"))
            }
        });
        (ObjectWriter::new(Client::new(service, "default"), KINDS), most)
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_requests_than_connections() {
        let (writer, most) = slow_writer();
        let names: Vec<_> = (0..100).map(|number| format!("data-{number}")).collect();
        let all = join_all(names.iter().map(|name| writer.bootstrap("default", name))).await;
        assert_eq!((all.len(), most.load(Ordering::SeqCst)), (100, MAX_REQUESTS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_of_another_namespace_does_not_wait_behind_a_thousand() {
        let (writer, _) = slow_writer();
        let many = join_all((0..1_000).map(|_| writer.bootstrap("team-a", "data")));
        let began = tokio::time::Instant::now();
        let other = async {
            tokio::task::yield_now().await;
            let answer = writer.bootstrap("team-b", "data").await;
            (answer.is_err(), began.elapsed().as_secs())
        };
        let (_, other) = tokio::join!(many, other);
        assert_eq!(other, (true, 2), "those at work, and then its own");
    }
}
