//! Load balancers that are addresses from pools: for clusters without a cloud that has load balancers.
//!
//! A Service of type `LoadBalancer` gets an address of a pool. Somebody announces it, so that packets for it reach a Node;
//! kube-proxy does the rest. That is either the daemon itself, or kube-vip, MetalLB or Cilium, which are told by their
//! annotations.
//!
//! ```text
//!   Service ──> request ─┐
//!   configuration, or kube-vip's ConfigMap ──> pools ─┼─> allocate (pure) ──> plan ──> claims, annotations, announcement
//!   claims in the cluster ──> ledger ──> index ───────┘
//! ```
//!
//! - **A claim is an object in the cluster** ([`AddressClaim`](cloudprovider::AddressClaim)). The API server decides who
//!   gets an address, so two daemons never hand out one twice. Nothing has to be remembered over a restart.
//! - **First claim, then use; last release.** A crash between any two steps leaves a claim that the Service still
//!   finds as its own, never an address in use without a claim.
//! - **Addresses stay.** A Service keeps what it holds as long as it may, whatever becomes of the pools.
//!
//! A provider reads its section with [`Config::read`], creates a [`PooledLoadBalancer`], starts it in
//! [`CloudProvider::start`](cloudprovider::CloudProvider::start), and returns it as its load balancer.

mod allocate;
mod announce;
mod config;
mod conventions;
mod current;
mod excess;
mod faults;
mod host;
mod index;
pub mod kube_vip;
mod ledger;
mod load_balancer;
mod local;
mod pool;
mod range;
mod request;
mod runs;
#[cfg(test)]
mod testing;
mod warnings;

pub use announce::{Announce, Fault};
pub use config::{Config, Source};
pub use conventions::{Announcer, KUBE_VIP_IPS, Outcome, PICKED, POOL, SHARING_KEY};
pub use host::HostAnnouncer;
pub use load_balancer::PooledLoadBalancer;
pub use local::{KubeProxy, LocalEndpoints};
pub use pool::{Choice, Pool, Pools, Sharing};
pub use range::{AddressRange, AddressSet, Family, Order, RangeFault, RangeText};
