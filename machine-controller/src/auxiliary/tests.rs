use std::{sync::Arc, time::Duration};

use cloudprovider::{
    ErrorKind,
    machines::{AuxiliaryKind, AuxiliaryObject, Kind, Objects},
};
use controller_kit::cache::CachedObject as _;
use serde_json::json;

use super::*;

const ZONE: AuxiliaryKind = AuxiliaryKind::new("example.org", "v1", Kind::new("Zone", "zones"));
const POOL: AuxiliaryKind =
    AuxiliaryKind::new("example.org", "v1", Kind::new("Pool", "pools")).cluster_scoped();
const OTHER: AuxiliaryKind = AuxiliaryKind::new("example.org", "v1", Kind::new("Other", "others"));

fn kept(namespace: Option<&str>, name: &str, version: &str, size: u32) -> Auxiliary {
    let wire: WireAuxiliary = serde_json::from_value(json!({
        "apiVersion": "example.org/v1", "kind": "Zone", "spec": {"size": size},
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": version},
    }))
    .expect("an object");
    wire.into()
}

fn packed(namespace: Option<&str>, name: &str, version: &str, size: u32) -> PackedAuxiliary {
    kept(namespace, name, version, size).into()
}

fn auxiliary() -> AuxiliaryStores {
    let auxiliary = AuxiliaryStores::new(&[ZONE, POOL]);
    for store in auxiliary.all() {
        auxiliary.set_served(store, true);
        store.cache.replace(Vec::new());
    }
    auxiliary
}

fn store(auxiliary: &AuxiliaryStores, kind: AuxiliaryKind) -> &AuxiliaryStore {
    auxiliary.of(&kind).expect("a kind")
}

#[tokio::test(start_paused = true)]
async fn a_step_is_due_when_something_changes_that_it_has_read_or_has_not_found() {
    let auxiliary = auxiliary();
    let zones = &store(&auxiliary, ZONE).cache;
    let pools = &store(&auxiliary, POOL).cache;
    zones.apply(packed(Some("default"), "a", "1", 1));
    let reader = Arc::new(Reader::new(auxiliary.clone()));
    let objects = Objects::new(reader.clone());
    let size = |found: Option<Arc<AuxiliaryObject>>| found.map(|one| one.spec["size"].as_u64());
    assert_eq!(size(objects.get(&ZONE, Some("default"), "a").expect("an answer")), Some(Some(1)));
    assert_eq!(size(objects.get(&POOL, None, "p").expect("an answer")), None);
    assert_eq!(objects.list(&ZONE, Some("other")).expect("an answer").len(), 0);
    let reads = reader.reads();
    let is_new = || auxiliary.look_again(&reads) != reads;
    assert!(!is_new());
    // Only its version is another one.
    zones.apply(packed(Some("default"), "a", "2", 1));
    zones.apply(packed(Some("default"), "b", "2", 1));
    assert!(!is_new());
    for (kind, cache, object) in [
        (ZONE, zones, packed(Some("other"), "a", "3", 1)),
        (POOL, pools, packed(None, "p", "3", 1)),
        (ZONE, zones, packed(Some("default"), "a", "4", 2)),
    ] {
        let key = object.key().into_owned();
        let before = cache.get(&key);
        cache.apply(object);
        assert!(is_new(), "{key}");
        // Whoever looks for the readers of this object finds the step.
        assert!(Place::with_key(&kind, &key).iter().any(|place| reads.places().any(|read| read == place)));
        match before {
            Some(before) => cache.apply((*before).clone()),
            None => cache.remove(&key),
        }
        assert!(!is_new(), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_an_error_of_those_who_read_it() {
    let auxiliary = AuxiliaryStores::new(&[ZONE, POOL]);
    let reader = Reader::new(auxiliary.clone());
    let objects = Objects::new(Arc::new(reader));
    let kind_of = |kind: &AuxiliaryKind| {
        let namespace = kind.is_namespaced.then_some("default");
        objects.get(kind, namespace, "a").expect_err("an error").kind()
    };
    assert_eq!(kind_of(&ZONE), ErrorKind::Unavailable);
    let mut news = auxiliary.news();
    auxiliary.set_served(store(&auxiliary, ZONE), false);
    assert!(news.has_changed().expect("it lives"));
    news.mark_unchanged();
    auxiliary.set_served(store(&auxiliary, ZONE), false);
    assert!(!news.has_changed().expect("it lives"), "nothing new");
    assert_eq!(kind_of(&ZONE), ErrorKind::Unsupported);
    assert_eq!(kind_of(&OTHER), ErrorKind::Internal);
    auxiliary.set_served(store(&auxiliary, POOL), true);
    let error = objects.get(&POOL, None, "a").expect_err("its objects have not arrived");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let words = error.report();
    assert!(words.contains("pools.example.org") && words.contains("may list and watch"), "{words}");
    store(&auxiliary, POOL).cache.replace(Vec::new());
    auxiliary.settled().await;
    assert_eq!(objects.get(&POOL, None, "a").expect("an answer"), None);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_can_find_nothing_is_an_error() {
    let objects = Objects::new(Arc::new(Reader::new(auxiliary())));
    for (kind, namespace) in [(ZONE, None), (POOL, Some("default"))] {
        let error = objects.get(&kind, namespace, "a").expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    }
    let objects = Objects::new(Arc::new(Reader::new(auxiliary().in_namespace(Some("default")))));
    let answers = [("default", "a"), ("other", "a")]
        .map(|(namespace, name)| objects.get(&ZONE, Some(namespace), name).map_err(|error| error.kind()));
    assert_eq!(answers, [Ok(None), Err(ErrorKind::Unsupported)]);
    assert_eq!(objects.get(&POOL, None, "p").expect("an answer"), None, "what is in no namespace is seen");
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_missed_if_a_read_had_no_answer() {
    let auxiliary = auxiliary();
    let reader = Arc::new(Reader::new(auxiliary.clone()));
    let objects = Objects::new(reader.clone());
    auxiliary.set_served(store(&auxiliary, ZONE), false);
    let _error = objects.get(&ZONE, Some("default"), "a").expect_err("an error");
    objects.get(&POOL, None, "a").expect("an answer");
    assert_eq!([&ZONE, &POOL].map(|kind| reader.has_missed(kind)), [true, false]);
}

#[test]
fn annotations_are_for_the_steps_and_for_the_controller() {
    let wire: WireAuxiliary = serde_json::from_value(json!({
        "apiVersion": "example.org/v1", "kind": "Pool",
        "metadata": {"name": "a", "annotations": {"cluster.x-k8s.io/paused": "", "mine": "1"}},
    }))
    .expect("an object");
    let kept = Auxiliary::from(wire);
    assert_eq!(kept.object.annotations["mine"], "1");
    assert_eq!(kept.metadata.annotations, None, "they are kept once");
    assert_eq!(kept.as_infra().annotation("cluster.x-k8s.io/paused"), Some(""));
}

#[tokio::test(start_paused = true)]
async fn our_own_writes_are_seen_before_the_watch_shows_them() {
    let auxiliary = auxiliary();
    let zones = store(&auxiliary, ZONE);
    let version = |key: &str| zones.get(key).map(|kept| kept.resource_version().to_owned());
    let begun = tokio::time::Instant::now();
    zones.wrote(kept(Some("default"), "a", "5", 1), begun);
    let all = Place::list(&ZONE, Some("default"));
    assert!(matches!(auxiliary.look(&all), Seen::Objects(found) if found.len() == 1));
    assert_eq!(version("default/a").as_deref(), Some("5"));
    zones.cache.apply(packed(Some("default"), "a", "4", 1));
    assert_eq!(version("default/a").as_deref(), Some("5"));
    zones.cache.apply(packed(Some("default"), "a", "6", 1));
    assert_eq!(version("default/a").as_deref(), Some("6"));
    // Made, and deleted by somebody before the watch showed it.
    zones.wrote(kept(Some("default"), "b", "7", 1), begun);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(version("default/b"), None);
    zones.wrote(kept(Some("default"), "c", "8", 1), begun);
    zones.vanished("default/c");
    assert_eq!(version("default/c"), None);
}

#[test]
fn what_an_object_owns_is_found_under_any_name() {
    let auxiliary = auxiliary();
    let zones = store(&auxiliary, ZONE);
    let owned = |name: &str, owner: &str| {
        let mut kept = kept(Some("default"), name, "1", 1);
        let object = AuxiliaryObject::clone(&kept.object).with_owners([owner.to_owned()]);
        kept.object = Arc::new(object);
        kept
    };
    for (name, owner) in [("a", "u-1"), ("b", "u-2"), ("c", "u-3")] {
        zones.cache.apply(owned(name, owner).into());
    }
    zones.wrote(owned("d", "u-3"), tokio::time::Instant::now());
    let names = |name: &str, uid: &str| {
        let reader = Arc::new(Reader::new(auxiliary.clone()));
        let found = Objects::new(reader.clone()).owned_by(&ZONE, "default", name, uid).expect("an answer");
        let names: Vec<_> = found.iter().map(|one| one.name.clone()).collect();
        let places: Vec<_> = reader.reads().places().map(ToString::to_string).collect();
        (names.join(" "), places.join(", "))
    };
    assert_eq!(names("a", "u-1"), ("a".to_owned(), "Zone default/a".to_owned()));
    // what it did not find is noted too, and no list
    assert_eq!(names("x", "u-2"), ("b".to_owned(), "Zone default/b, Zone default/x".to_owned()));
    assert_eq!(names("a", "u-3").0, "c d");
    assert_eq!(names("a", "u-4").0, "");
    let unlisted = Objects::new(Arc::new(Reader::new(AuxiliaryStores::new(&[ZONE]))));
    let error = unlisted.owned_by(&ZONE, "default", "a", "u-1").expect_err("nothing is known");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[test]
fn whether_there_is_such_an_object_is_asked_without_a_note() {
    let auxiliary = auxiliary();
    let zones = store(&auxiliary, ZONE);
    for (namespace, name) in [("default", "a"), ("other", "b")] {
        zones.cache.apply(packed(Some(namespace), name, "1", 1));
    }
    let reader = Arc::new(Reader::new(auxiliary));
    let objects = Objects::new(reader.clone());
    let any = |name: &str| objects.any(&ZONE, |one| one.name == name).expect("an answer");
    assert_eq!(["a", "b", "c"].map(any), [true, true, false]);
    assert_eq!(reader.reads().places().count(), 0, "each change of each object would make a step");
    let unlisted = Objects::new(Arc::new(Reader::new(AuxiliaryStores::new(&[ZONE]))));
    let error = unlisted.any(&ZONE, |_| true).expect_err("nothing is known");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_end_of_its_object_does_not_count() {
    let auxiliary = auxiliary();
    let zones = store(&auxiliary, ZONE);
    let version = || zones.get("default/a").map(|kept| kept.resource_version().to_owned());
    let a = |version: &str| kept(Some("default"), "a", version, 1);
    let begun = tokio::time::Instant::now();
    tokio::time::advance(Duration::from_secs(1)).await;
    zones.cache.apply(a("5").into());
    zones.cache.remove("default/a");
    zones.ended("default/a");
    zones.wrote(a("5"), begun);
    assert_eq!(version(), None);
    // Made again.
    tokio::time::advance(Duration::from_secs(1)).await;
    zones.wrote(a("6"), tokio::time::Instant::now());
    assert_eq!(version().as_deref(), Some("6"));
    // The same where the watch shows that it is there.
    zones.ended("default/a");
    zones.cache.apply(a("7").into());
    zones.wrote(a("8"), begun);
    assert_eq!(version().as_deref(), Some("8"));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_written_is_in_memory_once() {
    let auxiliary = auxiliary();
    let zones = store(&auxiliary, ZONE);
    zones.wrote(kept(Some("default"), "a", "5", 1), tokio::time::Instant::now());
    let reader = Arc::new(Reader::new(auxiliary.clone()));
    Objects::new(reader.clone()).get(&ZONE, Some("default"), "a").expect("an answer");
    let mut reads = reader.reads();
    let is_shared = |reads: &Reads| {
        let shown = zones.cache.get("default/a").expect("it is shown");
        reads
            .0
            .values()
            .all(|seen| matches!(seen, Seen::Objects(found) if Arc::ptr_eq(&found[0], shown.object())))
    };
    zones.cache.apply(packed(Some("default"), "a", "5", 1));
    assert!(!is_shared(&reads));
    auxiliary.share(&mut reads);
    assert!(is_shared(&reads));
    // Something new stays unread.
    zones.cache.apply(packed(Some("default"), "a", "6", 2));
    auxiliary.share(&mut reads);
    assert!(!is_shared(&reads));
}
