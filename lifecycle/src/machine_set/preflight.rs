//! What holds back new machines of a `MachineSet`, and the replacement of unhealthy ones.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

use crate::version::KubernetesVersion;

/// A preflight check, as `machineset.cluster.x-k8s.io/skip-preflight-checks` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The control plane is not being created or upgraded.
    ControlPlaneIsStable,
    /// Kubelets are not newer than the API server, and at most three minor versions older.
    KubernetesVersionSkew,
    /// `kubeadm join` works with the minor version of the control plane alone.
    KubeadmVersionSkew,
}

impl Check {
    const ALL: [Self; 3] =
        [Self::ControlPlaneIsStable, Self::KubernetesVersionSkew, Self::KubeadmVersionSkew];

    /// The checks that an annotation's value skips: names with commas between, or `All`. Unknown names skip nothing.
    #[must_use]
    pub fn skipped(annotation: &str) -> BTreeSet<Self> {
        let names: Vec<&str> = annotation.split(',').map(str::trim).collect();
        Self::ALL
            .into_iter()
            .filter(|check| names.iter().any(|name| *name == "All" || *name == check.to_string()))
            .collect()
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ControlPlaneIsStable => "ControlPlaneIsStable",
            Self::KubernetesVersionSkew => "KubernetesVersionSkew",
            Self::KubeadmVersionSkew => "KubeadmVersionSkew",
        })
    }
}

/// What the checks read of a control plane object. One without `spec.version` is not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace and name, with a slash between.
    pub name: &'a str,
    /// `spec.version`
    pub version: KubernetesVersion,
    /// `status.versions`, or `status.version` alone. None while it is being created.
    pub reached: Vec<KubernetesVersion>,
}

impl ControlPlane<'_> {
    /// Some of its machines have an older version, or another build of the same one.
    fn is_upgrading(&self) -> bool {
        let reached = |version: &KubernetesVersion| {
            matches!(version.partial_cmp(&self.version), Some(Ordering::Equal | Ordering::Greater))
        };
        !self.reached.iter().all(reached)
    }
}

/// Why no machine is created. Its text is Cluster API's, for the condition `ScalingUp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The check that failed.
    pub check: Check,
    message: String,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (\"{}\" preflight check failed)", self.message, self.check)
    }
}

/// Everything that holds machines of a version back. `version` is that of the `MachineSet`'s template, `kubeadm` says whether
/// its bootstrap configuration is a `KubeadmConfigTemplate`.
#[must_use]
pub fn preflight(
    control_plane: &ControlPlane<'_>,
    version: Option<&KubernetesVersion>,
    kubeadm: bool,
    skipped: &BTreeSet<Check>,
) -> Vec<Hold> {
    Check::ALL
        .into_iter()
        .filter(|check| !skipped.contains(check))
        .filter_map(|check| {
            let message = match check {
                Check::ControlPlaneIsStable => unstable(control_plane),
                Check::KubernetesVersionSkew => kubernetes_skew(&control_plane.version, version?),
                Check::KubeadmVersionSkew => {
                    kubeadm_skew(&control_plane.version, version.filter(|_| kubeadm)?)
                }
            };
            message.map(|message| Hold { check, message })
        })
        .collect()
}

fn unstable(control_plane: &ControlPlane<'_>) -> Option<String> {
    let ControlPlane { kind, name, reached, .. } = control_plane;
    if reached.is_empty() {
        Some(format!("{kind} {name} is provisioning"))
    } else if control_plane.is_upgrading() {
        Some(format!("{kind} {name} is upgrading"))
    } else {
        None
    }
}

/// <https://kubernetes.io/releases/version-skew-policy/#kubelet>
fn kubernetes_skew(control_plane: &KubernetesVersion, version: &KubernetesVersion) -> Option<String> {
    const SKEW: u64 = 3;
    let policy = format!(
        "MachineSet version ({version}) and ControlPlane version ({control_plane}) do not conform to the kubernetes version \
         skew policy as MachineSet version is"
    );
    if version.minor > control_plane.minor {
        Some(format!("{policy} higher than ControlPlane version"))
    } else if version.minor + SKEW < control_plane.minor {
        Some(format!("{policy} more than {SKEW} minor versions older than the ControlPlane version"))
    } else {
        None
    }
}

fn kubeadm_skew(control_plane: &KubernetesVersion, version: &KubernetesVersion) -> Option<String> {
    (version.minor != control_plane.minor).then(|| {
        format!(
            "MachineSet version ({version}) and ControlPlane version ({control_plane}) do not conform to kubeadm version \
             skew policy as kubeadm only supports joining with the same major+minor version as the control plane"
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn version(text: &str) -> KubernetesVersion {
        text.parse().unwrap()
    }

    fn control_plane<'a>(spec: &str, reached: &[&str]) -> ControlPlane<'a> {
        ControlPlane {
            kind: "KubeadmControlPlane",
            name: "team-a/cp",
            version: version(spec),
            reached: reached.iter().map(|text| version(text)).collect(),
        }
    }

    /// The checks that hold back machines of a version.
    fn held(
        control_plane: &ControlPlane<'_>,
        machines: Option<&str>,
        kubeadm: bool,
        skip: &str,
    ) -> Vec<Check> {
        let machines = machines.map(version);
        preflight(control_plane, machines.as_ref(), kubeadm, &Check::skipped(skip))
            .into_iter()
            .map(|hold| hold.check)
            .collect()
    }

    #[test]
    fn a_control_plane_that_is_created_or_upgraded_holds_machines_back() {
        let held = |spec, reached: &[&str]| held(&control_plane(spec, reached), None, false, "");
        assert_eq!(held("v1.26.2", &[]), [Check::ControlPlaneIsStable]);
        assert_eq!(held("v1.26.2", &["v1.25.2"]), [Check::ControlPlaneIsStable]);
        assert_eq!(held("v1.26.2", &["v1.26.2", "v1.26.1"]), [Check::ControlPlaneIsStable]);
        assert_eq!(held("v1.26.2+k0s.1", &["v1.26.2+k0s.0"]), [Check::ControlPlaneIsStable]);
        assert_eq!(held("v1.26.2", &["v1.26.2-rc.1"]), [Check::ControlPlaneIsStable]);
        assert_eq!(held("v1.26.2", &["v1.26.2"]), []);
        assert_eq!(held("v1.26.2", &["v1.27.0"]), []);
    }

    #[test]
    fn machines_are_not_newer_than_the_control_plane_nor_four_minors_older() {
        let stable = control_plane("v1.26.2", &["v1.26.2"]);
        let held = |machines| held(&stable, Some(machines), false, "");
        assert_eq!(held("v1.27.0"), [Check::KubernetesVersionSkew]);
        assert_eq!(held("v1.22.0"), [Check::KubernetesVersionSkew]);
        assert_eq!(held("v1.23.0"), []);
        assert_eq!(held("v1.26.9"), []);
    }

    #[test]
    fn kubeadm_joins_its_own_minor_version_alone() {
        let stable = control_plane("v1.26.2", &["v1.26.2"]);
        assert_eq!(held(&stable, Some("v1.25.0"), true, ""), [Check::KubeadmVersionSkew]);
        assert_eq!(held(&stable, Some("v1.26.0"), true, ""), []);
        assert_eq!(held(&stable, Some("v1.25.0"), false, ""), []);
    }

    #[test]
    fn checks_are_skipped_by_name() {
        let upgrading = control_plane("v1.26.2", &["v1.25.2"]);
        let held = |skip| held(&upgrading, Some("v1.28.0"), true, skip);
        assert_eq!(held("ControlPlaneIsStable, KubeadmVersionSkew"), [Check::KubernetesVersionSkew]);
        assert_eq!(held("All"), []);
        assert_eq!(
            held("Other,KubernetesVersionSkew"),
            [Check::ControlPlaneIsStable, Check::KubeadmVersionSkew]
        );
        assert_eq!(held("").len(), 3);
    }

    #[test]
    fn a_hold_names_its_check() {
        let holds = preflight(&control_plane("v1.26.2", &[]), None, false, &BTreeSet::new());
        assert_eq!(
            holds[0].to_string(),
            "KubeadmControlPlane team-a/cp is provisioning (\"ControlPlaneIsStable\" preflight check failed)"
        );
    }
}
