//! Warnings about Services. Each is given once a term.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use cloudprovider::{ServiceAccess, ServiceRef};

use crate::{allocate::Plan, request::Request};

/// A Warning event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The warnings that were given in this term.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// Their messages, by the UID of the Service.
    given: Mutex<HashMap<String, HashSet<String>>>,
}

impl Warnings {
    fn given(&self) -> MutexGuard<'_, HashMap<String, HashSet<String>>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a warning, unless it was given before.
    pub(crate) fn give(&self, access: &dyn ServiceAccess, service: &ServiceRef, warning: Warning) {
        let Warning { reason, message } = warning;
        if self.given().entry(service.uid.clone()).or_default().insert(message.clone()) {
            access.warn(service, reason, message);
        }
    }

    /// Forgets a Service that has no load balancer any more.
    pub(crate) fn forget(&self, uid: &str) {
        self.given().remove(uid);
    }

    /// Forgets all: the term has ended.
    pub(crate) fn clear(&self) {
        self.given().clear();
    }
}

/// What a person should know of a plan.
pub(crate) fn warnings_of(request: &Request, plan: &Plan) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut add = |reason, message| warnings.push(Warning { reason, message });
    for (family, why) in &plan.left_out {
        let message = format!("the Service prefers to have an {family} address too, and gets none: {why}");
        add("LoadBalancerFamilyLeftOut", message);
    }
    let namespace = &request.service.namespace;
    for one in &plan.held {
        let address = one.address;
        if let Some((old, why)) = &one.replaces {
            add("LoadBalancerAddressChanged", format!("{old} is replaced by {address}: {why}"));
        }
        if one.is_outside {
            let message = if request.may_ask_outside {
                format!(
                    "{address} is in no pool for the namespace {namespace}; see to it that nothing else uses it"
                )
            } else {
                format!(
                    "{address} is kept, and is in no pool for the namespace {namespace} any more; add it to one, or ask for another address"
                )
            };
            add("LoadBalancerAddressOutsidePools", message);
        }
    }
    warnings
}
