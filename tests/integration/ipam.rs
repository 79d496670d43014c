//! A provider of addresses (IPAM), as far as `IPAddressClaim`s see it. It gives each claim of a namespace an address of
//! `192.0.2.0/24`, and takes it back when the claim is being deleted and nobody else holds that.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::{
    Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

/// The group of claims, addresses and pools.
pub(crate) const IPAM: &str = "ipam.cluster.x-k8s.io";

/// The gateway of all addresses.
pub(crate) const GATEWAY: &str = "192.0.2.1";

const INTERVAL: Duration = Duration::from_millis(50);

/// What holds a claim until its address is taken back.
const FINALIZER: &str = "test.example.org/release";

/// A pool, as a network device names it.
pub(crate) fn pool() -> Value {
    json!({"apiGroup": IPAM, "kind": "InClusterIPPool", "name": "workers"})
}

/// Works until it is dropped.
pub(crate) struct Ipam {
    task: JoinHandle<()>,
    gives: Arc<AtomicBool>,
    given: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Ipam {
    /// Works on the claims of a namespace.
    pub(crate) fn follow(client: &Client, namespace: &str) -> Self {
        let (gives, given) = (Arc::new(AtomicBool::new(true)), Arc::<Mutex<BTreeMap<_, _>>>::default());
        let mut desk = Desk {
            client: client.clone(),
            namespace: namespace.to_owned(),
            given: Arc::clone(&given),
            last: 9,
        };
        let may_give = Arc::clone(&gives);
        let task = tokio::spawn(async move {
            loop {
                // what somebody else has changed meanwhile is looked at again
                if let Err(error) = desk.round(may_give.load(Ordering::Relaxed)).await {
                    eprintln!("IPAM: {error:#}");
                }
                sleep(INTERVAL).await;
            }
        });
        Self { task, gives, given }
    }

    /// Whether claims are fulfilled from now on.
    pub(crate) fn gives(&self, gives: bool) {
        self.gives.store(gives, Ordering::Relaxed);
    }

    /// The addresses that are not taken back, by the names of their claims.
    pub(crate) fn given(&self) -> BTreeMap<String, String> {
        self.given.lock().clone()
    }
}

impl Drop for Ipam {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Desk {
    client: Client,
    namespace: String,
    given: Arc<Mutex<BTreeMap<String, String>>>,
    /// The last byte of the address that was given last. None is given twice.
    last: u8,
}

impl Desk {
    fn objects(&self, kind: &str, plural: &str) -> kube::Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(IPAM, "v1beta2", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        kube::Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn round(&mut self, may_give: bool) -> anyhow::Result<()> {
        let claims = self.objects("IPAddressClaim", "ipaddressclaims");
        for claim in claims.list(&ListParams::default()).await? {
            let name = claim.metadata.name.clone().unwrap_or_default();
            let finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
            let is_fulfilled = claim.data["status"]["addressRef"]["name"].is_string();
            let guard = json!({"resourceVersion": claim.metadata.resource_version});
            if claim.metadata.deletion_timestamp.is_some() {
                if finalizers == [FINALIZER] {
                    self.take_back(&name).await?;
                    let mut patch = json!({ "metadata": guard });
                    patch["metadata"]["finalizers"] = json!([]);
                    claims.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
                }
            } else if !finalizers.iter().any(|one| one == FINALIZER) {
                let mut patch = json!({ "metadata": guard });
                let all: Vec<_> = finalizers.iter().map(String::as_str).chain([FINALIZER]).collect();
                patch["metadata"]["finalizers"] = json!(all);
                claims.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            } else if may_give && !is_fulfilled {
                self.give(&claim, &name).await?;
                let patch = json!({"status": {"addressRef": {"name": name}}});
                claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
        }
        Ok(())
    }

    async fn give(&mut self, claim: &DynamicObject, name: &str) -> anyhow::Result<()> {
        let addresses = self.objects("IPAddress", "ipaddresses");
        if addresses.get_opt(name).await?.is_some() {
            return Ok(());
        }
        self.last += 1;
        let address = format!("192.0.2.{}", self.last);
        let object = json!({
            "apiVersion": format!("{IPAM}/v1beta2"), "kind": "IPAddress",
            "metadata": {"name": name, "ownerReferences": [{
                "apiVersion": format!("{IPAM}/v1beta2"), "kind": "IPAddressClaim", "name": name, "uid": claim.metadata.uid,
                "controller": true,
            }]},
            "spec": {
                "address": address, "prefix": 24, "gateway": GATEWAY, "claimRef": {"name": name},
                "poolRef": claim.data["spec"]["poolRef"],
            },
        });
        addresses.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        self.given.lock().insert(name.to_owned(), address);
        Ok(())
    }

    async fn take_back(&self, name: &str) -> anyhow::Result<()> {
        let addresses = self.objects("IPAddress", "ipaddresses");
        if addresses.get_opt(name).await?.is_some() {
            addresses.delete(name, &DeleteParams::default()).await?;
        }
        self.given.lock().remove(name);
        Ok(())
    }
}
