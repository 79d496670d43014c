//! What an answer of the server means.

use std::time::Duration;

use cloudprovider::{Error, ErrorKind};
use http::HeaderMap;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// The wait after a "too many requests" that names no time, or a time in another form than seconds.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// A shorter wait, such as 0, would make callers try again without a pause.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A longer wait is not obeyed: it is a mistake.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10 * 60);

/// More of the server's own words is not shown.
const MAX_WORDS: usize = 200;

/// The header with which Rancher 2.x says whether it knows the user. A proxy before it does not set it.
const AUTHENTICATED: &str = "x-api-cattle-auth";

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// An error in the form of the API, or the `Status` of the Kubernetes API that the server passes on. Rancher
/// 2.x has the status as a text at times.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApiError {
    /// `error` in the form of the API.
    #[serde(rename = "type")]
    resource_type: Option<Value>,
    code: Option<Value>,
    message: Option<Value>,
    /// `Status` in that of Kubernetes.
    kind: Option<Value>,
    reason: Option<Value>,
}

impl Reply {
    /// The object that a successful answer holds.
    ///
    /// # Errors
    /// What the answer is instead. Only an answer that is certain gets a kind that says something about
    /// the object.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.check()?;
        let text = self.body.trim_ascii_start();
        if !text.starts_with(b"{") {
            let what = self.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let what = what.map_or(String::new(), |what| format!(" but {}", plain(what)));
            return Err(unavailable(format!(
                "the answer is not JSON{what}: perhaps a login page or a proxy; check the url"
            )));
        }
        // The library's words name a field and a place, and at times a short value.
        serde_json::from_slice(text)
            .map_err(|error| unavailable(format!("the answer cannot be read: {}", plain(&error.to_string()))))
    }

    /// Whether the request succeeded.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub(crate) fn check(&self) -> Result<(), Error> {
        let status = self.status;
        let (code, words) = self.words();
        let error = match status {
            200..=299 => return Ok(()),
            300..=399 => {
                unavailable(format!("the answer is a redirect ({status}), as to a login page; check the url"))
            }
            401 => Error::new(
                ErrorKind::Unauthenticated,
                format!("the API key is refused (401){words}: it is wrong, expired or deactivated"),
            ),
            403 if self.is_refused_by_rancher() => Error::new(
                ErrorKind::PermissionDenied,
                "the API key may not do this (403), and Rancher gives no reason",
            ),
            // Without the words of an API it says nothing about the key's rights.
            403 if words.is_empty() => unavailable(
                "the request is refused (403), though not in the form of the API: perhaps by a proxy; check the url",
            ),
            403 => {
                Error::new(ErrorKind::PermissionDenied, format!("the API key may not do this (403){words}"))
            }
            404 if code.as_deref() == Some("ActionNotAvailable") => Error::new(
                ErrorKind::Conflict,
                format!("the state of the object does not allow this now (404){words}"),
            ),
            404 => unavailable(format!(
                "there is no such resource (404){words}; check url and apiVersion, and what the API key may see"
            )),
            409 => Error::new(
                ErrorKind::Conflict,
                format!("somebody else changed this at the same time (409){words}"),
            ),
            429 => Error::new(ErrorKind::RateLimited, format!("too many requests (429){words}"))
                .with_retry_after(self.pause().unwrap_or(RETRY_AFTER)),
            422 if code.as_deref() == Some("NotUnique") => {
                Error::new(ErrorKind::Conflict, format!("there is one already (422){words}"))
            }
            400..=499 => {
                Error::new(ErrorKind::InvalidInput, format!("the request is refused ({status}){words}"))
            }
            _ => unavailable(format!("the server fails ({status}){words}")),
        };
        Err(match self.retry_after() {
            Some(after) if status == 503 => error.with_retry_after(after),
            _ => error,
        })
    }

    /// Whether Rancher itself, which knows the user, refuses the request without a word. So it answers at
    /// `/apis/management.cattle.io` to all but administrators, whatever roles grant.
    fn is_refused_by_rancher(&self) -> bool {
        let is_known = self.headers.get(AUTHENTICATED).is_some_and(|value| value == "true");
        self.status == 403 && is_known && self.body.trim_ascii().is_empty()
    }

    /// How long the server wants to be left alone, if it had too many requests.
    pub(super) fn pause(&self) -> Option<Duration> {
        (self.status == 429).then(|| self.retry_after().unwrap_or(RETRY_AFTER))
    }

    fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds).clamp(MIN_RETRY_AFTER, MAX_RETRY_AFTER))
    }

    /// The code of an error, and the server's own words as the end of a phrase.
    fn words(&self) -> (Option<String>, String) {
        let error = serde_json::from_slice::<ApiError>(&self.body).unwrap_or_default();
        let text = |value: Option<Value>| value?.as_str().map(plain).filter(|words| !words.is_empty());
        let code = if error.resource_type.is_some_and(|is| is == "error") {
            error.code
        } else if error.kind.is_some_and(|is| is == "Status") {
            error.reason
        } else {
            return (None, String::new());
        };
        let (code, message) = (text(code), text(error.message));
        let words: Vec<_> = code.iter().chain(&message).map(String::as_str).collect();
        let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(": ")) };
        (code, words)
    }
}

/// An error that says nothing about the cloud's objects.
pub(crate) fn unavailable(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unavailable, message)
}

/// Reads a field that may be `null`, which is as if it were missing.
///
/// # Errors
/// If it is anything else that does not fit.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A foreign text for a message: short, on one line, and no page for a browser.
pub(crate) fn plain(text: &str) -> String {
    let text = if text.trim_start().starts_with('<') { "an HTML page" } else { text };
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_WORDS)
        .collect::<String>()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Reply {
        let pairs = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        Reply { status, headers: pairs.collect(), body: body.as_bytes().to_vec() }
    }

    fn kind(reply: &Reply) -> ErrorKind {
        reply.decode::<Value>().expect_err("an error").kind()
    }

    #[test]
    fn only_json_is_an_answer() {
        assert!(reply(200, &[], " {\"type\":\"collection\"}").decode::<Value>().is_ok());
        for (status, body) in
            [(200, "<html>Log in</html>"), (200, ""), (200, "{"), (302, ""), (404, "{}"), (500, "")]
        {
            assert_eq!(kind(&reply(status, &[("content-type", "text/html")], body)), ErrorKind::Unavailable);
        }
        let error =
            reply(200, &[("content-type", "text/html")], "<html>").decode::<Value>().expect_err("HTML");
        assert_eq!(
            error.to_string(),
            "the answer is not JSON but text/html: perhaps a login page or a proxy; check the url"
        );
    }

    #[test]
    fn refusals_are_told_apart() {
        let text = r#"{"type":"error","status":"401","message":"Unauthorized 401: must authenticate"}"#;
        let error = reply(401, &[], text).check().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
        assert!(error.to_string().contains("must authenticate"), "{error}");
        for (status, expected) in [
            (403, ErrorKind::PermissionDenied),
            (409, ErrorKind::Conflict),
            (422, ErrorKind::InvalidInput),
            (429, ErrorKind::RateLimited),
            (503, ErrorKind::Unavailable),
        ] {
            assert_eq!(
                kind(&reply(status, &[], "{\"type\":\"error\",\"code\":\"X\"}")),
                expected,
                "{status}"
            );
        }
    }

    #[test]
    fn a_refusal_of_kubernetes_says_which_right_is_missing() {
        let message =
            r#"machines.cluster.x-k8s.io is forbidden: User \"u-x\" cannot list resource \"machines\""#;
        let body = format!(r#"{{"kind":"Status","reason":"Forbidden","message":"{message}","code":403}}"#);
        let error = reply(403, &[], &body).check().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(
            error.to_string().contains(r#"Forbidden: machines.cluster.x-k8s.io is forbidden: User "u-x""#),
            "{error}"
        );
    }

    #[test]
    fn a_refusal_of_a_proxy_is_none_of_the_server() {
        for body in ["<html>403 Forbidden</html>", "Forbidden", "", "{}", r#"{"kind":"Page"}"#] {
            let error = reply(403, &[], body).check().expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{body}");
            assert!(error.to_string().contains("perhaps by a proxy"), "{error}");
        }
    }

    /// As a real Rancher 2.9 answers at `/apis/management.cattle.io` to a user who is no administrator.
    #[test]
    fn a_refusal_without_a_word_is_rancher_s_if_it_says_that_it_knows_the_user() {
        let kind = |headers: &[(&'static str, &'static str)], body| {
            reply(403, headers, body).check().expect_err("refused").kind()
        };
        let (known, html) = (("x-api-cattle-auth", "true"), ("content-type", "text/html"));
        assert_eq!(kind(&[known], ""), ErrorKind::PermissionDenied);
        assert_eq!(kind(&[known], "\n"), ErrorKind::PermissionDenied);
        for (headers, body) in [
            (&[("x-api-cattle-auth", "false")][..], ""),
            (&[], ""),
            (&[html], "<html>403 Forbidden</html>"),
            (&[html, known], "<html>403 Forbidden</html>"),
        ] {
            assert_eq!(kind(headers, body), ErrorKind::Unavailable, "{headers:?} {body}");
        }
        assert!(reply(200, &[known], "").check().is_ok());
    }

    #[test]
    fn an_action_that_is_not_offered_any_more_is_no_missing_object() {
        let error = reply(404, &[], r#"{"type":"error","code":"ActionNotAvailable"}"#).check();
        assert_eq!(error.expect_err("refused").kind(), ErrorKind::Conflict);
    }

    #[test]
    fn only_a_429_stops_all_calls() {
        let pause = |status| reply(status, &[("retry-after", "7")], "").pause();
        assert_eq!(pause(429), Some(Duration::from_secs(7)));
        assert_eq!(reply(429, &[], "").pause(), Some(RETRY_AFTER));
        assert_eq!((pause(503), pause(200)), (None, None));
    }

    #[test]
    fn the_servers_time_is_obeyed_within_reason() {
        let after = |status, value| {
            reply(status, &[("retry-after", value)], "").check().expect_err("an error").retry_after()
        };
        assert_eq!(after(429, "7"), Some(Duration::from_secs(7)));
        assert_eq!(after(503, "7"), Some(Duration::from_secs(7)));
        assert_eq!(after(429, "Wed, 21 Oct 2015 07:28:00 GMT"), Some(RETRY_AFTER));
        for status in [429, 503] {
            assert_eq!(after(status, "0"), Some(MIN_RETRY_AFTER), "no hot loop");
        }
        assert_eq!(after(429, "999999999999"), Some(MAX_RETRY_AFTER));
        assert_eq!(after(503, "soon"), None);
    }
}
