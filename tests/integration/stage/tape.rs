//! What daemons do to the world outside, in order: requests to the API server, and calls of the cloud. Each may be a trap in which a
//! daemon dies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use http::Request;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{
    in_flight::{Flight, InFlight},
    trap::{Side, Trap},
};

/// The steps of all daemons of a world. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape {
    state: Arc<Mutex<State>>,
    in_flight: InFlight,
    /// Where a daemon dies.
    pub(crate) trap: Trap,
}

#[derive(Debug, Default)]
struct State {
    steps: Vec<Step>,
    /// How many requests of each kind there were.
    requests: BTreeMap<String, usize>,
}

/// A write of an object, or a call of the cloud for one.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: Instant,
    /// Such as `services`.
    pub(crate) resource: String,
    /// The name of the object.
    pub(crate) name: String,
    /// What was done, such as `status` or `ensure n1,n2`.
    pub(crate) what: String,
    /// The body of the request.
    pub(crate) body: String,
}

impl Tape {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn record(&self, resource: &str, name: &str, what: String, body: String) {
        let (resource, name) = (resource.to_owned(), name.to_owned());
        self.lock().steps.push(Step { at: Instant::now(), resource, name, what, body });
    }

    /// Takes note of a request to the API server.
    pub(crate) fn count_request<B>(&self, request: &Request<B>) {
        *self.lock().requests.entry(kind_of(request)).or_default() += 1;
    }

    /// A write of this object is in flight until the result is dropped.
    pub(crate) fn in_flight(&self, name: &str) -> Flight {
        self.in_flight.enter(name)
    }

    /// Waits until every write of an object of this name that the API server shows is on the tape.
    pub(crate) async fn has_writes_of(&self, name: &str) {
        self.in_flight.none_of(name).await;
    }

    /// Does what a daemon may die before or after.
    pub(crate) async fn trapped<T>(&self, act: impl Future<Output = T>) -> T {
        let number = self.trap.pass();
        self.trap.stumble(number, Side::Before).await;
        let result = act.await;
        self.trap.stumble(number, Side::After).await;
        result
    }

    /// All steps so far.
    pub(crate) fn steps(&self) -> Vec<Step> {
        self.lock().steps.clone()
    }

    fn find<T>(&self, is_wanted: impl Fn(&Step) -> bool, take: impl Fn(&Step) -> T) -> Vec<T> {
        self.lock().steps.iter().filter(|step| is_wanted(step)).map(take).collect()
    }

    /// What was done to objects of this name so far.
    pub(crate) fn of(&self, name: &str) -> Vec<String> {
        self.find(|step| step.name == name, |step| step.what.clone())
    }

    /// What was done to this object so far.
    pub(crate) fn of_object(&self, resource: &str, name: &str) -> Vec<String> {
        self.find(|step| step.resource == resource && step.name == name, |step| step.what.clone())
    }

    /// How many steps of objects of this name begin with `what`.
    pub(crate) fn count(&self, name: &str, what: &str) -> usize {
        self.times(name, what).len()
    }

    /// When such steps were done.
    pub(crate) fn times(&self, name: &str, what: &str) -> Vec<Instant> {
        self.find(|step| step.name == name && step.what.starts_with(what), |step| step.at)
    }

    pub(crate) fn clear(&self) {
        self.lock().steps.clear();
    }

    /// The kinds of requests so far, such as `GET secrets`, `PATCH fakemachines/status`, `WATCH machines` or `DISCOVER`.
    pub(crate) fn kinds(&self) -> BTreeSet<String> {
        self.lock().requests.keys().cloned().collect()
    }

    /// How many requests of this kind there were so far.
    pub(crate) fn requests(&self, kind: &str) -> usize {
        self.lock().requests.get(kind).copied().unwrap_or_default()
    }
}

/// Verb and resource of a request.
pub(crate) fn kind_of<B>(request: &Request<B>) -> String {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let resource = match path.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => match rest {
            [] => return "DISCOVER".to_owned(),
            ["namespaces", _, resource, _, part] => format!("{resource}/{part}"),
            ["namespaces", _, resource, ..] | [resource, ..] => (*resource).to_owned(),
        },
        _ => path.join("/"),
    };
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    format!("{} {resource}", if is_watch { "WATCH" } else { request.method().as_str() })
}
