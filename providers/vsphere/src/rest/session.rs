//! The session of the Automation REST API.
//!
//! REST has a session of its own, since it accepts that of SOAP only from 8.0 U3 on. A cloned SOAP session is
//! tried for REST all the same, since there may be no credentials to log in with.

use std::{fmt, sync::Arc, time::Duration};

use http::Method;
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::dialect::{Dialect, Question};
use crate::{
    accounts::Accounts,
    http::{Body, HttpClient, HttpError},
    session::{Access, AccessSource, Choices, Credentials, Refusals},
    session_manager::SessionManager,
    vim::{CallError, Transport},
};

/// The deadline of a call.
const DEADLINE: Duration = Duration::from_secs(30);

/// The deadline of a logout. It is short, since a logout delays shutdowns and new logins.
const LOGOUT_DEADLINE: Duration = Duration::from_secs(5);

/// A response larger than this is refused.
const LARGEST_ANSWER: usize = 32 << 20;

/// The call that opens a session, for errors.
const CREATE: &str = "create session";

/// The header that names the session.
const SESSION_HEADER: &str = "vmware-api-session-id";

#[derive(Clone)]
struct Opened {
    dialect: Dialect,
    id: Arc<str>,
    /// Whether it is the SOAP session, which must not be ended here.
    is_borrowed: bool,
}

/// A session, opened when it is first needed.
pub(crate) struct RestSession {
    http: HttpClient,
    access: AccessSource,
    /// The SOAP client whose session is borrowed.
    soap: Option<Arc<dyn Transport>>,
    accounts: Arc<Accounts>,
    /// The dialect that is tried first.
    first: Dialect,
    opened: Mutex<Option<Opened>>,
    /// The session of a login until its caller takes it. Locked while a login is under way, which goes on where its caller is dropped.
    entered: Arc<Mutex<Option<Opened>>>,
    /// The SOAP session that vCenter did not accept for REST. It is not tried again.
    not_lent: Mutex<Option<Arc<str>>>,
}

impl RestSession {
    pub(crate) fn new(
        http: HttpClient,
        access: AccessSource,
        accounts: Arc<Accounts>,
        first: Dialect,
    ) -> Self {
        Self {
            http,
            access,
            soap: None,
            accounts,
            first,
            opened: Mutex::default(),
            entered: Arc::default(),
            not_lent: Mutex::default(),
        }
    }

    /// Allows borrowing the session of this SOAP client if it was cloned.
    pub(crate) fn lend(&mut self, soap: Arc<dyn Transport>) {
        self.soap = Some(soap);
    }

    /// Makes a call in the session, and repeats it in a new one if vCenter reports that the session has
    /// ended.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        method: &'static str,
        verb: Method,
        question: impl Fn(Dialect) -> Question,
    ) -> Result<T, CallError> {
        let mut ended: Option<Arc<str>> = None;
        loop {
            let session = self.open(ended.as_ref()).await?;
            let headers = [(SESSION_HEADER, session.id.to_string())];
            let (path, body) = question(session.dialect);
            let body = body.map(|text| Body { content_type: "application/json", text });
            let (status, bytes) = send(&self.http, method, verb.clone(), &path, &headers, body).await?;
            match status {
                200..=299 => return session.dialect.read(method, &bytes),
                401 if ended.is_none() => ended = Some(session.id),
                status => return Err(CallError::Status { method, status }),
            }
        }
    }

    /// The session. A new one is opened if there is none or if the current one has `ended`.
    async fn open(&self, ended: Option<&Arc<str>>) -> Result<Opened, CallError> {
        let mut session = self.opened.lock().await;
        if let Some(opened) = &*session
            && ended != Some(&opened.id)
            && (!opened.is_borrowed || self.soap_session().as_ref() == Some(&opened.id))
        {
            return Ok(opened.clone());
        }
        if let Some(opened) = &*session {
            // It may be alive in spite of vCenter's answer.
            self.end(opened).await;
        }
        let known = session.take().map(|opened| opened.dialect);
        let first = known.unwrap_or(self.first);
        let choices = (self.access)().map_err(|reason| CallError::NoCredentials(reason.into()))?;
        let opened = self.open_by(choices, first, ended).await?;
        *session = Some(opened.clone());
        Ok(opened)
    }

    /// Tries each way in turn until one is not refused.
    async fn open_by(
        &self,
        choices: Choices,
        first: Dialect,
        ended: Option<&Arc<str>>,
    ) -> Result<Opened, CallError> {
        let mut refusals = Refusals::default();
        for (access, origin) in &choices.accesses {
            let outcome = match access {
                Access::Password(credentials) => self.log_in(first, credentials).await,
                Access::Shared { manager, for_rest } => {
                    match (self.borrow(first, ended, manager).await, for_rest) {
                        (Err(CallError::NotShared { .. }), Some(credentials)) => {
                            self.log_in(first, credentials).await
                        }
                        (outcome, _) => outcome,
                    }
                }
            };
            if let Some(outcome) = refusals.sort_out(outcome, origin) {
                return outcome;
            }
        }
        Err(refusals.into_error(choices.trouble))
    }

    /// The ID of the SOAP session.
    fn soap_session(&self) -> Option<Arc<str>> {
        self.soap.as_ref()?.session_id().map(|id| id.expose_secret().into())
    }

    async fn log_in(&self, first: Dialect, credentials: &Credentials) -> Result<Opened, CallError> {
        let account = self.accounts.of(&credentials.user);
        let mut logins = account.logins().await;
        logins.check_for_rest(credentials)?;
        let headers = [
            ("Authorization", basic(&credentials.user, credentials.password.expose_secret())),
            ("vmware-use-header-authn", "true".to_owned()),
        ];
        let mut dialect = first;
        loop {
            match self.create(dialect, headers.clone()).await? {
                Ok(opened) => {
                    logins.accept_for_rest(credentials);
                    return Ok(opened);
                }
                Err(404) if dialect == first => dialect = dialect.other(),
                Err(401) => return Err(logins.refuse_for_rest(credentials)),
                Err(status) => return Err(CallError::Status { method: CREATE, status }),
            }
        }
    }

    /// Makes the call that opens a session, to its end also where the caller is dropped: vCenter would keep a session that nobody knows.
    /// Gives the status if it opens none.
    async fn create(
        &self,
        dialect: Dialect,
        headers: [(&'static str, String); 2],
    ) -> Result<Result<Opened, u16>, CallError> {
        let mut entered = Arc::clone(&self.entered).lock_owned().await;
        if let Some(left) = &*entered {
            self.end(left).await;
        }
        *entered = None;
        let http = self.http.clone();
        let whole = tokio::spawn(async move {
            let (status, body) =
                send(&http, CREATE, Method::POST, dialect.session_path(), &headers, None).await?;
            if (200..=299).contains(&status) {
                let id: String = dialect.read(CREATE, &body)?;
                *entered = Some(Opened { dialect, id: id.into(), is_borrowed: false });
            }
            Ok(status)
        });
        let status = whole.await.unwrap_or_else(|error| {
            let reason = format!("the call did not end: {error}").into();
            Err(CallError::Malformed { method: CREATE, reason })
        })?;
        Ok(self.entered.lock().await.take().ok_or(status))
    }

    /// Borrows the SOAP session if vCenter accepts it for REST. Checks that with a request that each dialect
    /// has.
    async fn borrow(
        &self,
        first: Dialect,
        ended: Option<&Arc<str>>,
        manager: &SessionManager,
    ) -> Result<Opened, CallError> {
        const METHOD: &str = "list categories";
        let id = self.soap_session().filter(|id| Some(id) != ended);
        // the task that follows the vCenter opens a new SOAP session
        let id = id.ok_or(CallError::Status { method: METHOD, status: 401 })?;
        let mut not_lent = self.not_lent.lock().await;
        if not_lent.as_ref() == Some(&id) {
            return Err(manager.refused_for_rest());
        }
        let headers = [(SESSION_HEADER, id.to_string())];
        let mut dialect = first;
        loop {
            let (status, _) =
                send(&self.http, METHOD, Method::GET, dialect.categories_path(), &headers, None).await?;
            match status {
                200..=299 => return Ok(Opened { dialect, id, is_borrowed: true }),
                404 if dialect == first => dialect = dialect.other(),
                401 => {
                    *not_lent = Some(id);
                    return Err(manager.refused_for_rest());
                }
                status => return Err(CallError::Status { method: METHOD, status }),
            }
        }
    }

    /// Ends the session. Waits for a login that is under way, as long as for a logout.
    pub(crate) async fn close(&self) {
        let mut opened = self.opened.lock().await;
        let mut entered = tokio::time::timeout(LOGOUT_DEADLINE, self.entered.lock()).await.ok();
        for session in [Some(&mut opened), entered.as_mut()].into_iter().flatten() {
            if let Some(left) = &**session {
                self.end(left).await;
            }
            **session = None;
        }
    }

    /// Ends a session. A failure is only logged.
    async fn end(&self, opened: &Opened) {
        if opened.is_borrowed {
            return;
        }
        let headers = [(SESSION_HEADER, opened.id.to_string())];
        let path = opened.dialect.session_path();
        let ended = send(&self.http, "delete session", Method::DELETE, path, &headers, None);
        if let Ok(Err(error)) = tokio::time::timeout(LOGOUT_DEADLINE, ended).await {
            tracing::debug!(%error, "cannot end the session");
        }
    }
}

/// Sends a request, and gives the status and the body of the answer.
async fn send(
    http: &HttpClient,
    method: &'static str,
    verb: Method,
    path: &str,
    headers: &[(&'static str, String)],
    body: Option<Body>,
) -> Result<(u16, bytes::BytesMut), CallError> {
    let answer = http.send(verb, path, headers, body, DEADLINE, LARGEST_ANSWER).await;
    let answer = answer.map_err(|error| match error {
        HttpError::Timeout => CallError::Timeout { method, after: DEADLINE },
        HttpError::Unreachable(reason) => CallError::Unreachable { method, reason },
        HttpError::TooLarge => CallError::Malformed { method, reason: "the answer is too large".into() },
    })?;
    Ok((answer.status, answer.body))
}

/// The value of a header for HTTP's basic authentication.
fn basic(user: &str, password: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::from("Basic ");
    for three in format!("{user}:{password}").as_bytes().chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let digit = (bits >> (18 - 6 * i)) & 63;
            encoded.push(if i <= three.len() { char::from(DIGITS[digit as usize]) } else { '=' });
        }
    }
    encoded
}

impl fmt::Debug for RestSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestSession").field("http", &self.http).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_authentication() {
        // the examples of RFC 7617
        assert_eq!(basic("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(basic("test", "123\u{a3}"), "Basic dGVzdDoxMjPCow==");
        assert_eq!(basic("a", ""), "Basic YTo=");
    }
}
