//! Upstream's `kubernetes_build_info` and `kubernetes_feature_enabled`.

use prometheus::IntGaugeVec;

use super::register::Register;
use crate::program::Program;

/// Registers the build's version, with 1 as its value.
pub(super) fn register_build_info(register: &mut Register<'_>) -> prometheus::Result<()> {
    let info = register.gauges(
        "kubernetes_build_info",
        "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
        &[
            "major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version",
            "compiler", "platform",
        ],
    )?;
    let program = Program::current();
    let mut numbers = program.core_version().split('.');
    info.with_label_values(&[
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
        program.version(),
        program.commit(),
        "",
        program.build_date(),
        "",
        "rustc",
        &crate::version::platform(),
    ])
    .set(1);
    Ok(())
}

pub(super) fn features(register: &mut Register<'_>) -> prometheus::Result<IntGaugeVec> {
    register.gauges(
        "kubernetes_feature_enabled",
        "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
        &["name", "stage"],
    )
}
