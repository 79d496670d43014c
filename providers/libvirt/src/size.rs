//! CPUs and memory, of a hypervisor or of a domain.

use std::{fmt, ops::AddAssign};

/// An amount of CPUs and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// vCPUs of a domain, or logical CPUs of a hypervisor.
    pub(crate) cpus: u64,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        self.cpus = self.cpus.saturating_add(other.cpus);
        self.memory_mib = self.memory_mib.saturating_add(other.memory_mib);
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CPUs and {} MiB of memory", self.cpus, self.memory_mib)
    }
}
