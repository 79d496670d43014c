//! The task that follows one vCenter: it logs in, lists everything, and then waits for changes.
//!
//! A property collector serves both: its first changes are the listing. The task creates one of its own, and
//! uses the session's default one where vCenter refuses to create another. Once machines are made, one more
//! reports the tasks of vCenter. Everything that is created in a session ends with it. Each session, also a
//! cloned one, is ended by a logout, so that nothing is left on the server.
//!
//! Without configured datacenters, one view covers everything. With them, one view covers the names and
//! places of all datacenters, and each configured datacenter has a view of its own, so that other machines
//! are not read.

mod behind;
mod connection;
mod failures;
mod listing;
mod patience;
mod pauses;
mod selection;
mod tags;
mod tasks;

use std::{
    collections::{BTreeSet, HashSet},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cloudprovider::InstanceRef;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use self::{
    connection::Connection,
    failures::is_momentary,
    patience::Patience,
    selection::{PLACE_KINDS, version_in},
    tags::read_tags,
};
use crate::{
    inventory::Changes,
    moref::MoRef,
    session::CALL_DEADLINE,
    vcenter::VCenter,
    vim::{
        Call, CallError,
        element::Element,
        objects::{WaitForUpdatesEx, WaitOptions},
        property_collector::{Page, UpdateKind, read_updates},
    },
};

use pauses::{BACKOFF, BACKOFF_WHILE_AWAY, CREDENTIALS_PAUSE, jittered};

/// Objects in a page of the listing. A whole page is held in memory, with some kilobytes for each machine.
pub(crate) const PAGE: u32 = 500;

/// The smallest page size. Pages that turn out too large are halved, down to this.
const LEAST_PAGE: u32 = 10;

/// The longest time that vCenter may hold a wait for changes. Each wait also keeps the session alive, which
/// ends after half an hour without a call. Many proxies cut a response that takes a minute.
const LONGEST_WAIT: Duration = Duration::from_secs(45);

/// How often a call with a momentary failure is tried before everything is set up again.
const TRIES: u32 = 4;

/// The pause before the second try of a call. It doubles with each further try.
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// After a connection of at least this duration, the next one is tried at once.
const GOOD: Duration = Duration::from_secs(30);

/// Follows a vCenter until it is stopped, then logs out.
pub(crate) async fn run(vcenter: Arc<VCenter>, stop: CancellationToken) {
    let mut follower = Follower::new(&vcenter);
    let mut connection: Option<Connection> = None;
    let mut pause = Duration::ZERO;
    loop {
        let reconnect = vcenter.reconnect.notified();
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(pause) => {}
            () = reconnect => {}
        }
        let current = match connection.take() {
            Some(current) => current,
            None => match Connection::new(&vcenter) {
                Ok(current) => current,
                Err(error) => {
                    pause = follower.note(error);
                    continue;
                }
            },
        };
        let error = {
            let outcome = follower.follow(&current);
            let mut outcome = pin!(outcome);
            tokio::select! {
                () = stop.cancelled() => {
                    connection = Some(current.clone());
                    break;
                }
                error = &mut outcome => error,
            }
        };
        pause = follower.note(error.clone());
        // The trusted certificates may have changed, so make a new client. But keep a session that may still
        // be alive, to end it.
        let is_fresh = matches!(error, CallError::Unreachable { .. }) && !current.transport.has_session();
        if is_fresh {
            current.close().await;
        } else {
            connection = Some(current);
        }
    }
    if let Some(connection) = connection {
        connection.close().await;
    }
}

/// What is watched on the server.
struct Watched {
    views: Vec<MoRef>,
    /// The property collector that reports changes.
    collector: MoRef,
    /// The configured datacenters that exist; `None` if none are configured.
    datacenters: Option<BTreeSet<MoRef>>,
    /// The version of the property collector up to which its changes were read.
    version: String,
    /// How long its listing took.
    listing_took: Duration,
}

impl Watched {
    /// What a new property collector reports, without views.
    fn by(collector: MoRef) -> Self {
        let listing_took = Duration::ZERO;
        Self { views: Vec::new(), collector, datacenters: None, version: String::new(), listing_took }
    }
}

struct Follower<'a> {
    vcenter: &'a Arc<VCenter>,
    /// Cleared when vCenter does not know the optional paths.
    with_optional: bool,
    /// The largest number of objects in a page.
    page: u32,
    /// Consecutive failed connections.
    failures: u32,
    /// How long to wait for changes.
    patience: Patience,
    /// Cleared when vCenter permanently refuses to create a property collector.
    own_collector: bool,
    /// Whether one property collector reports machines and tasks.
    shares_collector: AtomicBool,
    /// Whether vCenter is slow to tell changes, so that they are listed and not watched. Sent anew for each listing.
    behind: watch::Sender<bool>,
}

impl<'a> Follower<'a> {
    fn new(vcenter: &'a Arc<VCenter>) -> Self {
        let patience = Patience::default();
        Self {
            vcenter,
            with_optional: true,
            page: PAGE,
            failures: 0,
            patience,
            own_collector: true,
            shares_collector: AtomicBool::new(false),
            behind: watch::Sender::new(false),
        }
    }

    /// Follows the vCenter until that fails, and returns the error.
    async fn follow(&mut self, connection: &Connection) -> CallError {
        let began = Instant::now();
        let error = self.follow_session(connection).await;
        self.patience.note(&error, began.elapsed());
        error
    }

    async fn follow_session(&mut self, connection: &Connection) -> CallError {
        self.shares_collector.store(false, Ordering::Relaxed);
        self.behind.send_replace(false);
        let seen = connection.session.generation();
        let content = match connection.session.open(seen).await {
            Ok(content) => content,
            Err(error) => return error,
        };
        tracing::info!(
            vcenter = self.vcenter.name(),
            version = Some(&content.api_version).filter(|version| !version.is_empty()),
            instance = content.instance_uuid,
            "logged in"
        );
        self.vcenter.update(|state| {
            state.instance_uuid.clone_from(&content.instance_uuid);
            Changes::default()
        });
        // Before the inventory is live: steps of machines then begin, and some ask for tags.
        let tags = connection.tag_client(self.vcenter, &content);
        let mut watched = match self.list(connection, &content).await {
            Ok(watched) => watched,
            Err(error) => return error,
        };
        let began = Instant::now();
        let tasks = self.follow_tasks(connection, &content, watched.collector.clone());
        let watching = self.watch_machines(connection, &content, &mut watched);
        let error = tokio::select! {
            error = watching => error,
            error = read_tags(self.vcenter, &tags) => error,
            error = tasks => error,
        };
        if began.elapsed() >= GOOD {
            self.failures = 0;
        }
        error
    }

    /// Takes a page into the inventory without reporting its changes yet.
    fn take(&self, page: &Page<'_>, seen: &mut HashSet<MoRef>, changes: &mut Changes) {
        for update in &page.objects {
            if update.kind == UpdateKind::Leave {
                seen.remove(&update.object);
            } else {
                seen.insert(update.object.clone());
            }
        }
        let mut told = Changes::default();
        self.vcenter.update(|state| {
            state.version = version_in(&page.objects).or(state.version.take());
            told = state.inventory.apply(&page.objects);
            told.add(of_machines(state.tasks.apply(&page.objects)));
            state.has_untold |= !told.instances.is_empty();
            Changes { instances: Vec::new(), is_moved: told.is_moved && state.is_live }
        });
        changes.add(told.instances);
    }

    /// Waits for changes until an error.
    async fn watch(&self, connection: &Connection, watched: &mut Watched) -> CallError {
        loop {
            let mut changes = Changes::default();
            let waited =
                self.wait(connection, watched, LONGEST_WAIT, &mut HashSet::new(), &mut changes).await;
            if let Err(error) = waited {
                return error;
            }
            self.vcenter.update(|state| {
                state.has_untold = false;
                changes
            });
        }
    }

    /// Waits once for changes, up to this time, and takes them into the inventory. Returns whether more are
    /// available.
    async fn wait(
        &self,
        connection: &Connection,
        watched: &mut Watched,
        longest: Duration,
        seen: &mut HashSet<MoRef>,
        changes: &mut Changes,
    ) -> Result<bool, CallError> {
        let wait = WaitForUpdatesEx {
            version: watched.version.clone(),
            options: WaitOptions {
                max_wait_seconds: u32::try_from(longest.as_secs()).ok(),
                max_object_updates: Some(self.page),
            },
        };
        let deadline = self.patience.deadline(longest);
        let answer = self.call_within(connection, &wait.of(&watched.collector), deadline).await?;
        let page = read_updates("WaitForUpdatesEx", &answer)?;
        if let Some(new) = &page.version {
            watched.version.clone_from(new);
        }
        self.take(&page, seen, changes);
        if let Some(datacenters) = &watched.datacenters
            && page.objects.iter().any(|update| PLACE_KINDS.contains(&update.object.kind()))
            && self.vcenter.datacenters(&self.vcenter.state()) != *datacenters
        {
            return Err(CallError::Outdated { method: "WaitForUpdatesEx" });
        }
        Ok(page.is_truncated)
    }

    async fn call(&self, connection: &Connection, call: &Call) -> Result<Element, CallError> {
        self.call_within(connection, call, CALL_DEADLINE).await
    }

    /// Makes a call, and repeats it if vCenter reports a momentary failure. A wait for changes is not
    /// repeated if its response was lost: vCenter does not report the same changes again.
    async fn call_within(
        &self,
        connection: &Connection,
        call: &Call,
        deadline: Duration,
    ) -> Result<Element, CallError> {
        let mut pause = TRY_PAUSE;
        for _ in 1..TRIES {
            match connection.session.call_once(call, deadline).await {
                Err(error) if is_momentary(&error, call.method) => {
                    tracing::debug!(vcenter = self.vcenter.name(), %error, "trying again");
                }
                outcome => return outcome,
            }
            sleep(jittered(pause)).await;
            pause *= 2;
        }
        connection.session.call_once(call, deadline).await
    }

    /// Notes that following has ended, and returns how long to pause.
    fn note(&mut self, error: CallError) -> Duration {
        let pause = if error.is_refused() {
            CREDENTIALS_PAUSE
        } else if self.failures == 0 && (error.is_session_lost() || error.is_watch_lost()) {
            Duration::ZERO
        } else {
            let is_away = matches!(error, CallError::Unreachable { .. });
            let backoff = if is_away { BACKOFF_WHILE_AWAY } else { BACKOFF };
            jittered(backoff.nominal(self.failures.saturating_add(1)))
        };
        // a login that was not even tried tells nothing about the vCenter
        if !error.is_refused() {
            self.failures = self.failures.saturating_add(1);
        }
        if matches!(error, CallError::TooLarge { .. }) {
            self.page = (self.page / 2).max(LEAST_PAGE);
        }
        let mut is_news = false;
        self.vcenter.update(|state| {
            state.is_live = false;
            state.tasks.lose();
            let since = match &state.trouble {
                Some((known, since)) => {
                    is_news = *known != error;
                    *since
                }
                None => {
                    is_news = true;
                    Instant::now()
                }
            };
            state.trouble = Some((error.clone(), since));
            Changes::default()
        });
        if is_news {
            tracing::warn!(vcenter = self.vcenter.name(), %error, "not following the vCenter");
        }
        pause
    }
}

/// What is told of the objects of machines with these UIDs.
fn of_machines(uids: Vec<String>) -> Vec<InstanceRef> {
    uids.into_iter().map(|uid| InstanceRef { machine: Some(uid), ..InstanceRef::default() }).collect()
}

fn reference(answer: &Element, method: &'static str) -> Result<MoRef, CallError> {
    answer
        .moref()
        .ok_or_else(|| CallError::Malformed { method, reason: "the answer has no reference".into() })
}

#[cfg(test)]
mod tests;
