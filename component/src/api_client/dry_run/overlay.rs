//! What objects would be like if the writes of the dry run had been sent.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::Value;

use super::patch::{apply, without_times};

/// Maximum number of remembered objects. In a cluster with more, the overlays are forgotten from time to
/// time.
const MOST_OBJECTS: usize = 20_000;

/// Maximum number of different patches that are remembered per object. The newest are kept.
const MOST_PATCHES: usize = 16;

/// The patches that were answered, by the path of their object.
#[derive(Default)]
pub(super) struct Overlays(Mutex<HashMap<String, Overlay>>);

#[derive(Default)]
struct Overlay {
    /// The patches do not apply to another object of the same name.
    uid: Value,
    written: Vec<Written>,
}

/// A patch.
#[derive(Clone, Debug)]
pub(super) struct Written {
    subresource: String,
    content_type: String,
    patch: Value,
}

impl Written {
    pub(super) fn new(subresource: &str, content_type: &str, patch: Value) -> Self {
        Self { subresource: subresource.to_owned(), content_type: content_type.to_owned(), patch }
    }

    /// Removes the version: the real object changes, and the patch remains valid for its later versions.
    fn of_any_version(mut self) -> Self {
        if let Some(metadata) = self.patch.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        self
    }

    fn is_like(&self, other: &Self) -> bool {
        self.subresource == other.subresource
            && self.content_type == other.content_type
            && without_times(self.patch.clone()) == without_times(other.patch.clone())
    }
}

impl Overlays {
    /// Applies `write` to the present object (`real`). Returns the resulting object, or the API server's
    /// refusal.
    ///
    /// A caller may rely on its earlier writes, which the real object does not contain. Or it may rely on the
    /// real object, which is all that a watch shows, and write the same part again. Both are right.
    pub(super) fn write(&self, path: &str, real: Value, write: Written) -> Result<Value, Value> {
        let mut overlays = self.0.lock();
        let known = overlays.get_mut(path).filter(|overlay| overlay.uid == real["metadata"]["uid"]);
        let before = known.map(|overlay| std::mem::take(&mut overlay.written)).unwrap_or_default();
        let other_parts = |written: &&Written| written.subresource != write.subresource;
        let attempts: [Vec<Written>; 3] =
            [before.clone(), before.iter().filter(other_parts).cloned().collect(), Vec::new()];
        let uid = real["metadata"]["uid"].clone();
        let mut refusal = Value::Null;
        let mut outcome = None;
        for mut kept in attempts {
            let mut object = real.clone();
            // Drops earlier writes that no longer apply, since another client may have changed the object.
            kept.retain(|written| {
                let mut next = object.clone();
                let is_taken = apply(&mut next, &written.content_type, &written.patch).is_none();
                if is_taken {
                    object = next;
                }
                is_taken
            });
            match apply(&mut object, &write.content_type, &write.patch) {
                None => {
                    let write = write.of_any_version();
                    kept.retain(|written| !written.is_like(&write));
                    kept.push(write);
                    outcome = Some((object, kept));
                    break;
                }
                Some(why) => refusal = why,
            }
        }
        let Some((object, mut written)) = outcome else {
            overlays.insert(path.to_owned(), Overlay { uid, written: before });
            return Err(refusal);
        };
        written.drain(..written.len().saturating_sub(MOST_PATCHES));
        if overlays.len() >= MOST_OBJECTS && !overlays.contains_key(path) {
            overlays.clear();
        }
        overlays.insert(path.to_owned(), Overlay { uid, written });
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PATH: &str = "/api/v1/nodes/n";

    fn node() -> Value {
        json!({
            "metadata": {"name": "n", "uid": "1"},
            "spec": {"taints": [{"key": "a"}, {"key": "uninitialized"}]},
            "status": {},
        })
    }

    /// The first write of an initialisation.
    fn status(address: &str) -> Written {
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        let patch = json!({"metadata": {"uid": "1"}, "status": {"addresses": addresses}});
        Written::new("status", "application/strategic-merge-patch+json", patch)
    }

    /// The second write, which relies on the first.
    fn main(address: &str, zone: &str) -> Written {
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": "1"},
            {"op": "test", "path": "/status/addresses", "value": [{"type": "InternalIP", "address": address}]},
            {"op": "test", "path": "/spec/taints/1/key", "value": "uninitialized"},
            {"op": "add", "path": "/metadata/labels", "value": {"zone": zone}},
            {"op": "remove", "path": "/spec/taints/1"},
        ]);
        Written::new("", "application/json-patch+json", patch)
    }

    fn remembered(overlays: &Overlays) -> usize {
        overlays.0.lock().get(PATH).map_or(0, |overlay| overlay.written.len())
    }

    #[test]
    fn a_write_counts_on_the_one_before() {
        let overlays = Overlays::default();
        overlays.write(PATH, node(), main("10.0.0.1", "z")).expect_err("no addresses");
        overlays.write(PATH, node(), status("10.0.0.1")).expect("written");
        let object = overlays.write(PATH, node(), main("10.0.0.1", "z")).expect("written");
        assert_eq!(object["spec"]["taints"], json!([{"key": "a"}]));
        assert_eq!(object["status"]["addresses"][0]["address"], "10.0.0.1");
        overlays.write("/api/v1/nodes/m", node(), main("10.0.0.1", "z")).expect_err("another node");
    }

    #[test]
    fn what_a_watch_does_not_show_is_written_again() {
        let overlays = Overlays::default();
        for zone in ["z", "z", "y"] {
            overlays.write(PATH, node(), status("10.0.0.1")).expect("written");
            let object = overlays.write(PATH, node(), main("10.0.0.1", zone)).expect("written");
            assert_eq!(object["metadata"]["labels"]["zone"], zone);
        }
        assert_eq!(remembered(&overlays), 2, "each part once");
    }

    #[test]
    fn what_others_did_meanwhile_is_there() {
        let overlays = Overlays::default();
        overlays.write(PATH, node(), status("10.0.0.1")).expect("written");
        overlays.write(PATH, node(), main("10.0.0.1", "z")).expect("written");
        // Another client has initialised the Node.
        let mut real = node();
        real["spec"]["taints"] = json!([{"key": "a"}]);
        real["metadata"]["labels"] = json!({"zone": "x", "disk": "ssd"});
        let patch = json!({"metadata": {"uid": "1", "labels": {"zone": "z"}}});
        let repair = Written::new("", "application/merge-patch+json", patch);
        let object = overlays.write(PATH, real.clone(), repair.clone()).expect("written");
        assert_eq!(object["metadata"]["labels"], json!({"zone": "z", "disk": "ssd"}));
        assert_eq!(remembered(&overlays), 2, "the taint is nobody's to remove any more");
        // Another Node with the same name.
        real["metadata"]["uid"] = "2".into();
        assert_eq!(overlays.write(PATH, real, repair).expect_err("another node")["code"], 409);
    }

    #[test]
    fn the_memory_is_bounded() {
        let overlays = Overlays::default();
        for number in 0..100 {
            overlays.write(PATH, node(), status(&format!("10.0.0.{number}"))).expect("written");
        }
        assert_eq!(remembered(&overlays), MOST_PATCHES);
    }
}
