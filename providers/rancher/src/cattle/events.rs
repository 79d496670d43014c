//! The events of the server: a WebSocket that says which objects changed.

use std::time::Duration;

use cloudprovider::{Result, error_chain};
use futures::{SinkExt as _, StreamExt as _, stream, stream::BoxStream};
use reqwest::Upgraded;
use serde::Deserialize;
use serde_json::Value;
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use super::{client::Client, model::Host, reply::unavailable};

/// The server sends a ping every few seconds. After this time of silence the connection counts as dead.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// The name of the event about a change of an object.
const CHANGE: &str = "resource.change";

/// What an event says of the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostEvent {
    /// This is the host now. It may have been removed.
    Host(Box<Host>),
    /// A host changed, and the event does not say how.
    Unclear,
}

/// The events, until the connection ends with an error.
pub(crate) type HostEvents = BoxStream<'static, Result<HostEvent>>;

/// An event as it arrives.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    resource_type: Option<String>,
    #[serde(default)]
    data: Option<Value>,
}

impl Client {
    /// Subscribes to changes of hosts.
    pub(super) async fn subscribe(&self) -> Result<HostEvents> {
        let mut url = self.url("subscribe");
        url.query_pairs_mut().append_pair("eventNames", CHANGE);
        let socket =
            self.web_socket(url).await.map_err(|error| error.with_operation("subscribe to events"))?;
        Ok(stream::unfold(Some(socket), next).boxed())
    }
}

/// The next event about a host. The state is `None` after an error.
async fn next(
    socket: Option<WebSocketStream<Upgraded>>,
) -> Option<(Result<HostEvent>, Option<WebSocketStream<Upgraded>>)> {
    let mut socket = socket?;
    let why = loop {
        let message = match tokio::time::timeout(MAX_SILENCE, socket.next()).await {
            Err(_) => break format!("no event and no ping within {MAX_SILENCE:?}"),
            Ok(None) => break "the server ended the connection".to_owned(),
            Ok(Some(Err(error))) => break error_chain(&error),
            Ok(Some(Ok(message))) => message,
        };
        match message {
            Message::Text(text) => {
                if let Some(event) = decode(text.as_bytes()) {
                    return Some((Ok(event), Some(socket)));
                }
            }
            Message::Binary(bytes) => {
                if let Some(event) = decode(&bytes) {
                    return Some((Ok(event), Some(socket)));
                }
            }
            // The answer to a ping is queued by the library, and sent with the next write.
            Message::Ping(_) => {
                // An error shows with the next read.
                if tokio::time::timeout(MAX_SILENCE, socket.flush()).await.is_err() {
                    break format!("no answer to a ping could be sent within {MAX_SILENCE:?}");
                }
            }
            Message::Close(_) => break "the server closed the connection".to_owned(),
            Message::Pong(_) | Message::Frame(_) => {}
        }
    };
    let error = unavailable(format!("the events ended: {why}")).with_operation("follow events");
    Some((Err(error), None))
}

/// What a message says of the hosts, if anything.
pub(crate) fn decode(message: &[u8]) -> Option<HostEvent> {
    let event: Event = match serde_json::from_slice(message) {
        Ok(event) => event,
        // It may have been about a host.
        Err(_) => return Some(HostEvent::Unclear),
    };
    if event.name.as_deref() != Some(CHANGE) || !event.resource_type?.eq_ignore_ascii_case("host") {
        return None;
    }
    let resource = event.data.and_then(|mut data| data.get_mut("resource").map(Value::take));
    let host = resource.and_then(|resource| serde_json::from_value::<Host>(resource).ok());
    Some(host.map_or(HostEvent::Unclear, |host| HostEvent::Host(Box::new(host))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn decoded(event: &Value) -> Option<HostEvent> {
        decode(event.to_string().as_bytes())
    }

    #[test]
    fn events_about_hosts_are_told_from_others() {
        let host = json!({"id": "1h5", "uuid": "u", "type": "host", "state": "active"});
        let event = |name, kind, data: Value| json!({"name": name, "resourceType": kind, "resourceId": "1h5", "data": data});
        let found = decoded(&event("resource.change", "host", json!({"resource": host})));
        assert!(matches!(found, Some(HostEvent::Host(host)) if host.uuid == "u"));
        for data in [Value::Null, json!({}), json!({"resource": null}), json!({"resource": {"id": "1h5"}})] {
            assert_eq!(decoded(&event("resource.change", "host", data)), Some(HostEvent::Unclear));
        }
        assert_eq!(decoded(&event("resource.change", "service", json!({"resource": host}))), None);
        assert_eq!(decoded(&json!({"name": "ping"})), None);
        assert_eq!(decode(b"{"), Some(HostEvent::Unclear));
    }

    proptest! {
        #[test]
        fn no_message_panics(message in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&message);
        }
    }
}
