//! Bridges that an entry lists and that lead to networks which it does not.

use super::{Allow, Entry, places::DEFAULT_NETWORK};

/// A network of a hypervisor that has a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BridgedNetwork {
    pub(crate) hypervisor: String,
    pub(crate) network: String,
    pub(crate) bridge: String,
}

impl Allow {
    /// Whether some entry lists bridges.
    pub(crate) fn has_bridges(&self) -> bool {
        self.entries.iter().any(|entry| !entry.places.bridges.is_empty())
    }

    /// A line for each listed bridge that is the bridge of a network which those who may name it may not
    /// name. A bridge is listed by the operator, so it stays open.
    pub(crate) fn networks_behind_bridges(&self, networks: &[BridgedNetwork]) -> Vec<String> {
        let of_entry = |(number, entry): (usize, &Entry)| {
            let is_behind = |network: &&BridgedNetwork| {
                entry.places.bridges.contains(&network.bridge)
                    && self.may_be_on(entry, &network.hypervisor)
                    && self.is_closed(entry, &network.network)
            };
            let line = |BridgedNetwork { hypervisor, network, bridge }: &BridgedNetwork| {
                format!(
                    "machines.allow[{number}].bridges: {bridge:?} is the bridge of the network {network:?} of hypervisor {hypervisor:?}, \
                     which is not listed under networks: who may name the bridge reaches that network. List the network too, or take \
                     the bridge out"
                )
            };
            networks.iter().filter(is_behind).map(line).collect::<Vec<_>>()
        };
        self.entries.iter().enumerate().flat_map(of_entry).collect()
    }

    /// Whether some namespace of the entry may not name this network.
    fn is_closed(&self, entry: &Entry, network: &str) -> bool {
        self.is_missing(entry, |allowed| {
            network == DEFAULT_NETWORK || allowed.places.networks.iter().any(|name| name == network)
        })
    }

    /// Whether machines of some namespace of the entry may be on this hypervisor.
    fn may_be_on(&self, entry: &Entry, hypervisor: &str) -> bool {
        match &entry.namespaces {
            Some(names) => names.iter().any(|name| self.of(name).has_hypervisor(hypervisor)),
            None => true,
        }
    }

    /// Whether for some namespace of the entry no entry allows something.
    fn is_missing(&self, entry: &Entry, allows: impl Fn(&Entry) -> bool) -> bool {
        match &entry.namespaces {
            Some(names) => names.iter().any(|name| !self.of(name).entries.iter().any(|one| allows(one))),
            None => !self.entries.iter().any(|one| one.namespaces.is_none() && allows(one)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn behind(allow: &str) -> Vec<String> {
        let text = format!(
            "hypervisors: [{{name: kvm1, uri: 'test:///a'}}, {{name: kvm2, uri: 'test:///b'}}]\nmachines: {{allow: {allow}}}"
        );
        let one = |hypervisor: &str, network: &str, bridge: &str| BridgedNetwork {
            hypervisor: hypervisor.to_owned(),
            network: network.to_owned(),
            bridge: bridge.to_owned(),
        };
        let networks =
            [one("kvm1", "default", "virbr0"), one("kvm1", "lan", "virbr1"), one("kvm2", "storage", "br0")];
        Config::parse(&text, None).expect("valid").allow.networks_behind_bridges(&networks)
    }

    #[test]
    fn a_bridge_of_a_closed_network_is_told() {
        for (allow, expected) in [
            ("[{bridges: [virbr0, br7]}]", &[][..]),
            ("[{namespaces: [team-a], bridges: [virbr1]}]", &["[0].bridges: \"virbr1\""]),
            ("[{namespaces: [team-a], bridges: [virbr1], networks: [lan]}]", &[]),
            ("[{namespaces: [team-a], bridges: [virbr1]}, {networks: [lan]}]", &[]),
            ("[{namespaces: [team-a], networks: [lan]}, {bridges: [virbr1]}]", &["[1].bridges: \"virbr1\""]),
            (
                "[{namespaces: [team-a], networks: [lan]}, {namespaces: [team-a, team-b], bridges: [virbr1]}]",
                &["[1].bridges: \"virbr1\""],
            ),
            (
                "[{bridges: [virbr1, br0]}]",
                &["\"virbr1\"", "\"br0\" is the bridge of the network \"storage\" of hypervisor \"kvm2\""],
            ),
            ("[{namespaces: [team-a], bridges: [br0], hypervisors: [kvm1]}]", &[]),
        ] {
            let told = behind(allow);
            assert_eq!(told.len(), expected.len(), "{allow}: {told:?}");
            for (line, words) in told.iter().zip(expected) {
                assert!(line.contains(words), "{allow}: {line}");
            }
        }
    }
}
