//! The `<metadata>` of the domains that are made here: whose they are.
//!
//! ```xml
//! <ccm:instance xmlns:ccm='urn:cloud-controller-manager:libvirt:1' cluster='prod' role='control-plane'>
//!   <ccm:mark uid='5d0b...' namespace='default' cluster='prod' machine='node-1'/>
//! </ccm:instance>
//! ```
//!
//! It is part of the call that defines the domain, so there is no domain of ours without it.
//! [`Domain`](crate::domain::Domain) reads it back.

use cloudprovider::machines::Mark;

use super::xml::Element;
use crate::domain::METADATA_NAMESPACE;

/// The role of machines of the control plane.
pub(crate) const CONTROL_PLANE: &str = "control-plane";

/// The element `metadata` of a machine's domain.
pub(crate) fn metadata(mark: &Mark, is_control_plane: bool) -> Element {
    let mark_element = Element::new("ccm:mark")
        .with("uid", &mark.uid)
        .with("namespace", &mark.namespace)
        .with("cluster", &mark.cluster)
        .with_some("machine", mark.machine.as_ref());
    let instance = Element::new("ccm:instance")
        .with("xmlns:ccm", METADATA_NAMESPACE)
        .with("cluster", &mark.cluster)
        .with_some("role", is_control_plane.then_some(CONTROL_PLANE))
        .child(mark_element);
    Element::new("metadata").child(instance)
}
