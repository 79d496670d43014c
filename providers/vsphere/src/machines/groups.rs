//! Groups of virtual machines and of hosts in a cluster, and the rules that tie them together.
//!
//! vCenter cannot add a machine to a group: an edit replaces the whole group. So each cluster has one [`GroupEdits`] here. It holds what
//! machines want, and lets one edit at a time go out, for all machines that want something at that moment.

mod edits;

pub(crate) use self::edits::{AllGroupEdits, GroupEdits, Write};

use cloudprovider::{Error, ErrorKind, Result};

use crate::{
    moref::MoRef,
    vim::{
        element::Element,
        objects::{ObjectSpec, PropertyFilterSpec, PropertySpec},
        property_collector::ObjectUpdate,
    },
};

/// The property with the configuration of a cluster. It is read as a whole: vCenter declares it as that of any compute resource,
/// which has no such parts.
pub(crate) const CONFIGURATION: &str = "configurationEx";

/// The groups and rules of a cluster of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterGroups {
    pub(crate) vm_groups: Vec<VmGroup>,
    host_groups: Vec<(String, Vec<MoRef>)>,
    rules: Vec<HostRule>,
}

/// A group of virtual machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VmGroup {
    pub(crate) name: String,
    pub(crate) members: Vec<MoRef>,
    pub(crate) user_created: Option<bool>,
    pub(crate) unique_id: Option<String>,
}

/// A rule that the machines of a group run on the hosts of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostRule {
    vm_group: String,
    host_group: String,
}

/// Selects the configuration of a cluster, with its groups and rules.
pub(crate) fn selection(cluster: &MoRef) -> PropertyFilterSpec {
    PropertyFilterSpec {
        prop_set: vec![PropertySpec {
            kind: "ClusterComputeResource",
            all: None,
            path_set: vec![CONFIGURATION],
        }],
        object_set: vec![ObjectSpec { obj: cluster.clone(), skip: Some(false), select_set: Vec::new() }],
        report_missing_objects_in_results: None,
    }
}

/// Reads what was selected. `None` if vCenter does not tell it.
pub(crate) fn read(updates: &[ObjectUpdate<'_>]) -> Option<ClusterGroups> {
    let properties = updates.iter().flat_map(|update| &update.properties);
    let configuration =
        properties.filter(|(path, _)| *path == CONFIGURATION).find_map(|(_, value)| *value)?;
    let mut found = ClusterGroups::default();
    for group in configuration.all("group") {
        let name = group.text_of("name").unwrap_or_default().to_owned();
        let members = |of: &str| group.all(of).filter_map(Element::moref).collect();
        match group.kind.as_deref() {
            Some("ClusterVmGroup") => found.vm_groups.push(VmGroup {
                name,
                members: members("vm"),
                user_created: group.child("userCreated").map(Element::is_true),
                unique_id: group.text_of("uniqueID").map(str::to_owned),
            }),
            Some("ClusterHostGroup") => found.host_groups.push((name, members("host"))),
            _ => {}
        }
    }
    let of_hosts =
        configuration.all("rule").filter(|rule| rule.kind.as_deref() == Some("ClusterVmHostRuleInfo"));
    found.rules.extend(of_hosts.filter_map(|rule| {
        let text = |name: &str| rule.text_of(name).filter(|text| !text.is_empty()).map(str::to_owned);
        Some(HostRule { vm_group: text("vmGroupName")?, host_group: text("affineHostGroupName")? })
    }));
    Some(found)
}

impl ClusterGroups {
    /// The hosts of a group.
    pub(crate) fn hosts(&self, group: &str) -> Option<&[MoRef]> {
        self.host_groups.iter().find(|(name, _)| name == group).map(|(_, hosts)| &hosts[..])
    }

    /// The group of virtual machines with this name.
    pub(crate) fn vm_group(&self, name: &str) -> Option<&VmGroup> {
        self.vm_groups.iter().find(|group| group.name == name)
    }

    /// Checks that a group of machines is there and is tied to a group of hosts.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], which names what is missing.
    pub(crate) fn check(&self, vm_group: &str, host_group: &str) -> Result<()> {
        let missing = |words: String| Err(Error::new(ErrorKind::NotFound, words));
        if self.vm_group(vm_group).is_none() {
            return missing(format!("the cluster has no VM group {vm_group:?}; make it in vCenter"));
        }
        let ties = |rule: &HostRule| rule.vm_group == vm_group && rule.host_group == host_group;
        if !self.rules.iter().any(ties) {
            return missing(format!(
                "no rule of the cluster ties the VM group {vm_group:?} to the host group {host_group:?}; make one in \
                 vCenter"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        testing::scripted::{node, reference, text},
        vim::property_collector::UpdateKind,
    };

    pub(crate) fn machine(number: usize) -> MoRef {
        MoRef::new("VirtualMachine", &format!("vm-{number}"))
    }

    fn kind(mut element: Element, kind: &str) -> Element {
        element.kind = Some(kind.into());
        element
    }

    pub(crate) fn cluster() -> ClusterGroups {
        let host = MoRef::new("HostSystem", "host-1");
        let configuration = node(
            "val",
            vec![
                kind(
                    node(
                        "group",
                        vec![
                            text("name", "machines"),
                            text("userCreated", "true"),
                            text("uniqueID", "id-1"),
                            reference("vm", &machine(1)),
                            reference("vm", &machine(2)),
                        ],
                    ),
                    "ClusterVmGroup",
                ),
                kind(node("group", vec![text("name", "lonely")]), "ClusterVmGroup"),
                kind(
                    node("group", vec![text("name", "hosts"), reference("host", &host)]),
                    "ClusterHostGroup",
                ),
                kind(
                    node("rule", vec![text("vmGroupName", "machines"), text("affineHostGroupName", "hosts")]),
                    "ClusterVmHostRuleInfo",
                ),
                kind(node("rule", vec![text("name", "other")]), "ClusterAntiAffinityRuleSpec"),
            ],
        );
        let update = ObjectUpdate {
            object: MoRef::new("ClusterComputeResource", "domain-c1"),
            kind: UpdateKind::Enter,
            properties: vec![(CONFIGURATION, Some(&configuration))],
        };
        read(&[update]).expect("a configuration")
    }

    #[test]
    fn groups_and_rules_are_read() {
        let groups = cluster();
        let machines = groups.vm_group("machines").expect("a group");
        assert_eq!(machines.members, [machine(1), machine(2)]);
        assert_eq!((machines.user_created, machines.unique_id.as_deref()), (Some(true), Some("id-1")));
        assert_eq!(groups.hosts("hosts").map(<[MoRef]>::len), Some(1));
        assert_eq!(groups.hosts("machines"), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn a_group_is_tied_to_its_hosts() {
        let groups = cluster();
        groups.check("machines", "hosts").expect("tied");
        for (vm_group, host_group, words) in [
            ("other", "hosts", "the cluster has no VM group \"other\""),
            (
                "lonely",
                "hosts",
                "no rule of the cluster ties the VM group \"lonely\" to the host group \"hosts\"",
            ),
            ("machines", "others", "no rule of the cluster ties"),
        ] {
            let error = groups.check(vm_group, host_group).expect_err(words);
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().starts_with(words), "{error}");
        }
    }
}
