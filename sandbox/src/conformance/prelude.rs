//! Helpers for the cases.

pub(super) use std::error::Error;
use std::time::Duration;

use http::Method;
pub(super) use http::{Request, header};
use http_body_util::BodyExt;
pub(super) use kube::Client;
use kube::client::Body;
pub(super) use serde_json::{Value, json};

pub(super) use super::Outcome;

/// How long a case waits for a watch event.
pub(super) const PATIENCE: Duration = Duration::from_mins(10);

/// Ends the case with an error if the condition does not hold.
macro_rules! ensure {
    ($condition:expr, $($format:tt)+) => {
        if !$condition {
            return Err(format!("line {}: {}", line!(), format!($($format)+)).into());
        }
    };
}
/// Ends the case with an error if two values differ.
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
pub(super) use {ensure, same};

pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(super) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

pub(super) const JSON: &str = "application/json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(super) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub(super) const APPLY_PATCH: &str = "application/apply-patch+yaml";

pub(super) type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A name that no other run uses.
pub(super) fn unique(base: &str) -> String {
    format!("conformance-{base}-{}", crate::object::suffix())
}

/// The response to a request.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: Value,
}

impl Answer {
    /// The body of a successful response; an error for any other.
    pub(super) fn ok(self) -> Fallible<Value> {
        if self.code < 300 { Ok(self.body) } else { Err(format!("unexpected answer: {self:?}").into()) }
    }

    /// Status code and reason.
    pub(super) fn refusal(&self) -> (u16, &str) {
        (self.code, self.body["reason"].as_str().unwrap_or_default())
    }
}

/// Sends a request unchanged.
pub(super) async fn send(client: &Client, request: http::request::Builder, body: &Value) -> Fallible<Answer> {
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

pub(super) async fn get(client: &Client, path: &str) -> Fallible<Answer> {
    send(client, Request::get(path).header(header::ACCEPT, JSON), &Value::Null).await
}

pub(super) async fn post(client: &Client, path: &str, body: &Value) -> Fallible<Answer> {
    send(client, Request::post(path).header(header::CONTENT_TYPE, JSON), body).await
}

pub(super) async fn put(client: &Client, path: &str, body: &Value) -> Fallible<Answer> {
    send(client, Request::put(path).header(header::CONTENT_TYPE, JSON), body).await
}

pub(super) async fn patch(client: &Client, path: &str, content_type: &str, body: &Value) -> Fallible<Answer> {
    let request =
        Request::builder().method(Method::PATCH).uri(path).header(header::CONTENT_TYPE, content_type);
    send(client, request, body).await
}

pub(super) async fn delete(client: &Client, path: &str, options: &Value) -> Fallible<Answer> {
    send(client, Request::delete(path).header(header::CONTENT_TYPE, JSON), options).await
}

/// Creates a Node with a label whose value is the Node's name, and returns it.
pub(super) async fn make_node(client: &Client, name: &str, more: &Value) -> Fallible<Value> {
    let mut node =
        json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": {"case": name}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        node[field] = value.clone();
    }
    post(client, NODES, &node).await?.ok()
}

/// Removes a Node and any finalizers that it has.
pub(super) async fn remove_node(client: &Client, name: &str) -> Fallible<()> {
    let path = format!("{NODES}/{name}");
    patch(client, &path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await?;
    delete(client, &path, &Value::Null).await?;
    Ok(())
}

pub(super) fn revision(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

/// An open watch, read line by line.
pub(super) struct Watch {
    body: Body,
    buffer: Vec<u8>,
}

impl Watch {
    /// Opens a watch; `query` follows `?watch=true`.
    pub(super) async fn open(client: &Client, path: &str, query: &str) -> Fallible<Self> {
        let request = Request::get(format!("{path}?watch=true{query}")).header(header::ACCEPT, JSON);
        Self::from_request(client, request).await
    }

    pub(super) async fn from_request(client: &Client, request: http::request::Builder) -> Fallible<Self> {
        let response = client.send(request.body(Body::empty())?).await?;
        ensure!(response.status().is_success(), "watch answered {}", response.status());
        Ok(Self { body: response.into_body(), buffer: Vec::new() })
    }

    /// The next event; `None` at the end of the watch.
    pub(super) async fn event(&mut self) -> Fallible<Option<Value>> {
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

    /// The next event; an error at the end of the watch.
    pub(super) async fn next(&mut self) -> Fallible<Value> {
        self.event().await?.ok_or_else(|| "the watch ended too early".into())
    }

    /// The next event's type and the object's name.
    pub(super) async fn step(&mut self) -> Fallible<(String, String)> {
        let event = self.next().await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok((text(&event["type"]), text(&event["object"]["metadata"]["name"])))
    }
}
