//! Upstream's `kubernetes_build_info`.

use super::register::{MetricSet, Register};
use crate::program::{Program, platform};

/// The build's version as labels, with the value 1.
#[derive(Clone, Debug)]
pub(super) struct BuildInfo;

impl MetricSet for BuildInfo {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
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
            &platform(),
        ])
        .set(1);
        Ok(Self)
    }
}
