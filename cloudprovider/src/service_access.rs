//! The cluster's Services, for load balancers that no cloud runs.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::IpAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt as _, future, stream, stream::BoxStream};

use crate::{Error, Result};

/// What a provider does in the cluster for load balancers that no cloud runs: it claims addresses for Services, and writes
/// annotations that other components read.
///
/// The daemon implements this trait and knows Kubernetes. All writes belong to the term of leadership in which the Service
/// controller runs. Outside of a term they fail with [`Unavailable`](crate::ErrorKind::Unavailable).
#[async_trait]
pub trait ServiceAccess: fmt::Debug + Send + Sync {
    /// All claims that daemons of this cluster have written, in no particular order.
    async fn claims(&self) -> Result<Vec<AddressClaim>>;

    /// The addresses in `status.loadBalancer` of all Services of type `LoadBalancer` that this daemon serves. Services that
    /// another load balancer served before have addresses without claims, which nobody else may get.
    async fn assigned(&self) -> Result<Vec<(ServiceRef, IpAddr)>> {
        Ok(Vec::new())
    }

    /// The addresses that the cluster shows in use beside claims, as a watch shows them. No Service gets one of them anew.
    async fn in_use(&self) -> Result<Arc<UsedAddresses>> {
        Ok(Arc::default())
    }

    /// Who uses this address, as the API server says now.
    async fn use_of(&self, address: IpAddr) -> Result<AddressUse>;

    /// Writes a claim, if the stored one still has the [`version`](AddressClaim::version) of `claim`. Returns the claim with
    /// its new version. The API server decides between several writers, so one address never has two first holders.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict): the stored claim is another one, or somebody else uses the address.
    /// [`use_of`](Self::use_of) says who.
    async fn write_claim(&self, claim: &AddressClaim) -> Result<AddressClaim>;

    /// Deletes a claim, if the stored one still has the version of `claim`. Succeeds if it is already gone.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict): the stored claim is another one.
    async fn delete_claim(&self, claim: &AddressClaim) -> Result<()>;

    /// Whether this very Service exists. A provider asks before it releases what a Service holds that it was not asked to
    /// delete. That it does not exist is what the API server says now; that it exists may be old by a moment.
    async fn exists(&self, service: &ServiceRef) -> Result<bool>;

    /// Changes annotations, labels and `spec.loadBalancerIP` of a Service. Nothing is written if `change` is empty.
    ///
    /// In [`ensure`](crate::LoadBalancer::ensure) and [`delete`](crate::LoadBalancer::delete) for this Service, it must still be as
    /// the call gave it. And the change is no reason for another call: what was written here counts as known. At other times
    /// the change is made whatever the Service is by then, and counts as a change by somebody else.
    ///
    /// # Errors
    /// - [`NotFound`](crate::ErrorKind::NotFound): the Service is gone, or another one has its name.
    /// - [`Conflict`](crate::ErrorKind::Conflict): the Service is not as that call gave it any more. End the call with this
    ///   error; the daemon reads the Service again and repeats the call.
    async fn change_service(&self, service: &ServiceRef, change: &ServiceChange) -> Result<()>;

    /// How long from now no other daemon can lead, whatever becomes of this one. Zero if this daemon does not lead. It shrinks
    /// from one renewal of the Lease to the next, and to nothing if they fail. `Duration::MAX` without an election.
    ///
    /// What this host does as the leader, and goes on with when the daemon is killed, must end by itself within that time.
    fn alone_for(&self) -> Duration;

    /// Has all Services that wait after a failed [`ensure`](crate::LoadBalancer::ensure), or for
    /// [more](Self::waits_for_more), ensured again now. A provider calls this when there is something new that they may wait
    /// for, such as more addresses. Returns at once.
    fn retry_waiting(&self);

    /// Says, in [`ensure`](crate::LoadBalancer::ensure) for this Service, that the load balancer works and lacks something that
    /// would be welcome, such as an address of its second family. Counts until it is ensured again. Returns at once.
    fn waits_for_more(&self, service: &ServiceRef);

    /// Records a Warning event on a Service. Returns at once. `reason` is a CamelCase word.
    fn warn(&self, service: &ServiceRef, reason: &'static str, message: String);

    /// Follows a `ConfigMap`. The stream begins with the present content and continues with each change; `None` means that
    /// there is no such `ConfigMap`. It ends only with the daemon. If the `ConfigMap` cannot be read, the stream yields an
    /// error that names it, and goes on.
    fn follow_config_map(&self, name: &ConfigMapName) -> ConfigMapStream;

    /// Calls `what` at the end of each term that ends by a stop, before the Lease is given back. A lost term ends with the
    /// process, and nothing is called.
    fn at_end_of_term(&self, what: Weak<dyn EndOfTerm>);
}

/// The versions of a `ConfigMap`'s `data`, the newest last.
pub type ConfigMapStream = BoxStream<'static, Result<Option<BTreeMap<String, String>>>>;

/// What ends with a term of leadership.
#[async_trait]
pub trait EndOfTerm: Send + Sync {
    /// Ends what only a leader does, such as answering for addresses. Another leader may begin as soon as this has succeeded.
    ///
    /// # Errors
    /// Something goes on until it ends [by itself](ServiceAccess::alone_for). The Lease is not given back then, and another
    /// leader begins when it expires. The same is done if this takes longer than two seconds.
    async fn stand_down(&self) -> Result<()>;
}

/// Names a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceRef {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
}

impl fmt::Display for ServiceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A claim of an address: an object of its own in the cluster, so that two daemons can never hand out one address twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressClaim {
    /// The address.
    pub address: IpAddr,
    /// The Services that hold it, at least one. There are several only if they share it.
    pub holders: Vec<AddressHolder>,
    /// The version of the object. Empty for a claim that is not stored yet.
    pub version: String,
}

/// Who uses an address, as far as the cluster knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// Nobody.
    Free,
    /// The holders of a claim that a daemon of this cluster has written.
    Claimed(AddressClaim),
    /// Something else, named for people: `services kube-system/dns` for the cluster IP of that Service.
    Elsewhere(String),
}

/// Who uses an address without a claim, as the cluster shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressUser {
    /// The Node of this name has it in `status.addresses`.
    Node(String),
    /// The API server answers there.
    ApiServer,
    /// This Service has it in `spec.externalIPs`.
    ExternalIp(ServiceRef),
    /// This Service has a load balancer of another class, and the address in its status.
    OtherLoadBalancer(ServiceRef),
    /// The cloud itself answers there, such as a hypervisor.
    Cloud,
    /// A Cluster of Cluster API has it as its control plane's endpoint. The control plane may be a Service of the Cluster's namespace,
    /// which asks for it.
    ControlPlane {
        /// The namespace of the Cluster.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The addresses that the cluster shows in use beside claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedAddresses {
    users: HashMap<IpAddr, Vec<AddressUser>>,
}

impl UsedAddresses {
    /// Notes a user of an address.
    pub fn insert(&mut self, address: IpAddr, user: AddressUser) {
        let users = self.users.entry(address).or_default();
        if !users.contains(&user) {
            users.push(user);
        }
    }

    /// Forgets a user of an address.
    pub fn remove(&mut self, address: IpAddr, user: &AddressUser) {
        if let Some(users) = self.users.get_mut(&address) {
            users.retain(|other| other != user);
            if users.is_empty() {
                self.users.remove(&address);
            }
        }
    }

    /// Who uses this address.
    pub fn of(&self, address: IpAddr) -> &[AddressUser] {
        self.users.get(&address).map(Vec::as_slice).unwrap_or_default()
    }

    /// All addresses with their users, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, &AddressUser)> {
        self.users.iter().flat_map(|(address, users)| users.iter().map(move |user| (*address, user)))
    }
}

impl Extend<(IpAddr, AddressUser)> for UsedAddresses {
    fn extend<I: IntoIterator<Item = (IpAddr, AddressUser)>>(&mut self, users: I) {
        for (address, user) in users {
            self.insert(address, user);
        }
    }
}

impl FromIterator<(IpAddr, AddressUser)> for UsedAddresses {
    fn from_iter<I: IntoIterator<Item = (IpAddr, AddressUser)>>(users: I) -> Self {
        let mut used = Self::default();
        used.extend(users);
        used
    }
}

/// A Service that holds an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressHolder {
    /// The Service.
    pub service: ServiceRef,
    /// Services with the same key may share an address. `None`: it is not shared.
    pub sharing_key: Option<String>,
    /// The Service's ports as `80/TCP`, sorted. Services that share an address have no port in common.
    pub ports: Vec<String>,
}

/// A change of a Service's metadata and of `spec.loadBalancerIP`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceChange {
    /// Annotations to set, or to remove where the value is `None`.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Labels to set, or to remove where the value is `None`.
    pub labels: BTreeMap<String, Option<String>>,
    /// `spec.loadBalancerIP`: `Some` to set it, `Some(None)` to remove it.
    pub load_balancer_ip: Option<Option<String>>,
}

impl ServiceChange {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.labels.is_empty() && self.load_balancer_ip.is_none()
    }
}

/// Names a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigMapName {
    /// Its namespace.
    pub namespace: String,
    /// Its name in the namespace.
    pub name: String,
}

impl fmt::Display for ConfigMapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a provider needs of [`ServiceAccess`]. The daemon's account must be allowed to do this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAccessNeeds {
    /// It claims addresses.
    pub claims: bool,
    /// It changes Services.
    pub changes: bool,
    /// The `ConfigMap`s that it follows.
    pub config_maps: Vec<ConfigMapName>,
}

/// Access without a cluster: everything fails as [`Unsupported`](crate::ErrorKind::Unsupported).
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServiceAccess;

impl NoServiceAccess {
    fn error() -> Error {
        Error::unsupported("there is no cluster whose Services can be read and written")
    }
}

#[async_trait]
impl ServiceAccess for NoServiceAccess {
    async fn claims(&self) -> Result<Vec<AddressClaim>> {
        Err(Self::error())
    }

    async fn use_of(&self, _: IpAddr) -> Result<AddressUse> {
        Err(Self::error())
    }

    async fn write_claim(&self, _: &AddressClaim) -> Result<AddressClaim> {
        Err(Self::error())
    }

    async fn delete_claim(&self, _: &AddressClaim) -> Result<()> {
        Err(Self::error())
    }

    async fn exists(&self, _: &ServiceRef) -> Result<bool> {
        Err(Self::error())
    }

    async fn change_service(&self, _: &ServiceRef, _: &ServiceChange) -> Result<()> {
        Err(Self::error())
    }

    fn alone_for(&self) -> Duration {
        Duration::ZERO
    }

    fn retry_waiting(&self) {}

    fn waits_for_more(&self, _: &ServiceRef) {}

    fn warn(&self, _: &ServiceRef, _: &'static str, _: String) {}

    fn follow_config_map(&self, name: &ConfigMapName) -> ConfigMapStream {
        let error = Error::unsupported(format!(
            "ConfigMap {name} cannot be read: there is no cluster to read it from"
        ));
        stream::once(future::ready(Err(error))).chain(stream::pending()).boxed()
    }

    fn at_end_of_term(&self, _: Weak<dyn EndOfTerm>) {}
}
