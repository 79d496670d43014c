//! Plays cases on an API server where an allocator runs, and reads its answers.

use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Service};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::case::{self, Case, NAMESPACES, Step};
use crate::support::eventually;

/// kube-vip's allocator makes five requests a second.
const LIMIT: Duration = Duration::from_secs(30);
/// More writes than the allocator makes after a change.
const WRITES: usize = 20;
const ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";
const INTERFACE: &str = "kube-vip.io/serviceInterface";

pub(super) struct Player {
    client: Client,
}

impl Player {
    pub(super) fn new(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    /// Makes the namespaces of the Services.
    pub(super) async fn prepare(&self) -> anyhow::Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        for name in NAMESPACES {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            match api.create(&PostParams::default(), &namespace).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                outcome => drop(outcome?),
            }
        }
        Ok(())
    }

    /// Plays one case, and returns the answers to its Services.
    pub(super) async fn play(&self, case: &Case) -> anyhow::Result<Vec<String>> {
        self.clear().await?;
        let mut answers = Vec::new();
        for step in &case.steps {
            match step {
                Step::Config(keys) => self.set_config(keys).await?,
                Step::Create(service, _) => {
                    answers.push(format!("{}: {}", service.name, self.create(service).await?));
                }
                Step::Change(service, patch, _) => {
                    answers.push(format!("{}: {}", service.name, self.change(service, patch).await?));
                }
                Step::Delete(service) => {
                    let api = self.services(service.namespace);
                    api.delete(service.name, &DeleteParams::default()).await?;
                    self.gone(service.namespace, service.name).await?;
                }
            }
        }
        Ok(answers)
    }

    /// Deletes all Services of the cases and the ConfigMap, and waits until they are gone.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        let mut names = Vec::new();
        for namespace in NAMESPACES {
            let api = self.services(namespace);
            for service in api.list(&ListParams::default()).await? {
                api.delete(&service.name_any(), &DeleteParams::default()).await?;
                names.push((namespace, service.name_any()));
            }
        }
        for (namespace, name) in names {
            self.gone(namespace, &name).await?;
        }
        self.set_config(&[]).await
    }

    async fn gone(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let api = self.services(namespace);
        let gone = async || Ok(api.get_opt(name).await?.is_none().then_some(()));
        eventually(LIMIT, &format!("Service {name} is deleted"), gone).await
    }

    fn services(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn set_config(&self, keys: &[(&str, &str)]) -> anyhow::Result<()> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        match api.delete("kubevip", &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            outcome => drop(outcome?),
        }
        if !keys.is_empty() {
            let data: serde_json::Map<String, Value> =
                keys.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
            let config = serde_json::from_value(json!({"metadata": {"name": "kubevip"}, "data": data}))?;
            api.create(&PostParams::default(), &config).await?;
        }
        Ok(())
    }

    /// Makes a Service, and returns its UID.
    async fn make(&self, wanted: &case::Service) -> anyhow::Result<String> {
        let mut service = json!({
            "metadata": {"name": wanted.name, "annotations": wanted.annotations},
            "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false},
        });
        for (field, value) in wanted.spec.as_object().into_iter().flatten() {
            service["spec"][field] = value.clone();
        }
        let api = self.services(wanted.namespace);
        let made = api.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        made.uid().context("a UID")
    }

    async fn create(&self, wanted: &case::Service) -> anyhow::Result<String> {
        let uid = self.make(wanted).await?;
        // A Service of another class has no answer.
        if wanted.spec.get("loadBalancerClass").is_some() {
            self.handles_all_changes().await?;
            return self.read(wanted, None).await;
        }
        self.read(wanted, Some(&self.answer(wanted, &uid).await?)).await
    }

    /// Not every change has an answer.
    async fn change(&self, service: &case::Service, patch: &Value) -> anyhow::Result<String> {
        let api = self.services(service.namespace);
        let patch = Patch::Merge(patch);
        let mut version = api.patch(service.name, &PatchParams::default(), &patch).await?.resource_version();
        for _ in 0..WRITES {
            self.handles_all_changes().await?;
            // What the allocator writes is a change too.
            let now = api.get(service.name).await?.resource_version();
            if now == version {
                return self.read(service, None).await;
            }
            version = now;
        }
        bail!("Service {} is written again and again", service.name)
    }

    /// Waits until the allocator has handled all changes of Services so far. It has one worker, which answers a Service that is made
    /// now after them. That Service takes no address of a pool.
    async fn handles_all_changes(&self) -> anyhow::Result<()> {
        let fence = case::b("fence").asks("198.51.100.1");
        let uid = self.make(&fence).await?;
        self.answer(&fence, &uid).await?;
        self.services(fence.namespace).delete(fence.name, &DeleteParams::default()).await?;
        self.gone(fence.namespace, fence.name).await
    }

    /// Waits for the event that ends the first synchronization of the Service.
    async fn answer(&self, service: &case::Service, uid: &str) -> anyhow::Result<Event> {
        let answered = async || Ok(self.answers_of(service.namespace, uid).await?.pop());
        eventually(LIMIT, &format!("Service {} has an answer", service.name), answered).await
    }

    /// The events that end a synchronization of the Service.
    async fn answers_of(&self, namespace: &str, uid: &str) -> anyhow::Result<Vec<Event>> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let of_service = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let mut events = api.list(&of_service).await?.items;
        let ends = ["EnsuredLoadBalancer", "SyncLoadBalancerFailed"];
        events.retain(|event| event.reason.as_deref().is_some_and(|reason| ends.contains(&reason)));
        Ok(events)
    }

    /// What is written on the Service: `ADDRESSES [loadBalancerIP=ADDRESS] [unlabelled] [on INTERFACE]`, where
    /// `loadBalancerIP` is left out if it is the first of the addresses; or why there is nothing.
    async fn read(&self, service: &case::Service, event: Option<&Event>) -> anyhow::Result<String> {
        let service = self.services(service.namespace).get(service.name).await?;
        if let Some(event) = event
            && event.reason.as_deref() == Some("SyncLoadBalancerFailed")
        {
            let message = event.message.clone().unwrap_or_default();
            let message = message.trim_start_matches("Error syncing load balancer: ");
            let reason = message.trim_start_matches("failed to ensure load balancer: ");
            // Some of its messages end with the lines of its source.
            return Ok(format!("refused: {}", reason.split(" @ ").next().unwrap_or_default()));
        }
        let annotation = |key: &str| service.annotations().get(key).map(String::as_str);
        let addresses = annotation(ADDRESSES).unwrap_or("nothing");
        let mut answer = vec![addresses.to_owned()];
        let ip = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_deref());
        if ip != addresses.split(',').next() {
            answer.push(format!("loadBalancerIP={}", ip.unwrap_or("none")));
        }
        if service.labels().get("implementation").map(String::as_str) != Some("kube-vip") {
            answer.push("unlabelled".to_owned());
        }
        answer.extend(annotation(INTERFACE).map(|interface| format!("on {interface}")));
        Ok(answer.join(" "))
    }
}
