//! The instances: look-ups of Nodes, and the confirmation that an instance is absent.

use std::{collections::BTreeSet, time::Duration};

use cloudprovider::{
    Error, ErrorKind, InstanceLookup, InstanceStream, Instances, NodeIdentity, async_trait, instance_stream,
    look_once_listed,
};
use futures::future::join_all;

use crate::{
    calls::Failure,
    provider::LibvirtProvider,
    provider_id::{DomainId, FORM, parse_provider_id},
    resolve::{Resolution, domain_ids},
};

/// How long after the start look-ups wait for the first listing.
const START_GRACE: Duration = Duration::from_secs(5);

#[async_trait]
impl Instances for LibvirtProvider {
    fn owns(&self, provider_id: &str) -> bool {
        parse_provider_id(provider_id).is_ok()
    }
    fn provider_id_form(&self) -> Option<&str> {
        Some(FORM)
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        let mut resolutions = self.resolve(nodes).await;
        if resolutions.iter().any(|one| matches!(one, Resolution::NotListed)) {
            self.confirm_absences(nodes, &mut resolutions).await;
        }
        let lookups: Vec<InstanceLookup> = resolutions
            .into_iter()
            .map(|resolution| match resolution {
                Resolution::Settled(lookup) => lookup,
                Resolution::Starting(error) => error.into(),
                Resolution::NotListed => {
                    Error::new(ErrorKind::Internal, "a look-up was left unsettled").into()
                }
            })
            .collect();
        if self.config().has_routes {
            self.note_names(nodes, &lookups);
        }
        lookups
    }

    fn changes(&self) -> Option<InstanceStream> {
        Some(instance_stream(self.instance_changes.subscribe(), self.stopped.clone()))
    }
}

impl LibvirtProvider {
    /// Resolves these nodes from memory. Waits for the first listings if they may change a result, up to
    /// [`START_GRACE`] after the start.
    async fn resolve(&self, nodes: &[&NodeIdentity]) -> Vec<Resolution> {
        let resolve = || {
            let view = self.view();
            nodes.iter().map(|node| view.resolve(node)).collect()
        };
        let waits = |one: &Resolution| matches!(one, Resolution::Starting(_));
        let deadline =
            self.started.get().map(|started| *started + START_GRACE.min(self.config().call_timeout));
        look_once_listed(resolve, waits, self.status_changes.subscribe(), deadline).await
    }

    /// Settles nodes that no inventory lists. Such a node is absent only if every hypervisor confirms its
    /// list and then, in a probe for the domain itself, denies having it. The list alone is not enough:
    /// libvirt omits domains that the user may not see.
    async fn confirm_absences(&self, nodes: &[&NodeIdentity], resolutions: &mut [Resolution]) {
        let confirmed = join_all(self.hypervisors.iter().map(|one| one.confirm())).await;
        let missing = self.still_not_listed(nodes, resolutions);
        let reasons = confirmed.into_iter().map(Result::err);
        if let Some(error) = self.unconfirmed(reasons) {
            for i in missing {
                resolutions[i] = Resolution::Settled(Error::new(error.kind(), error.to_string()).into());
            }
            return;
        }
        if missing.is_empty() {
            return;
        }
        let wanted: Vec<_> = missing.iter().map(|i| domain_ids(nodes[*i])).collect();
        let probed = join_all(self.hypervisors.iter().map(|one| one.probe(wanted.clone()))).await;
        // meanwhile a hypervisor may have been lost, or may have reported the domain
        let left = self.still_not_listed(nodes, resolutions);
        for (k, i) in missing.into_iter().enumerate().filter(|(_, i)| left.contains(i)) {
            let reasons = probed.iter().map(|result| match result {
                Ok(probed) => probed.unconfirmed.get(k).cloned().flatten(),
                Err(failure) => Some(failure.clone()),
            });
            resolutions[i] = Resolution::Settled(match self.unconfirmed(reasons) {
                Some(error) => error.into(),
                None => InstanceLookup::Absent,
            });
        }
    }

    /// Remembers which domain is which Node, for the routes.
    fn note_names(&self, nodes: &[&NodeIdentity], lookups: &[InstanceLookup]) {
        for (node, lookup) in nodes.iter().zip(lookups) {
            let InstanceLookup::Present(instance) = lookup else { continue };
            let id = instance.provider_id.as_ref().map(|id| parse_provider_id(id.as_str()));
            if let Some(Ok(DomainId::Uuid(domain))) = id {
                self.kernel_routes().note_node(domain, node);
            }
        }
    }

    /// Resolves the nodes that were not listed again, and returns those that still are not.
    fn still_not_listed(&self, nodes: &[&NodeIdentity], resolutions: &mut [Resolution]) -> BTreeSet<usize> {
        let view = self.view();
        let mut missing = BTreeSet::new();
        for (i, (node, resolution)) in nodes.iter().zip(resolutions).enumerate() {
            if matches!(resolution, Resolution::NotListed) {
                *resolution = view.resolve(node);
                if matches!(resolution, Resolution::NotListed) {
                    missing.insert(i);
                }
            }
        }
        missing
    }

    /// Why some hypervisors cannot confirm that a domain does not exist, each with libvirt's message.
    fn unconfirmed(&self, reasons: impl Iterator<Item = Option<Failure>>) -> Option<Error> {
        let mut words = Vec::new();
        let mut kind = ErrorKind::Unavailable;
        for (hypervisor, failure) in self.hypervisors.iter().zip(reasons) {
            if let Some(failure) = failure {
                kind = failure.kind;
                words.push(format!("hypervisor {:?}: {}", hypervisor.name(), failure.message));
            }
        }
        (!words.is_empty()).then(|| {
            let message =
                format!("cannot confirm that there is no domain for this node: {}", words.join("; "));
            Error::new(kind, message)
        })
    }
}
