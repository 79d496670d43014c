//! vCenters with credentials that clusters name: one session for each vCenter and user, while an object uses it.
//!
//! Whoever names a user has to prove that the password is right, also where a session of this user is open already. Otherwise a
//! Secret with a well-known user and any password would open a session of somebody else. The proof is for the password that vCenter
//! has accepted last: who is to be shut out gets no further once the password is another one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use cloudprovider::{
    Error, ErrorKind, InstanceChange, InstanceRef, InstanceStream, Result, SecretName, SecretSource,
    StartContext, instance_stream,
};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    identities::{Identities, Identity, ObjectKey},
    tombstones::Tombstones,
    vcenter_handle::VCenterHandle,
};
use crate::{
    accounts::Accounts,
    endpoint::Endpoint,
    follow,
    http::HttpClient,
    login::Credentials,
    session::{Access, Choices, Session},
    soap::SoapTransport,
    vcenter::{Settings, VCenter},
    vim::CallError,
};

/// How many sessions with vCenters, each with a server and a user of its own, the objects of one namespace may have.
const MAX_SESSIONS: usize = 32;

/// What is needed to open sessions.
#[derive(Debug)]
pub(crate) struct Deps {
    /// Where changes are told.
    pub(crate) instance_changes: broadcast::Sender<InstanceChange>,
    /// Told that something is known which was not before.
    pub(crate) status_changes: watch::Sender<u64>,
    /// The accounts of each server, by its address in lower case.
    pub(crate) accounts: HashMap<String, Arc<Accounts>>,
    /// Has the tasks that follow vCenters and Secrets.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the provider ends.
    pub(crate) stop: CancellationToken,
}

/// A use of a vCenter.
#[derive(Debug)]
pub(crate) struct Use<'a> {
    /// The object.
    pub(crate) owner: &'a ObjectKey,
    pub(crate) endpoint: Endpoint,
    pub(crate) identity: Arc<Identity>,
}

/// Who uses a session.
#[derive(Debug, Default)]
struct Uses {
    /// The Secrets that the objects name.
    named: BTreeMap<ObjectKey, Arc<Identity>>,
    /// The Secrets whose password was accepted for this session. The others offer nothing and keep nothing open, once there was one.
    admitted: BTreeSet<SecretName>,
    /// Whether there ever was one.
    was_admitted: bool,
}

impl Uses {
    fn is_admitted(&self, identity: &Identity) -> bool {
        self.admitted.contains(&identity.name)
    }

    fn admit(&mut self, identity: &Identity) {
        self.admitted.insert(identity.name.clone());
        self.was_admitted = true;
    }

    /// This object does not use the session any more.
    fn remove(&mut self, owner: &ObjectKey) {
        self.named.remove(owner);
    }

    /// Whether anybody keeps the session open. The first one does so before its password is known to be right.
    fn is_used(&self) -> bool {
        self.named.values().any(|one| !self.was_admitted || self.is_admitted(one))
    }

    /// Whether anybody uses the session with a password that was right.
    fn has_admitted(&self) -> bool {
        self.named.values().any(|one| self.is_admitted(one))
    }

    /// The Secrets whose credentials the session logs in with: those that were right before, or all if none was.
    fn offered(&self) -> BTreeMap<SecretName, Arc<Identity>> {
        let all = || self.named.values().map(|one| (one.name.clone(), Arc::clone(one)));
        let admitted: BTreeMap<_, _> = all().filter(|(_, one)| self.is_admitted(one)).collect();
        if admitted.is_empty() { all().collect() } else { admitted }
    }
}

/// A vCenter that is followed with credentials of clusters.
#[derive(Debug)]
struct PooledSession {
    vcenter: Arc<VCenterHandle>,
    /// In lower case.
    user: String,
    uses: Arc<Mutex<Uses>>,
    /// Cancelled when nobody uses it.
    stop: CancellationToken,
}

/// The sessions with credentials that clusters name.
#[derive(Debug)]
pub(crate) struct SessionPool {
    deps: Deps,
    started: OnceLock<(Arc<dyn SecretSource>, String)>,
    identities: Identities,
    sessions: Mutex<Vec<Arc<PooledSession>>>,
    accounts: Mutex<HashMap<String, Arc<Accounts>>>,
    numbers: AtomicU64,
}

impl SessionPool {
    pub(crate) fn new(deps: Deps) -> Self {
        let accounts = Mutex::new(deps.accounts.clone());
        Self {
            deps,
            started: OnceLock::new(),
            identities: Identities::default(),
            sessions: Mutex::default(),
            accounts,
            numbers: AtomicU64::new(1),
        }
    }

    /// From now on Secrets can be read.
    pub(crate) fn start(&self, context: &StartContext) {
        // The provider is started once.
        let _ = self.started.set((Arc::clone(&context.secrets), context.namespace.clone()));
    }

    /// The changes that are told of all vCenters, from now on.
    pub(crate) fn changes(&self) -> InstanceStream {
        instance_stream(self.deps.instance_changes.subscribe(), self.deps.stop.clone())
    }

    /// The namespace of the daemon.
    pub(crate) fn own_namespace(&self) -> &str {
        self.started.get().map_or("", |(_, namespace)| namespace)
    }

    /// The vCenters that this object uses, with a password that was right.
    pub(crate) fn used_by(&self, owner: &ObjectKey) -> Vec<Arc<VCenterHandle>> {
        let sessions = self.sessions.lock();
        let is_used = |uses: &Uses| uses.named.get(owner).is_some_and(|one| uses.is_admitted(one));
        let used = sessions.iter().filter(|open| is_used(&open.uses.lock()));
        used.map(|open| Arc::clone(&open.vcenter)).collect()
    }

    /// The sessions with this vCenter, or all, that are used with a password that was right. In the order of their names.
    pub(crate) fn called(&self, server: Option<&str>) -> Vec<Arc<VCenterHandle>> {
        let sessions = self.sessions.lock();
        let is_wanted = |open: &&Arc<PooledSession>| {
            server.is_none_or(|server| open.vcenter.is_called(server)) && open.uses.lock().has_admitted()
        };
        let mut found: Vec<_> =
            sessions.iter().filter(is_wanted).map(|open| Arc::clone(&open.vcenter)).collect();
        found.sort_by(|one, other| one.vcenter.name().cmp(other.vcenter.name()));
        found
    }

    /// A number for a session, which no other one has.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The Secret with this name, used by this object, which is woken when it changes.
    ///
    /// # Errors
    /// The objects of its namespace use too many others.
    pub(crate) fn identity(self: &Arc<Self>, name: &SecretName, owner: &ObjectKey) -> Result<Arc<Identity>> {
        let (identity, is_new) = self.identities.used(name, owner)?;
        if is_new && let Some((source, _)) = self.started.get() {
            let versions = source.follow(name);
            let (all, followed) = (Arc::clone(self), Arc::clone(&identity));
            let stop = self.deps.stop.clone();
            self.deps.tasks.spawn(async move {
                let following = followed.follow(versions, || all.changed(&followed));
                stop.run_until_cancelled(following).await;
            });
        }
        Ok(identity)
    }

    /// An object uses nothing of this any more. A session that nobody uses is ended.
    pub(crate) fn release(&self, owner: &ObjectKey) {
        self.identities.release(owner);
        self.close_unused(|_, uses| uses.remove(owner));
    }

    /// There is no object with this UID any more. Of several that claim it, nobody says which one is meant, and all keep what they use.
    pub(crate) fn forget(&self, uid: &str) {
        let mut owners = self.identities.owners_of(uid);
        for open in &*self.sessions.lock() {
            owners.extend(open.uses.lock().named.keys().filter(|one| one.uid == uid).cloned());
        }
        if owners.len() == 1 {
            for owner in &owners {
                self.release(owner);
            }
        }
    }

    /// The session for a use: one of the configuration with the same user, or one that is open, or a new one.
    ///
    /// # Errors
    /// Why the Secret has no credentials; those of vCenter about them; why nothing can be said about the vCenter; and that the objects of
    /// the namespace have too many sessions.
    pub(crate) async fn vcenter_for(
        self: &Arc<Self>,
        configured: &[Arc<VCenterHandle>],
        of: Use<'_>,
    ) -> Result<Arc<VCenterHandle>> {
        let credentials = of.identity.credentials()?;
        let own = configured.iter().find(|vcenter| is_of(vcenter, &of.endpoint, &credentials.user));
        if let Some(vcenter) = own {
            self.close_unused(|_, uses| uses.remove(of.owner));
            self.prove(vcenter, credentials).await?;
            return Ok(Arc::clone(vcenter));
        }
        let open = self.open(&of, &credentials)?;
        let outcome = self.prove(&open.vcenter, credentials).await;
        match &outcome {
            Ok(()) => {
                open.uses.lock().admit(&of.identity);
                if open.vcenter.check_live().is_err() {
                    open.vcenter.reconnect.notify_one();
                }
            }
            // the session is one of others
            Err(error) if error.kind() == ErrorKind::Unauthenticated && open.vcenter.check_live().is_ok() => {
                self.close_unused(|one, uses| {
                    if one.vcenter.number == open.vcenter.number {
                        uses.admitted.remove(&of.identity.name);
                    }
                });
            }
            Err(_) => {}
        }
        outcome.map(|()| Arc::clone(&open.vcenter))
    }

    fn open(self: &Arc<Self>, of: &Use<'_>, credentials: &Credentials) -> Result<Arc<PooledSession>> {
        let user = credentials.user.to_lowercase();
        let is_it = |open: &PooledSession| open.user == user && open.vcenter.settings.endpoint == of.endpoint;
        let open = {
            let mut sessions = self.sessions.lock();
            let found = sessions.iter().find(|open| is_it(open)).cloned();
            check_room(&sessions, found.as_ref(), of.owner)?;
            let open = found.unwrap_or_else(|| {
                let open = Arc::new(self.begin(of, credentials, user.clone()));
                sessions.push(Arc::clone(&open));
                open
            });
            open.uses.lock().named.insert(of.owner.clone(), Arc::clone(&of.identity));
            open
        };
        self.close_unused(|one, uses| {
            if one.vcenter.number != open.vcenter.number {
                uses.remove(of.owner);
            }
        });
        Ok(open)
    }

    /// Begins to follow a vCenter.
    fn begin(&self, of: &Use<'_>, credentials: &Credentials, user: String) -> PooledSession {
        let authority = of.endpoint.authority();
        let uses = Arc::<Mutex<Uses>>::default();
        let access = {
            let (uses, user) = (Arc::clone(&uses), user.clone());
            Arc::new(move || choices(uses.lock().offered(), &user))
        };
        let settings = Settings {
            name: format!("{authority} as {}", credentials.user),
            endpoint: of.endpoint.clone(),
            datacenters: Vec::new(),
            access,
            tag_refresh: None,
        };
        let Deps { instance_changes, status_changes, tasks, stop, .. } = &self.deps;
        let mut vcenter = VCenter::new(settings, instance_changes.clone(), status_changes.clone());
        vcenter.accounts = {
            let mut all = self.accounts.lock();
            // a vCenter that is followed has a clone
            all.retain(|_, accounts| Arc::strong_count(accounts) > 1 || !accounts.are_idle());
            Arc::clone(all.entry(authority.to_lowercase()).or_default())
        };
        let (vcenter, stop) = (Arc::new(vcenter), stop.child_token());
        tasks.spawn(follow::run(Arc::clone(&vcenter), stop.clone()));
        let number = self.number();
        let vcenter = Arc::new(VCenterHandle {
            vcenter,
            stop: stop.clone(),
            is_configured: false,
            number,
            tombstones: Tombstones::default(),
        });
        PooledSession { vcenter, user, uses, stop }
    }

    /// Makes sure that a password is the one that vCenter accepts now.
    async fn prove(&self, vcenter: &VCenterHandle, credentials: Credentials) -> Result<()> {
        let account = vcenter.accounts.of(&credentials.user);
        if account.logins().await.has_proven(&credentials) {
            return Ok(());
        }
        // Its own login may be under way. Until then nobody else is told which password is right. Those that were refused may be others.
        if let Err(error) = vcenter.check_live()
            && error.kind() != ErrorKind::Unauthenticated
        {
            return Err(error);
        }
        let checked = {
            let mut logins = account.logins().await;
            logins.check(&credentials).map(|()| logins.has_accepted(&credentials))
        };
        let outcome = match checked {
            Ok(true) => Ok(()),
            Ok(false) => {
                let outcome = self.try_login(vcenter, credentials.clone()).await;
                if outcome.as_ref().is_err_and(|error| !error.is_refused()) {
                    account.logins().await.miss(&credentials);
                }
                outcome
            }
            Err(held) => Err(held),
        };
        outcome.map_err(|error| vcenter.error_of(&error))
    }

    /// Opens a session with these credentials and ends it, also if the step is given up meanwhile.
    async fn try_login(
        &self,
        vcenter: &VCenterHandle,
        credentials: Credentials,
    ) -> std::result::Result<(), CallError> {
        let (endpoint, accounts) = (vcenter.settings.endpoint.clone(), Arc::clone(&vcenter.accounts));
        let trial = self.deps.tasks.spawn(async move {
            let http = HttpClient::new(&endpoint)
                .map_err(|reason| CallError::Unreachable { method: "connect", reason: reason.into() })?;
            let access = Arc::new(move || Ok(Choices::from(credentials.clone())));
            let session = Session::new(Arc::new(SoapTransport::new(http)), access, accounts, false);
            let outcome = session.open(0).await.map(drop);
            session.close().await;
            outcome
        });
        trial.await.unwrap_or_else(|error| {
            let reason = format!("the login did not end: {error}").into();
            Err(CallError::Malformed { method: "Login", reason })
        })
    }

    /// A Secret says something else now, or for the first time.
    fn changed(&self, identity: &Arc<Identity>) {
        let user = identity.credentials().ok().map(|credentials| credentials.user.to_lowercase());
        self.close_unused(|open, uses| {
            let is_its_own = uses.named.values().any(|one| one.name == identity.name);
            if is_its_own && user.as_ref() != Some(&open.user) {
                uses.named.retain(|_, one| one.name != identity.name);
                uses.admitted.remove(&identity.name);
            } else if is_its_own {
                open.vcenter.reconnect.notify_one();
            }
        });
        let one = |uid: String| InstanceRef { machine: Some(uid), ..InstanceRef::default() };
        let users: Vec<_> = self.identities.users_of(identity).into_iter().map(one).collect();
        if !users.is_empty() {
            // there are no listeners before the controllers start
            let _ = self.deps.instance_changes.send(InstanceChange::Changed(users));
        }
    }

    /// Changes the uses of each session, and closes those without any.
    fn close_unused(&self, change: impl Fn(&PooledSession, &mut Uses)) {
        self.sessions.lock().retain(|open| {
            let mut uses = open.uses.lock();
            change(open, &mut uses);
            let is_used = uses.is_used();
            if !is_used {
                open.stop.cancel();
            }
            is_used
        });
    }
}

/// Checks that the objects of a namespace do not keep too many sessions open. Each of them is followed.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`].
fn check_room(
    sessions: &[Arc<PooledSession>],
    wanted: Option<&Arc<PooledSession>>,
    owner: &ObjectKey,
) -> Result<()> {
    let namespace = &owner.namespace;
    let is_of = |one: &ObjectKey| one.namespace == *namespace && one != owner;
    let is_used = |open: &&Arc<PooledSession>| open.uses.lock().named.keys().any(is_of);
    if wanted.as_ref().is_some_and(is_used) || sessions.iter().filter(is_used).count() < MAX_SESSIONS {
        return Ok(());
    }
    let words = format!(
        "spec.server: the objects of the namespace {namespace} have {MAX_SESSIONS} sessions with vCenters already, and no more are opened; name \
         one of their servers and users, or delete objects that name others"
    );
    Err(Error::new(ErrorKind::PermissionDenied, words))
}

/// Whether a vCenter of the configuration is this vCenter with this user, and shows all of it.
fn is_of(vcenter: &VCenterHandle, endpoint: &Endpoint, user: &str) -> bool {
    let settings = &vcenter.settings;
    let is_user = |choices: Choices| match &choices.accesses[..] {
        [(Access::Password(credentials), _)] => credentials.user.to_lowercase() == user.to_lowercase(),
        _ => false,
    };
    settings.endpoint == *endpoint
        && settings.datacenters.is_empty()
        && (settings.access)().is_ok_and(is_user)
}

/// The credentials of these Secrets for a user. Their errors name none: they are told to all who use the session.
fn choices(offered: BTreeMap<SecretName, Arc<Identity>>, user: &str) -> std::result::Result<Choices, String> {
    let mut accesses: Vec<(Access, Box<str>)> = Vec::new();
    for identity in offered.into_values() {
        if let Ok(credentials) = identity.credentials()
            && credentials.user.to_lowercase() == user
        {
            accesses.push((Access::Password(credentials), "a Secret that a cluster names".into()));
        }
    }
    if accesses.is_empty() {
        return Err("no Secret has credentials for it any more".to_owned());
    }
    Ok(Choices { accesses, trouble: None })
}

/// The error about an object that names credentials and no vCenter.
pub(crate) fn no_server(field: &str) -> Error {
    let words = format!("{field}: missing; it names the vCenter that spec.identityRef has credentials for");
    Error::new(ErrorKind::InvalidInput, words)
}
