//! The section `machines`.

use provider_kit::{Fields, Findings};
use serde_json::Value;

use crate::{allow::Allow, fields::mapping, size::Size};

/// How much of a hypervisor its domains may take, running and not, before no new machine is put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineLimits {
    /// vCPUs for each logical CPU of the hypervisor, in hundredths. Default 400.
    pub cpu_overcommit: u32,
    /// Memory of domains for the hypervisor's memory without what is reserved, in hundredths. Default 100.
    pub memory_overcommit: u32,
    /// Memory in MiB that is left to the hypervisor itself and to QEMU's own needs. Default 1024.
    pub reserved_memory_mib: u64,
}

impl Default for MachineLimits {
    fn default() -> Self {
        Self { cpu_overcommit: 400, memory_overcommit: 100, reserved_memory_mib: 1024 }
    }
}

/// Reads the section.
pub(super) fn read_machines(value: Value, findings: &mut Findings) -> (MachineLimits, Allow) {
    let Some(mut fields) = mapping("machines", value, findings) else { return Default::default() };
    let limits = MachineLimits::read(&mut fields, findings);
    let allow = fields.list(Allow::KEY, findings).map(|list| Allow::read(list, findings));
    fields.finish(findings);
    (limits, allow.unwrap_or_default())
}

impl MachineLimits {
    fn read(fields: &mut Fields, findings: &mut Findings) -> Self {
        let mut limits = Self::default();
        if let Some(factor) = fields.factor("cpuOvercommit", 10..=10_000, findings) {
            limits.cpu_overcommit = factor;
        }
        if let Some(factor) = fields.factor("memoryOvercommit", 10..=1_000, findings) {
            limits.memory_overcommit = factor;
        }
        if let Some(reserved) = fields.number("reservedMemoryMiB", 0, findings) {
            limits.reserved_memory_mib = reserved.into();
        }
        limits
    }

    /// How much domains may take of a hypervisor with these CPUs and this memory.
    pub(crate) fn of(&self, total: Size) -> Size {
        let share = |amount: u64, hundredths: u32| amount.saturating_mul(hundredths.into()) / 100;
        Size {
            cpus: share(total.cpus, self.cpu_overcommit),
            memory_mib: share(
                total.memory_mib.saturating_sub(self.reserved_memory_mib),
                self.memory_overcommit,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn parse(section: &str) -> Result<MachineLimits, String> {
        let text = format!("hypervisors: [{{name: a, uri: 'qemu:///system'}}]\n{section}");
        Config::parse(&text, None).map(|config| config.machines).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_have_defaults_and_are_read_exactly() {
        assert_eq!(parse(""), Ok(MachineLimits::default()));
        assert_eq!(parse("machines:"), Ok(MachineLimits::default()));
        let given = "machines: {cpuOvercommit: 2, memoryOvercommit: 1.25, reservedMemoryMiB: 0}";
        let expected = MachineLimits { cpu_overcommit: 200, memory_overcommit: 125, reserved_memory_mib: 0 };
        assert_eq!(parse(given), Ok(expected));
        assert_eq!(parse("machines: {cpuOvercommit: 0.5}").map(|limits| limits.cpu_overcommit), Ok(50));
    }

    #[test]
    fn faults_name_their_key() {
        let factor = "must be a number from 0.1 to 100 with at most two decimals, such as 1.5";
        for (section, words) in [
            ("machines: {cpuOvercommit: 0}", format!("machines.cpuOvercommit: {factor}")),
            ("machines: {cpuOvercommit: 1.333}", format!("machines.cpuOvercommit: {factor}")),
            ("machines: {cpuOvercommit: -1}", format!("machines.cpuOvercommit: {factor}")),
            ("machines: {cpuOvercommit: lots}", format!("machines.cpuOvercommit: {factor}")),
            (
                "machines: {memoryOvercommit: 11}",
                "machines.memoryOvercommit: must be a number from 0.1 to 10".into(),
            ),
            (
                "machines: {reservedMemoryMiB: 1Gi}",
                "machines.reservedMemoryMiB: must be a whole number".into(),
            ),
            ("machines: {cpuOvercomit: 1}", "unknown key; did you mean \"cpuOvercommit\"?".into()),
            ("reservedMemoryMiB: 1", "unknown key; it belongs under machines".into()),
            ("machines: 4", "machines: is a number, must be a mapping".into()),
        ] {
            let error = parse(section).expect_err(section);
            assert!(error.contains(&words), "{section}: {error}");
        }
    }

    #[test]
    fn a_share_of_a_hypervisor() {
        let total = Size { cpus: 6, memory_mib: 10_240 };
        assert_eq!(MachineLimits::default().of(total), Size { cpus: 24, memory_mib: 9216 });
        let tight = MachineLimits { cpu_overcommit: 50, memory_overcommit: 150, reserved_memory_mib: 240 };
        assert_eq!(tight.of(total), Size { cpus: 3, memory_mib: 15_000 });
        assert_eq!(MachineLimits::default().of(Size { cpus: 1, memory_mib: 512 }).memory_mib, 0);
    }
}
