//! The session with one vCenter.
//!
//! There is one session, opened by a user and a password or cloned with the ticket of a session manager. When
//! a call finds that it has ended, a new one is opened, and only one even if several calls find that. Refused
//! credentials are tried again rarely ([`crate::accounts`]): a few refusals lock an account.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use secrecy::ExposeSecret;

pub(crate) use crate::login::Credentials;

use crate::{
    accounts::Accounts,
    moref::MoRef,
    session_manager::SessionManager,
    vim::{
        Call, CallError, Transport, Value,
        element::Element,
        objects::{CloneSession, Login, Logout, RetrieveServiceContent},
    },
};

/// The deadline of a call that does not wait for changes.
pub(crate) const CALL_DEADLINE: Duration = Duration::from_secs(60);

/// The deadline of a logout. It is short, since a logout delays shutdowns and new logins.
const LOGOUT_DEADLINE: Duration = Duration::from_secs(5);

/// How to open a session.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// By a login.
    Password(Credentials),
    /// By cloning the session of a session manager.
    Shared {
        /// The session manager, which gives tickets.
        manager: SessionManager,
        /// The credentials for REST where vCenter does not accept the cloned session there.
        for_rest: Option<Credentials>,
    },
}

/// Several ways to open a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices {
    /// The ways, each with its origin. The next one is tried if the one before it is refused.
    pub(crate) accesses: Vec<(Access, Box<str>)>,
    /// Why a further way could not be used.
    pub(crate) trouble: Option<String>,
}

impl From<Access> for Choices {
    fn from(access: Access) -> Self {
        Self { accesses: vec![(access, "the configuration".into())], trouble: None }
    }
}

impl From<Credentials> for Choices {
    fn from(credentials: Credentials) -> Self {
        Access::Password(credentials).into()
    }
}

/// The refusals of several [`Choices`], by vCenter or by a session manager.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Vec<(CallError, Box<str>)>);

impl Refusals {
    /// Returns the outcome of a try, unless `origin`'s credentials were refused: then the caller tries the
    /// next ones.
    pub(crate) fn sort_out<T>(
        &mut self,
        outcome: Result<T, CallError>,
        origin: &str,
    ) -> Option<Result<T, CallError>> {
        match outcome {
            Err(error) if error.wants_others() => {
                self.0.push((error, origin.into()));
                None
            }
            outcome => {
                if outcome.is_ok()
                    && let Some((_, before)) = self.0.first()
                {
                    tracing::warn!("the credentials from {before} are refused; those from {origin} serve");
                }
                Some(outcome)
            }
        }
    }

    /// The error after all were refused. `trouble` is why a further way could not be used.
    ///
    /// The most informative refusal decides the kind. An error that only another configuration resolves stays
    /// [`CallError::Misconfigured`], and a session manager is asked again as rarely as if it were the only
    /// way.
    pub(crate) fn into_error(mut self, trouble: Option<String>) -> CallError {
        if trouble.is_none()
            && self.0.len() == 1
            && let Some((error, _)) = self.0.pop()
        {
            return error;
        }
        let is_misconfigured = self.0.iter().any(|(error, _)| matches!(error, CallError::Misconfigured(_)));
        let mut denying = None;
        let mut words: Vec<String> = Vec::new();
        for (error, origin) in self.0 {
            match error {
                CallError::Refused { user } => {
                    words.push(format!("vCenter refused the credentials of user {user:?} from {origin}"));
                }
                CallError::NotShared { manager, reason, .. } if denying.is_none() => {
                    words.insert(0, reason.into());
                    denying = Some(manager);
                }
                error => words.push(error.to_string()),
            }
        }
        words.extend(trouble);
        let words = format!(
            "{}; they are tried again when they change, and else rarely, so that no account is locked",
            words.join("; ")
        );
        match denying {
            _ if is_misconfigured => CallError::Misconfigured(words.into()),
            Some(manager) => CallError::NotShared { manager, reason: words.into(), is_denied: true },
            None => CallError::NoCredentials(words.into()),
        }
    }
}

/// The references of vCenter's services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceContent {
    pub(crate) root_folder: MoRef,
    pub(crate) property_collector: MoRef,
    pub(crate) view_manager: MoRef,
    pub(crate) session_manager: MoRef,
    pub(crate) search_index: Option<MoRef>,
    pub(crate) task_manager: Option<MoRef>,
    pub(crate) storage_resource_manager: Option<MoRef>,
    /// The version of the API, such as `8.0.3.0`; empty if vCenter was not asked.
    pub(crate) api_version: String,
    /// The instance UUID of the vCenter, if it was asked.
    pub(crate) instance_uuid: Option<String>,
}

impl ServiceContent {
    /// The references that every vCenter since 6.0 uses, so that it need not be asked.
    fn of_vcenters() -> Self {
        Self {
            root_folder: MoRef::new("Folder", "group-d1"),
            property_collector: MoRef::new("PropertyCollector", "propertyCollector"),
            view_manager: MoRef::new("ViewManager", "ViewManager"),
            session_manager: MoRef::new("SessionManager", "SessionManager"),
            search_index: Some(MoRef::new("SearchIndex", "SearchIndex")),
            task_manager: Some(MoRef::new("TaskManager", "TaskManager")),
            storage_resource_manager: Some(MoRef::new("StorageResourceManager", "StorageResourceManager")),
            api_version: String::new(),
            instance_uuid: None,
        }
    }
}

/// Returns the current ways to log in. They may change at any time.
pub(crate) type AccessSource = Arc<dyn Fn() -> Result<Choices, String> + Send + Sync>;

/// A session, open or not.
pub(crate) struct Session {
    transport: Arc<dyn Transport>,
    access: AccessSource,
    /// The results of earlier logins with the server.
    accounts: Arc<Accounts>,
    /// Whether vCenter is asked for its version and its instance UUID.
    asks: bool,
    content: Mutex<Option<Arc<ServiceContent>>>,
    /// Counts the logins. A caller that finds its session ended tells which one it was.
    generation: AtomicU64,
    opening: tokio::sync::Mutex<()>,
    /// Held by the call that opens a session, which goes on where its caller is dropped.
    entering: Arc<tokio::sync::Mutex<()>>,
    failed_logouts: AtomicU64,
    /// Whether vCenter was unreachable when a session was last to be cloned.
    was_unreachable: AtomicBool,
}

impl Session {
    /// A session that is opened when it is first needed. With `asks`, vCenter is asked for its
    /// [`ServiceContent`] before each login.
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        access: AccessSource,
        accounts: Arc<Accounts>,
        asks: bool,
    ) -> Self {
        Self {
            transport,
            access,
            accounts,
            asks,
            content: Mutex::new(None),
            generation: AtomicU64::new(0),
            opening: tokio::sync::Mutex::new(()),
            entering: Arc::default(),
            failed_logouts: AtomicU64::new(0),
            was_unreachable: AtomicBool::new(false),
        }
    }

    /// The number of the current login; 0 before the first one.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Opens a new session if the current one is still that of login `seen`. Returns the references of
    /// vCenter's services. Takes one call the first time, one more if vCenter is asked for its
    /// [`ServiceContent`], and two for each session that ended. A session manager takes one more call, to
    /// itself.
    ///
    /// # Errors
    /// [`CallError::Refused`] if vCenter refuses the credentials; without any call if it did so recently.
    /// [`CallError::NotShared`] if the session manager gives no ticket, or vCenter does not accept the
    /// ticket.
    pub(crate) async fn open(&self, seen: u64) -> Result<Arc<ServiceContent>, CallError> {
        let _one_at_a_time = self.opening.lock().await;
        // A session that it opens is ended before another login.
        drop(self.entering.lock().await);
        if let Some(content) = self.content()
            && self.generation() != seen
        {
            return Ok(content);
        }
        let choices = (self.access)().map_err(|reason| CallError::NoCredentials(reason.into()))?;
        let content = self.enter_by(choices).await?;
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(content)
    }

    /// Tries each way in turn until one is not refused.
    async fn enter_by(&self, choices: Choices) -> Result<Arc<ServiceContent>, CallError> {
        let mut refusals = Refusals::default();
        for (access, origin) in &choices.accesses {
            let outcome = match access {
                Access::Password(credentials) => self.log_in(credentials).await,
                Access::Shared { manager, .. } => self.clone_shared(manager).await,
            };
            if let Some(outcome) = refusals.sort_out(outcome, origin) {
                return outcome;
            }
        }
        Err(refusals.into_error(choices.trouble))
    }

    async fn log_in(&self, credentials: &Credentials) -> Result<Arc<ServiceContent>, CallError> {
        let account = self.accounts.of(&credentials.user);
        account.logins().await.check(credentials)?;
        let content = self.parts().await?;
        self.end(&content).await?;
        let mut logins = account.logins().await;
        logins.check(credentials)?;
        let login = Login {
            user_name: credentials.user.clone(),
            password: Value::Secret(credentials.password.expose_secret().to_owned()),
            locale: Some("en_US"),
        };
        let content = self.enter(content, |manager| login.clone().of(manager)).await.map_err(|error| {
            if error.is_fault("InvalidLogin") { logins.refuse(credentials) } else { error }
        })?;
        logins.accept(credentials);
        Ok(content)
    }

    /// Clones the session of the session manager. The old session is ended once there is a ticket.
    async fn clone_shared(&self, manager: &SessionManager) -> Result<Arc<ServiceContent>, CallError> {
        // A ticket is for one session. Do not request one while vCenter is unreachable.
        let is_away = self.was_unreachable.load(Ordering::Acquire);
        let reached = if is_away { Some(self.ask().await?) } else { None };
        let ticket = manager.ticket().await?;
        let content = match reached {
            Some(content) => content,
            None => self.parts().await?,
        };
        self.end(&content).await?;
        let clone = CloneSession { clone_ticket: Value::Secret(ticket.expose_secret().to_owned()) };
        let outcome = self.enter(content, |manager| clone.clone().of(manager)).await;
        let is_away = matches!(outcome, Err(CallError::Unreachable { .. } | CallError::Timeout { .. }));
        self.was_unreachable.store(is_away, Ordering::Release);
        outcome.map_err(|error| if error.is_fault("InvalidLogin") { manager.refused_ticket() } else { error })
    }

    /// Makes the call that opens a session, and repeats it with vCenter's real references if the assumed ones
    /// are wrong.
    async fn enter(
        &self,
        content: Arc<ServiceContent>,
        call: impl Fn(&MoRef) -> Call,
    ) -> Result<Arc<ServiceContent>, CallError> {
        let first = call(&content.session_manager);
        match self.call_whole(first).await {
            Ok(_) => Ok(content),
            Err(error)
                if ["ManagedObjectNotFound", "InvalidRequest", "InvalidType"]
                    .iter()
                    .any(|kind| error.is_fault(kind)) =>
            {
                let content = self.ask().await?;
                let second = call(&content.session_manager);
                self.call_whole(second).await.map(|_| content)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a call that opens a session, to its end also where the caller is dropped: vCenter would keep the session of a login without
    /// an answer.
    async fn call_whole(&self, call: Call) -> Result<Element, CallError> {
        let (method, transport) = (call.method, Arc::clone(&self.transport));
        let entering = Arc::clone(&self.entering).lock_owned().await;
        let whole = tokio::spawn(async move {
            let _entering = entering;
            transport.call(&call, CALL_DEADLINE).await
        });
        whole.await.unwrap_or_else(|error| {
            Err(CallError::Malformed { method, reason: format!("the call did not end: {error}").into() })
        })
    }

    /// The references of vCenter's services for a login. Without `asks` those of any vCenter are assumed.
    async fn parts(&self) -> Result<Arc<ServiceContent>, CallError> {
        match self.content() {
            // Another vCenter may have its name by now, with the same references.
            _ if self.asks => self.ask().await,
            Some(content) => Ok(content),
            None => Ok(self.keep(ServiceContent::of_vcenters())),
        }
    }

    async fn ask(&self) -> Result<Arc<ServiceContent>, CallError> {
        Ok(self.keep(self.retrieve_content().await?))
    }

    fn keep(&self, content: ServiceContent) -> Arc<ServiceContent> {
        let content = Arc::new(content);
        *self.content.lock() = Some(Arc::clone(&content));
        content
    }

    /// The references of vCenter's services, once they are known.
    pub(crate) fn content(&self) -> Option<Arc<ServiceContent>> {
        self.content.lock().clone()
    }

    /// Makes a call in the session. A session that has ended is opened again, once.
    ///
    /// # Errors
    /// The error of the call, or of the login.
    pub(crate) async fn call(&self, call: &Call, deadline: Duration) -> Result<Element, CallError> {
        let seen = self.generation();
        let outcome = self.transport.call(call, deadline).await;
        match outcome {
            Err(error) if error.is_session_lost() => {
                self.open(seen).await?;
                self.transport.call(call, deadline).await
            }
            outcome => outcome,
        }
    }

    /// Makes a call in the current session only. The caller has to set up again what it created in a session
    /// that ended.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) async fn call_once(&self, call: &Call, deadline: Duration) -> Result<Element, CallError> {
        self.transport.call(call, deadline).await
    }

    /// Ends the session, and with it everything that was created in it. Waits for a login that is under way, as long as for a logout.
    pub(crate) async fn close(&self) {
        let _one_at_a_time = self.opening.lock().await;
        if tokio::time::timeout(LOGOUT_DEADLINE, self.entering.lock()).await.is_err() {
            tracing::debug!("a login has no answer yet, so its session may be left to expire");
        }
        if let Some(content) = self.content()
            && let Err(error) = self.end(&content).await
        {
            tracing::debug!(%error, "cannot end the session");
        }
    }

    /// Logs out if there is a session. It may be alive even if vCenter reported otherwise, so it must not be
    /// left behind. A failed logout is repeated next time, up to a limit.
    async fn end(&self, content: &ServiceContent) -> Result<(), CallError> {
        /// After this many failed logouts a session is left to expire.
        const TRIES: u64 = 5;
        if !self.transport.has_session() {
            return Ok(());
        }
        let outcome = self.transport.call(&Logout {}.of(&content.session_manager), LOGOUT_DEADLINE).await;
        match outcome {
            Err(error)
                if !error.is_session_lost()
                    && self.failed_logouts.fetch_add(1, Ordering::AcqRel) + 1 < TRIES =>
            {
                return Err(error);
            }
            _ => {}
        }
        self.failed_logouts.store(0, Ordering::Release);
        self.transport.forget_session();
        Ok(())
    }

    async fn retrieve_content(&self) -> Result<ServiceContent, CallError> {
        let call = RetrieveServiceContent {}.of(&MoRef::new("ServiceInstance", "ServiceInstance"));
        let content = self.transport.call(&call, CALL_DEADLINE).await?;
        let part = |name: &str| {
            content.moref_of(name).ok_or_else(|| CallError::Malformed {
                method: "RetrieveServiceContent",
                reason: format!("the answer has no {name}").into(),
            })
        };
        let about =
            |name: &str| content.child("about").and_then(|about| about.text_of(name)).map(str::to_owned);
        Ok(ServiceContent {
            root_folder: part("rootFolder")?,
            property_collector: part("propertyCollector")?,
            view_manager: part("viewManager")?,
            session_manager: part("sessionManager")?,
            search_index: content.moref_of("searchIndex"),
            task_manager: content.moref_of("taskManager"),
            storage_resource_manager: content.moref_of("storageResourceManager"),
            api_version: about("apiVersion").unwrap_or_default(),
            instance_uuid: about("instanceUuid"),
        })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("transport", &self.transport)
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
