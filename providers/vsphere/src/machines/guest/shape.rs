//! What a guest sees of its network devices, as a number.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::metadata::metadata;
use crate::{
    machines::spec::NetworkSpec,
    vim::{Value, machines::OptionValue},
};

/// A number that changes with what a guest is told of its devices. It is good for this process. Networks and MAC addresses are not in
/// it: of a virtual machine that is there they stay what they are.
pub(crate) fn shape(network: &NetworkSpec) -> u64 {
    let macs = vec![[0; 6]; network.devices.len()];
    let mut hasher = DefaultHasher::new();
    for OptionValue { value, .. } in metadata("", network, &macs) {
        if let Value::AnyString(text) = value {
            text.hash(&mut hasher);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    #[test]
    fn what_a_guest_does_not_see_changes_nothing() {
        let of = |more: &Json| {
            let mut device = json!({"networkName": "VM Network", "dhcp4": true});
            if let (Some(device), Some(more)) = (device.as_object_mut(), more.as_object()) {
                device.extend(more.clone());
            }
            shape(&serde_json::from_value(json!({"devices": [device]})).expect("a network"))
        };
        let before = of(&json!({}));
        for more in [
            json!({"networkName": "another"}),
            json!({"macAddr": "00:50:56:00:00:01"}),
            json!({"dhcp6": false, "mtu": 0, "deviceName": "", "nameservers": []}),
        ] {
            assert_eq!(of(&more), before, "{more}");
        }
        for more in [json!({"dhcp4": false}), json!({"nameservers": ["192.0.2.53"]}), json!({"mtu": 9000})] {
            assert_ne!(of(&more), before, "{more}");
        }
    }
}
