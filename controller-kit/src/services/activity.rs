//! What a provider does about Services, as far as the service controller has to know of it.

use std::{collections::HashMap, sync::Arc};

use cloudprovider::{ServiceChange, ServiceRef};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Service;
use crate::writes::WrittenVersion;

/// What a provider does about Services. Clones share it.
///
/// The controller notes each call of `ensure` and `delete` that it makes for a Service. A change of that Service by
/// the provider then needs the version that the call gave, since that is what the provider decided on; and the controller
/// learns what was changed, so that it does not take it for a change by somebody else. `get` and `update` are not to change
/// Services, so those calls are not noted.
#[derive(Clone, Debug, Default)]
pub struct ProviderActivity {
    /// The calls under way, by the UID of their Service.
    calls: Arc<Mutex<HashMap<String, CallState>>>,
    retries: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct CallState {
    /// The version of the Service that the provider knows. Empty where it is not known.
    version: String,
    changes: ProviderChanges,
}

/// What a provider changed in one call, and said of the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderChanges {
    made: Vec<ServiceChange>,
    /// The version that the Service got by them.
    version: Option<WrittenVersion>,
    /// Whether a change was refused because the Service had changed since it was read.
    pub is_outdated: bool,
    /// Whether the provider said that the Service waits for more.
    pub waits_for_more: bool,
}

impl ProviderChanges {
    /// The version of the Service after the last change, if there was one.
    pub fn version(&self) -> Option<&WrittenVersion> {
        self.version.as_ref()
    }

    /// The Service as it is with these changes.
    pub fn applied_to(&self, service: &Service) -> Service {
        let mut service = service.clone();
        for change in &self.made {
            apply(change, &mut service);
        }
        if let Some(version) = &self.version {
            service.resource_version.clone_from(version);
        }
        service
    }
}

fn apply(change: &ServiceChange, service: &mut Service) {
    let content = &mut service.content;
    for (map, changes) in
        [(&mut content.annotations, &change.annotations), (&mut content.labels, &change.labels)]
    {
        for (key, value) in changes {
            match value {
                Some(value) => map.insert(key.clone(), value.clone()),
                None => map.remove(key),
            };
        }
    }
    if let Some(address) = &change.load_balancer_ip {
        content.load_balancer_ip = address.clone().filter(|address| !address.is_empty());
    }
}

impl ProviderActivity {
    /// Notes that the provider is called for this Service. There is one call at a time for each Service.
    pub fn begin(&self, service: &Service) -> ProviderCall {
        // Of a Service that is not whole, what the provider gets is older than its version.
        let version = if service.is_whole() { service.resource_version.clone() } else { String::new() };
        let state = CallState { version, ..CallState::default() };
        let uid = service.uid().to_owned();
        self.calls.lock().insert(uid.clone(), state);
        ProviderCall { activity: self.clone(), uid }
    }

    /// The version that this Service must have for a change by the provider. `None`: any.
    pub(super) fn version_of(&self, service: &ServiceRef) -> Option<String> {
        let calls = self.calls.lock();
        calls.get(&service.uid).map(|call| call.version.clone()).filter(|version| !version.is_empty())
    }

    /// Notes a change by the provider.
    pub(super) fn note(&self, service: &ServiceRef, change: &ServiceChange, version: WrittenVersion) {
        if let Some(call) = self.calls.lock().get_mut(&service.uid) {
            call.changes.made.push(change.clone());
            call.version.clone_from(&version);
            call.changes.version = Some(version);
        }
    }

    /// Notes that a change was refused because the Service had changed.
    pub(super) fn note_outdated(&self, service: &ServiceRef) {
        if let Some(call) = self.calls.lock().get_mut(&service.uid) {
            call.changes.is_outdated = true;
        }
    }

    /// Notes that the Service waits for more than the provider can give it now.
    pub(super) fn note_wait_for_more(&self, service: &ServiceRef) {
        if let Some(call) = self.calls.lock().get_mut(&service.uid) {
            call.changes.waits_for_more = true;
        }
    }

    /// The provider asks for another try for all Services that wait.
    pub(super) fn retry(&self) {
        self.retries.send_modify(|retries| *retries += 1);
    }

    /// How often the provider has asked for another try.
    pub fn retries(&self) -> watch::Receiver<u64> {
        self.retries.subscribe()
    }
}

/// A call of the provider that is under way, until this is dropped.
#[derive(Debug)]
pub struct ProviderCall {
    activity: ProviderActivity,
    uid: String,
}

impl ProviderCall {
    /// Ends the call, and gives what the provider changed in it.
    pub fn end(self) -> ProviderChanges {
        self.activity.calls.lock().remove(&self.uid).map(|call| call.changes).unwrap_or_default()
    }
}

impl Drop for ProviderCall {
    fn drop(&mut self) {
        self.activity.calls.lock().remove(&self.uid);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service() -> Service {
        Service::from_json(json!({
            "metadata": {
                "namespace": "a", "name": "b", "uid": "u", "resourceVersion": "5",
                "annotations": {"gone": "1", "kept": "1"},
            },
            "spec": {"type": "LoadBalancer", "loadBalancerIP": "192.0.2.9"},
        }))
    }

    fn service_ref() -> ServiceRef {
        ServiceRef { uid: "u".into(), ..ServiceRef::default() }
    }

    #[test]
    fn what_is_changed_in_a_call_is_known() {
        let activity = ProviderActivity::default();
        let change = ServiceChange {
            annotations: [("gone".into(), None), ("new".into(), Some("2".into()))].into(),
            labels: [("l".into(), Some("1".into()))].into(),
            load_balancer_ip: Some(Some("192.0.2.1".into())),
        };
        let removal = ServiceChange { load_balancer_ip: Some(None), ..ServiceChange::default() };
        activity.note(&service_ref(), &change, "4".into());
        assert_eq!(activity.version_of(&service_ref()), None, "no call is under way");
        let call = activity.begin(&service());
        assert_eq!(activity.version_of(&service_ref()).as_deref(), Some("5"));
        activity.note(&service_ref(), &change, "6".into());
        assert_eq!(
            activity.version_of(&service_ref()).as_deref(),
            Some("6"),
            "its own change is known to it"
        );
        activity.note(&service_ref(), &removal, "7".into());
        let changes = call.end();
        let now = changes.applied_to(&service());
        let texts = |map: &std::collections::BTreeMap<String, String>| {
            map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            (texts(&now.content.annotations), texts(&now.content.labels)),
            ("kept=1 new=2".into(), "l=1".into())
        );
        assert_eq!((now.content.load_balancer_ip, now.resource_version.as_str()), (None, "7"));
        assert_eq!(ProviderChanges::default().applied_to(&service()), service());
        assert!(!changes.is_outdated && activity.version_of(&service_ref()).is_none());
    }

    #[test]
    fn what_waits_for_more_is_known_for_one_call() {
        let activity = ProviderActivity::default();
        activity.note_wait_for_more(&service_ref());
        let call = activity.begin(&service());
        activity.note_wait_for_more(&service_ref());
        activity.note_wait_for_more(&ServiceRef { uid: "other".into(), ..ServiceRef::default() });
        assert!(call.end().waits_for_more);
        assert!(!activity.begin(&service()).end().waits_for_more);
    }

    #[test]
    fn a_call_that_is_given_up_leaves_nothing() {
        let activity = ProviderActivity::default();
        drop(activity.begin(&service()));
        assert!(activity.calls.lock().is_empty());
        let little = Service::from_json(json!({"metadata": {"uid": "u", "resourceVersion": "5"}}));
        let call = activity.begin(&little);
        assert_eq!(activity.version_of(&service_ref()), None, "it is called with what is remembered");
        activity.note_outdated(&service_ref());
        assert!(call.end().is_outdated);
    }
}
