//! The gates that the Go framework's binary knows, as its `--feature-gates` has them.

use component::command_line::feature_gates::{
    FeatureGates, Gate, KnownGates,
    Stage::{self, Alpha, Beta, Deprecated, Ga},
};

/// The gates, so that a command line of the Go framework keeps working.
pub const KNOWN_GATES: KnownGates = KnownGates { gates: KNOWN, gone: GONE };

/// Gates that came with Kubernetes 1.38: the binary of 1.37 refuses them.
pub const OF_NEXT_RELEASE: [&str; 8] = [
    "AllocatorPoolBufferCap",
    "CloudNodeAdditionalLabelsReconciliation",
    "ConditionalAuthorization",
    "ConsistentGetFromCache",
    "ManagedFieldsOptOut",
    "OpenAPIV2LazyBuild",
    "RequestCostAggregation",
    "WatchFromStorageWithoutPrevKV",
];

/// Reads `A=true,B=false`.
pub(super) fn feature_gates(text: &str) -> Result<FeatureGates, String> {
    FeatureGates::parse(text, &KNOWN_GATES)
}

/// Gates that switch something here.
#[cfg(test)]
pub(super) const WITH_EFFECT: [&str; 7] = [
    "CloudControllerManagerWatchBasedRoutesReconciliation",
    "CloudNodeAdditionalLabelsReconciliation",
    "ComponentFlagz",
    "ComponentStatusz",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
    "RemoteRequestHeaderUID",
];

const fn known(name: &'static str, stage: Stage, default: bool, locked: bool) -> Gate {
    Gate { name, stage, default, locked }
}

/// Of k8s.io/cloud-provider 0.37 and the next release's ([`OF_NEXT_RELEASE`]), with the generic API server's that are linked into it. Sorted.
const KNOWN: &[Gate] = &[
    known("APIResponseCompression", Beta, true, false),
    known("APIServerIdentity", Beta, true, false),
    known("APIServerWebhookAuthenticationToken", Alpha, false, false),
    known("APIServingWithRoutine", Alpha, false, false),
    known("AggregatedDiscoveryRemoveBetaType", Deprecated, true, true),
    known("AllAlpha", Alpha, false, false),
    known("AllBeta", Beta, false, false),
    known("AllocatorPoolBufferCap", Beta, true, false),
    known("AllowParsingUserUIDFromCertAuth", Beta, true, false),
    known("AllowUnsafeMalformedObjectDeletion", Beta, true, false),
    known("CBORServingAndStorage", Alpha, false, false),
    known("CloudControllerManagerWatchBasedRoutesReconciliation", Alpha, false, false),
    known("CloudControllerManagerWebhook", Alpha, false, false),
    known("CloudNodeAdditionalLabelsReconciliation", Alpha, false, false),
    known("ComponentFlagz", Beta, true, false),
    known("ComponentStatusz", Beta, true, false),
    known("ConcurrentWatchObjectDecode", Beta, true, false),
    known("ConditionalAuthorization", Alpha, false, false),
    known("ConsistentGetFromCache", Alpha, false, false),
    known("ConsistentListFromCacheSkipTimeoutFallback", Alpha, false, false),
    known("ConstrainedImpersonation", Beta, true, false),
    known("ContextualLogging", Beta, true, false),
    known("ControllerManagerReleaseLeaderElectionLockOnExit", Alpha, false, false),
    known("CoordinatedLeaderElection", Beta, false, false),
    known("DeclarativeValidation", Ga, true, true),
    known("DeclarativeValidationBeta", Beta, true, false),
    known("DeclarativeValidationTakeover", Deprecated, false, true),
    known("DetectCacheInconsistency", Beta, true, false),
    known("EtcdRangeStream", Beta, true, false),
    known("ExcludeAdmissionWebhookVirtualResources", Beta, true, false),
    known("KMSv1", Deprecated, false, false),
    known("ListFromCacheSnapshot", Beta, true, false),
    known("LoggingAlphaOptions", Alpha, false, false),
    known("LoggingBetaOptions", Beta, true, false),
    known("ManagedFieldsOptOut", Alpha, false, false),
    known("ManifestBasedAdmissionControlConfig", Beta, true, false),
    known("MutatingAdmissionPolicy", Ga, true, false),
    known("NativeHistograms", Beta, true, false),
    known("OpenAPIEnums", Beta, true, false),
    known("OpenAPIV2LazyBuild", Beta, true, false),
    known("RemoteRequestHeaderUID", Beta, true, false),
    known("RequestCostAggregation", Alpha, false, false),
    known("SeparateCacheWatchRPC", Deprecated, false, true),
    known("ShardedListAndWatch", Alpha, false, false),
    known("SizeBasedListCostEstimate", Beta, true, false),
    known("StorageVersionAPI", Alpha, false, false),
    known("StorageVersionHash", Beta, true, false),
    known("StructuredAuthenticationConfigurationEgressSelector", Beta, true, false),
    known("StructuredAuthenticationConfigurationJWKSMetrics", Beta, true, false),
    known("TokenRequestServiceAccountUIDValidation", Beta, true, false),
    known("UnauthenticatedHTTP2DOSMitigation", Beta, true, false),
    known("UnknownVersionInteroperabilityProxy", Beta, true, false),
    known("WatchCacheInitializationPostStartHook", Ga, true, true),
    known("WatchFromStorageWithoutPrevKV", Beta, true, false),
    known("WatchList", Beta, true, false),
    known("WatchListCompression", Beta, true, false),
    known("WebhookRoundTripLoadBalancing", Beta, true, false),
];

/// Gates that old manifests still set, each with what became of it.
const GONE: &[(&str, &str)] = &[
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
    ("APIServerTracing", "it is always on since Kubernetes 1.34"),
    ("AnonymousAuthConfigurableEndpoints", "it is always on since Kubernetes 1.34"),
    ("AuthorizeWithSelectors", "it is always on since Kubernetes 1.34"),
    ("BtreeWatchCache", "it is always on since Kubernetes 1.33"),
    ("ConsistentListFromCache", "it is always on since Kubernetes 1.34"),
    ("ResilientWatchCacheInitialization", "it is always on since Kubernetes 1.34"),
    ("RetryGenerateName", "it is always on since Kubernetes 1.32"),
    ("StreamingCollectionEncodingToJSON", "it is always on since Kubernetes 1.34"),
    ("StreamingCollectionEncodingToProtobuf", "it is always on since Kubernetes 1.34"),
    ("StructuredAuthenticationConfiguration", "it is always on since Kubernetes 1.34"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled(text: &str, name: &str) -> bool {
        feature_gates(text).expect("good gates").enabled(name)
    }

    #[test]
    fn gates_have_upstreams_defaults_until_they_are_set() {
        assert!(!enabled("", "CloudControllerManagerWebhook"));
        assert!(enabled("", "ContextualLogging"));
        assert!(enabled(" CloudControllerManagerWebhook = T ", "CloudControllerManagerWebhook"));
        assert!(!enabled("WatchList=true,WatchList=0", "WatchList"));
        assert!(!enabled("", "NobodyKnowsThis"));
        assert!(KNOWN.is_sorted_by_key(|gate| gate.name));
    }

    #[test]
    fn all_of_a_stage_and_the_exceptions() {
        assert!(enabled("AllAlpha=true", "LoggingAlphaOptions"));
        assert!(!enabled("LoggingAlphaOptions=false,AllAlpha=true", "LoggingAlphaOptions"));
        assert!(!enabled("AllBeta=false", "ContextualLogging"));
        assert!(enabled("AllBeta=false", "DeclarativeValidation"), "that one is GA");
    }

    #[test]
    fn faults_are_upstreams() {
        for (text, fault) in [
            ("Foo=true", "unrecognized feature gate: Foo"),
            ("Foo", "missing bool value for Foo"),
            (
                "WatchList=x",
                "invalid value of WatchList=x, err: strconv.ParseBool: parsing \"x\": invalid syntax (expected true or false)",
            ),
            (
                "DeclarativeValidation=false",
                "cannot set feature gate DeclarativeValidation to false, feature is locked to true",
            ),
        ] {
            assert_eq!(feature_gates(text), Err(fault.to_owned()));
        }
        let several = feature_gates("Foo=true,Bar").expect_err("faults");
        assert!(several.contains("Foo") && several.contains("Bar"), "{several}");
        let gone = feature_gates("StableLoadBalancerNodeSet=true").expect_err("gone");
        assert!(
            gone.starts_with("unrecognized feature gate: StableLoadBalancerNodeSet (the gate is gone"),
            "{gone}"
        );
        let gone = feature_gates("BtreeWatchCache=true").expect_err("gone");
        assert!(gone.ends_with("it is always on since Kubernetes 1.33)"), "{gone}");
        let alike = feature_gates("CloudControllerManagerWebhooks=true").expect_err("unknown");
        assert!(alike.contains("did you mean CloudControllerManagerWebhook?"), "{alike}");
        assert_eq!(feature_gates("DeclarativeValidation=true").expect("its default").warnings().len(), 1);
    }
}
