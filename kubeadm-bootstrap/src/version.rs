//! Versions of Kubernetes, and the versions of kubeadm's API that they know.

use crate::error::Error;

/// A version of kubeadm's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// Kubernetes 1.22 to 1.30.
    V1Beta3,
    /// Kubernetes 1.31 and later.
    V1Beta4,
}

impl Api {
    /// The newest version of the API that this version of Kubernetes knows.
    pub(crate) fn of(kubernetes_version: &str) -> Result<Self, Error> {
        let invalid = |problem: String| Error::invalid("spec.version of the Machine", problem);
        match normalized(kubernetes_version).as_deref().and_then(major_and_minor) {
            None => Err(invalid(format!("{} is not a version", basics::go::quoted(kubernetes_version)))),
            Some(version) if version < (1, 22) => Err(invalid(format!(
                "{kubernetes_version} is older than v1.22.0, the oldest that is supported"
            ))),
            Some(version) if version < (1, 31) => Ok(Self::V1Beta3),
            Some(_) => Ok(Self::V1Beta4),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1Beta3 => "kubeadm.k8s.io/v1beta3",
            Self::V1Beta4 => "kubeadm.k8s.io/v1beta4",
        }
    }
}

fn major_and_minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.strip_prefix('v')?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The version with a `v` and three numbers: `1.35` becomes `v1.35.0`. `None`: it is not a version.
pub(crate) fn normalized(version: &str) -> Option<String> {
    let version = version.trim();
    let version = version.strip_prefix('v').unwrap_or(version);
    let end = version.find(['-', '+']).unwrap_or(version.len());
    let (numbers, suffix) = version.split_at(end);
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts: Vec<&str> = numbers.split('.').collect();
    if parts.len() > 3 || !parts.iter().all(is_number) || suffix == "-" || suffix == "+" {
        return None;
    }
    let is_suffix_character = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
    if !suffix.bytes().all(is_suffix_character) || (!suffix.is_empty() && parts.len() < 3) {
        return None;
    }
    parts.resize(3, "0");
    let parts: Vec<&str> = parts
        .into_iter()
        .map(|part| {
            let stripped = part.trim_start_matches('0');
            if stripped.is_empty() { "0" } else { stripped }
        })
        .collect();
    Some(format!("v{}{suffix}", parts.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_users_write_them() {
        for (written, normal) in [
            ("v1.35.0", Some("v1.35.0")),
            ("1.35", Some("v1.35.0")),
            (" v1.35.2+k3s1 ", Some("v1.35.2+k3s1")),
            ("1.31.0-rc.1", Some("v1.31.0-rc.1")),
            ("01.08.00", Some("v1.8.0")),
            ("", None),
            ("v", None),
            ("v1.x", None),
            ("v1.2.3.4", None),
            ("v1.35.0-", None),
            ("v1.35.0-a\nb", None),
            ("v1.35-rc.1", None),
        ] {
            assert_eq!(normalized(written).as_deref(), normal, "{written:?}");
        }
    }

    #[test]
    fn the_api_that_a_version_knows() {
        for (version, api) in [
            ("v1.22.0", Api::V1Beta3),
            ("1.30.99", Api::V1Beta3),
            ("v1.31.0-alpha.1", Api::V1Beta4),
            ("v2.0.0", Api::V1Beta4),
        ] {
            assert_eq!(Api::of(version), Ok(api), "{version}");
        }
        for version in ["v1.21.14", "latest", "", "v99999999999999999999999.1.1"] {
            let error = Api::of(version).expect_err(version).to_string();
            assert!(error.starts_with("spec.version of the Machine: "), "{error}");
        }
    }
}
