//! The Go framework's binary leads, initialises a Node, and serves.

use std::error::Error;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use test_env::{ControlPlane, ControlPlaneOptions, FrameworkCcm, StartError};

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: a}
spec: {taints: [{key: node.cloudprovider.kubernetes.io/uninitialized, value: 'true', effect: NoSchedule}]}
";

#[test]
fn the_framework_fills_a_node_in() -> Result<(), Box<dyn Error>> {
    match fill_in() {
        Err(StartError::Unavailable(reason)) if std::env::var_os("CI").is_none() => {
            writeln!(std::io::stderr(), "SKIPPED: {reason}")?;
            Ok(())
        }
        outcome => Ok(outcome?),
    }
}

fn fill_in() -> Result<(), StartError> {
    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    let mut ccm = FrameworkCcm::start(control_plane.kubeconfig(), "{}", &[])?;
    ccm.set_cloud(r#"{"instances": {"a": {"providerID": "memory://a", "zone": "z1"}}}"#)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("node.yaml");
    std::fs::write(&file, NODE)?;
    control_plane.kubectl_output(&["apply", "-f", &file.display().to_string()])?;

    let deadline = Instant::now() + Duration::from_secs(30);
    let format = "jsonpath={.spec.providerID} {.spec.taints[?(@.key==\"node.cloudprovider.kubernetes.io/uninitialized\")].key}";
    while control_plane.kubectl_output(&["get", "node", "a", "-o", format])? != "memory://a " {
        assert!(Instant::now() < deadline, "not initialised: {}", ccm.log());
        sleep(Duration::from_millis(50));
    }
    assert_eq!(ccm.get("/healthz", "")?, "ok");
    assert!(ccm.get("/metrics", "")?.contains("Forbidden"), "nobody may read metrics");
    let metrics = ccm.get("/metrics", control_plane.admin_token())?;
    assert!(
        metrics.contains("leader_election_master_status{name=\"cloud-controller-manager\"} 1"),
        "{metrics}"
    );
    ccm.process().kill()?;
    Ok(())
}
