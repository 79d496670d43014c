//! Addresses of pools. For each network device and each of its pools there is an `IPAddressClaim`, which a provider of
//! addresses (IPAM) fulfils with an `IPAddress`. Pure.
//!
//! The names of the claims and the finalizer that holds them are those of Cluster API Provider vSphere.

use std::{net::IpAddr, sync::Arc};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{AuxiliaryObject, DesiredObject, Objects},
};
use serde_json::{Value, json};

use super::{
    guest::static_ips,
    kinds::{ADDRESS_KIND, CLAIM_KIND},
    spec::{AddressPoolReference, NetworkDeviceSpec, NetworkSpec, invalid},
};

/// The condition of a machine with pools, and of its `VSphereVM`, as with Cluster API Provider vSphere.
pub(crate) const FULFILLED: &str = "IPAddressClaimsFulfilled";

/// The reason of `Ready` while a machine is not made since it has no addresses yet.
pub(crate) const WAITING_FOR_CLAIMS: &str = "WaitingForIPAddressClaims";

/// The claim for one device of a machine and one of its pools.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim<'a> {
    /// The name of the object.
    pub(crate) name: String,
    /// The number of the device.
    device: usize,
    /// The number of the pool among those of the device.
    pool: usize,
    reference: &'a AddressPoolReference,
}

/// The addresses of a machine's pools, as far as they are known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Addresses {
    /// The machine has no pools.
    NoPools,
    /// Each claim is fulfilled. The network has the addresses, as if they were in its spec.
    All(NetworkSpec),
    /// The same, and somebody has deleted claims of a virtual machine that is there. They are held, and told, for people.
    Going(NetworkSpec, String),
    /// Which claims are not fulfilled, for people.
    Missing(String),
}

/// Whose claims they are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Owner<'a> {
    pub(crate) namespace: &'a str,
    /// What the names of the claims begin with.
    pub(crate) name: &'a str,
    /// The UIDs of the machine's object, and of its `VSphereVM`.
    pub(crate) uids: &'a [String],
    /// Whether its virtual machine is there, so that it uses the addresses.
    pub(crate) is_there: bool,
}

/// An address that a claim got.
struct Given {
    object: String,
    ip: IpAddr,
    prefix: u8,
    gateway: Option<IpAddr>,
}

/// The claims of the machine with this name.
pub(crate) fn claims<'a>(machine: &str, network: &'a NetworkSpec) -> Vec<Claim<'a>> {
    let devices = network.devices.iter().enumerate();
    let of_device = |(device, spec): (usize, &'a NetworkDeviceSpec)| {
        let pools = spec.addresses_from_pools.iter().enumerate();
        pools.map(move |(pool, reference)| Claim {
            name: format!("{machine}-{device}-{pool}"),
            device,
            pool,
            reference,
        })
    };
    devices.flat_map(of_device).collect()
}

/// The addresses of the machine with this name. Those that are not there yet are told, all at once.
///
/// # Errors
/// Those of [`Objects::get`], with the name of the field; [`ErrorKind::InvalidInput`] for a pool without a group and for an
/// address that cannot be used, or a claim of another pool; [`ErrorKind::Conflict`] for a claim of somebody else, and an address of
/// another claim.
pub(crate) fn addresses(owner: &Owner<'_>, network: &NetworkSpec, objects: &Objects) -> Result<Addresses> {
    let claims = claims(owner.name, network);
    if claims.is_empty() {
        return Ok(Addresses::NoPools);
    }
    let (mut given, mut missing, mut going) = (network.clone(), Vec::new(), Vec::new());
    for claim in &claims {
        let found = claim.look(owner, objects, &mut going);
        match found.map_err(|error| error.wrap(claim.field()))? {
            Ok(address) => {
                if let Some(device) = given.devices.get_mut(claim.device) {
                    claim.add(&address, device)?;
                }
            }
            Err(why) => missing.push(why),
        }
    }
    Ok(match (missing.is_empty(), going.is_empty()) {
        (true, true) => Addresses::All(given),
        (true, false) => Addresses::Going(given, going.join("; ")),
        (false, _) => Addresses::Missing(missing.join("; ")),
    })
}

impl Claim<'_> {
    /// The object as it is to be. `None` for a pool without a group: there is none that could be meant.
    pub(crate) fn wanted(&self) -> Option<DesiredObject> {
        let AddressPoolReference { kind, name, .. } = self.reference;
        let group = self.group()?;
        let pool = json!({"apiGroup": group, "kind": kind, "name": name});
        Some(DesiredObject::new(CLAIM_KIND, self.name.clone(), json!({ "poolRef": pool })))
    }

    /// The object that is there.
    pub(crate) fn found(&self, namespace: &str, objects: &Objects) -> Result<Option<Arc<AuxiliaryObject>>> {
        objects.get(&CLAIM_KIND, Some(namespace), &self.name)
    }

    fn group(&self) -> Option<&str> {
        self.reference.api_group.as_deref().filter(|group| !group.is_empty())
    }

    fn field(&self) -> String {
        format!("spec.network.devices[{}].addressesFromPools[{}]", self.device, self.pool)
    }

    /// What it got, or else why it has nothing yet. That it is being deleted is told in `going` where it still counts.
    fn look(
        &self,
        owner: &Owner<'_>,
        objects: &Objects,
        going: &mut Vec<String>,
    ) -> Result<Result<Given, String>> {
        let Owner { namespace, uids, is_there, .. } = *owner;
        let AddressPoolReference { kind, name: pool, .. } = self.reference;
        if self.group().is_none() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "apiGroup: missing; name the API group of the pool",
            ));
        }
        let waits = |why: &str| Ok(Err(format!("IPAddressClaim {} of {kind} {pool:?} {why}", self.name)));
        let Some(claim) = self.found(namespace, objects)? else { return waits("is being made") };
        if !uids.iter().any(|uid| claim.is_owned_by(uid)) {
            let words = format!(
                "IPAddressClaim {} exists and is somebody else's; it is left alone and is in the way",
                self.name
            );
            return Err(Error::new(ErrorKind::Conflict, words));
        }
        if claim.is_deleting && !is_there {
            return waits(
                "is being deleted, so its address is not used; replace the Machine to get another one",
            );
        }
        let of = &claim.spec["poolRef"];
        if !is_there && !self.is_of(of) {
            return Err(invalid(format!(
                "IPAddressClaim {} is of {} {}, and claims cannot be changed; replace the Machine to get an address of {kind} {pool:?}",
                self.name, of["kind"], of["name"]
            )));
        }
        let Some(name) = text(&claim.status["addressRef"]["name"]) else {
            return match not_ready(&claim.status) {
                Some(why) => waits(&format!("has no address yet: {why}")),
                None => waits("has no address yet"),
            };
        };
        let Some(address) = objects.get(&ADDRESS_KIND, Some(namespace), name)? else {
            return waits(&format!("names the IPAddress {name:?}, which is not there"));
        };
        let of = text(&address.spec["claimRef"]["name"]).unwrap_or_default();
        if of != self.name {
            let words = format!(
                "IPAddressClaim {} names the IPAddress {name:?}, which is of the claim {of:?}",
                self.name
            );
            return Err(Error::new(ErrorKind::Conflict, words));
        }
        if address.is_deleting {
            return waits(&format!("names the IPAddress {name:?}, which is being deleted"));
        }
        if !address.owners.is_empty() && !address.is_owned_by(&claim.uid) {
            return waits(&format!("names the IPAddress {name:?} of an earlier claim"));
        }
        if claim.is_deleting {
            going.push(format!(
                "IPAddressClaim {} of {kind} {pool:?} is being deleted; it is held",
                self.name
            ));
        }
        given(&address).map(Ok)
    }

    /// Whether this `poolRef` names its pool.
    fn is_of(&self, pool: &Value) -> bool {
        let AddressPoolReference { kind, name, .. } = self.reference;
        text(&pool["kind"]) == Some(kind)
            && text(&pool["name"]) == Some(name)
            && text(&pool["apiGroup"]) == self.group()
    }

    /// Gives an address to a device, as if it were in its spec.
    fn add(&self, given: &Given, device: &mut NetworkDeviceSpec) -> Result<()> {
        let Given { object, ip, prefix, gateway } = given;
        if static_ips(device).any(|one| one == *ip) {
            let words = format!("IPAddress {object:?} gives {ip}, which the device has already");
            return Err(invalid(words).wrap(self.field()));
        }
        device.ip_addrs.push(format!("{ip}/{prefix}"));
        let Some(gateway) = gateway else { return Ok(()) };
        let (field, own) = match ip {
            IpAddr::V4(_) => ("gateway4", &mut device.gateway4),
            IpAddr::V6(_) => ("gateway6", &mut device.gateway6),
        };
        match own.as_deref().filter(|own| !own.is_empty()) {
            Some(own) if own.parse() != Ok(*gateway) => Err(invalid(format!(
                "spec.network.devices[{}].{field}: {own}, and IPAddress {object:?} has the gateway {gateway}",
                self.device
            ))),
            _ => {
                *own = Some(gateway.to_string());
                Ok(())
            }
        }
    }
}

/// What an `IPAddress` says.
fn given(address: &AuxiliaryObject) -> Result<Given> {
    let object = address.name.clone();
    let wrong = |what: &str, value: &Value| {
        invalid(format!("IPAddress {object:?}, spec.{what}: {value} cannot be used"))
    };
    let value = &address.spec["address"];
    let ip: IpAddr = text(value).and_then(|text| text.parse().ok()).ok_or_else(|| wrong("address", value))?;
    let value = &address.spec["prefix"];
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = value.as_u64().and_then(|bits| u8::try_from(bits).ok()).filter(|bits| *bits <= longest);
    let prefix = prefix.ok_or_else(|| wrong("prefix", value))?;
    let value = &address.spec["gateway"];
    let gateway = match text(value) {
        None => None,
        Some(text) => {
            let gateway = text.parse().ok().filter(|one: &IpAddr| one.is_ipv4() == ip.is_ipv4());
            Some(gateway.ok_or_else(|| wrong("gateway", value))?)
        }
    };
    Ok(Given { object, ip, prefix, gateway })
}

/// Why a claim is not ready, in the words of who fulfils it.
fn not_ready(status: &Value) -> Option<String> {
    let mut conditions = status["conditions"].as_array()?.iter();
    let ready = conditions.find(|one| one["type"] == "Ready" && one["status"] != "True")?;
    let words: Vec<_> = ["reason", "message"].into_iter().filter_map(|field| text(&ready[field])).collect();
    (!words.is_empty()).then(|| words.join(": "))
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
