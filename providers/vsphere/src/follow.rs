//! The task that follows one vCenter: logs in, lists everything, and waits for changes from then on.
//!
//! A property collector tells both: its first changes are all that there is. It is made for that alone; the one that every
//! session has is used where vCenter refuses to make another. What is made in a session ends with it, and each session is
//! ended by a logout, one that was cloned from another's as well, so that nothing is left behind.
//!
//! One view shows everything. Where the configuration lists datacenters, one shows what they are called and where they are,
//! and each of them has a view of its own: what lies elsewhere is not read.

mod connection;
mod pauses;
mod selection;
mod tags;

use std::{
    collections::{BTreeSet, HashSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::{
    connection::Connection,
    selection::{PLACE_KINDS, all_kinds, entities, machines, spec},
    tags::read_tags,
};
use crate::{
    inventory::Changes,
    moref::MoRef,
    session::{CALL_DEADLINE, ServiceContent},
    vcenter::VCenter,
    vim::{
        Call, CallError,
        element::Element,
        objects::{
            ContinueRetrievePropertiesEx, CreateContainerView, CreateFilter, CreatePropertyCollector,
            RetrieveOptions, RetrievePropertiesEx, WaitForUpdatesEx, WaitOptions,
        },
        property_collector::{Page, UpdateKind, read_listing, read_updates},
    },
};

use pauses::{BACKOFF, BACKOFF_WHILE_AWAY, CREDENTIALS_PAUSE, jittered};

/// Objects in a page of the listing. A page is in memory as a whole, with some kilobytes for each machine.
pub(crate) const PAGE: u32 = 500;

/// Pages that turn out too large are halved, down to this.
const LEAST_PAGE: u32 = 10;

/// How long vCenter may keep a wait for changes. Each also keeps the session alive, which ends after half an hour without a
/// call. Proxies like to cut an answer that takes a minute.
const LONGEST_WAIT: Duration = Duration::from_secs(45);

/// How much longer than that is waited for its answer.
const WAIT_MARGIN: Duration = Duration::from_secs(20);

/// How often a call that failed for a moment is made before everything is set up anew.
const TRIES: u32 = 4;

/// The pause before the second try of a call, and then twice as long each time.
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// A connection that lasted so long was a good one: the next one is tried at once.
const GOOD: Duration = Duration::from_secs(30);

/// Follows a vCenter until it is stopped, and logs out.
pub(crate) async fn run(vcenter: Arc<VCenter>, stop: CancellationToken) {
    let mut follower =
        Follower { vcenter: &vcenter, with_optional: true, page: PAGE, failures: 0, own_collector: true };
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
        // what is trusted may have changed meanwhile; a session that may still be alive is kept, to be ended
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

/// What is watched.
struct Watched {
    views: Vec<MoRef>,
    /// What tells the changes.
    collector: MoRef,
    /// The datacenters that the configuration lists, as far as there are such; `None` where it lists none.
    datacenters: Option<BTreeSet<MoRef>>,
    /// Of the property collector: up to here its changes were read.
    version: String,
}

struct Follower<'a> {
    vcenter: &'a Arc<VCenter>,
    /// Cleared when vCenter does not know the paths that are not everybody's.
    with_optional: bool,
    /// Objects in a page, at most.
    page: u32,
    /// Connections in a row that failed.
    failures: u32,
    /// Cleared when vCenter refuses for good to make a property collector.
    own_collector: bool,
}

impl Follower<'_> {
    /// Follows until that is not possible any more, and says why.
    async fn follow(&mut self, connection: &Connection) -> CallError {
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
        if content.instance_uuid.is_some() {
            self.vcenter.update(|state| {
                state.instance_uuid.clone_from(&content.instance_uuid);
                Changes::default()
            });
        }
        let mut watched = match self.list(connection, &content).await {
            Ok(watched) => watched,
            Err(error) => return error,
        };
        let tags = connection.tag_client(self.vcenter, &content);
        let began = Instant::now();
        let watching = self.watch(connection, &mut watched);
        let error = tokio::select! {
            error = watching => error,
            error = read_tags(self.vcenter, &tags) => error,
        };
        if began.elapsed() >= GOOD {
            self.failures = 0;
        }
        error
    }

    /// Lists everything: the first changes that the property collector tells are all that there is. Takes four calls, and
    /// one more for each further page; where datacenters are listed, two more and one for each of them.
    async fn list(
        &mut self,
        connection: &Connection,
        content: &ServiceContent,
    ) -> Result<Watched, CallError> {
        let root = &content.root_folder;
        let all = all_kinds();
        let collector = self.collector(connection, content).await?;
        let mut watched = Watched { views: Vec::new(), collector, datacenters: None, version: String::new() };
        let mut changes = Changes::default();
        if self.vcenter.settings.datacenters.is_empty() {
            watched.views.push(self.view(connection, content, root, all).await?);
        } else {
            let places = self.view(connection, content, root, PLACE_KINDS.into()).await?;
            self.read_places(connection, content, &places, &mut changes).await?;
            watched.views.push(places);
            let datacenters = self.vcenter.datacenters(&self.vcenter.state());
            for datacenter in &datacenters {
                watched.views.push(self.view(connection, content, datacenter, all.clone()).await?);
            }
            watched.datacenters = Some(datacenters);
        }
        self.create_filter(connection, &watched).await?;
        let has_untold = self.vcenter.state().has_untold;
        let mut listed = HashSet::new();
        while self.wait(connection, &mut watched, Duration::ZERO, &mut listed, &mut changes).await? {}
        self.vcenter.update(|state| {
            let gone = state.inventory.retain(&listed);
            state.is_listed = true;
            state.is_live = true;
            state.has_untold = false;
            state.trouble = None;
            changes.add(gone.instances);
            tracing::info!(
                vcenter = self.vcenter.name(),
                machines = state.inventory.machines().len(),
                "following changes"
            );
            changes
        });
        if has_untold {
            // The inventory had these changes already, so that this listing found none.
            self.vcenter.push_all();
        }
        Ok(watched)
    }

    async fn view(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        container: &MoRef,
        kinds: Vec<&'static str>,
    ) -> Result<MoRef, CallError> {
        let create = CreateContainerView { container: container.clone(), kinds, recursive: true };
        let answer = self.call(connection, &create.of(&content.view_manager)).await?;
        reference(&answer, "CreateContainerView")
    }

    /// Reads the folders and datacenters that a view shows.
    async fn read_places(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        view: &MoRef,
        changes: &mut Changes,
    ) -> Result<(), CallError> {
        let mut call = RetrievePropertiesEx {
            spec_set: vec![spec(std::slice::from_ref(view), entities())],
            options: RetrieveOptions { max_objects: Some(self.page) },
        }
        .of(&content.property_collector);
        loop {
            let method = call.method;
            let answer = self.call(connection, &call).await?;
            let page = read_listing(method, &answer)?;
            self.take(&page, &mut HashSet::new(), changes);
            match page.token {
                Some(token) => {
                    call = ContinueRetrievePropertiesEx { token }.of(&content.property_collector);
                }
                None => return Ok(()),
            }
        }
    }

    /// A property collector for us alone, or the session's own where vCenter refuses to make one.
    async fn collector(
        &mut self,
        connection: &Connection,
        content: &ServiceContent,
    ) -> Result<MoRef, CallError> {
        if self.own_collector {
            let create = CreatePropertyCollector {}.of(&content.property_collector);
            match self.call(connection, &create).await {
                Ok(answer) => return reference(&answer, create.method),
                Err(error @ CallError::Fault { .. }) if !error.is_session_lost() => {
                    tracing::warn!(
                        vcenter = self.vcenter.name(),
                        %error,
                        "vCenter makes no property collector; the session's own is used"
                    );
                    let is_momentary =
                        ["ManagedObjectNotFound", "RequestCanceled"].map(|kind| error.is_fault(kind));
                    self.own_collector = !is_final(&error) || is_momentary.contains(&true);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(content.property_collector.clone())
    }

    /// Has the property collector follow what views show.
    async fn create_filter(&mut self, connection: &Connection, watched: &Watched) -> Result<(), CallError> {
        loop {
            let properties = std::iter::once(machines(self.with_optional)).chain(entities()).collect();
            let filter = CreateFilter { spec: spec(&watched.views, properties), partial_updates: false };
            match self.call(connection, &filter.of(&watched.collector)).await {
                Err(error) if self.with_optional && error.is_fault("InvalidProperty") => {
                    tracing::info!(
                        vcenter = self.vcenter.name(),
                        "vCenter cannot read single keys of extraConfig"
                    );
                    self.with_optional = false;
                }
                answer => return answer.map(drop),
            }
        }
    }

    /// Takes a page into the inventory, without telling anybody yet.
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
            told = state.inventory.apply(&page.objects);
            state.has_untold |= !told.instances.is_empty();
            Changes { instances: Vec::new(), is_moved: told.is_moved && state.is_live }
        });
        changes.add(told.instances);
    }

    /// Waits for changes, for ever.
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

    /// Waits once for changes, so long at most, and takes them into the inventory. Says whether there are more at hand.
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
        let deadline = CALL_DEADLINE.max(longest + WAIT_MARGIN);
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

    /// Makes a call, and again where vCenter says that it failed for a moment. Where the answer was lost, a wait for changes
    /// is not made again: vCenter may have told its changes to nobody.
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

    /// Notes that following has ended, and says how long to pause.
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
        // a login that is not even tried says nothing of the vCenter
        if !error.is_refused() {
            self.failures = self.failures.saturating_add(1);
        }
        if matches!(error, CallError::TooLarge { .. }) {
            self.page = (self.page / 2).max(LEAST_PAGE);
        }
        let mut is_news = false;
        self.vcenter.update(|state| {
            state.is_live = false;
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

fn reference(answer: &Element, method: &'static str) -> Result<MoRef, CallError> {
    answer
        .moref()
        .ok_or_else(|| CallError::Malformed { method, reason: "the answer has no reference".into() })
}

/// Whether the same call may succeed in a moment.
fn is_momentary(error: &CallError, method: &str) -> bool {
    match error {
        CallError::Fault { .. } => !is_final(error),
        CallError::Status { status, .. } => method != "WaitForUpdatesEx" && *status >= 500,
        CallError::Unreachable { .. } => method != "WaitForUpdatesEx",
        _ => false,
    }
}

/// Whether vCenter refuses the call itself, however often it is made.
fn is_final(error: &CallError) -> bool {
    let faults = [
        "NotAuthenticated",
        "NoPermission",
        "InvalidLogin",
        "InvalidArgument",
        "InvalidProperty",
        "InvalidRequest",
        "InvalidType",
        "ManagedObjectNotFound",
        "MethodNotFound",
        "NotImplemented",
        "NotSupported",
        "InvalidCollectorVersion",
        "RequestCanceled",
    ];
    faults.iter().any(|kind| error.is_fault(kind))
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
