//! Tools for tests of providers and controllers: a fake cloud that a test controls, and the rules of the
//! contract as suites that any provider can run. Feature `testing`.
//!
//! # The fake cloud
//!
//! A [`FakeCloud`] is a handle to the state of a cloud: instances, load balancers, routes, faults, and the
//! calls that were made. Handles can be cloned. [`FakeCloud::provider`] creates a provider on this cloud. A
//! test may create several, which start and end independently.
//!
//! | A test needs | and calls |
//! |---|---|
//! | instances that come, change and go | [`put`](FakeCloud::put), [`change`](FakeCloud::change), [`remove`](FakeCloud::remove), [`lose`](FakeCloud::lose) |
//! | answers of its own | [`answer_with`](FakeCloud::answer_with), [`zones_with`](FakeCloud::zones_with), [`own_with`](FakeCloud::own_with), [`changes_with`](FakeCloud::changes_with) |
//! | a [`Fault`] in every call, in the next one, for one instance, for some nodes | [`fail`](FakeCloud::fail), [`fail_next`](FakeCloud::fail_next), [`fail_instance`](FakeCloud::fail_instance), [`fail_nodes`](FakeCloud::fail_nodes) |
//! | slowness | [`set_latency`](FakeCloud::set_latency), [`set_latency_per_node`](FakeCloud::set_latency_per_node) |
//! | machines: long work, late addresses, work that fails, a daemon that dies between any two calls | [`with_machines`](FakeCloud::with_machines), [`set_task_time`](FakeCloud::set_task_time), [`set_address_time`](FakeCloud::set_address_time), [`fail_next_task`](FakeCloud::fail_next_task), [`crash_after`](FakeCloud::crash_after), [`objects`](FakeCloud::objects) |
//! | a lost connection | [`disconnect`](FakeCloud::disconnect), [`reconnect`](FakeCloud::reconnect) |
//! | to know what was asked | [`calls`](FakeCloud::calls), [`count`](FakeCloud::count) |
//!
//! Without a fault, the fake cloud keeps every rule of the contract.
//!
//! ```
//! use cloudprovider::{InstanceLookup, NodeIdentity, testing::{FakeCloud, FakeInstance, Fault, Operation}};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
//! let cloud = FakeCloud::new();
//! cloud.put("uuid-1", FakeInstance::running("10.0.0.1"));
//! let provider = cloud.provider();
//! let node = NodeIdentity { system_uuid: Some("uuid-1".into()), ..NodeIdentity::default() };
//! let instances = provider.instances().expect("it has instances");
//! assert!(matches!(instances.lookup(&[&node]).await[..], [InstanceLookup::Present(_)]));
//!
//! cloud.fail_next(Operation::Lookup, Fault::Absent);
//! assert!(matches!(instances.lookup(&[&node]).await[..], [InstanceLookup::Absent]));
//! assert_eq!(cloud.count(Operation::Lookup), 2);
//! # });
//! ```
//!
//! # The fake cluster
//!
//! A [`FakeServiceAccess`] is a cluster as [`ServiceAccess`](crate::ServiceAccess) shows it, with Services, claims of
//! addresses and `ConfigMap`s: for load balancers that no cloud runs.
//!
//! # The conformance suites
//!
//! [`conformance::run`] takes [`Hooks`](conformance::Hooks), which create a provider and act on its cloud. It
//! returns a [`Report`](conformance::Report), which says for each rule of the contract whether it holds and
//! what was checked, or why it could not be checked. The suites need no Kubernetes and no particular test
//! harness.
//!
//! | Suite | Rules about |
//! |---|---|
//! | [`Lookups`](conformance::Suite::Lookups) | the three answers, their order, batches of 0, 1 and 10,000 nodes, strange nodes, calls that are cancelled, faults of the cloud |
//! | [`Changes`](conformance::Suite::Changes) | every change reported to every stream, none missed after a lost connection, none after the stop |
//! | [`ProviderIds`](conformance::Suite::ProviderIds) | round trips, foreign and broken IDs |
//! | [`LoadBalancers`](conformance::Suite::LoadBalancers) | found, ensured again and deleted, by another provider too; cancelled calls; a cloud that cannot be reached |
//! | [`Routes`](conformance::Suite::Routes) | the same for routes, and the routes of another cluster |
//! | [`Machines`](conformance::Suite::Machines) | made once whatever happens, deleted as a whole, nothing foreign touched; restarts, steps that are cut off, lost statuses, failed work; 1,000 at once; the Node's provider ID and addresses; the end of every wait told |
//! | [`Configuration`](conformance::Suite::Configuration) | every problem at once, no panic on any text, no secret in any message |
//! | [`Lifecycle`](conformance::Suite::Lifecycle) | `start`, `stop` and `ended`, a cloud that cannot be reached at the start, two providers at once |
//!
//! ```
//! use std::sync::Arc;
//!
//! use cloudprovider::{
//!     CloudProvider, NodeIdentity, Result, async_trait,
//!     testing::{FakeCloud, FakeInstance, conformance::{self, Hook, Hooks}},
//! };
//!
//! struct MyHooks(FakeCloud);
//!
//! #[async_trait]
//! impl Hooks for MyHooks {
//!     fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
//!         Ok(self.0.provider())
//!     }
//!     async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
//!         Ok(vec![NodeIdentity { name: "node-1".into(), system_uuid: Some("uuid-1".into()), ..Default::default() }])
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
//! let cloud = FakeCloud::new();
//! cloud.put("uuid-1", FakeInstance::running("10.0.0.1"));
//! let report = conformance::run(&MyHooks(cloud)).await;
//! println!("{report}");
//! assert!(report.is_conforming());
//! # });
//! ```

pub mod conformance;
mod fake;
mod service_access;

pub use fake::{
    Call, FAKE_FLAVOR, FAKE_GUEST, FAKE_REGION, FakeCloud, FakeClusterSpec, FakeInstance, FakeLoadBalancer,
    FakeMachineSpec, FakeMachineStatus, Fault, Held, Operation,
};
pub use service_access::{AccessCall, AccessFault, FakeServiceAccess};
