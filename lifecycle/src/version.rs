//! Versions of Kubernetes.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A version of Kubernetes, as in `spec.version`: `v1.37.1`, `v1.37.0-rc.1`, `v1.30.2+k3s1`.
///
/// Versions are ordered as semantic versions are; builds of one version are equal there and differ in `==`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesVersion {
    /// 1
    pub major: u64,
    /// The minor version, by which skews are counted.
    pub minor: u64,
    /// The patch release.
    pub patch: u64,
    /// What follows a `-`: alpha, beta and release candidates.
    pub pre: Option<String>,
    /// What follows a `+`: a distribution's build.
    pub build: Option<String>,
}

/// The text is not a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidVersion(String);

impl fmt::Display for InvalidVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a version: want one like v1.37.1", self.0)
    }
}

impl std::error::Error for InvalidVersion {}

impl FromStr for KubernetesVersion {
    type Err = InvalidVersion;

    /// The `v` and the patch release may be missing, as in Cluster API.
    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let invalid = || InvalidVersion(text.to_owned());
        let rest = text.strip_prefix('v').unwrap_or(text);
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (numbers, pre) = rest.split_once('-').map_or((rest, None), |(rest, pre)| (rest, Some(pre)));
        let identifiers = |text: Option<&str>| match text {
            None => Ok(None),
            Some(text) if text.split('.').all(is_identifier) => Ok(Some(text.to_owned())),
            Some(_) => Err(invalid()),
        };
        let mut numbers = numbers.split('.');
        let mut number = || -> Result<Option<u64>, InvalidVersion> {
            let Some(digits) = numbers.next() else { return Ok(None) };
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(invalid());
            }
            digits.parse().map(Some).map_err(|_| invalid())
        };
        let (major, minor, patch) = (number()?, number()?, number()?);
        if number()?.is_some() {
            return Err(invalid());
        }
        Ok(Self {
            major: major.ok_or_else(invalid)?,
            minor: minor.ok_or_else(invalid)?,
            patch: patch.unwrap_or(0),
            pre: identifiers(pre)?,
            build: identifiers(build)?,
        })
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Without the `v`, as Cluster API's messages have it.
impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        self.pre.as_ref().map_or(Ok(()), |pre| write!(f, "-{pre}"))?;
        self.build.as_ref().map_or(Ok(()), |build| write!(f, "+{build}"))
    }
}

impl PartialOrd for KubernetesVersion {
    /// None for two builds of one version.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        let order = numbers(self).cmp(&numbers(other)).then_with(|| match (&self.pre, &other.pre) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(ours), Some(theirs)) => pre_release_order(ours, theirs),
        });
        (order != Ordering::Equal || self == other).then_some(order)
    }
}

/// Numbers come before words, and a shorter list before a longer one that it begins.
fn pre_release_order(ours: &str, theirs: &str) -> Ordering {
    let key = |text: &str| -> Vec<(bool, u64, String)> {
        text.split('.')
            .map(|part| {
                part.parse()
                    .map_or_else(|_| (true, 0, part.to_owned()), |number| (false, number, String::new()))
            })
            .collect()
    };
    key(ours).cmp(&key(theirs))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn version(text: &str) -> KubernetesVersion {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_read_is_written() {
        for text in ["1.37.1", "1.37.0-rc.1", "1.30.2+k3s1", "1.30.2-alpha.1.2+build.5-x"] {
            assert_eq!(version(text).to_string(), text);
            assert_eq!(version(&format!("v{text}")).to_string(), text);
        }
        assert_eq!(version("v1.37").to_string(), "1.37.0");
    }

    #[test]
    fn what_is_no_version_is_refused_with_its_text() {
        for text in [
            "",
            "v",
            "1",
            "v1.",
            "v1.x",
            "1.2.3.4",
            "v1.2.3-",
            "v1.2.3+",
            "v1.2.3-a..b",
            "1.-2",
            "1.+2",
            "v1.2.3+ä",
            "v99999999999999999999.1",
        ] {
            let error = text.parse::<KubernetesVersion>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn versions_are_ordered_as_semantic_versions() {
        let order = [
            "1.9.0-alpha.1",
            "1.9.0-alpha.2",
            "1.9.0-alpha.10",
            "1.9.0-beta",
            "1.9.0-beta.1",
            "1.9.0",
            "1.9.1",
            "1.10.0",
        ];
        for (index, lower) in order.iter().enumerate() {
            for higher in &order[index + 1..] {
                assert!(version(lower) < version(higher), "{lower} < {higher}");
                assert!(version(higher) > version(lower), "{higher} > {lower}");
            }
        }
        assert_eq!(version("1.9.0+a").partial_cmp(&version("1.9.0+b")), None);
        assert_eq!(version("v1.9.0+a"), version("1.9.0+a"));
    }
}
