use std::sync::Arc;

use cloudprovider::machines::{
    AuxiliaryKind, AuxiliaryObject, ClusterContext, MachineRequest, ObjectSource, Objects,
};
use serde_json::json;

use super::*;
use crate::machines::{
    spec::VSphereClusterSpec,
    steps::tests::rig::{machine, mark, rig},
};

/// No list has arrived.
#[derive(Debug)]
struct Unlisted;

impl ObjectSource for Unlisted {
    fn get(&self, _: &AuxiliaryKind, _: Option<&str>, _: &str) -> Result<Option<Arc<AuxiliaryObject>>> {
        Err(Error::new(ErrorKind::Unavailable, "has not arrived"))
    }

    fn list(&self, _: &AuxiliaryKind, _: Option<&str>) -> Result<Vec<Arc<AuxiliaryObject>>> {
        Err(Error::new(ErrorKind::Unavailable, "has not arrived"))
    }
}

/// No such kind is served.
#[derive(Debug)]
struct Unserved;

impl ObjectSource for Unserved {
    fn get(&self, _: &AuxiliaryKind, _: Option<&str>, _: &str) -> Result<Option<Arc<AuxiliaryObject>>> {
        Err(Error::unsupported("not served"))
    }

    fn list(&self, _: &AuxiliaryKind, _: Option<&str>) -> Result<Vec<Arc<AuxiliaryObject>>> {
        Err(Error::unsupported("not served"))
    }
}

#[test]
fn a_name_is_not_free_before_it_is_known_who_has_it() {
    let request = |objects: Objects| -> Request {
        let spec = serde_json::from_value(json!({"template": "t", "network": {"devices": []}}));
        let cluster = ClusterContext::new(VSphereClusterSpec::default());
        MachineRequest::new(mark(), spec.expect("a spec"), cluster)
            .with_object_uid(mark().uid)
            .with_objects(objects)
    };
    let vm = |owner: &str| {
        let vm = AuxiliaryObject::new("given").in_namespace("default").with_owners([owner.to_owned()]);
        Objects::of([(VM_KIND, vm)])
    };
    for (what, objects, expected) in [
        ("none", Objects::default(), None),
        ("its own", vm(&mark().uid), None),
        ("not served", Objects::new(Arc::new(Unserved)), None),
        ("another machine's", vm("u-2"), Some(ErrorKind::Conflict)),
        ("not listed", Objects::new(Arc::new(Unlisted)), Some(ErrorKind::Unavailable)),
    ] {
        let answer = free_for(&request(objects), "given");
        assert_eq!(answer.err().map(|error| error.kind()), expected, "{what}");
    }
}

/// The read tells its devices, and neither its options nor whether it is a template.
#[tokio::test(start_paused = true)]
async fn a_template_of_which_it_is_not_told_whose_it_is_is_looked_at_again() {
    let rig = rig().await;
    for _ in 0..2 {
        rig.is_read();
        let error =
            rig.machines.template(&rig.machines.configured[0], &machine()).await.expect_err("not told");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
        assert!(error.report().contains("does not tell the configuration of vm-1"), "{}", error.report());
    }
    assert_eq!(rig.calls(), ["RetrievePropertiesEx"; 2], "nothing is kept");
}
