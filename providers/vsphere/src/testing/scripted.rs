//! A vCenter with scripted answers, for tests.

use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use cloudprovider::async_trait;
use parking_lot::Mutex;
use secrecy::SecretString;

use crate::{
    moref::MoRef,
    vim::{Call, CallError, Transport, Value, element::Element},
};

type Answer = Result<Element, CallError>;

/// Answers each method from its script, and otherwise as a vCenter without machines.
#[derive(Debug, Default)]
pub(crate) struct Scripted {
    answers: Mutex<HashMap<&'static str, VecDeque<Answer>>>,
    calls: Mutex<Vec<Call>>,
    has_session: AtomicBool,
}

impl Scripted {
    /// Adds an answer to this method to the script.
    pub(crate) fn answer(&self, method: &'static str, answer: Answer) {
        self.answers.lock().entry(method).or_default().push_back(answer);
    }

    /// Adds a fault as an answer to this method.
    pub(crate) fn fault(&self, method: &'static str, kind: &str) {
        let fault = CallError::Fault { method, kind: kind.into(), message: "scripted".into() };
        self.answer(method, Err(fault));
    }

    /// Forgets the rest of the script.
    pub(crate) fn clear(&self) {
        self.answers.lock().clear();
    }

    /// The methods called so far.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().iter().map(|call| call.method).collect()
    }

    /// The calls of a method so far.
    pub(crate) fn requests(&self, method: &str) -> Vec<Call> {
        self.calls.lock().iter().filter(|call| call.method == method).cloned().collect()
    }

    /// How often a method was called.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.calls().iter().filter(|called| **called == method).count()
    }
}

#[async_trait]
impl Transport for Scripted {
    async fn call(&self, call: &Call, _: Duration) -> Result<Element, CallError> {
        self.calls.lock().push(call.clone());
        tokio::task::yield_now().await;
        let scripted = {
            let mut answers = self.answers.lock();
            answers.get_mut(call.method).and_then(VecDeque::pop_front)
        };
        if scripted.is_none() && call.method == "WaitForUpdatesEx" {
            tokio::time::sleep(longest_wait(call)).await;
        }
        let answer = scripted.unwrap_or_else(|| Ok(default_answer(call.method)));
        if matches!(call.method, "Login" | "CloneSession") && answer.is_ok() {
            self.has_session.store(true, Ordering::SeqCst);
        }
        answer
    }

    fn forget_session(&self) {
        self.has_session.store(false, Ordering::SeqCst);
    }

    fn has_session(&self) -> bool {
        self.has_session.load(Ordering::SeqCst)
    }

    fn session_id(&self) -> Option<SecretString> {
        self.has_session()
            .then(|| format!("soap-{}", self.count("Login") + self.count("CloneSession")).into())
    }
}

/// The longest duration of a wait for changes, from its options.
fn longest_wait(call: &Call) -> Duration {
    let options = call.arguments.iter().find_map(|(_, value)| match value {
        Value::Object(_, fields) => Some(fields),
        _ => None,
    });
    let seconds = options.into_iter().flatten().find_map(|(name, value)| match value {
        Value::Text(text) if *name == "maxWaitSeconds" => text.parse().ok(),
        _ => None,
    });
    Duration::from_secs(seconds.unwrap_or(0))
}

/// An answer that is a reference.
pub(crate) fn reference(name: &str, object: &MoRef) -> Element {
    Element {
        name: name.into(),
        ref_kind: Some(object.kind().into()),
        text: object.id().into(),
        ..Element::default()
    }
}

/// An answer that is a text.
pub(crate) fn text(name: &str, text: &str) -> Element {
    Element { name: name.into(), text: text.into(), ..Element::default() }
}

/// An element with children.
pub(crate) fn node(name: &str, children: Vec<Element>) -> Element {
    Element { name: name.into(), children: children.into(), ..Element::default() }
}

fn default_answer(method: &str) -> Element {
    match method {
        "RetrieveServiceContent" => node(
            "returnval",
            [
                ("rootFolder", "Folder"),
                ("propertyCollector", "PropertyCollector"),
                ("viewManager", "ViewManager"),
                ("sessionManager", "SessionManager"),
                ("searchIndex", "SearchIndex"),
            ]
            .map(|(name, kind)| reference(name, &MoRef::new(kind, name)))
            .into(),
        ),
        "CreateContainerView" => reference("returnval", &MoRef::new("ContainerView", "session[1]2")),
        "CreatePropertyCollector" => reference("returnval", &collector()),
        _ => Element::default(),
    }
}

/// The property collector that the scripted vCenter creates.
pub(crate) fn collector() -> MoRef {
    MoRef::new("PropertyCollector", "session[1]7")
}
