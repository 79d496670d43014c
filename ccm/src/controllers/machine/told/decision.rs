//! What is to be done about an object. Pure.

use cloudprovider::machines::{FurtherKind, Told};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::controllers::machine::{
    companions::{Write, status_with, without_left_finalizers},
    further::{Kept, Place, Reads},
};

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing.
    Rest,
    /// Ask the provider.
    Look,
    /// Write.
    Write(Write),
}

/// What is remembered of the last look at an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The UID of the object.
    pub uid: String,
    /// What was read for it.
    pub reads: Reads,
    /// When the next look is due.
    pub due: Option<Instant>,
    /// How often in a row it failed.
    pub failures: u32,
}

/// Something may be new.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// Of the object with this key.
    Object(&'a FurtherKind, &'a str),
    /// The cloud says so of what belongs to this UID.
    Uid(&'a str),
    /// Of everything.
    All,
}

/// What is to be done about an object to which something happened. `is_ignored`: it is paused, being deleted, or another
/// program's.
pub fn next(kind: &FurtherKind, found: &Kept, is_ignored: bool) -> Next {
    if found.object.is_deleting {
        return match without_left_finalizers(kind, found) {
            Some(patch) => Next::Write(Write::Change(patch)),
            None => Next::Rest,
        };
    }
    if is_ignored { Next::Rest } else { Next::Look }
}

/// The write of what was told. `None`: the object says so already.
pub fn write_of(told: &Told, found: &Kept, now: Timestamp) -> Option<Write> {
    status_with(&told.status, &told.conditions, found, now).map(Write::Status)
}

impl Memory {
    /// Whether the object with this key is to be looked at again.
    pub fn is_concerned(&self, own: (&FurtherKind, &str), news: &News<'_>) -> bool {
        match news {
            News::All => true,
            News::Uid(uid) => self.uid == *uid,
            News::Object(kind, key) => {
                own == (*kind, *key) || {
                    let places = Place::with_key(kind, key);
                    self.reads.places().any(|read| places.contains(read))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cloudprovider::machines::{Condition, ConditionStatus, Kind, ObjectSource as _};
    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::machine::further::{Further, Reader, WireFurther};

    const ZONE: FurtherKind = FurtherKind::new("example.org", "v1", Kind::new("Zone", "zones"))
        .cluster_scoped()
        .told()
        .with_left_finalizers(&["other.example.org"]);

    fn zone(metadata: &Value, status: &Value) -> Kept {
        let mut object = json!({
            "apiVersion": "example.org/v1", "kind": "Zone", "status": status,
            "metadata": {"name": "z", "uid": "u", "resourceVersion": "7"},
        });
        for (field, value) in metadata.as_object().into_iter().flatten() {
            object["metadata"][field] = value.clone();
        }
        serde_json::from_value::<WireFurther>(object).expect("an object").into()
    }

    #[test]
    fn one_that_goes_only_loses_the_finalizers_of_others() {
        let of = |metadata: Value, is_ignored| next(&ZONE, &zone(&metadata, &Value::Null), is_ignored);
        assert_eq!([of(json!({}), false), of(json!({}), true)], [Next::Look, Next::Rest]);
        let going = |finalizers: &[&str]| json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers});
        assert_eq!(of(going(&["mine.example.org"]), true), Next::Rest);
        let Next::Write(Write::Change(patch)) = of(going(&["mine.example.org", "other.example.org"]), true)
        else {
            panic!("a write");
        };
        assert_eq!(patch["metadata"]["finalizers"], json!(["mine.example.org"]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn a_status_is_written_where_it_differs() {
        let [now, later] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]
            .map(|time| time.parse::<Timestamp>().expect("a time"));
        let ready = Condition::new("Ready", ConditionStatus::True, "Told");
        let told = Told::new(json!({"ready": true, "size": null}), [ready.clone()]);
        let write = write_of(&told, &zone(&json!({}), &Value::Null), now);
        let Some(Write::Status(status)) = write else { panic!("a write") };
        assert!(status["ready"] == true && !status.contains_key("size"), "{status:?}");
        let written = zone(&json!({}), &status.into());
        assert_eq!(write_of(&told, &written, later), None);
        let told = Told::new(json!({"ready": true}), [ready.with_message("more")]);
        let Some(Write::Status(status)) = write_of(&told, &written, later) else { panic!("a write") };
        let since = status["conditions"][0]["lastTransitionTime"].as_str().unwrap_or_default();
        assert!(since.starts_with("2026-01-01"), "{since}");
        assert_eq!(write_of(&Told::default(), &written, later), None, "nothing is told");
    }

    #[test]
    fn it_is_looked_at_again_when_what_was_read_changes() {
        let reader = Arc::new(Reader::new(Further::new(&[ZONE])));
        let _not_there = reader.get(&ZONE, None, "other");
        let memory = Memory { uid: "u".to_owned(), reads: reader.reads(), ..Memory::default() };
        let is_concerned = |news: News<'_>| memory.is_concerned((&ZONE, "z"), &news);
        assert!(is_concerned(News::All) && is_concerned(News::Uid("u")) && !is_concerned(News::Uid("v")));
        assert!(is_concerned(News::Object(&ZONE, "z")) && is_concerned(News::Object(&ZONE, "other")));
        assert!(!is_concerned(News::Object(&ZONE, "third")));
    }
}
