//! The SOAP protocol of vCenter, at `/sdk` and, for storage policies, at `/pbm`.

mod envelope;
#[cfg(test)]
mod memory;
pub(crate) mod parse;

use std::{fmt, time::Duration};

use cloudprovider::async_trait;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};

use crate::{
    http::{Body, HttpClient, HttpError},
    vim::{Call, CallError, Transport, element::Element, policies::is_of_policies},
};

/// The API version whose names and types are used, unless a call needs a later one: that of the oldest supported vCenter. Later ones
/// accept it too.
const API_VERSION: &str = "7.0";

/// The same for storage policies.
const POLICY_ACTION: &str = "urn:pbm/2.0";

/// The cookie that holds the session.
const SESSION_COOKIE: &str = "vmware_soap_session";

/// A response larger than this is refused. A page of the listing has some kilobytes for each machine.
const LARGEST_ANSWER: usize = 64 << 20;

/// The SOAP endpoint of one vCenter, with the session's cookie.
pub(crate) struct SoapTransport {
    http: HttpClient,
    /// `vmware_soap_session=...`, with the value byte for byte as vCenter sent it: a real one quotes the
    /// value and wants the quotes back.
    cookie: Mutex<Option<String>>,
}

impl SoapTransport {
    /// The endpoint of this vCenter.
    pub(crate) fn new(http: HttpClient) -> Self {
        Self { http, cookie: Mutex::new(None) }
    }

    fn cookie(&self) -> Option<String> {
        self.cookie.lock().clone()
    }

    fn keep_cookie(&self, headers: &http::HeaderMap) {
        for header in headers.get_all(http::header::SET_COOKIE) {
            let Ok(text) = header.to_str() else { continue };
            let pair = text.split(';').next().unwrap_or_default().trim();
            if pair.split_once('=').is_some_and(|(name, value)| name == SESSION_COOKIE && !value.is_empty()) {
                *self.cookie.lock() = Some(pair.to_owned());
            }
        }
    }
}

impl fmt::Debug for SoapTransport {
    /// Does not show the cookie.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoapTransport").field("http", &self.http).finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for SoapTransport {
    async fn call(&self, call: &Call, deadline: Duration) -> Result<Element, CallError> {
        let method = call.method;
        let is_of_policies = is_of_policies(call);
        let (path, action) = if is_of_policies {
            ("/pbm", POLICY_ACTION.to_owned())
        } else {
            ("/sdk", format!("urn:vim25/{}", call.since.unwrap_or(API_VERSION)))
        };
        let mut headers = vec![("SOAPAction", action)];
        let text = if is_of_policies {
            let session = self.session_id();
            let session = session.as_ref().map(ExposeSecret::expose_secret);
            envelope::write(call, envelope::POLICIES, session)
        } else {
            headers.extend(self.cookie().map(|cookie| ("Cookie", cookie)));
            envelope::write(call, envelope::VIM, None)
        };
        let body = Body { content_type: "text/xml; charset=\"utf-8\"", text };
        let answer = self
            .http
            .send(http::Method::POST, path, &headers, Some(body), deadline, LARGEST_ANSWER)
            .await
            .map_err(|error| match error {
                HttpError::Timeout => CallError::Timeout { method, after: deadline },
                HttpError::Unreachable(reason) => CallError::Unreachable { method, reason },
                HttpError::TooLarge => CallError::TooLarge { method, limit_mib: LARGEST_ANSWER >> 20 },
            })?;
        let result = parse::read(method, answer.status, &answer.body);
        if result.is_ok() && !is_of_policies {
            self.keep_cookie(&answer.headers);
        }
        result
    }

    fn forget_session(&self) {
        *self.cookie.lock() = None;
    }

    fn has_session(&self) -> bool {
        self.cookie.lock().is_some()
    }

    fn session_id(&self) -> Option<SecretString> {
        let cookie = self.cookie()?;
        let (_, value) = cookie.split_once('=')?;
        Some(value.trim_matches('"').into())
    }
}

/// The request for a call, as it is sent.
#[cfg(test)]
pub(crate) fn written(call: &Call) -> String {
    envelope::write(call, envelope::VIM, None)
}

#[cfg(test)]
mod tests;
