//! The gates that the Go framework's binary knows, as its `--feature-gates` has them.

use super::{
    Gate,
    Stage::{self, Alpha, Beta, Deprecated, Ga},
};

const fn known(name: &'static str, stage: Stage, default: bool, locked: bool) -> Gate {
    Gate { name, stage, default, locked }
}

/// Of k8s.io/cloud-provider 0.36, with the generic API server's that are linked into it. Sorted.
pub(super) const KNOWN: &[Gate] = &[
    known("APIResponseCompression", Beta, true, false),
    known("APIServerIdentity", Beta, true, false),
    known("APIServerTracing", Ga, true, true),
    known("APIServingWithRoutine", Alpha, false, false),
    known("AggregatedDiscoveryRemoveBetaType", Deprecated, true, true),
    known("AllAlpha", Alpha, false, false),
    known("AllBeta", Beta, false, false),
    known("AllowParsingUserUIDFromCertAuth", Beta, true, false),
    known("AllowUnsafeMalformedObjectDeletion", Alpha, false, false),
    known("AnonymousAuthConfigurableEndpoints", Ga, true, true),
    known("AuthorizeWithSelectors", Ga, true, true),
    known("BtreeWatchCache", Ga, true, true),
    known("CBORServingAndStorage", Alpha, false, false),
    known("CloudControllerManagerWatchBasedRoutesReconciliation", Alpha, false, false),
    known("CloudControllerManagerWebhook", Alpha, false, false),
    known("ComponentFlagz", Beta, true, false),
    known("ComponentStatusz", Beta, true, false),
    known("ConcurrentWatchObjectDecode", Beta, false, false),
    known("ConsistentListFromCache", Ga, true, true),
    known("ConstrainedImpersonation", Beta, true, false),
    known("ContextualLogging", Beta, true, false),
    known("ControllerManagerReleaseLeaderElectionLockOnExit", Alpha, false, false),
    known("CoordinatedLeaderElection", Beta, false, false),
    known("DeclarativeValidation", Ga, true, true),
    known("DeclarativeValidationBeta", Beta, true, false),
    known("DeclarativeValidationTakeover", Deprecated, false, false),
    known("DetectCacheInconsistency", Beta, true, false),
    known("KMSv1", Deprecated, false, false),
    known("ListFromCacheSnapshot", Beta, true, false),
    known("LoggingAlphaOptions", Alpha, false, false),
    known("LoggingBetaOptions", Beta, true, false),
    known("ManifestBasedAdmissionControlConfig", Alpha, false, false),
    known("MutatingAdmissionPolicy", Ga, true, false),
    known("NativeHistograms", Alpha, false, false),
    known("OpenAPIEnums", Beta, true, false),
    known("RemoteRequestHeaderUID", Beta, true, false),
    known("ResilientWatchCacheInitialization", Ga, true, true),
    known("RetryGenerateName", Ga, true, true),
    known("SeparateCacheWatchRPC", Deprecated, false, true),
    known("ShardedListAndWatch", Alpha, false, false),
    known("SizeBasedListCostEstimate", Beta, true, false),
    known("StorageVersionAPI", Alpha, false, false),
    known("StorageVersionHash", Beta, true, false),
    known("StreamingCollectionEncodingToJSON", Ga, true, true),
    known("StreamingCollectionEncodingToProtobuf", Ga, true, true),
    known("StructuredAuthenticationConfiguration", Ga, true, true),
    known("StructuredAuthenticationConfigurationEgressSelector", Beta, true, false),
    known("StructuredAuthenticationConfigurationJWKSMetrics", Beta, true, false),
    known("TokenRequestServiceAccountUIDValidation", Beta, true, false),
    known("UnauthenticatedHTTP2DOSMitigation", Beta, true, false),
    known("UnknownVersionInteroperabilityProxy", Beta, true, false),
    known("WatchCacheInitializationPostStartHook", Beta, true, false),
    known("WatchList", Beta, true, false),
];

/// Gates that old manifests still set, each with what became of it.
pub(super) const GONE: &[(&str, &str)] = &[
    ("CloudDualStackNodeIPs", "dual-stack node IPs are always on since Kubernetes 1.30"),
    ("StableLoadBalancerNodeSet", "the stable set of load balancer nodes is always on since Kubernetes 1.30"),
    ("LegacyNodeRoleBehavior", "it is always off since Kubernetes 1.21"),
    ("ServiceNodeExclusion", "it is always on since Kubernetes 1.21"),
    ("NodeDisruptionExclusion", "it is always on since Kubernetes 1.21"),
    ("ServiceLBNodePortControl", "it is always on since Kubernetes 1.24"),
    ("ServiceLoadBalancerClass", "it is always on since Kubernetes 1.24"),
    ("IPv6DualStack", "it is always on since Kubernetes 1.23"),
    (
        "ControllerManagerLeaderMigration",
        "leader migration is always there since Kubernetes 1.24: --enable-leader-migration",
    ),
    ("EndpointSlice", "it is always on since Kubernetes 1.21"),
    ("CSIMigration", "it is always on since Kubernetes 1.25"),
    ("ServerSideApply", "it is always on since Kubernetes 1.22"),
];
