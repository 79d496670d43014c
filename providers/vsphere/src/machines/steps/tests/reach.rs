//! Machines on a vCenter that the configuration does not have any more.

use cloudprovider::{
    Machines as _,
    machines::{ClusterContext, MachineRequest},
};
use serde_json::json;

use super::{
    rig::{deletion, mark, rig},
    *,
};

fn on(server: &str) -> VSphereClusterSpec {
    serde_json::from_value(json!({"server": server})).expect("a spec")
}

#[tokio::test(start_paused = true)]
async fn a_machine_on_a_vcenter_that_is_not_configured_keeps_its_finalizer() {
    let gone = "old.example";
    for is_made in [true, false] {
        let rig = rig().await;
        let mut record = MachineRecord::default();
        let mut request = deletion();
        request.cluster.spec = Some(on(gone));
        request.provider_id = is_made.then(|| format!("vsphere://{}", mark().uid));
        let answer = rig.machines.delete_machine(&request, &mut record).await;
        if !is_made {
            assert_eq!(answer.expect("nothing was begun there"), Deletion::Gone);
        } else {
            out_of_reach(&answer.expect_err("it may run there"), gone);
        }
        let spec = request.spec.clone();
        let request = MachineRequest::new(mark(), spec, ClusterContext::new(on(gone)))
            .with_object_uid(mark().uid)
            .with_provider_id(request.provider_id);
        let error = rig.machines.ensure_machine(&request, &mut record).await.expect_err("it may run there");
        if is_made {
            out_of_reach(&error, gone);
        } else {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.report().contains(gone) && !error.report().contains("vc.example"), "{error}");
            assert!(error.log_report().contains("vc.example"), "the log says what there is");
        }
    }
}

fn out_of_reach(error: &Error, server: &str) {
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{}", error.report());
    let words = error.report();
    for part in [server, "may run there still", "finalizer stays", "remove the finalizer by hand"] {
        assert!(words.contains(part), "{words}");
    }
    assert!(!words.contains("vc.example"), "{words}");
}
