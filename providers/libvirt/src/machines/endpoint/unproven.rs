//! What the log says of entries that nothing proves to be a cluster's claim.

use std::collections::{HashMap, HashSet};

use cloudprovider::machines::Mark;
use parking_lot::Mutex;

use crate::machines::reservation::HostEntry;

/// How many lines there are of a namespace at most: a tenant who knows the UID of an older claim can name it in many clusters.
const MOST: usize = 20;

/// What was said of the clusters of each namespace, so that it is said once.
#[derive(Debug, Default)]
pub(crate) struct UnprovenClaims(Mutex<HashMap<String, HashSet<String>>>);

impl UnprovenClaims {
    /// The line for an entry that the object with this mark may have made, on this hypervisor and in this network. `None` if it was
    /// said before.
    pub(crate) fn line(
        &self,
        mark: &Mark,
        (hypervisor, network): (&str, &str),
        entry: &HostEntry,
    ) -> Option<String> {
        let Mark { namespace, cluster, .. } = mark;
        let line = format!(
            "the claim {} in network {network:?} on hypervisor {hypervisor:?} is left as it is: nothing proves that it is the one of \
             cluster {namespace}/{cluster}, whose object does not have the UID of the claim from the API server; either that object was \
             moved or restored, or it names the UID of another cluster, whose claim this is; remove the entry only once no cluster of \
             any namespace and management cluster has its address",
            entry.to_xml()
        );
        let mut said = self.0.lock();
        let said = said.entry(namespace.clone()).or_default();
        (said.len() < MOST && said.insert(line.clone())).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mac::Mac;

    #[test]
    fn a_line_names_who_asked_and_is_said_once_for_each_object_and_entry() {
        let claims = UnprovenClaims::default();
        let entry = |last: u8| HostEntry {
            mac: Some(Mac::from_bytes([6, 0, 0, 0, 0, 7])),
            name: Some("api-00000007-prod".to_owned()),
            address: Some([192, 168, 122, last].into()),
        };
        let mark = |namespace: &str| Mark::cluster("u", namespace, "prod");
        let place = ("kvm1", "default");
        let line = claims.line(&mark("team-a"), place, &entry(200)).expect("it is new");
        for part in
            ["cluster team-a/prod", &entry(200).to_xml(), "network \"default\" on hypervisor \"kvm1\""]
        {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(claims.line(&mark("team-a"), place, &entry(200)), None);
        let other = claims.line(&mark("team-b"), place, &entry(200)).expect("another object");
        assert!(other.contains("cluster team-b/prod"), "{other}");
        assert!(claims.line(&mark("team-a"), place, &entry(201)).is_some(), "another entry");
        assert!(claims.line(&mark("team-a"), ("kvm2", "default"), &entry(200)).is_some(), "another place");
        let many =
            |n: usize| claims.line(&Mark::cluster("u", "evil", format!("prod-{n}")), place, &entry(200));
        assert_eq!((0..2 * MOST).filter_map(many).count(), MOST);
        assert!(claims.line(&mark("team-c"), place, &entry(200)).is_some(), "another namespace");
    }
}
