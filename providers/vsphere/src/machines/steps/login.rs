//! Where the calls of an object are made, and with whose credentials.

use std::sync::Arc;

use cloudprovider::{
    Error, ErrorKind, Result, SecretName,
    machines::{Condition, ConditionStatus, Mark, Objects, ObserveRequest, StatusReport},
};
use serde_json::json;

use super::step::{DeletionRequest, Request};
use crate::{
    endpoint::Endpoint,
    machines::{
        allowed::{allows_server, server_denied},
        identities::ObjectKey,
        kinds::{CLUSTER_IDENTITY_KIND, NAMESPACE_KIND},
        server::endpoint,
        session_pool::{Use, no_server},
        spec::{
            IdentityKind, VSphereClusterIdentitySpec, VSphereClusterSpec, VSphereIdentityReference,
            VSphereMachineSpec, invalid,
        },
        status::{UsedLogin, VSphereMachineStatus},
        vcenter_handle::VCenterHandle,
        vsphere_machines::VSphereMachines,
    },
};

const READY: &str = "Ready";
/// Whether an identity has credentials.
const AVAILABLE: &str = "Available";

/// What an object says about its vCenter and its credentials.
#[derive(Clone, Debug)]
pub(super) struct Login<'a> {
    /// Where the server is named, for errors.
    field: &'static str,
    server: Option<&'a str>,
    thumbprint: Option<&'a str>,
    identity: Option<&'a VSphereIdentityReference>,
    namespace: &'a str,
    uid: &'a str,
    objects: &'a Objects,
}

impl<'a> Login<'a> {
    /// That of a cluster.
    pub(super) fn of_cluster(
        spec: &'a VSphereClusterSpec,
        (namespace, uid): (&'a str, &'a str),
        objects: &'a Objects,
    ) -> Self {
        Self {
            field: "spec.server",
            server: given(spec.server.as_ref()),
            thumbprint: given(spec.thumbprint.as_ref()),
            identity: spec.identity_ref.as_ref(),
            namespace,
            uid,
            objects,
        }
    }

    /// That of a machine: its own server and thumbprint, or those of its cluster, and the credentials of its cluster.
    pub(super) fn of_machine(request: &'a Request) -> Self {
        let (own, cluster) = (&request.spec.clone, &request.cluster.spec);
        let mark = &request.mark;
        let server = server_of(&request.spec);
        Self {
            field: if server.is_some() { "spec.server" } else { "spec.server of the VSphereCluster" },
            server: server.or_else(|| given(cluster.server.as_ref())),
            thumbprint: given(own.thumbprint.as_ref()).or_else(|| given(cluster.thumbprint.as_ref())),
            ..Self::of_cluster(cluster, (&mark.namespace, &mark.uid), &request.objects)
        }
    }

    /// That of a machine that goes. `None` if neither its cluster nor its status says it.
    pub(super) fn of_deletion(request: &'a DeletionRequest, known: Option<&'a UsedLogin>) -> Option<Self> {
        let (own, mark) = (&request.spec.clone, &request.mark);
        let server = server_of(&request.spec);
        let cluster = request.cluster.spec.as_ref();
        if cluster.is_none() && known.is_none() && server.is_none() {
            return None;
        }
        let of_cluster = |field: fn(&VSphereClusterSpec) -> &Option<String>| {
            cluster.and_then(|cluster| given(field(cluster).as_ref()))
        };
        let known = known.filter(|_| cluster.is_none());
        Some(Self {
            field: if server.is_some() { "spec.server" } else { "spec.server of the VSphereCluster" },
            server: server
                .or_else(|| of_cluster(|cluster| &cluster.server))
                .or_else(|| known.and_then(|known| given(known.server.as_ref()))),
            thumbprint: given(own.thumbprint.as_ref())
                .or_else(|| of_cluster(|cluster| &cluster.thumbprint))
                .or_else(|| known.and_then(|known| given(known.thumbprint.as_ref()))),
            identity: cluster
                .and_then(|cluster| cluster.identity_ref.as_ref())
                .or_else(|| known.map(|known| &known.identity_ref)),
            namespace: &mark.namespace,
            uid: &mark.uid,
            objects: &request.objects,
        })
    }

    /// Whether the credentials are those that a cluster names.
    pub(super) fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// What a deletion needs to know of it if the cluster's object is gone by then. `vcenter` is where it leads, if that is known.
    pub(super) fn remembered(&self, vcenter: Option<&VCenterHandle>) -> Option<UsedLogin> {
        self.identity.map(|identity| UsedLogin {
            server: self.server.map(str::to_owned),
            vcenter_uuid: vcenter.and_then(uuid_of),
            thumbprint: self.thumbprint.map(str::to_owned),
            identity_ref: identity.clone(),
        })
    }

    /// Remembers in a status where the machine is made.
    pub(super) fn note(&self, vcenter: &VCenterHandle, status: &mut VSphereMachineStatus) {
        status.login = self.remembered(Some(vcenter));
        status.vcenter_uuid = if self.has_identity() { None } else { uuid_of(vcenter) };
    }
}

fn uuid_of(vcenter: &VCenterHandle) -> Option<String> {
    vcenter.state().instance_uuid.clone()
}

/// Where a machine was made, as far as its status says it.
#[derive(Debug)]
pub(super) struct MadeOn {
    /// The name of the vCenter, if the cluster named it.
    server: Option<String>,
    uuid: Option<String>,
}

impl MadeOn {
    pub(super) fn of(status: &VSphereMachineStatus) -> Self {
        let Some(login) = &status.login else {
            return Self { server: None, uuid: status.vcenter_uuid.clone() };
        };
        Self { server: given(login.server.as_ref()).map(str::to_owned), uuid: login.vcenter_uuid.clone() }
    }

    /// Whether this is the vCenter. Another one may get its name, and it may get another name. `None` if that is not known.
    pub(super) fn is(&self, vcenter: &VCenterHandle) -> Option<bool> {
        match (&self.uuid, uuid_of(vcenter), &self.server) {
            (Some(uuid), Some(found), _) => Some(*uuid == found),
            (_, _, Some(server)) => Some(vcenter.is_called(server)),
            _ => None,
        }
    }

    /// Whether it was made on another vCenter than these. What they do not have may be there.
    pub(super) fn is_elsewhere(&self, vcenters: &[Arc<VCenterHandle>]) -> bool {
        !vcenters.is_empty() && vcenters.iter().all(|vcenter| self.is(vcenter) == Some(false))
    }

    /// The error about what may be there.
    pub(super) fn elsewhere(&self, mark: &Mark) -> Error {
        match (&self.server, &self.uuid) {
            (Some(server), _) => invalid(format!(
                "spec.server of the VSphereCluster: the virtual machine was made on vCenter {server:?}, and another one is named, or has \
                 its name by now, which does not have it. It may run there still, so the finalizer stays. Name the first one again; if \
                 that is gone for good, an operator can remove the finalizer by hand"
            )),
            (None, uuid) => {
                let uuid = uuid.as_deref().unwrap_or_default();
                let place = format_args!("the vCenter with the instance UUID {uuid}");
                mark.out_of_reach("the virtual machine", place)
            }
        }
    }
}

/// Whether a login with the credentials of the configuration has failed since the configuration does not have its vCenter.
pub(super) fn is_out_of_reach(login: &Login<'_>, error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && !login.has_identity()
}

impl VSphereMachines {
    /// The vCenter of a machine, with its credentials. `has_begun`: whether something of it may be there.
    ///
    /// # Errors
    /// Those of [`vcenter_for`](Self::vcenter_for), and that the machine is out of reach.
    pub(super) async fn vcenter_of(
        &self,
        login: &Login<'_>,
        mark: &Mark,
        has_begun: bool,
    ) -> Result<Arc<VCenterHandle>> {
        self.vcenter_for(login).await.map_err(|error| {
            if !is_out_of_reach(login, &error) || !has_begun {
                return error;
            }
            let server = login.server.unwrap_or_default();
            mark.out_of_reach("the virtual machine", format_args!("vCenter {server:?}"))
        })
    }

    /// The vCenter of an object, with its credentials.
    ///
    /// # Errors
    /// What is wrong with the server, the identity, its Secret or the credentials.
    pub(super) async fn vcenter_for(&self, login: &Login<'_>) -> Result<Arc<VCenterHandle>> {
        let owner = ObjectKey::new(login.namespace, login.uid);
        let Some(identity) = login.identity else {
            self.pool.release(&owner);
            return self.configured_vcenter(login.field, login.server);
        };
        let named = self.endpoint_of(login).and_then(|endpoint| {
            let name = secret_of(identity, login.namespace, self.pool.own_namespace(), login.objects)?;
            Ok((endpoint, name))
        });
        let (endpoint, name) = named.inspect_err(|error| {
            if names_nothing(error) {
                self.pool.release(&owner);
            }
        })?;
        let reference = identity;
        let identity = self.pool.identity(&name, &owner)?;
        if let Err(error) = identity.credentials() {
            return Err(for_user(reference, error));
        }
        self.pool.vcenter_for(&self.configured, Use { owner: &owner, endpoint, identity }).await
    }

    /// Where an object that names credentials is to be served.
    fn endpoint_of(&self, login: &Login<'_>) -> Result<Endpoint> {
        let endpoints = || self.configured.iter().map(|vcenter| &vcenter.settings.endpoint);
        match (login.server, &self.configured[..]) {
            (Some(server), _) => {
                let endpoint = endpoint(login.field, server, login.thumbprint, endpoints())?;
                let authority = endpoint.authority();
                let is_configured = endpoints().any(|one| one.authority().eq_ignore_ascii_case(&authority));
                if is_configured || allows_server(&self.options.allow, login.namespace, &authority) {
                    return Ok(endpoint);
                }
                Err(server_denied(login.field, login.namespace, &authority))
            }
            (None, [only]) => {
                let server = only.vcenter.settings.endpoint.authority();
                endpoint(login.field, &server, login.thumbprint, endpoints())
            }
            (None, _) => Err(no_server(login.field)),
        }
    }

    /// What is said about an identity: whether its Secret has credentials.
    pub(super) fn observe_identity(&self, request: &ObserveRequest) -> Result<StatusReport> {
        let object = &request.object;
        let spec: VSphereClusterIdentitySpec =
            serde_json::from_value(object.spec.clone()).map_err(|error| invalid(format!("spec: {error}")))?;
        let name = SecretName { namespace: self.pool.own_namespace().to_owned(), name: spec.secret_name };
        let identity = self.pool.identity(&name, &ObjectKey::new("", &object.uid))?;
        let outcome = identity.credentials();
        if identity.is_unread() {
            // The Secret tells when it is read.
            return outcome.map(|_| StatusReport::default());
        }
        let one = |kind: &'static str| match &outcome {
            Ok(_) => Condition::new(kind, ConditionStatus::True, "Available"),
            Err(error) => Condition::new(kind, ConditionStatus::False, "SecretNotAvailable")
                .with_message(error.report()),
        };
        Ok(StatusReport::new(json!({"ready": outcome.is_ok()}), [one(READY), one(AVAILABLE)]))
    }
}

/// Whether this error says that an object names no vCenter and no Secret that it may use. Others say that it is not known now.
fn names_nothing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound | ErrorKind::PermissionDenied)
}

/// An error about the Secret of a reference, for those who use it. The Secret of a `VSphereClusterIdentity` is not in their
/// namespace, so they are not told its name.
fn for_user(reference: &VSphereIdentityReference, error: Error) -> Error {
    if reference.kind == IdentityKind::Secret {
        return error;
    }
    let words = format!(
        "spec.identityRef: VSphereClusterIdentity {:?} has no credentials; its condition {AVAILABLE} says why",
        reference.name
    );
    Error::new(error.kind(), words)
}

/// The Secret that a reference leads to.
///
/// # Errors
/// [`ErrorKind::NotFound`] if the identity does not exist, and [`ErrorKind::PermissionDenied`] if it does not allow the namespace.
fn secret_of(
    reference: &VSphereIdentityReference,
    namespace: &str,
    own_namespace: &str,
    objects: &Objects,
) -> Result<SecretName> {
    let name = &reference.name;
    if reference.kind == IdentityKind::Secret {
        return Ok(SecretName { namespace: namespace.to_owned(), name: name.clone() });
    }
    let Some(found) = objects.get(&CLUSTER_IDENTITY_KIND, None, name)? else {
        let words = format!("spec.identityRef: there is no VSphereClusterIdentity {name:?}");
        return Err(Error::new(ErrorKind::NotFound, words));
    };
    let what = format!("VSphereClusterIdentity {name:?}");
    let spec: VSphereClusterIdentitySpec = serde_json::from_value(found.spec.clone())
        .map_err(|error| invalid(format!("spec.identityRef: {what} cannot be read: {error}")))?;
    let denied =
        |why: &str| Error::new(ErrorKind::PermissionDenied, format!("spec.identityRef: {what} {why}"));
    let Some(allowed) = &spec.allowed_namespaces else {
        return Err(denied("allows no namespaces: it has no spec.allowedNamespaces"));
    };
    // Without a selector it allows all, as with an empty one.
    if let Some(selector) = &allowed.selector {
        let labels = match objects.get(&NAMESPACE_KIND, None, namespace)? {
            Some(found) => found.labels.clone(),
            None => {
                let words = format!("the namespace {namespace} has not been seen yet");
                return Err(Error::new(ErrorKind::Unavailable, words));
            }
        };
        let field = format!("spec.allowedNamespaces.selector of {what}");
        if !selector.selects(&field, &labels)? {
            return Err(denied(&format!("does not allow the namespace {namespace}")));
        }
    }
    if spec.secret_name.is_empty() {
        return Err(invalid(format!("spec.identityRef: {what} names no Secret in spec.secretName")));
    }
    Ok(SecretName { namespace: own_namespace.to_owned(), name: spec.secret_name })
}

fn given(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

/// The `server` that a machine names itself.
fn server_of(spec: &VSphereMachineSpec) -> Option<&str> {
    spec.clone.server.as_deref().filter(|server| !server.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cloudprovider::machines::AuxiliaryObject;

    use super::*;
    use crate::{inventory::Changes, machines::steps::tests::rig::rig};

    #[tokio::test(start_paused = true)]
    async fn a_vcenter_is_known_by_its_uuid_and_else_by_its_name() {
        let rig = rig().await;
        let vcenter = rig.machines.configured.clone();
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        for (known, server, uuid, expected) in [
            ("", "vc.example", "a", Some(true)),
            ("", "other.example", "a", Some(false)),
            ("", "", "a", None),
            ("", "", "", None),
            ("a", "other.example", "a", Some(true)),
            ("b", "vc.example", "a", Some(false)),
            ("b", "", "a", Some(false)),
            ("b", "vc.example", "", Some(true)),
            ("b", "", "", None),
        ] {
            rig.vcenter.update(|state| {
                state.instance_uuid = given(known);
                Changes::default()
            });
            let made_on = MadeOn { server: given(server), uuid: given(uuid) };
            assert_eq!(made_on.is(&vcenter[0]), expected, "{known:?} {made_on:?}");
            assert_eq!(made_on.is_elsewhere(&vcenter), expected == Some(false), "{known:?} {made_on:?}");
        }
        assert!(!MadeOn { server: given("vc.example"), uuid: None }.is_elsewhere(&[]));
    }

    fn reference(kind: IdentityKind) -> VSphereIdentityReference {
        VSphereIdentityReference { kind, name: "team".to_owned() }
    }

    fn objects(spec: serde_json::Value) -> Objects {
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        Objects::of([
            (CLUSTER_IDENTITY_KIND, AuxiliaryObject::new("team").with_spec(spec)),
            (NAMESPACE_KIND, AuxiliaryObject::new("lab").with_labels(labels)),
        ])
    }

    #[test]
    fn a_secret_is_beside_its_cluster() {
        let name = secret_of(&reference(IdentityKind::Secret), "lab", "own", &Objects::default());
        assert_eq!(name.expect("a name").to_string(), "lab/team");
    }

    #[test]
    fn a_status_names_no_secret_of_another_namespace() {
        let missing = || Error::new(ErrorKind::NotFound, "Secret kube-system/vc-admin does not exist");
        let told = for_user(&reference(IdentityKind::VSphereClusterIdentity), missing());
        assert_eq!(told.kind(), ErrorKind::NotFound);
        assert!(told.report().contains("VSphereClusterIdentity \"team\""), "{}", told.report());
        assert!(!told.report().contains("vc-admin"), "{}", told.report());
        assert_eq!(for_user(&reference(IdentityKind::Secret), missing()).report(), missing().report());
    }

    #[test]
    fn an_identity_says_who_may_use_it() {
        let selector = |team: &str| json!({"selector": {"matchLabels": {"team": team}}});
        let broken = json!({"selector": {"matchExpressions": [{"key": "team", "operator": "Is"}]}});
        for (allowed, namespace, expected) in [
            (json!(null), "lab", Err((ErrorKind::PermissionDenied, "allows no namespaces"))),
            (json!({}), "lab", Ok(())),
            (json!({"selector": {}}), "lab", Ok(())),
            (selector("a"), "lab", Ok(())),
            (selector("b"), "lab", Err((ErrorKind::PermissionDenied, "does not allow the namespace lab"))),
            (selector("a"), "other", Err((ErrorKind::Unavailable, "the namespace other has not been seen"))),
            (broken, "lab", Err((ErrorKind::InvalidInput, "of VSphereClusterIdentity \"team\""))),
        ] {
            let objects = objects(json!({"secretName": "vc", "allowedNamespaces": allowed}));
            let kind = IdentityKind::VSphereClusterIdentity;
            match (secret_of(&reference(kind), namespace, "own", &objects), expected) {
                (Ok(name), Ok(())) => assert_eq!(name.to_string(), "own/vc"),
                (Err(error), Err((kind, words))) => {
                    assert_eq!(error.kind(), kind, "{error}");
                    assert!(error.to_string().contains(words), "{error}");
                }
                (found, expected) => panic!("{allowed}: {found:?} and not {expected:?}"),
            }
        }
        let missing =
            secret_of(&reference(IdentityKind::VSphereClusterIdentity), "lab", "own", &Objects::default());
        assert_eq!(missing.expect_err("none").kind(), ErrorKind::NotFound);
    }
}
