//! `explain NODE`: the cloud's answer about a Node, and what the daemon would do; and the same of a Service.

mod lifecycle;
mod machine;
mod service;

use std::{fmt::Write as _, sync::Arc};

use anyhow::{anyhow, bail};
use clap::Args;
use cloudprovider::{InstanceLookup, Registry};
use component::api_client::describe;
use controller_kit::nodes::{self, Node};
use jiff::Timestamp;
use kube::Client;
use lifecycle_controllers::explain::ExplainedKind;
use serde::Serialize;

pub use lifecycle::{LifecycleExplanation, explain_lifecycle};
pub use machine::{MachineExplanation, explain_machine};
pub use service::{LoadBalancerAnswer, ServiceExplanation, explain_service};

use super::tools::{self, Output, one_line, table};
use crate::{
    controllers::{CONTROLLERS, Capability, ClusterRoutes, NodeQuestion, node},
    daemon,
    flags::{Flags, LIFECYCLE, ROUTE_CONTROLLER},
};

/// Maximum number of similar names in the message about a missing Node.
const SIMILAR_NAMES: usize = 3;

/// Explain a Node: what the cloud says about it, by what its instance was found, what differs, why it is initialised
/// or not, and what a daemon with these flags would do next. Or a Service, with `explain service NAMESPACE/NAME`: why it has
/// its load balancer or waits for it. Or a machine, with `explain machine NAMESPACE/NAME`: what it waits for. Or an object of Cluster
/// API, with `cluster`, `machineset`, `machinedeployment`, `machinehealthcheck` or `kubeadmconfig`. Plurals and kubectl's short
/// names are taken too. Nothing is changed.
#[derive(Clone, Debug, Args)]
pub struct Explain {
    /// The Node's name; or `service` and the Service's namespace and name, as in `service default/web`; or `machine` and
    /// those of a machine of the provider's kind, or of a Machine if the lifecycle controllers are enabled; or `cluster`,
    /// `machineset`, `machinedeployment`, `machinehealthcheck` or `kubeadmconfig` and those of such an object.
    #[arg(
        value_name = "NODE",
        num_args = 1..=2,
        required = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub subject: Vec<String>,

    /// How to print it: table or json.
    #[arg(long, value_enum, default_value = "table", hide_possible_values = true, value_name = "FORM")]
    pub output: Output,

    /// The flags of the daemon.
    #[command(flatten)]
    pub flags: Flags,
}

/// What is to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The Node of this name.
    Node(String),
    /// The Service of this name.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The object of this name, of one of Cluster API's kinds.
    Lifecycle {
        /// Which kind.
        kind: ExplainedKind,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The machine of this name: an object of the provider's kind, such as a `LibvirtMachine`, or a Machine.
    Machine {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What may be named.
const SUBJECTS: &str = "NODE, or one of service, machine, cluster, machineset, machinedeployment, machinehealthcheck and \
                        kubeadmconfig with NAMESPACE/NAME";

/// Namespace and name.
fn namespaced(what: &str, text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(format!("{text:?} is not a {what}; expected NAMESPACE/NAME")),
    }
}

impl Explain {
    /// The same, where an object of Cluster API is to be explained and no flag says which controllers run: those of
    /// `--controllers=lifecycle`, which need no provider.
    #[must_use]
    pub fn with_lifecycle(mut self) -> Self {
        let is_of_lifecycle =
            matches!(self.subject(), Ok(Subject::Lifecycle { .. } | Subject::Machine { .. }));
        let says = ["controllers", "cloud-provider", "machine-provider"];
        if is_of_lifecycle && !says.into_iter().any(|flag| self.flags.is_given(flag)) {
            self.flags.generic.controllers = vec![LIFECYCLE.to_owned()];
        }
        self
    }

    /// What is to be explained.
    ///
    /// # Errors
    /// What is wrong with the arguments.
    pub fn subject(&self) -> Result<Subject, String> {
        let words: Vec<&str> = self.subject.iter().map(String::as_str).collect();
        match words[..] {
            [node] => Ok(Subject::Node(node.to_owned())),
            [word, text] => match (ExplainedKind::of_word(word), &*word.to_ascii_lowercase()) {
                (_, "node" | "nodes" | "no") => Ok(Subject::Node(text.to_owned())),
                (_, "service" | "services" | "svc") => {
                    let (namespace, name) = namespaced("Service", text)?;
                    Ok(Subject::Service { namespace, name })
                }
                (Some(ExplainedKind::Machine), _) => {
                    let (namespace, name) = namespaced("machine", text)?;
                    Ok(Subject::Machine { namespace, name })
                }
                (Some(kind), _) => {
                    let (namespace, name) = namespaced(kind.name(), text)?;
                    Ok(Subject::Lifecycle { kind, namespace, name })
                }
                (None, _) => Err(format!("nothing is known of {word:?}; expected {SUBJECTS}")),
            },
            _ => Err(format!("expected {SUBJECTS}")),
        }
    }
}

/// The explanation of a Node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Its name.
    pub node: String,
    /// The provider that was asked.
    pub provider: String,
    /// What the provider said.
    pub cloud: CloudAnswer,
    /// Whether the Node is initialised.
    pub initialized: bool,
    /// Why it is initialised, or why not.
    pub why: String,
    /// The differences between the Node and the cloud.
    pub differences: Vec<node::Difference>,
    /// The conditions that the daemon reads and writes.
    pub conditions: Vec<NodeCondition>,
    /// What the daemon would do next.
    pub next: Vec<String>,
}

/// The cloud's answer.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudAnswer {
    /// `present`, `absent` or `unknown`.
    pub instance: &'static str,
    /// Only for an existing instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Only for an existing instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_state: Option<&'static str>,
    /// How the instance was found, if the provider says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_by: Option<String>,
    /// What an existing instance still lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// Why the cloud cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A condition of the Node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason: one word.
    pub reason: String,
    /// The message: a sentence.
    pub message: String,
}

/// The words before the names of what is not a Node.
const KINDS_WITH_NAMES: [&str; 2] = ["machine", "service"];

/// Explains the Node of this name.
///
/// # Errors
/// A problem that prevents an explanation: an unusable configuration, an unreachable API server or cloud, or
/// a Node that does not exist.
pub async fn explain(flags: &Flags, registry: &Registry, name: &str) -> anyhow::Result<Explanation> {
    let provider = daemon::create_provider(flags, registry)?;
    let provider_name = provider.name().to_owned();
    let (client, url) = tools::connect(flags).await.map_err(|why| anyhow!(why))?;
    let node = match nodes::read_node(client.clone(), name).await {
        Ok(Some(node)) => Arc::new(node),
        Ok(None) if KINDS_WITH_NAMES.contains(&name) => {
            bail!("there is no Node {name:?}; for a {name} give its name too: explain {name} NAMESPACE/NAME")
        }
        Ok(None) => bail!("there is no Node {name:?}{}", similar(client, name).await),
        Err(error) => bail!("the API server at {url} does not give Node {name:?}: {}", describe(&error)),
    };
    let cloud = tools::start_cloud(provider, flags, true)
        .await
        .map_err(|why| anyhow!("cloud provider {provider_name} does not start: {why}"))?;
    let is_foreign = tools::is_foreign(&cloud, &node);
    let answer = tools::look_up(&cloud, std::slice::from_ref(&node)).await.pop();
    let has_routes = cloud.has_routes();
    let routes = if has_routes && flags.enables(ROUTE_CONTROLLER) {
        let nodes = nodes::read_nodes(client).await.map_err(|error| {
            anyhow!(
                "the API server at {url} does not list the Nodes, which the routes lead to: {}",
                describe(&error)
            )
        })?;
        let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
        tools::introduce(&cloud, &nodes).await;
        tools::list_routes(&cloud, flags).await.map(|listed| ClusterRoutes { listed, nodes })
    } else {
        None
    };
    cloud.stop().await;
    let instance = answer.ok_or_else(|| anyhow!("cloud provider {provider_name} gives no answer"))?;
    let answers = Answers { instance, has_routes, routes };
    Ok(explanation(flags, &node, &answers, &provider_name, is_foreign))
}

/// All that the cloud says.
struct Answers {
    instance: InstanceLookup,
    /// Whether the provider can make routes.
    has_routes: bool,
    /// Not asked for where the route controller is switched off.
    routes: Option<ClusterRoutes>,
}

fn explanation(
    flags: &Flags,
    node: &Node,
    answers: &Answers,
    provider: &str,
    is_foreign: bool,
) -> Explanation {
    let answer = &answers.instance;
    let now = Timestamp::now();
    // The initialisation and the differences are reported even if the node controller is disabled.
    let mut plan = node::plan(node, answer, provider, node::ForeignValue::of(flags), now);
    let mut next = Vec::new();
    if is_foreign {
        let id = node.identity.provider_id.as_deref().unwrap_or_default();
        plan.differences.clear();
        next.push(format!("leave the Node alone: its provider ID {id} is of another cloud than {provider}"));
    }
    let question = NodeQuestion { node, answer, routes: answers.routes.as_ref(), provider, flags, now };
    for controller in CONTROLLERS {
        let (Some(explain), name) = (controller.explain, controller.names.name) else { continue };
        // Routes lead to Nodes of any cloud.
        let has_nothing_to_say = match controller.needs {
            Some(Capability::Routes) => !answers.has_routes,
            _ => is_foreign,
        };
        if has_nothing_to_say {
            continue;
        }
        match flags.switched_off_by(name) {
            None => next.extend(explain(&question)),
            Some(flag) => next.push(format!("nothing of what {name} does: {flag} switches it off")),
        }
    }
    if next.is_empty() {
        next.push("nothing: the Node is right".to_owned());
    }
    Explanation {
        node: node.name().to_owned(),
        provider: provider.to_owned(),
        cloud: CloudAnswer::from(answer),
        initialized: plan.initialized,
        why: one_line(&plan.why),
        differences: plan.differences,
        conditions: node
            .conditions
            .iter()
            .map(|condition| NodeCondition {
                condition_type: condition.condition_type.clone(),
                status: condition.status.clone(),
                reason: condition.reason.clone(),
                message: one_line(&condition.message),
            })
            .collect(),
        next: next.iter().map(|step| one_line(step)).collect(),
    }
}

impl From<&InstanceLookup> for CloudAnswer {
    fn from(answer: &InstanceLookup) -> Self {
        match answer {
            InstanceLookup::Present(instance) => Self {
                instance: "present",
                provider_id: instance.provider_id.as_ref().map(ToString::to_string),
                power_state: Some(instance.power_state.as_str()),
                matched_by: instance.matched_by.clone(),
                incomplete: instance.incomplete.as_ref().map(|error| one_line(&error.report())),
                error: None,
            },
            InstanceLookup::Absent => Self { instance: "absent", ..Self::default() },
            InstanceLookup::Unknown(error) => {
                Self { instance: "unknown", error: Some(one_line(&error.report())), ..Self::default() }
            }
        }
    }
}

/// The names of Nodes that are similar to this one.
async fn similar(client: Client, name: &str) -> String {
    let Ok(nodes) = nodes::read_nodes(client).await else { return String::new() };
    let likeness = |other: &str| {
        if other.contains(name) || name.contains(other) { 1.0 } else { strsim::jaro_winkler(other, name) }
    };
    let mut near: Vec<(f64, &str)> = nodes
        .iter()
        .map(|node| (likeness(node.name()), node.name()))
        .filter(|(likeness, _)| *likeness > 0.8)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let names: Vec<&str> = near.into_iter().take(SIMILAR_NAMES).map(|(_, name)| name).collect();
    match (names.is_empty(), nodes.len()) {
        (false, _) => format!("; did you mean {}?", names.join(" or ")),
        _ if name == "node" => "; give the name of the Node: explain NAME".to_owned(),
        (true, 0) => "; the cluster has no Nodes at all".to_owned(),
        (true, count) => format!("; none of the {count} Nodes has a name like it"),
    }
}

impl Explanation {
    /// For people.
    pub fn to_table(&self) -> String {
        let mut rows = Vec::new();
        let mut add = |key: &str, value: String| rows.push(vec![format!("{key}:"), value]);
        add("Node", self.node.clone());
        let mut instance = self.cloud.instance.to_owned();
        if let Some(power) = self.cloud.power_state {
            let _ = write!(instance, ", {power}");
        }
        add("Instance", format!("{instance} (cloud provider {})", self.provider));
        for (key, value) in [
            ("Provider ID", &self.cloud.provider_id),
            ("Found by", &self.cloud.matched_by),
            ("Incomplete", &self.cloud.incomplete),
            ("Cannot tell", &self.cloud.error),
        ] {
            if let Some(value) = value {
                add(key, value.clone());
            }
        }
        add("Initialised", format!("{}, {}", if self.initialized { "yes" } else { "no" }, self.why));
        let mut text = table(&rows);
        if self.differences.is_empty() && self.cloud.instance == "present" {
            text += "\nNo difference between the Node and what the cloud says.\n";
        } else if !self.differences.is_empty() {
            let mut rows = vec![["DIFFERS", "NODE", "CLOUD"].map(str::to_owned).to_vec()];
            rows.extend(self.differences.iter().map(|difference| {
                vec![difference.field.clone(), difference.node.clone(), difference.cloud.clone()]
            }));
            let _ = write!(text, "\n{}", table(&rows));
        }
        if !self.conditions.is_empty() {
            let mut rows = vec![["CONDITION", "STATUS", "REASON", "MESSAGE"].map(str::to_owned).to_vec()];
            rows.extend(self.conditions.iter().map(|condition| {
                vec![
                    condition.condition_type.clone(),
                    condition.status.clone(),
                    condition.reason.clone(),
                    condition.message.clone(),
                ]
            }));
            let _ = write!(text, "\n{}", table(&rows));
        }
        text += "\nA daemon with these flags would:\n";
        for step in &self.next {
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
