//! How large a machine may be.

use cloudprovider::{Error, ErrorKind, Result};
use provider_kit::{Fields, Findings};

/// The limits of one entry for a machine. `None`: the entry says nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    vcpus: Option<u32>,
    memory_mib: Option<u32>,
    disk_gib: Option<u32>,
}

impl Sizes {
    pub(super) fn read(fields: &mut Fields, problems: &mut Findings) -> Self {
        Self {
            vcpus: fields.number("maxVcpus", 1, problems),
            memory_mib: fields.number("maxMemoryMiB", 1, problems),
            disk_gib: fields.number("maxDiskGiB", 1, problems),
        }
    }

    /// What the entry limits, for people, with the names of its keys.
    pub(super) fn open(self) -> impl Iterator<Item = String> {
        let limits =
            [("maxVcpus", self.vcpus), ("maxMemoryMiB", self.memory_mib), ("maxDiskGiB", self.disk_gib)];
        limits.into_iter().filter_map(|(key, limit)| Some(format!("{key} {}", limit?)))
    }

    /// The largest limit of each.
    pub(super) fn largest(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |one, other| Self {
            vcpus: one.vcpus.max(other.vcpus),
            memory_mib: one.memory_mib.max(other.memory_mib),
            disk_gib: one.disk_gib.max(other.disk_gib),
        })
    }

    /// Checks how large a machine is: its CPUs, its memory, and all its disks together.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] with the names of the field and the key.
    pub(super) fn check(self, vcpus: u32, memory_mib: u64, disk_gib: u64) -> Result<()> {
        for (field, key, has, limit) in [
            ("spec.vcpus", "maxVcpus", u64::from(vcpus), self.vcpus),
            ("spec.memoryMiB", "maxMemoryMiB", memory_mib, self.memory_mib),
            ("spec.disks[].sizeGiB, of all disks together", "maxDiskGiB", disk_gib, self.disk_gib),
        ] {
            if let Some(most) = limit.filter(|most| has > u64::from(*most)) {
                let words = format!(
                    "{field}: {has} is more than the {most} that a machine of this namespace may have by the configuration of the \
                     provider, machines.allow, under {key}"
                );
                return Err(Error::new(ErrorKind::PermissionDenied, words));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn refused(allow: &str, namespace: &str, size: (u32, u64, u64)) -> Option<String> {
        let text = format!("hypervisors: [{{name: kvm1, uri: 'test:///a'}}]\nmachines: {{allow: {allow}}}");
        let allow = Config::parse(&text, None).expect("valid").allow;
        let (vcpus, memory_mib, disk_gib) = size;
        let answer = allow.of(namespace).size(vcpus, memory_mib, disk_gib);
        answer.err().map(|error| {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            error.report()
        })
    }

    #[test]
    fn the_largest_limit_of_the_entries_for_a_namespace_counts() {
        let allow = "[{maxVcpus: 4, maxMemoryMiB: 8192, maxDiskGiB: 100}, {namespaces: [big], maxVcpus: 16}, {namespaces: [big]}]";
        for (namespace, size, expected) in [
            ("small", (4, 8192, 100), None),
            (
                "small",
                (5, 1, 1),
                Some("spec.vcpus: 5 is more than the 4 that a machine of this namespace may have"),
            ),
            ("small", (1, 8193, 1), Some("spec.memoryMiB: 8193 is more than the 8192")),
            (
                "small",
                (1, 1, 101),
                Some("spec.disks[].sizeGiB, of all disks together: 101 is more than the 100"),
            ),
            ("big", (16, 8192, 100), None),
            ("big", (17, 1, 1), Some("spec.vcpus: 17 is more than the 16")),
            ("big", (1, 8193, 1), Some("under maxMemoryMiB")),
        ] {
            let told = refused(allow, namespace, size);
            let is_right = match (&told, expected) {
                (Some(told), Some(expected)) => told.contains(expected),
                (told, expected) => told.is_none() && expected.is_none(),
            };
            assert!(is_right, "{namespace} {size:?}: {told:?}");
        }
        assert_eq!(refused("[{networks: [lan]}]", "any", (u32::MAX, u64::MAX, u64::MAX)), None, "no limit");
    }

    #[test]
    fn a_limit_is_a_number() {
        for limit in ["0", "-1", "many", "1.5"] {
            let text = format!(
                "hypervisors: [{{name: kvm1, uri: 'test:///a'}}]\nmachines: {{allow: [{{maxDiskGiB: {limit}}}]}}"
            );
            let fault = Config::parse(&text, None).expect_err("a fault").report();
            assert!(fault.contains("machines.allow[0].maxDiskGiB"), "{limit}: {fault}");
        }
    }
}
