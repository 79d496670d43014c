//! Helpers of the tests.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cloudprovider::{
    AddressClaim, AddressHolder, Error, ErrorKind, IpFamilyPolicy, LoadBalancerService, Protocol, Result,
    ServiceAccess, ServicePort, ServiceRef, async_trait,
};
use parking_lot::Mutex;
use provider_kit::Findings;
use serde_json::Value;

use crate::{
    announce::{Announce, Fault},
    config::{Config, Source},
    pool::Pools,
};

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| panic!("{text} is not an address"))
}

pub(crate) fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| ip(text)).collect()
}

thread_local! {
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a look at a run of addresses, at a holder or at a reservation. Each test has a thread of its own.
pub(crate) fn count_look() {
    LOOKS.set(LOOKS.get() + 1);
}

/// The looks since the last call.
pub(crate) fn looks() -> usize {
    LOOKS.take()
}

/// A configuration in JSON, as below the key `addressPools`.
pub(crate) fn config(json: &str) -> Config {
    let mut findings = Findings::default();
    let value: Value = serde_json::from_str(json).expect("JSON");
    let config = Config::read(Config::KEY, &value, &mut findings);
    config.unwrap_or_else(|| panic!("{findings:#?}"))
}

/// The pools of a configuration.
pub(crate) fn pools(json: &str) -> Pools {
    match config(json).source {
        Source::Own(pools) => pools,
        Source::KubeVip(name) => panic!("pools in {name}"),
    }
}

/// A Service `default/<name>` with UID `<name>` and port 80, for IPv4.
pub(crate) fn service(name: &str) -> LoadBalancerService {
    LoadBalancerService {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        ip_families: vec!["IPv4".to_owned()],
        ip_family_policy: Some(IpFamilyPolicy::SingleStack),
        ports: vec![port(80)],
        ..LoadBalancerService::default()
    }
}

pub(crate) fn dual_stack(name: &str, policy: IpFamilyPolicy) -> LoadBalancerService {
    LoadBalancerService {
        ip_families: vec!["IPv4".to_owned(), "IPv6".to_owned()],
        ip_family_policy: Some(policy),
        ..service(name)
    }
}

pub(crate) fn annotated(service: LoadBalancerService, annotations: &[(&str, &str)]) -> LoadBalancerService {
    let own = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let annotations = service.annotations.clone().into_iter().chain(own).collect();
    LoadBalancerService { annotations, ..service }
}

pub(crate) fn port(number: u16) -> ServicePort {
    ServicePort { port: number, protocol: Protocol::Tcp, ..ServicePort::default() }
}

pub(crate) fn service_ref(name: &str) -> ServiceRef {
    ServiceRef { namespace: "default".to_owned(), name: name.to_owned(), uid: name.to_owned() }
}

/// A stored claim of one Service without sharing.
pub(crate) fn claim(address: &str, name: &str) -> AddressClaim {
    shared_claim(address, &[(name, None, "80/TCP")])
}

/// A stored claim of Services, each with its sharing key and its port.
pub(crate) fn shared_claim(address: &str, holders: &[(&str, Option<&str>, &str)]) -> AddressClaim {
    let holder = |(name, key, port): &(&str, Option<&str>, &str)| AddressHolder {
        service: service_ref(name),
        sharing_key: key.map(str::to_owned),
        ports: vec![(*port).to_owned()],
    };
    AddressClaim {
        address: ip(address),
        holders: holders.iter().map(holder).collect(),
        version: "1".to_owned(),
    }
}

/// An announcer that only remembers.
#[derive(Debug, Default)]
pub(crate) struct FakeAnnouncer {
    held: Mutex<BTreeMap<IpAddr, (String, BTreeSet<String>)>>,
    /// Addresses that cannot be held.
    pub(crate) broken: Mutex<BTreeSet<IpAddr>>,
    /// Addresses that this host has from somebody else.
    pub(crate) foreign: Mutex<BTreeSet<IpAddr>>,
    /// Addresses that hosts on the network have.
    pub(crate) on_network: Mutex<BTreeSet<IpAddr>>,
    /// The addresses that the network was asked for, in their order.
    pub(crate) probed: Mutex<Vec<IpAddr>>,
    /// Addresses that cannot be released.
    pub(crate) fail_release: Mutex<BTreeSet<IpAddr>>,
    /// Whether no release returns.
    pub(crate) hang_release: AtomicBool,
    /// Addresses that are held, and that no interface has.
    pub(crate) lost: Mutex<BTreeSet<IpAddr>>,
    /// Says how long addresses may stay.
    limit: Mutex<Option<Arc<dyn ServiceAccess>>>,
    /// Addresses that left their interface.
    darkened: Mutex<Vec<IpAddr>>,
}

/// An address on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) address: IpAddr,
    pub(crate) interface: String,
    pub(crate) holders: Vec<String>,
}

impl FakeAnnouncer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// How long addresses may stay from now on, if there is a limit.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let limit = self.limit.lock();
        limit.as_ref().map(|services| services.alone_for())
    }

    /// The addresses that left their interface, each time that they did.
    pub(crate) fn darkened(&self) -> Vec<IpAddr> {
        self.darkened.lock().clone()
    }

    /// The addresses that are held, with their interface and all holders.
    pub(crate) fn held(&self) -> Vec<Announced> {
        let held = self.held.lock();
        let announced = held.iter().map(|(address, (interface, holders))| Announced {
            address: *address,
            interface: interface.clone(),
            holders: holders.iter().cloned().collect(),
        });
        announced.collect()
    }

    /// The addresses with their interfaces.
    pub(crate) fn addresses(&self) -> Vec<(IpAddr, String)> {
        self.held().into_iter().map(|announced| (announced.address, announced.interface)).collect()
    }
}

#[async_trait]
impl Announce for FakeAnnouncer {
    fn limit(&self, services: Arc<dyn ServiceAccess>) {
        *self.limit.lock() = Some(services);
    }

    async fn hold(&self, holder: &str, address: IpAddr, interface: Option<&str>) -> Result<()> {
        if self.broken.lock().contains(&address) {
            return Err(Error::new(ErrorKind::Unavailable, format!("the kernel does not set {address}")));
        }
        if self.foreign.lock().contains(&address) {
            return Err(Error::new(ErrorKind::Conflict, format!("{address} is an address of this host")));
        }
        {
            let mut held = self.held.lock();
            let entry = held.entry(address).or_default();
            interface.unwrap_or("auto").clone_into(&mut entry.0);
            entry.1.insert(holder.to_owned());
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn probe(&self, address: IpAddr, _: Option<&str>) -> Result<()> {
        self.probed.lock().push(address);
        tokio::task::yield_now().await;
        if self.on_network.lock().contains(&address) {
            return Err(Error::new(ErrorKind::Conflict, format!("a host has {address}")));
        }
        Ok(())
    }

    async fn release(&self, holder: &str, address: IpAddr) -> Result<()> {
        if self.hang_release.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.fail_release.lock().contains(&address) {
            return Err(Error::new(ErrorKind::Unavailable, "the kernel does not answer"));
        }
        let mut held = self.held.lock();
        if let Some((_, holders)) = held.get_mut(&address) {
            holders.remove(holder);
            if holders.is_empty() {
                held.remove(&address);
                self.darkened.lock().push(address);
            }
        }
        Ok(())
    }

    fn faults(&self) -> Vec<Fault> {
        let lost = self.lost.lock();
        let fault =
            |address: &IpAddr| Fault { address: *address, why: "there is no interface eth1".to_owned() };
        lost.iter().map(fault).collect()
    }
}
