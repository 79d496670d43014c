//! Cluster modules of vCenter, which only the Automation REST API has: machines in one module run on different hosts of their cluster, as
//! far as there are enough. From vCenter 7.0 on.

use std::collections::HashMap;

use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::{
    moref::MoRef,
    rest::{Dialect, RestSession},
    vim::CallError,
};

const VIRTUAL_MACHINE: &str = "VirtualMachine";

/// The status of what does not exist.
const NOT_FOUND: u16 = 404;

/// The cluster of hosts of each module, by the module's ID.
pub(crate) type Known = HashMap<String, MoRef>;

/// Makes and changes the cluster modules of one vCenter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterModules<'a>(&'a RestSession);

#[derive(Debug, Deserialize)]
struct Listing {
    summaries: Option<Vec<Summary>>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    cluster: String,
    module: String,
}

#[derive(Debug, Deserialize)]
struct Members {
    vms: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Outcome {
    success: bool,
}

impl<'a> ClusterModules<'a> {
    pub(crate) fn new(session: &'a RestSession) -> Self {
        Self(session)
    }

    /// All modules, of anybody. `None` if this vCenter has no cluster modules.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) async fn list(self) -> Result<Option<Known>, CallError> {
        const METHOD: &str = "list cluster modules";
        let question = |dialect: Dialect| (dialect.modules_path(""), None);
        let found = unless_missing(self.0.request::<Listing>(METHOD, Method::GET, question).await)?;
        let all = found.map(|found| found.summaries.unwrap_or_default().into_iter());
        let known = |one: Summary| (one.module, MoRef::new("ClusterComputeResource", &one.cluster));
        Ok(all.map(|all| all.map(known).collect()))
    }

    /// Makes a module in a cluster of hosts. Returns its ID.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) async fn create(self, cluster: &MoRef) -> Result<String, CallError> {
        const METHOD: &str = "create cluster module";
        let question = |dialect: Dialect| {
            let spec = json!({"cluster": cluster.id()});
            let body = if dialect == Dialect::Legacy { json!({ "spec": spec }) } else { spec };
            (dialect.modules_path(""), Some(body.to_string()))
        };
        self.0.request(METHOD, Method::POST, question).await
    }

    /// Deletes a module. One that is not there is deleted already.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) async fn delete(self, module: &str) -> Result<(), CallError> {
        const METHOD: &str = "delete cluster module";
        let Some(module) = segment(module) else { return Ok(()) };
        let below = format!("/{module}");
        let question = |dialect: Dialect| (dialect.modules_path(&below), None);
        let answer: Result<Option<()>, _> = self.0.request(METHOD, Method::DELETE, question).await;
        unless_missing(answer).map(drop)
    }

    /// The machines in a module. `None` if there is no such module.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) async fn members(self, module: &str) -> Result<Option<Vec<MoRef>>, CallError> {
        const METHOD: &str = "list members of cluster module";
        let Some(module) = segment(module) else { return Ok(None) };
        let below = format!("/vm/{module}/members");
        let question = |dialect: Dialect| (dialect.modules_path(&below), None);
        let found = unless_missing(self.0.request::<Members>(METHOD, Method::GET, question).await)?;
        let machines = |found: Members| {
            found.vms.unwrap_or_default().iter().map(|id| MoRef::new(VIRTUAL_MACHINE, id)).collect()
        };
        Ok(found.map(machines))
    }

    /// Puts machines into a module. False if not all of them were put into it by this very call: vCenter does not say which. One may
    /// be in it already, or in another cluster. `None` if there is no such module.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) async fn add(self, module: &str, machines: &[MoRef]) -> Result<Option<bool>, CallError> {
        self.change("add members to cluster module", "add", module, machines).await
    }

    /// Takes machines out of a module. False if not all of them were in it. `None` if there is no such module.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) async fn remove(self, module: &str, machines: &[MoRef]) -> Result<Option<bool>, CallError> {
        self.change("remove members of cluster module", "remove", module, machines).await
    }

    async fn change(
        self,
        method: &'static str,
        action: &str,
        module: &str,
        machines: &[MoRef],
    ) -> Result<Option<bool>, CallError> {
        let ids: Vec<_> = machines.iter().map(MoRef::id).collect();
        let body = json!({ "vms": ids }).to_string();
        let Some(module) = segment(module) else { return Ok(None) };
        let below = format!("/vm/{module}/members?action={action}");
        let question = |dialect: Dialect| (dialect.modules_path(&below), Some(body.clone()));
        let outcome = unless_missing(self.0.request::<Outcome>(method, Method::POST, question).await)?;
        Ok(outcome.map(|outcome| outcome.success))
    }
}

/// The ID of a module as a part of a path. IDs are UUIDs, and come from an object of the API too. What is none is not there.
fn segment(module: &str) -> Option<&str> {
    let is_plain = module.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_plain && !module.is_empty()).then_some(module)
}

fn unless_missing<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(CallError::Status { status: NOT_FOUND, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_an_id_gets_into_a_path() {
        let id = "52d0f8a2-0000-4000-8000-000000000001";
        assert_eq!(segment(id), Some(id));
        for module in ["", "a/b", "..", "a?action=remove", "a b", "\u{e4}"] {
            assert_eq!(segment(module), None, "{module}");
        }
    }
}
