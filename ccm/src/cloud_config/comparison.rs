//! Whether a new provider answers as well as the current one.

use std::collections::BTreeSet;

use cloudprovider::{CloudProvider, Instance, InstanceLookup};
use controller_kit::nodes::Node;

/// How the answers of the new provider compare with those of the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Equal for every Node of which the current provider has an instance.
    Same,
    /// The new provider has an instance of each of these Nodes too, but with other addresses, labels or
    /// zones. The new version may intend that, or the provider may not know everything yet.
    Different,
    /// It says that some instances are gone of which the old one cannot tell. They may really be gone, or it may merely not
    /// see them.
    Doubtful {
        /// Names of their Nodes.
        nodes: BTreeSet<String>,
        /// A message that says so.
        why: String,
    },
    /// The old one has instances of some Nodes for which this one has none or cannot tell. With the reason.
    Worse(String),
}

/// Compares the answers for `nodes`, given in their order. A Node that has no instance by the old answers cannot fare worse.
/// The exception is a Node with a provider ID of which the old provider could not tell: that its instance is gone would be news,
/// and may delete the Node. A Node without a provider ID is never deleted, and its machine may still be unknown to the cloud.
pub(super) fn compare(
    nodes: &[impl AsRef<Node>],
    old: &[InstanceLookup],
    new: &[InstanceLookup],
) -> Comparison {
    let (mut worse, mut doubtful) = (Vec::new(), BTreeSet::new());
    let mut is_different = false;
    for ((node, old), new) in nodes.iter().zip(old).zip(new) {
        let name = node.as_ref().name();
        match (old, new) {
            (InstanceLookup::Present(old), InstanceLookup::Present(new)) => match &new.incomplete {
                Some(why) if old.incomplete.is_none() => worse.push((name, why.report())),
                _ => is_different |= is_another(old, new),
            },
            (InstanceLookup::Present(_), InstanceLookup::Absent) => {
                worse.push((name, "the changed version finds no instance of it".to_owned()));
            }
            (InstanceLookup::Present(_), InstanceLookup::Unknown(error)) => {
                worse.push((name, error.report()));
            }
            (InstanceLookup::Unknown(_), InstanceLookup::Absent)
                if node.as_ref().identity.provider_id.is_some() =>
            {
                doubtful.insert(name.to_owned());
            }
            (InstanceLookup::Absent | InstanceLookup::Unknown(_), _) => {}
        }
    }
    if let Some(((name, why), rest)) = worse.split_first() {
        let others = and_others(rest.len());
        return Comparison::Worse(format!("node {name} would lose its instance: {why}{others}"));
    }
    if let Some(name) = doubtful.first() {
        let others = and_others(doubtful.len() - 1);
        let why = format!(
            "node {name} would count as gone: the changed version finds no instance of it, and the one in force cannot tell{others}"
        );
        return Comparison::Doubtful { nodes: doubtful, why };
    }
    if is_different { Comparison::Different } else { Comparison::Same }
}

/// Compares what both say about a machine that nobody has. A version that can answer takes over. Where neither can, that is
/// doubtful: a part of the cloud may be away, which hides that the new version is wrong about the rest.
pub(super) fn compare_alone(old: Option<&[InstanceLookup]>, new: Option<&[InstanceLookup]>) -> Comparison {
    let answers = |answers: Option<&[InstanceLookup]>| match answers {
        None => Err("no answer in time".to_owned()),
        Some(answers) => match answers.first() {
            Some(InstanceLookup::Unknown(error)) => Err(error.report()),
            _ => Ok(()),
        },
    };
    match (answers(old), answers(new)) {
        (Ok(()), Err(why)) => {
            Comparison::Worse(format!("the changed version cannot look up machines: {why}"))
        }
        (Err(_), Err(why)) => Comparison::Doubtful {
            nodes: BTreeSet::new(),
            why: format!("neither the version in force nor the changed one can look up machines: {why}"),
        },
        (_, Ok(())) => Comparison::Same,
    }
}

fn and_others(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" ({count} other nodes as well)") }
}

fn is_another(old: &Instance, new: &Instance) -> bool {
    old.provider_id != new.provider_id || old.metadata != new.metadata
}

/// Why the new provider needs a restart of the daemon, if so. At its start the daemon decides by the parts
/// that the provider has, and cannot change that while it runs. Of a provider of machines alone it uses fewer parts.
pub(super) fn needs_restart(
    old: &dyn CloudProvider,
    new: &dyn CloudProvider,
    is_for_machines: bool,
) -> Option<String> {
    let parts = |provider: &dyn CloudProvider| {
        [
            ("instances", provider.instances().is_some()),
            ("load balancers", provider.load_balancer().is_some()),
            ("routes", provider.routes().is_some()),
            ("machines", provider.machines().is_some()),
        ]
    };
    let changed: Vec<&str> = parts(old)
        .into_iter()
        .zip(parts(new))
        .filter(|((part, _), _)| !is_for_machines || ["instances", "machines"].contains(part))
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

    /// A Node that was initialised.
    fn node(name: &str) -> Arc<Node> {
        with_id(name, Some("test:///1"))
    }

    fn with_id(name: &str, provider_id: Option<&str>) -> Arc<Node> {
        let provider_id = provider_id.map(str::to_owned);
        let identity = NodeIdentity { name: name.into(), provider_id, ..NodeIdentity::default() };
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
        assert_eq!(one(InstanceLookup::Absent, InstanceLookup::Absent), Comparison::Same);
        assert_eq!(one(InstanceLookup::Absent, unknown()), Comparison::Same);
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
    fn what_nobody_could_tell_and_is_gone_now_is_doubtful() {
        let nodes = [node("c"), node("b"), node("a")];
        let old = || [unknown(), unknown(), instance("10.0.0.1").into()];
        let new = [InstanceLookup::Absent, InstanceLookup::Absent, instance("10.0.0.2").into()];
        let Comparison::Doubtful { nodes: names, why } = compare(&nodes, &old(), &new) else {
            panic!("not doubtful")
        };
        assert_eq!(names, ["b", "c"].map(str::to_owned).into());
        assert_eq!(
            why,
            "node b would count as gone: the changed version finds no instance of it, and the one in force cannot tell (1 other nodes as well)"
        );
        assert_eq!(one(unknown(), instance("10.0.0.1").into()), Comparison::Same);
        // A certain loss counts more than a doubtful one.
        let new = [InstanceLookup::Absent, InstanceLookup::Absent, unknown()];
        assert!(matches!(compare(&nodes, &old(), &new), Comparison::Worse(_)));
    }

    #[test]
    fn a_node_that_was_never_initialised_cannot_be_lost() {
        let absent = InstanceLookup::Absent;
        let nodes = [with_id("new", None), node("a")];
        let old = [unknown(), unknown()];
        assert_eq!(compare(&nodes[..1], &old[..1], std::slice::from_ref(&absent)), Comparison::Same);
        let new = [absent.clone(), instance("10.0.0.1").into()];
        assert_eq!(compare(&nodes, &old, &new), Comparison::Same);
        // It hides no Node that can be lost.
        let compared = compare(&nodes, &old, &[absent.clone(), absent.clone()]);
        let Comparison::Doubtful { nodes: names, .. } = compared else { panic!("{compared:?}") };
        assert_eq!(names, ["a".to_owned()].into());
        // A version that does not find a machine that the one in force finds is worse all the same.
        let worse = compare(&nodes[..1], &[instance("10.0.0.1").into()], &[absent]);
        assert!(matches!(worse, Comparison::Worse(_)), "{worse:?}");
    }

    #[test]
    fn parts_that_are_not_used_need_no_restart() {
        use cloudprovider::testing::FakeCloud;
        let (old, new) = (FakeCloud::new().provider(), FakeCloud::new().with_load_balancers().provider());
        assert!(needs_restart(&*old, &*new, false).is_some());
        assert_eq!(needs_restart(&*old, &*new, true), None);
        let machines = FakeCloud::new().with_machines().provider();
        assert!(needs_restart(&*old, &*machines, true).is_some());
    }

    #[test]
    fn without_nodes_a_version_has_to_answer_as_the_one_in_force_does() {
        let (answer, unknown) = ([InstanceLookup::Absent], [unknown()]);
        let compare = |old, new| compare_alone(Some(old), Some(new));
        for old in [&answer, &unknown] {
            assert_eq!(compare(old, &answer), Comparison::Same);
        }
        assert!(matches!(compare(&unknown, &unknown), Comparison::Doubtful { .. }));
        let Comparison::Worse(why) = compare(&answer, &unknown) else { panic!("not worse") };
        assert_eq!(why, "the changed version cannot look up machines: wrong password");
        assert!(matches!(compare_alone(Some(&answer), None), Comparison::Worse(_)));
        assert!(matches!(compare_alone(None, None), Comparison::Doubtful { .. }));
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
