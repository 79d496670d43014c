//! The capacity of what is made from a template, for scaling from zero.

use cloudprovider::machines::Capacity;
use controller_kit::writes::WriteError;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Ended, NotWritten, Shared, Then};
use crate::{
    concurrency::Permit,
    object::InfraObject,
    object_key::{ObjectKey, ObjectKind},
    outcome::due_after_error,
    plan::{Due, Inputs, Memory},
};

impl Shared {
    /// Whether nothing is to be done about a template.
    pub(crate) fn ignores(&self, template: &InfraObject) -> bool {
        template.is_deleting() || template.is_paused() || !template.passes(self.watch_filter.as_deref())
    }

    /// Asks for the capacity of a template, and writes it to the status.
    pub(crate) async fn describe_template(
        &self,
        object_key: &ObjectKey,
        template: &InfraObject,
        memory: Option<&Memory>,
        (provider, permit): (u64, &Permit),
    ) -> Ended {
        let inputs = Inputs::of_template(template, provider);
        let ended = |due: Due, failures: u32, version: Option<String>, then: Then| Ended {
            version,
            memory: Some(Memory { inputs: inputs.clone(), due, failures, ..Memory::default() }),
            then,
        };
        let spec = &template.spec["template"]["spec"];
        let Some(answer) = self.call_cloud(permit, self.cloud.machine_capacity(spec)).await else {
            return Ended { version: None, memory: None, then: Then::Stopped };
        };
        let result = answer.as_ref().map_or_else(|error| error.kind().as_str(), |_| "ok");
        self.metrics.steps(object_key.kind.as_str(), "capacity", result).inc();
        let failures = memory.map_or(0, |memory| memory.failures).saturating_add(1);
        let capacity = match answer {
            Ok(capacity) => capacity,
            Err(error) => {
                tracing::warn!(object = %object_key, error = %error.log_report(), "capacity not known");
                return ended(due_after_error(&error, failures, Instant::now()), failures, None, Then::Look);
            }
        };
        let status = status_of(template, &capacity);
        if status == template.status {
            return ended(Due::WhenChanged, 0, None, Then::Look);
        }
        if self.dry_run {
            tracing::info!(object = %object_key, "dry run: a daemon would write the capacity to its status");
            return ended(Due::WhenChanged, 0, None, Then::WhenChanged);
        }
        match self.writer.write_status(ObjectKind::Template, template, &status).await {
            Ok(written) => {
                self.count_write(object_key, "status");
                ended(Due::WhenChanged, 0, written.metadata.resource_version, Then::Look)
            }
            Err(error) => match not_written(object_key, error) {
                NotWritten::Early(then) => Ended { version: None, memory: None, then },
                // The watch shows what has changed.
                NotWritten::Stale => Ended { version: None, memory: None, then: Then::TryAgain },
            },
        }
    }
}

fn not_written(object_key: &ObjectKey, error: WriteError) -> NotWritten {
    match error {
        WriteError::Stale(_) => NotWritten::Stale,
        WriteError::Gone => NotWritten::Early(Then::Gone),
        WriteError::Failed(why) => {
            tracing::warn!(object = %object_key, error = why, "capacity not written");
            NotWritten::Early(Then::TryAgain)
        }
    }
}

/// The status with this capacity. What the provider does not know is left out.
fn status_of(template: &InfraObject, capacity: &Capacity) -> Map<String, Value> {
    let mut status = template.status.clone();
    let mut set = |field: &str, value: Map<String, Value>| {
        if value.is_empty() {
            status.remove(field);
        } else {
            status.insert(field.to_owned(), value.into());
        }
    };
    set("capacity", capacity.resources.iter().map(|(name, value)| (name.clone(), json!(value))).collect());
    let info = &capacity.node_info;
    let fields = [("architecture", &info.architecture), ("operatingSystem", &info.operating_system)];
    let known =
        fields.into_iter().filter_map(|(field, value)| Some((field.to_owned(), json!(value.as_ref()?))));
    set("nodeInfo", known.collect());
    status
}

#[cfg(test)]
mod tests {
    use cloudprovider::machines::NodeInfo;

    use super::*;

    #[test]
    fn the_status_says_what_is_known() {
        let template = |status: Value| -> InfraObject {
            serde_json::from_value(json!({"metadata": {"name": "a"}, "status": status})).expect("a template")
        };
        let info = NodeInfo { architecture: Some("amd64".into()), operating_system: None };
        let capacity = Capacity::default().with_resource("cpu", "2").with_node_info(info);
        let expected = json!({"capacity": {"cpu": "2"}, "nodeInfo": {"architecture": "amd64"}});
        assert_eq!(Value::from(status_of(&template(json!({})), &capacity)), expected);
        assert_eq!(Value::from(status_of(&template(expected.clone()), &Capacity::default())), json!({}));
        let with_more = template(json!({"of others": 1, "capacity": {"cpu": "1"}}));
        assert_eq!(status_of(&with_more, &capacity)["of others"], 1);
    }
}
