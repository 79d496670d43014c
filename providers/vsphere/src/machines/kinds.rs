//! The kinds of the objects.

use cloudprovider::machines::{AuxiliaryKind, GROUP, Kind, Kinds};

use super::v1beta1_conditions;

/// The condition of a `VSphereMachine` and its `VSphereVM` that programs which know them look at.
pub(crate) const PROVISIONED: &str = "VirtualMachineProvisioned";

/// `VSphereMachine`, `VSphereCluster` and their templates. The steps work on v1beta2. Cluster API Provider vSphere works on them too.
pub(crate) const KINDS: Kinds = Kinds::new(
    "v1beta2",
    Kind::new("VSphereMachine", "vspheremachines")
        .with_v1beta1_conditions(v1beta1_conditions::OF_MACHINE)
        .with_ready_twin(PROVISIONED),
    Kind::new("VSphereCluster", "vsphereclusters").with_v1beta1_conditions(v1beta1_conditions::OF_CLUSTER),
)
.with_auxiliary(&[
    VM_KIND,
    DEPLOYMENT_ZONE_KIND,
    FAILURE_DOMAIN_KIND,
    CLAIM_KIND,
    ADDRESS_KIND,
    CLUSTER_IDENTITY_KIND,
    NAMESPACE_KIND,
])
.with_secrets()
.with_reset()
.shared();

/// The virtual machine of a `VSphereMachine`.
pub(crate) const VM: Kind =
    Kind::new("VSphereVM", "vspherevms").with_v1beta1_conditions(v1beta1_conditions::OF_VM);

/// Credentials for several namespaces.
pub(crate) const CLUSTER_IDENTITY: Kind = Kind::new("VSphereClusterIdentity", "vsphereclusteridentities")
    .with_v1beta1_conditions(v1beta1_conditions::OF_IDENTITY);

/// A place for machines.
pub(crate) const DEPLOYMENT_ZONE: Kind = Kind::new("VSphereDeploymentZone", "vspheredeploymentzones")
    .with_v1beta1_conditions(v1beta1_conditions::OF_ZONE);

/// A part of vSphere that can fail as a whole.
pub(crate) const FAILURE_DOMAIN: Kind = Kind::new("VSphereFailureDomain", "vspherefailuredomains");

/// `VSphereClusterIdentity`, which the steps read. Cluster API Provider vSphere leaves its finalizer.
pub(crate) const CLUSTER_IDENTITY_KIND: AuxiliaryKind =
    AuxiliaryKind::new(GROUP, "v1beta2", CLUSTER_IDENTITY)
        .cluster_scoped()
        .status_only()
        .with_left_finalizers(&["vsphereclusteridentity/infrastructure.cluster.x-k8s.io"]);

/// Namespaces: an identity is for those with certain labels.
pub(crate) const NAMESPACE_KIND: AuxiliaryKind =
    AuxiliaryKind::new("", "v1", Kind::new("Namespace", "namespaces")).cluster_scoped();

/// `VSphereVM`, which the steps want beside each `VSphereMachine`. Cluster API Provider vSphere leaves its finalizers on those that
/// it has made.
pub(crate) const VM_KIND: AuxiliaryKind =
    AuxiliaryKind::new(GROUP, "v1beta2", VM).made().with_left_finalizers(&[
        "vspherevm.infrastructure.cluster.x-k8s.io",
        "vspherevm.infrastructure.cluster.x-k8s.io/ip-claim-protection",
    ]);

/// `VSphereDeploymentZone`, which the steps read and whose status is told. It has the finalizer of Cluster API Provider vSphere, which
/// is for the same.
pub(crate) const DEPLOYMENT_ZONE_KIND: AuxiliaryKind = AuxiliaryKind::new(GROUP, "v1beta2", DEPLOYMENT_ZONE)
    .cluster_scoped()
    .status_only()
    .failure_domains("vspheredeploymentzone.infrastructure.cluster.x-k8s.io");

/// `VSphereFailureDomain`, which the steps read.
pub(crate) const FAILURE_DOMAIN_KIND: AuxiliaryKind =
    AuxiliaryKind::new(GROUP, "v1beta2", FAILURE_DOMAIN).cluster_scoped();

/// The group of addresses and pools, which Cluster API's core has.
const IPAM_GROUP: &str = "ipam.cluster.x-k8s.io";

/// Asks a pool for an address. The steps want one for each pool of a network device. The finalizer is that of Cluster API Provider
/// vSphere: an address that a virtual machine uses is given to nobody else.
pub(crate) const CLAIM_KIND: AuxiliaryKind =
    AuxiliaryKind::new(IPAM_GROUP, "v1beta2", Kind::new("IPAddressClaim", "ipaddressclaims"))
        .made()
        .held_by("vspherevm.infrastructure.cluster.x-k8s.io/ip-claim-protection");

/// What a claim got.
pub(crate) const ADDRESS_KIND: AuxiliaryKind =
    AuxiliaryKind::new(IPAM_GROUP, "v1beta2", Kind::new("IPAddress", "ipaddresses"));
