//! Upstream's `kubernetes_build_info` and `kubernetes_feature_enabled`.

use prometheus::IntGaugeVec;

use super::register::Register;

/// The commit that this was built from, its first digits; `unknown` where the build was not told.
pub fn commit() -> &'static str {
    match option_env!("CCM_GIT_COMMIT") {
        Some(commit) if !commit.is_empty() => commit.get(..7).unwrap_or(commit),
        _ => "unknown",
    }
}

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
    info.with_label_values(&[
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        concat!("v", env!("CARGO_PKG_VERSION")),
        option_env!("CCM_GIT_COMMIT").unwrap_or("unknown"),
        "",
        option_env!("CCM_BUILD_DATE").unwrap_or("1970-01-01T00:00:00Z"),
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
