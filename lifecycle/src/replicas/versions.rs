//! `status.versions`: how many Machines have which version.

use std::cmp::Ordering;

use crate::version::KubernetesVersion;

/// Counts versions, the oldest first. Empty ones do not count. What is no version comes last.
#[must_use]
pub fn versions<'a>(all: impl IntoIterator<Item = (&'a str, i64)>) -> Vec<(&'a str, i64)> {
    let mut counted = Vec::<(&str, i64)>::new();
    for (version, replicas) in all.into_iter().filter(|(version, _)| !version.is_empty()) {
        match counted.iter_mut().find(|(known, _)| *known == version) {
            Some((_, count)) => *count = count.saturating_add(replicas),
            None => counted.push((version, replicas)),
        }
    }
    counted.sort_by(|(one, _), (other, _)| order(one, other));
    counted
}

fn order(one: &str, other: &str) -> Ordering {
    match (one.parse::<KubernetesVersion>(), other.parse::<KubernetesVersion>()) {
        (Ok(version), Ok(of_other)) => {
            let by_version = version.partial_cmp(&of_other).unwrap_or(Ordering::Equal);
            by_version.then_with(|| one.cmp(other))
        }
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => one.cmp(other),
    }
}

#[cfg(test)]
mod tests {
    use super::versions;

    #[test]
    fn versions_are_counted_in_their_order() {
        let all = [("v1.37.1", 1), ("", 4), ("v1.9.0", 1), ("odd", 2), ("v1.37.1", 2), ("v1.37.0-rc.1", 1)];
        assert_eq!(versions(all), [("v1.9.0", 1), ("v1.37.0-rc.1", 1), ("v1.37.1", 3), ("odd", 2)]);
    }
}
