//! The keys of the configuration, in all three spellings.

/// A key of the configuration.
#[derive(Debug)]
pub(super) struct Key {
    /// The path in YAML. It identifies the key.
    pub(super) name: &'static str,
    /// The section in gcfg.
    pub(super) section: &'static str,
    /// The variable of this section.
    pub(super) variable: &'static str,
    /// The environment variable, if there is one.
    pub(super) environment: Option<&'static str>,
    /// The type of its values.
    pub(super) kind: Kind,
}

/// The type of a key's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any text.
    Text,
    /// A text that no message may contain.
    Secret,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Number,
    /// A duration in Go's notation.
    Duration,
}

const fn key(name: &'static str, section: &'static str, variable: &'static str, kind: Kind) -> Key {
    Key { name, section, variable, environment: None, kind }
}

const fn with_environment(key: Key, environment: &'static str) -> Key {
    Key { environment: Some(environment), ..key }
}

/// All keys. `cattle-url`, `cattle-access-key` and `cattle-secret-key` are those of
/// rancher-cloud-controller-manager.
pub(super) const KEYS: &[Key] = &[
    with_environment(key("url", "Global", "cattle-url", Kind::Text), "CATTLE_URL"),
    key("apiVersion", "Global", "api-version", Kind::Text),
    with_environment(key("accessKey", "Global", "cattle-access-key", Kind::Secret), "CATTLE_ACCESS_KEY"),
    key("accessKeyFile", "Global", "cattle-access-key-file", Kind::Text),
    with_environment(key("secretKey", "Global", "cattle-secret-key", Kind::Secret), "CATTLE_SECRET_KEY"),
    key("secretKeyFile", "Global", "cattle-secret-key-file", Kind::Text),
    key("token", "Global", "token", Kind::Secret),
    key("tokenFile", "Global", "token-file", Kind::Text),
    key("clusterID", "Global", "cluster-id", Kind::Text),
    key("clusterName", "Global", "cluster-name", Kind::Text),
    key("namespace", "Global", "namespace", Kind::Text),
    key("projectID", "Global", "project-id", Kind::Text),
    key("caFile", "Global", "ca-file", Kind::Text),
    key("caCert", "Global", "ca-cert", Kind::Text),
    key("insecureSkipVerify", "Global", "insecure-skip-verify", Kind::Flag),
    key("timeout", "Global", "timeout", Kind::Duration),
    key("pageSize", "Global", "page-size", Kind::Number),
    key("refreshInterval", "Global", "refresh-interval", Kind::Duration),
    key("pollInterval", "Global", "poll-interval", Kind::Duration),
    key("addresses.types", "Addresses", "types", Kind::Text),
    key("addresses.nodeIPCIDR", "Addresses", "node-ip-cidr", Kind::Text),
    key("addresses.excludeCIDRs", "Addresses", "exclude-cidrs", Kind::Text),
    key("zones.zoneLabel", "Zones", "zone-label", Kind::Text),
    key("zones.regionLabel", "Zones", "region-label", Kind::Text),
    key("zones.legacyZones", "Zones", "legacy-zones", Kind::Flag),
    key("loadBalancer.mode", "LoadBalancer", "mode", Kind::Text),
    key("loadBalancer.stackName", "LoadBalancer", "stack-name", Kind::Text),
    key("loadBalancer.stackExternalID", "LoadBalancer", "stack-external-id", Kind::Text),
    key("loadBalancer.imageSetting", "LoadBalancer", "image-setting", Kind::Text),
    key("loadBalancer.reservedPorts", "LoadBalancer", "reserved-ports", Kind::Text),
    key("loadBalancer.retryInterval", "LoadBalancer", "retry-interval", Kind::Duration),
    key("loadBalancer.harvester.kubeconfig", "Harvester", "kubeconfig", Kind::Text),
    key("loadBalancer.harvester.namespace", "Harvester", "namespace", Kind::Text),
    key("loadBalancer.harvester.ipam", "Harvester", "ipam", Kind::Text),
    key("loadBalancer.harvester.ipPool", "Harvester", "ip-pool", Kind::Text),
    key("loadBalancer.harvester.network", "Harvester", "network", Kind::Text),
    key("loadBalancer.harvester.interface", "Harvester", "interface", Kind::Text),
    key("loadBalancer.harvester.announcedBy", "Harvester", "announced-by", Kind::Text),
    key("loadBalancer.harvester.serviceAnnotations", "Harvester", "service-annotations", Kind::Text),
];

/// The key that is called so in YAML.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The names of the keys that begin so.
pub(super) fn below(prefix: &str) -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name).filter(move |name| name.starts_with(prefix))
}

/// Whether `path` is a mapping of keys in YAML.
pub(super) fn is_mapping(path: &str) -> bool {
    KEYS.iter().any(|key| key.name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// The message about an unknown name: the most similar known one, or all. The name may hold a value, so it is
/// not shown.
pub(super) fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let squeezed = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let known: Vec<_> = known.collect();
    let nearest = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&squeezed(name), &squeezed(known)), *known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(4));
    match nearest {
        Some((_, nearest)) => format!("did you mean {nearest}?"),
        None => format!("known here: {}", known.join(", ")),
    }
}

/// Whether a name looks like a key and like nothing else, so that it may be shown.
pub(super) fn is_plain(name: &str) -> bool {
    let holds_a_value = ["pass", "secret", "token", "key", "user"].iter().any(|word| {
        let name = name.to_ascii_lowercase();
        name.contains(word)
    }) || name.bytes().any(|b| b.is_ascii_digit());
    name.len() <= 40
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        && !holds_a_value
}
