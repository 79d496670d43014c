//! Requests that only Rancher 1.6 is sent: changes of objects, and the WebSocket of its events.

use cloudprovider::Result;
use http::{Method, header};
use reqwest::{Upgraded, Url};
use serde::{Serialize, de::DeserializeOwned};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

use crate::norman::{
    client::{Client, JSON, read, unreachable},
    reply::unavailable,
};

/// An event with the largest object is smaller.
const MAX_EVENT: usize = 16 << 20;

impl Client {
    /// Sends `body` and reads the answer.
    pub(crate) async fn send_object<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: &impl Serialize,
    ) -> Result<T> {
        self.send(method, url, Some(body)).await?.decode()
    }

    /// Deletes an object. One that is not there any more is no error.
    pub(crate) async fn delete(&self, url: Url) -> Result<()> {
        let reply = self.send(Method::DELETE, url, None::<&()>).await?;
        if reply.status == 404 { Ok(()) } else { reply.check() }
    }

    /// Opens a WebSocket.
    pub(crate) async fn web_socket(&self, url: Url) -> Result<WebSocketStream<Upgraded>> {
        self.check_pause()?;
        let key = generate_key();
        let request = self
            .request(Method::GET, url)
            .header(header::ACCEPT, JSON)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key);
        let opening = async {
            let response = request.send().await.map_err(unreachable)?;
            if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
                read(response).await?.check()?;
                return Err(unavailable("the server or a proxy does not open a WebSocket"));
            }
            let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
            if accepted.is_none_or(|accept| accept.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes())
            {
                return Err(unavailable("the answer to the opening of a WebSocket is not valid"));
            }
            response.upgrade().await.map_err(unreachable)
        };
        let connection = self.in_time(opening).await?;
        let limits =
            WebSocketConfig::default().max_message_size(Some(MAX_EVENT)).max_frame_size(Some(MAX_EVENT));
        Ok(WebSocketStream::from_raw_socket(connection, Role::Client, Some(limits)).await)
    }
}
