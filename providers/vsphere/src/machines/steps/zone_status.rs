//! What the status of a `VSphereDeploymentZone` says.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{Condition, ConditionStatus, ObserveRequest, StatusReport},
};
use serde_json::json;

use super::cluster::{available, ignored_fields};
use crate::machines::{
    vcenter_handle::VCenterHandle,
    vsphere_machines::VSphereMachines,
    zones::{Checked, Zone},
};

const READY: &str = "Ready";
const VALIDATED: &str = "FailureDomainValidated";

/// How soon a zone that is not ready is looked at again. Tags, datastores and networks are not told.
const RETRY: Duration = Duration::from_secs(60);

/// The same where its vCenter is not there.
const AWAY_RETRY: Duration = Duration::from_secs(10);

impl VSphereMachines {
    /// What is said about a zone: whether its vCenter is there and has what it names.
    ///
    /// # Errors
    /// What may be over with the next look.
    pub(super) async fn observe_zone(&self, request: &ObserveRequest) -> Result<StatusReport> {
        let zone = match Zone::of(&request.objects, &request.object) {
            Ok(zone) => zone,
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => return Ok(status(vec![wrong(VALIDATED, "ValidationFailed", &error)])),
        };
        let status = |conditions: Vec<Condition>| {
            status(conditions.into_iter().chain(ignored_fields(zone.ignored())).collect())
        };
        let checked = match self.check_where_possible(&zone).await {
            Ok(checked) => checked,
            Err(error) => {
                return Ok(status(vec![available::<()>(&Err(error))]).look_again_after(AWAY_RETRY));
            }
        };
        let available = available(&Ok(()));
        let conditions: [Condition; 2] = match checked {
            Ok(checked) => Checked::conditions(&checked),
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => return Ok(status(vec![available, wrong(VALIDATED, "ValidationFailed", &error)])),
        };
        Ok(status([available].into_iter().chain(conditions).collect()))
    }

    /// What is found out about a zone with the first session that shows all of it, or else with the first one that shows anything: what
    /// one user does not see, another one may.
    ///
    /// # Errors
    /// Why there is no session. The inner ones are those of the calls.
    async fn check_where_possible(&self, zone: &Zone) -> Result<Result<Arc<Checked>>> {
        let mut answer = Err(without_session(zone.server()));
        for vcenter in self.vcenters_of_zone(zone.server())? {
            if let Err(error) = vcenter.check_live() {
                answer = answer.or(Err(error));
                continue;
            }
            let checked = self.checked(&vcenter, zone).await;
            let is_good = checked.as_ref().is_ok_and(|checked| checked.flaw().is_none());
            if is_good || !matches!(answer, Ok(Ok(_))) {
                answer = Ok(checked);
            }
            if is_good {
                break;
            }
        }
        answer
    }

    /// Where a zone can be looked at: with the vCenter of the configuration, and if it has none, with those that clusters name
    /// credentials for.
    ///
    /// # Errors
    /// The configuration has several, and the zone names none.
    fn vcenters_of_zone(&self, server: Option<&str>) -> Result<Vec<Arc<VCenterHandle>>> {
        match self.configured_vcenter("spec.server", server) {
            Ok(vcenter) => Ok(vec![vcenter]),
            Err(error) if server.is_none() && !self.configured.is_empty() => Err(error),
            Err(_) => Ok(self.pool.called(server)),
        }
    }
}

/// The error about a zone that cannot be looked at.
fn without_session(server: Option<&str>) -> Error {
    let vcenter = server.map(|server| format!(" {server:?}")).unwrap_or_default();
    let words = format!(
        "spec.server: the configuration of the controller has no vCenter{vcenter}, and no VSphereCluster with spec.identityRef has a \
         session with it now"
    );
    Error::new(ErrorKind::NotFound, words)
}

fn wrong(condition: &'static str, reason: &'static str, error: &Error) -> Condition {
    Condition::new(condition, ConditionStatus::False, reason).with_message(error.report())
}

/// The status with these conditions, of which `Ready` is the sum.
fn status(mut conditions: Vec<Condition>) -> StatusReport {
    let flaw = conditions.iter().find(|one| one.status != ConditionStatus::True);
    let ready = match flaw {
        None => Condition::new(READY, ConditionStatus::True, "Ready"),
        Some(flaw) => {
            Condition::new(READY, ConditionStatus::False, "NotReady").with_message(flaw.message.clone())
        }
    };
    let is_ready = flaw.is_none();
    conditions.insert(0, ready);
    StatusReport::new(json!({ "ready": is_ready }), conditions).look_again_after((!is_ready).then_some(RETRY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_the_sum() {
        let good = available(&Ok(()));
        let bad =
            Condition::new(VALIDATED, ConditionStatus::False, "ZoneMisconfigured").with_message("no tag");
        let all = status(vec![good.clone(), bad]);
        assert_eq!(all.status, json!({"ready": false}));
        let ready = &all.conditions[0];
        assert_eq!((&*ready.condition_type, &*ready.reason, &*ready.message), (READY, "NotReady", "no tag"));
        assert_eq!(all.look_again_after, Some(RETRY));
        let ignored = ignored_fields(Some("autoConfigure".to_owned())).expect("a condition");
        let all = status(vec![good, ignored]);
        assert_eq!((all.status["ready"].as_bool(), all.look_again_after), (Some(true), None));
        assert_eq!(all.conditions[0].status, ConditionStatus::True);
    }

    #[test]
    fn what_is_missing_is_said() {
        let words = without_session(Some("vc.example.org")).report();
        assert!(words.contains("no vCenter \"vc.example.org\", and no VSphereCluster with"), "{words}");
        assert!(without_session(None).report().contains("has no vCenter, and no"));
    }
}
