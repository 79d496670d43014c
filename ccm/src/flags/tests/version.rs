//! `--version`.

use component::version::requested;

fn requested_by(args: &[&str]) -> Option<String> {
    requested(&crate::flags::parse(["ccm"].iter().chain(args)).expect("good flags").global.version)
}

#[test]
fn versions_as_kubernetes_prints_them() {
    let own = format!("v{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(requested_by(&[]), None);
    assert_eq!(requested_by(&["--version"]), Some(format!("Kubernetes {own}\n")));
    assert_eq!(requested_by(&["--version=false"]), None);
    assert_eq!(requested_by(&[&format!("--version={own}-x")]), None);
    let raw = requested_by(&["--version=raw"]).expect("text");
    assert!(raw.starts_with("version.Info{Major:\"0\", ") && raw.contains(&own), "{raw}");
}
