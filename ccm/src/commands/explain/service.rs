//! `explain service NAMESPACE/NAME`: why a Service has its load balancer, or waits for it.

use std::fmt::Write as _;

use anyhow::{anyhow, bail};
use cloudprovider::{LoadBalancerStatus, Registry};
use component::api_client::describe;
use controller_kit::{
    nodes,
    services::{self, Service},
};
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::ListParams};
use serde::Serialize;

use crate::{
    commands::tools::{self, one_line, table},
    controllers::service::{ServicePlan, plan, shown},
    daemon,
    flags::{Flags, SERVICE_CONTROLLER},
};

/// How many Nodes the table names.
const NODES_SHOWN: usize = 10;

/// The explanation of a Service.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceExplanation {
    /// Its namespace and name.
    pub service: String,
    /// The provider that was asked.
    pub provider: String,
    /// What the provider said.
    pub cloud: LoadBalancerAnswer,
    /// What the controller finds.
    #[serde(flatten)]
    pub plan: ServicePlan,
    /// The last Warning event on the Service, as far as events can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_warning: Option<String>,
}

/// The provider's answer about a load balancer.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerAnswer {
    /// `present`, `absent` or `unknown`.
    pub load_balancer: &'static str,
    /// Its name in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The addresses of one that is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<String>,
    /// Why the cloud cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Explains this Service.
///
/// # Errors
/// What prevents an explanation: an unusable configuration, an unreachable API server, or a Service that does not exist.
pub async fn explain_service(
    flags: &Flags,
    registry: &Registry,
    namespace: &str,
    name: &str,
) -> anyhow::Result<ServiceExplanation> {
    let provider = daemon::create_provider(flags, registry)?;
    let provider_name = provider.name().to_owned();
    let (client, url) = tools::connect(flags).await.map_err(|why| anyhow!(why))?;
    let refused = |what: &str, error: &kube::Error| {
        anyhow!("the API server at {url} does not give {what}: {}", describe(error))
    };
    let service = match services::read_service(client.clone(), namespace, name).await {
        Ok(Some(service)) => service,
        Ok(None) => bail!("there is no Service {namespace}/{name}"),
        Err(error) => return Err(refused(&format!("Service {namespace}/{name}"), &error)),
    };
    let nodes = nodes::read_nodes(client.clone()).await.map_err(|error| refused("Nodes", &error))?;
    let cloud = tools::start_cloud(provider, flags, true)
        .await
        .map_err(|why| anyhow!("cloud provider {provider_name} does not start: {why}"))?;
    let cluster = &flags.generic.cluster_name;
    let has_load_balancers = cloud.has_load_balancers();
    let answer = tools::look_up_load_balancer(&cloud, cluster, &service.content).await;
    let lb_name = cloud.load_balancer_name(cluster, &service.content);
    cloud.stop().await;
    let mut plan = plan(&service, &nodes, &answer);
    if !flags.enables(SERVICE_CONTROLLER) {
        plan.next = vec![format!("nothing of what {SERVICE_CONTROLLER} does: --controllers switches it off")];
    } else if !has_load_balancers {
        let why = format!(
            "nothing: cloud provider {provider_name} makes no load balancers with this configuration"
        );
        plan.next = vec![why];
    }
    Ok(ServiceExplanation {
        service: format!("{namespace}/{name}"),
        provider: provider_name,
        cloud: LoadBalancerAnswer { name: lb_name, ..LoadBalancerAnswer::from(&answer) },
        plan,
        last_warning: last_warning(client, &service).await,
    })
}

impl From<&cloudprovider::Result<Option<LoadBalancerStatus>>> for LoadBalancerAnswer {
    fn from(answer: &cloudprovider::Result<Option<LoadBalancerStatus>>) -> Self {
        match answer {
            Ok(Some(status)) => {
                Self { load_balancer: "present", addresses: Some(shown(status)), ..Self::default() }
            }
            Ok(None) => Self { load_balancer: "absent", ..Self::default() },
            Err(error) => {
                Self { load_balancer: "unknown", error: Some(one_line(&error.report())), ..Self::default() }
            }
        }
    }
}

/// The last Warning event. `None` also where events cannot be read: the daemon's own account may only write them.
async fn last_warning(client: Client, service: &Service) -> Option<String> {
    let api: Api<Event> = Api::namespaced(client, &service.content.namespace);
    let selector = format!("involvedObject.kind=Service,involvedObject.name={}", service.content.name);
    let mut events = api.list(&ListParams::default().fields(&selector)).await.ok()?.items;
    events.retain(|event| {
        event.type_.as_deref() == Some("Warning")
            && event.involved_object.uid.as_deref() == Some(service.uid())
    });
    let last = events.into_iter().max_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0))?;
    let (reason, message) = (last.reason.unwrap_or_default(), last.message.unwrap_or_default());
    Some(one_line(&format!("{reason}: {message}")))
}

impl ServiceExplanation {
    /// For people.
    pub fn to_table(&self) -> String {
        let mut rows = Vec::new();
        let mut add = |key: &str, value: String| rows.push(vec![format!("{key}:"), value]);
        let plan = &self.plan;
        add("Service", self.service.clone());
        add("Load balancer wanted", format!("{}, {}", if plan.wanted { "yes" } else { "no" }, plan.why));
        add("Finalizer", if plan.finalizer { "there" } else { "not there" }.to_owned());
        add("Load balancer", format!("{} (cloud provider {})", self.cloud.load_balancer, self.provider));
        for (key, value) in [("Name in the cloud", &self.cloud.name), ("Cannot tell", &self.cloud.error)] {
            if let Some(value) = value {
                add(key, value.clone());
            }
        }
        add("Addresses in the cloud", self.cloud.addresses.clone().unwrap_or_else(|| "none".to_owned()));
        add("Addresses in the status", plan.addresses.clone());
        let more = plan.back_ends.len().saturating_sub(NODES_SHOWN);
        let mut names: Vec<String> = plan.back_ends.iter().take(NODES_SHOWN).cloned().collect();
        names.extend((more > 0).then(|| format!("{more} more")));
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        add("Back ends", format!("{} nodes: {names}", plan.back_ends.len()));
        if let Some(warning) = &self.last_warning {
            add("Last warning", warning.clone());
        }
        let mut text = table(&rows);
        if !plan.left_out.is_empty() {
            let mut rows = vec![["NO BACK END", "WHY"].map(str::to_owned).to_vec()];
            rows.extend(plan.left_out.iter().map(|node| vec![node.node.clone(), node.why.clone()]));
            let _ = write!(text, "\n{}", table(&rows));
        }
        text += "\nA daemon with these flags would:\n";
        for step in &plan.next {
            let _ = writeln!(text, "- {step}");
        }
        text
    }

    /// For programs.
    ///
    /// # Errors
    /// Never: all of its content is text.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}
