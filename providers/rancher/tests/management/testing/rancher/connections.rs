//! Requests, and what is passed on to the API server.

use std::sync::Arc;

use http::{HeaderValue, header};
use hyper::body::Incoming;

use super::{
    AUTHENTICATED, Fault, Rancher, Upstream,
    answers::{Request, Rights, admit, answer},
};
use crate::fake_server::{Answer, Asked, Connection, Connections, Server, basic, json_response};

impl Server for Rancher {
    fn connections(&self) -> &Connections {
        &self.connections
    }

    async fn respond(self: Arc<Self>, request: http::Request<Incoming>, connection: Connection) -> Answer {
        let asked = Asked::of(&request, &connection);
        let token = asked.authorization.as_deref().and_then(token);
        let known = Request { asked, token };
        let admitted = admit(&mut self.server(), &known);
        match admitted {
            Ok(rights) => {
                let mut answer = respond_to(&self, &request, &known, rights).await;
                answer.headers_mut().insert(AUTHENTICATED, HeaderValue::from_static("true"));
                answer
            }
            Err(fault) => fault.answer(),
        }
    }
}

/// The answer to a user whom the server knows.
async fn respond_to(
    rancher: &Rancher,
    request: &http::Request<Incoming>,
    known: &Request,
    rights: Rights,
) -> Answer {
    if known.asked.path.starts_with("/apis/management.cattle.io") && rights != Rights::All {
        return Fault::for_administrators().answer();
    }
    let first = known.asked.path.split('/').nth(1).unwrap_or_default();
    if matches!(first, "api" | "apis") && known.asked.method == http::Method::GET {
        return match &rancher.upstream {
            Some(upstream) => pass_on(upstream, request, rights).await,
            None => Fault::no_such_object(&known.asked.path).answer(),
        };
    }
    if first != "v3" {
        // The pages for browsers answer everything else.
        return Fault::login_page().answer();
    }
    if known.asked.method != http::Method::GET {
        return Fault::error(405, "MethodNotAllow").answer();
    }
    let answered = answer(&rancher.server(), known, rights);
    match answered {
        Ok(body) => json_response(200, &body),
        Err(fault) => fault.answer(),
    }
}

/// The token of `Bearer <token>`, or of HTTP Basic with the token's name and secret.
fn token(value: &str) -> Option<String> {
    if let Some(token) = value.strip_prefix("Bearer ") {
        return Some(token.to_owned());
    }
    basic(value)
}

/// The API server's answer, as it arrives. Its RBAC decides for the user.
async fn pass_on(upstream: &Upstream, request: &http::Request<Incoming>, rights: Rights) -> Answer {
    let [all, others] = &upstream.tokens;
    let token = if rights == Rights::All { all } else { others };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut passed = upstream.client.get(format!("{}{path}", upstream.url)).bearer_auth(token);
    if let Some(accept) = request.headers().get(header::ACCEPT) {
        passed = passed.header(header::ACCEPT, accept);
    }
    match passed.send().await {
        Ok(answer) => {
            let (parts, body) = Answer::from(answer).into_parts();
            let mut answer = Answer::new(body);
            *answer.status_mut() = parts.status;
            for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
                if let Some(value) = parts.headers.get(&name) {
                    answer.headers_mut().insert(name, value.clone());
                }
            }
            answer
        }
        Err(_) => Fault::error(503, "ClusterUnavailable").answer(),
    }
}
