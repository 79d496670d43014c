//! Events that are cut off. kube ignores a line of JSON that ends too early, since the last line of a stream
//! may be incomplete. If other lines follow, the event was sent, and its content would be lost.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use tower::BoxError;

use super::pauses::Pauses;

/// This byte is invalid in JSON, inside and outside of strings. Its error differs from that of a premature
/// end.
const NO_JSON: u8 = 0x01;

/// The same client, whose watches replace a cut-off event by an unreadable one if others follow, and make
/// [`Pauses`] between watches. For responses in JSON.
pub(super) fn with_cuts_marked(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let pauses = Arc::<Pauses>::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, pauses) = (client.clone(), Arc::clone(&pauses));
        async move {
            let query = request.uri().query().unwrap_or_default();
            let is_watch = request.method() == Method::GET
                && form_urlencoded::parse(query.as_bytes())
                    .any(|(key, value)| key == "watch" && value != "false");
            let watched = is_watch.then(|| request.uri().clone());
            if let Some(uri) = &watched {
                pauses.wait(uri).await;
            }
            let answer = client.send(request).await.map_err(BoxError::from)?;
            let watched = watched.filter(|_| answer.status().is_success());
            if let Some(uri) = &watched {
                pauses.opened(uri);
            }
            let mut cuts = watched.map(|_| Cuts::default());
            Ok::<_, BoxError>(answer.map(|body| {
                body.map_frame(move |frame| match &mut cuts {
                    Some(cuts) => frame.map_data(|data| cuts.mark(data)),
                    None => frame,
                })
            }))
        }
    });
    Client::new(service, namespace)
}

/// The position of the stream in a line of JSON.
#[derive(Debug, Default)]
struct Cuts {
    /// Number of open objects and lists.
    depth: usize,
    in_text: bool,
    is_escaped: bool,
}

impl Cuts {
    /// The same data, with a mark at the end of each line that ends too early.
    fn mark(&mut self, data: Bytes) -> Bytes {
        let mut marked: Option<BytesMut> = None;
        let mut copied = 0;
        for (at, byte) in data.iter().enumerate() {
            match byte {
                b'\n' => {
                    if self.depth > 0 || self.in_text {
                        let marked = marked.get_or_insert_default();
                        marked.extend_from_slice(&data[copied..at]);
                        marked.extend_from_slice(&[NO_JSON]);
                        copied = at;
                    }
                    *self = Self::default();
                }
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_text => self.is_escaped = true,
                b'"' => self.in_text = !self.in_text,
                b'{' | b'[' if !self.in_text => self.depth += 1,
                b'}' | b']' if !self.in_text => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        match marked {
            None => data,
            Some(mut marked) => {
                marked.extend_from_slice(&data[copied..]);
                marked.freeze()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn marked(text: &str, piece: usize) -> String {
        let mut cuts = Cuts::default();
        let pieces = text.as_bytes().chunks(piece).map(|piece| cuts.mark(Bytes::copy_from_slice(piece)));
        String::from_utf8(pieces.flatten().collect()).expect("text")
    }

    #[test]
    fn what_is_whole_stays_as_it_is() {
        let text = "{\"a\":\"}{\\\"\\\\\"}\n[1,[2]]\n\"x\"\n7\n\n{\"half\":";
        for piece in [1, 2, 3, 100] {
            assert_eq!(marked(text, piece), text, "{piece}");
        }
    }

    #[test]
    fn what_ends_too_early_is_no_end_any_more() {
        let whole = r#"{"type":"MODIFIED","object":{"a":["b\"",{"c":1}]}}"#;
        for cut in 1..whole.len() {
            let text = format!("{}\n{whole}\n", &whole[..cut]);
            for piece in [1, 7, 1000] {
                let marked = marked(&text, piece);
                let mut lines = marked.lines();
                let first = serde_json::from_str::<Value>(lines.next().expect("a line")).expect_err("cut");
                assert!(!first.is_eof(), "{cut}: {first}");
                assert_eq!(lines.next(), Some(whole), "{cut}");
            }
        }
    }
}
