//! Powering machines on by DRS, which chooses their hosts and may move other machines out of their way. Pure.

use std::sync::atomic::{AtomicBool, Ordering};

use super::groups::CONFIGURATION;
use crate::{
    moref::MoRef,
    vim::{
        Value,
        element::Element,
        machines::{OptionValue, PowerOnMultiVm},
        property_collector::ObjectUpdate,
    },
};

/// What is known of DRS in a cluster of hosts. What is not known counts as switched off.
#[derive(Debug, Default)]
pub(crate) struct Drs {
    is_enabled: bool,
    /// Whether vCenter has refused to power on by DRS.
    is_refused: AtomicBool,
}

impl Drs {
    /// Reads it from the configuration of a cluster. `None` if vCenter does not tell that.
    pub(crate) fn read(updates: &[ObjectUpdate<'_>]) -> Option<Self> {
        let properties = updates.iter().flat_map(|update| &update.properties);
        let configuration =
            properties.filter(|(path, _)| *path == CONFIGURATION).find_map(|(_, value)| *value)?;
        let enabled = configuration.child("drsConfig").and_then(|drs| drs.child("enabled"));
        Some(Self { is_enabled: enabled.is_some_and(Element::is_true), ..Self::default() })
    }

    /// Whether machines are powered on by it.
    pub(crate) fn is_used(&self) -> bool {
        self.is_enabled && !self.is_refused.load(Ordering::Relaxed)
    }

    /// Notes that vCenter refuses that: from now on machines are powered on without it.
    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }
}

/// The call that powers a machine on by DRS, which acts at once also where people usually apply its recommendations.
pub(crate) fn power_on(machine: &MoRef) -> PowerOnMultiVm {
    let level = OptionValue {
        key: "OverrideAutomationLevel".to_owned(),
        value: Value::AnyString("fullyAutomated".to_owned()),
    };
    PowerOnMultiVm { machines: vec![machine.clone()], options: vec![level] }
}

/// Whether a fault says that this user may not power on by DRS, or that this vCenter cannot. The plain power-on may work.
pub(crate) fn is_refusal(fault: &str) -> bool {
    ["NoPermission", "NotSupported", "NotImplemented", "MethodNotFound"].contains(&fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        testing::scripted::{node, text},
        vim::property_collector::UpdateKind,
    };

    fn told(configuration: Option<&Element>) -> Option<Drs> {
        let object = MoRef::new("ClusterComputeResource", "domain-c1");
        let properties = vec![(CONFIGURATION, configuration)];
        Drs::read(&[ObjectUpdate { object, kind: UpdateKind::Enter, properties }])
    }

    #[test]
    fn it_is_used_where_it_is_switched_on() {
        let configured = |enabled: &str| node("val", vec![node("drsConfig", vec![text("enabled", enabled)])]);
        for (configuration, expected) in [
            (Some(configured("true")), Some(true)),
            (Some(configured("false")), Some(false)),
            (Some(node("val", Vec::new())), Some(false)),
            (None, None),
        ] {
            let found = told(configuration.as_ref());
            assert_eq!(found.map(|drs| drs.is_used()), expected, "{configuration:?}");
        }
        assert!(Drs::read(&[]).is_none() && !Drs::default().is_used());
        let drs = told(Some(&configured("true"))).expect("told");
        drs.refuse();
        assert!(!drs.is_used());
    }

    #[test]
    fn nobody_has_to_apply_a_recommendation() {
        let call = power_on(&MoRef::new("VirtualMachine", "vm-1")).of(&MoRef::new("Datacenter", "dc-1"));
        let sent = crate::soap::written(&call);
        let (_, arguments) = sent.split_once("</_this>").expect("arguments");
        assert!(
            arguments.starts_with(
                "<vm type=\"VirtualMachine\">vm-1</vm><option xsi:type=\"OptionValue\">\
                 <key>OverrideAutomationLevel</key><value xsi:type=\"xsd:string\">fullyAutomated</value></option>"
            ),
            "{arguments}"
        );
    }
}
