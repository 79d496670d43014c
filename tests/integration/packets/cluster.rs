//! The objects of a cluster whose Nodes are namespaces: what kubelets, kube-controller-manager and users
//! write, written by hand.

use k8s_openapi::api::{
    core::v1::{Namespace, Node, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use sandbox::kubelet;
use serde_json::{Value, json};

use super::{
    lan::NodeHost,
    programs::{ECHO_PORT, HTTP_PORT},
};
use crate::support::uuid;

pub(super) const NAMESPACE: &str = "packets";
/// The Service's ports.
pub(super) const SERVICE_HTTP: u16 = 80;
pub(super) const SERVICE_ECHO: u16 = 53;

pub(super) struct Cluster {
    client: Client,
}

impl Cluster {
    /// With a namespace for the Services.
    pub(super) async fn new(client: &Client) -> anyhow::Result<Self> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        match namespaces.create(&PostParams::default(), &namespace).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            outcome => drop(outcome?),
        }
        Ok(Self { client: client.clone() })
    }

    pub(super) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Registers a Node that is ready, with its addresses and its pods' CIDRs.
    pub(super) async fn register(&self, number: usize, host: &NodeHost) -> anyhow::Result<()> {
        let mut node: Node = kubelet::node(&host.name, &uuid(number));
        let spec = node.spec.get_or_insert_default();
        spec.taints = None;
        spec.pod_cidr = Some(host.pod_cidrs()[0].clone());
        spec.pod_cidrs = Some(host.pod_cidrs().into());
        let addresses: Vec<Value> =
            host.addresses().iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        node.status.get_or_insert_default().addresses = serde_json::from_value(json!(addresses))?;
        kubelet::register(&self.client, &node).await?;
        kubelet::heartbeat(&self.client, &host.name, true).await?;
        Ok(())
    }

    /// Creates a dual-stack Service of type LoadBalancer. Its ports are [`SERVICE_HTTP`] of TCP and
    /// [`SERVICE_ECHO`] of UDP. `spec` has further fields.
    pub(super) async fn create_service(&self, name: &str, spec: &Value) -> anyhow::Result<()> {
        let mut service = json!({
            "metadata": {"name": name},
            "spec": {
                "type": "LoadBalancer",
                "ipFamilyPolicy": "RequireDualStack",
                "ports": [
                    {"name": "http", "protocol": "TCP", "port": SERVICE_HTTP, "targetPort": HTTP_PORT},
                    {"name": "echo", "protocol": "UDP", "port": SERVICE_ECHO, "targetPort": ECHO_PORT},
                ],
            },
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            service["spec"][field] = value.clone();
        }
        self.services().create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        Ok(())
    }

    /// Changes a Service.
    pub(super) async fn change_service(&self, name: &str, patch: &Value) -> anyhow::Result<()> {
        self.services().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Says in the status of a Service that it has these addresses.
    pub(super) async fn set_ingress(&self, name: &str, addresses: &[&str]) -> anyhow::Result<()> {
        let ingress: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        self.services().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Says that the pods of these Nodes are the endpoints of a Service.
    pub(super) async fn set_endpoints(&self, service: &str, hosts: &[&NodeHost]) -> anyhow::Result<()> {
        for (index, family) in ["IPv4", "IPv6"].into_iter().enumerate() {
            let endpoints: Vec<Value> = hosts
                .iter()
                .map(|host| {
                    json!({
                        "addresses": [host.pod()[index]], "nodeName": host.name,
                        "conditions": {"ready": true, "serving": true, "terminating": false},
                    })
                })
                .collect();
            let name = format!("{service}-{}", family.to_lowercase());
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
                "addressType": family,
                "endpoints": endpoints,
                "ports": [
                    {"name": "http", "protocol": "TCP", "port": HTTP_PORT},
                    {"name": "echo", "protocol": "UDP", "port": ECHO_PORT},
                ],
            });
            let force = PatchParams::apply("endpoint-slice-controller").force();
            self.slices().patch(&name, &force, &Patch::Apply(slice)).await?;
        }
        Ok(())
    }

    /// Deletes Services, slices and Nodes, finalizers or not: the API server is used again.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        let (all, delete) = (ListParams::default(), DeleteParams::default());
        for service in self.services().list(&all).await? {
            let name = service.metadata.name.unwrap_or_default();
            self.change_service(&name, &json!({"metadata": {"finalizers": null}})).await?;
            self.services().delete(&name, &delete).await?;
        }
        self.slices().delete_collection(&delete, &all).await?;
        Api::<Node>::all(self.client.clone()).delete_collection(&delete, &all).await?;
        Ok(())
    }
}
