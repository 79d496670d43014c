//! Injected faults and delays, and the log of requests for tests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::StatusCode;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::{request::Target, status::ApiError, store::Store};

/// Selects the requests that a [`Fault`] affects, or that [`Sandbox::requests_matching`](crate::Sandbox)
/// returns. A field that is `None` matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matcher {
    verb: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    field_selector: Option<String>,
}

impl Matcher {
    /// Every request for a resource.
    pub fn any() -> Self {
        Self::default()
    }

    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// The plural, such as `nodes`.
    #[must_use]
    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }

    /// `status`, or an empty string for the main resource only.
    #[must_use]
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Requests inside this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Requests for this object. Lists, watches and creates have no name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Lists and watches with this field selector. An empty string selects those without one.
    #[must_use]
    pub fn field_selector(mut self, selector: &str) -> Self {
        self.field_selector = Some(selector.to_owned());
        self
    }

    pub(crate) fn matches(&self, request: &Request) -> bool {
        let fits = |wanted: &Option<String>, got: &str| wanted.as_ref().is_none_or(|wanted| wanted == got);
        fits(&self.verb, request.verb)
            && fits(&self.resource, &request.resource)
            && fits(&self.subresource, &request.subresource)
            && fits(&self.namespace, &request.namespace)
            && fits(&self.name, &request.name)
            && fits(&self.field_selector, &request.field_selector)
    }
}

/// What happens to a request that a [`Fault`] affects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// 409 Conflict, as if another client had written first.
    Conflict,
    /// 429 `TooManyRequests` with this many seconds in `Retry-After`.
    TooManyRequests(u64),
    /// 500 `InternalError`.
    InternalError,
    /// 503 `ServiceUnavailable`.
    ServiceUnavailable,
    /// 410 Gone with reason Expired, as after a compaction.
    Gone,
    /// A watch starts and ends with an ERROR event of this code; 410 has reason Expired. Other requests get
    /// that status.
    ErrorEvent(u16),
    /// The request waits this long (tokio time) and is then served.
    Delay(Duration),
    /// The request is served, but the response is lost, so the client does not know that a write has
    /// happened.
    LoseResponse,
    /// The connection breaks before the request is served.
    ResetConnection,
}

/// A rule: which requests are affected, how, and how often.
#[derive(Debug, Clone)]
pub struct Fault {
    matcher: Matcher,
    action: Action,
    times: Option<u64>,
    probability: f64,
}

impl Fault {
    /// Affects every matching request until [`Faults::clear`].
    pub fn new(matcher: Matcher, action: Action) -> Self {
        Self { matcher, action, times: None, probability: 1.0 }
    }

    /// Affects only the next `n` matching requests.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = Some(n);
        self
    }

    /// Affects each matching request with this probability, 0 to 1; see [`Faults::seed`].
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }
}

/// One request in the log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// See [`Matcher::verb`].
    pub verb: &'static str,
    /// The plural, such as `nodes`.
    pub resource: String,
    /// `status`, or empty.
    pub subresource: String,
    /// Empty for cluster-scoped objects and requests over all namespaces.
    pub namespace: String,
    /// Empty for lists, watches and creates.
    pub name: String,
    /// As in the request; empty if there is none.
    pub field_selector: String,
}

impl From<&Target> for Request {
    fn from(target: &Target) -> Self {
        Self {
            verb: target.verb,
            resource: target.kind.plural.clone(),
            subresource: target.subresource.clone(),
            namespace: target.namespace.clone().unwrap_or_default(),
            name: target.name.clone(),
            field_selector: target.query.field_selector.clone(),
        }
    }
}

/// Handle to the faults of a [`Sandbox`](crate::Sandbox); cheap to clone.
#[derive(Debug, Clone)]
pub struct Faults(Arc<State>);

#[derive(Debug)]
struct State {
    rules: Mutex<Rules>,
    store: Arc<Store>,
    drops: watch::Sender<u64>,
    spoils: Spoils,
}

#[derive(Debug)]
struct Rules {
    faults: Vec<Fault>,
    random: fastrand::Rng,
}

/// How an unreadable event is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoil {
    /// It is JSON, but not of the requested kind.
    Kind,
    /// It is truncated.
    Cut,
}

/// How many of the next events are made unreadable. Clones share the number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spoils(Arc<Mutex<(Option<Spoil>, u64)>>);

impl Spoils {
    /// How to break this event, if it is one of them.
    pub(crate) fn take(&self) -> Option<Spoil> {
        let mut next = self.0.lock();
        next.1 = next.1.checked_sub(1)?;
        next.0
    }
}

/// How the service treats a request, by the rules.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) delay: Duration,
    pub(crate) error: Option<ApiError>,
    /// Whether a watch gets `error` as an event.
    pub(crate) in_stream: bool,
    pub(crate) reset: bool,
    pub(crate) lose_response: bool,
}

impl Faults {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        let rules = Rules { faults: Vec::new(), random: fastrand::Rng::with_seed(0) };
        Self(Arc::new(State {
            rules: Mutex::new(rules),
            store,
            drops: watch::Sender::new(0),
            spoils: Spoils::default(),
        }))
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.0.rules.lock()
    }

    /// Adds a rule. Rules are applied in order: delays add up, and the first other action ends the search.
    pub fn inject(&self, fault: Fault) {
        self.rules().faults.push(fault);
    }

    /// Removes every rule.
    pub fn clear(&self) {
        self.rules().faults.clear();
    }

    /// Sets the seed for the random choices of [`Fault::probability`]. The default is 0, so that test runs
    /// are reproducible.
    pub fn seed(&self, seed: u64) {
        self.rules().random = fastrand::Rng::with_seed(seed);
    }

    /// Ends every open watch in the middle of its body, as a broken connection does.
    pub fn drop_watches(&self) {
        self.0.drops.send_modify(|n| *n += 1);
    }

    /// Makes the next `n` watch events unreadable. Later ones are valid again.
    pub fn spoil_events(&self, spoil: Spoil, n: u64) {
        *self.0.spoils.0.lock() = (Some(spoil), n);
    }

    pub(crate) fn spoils(&self) -> Spoils {
        self.0.spoils.clone()
    }

    /// Forgets the history, as a compaction of etcd does: watches from any resourceVersion so far and open
    /// paged lists get 410 Gone. An open watch that has seen all changes continues.
    pub fn expire(&self) {
        self.0.store.lock().compact();
    }

    pub(crate) fn subscribe_drops(&self) -> watch::Receiver<u64> {
        self.0.drops.subscribe()
    }

    pub(crate) fn judge(&self, target: &Target, request: &Request) -> Verdict {
        let mut verdict = Verdict::default();
        let mut rules = self.rules();
        let Rules { faults, random } = &mut *rules;
        for fault in faults.iter_mut() {
            let worn_out = fault.times == Some(0);
            if worn_out || !fault.matcher.matches(request) || random.f64() >= fault.probability {
                continue;
            }
            if let Some(times) = &mut fault.times {
                *times -= 1;
            }
            match &fault.action {
                Action::Delay(delay) => {
                    verdict.delay += *delay;
                    continue;
                }
                Action::ResetConnection => verdict.reset = true,
                Action::LoseResponse => verdict.lose_response = true,
                Action::ErrorEvent(_) => {
                    verdict.error = Some(error(&fault.action, target));
                    verdict.in_stream = true;
                }
                answer => verdict.error = Some(error(answer, target)),
            }
            break;
        }
        faults.retain(|fault| fault.times != Some(0));
        verdict
    }
}

fn error(action: &Action, target: &Target) -> ApiError {
    match action {
        Action::Conflict => ApiError::modified(&target.kind, &target.name),
        Action::TooManyRequests(seconds) => ApiError {
            retry_after: Some(*seconds),
            ..ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later",
            )
        },
        Action::ServiceUnavailable => ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        Action::ErrorEvent(code) if *code != 410 => ApiError::new(
            StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            "InternalError",
            "an error event was injected",
        ),
        Action::Gone | Action::ErrorEvent(_) => {
            ApiError::expired("The resourceVersion for the provided list is too old.")
        }
        _ => ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "Internal error occurred: injected fault",
        ),
    }
}

/// Counts of requests by (verb, resource, subresource).
pub type Counts = BTreeMap<(String, String, String), u64>;

/// How many requests are kept individually; older ones are only counted.
const LOG: usize = 100_000;

/// The requests since the last reset, including refused ones and those with injected faults.
#[derive(Debug, Default)]
pub(crate) struct RequestLog(Mutex<(Counts, std::collections::VecDeque<Request>)>);

impl RequestLog {
    fn lock(&self) -> MutexGuard<'_, (Counts, std::collections::VecDeque<Request>)> {
        self.0.lock()
    }

    pub(crate) fn record(&self, request: Request) {
        let mut log = self.lock();
        let key = (request.verb.to_owned(), request.resource.clone(), request.subresource.clone());
        *log.0.entry(key).or_default() += 1;
        if log.1.len() == LOG {
            log.1.pop_front();
        }
        log.1.push_back(request);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().0.clone()
    }

    pub(crate) fn matching(&self, matcher: &Matcher) -> Vec<Request> {
        self.lock().1.iter().filter(|request| matcher.matches(request)).cloned().collect()
    }

    pub(crate) fn reset(&self) {
        *self.lock() = Default::default();
    }
}
