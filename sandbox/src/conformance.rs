//! What an API server must do for this project, as cases that run against any `kube::Client`.
//!
//! The same cases run against the sandbox and against a real kube-apiserver: that is what keeps the sandbox
//! honest. Each case makes objects under names of its own and deletes them at its end, so cases may run at
//! the same time and against a server that is in use. They need the rights of an administrator.

use std::{error::Error, fmt, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};

mod kinds;
mod lists;
mod nodes;
mod objects;
mod patches;
mod watches;

/// How a case ends: the error says what differed.
pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// One behaviour of the API.
#[derive(Clone, Copy)]
pub struct Case {
    /// Unique, in `snake_case`.
    pub name: &'static str,
    /// Runs the case.
    pub run: fn(Client) -> BoxFuture<'static, Outcome>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

macro_rules! cases {
    ($($module:ident: $($name:ident),+;)+) => {
        /// Every case.
        pub const CASES: &[Case] = &[
            $($(Case { name: stringify!($name), run: |client| $module::$name(client).boxed() },)+)+
        ];
    };
}

cases! {
    objects: create_get_delete, create_refusals, generate_name, update_conflicts, update_by_name,
        delete_preconditions, finalizers, delete_collection, dry_run, names_and_labels_are_checked,
        missing_things;
    patches: json_patch, json_patch_refusals, merge_patch, strategic_patch_lists, strategic_patch_directives,
        patch_preconditions, patch_without_change, apply_patch, metadata_answers;
    nodes: provider_id_is_immutable, taints_are_atomic, taints_are_checked, addresses_are_replaced,
        status_is_apart, node_registration;
    lists: selectors, pages, resource_versions, tables;
    watches: replay, initial_state, streaming_list, bookmarks, selector_transitions, too_old, metadata_only;
    kinds: leases, events_in_both_groups, services, namespaces, discovery;
}

/// How long a case waits for a watch event.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends the case with an error when the condition does not hold.
macro_rules! ensure {
    ($condition:expr, $($format:tt)+) => {
        if !$condition {
            return Err(format!("line {}: {}", line!(), format!($($format)+)).into());
        }
    };
}
/// Ends the case with an error when two things differ.
macro_rules! same {
    ($got:expr, $wanted:expr) => {
        // A match keeps temporaries alive, as in assert_eq
        match (&$got, &$wanted) {
            (got, wanted) => {
                if *got != *wanted {
                    return Err(format!("line {}: got {got:?}, wanted {wanted:?}", line!()).into());
                }
            }
        }
    };
}
use {ensure, same};

const NODES: &str = "/api/v1/nodes";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A name that no other run uses.
fn unique(base: &str) -> String {
    format!("conformance-{base}-{}", crate::object::suffix())
}

/// What a request was answered with.
#[derive(Debug, Clone)]
struct Answer {
    code: u16,
    body: Value,
}

impl Answer {
    /// The body of a success; an error for anything else.
    fn ok(self) -> Fallible<Value> {
        if self.code < 300 { Ok(self.body) } else { Err(format!("unexpected answer: {self:?}").into()) }
    }

    /// Code and reason.
    fn refusal(&self) -> (u16, &str) {
        (self.code, self.body["reason"].as_str().unwrap_or_default())
    }
}

/// Sends a request as it is.
async fn send(client: &Client, request: http::request::Builder, body: &Value) -> Fallible<Answer> {
    let body = match body {
        Value::Null => Body::empty(),
        Value::String(text) => Body::from(text.clone().into_bytes()),
        other => Body::from(other.to_string().into_bytes()),
    };
    let response = client.send(request.body(body)?).await?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await?.to_bytes();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Ok(Answer { code, body })
}

async fn get(client: &Client, path: &str) -> Fallible<Answer> {
    send(client, Request::get(path).header(header::ACCEPT, JSON), &Value::Null).await
}

async fn post(client: &Client, path: &str, body: &Value) -> Fallible<Answer> {
    send(client, Request::post(path).header(header::CONTENT_TYPE, JSON), body).await
}

async fn put(client: &Client, path: &str, body: &Value) -> Fallible<Answer> {
    send(client, Request::put(path).header(header::CONTENT_TYPE, JSON), body).await
}

async fn patch(client: &Client, path: &str, content_type: &str, body: &Value) -> Fallible<Answer> {
    let request =
        Request::builder().method(Method::PATCH).uri(path).header(header::CONTENT_TYPE, content_type);
    send(client, request, body).await
}

async fn delete(client: &Client, path: &str, options: &Value) -> Fallible<Answer> {
    send(client, Request::delete(path).header(header::CONTENT_TYPE, JSON), options).await
}

/// Makes a Node with a label that carries its own name, and returns it.
async fn make_node(client: &Client, name: &str, more: &Value) -> Fallible<Value> {
    let mut node =
        json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": {"case": name}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        node[field] = value.clone();
    }
    post(client, NODES, &node).await?.ok()
}

/// Removes a Node with whatever finalizers it has.
async fn remove_node(client: &Client, name: &str) -> Fallible<()> {
    let path = format!("{NODES}/{name}");
    patch(client, &path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await?;
    delete(client, &path, &Value::Null).await?;
    Ok(())
}

fn revision(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

/// An open watch, read line by line.
struct Watch {
    body: Body,
    buffer: Vec<u8>,
}

impl Watch {
    /// Opens a watch; `query` follows `?watch=true`.
    async fn open(client: &Client, path: &str, query: &str) -> Fallible<Self> {
        let request = Request::get(format!("{path}?watch=true{query}")).header(header::ACCEPT, JSON);
        Self::from_request(client, request).await
    }

    async fn from_request(client: &Client, request: http::request::Builder) -> Fallible<Self> {
        let response = client.send(request.body(Body::empty())?).await?;
        ensure!(response.status().is_success(), "watch answered {}", response.status());
        Ok(Self { body: response.into_body(), buffer: Vec::new() })
    }

    /// The next event; `None` at the end of the watch.
    async fn event(&mut self) -> Fallible<Option<Value>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match tokio::time::timeout(PATIENCE, self.body.frame()).await? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    /// The next event, which must be there.
    async fn next(&mut self) -> Fallible<Value> {
        self.event().await?.ok_or_else(|| "the watch ended too early".into())
    }

    /// The next event's type and the object's name.
    async fn step(&mut self) -> Fallible<(String, String)> {
        let event = self.next().await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok((text(&event["type"]), text(&event["object"]["metadata"]["name"])))
    }
}
