//! Whether a new provider answers as well as the one at work.

use cloudprovider::{CloudProvider, Instance, InstanceLookup};

use crate::nodes::Node;

/// How the answers of the new provider are, beside those of the one at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The same for every Node that the old one has an instance of.
    Same,
    /// It has an instance for each of these too, but other addresses, labels or zones: as the new version wants it, or
    /// because it does not know everything yet.
    Different,
    /// For some of these it has no instance, or cannot tell, and why.
    Worse(String),
}

/// Compares the answers for `nodes`, given in their order. A Node without an instance in the old answers is not
/// compared: it cannot become worse.
pub(super) fn compare(
    nodes: &[impl AsRef<Node>],
    old: &[InstanceLookup],
    new: &[InstanceLookup],
) -> Comparison {
    let mut worse = Vec::new();
    let mut is_different = false;
    for ((node, old), new) in nodes.iter().zip(old).zip(new) {
        let InstanceLookup::Present(old) = old else { continue };
        match new {
            InstanceLookup::Present(new) => match &new.incomplete {
                Some(why) if old.incomplete.is_none() => worse.push((node.as_ref().name(), why.report())),
                _ => is_different |= is_another(old, new),
            },
            InstanceLookup::Absent => {
                worse.push((node.as_ref().name(), "the changed version finds no instance of it".to_owned()));
            }
            InstanceLookup::Unknown(error) => worse.push((node.as_ref().name(), error.report())),
        }
    }
    match worse.split_first() {
        None if is_different => Comparison::Different,
        None => Comparison::Same,
        Some(((name, why), rest)) => {
            let others = if rest.is_empty() {
                String::new()
            } else {
                format!(" ({} other nodes as well)", rest.len())
            };
            Comparison::Worse(format!("node {name} would lose its instance: {why}{others}"))
        }
    }
}

fn is_another(old: &Instance, new: &Instance) -> bool {
    old.provider_id != new.provider_id || old.metadata != new.metadata
}

/// What the daemon decided at its start by the parts that the provider has, and cannot change while it runs.
pub(super) fn needs_restart(old: &dyn CloudProvider, new: &dyn CloudProvider) -> Option<String> {
    let parts = |provider: &dyn CloudProvider| {
        [
            ("instances", provider.instances().is_some()),
            ("load balancers", provider.load_balancer().is_some()),
            ("routes", provider.routes().is_some()),
        ]
    };
    let changed: Vec<&str> = parts(old)
        .into_iter()
        .zip(parts(new))
        .filter(|(old, new)| old != new)
        .map(|((part, _), _)| part)
        .collect();
    (!changed.is_empty()).then(|| {
        format!("it switches {} on or off, which takes a restart of the daemon", changed.join(" and "))
    })
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use cloudprovider::{
        Error, ErrorKind, InstanceMetadata, NodeAddress, NodeIdentity, PowerState, ProviderId,
    };

    use super::*;

    fn node(name: &str) -> Arc<Node> {
        let identity = NodeIdentity { name: name.into(), ..NodeIdentity::default() };
        Arc::new(Node { identity, ..Node::default() })
    }

    fn instance(address: &str) -> Instance {
        let addresses = vec![NodeAddress::internal_ip(address)];
        Instance::new(ProviderId::new("test", "/1"), PowerState::Running)
            .with_metadata(InstanceMetadata { addresses, ..InstanceMetadata::default() })
    }

    fn unknown() -> InstanceLookup {
        Error::new(ErrorKind::Unauthenticated, "wrong password").into()
    }

    fn one(old: InstanceLookup, new: InstanceLookup) -> Comparison {
        compare(&[node("a")], &[old], &[new])
    }

    #[test]
    fn only_what_the_old_one_has_can_become_worse() {
        for old in [InstanceLookup::Absent, unknown()] {
            assert_eq!(one(old, InstanceLookup::Absent), Comparison::Same);
        }
        assert_eq!(one(unknown(), unknown()), Comparison::Same);
        assert_eq!(one(InstanceLookup::Absent, instance("10.0.0.1").into()), Comparison::Same);
        let Comparison::Worse(why) = one(instance("10.0.0.1").into(), unknown()) else { panic!("not worse") };
        assert_eq!(why, "node a would lose its instance: wrong password");
        let Comparison::Worse(why) = one(instance("10.0.0.1").into(), InstanceLookup::Absent) else {
            panic!("not worse")
        };
        assert_eq!(why, "node a would lose its instance: the changed version finds no instance of it");
    }

    #[test]
    fn a_power_state_is_no_difference_and_an_address_is() {
        let mut off = instance("10.0.0.1");
        off.power_state = PowerState::Off;
        assert_eq!(one(instance("10.0.0.1").into(), off.into()), Comparison::Same);
        assert_eq!(one(instance("10.0.0.1").into(), instance("10.0.0.2").into()), Comparison::Different);
    }

    #[test]
    fn what_is_not_complete_yet_is_waited_for() {
        let why = || Error::in_progress(Duration::from_secs(1), "no address yet");
        let incomplete = || instance("10.0.0.1").with_incomplete(why());
        assert!(matches!(one(instance("10.0.0.1").into(), incomplete().into()), Comparison::Worse(_)));
        assert_eq!(one(incomplete().into(), incomplete().into()), Comparison::Same);
    }

    #[test]
    fn the_first_and_the_number_of_the_others_are_told() {
        let nodes = [node("a"), node("b"), node("c")];
        let old = || instance("10.0.0.1").into();
        let new = [instance("10.0.0.1").into(), unknown(), InstanceLookup::Absent];
        let Comparison::Worse(why) = compare(&nodes, &[old(), old(), old()], &new) else {
            panic!("not worse")
        };
        assert_eq!(why, "node b would lose its instance: wrong password (1 other nodes as well)");
    }
}
