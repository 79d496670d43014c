//! Takes over an object that another program has worked on.

use std::sync::Arc;

use cloudprovider::{
    Error,
    machines::{Condition, ConditionStatus, Objects},
};
use tokio::time::Instant;

use super::{Identified, Then, Work};
use crate::{
    auxiliary::Reader,
    cluster_api::Bootstrap,
    conditions::not_paused,
    names::{IDENTITY_MISSING, READY, finalizer, reason_of},
    outcome::{adoption_as, due_after_error},
    plan::{Due, Memory, about_identity},
};

impl Work<'_> {
    /// Asks the provider which machine in the cloud is the object's own, and writes the answer down with the
    /// rest of the mark. A condition says what speaks against an answer, and nothing is done about the object
    /// meanwhile.
    pub(super) async fn identify(&mut self, bootstrap: &Bootstrap) -> Identified {
        let reader = Arc::new(Reader::new(self.view.auxiliary.clone()));
        let request = self.view.machine_context(&self.object, bootstrap).request(&self.scope);
        let request = request.with_objects(Objects::new(Arc::<Reader>::clone(&reader)));
        let ask = self.shared.cloud.identify_machine(&request);
        let Some(answer) = self.shared.call_cloud(&self.permit, ask).await else {
            return Identified::Ended(Then::Stopped, None);
        };
        let kinds = self.shared.kinds;
        let own = self.object.metadata.uid.clone().unwrap_or_default();
        let error = match answer {
            Ok(None) if self.object.has_finalizer(&finalizer(&kinds, &kinds.machine)) => None,
            Ok(uid) => {
                let uid = uid.unwrap_or(own);
                let body = adoption_as(&uid, &self.object, &kinds, &kinds.machine);
                return Identified::Written(self.patch(&body).await);
            }
            Err(error) => Some(error),
        };
        self.say_unidentified(error.as_ref(), bootstrap, &reader).await
    }

    async fn say_unidentified(
        &mut self,
        error: Option<&Error>,
        bootstrap: &Bootstrap,
        reader: &Reader,
    ) -> Identified {
        let (reason, words) = match error {
            Some(error) => {
                tracing::warn!(object = %self.view.object_key, error = %error.log_report(), "its machine is not identified");
                (reason_of(error.kind()), error.report())
            }
            None => (IDENTITY_MISSING, about_identity(&self.shared.kinds)),
        };
        let ready = Condition::new(READY, ConditionStatus::False, reason).with_message(words);
        if let Err(why) = self.say(&[ready, not_paused()]).await {
            return Identified::Written(Err(why));
        }
        let failures = self.view.memory.as_ref().map_or(0, |memory| memory.failures).saturating_add(1);
        let due = error.map_or(Due::WhenChanged, |error| due_after_error(error, failures, Instant::now()));
        let inputs = self.view.inputs(&self.object, bootstrap, &self.scope).with_reads(reader.reads());
        let memory = Memory { inputs, due, failures, ..self.remembered() };
        Identified::Ended(Then::Look, Some(Box::new(memory)))
    }
}
