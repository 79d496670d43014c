//! Claiming an address, and giving it back.

use std::{net::IpAddr, time::Duration};

use cloudprovider::{ControlPlaneEndpoint, Error, ErrorKind, Result, machines::Wait};

use super::{
    choice::{Choice, Pool, choose},
    claim::Claim,
};
use crate::machines::{
    reservation::{self, ALL_LEASES, HostEntry, NetworkCalls, NetworkDhcp, Scope},
    spec::EndpointPoolSpec,
};

/// The field of the spec, for messages.
const FIELD: &str = "spec.controlPlaneEndpointPool";

/// The field of an endpoint that is known.
const ENDPOINT: &str = "spec.controlPlaneEndpoint.host";

/// How often a step tries the next address, because others were faster.
const MAX_TRIES: usize = 8;

/// When a cluster without an address tries again. No event says that another cluster is deleted.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What a step of a cluster has about its endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// It is this one.
    At(ControlPlaneEndpoint),
    /// It is this one, and an entry that is [not proven](Claim::may_have) to be the cluster's keeps its
    /// address.
    Unproven(ControlPlaneEndpoint, HostEntry),
    /// All addresses of the pool are taken.
    Wait(Wait),
}

/// Claims an address for the cluster, or finds the one that it has. `known` is the request's endpoint; if it
/// is an address of the pool its claim is renewed, and otherwise it is the user's own and nothing is claimed.
///
/// # Errors
/// - [`ErrorKind::InvalidInput`]: the pool cannot be read, or has no address that the network can keep.
/// - [`ErrorKind::NotFound`]: there is no such network, or it has no DHCP server.
/// - [`ErrorKind::Conflict`]: the known address belongs to another object.
/// - Others are libvirt's.
pub(crate) async fn ensure_endpoint(
    calls: &dyn NetworkCalls,
    claim: &Claim,
    spec: &EndpointPoolSpec,
    known: Option<&ControlPlaneEndpoint>,
) -> Result<Endpoint> {
    let pool = Pool::read(spec)?;
    if let Some(known) = known {
        if let Some(address) = known.host.parse().ok().filter(|address| pool.contains(*address))
            && let Some(entry) = renew(calls, claim, spec, address).await?
        {
            return Ok(Endpoint::Unproven(known.clone(), entry));
        }
        return Ok(Endpoint::At(known.clone()));
    }
    let in_field = |error: Error| error.wrap(FIELD);
    let mut last = None;
    for _ in 0..MAX_TRIES {
        let definitions = definitions(calls, &spec.network).await.map_err(in_field)?;
        let leased =
            reservation::leases_of_others(calls, &spec.network, claim.mac).await.map_err(in_field)?;
        let leased = leased.into_iter().map(|(_, address)| address).collect();
        let address = match choose(&definitions, &leased, &pool, claim) {
            Choice::Held(address) | Choice::Free(address) => address,
            Choice::Full => {
                let words = format!(
                    "all {} addresses of the pool are taken in network {:?}",
                    pool.count(),
                    spec.network
                );
                return Ok(Endpoint::Wait(Wait::capacity(words).look_again_after(LOOK_AGAIN)));
            }
            Choice::Unusable(words) => {
                return Err(Error::new(ErrorKind::InvalidInput, format!("{FIELD}: {words}")));
            }
        };
        let wanted = claim.at(&spec.network, address);
        match reservation::ensure(calls, &wanted, claim.older(), ALL_LEASES).await {
            Ok(()) => {
                let endpoint = ControlPlaneEndpoint { host: address.to_string(), port: spec.port };
                return Ok(Endpoint::At(endpoint));
            }
            // Another cluster was faster. One definition may have the claim, and the address is written
            // nowhere yet.
            Err(error) if error.kind() == ErrorKind::Conflict => {
                reservation::remove(calls, &spec.network, claim.mac, &claim.name).await.map_err(in_field)?;
                last = Some(error);
            }
            Err(error) => return Err(in_field(error)),
        }
    }
    Err(in_field(last.unwrap_or_else(|| Error::new(ErrorKind::Internal, "no address was tried"))))
}

/// Claims the address that the cluster is known to have. An entry for it that may be the cluster's serves as
/// it is, and is given.
async fn renew(
    calls: &dyn NetworkCalls,
    claim: &Claim,
    spec: &EndpointPoolSpec,
    address: IpAddr,
) -> Result<Option<HostEntry>> {
    match reservation::ensure(calls, &claim.at(&spec.network, address), claim.older(), ALL_LEASES).await {
        Err(error) if error.kind() == ErrorKind::Conflict => match unproven(calls, claim, spec).await? {
            Some(entry) if entry.address == Some(address) => Ok(Some(entry)),
            _ => Err(error.wrap(ENDPOINT)),
        },
        claimed => claimed.map(|()| None).map_err(|error| error.wrap(ENDPOINT)),
    }
}

/// An entry that may be the cluster's, and that nothing proves to be.
async fn unproven(
    calls: &dyn NetworkCalls,
    claim: &Claim,
    spec: &EndpointPoolSpec,
) -> Result<Option<HostEntry>> {
    for scope in Scope::ALL {
        let dhcp = reservation::read(calls, &spec.network, scope).await?;
        let found = dhcp.and_then(|dhcp| dhcp.hosts().find(|entry| claim.may_have(entry)).cloned());
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Whether the endpoint has an address of the pool, which a claim keeps. The user's own has none.
pub(crate) fn is_claimed(spec: &EndpointPoolSpec, endpoint: Option<&ControlPlaneEndpoint>) -> bool {
    let address = endpoint.and_then(|endpoint| endpoint.host.parse().ok());
    address.is_some_and(|address| Pool::read(spec).is_ok_and(|pool| pool.contains(address)))
}

/// Gives the cluster's address back. Nothing to do if it has none. Gives the entry that stays because nothing
/// proves it to be the cluster's.
///
/// # Errors
/// libvirt's.
pub(crate) async fn release_endpoint(
    calls: &dyn NetworkCalls,
    claim: &Claim,
    spec: &EndpointPoolSpec,
) -> Result<Option<HostEntry>> {
    reservation::remove_all(calls, &spec.network, &claim.entries()).await?;
    if claim.older().is_empty() { unproven(calls, claim, spec).await } else { Ok(None) }
}

/// Whether the network has the cluster's claim.
///
/// # Errors
/// libvirt's.
pub(crate) async fn has_claim(
    calls: &dyn NetworkCalls,
    claim: &Claim,
    spec: &EndpointPoolSpec,
) -> Result<bool> {
    for scope in Scope::ALL {
        let dhcp = reservation::read(calls, &spec.network, scope).await?;
        if dhcp.is_some_and(|dhcp| dhcp.hosts().any(|entry| claim.has(entry))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The definitions that the network has, at least one.
async fn definitions(calls: &dyn NetworkCalls, network: &str) -> Result<Vec<NetworkDhcp>> {
    let mut definitions = Vec::new();
    for scope in Scope::ALL {
        definitions.extend(reservation::read(calls, network, scope).await?);
    }
    if definitions.is_empty() { Err(reservation::missing(calls, network)) } else { Ok(definitions) }
}
