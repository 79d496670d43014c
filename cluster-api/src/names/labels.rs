//! Labels.

/// The name of the Cluster, on everything that belongs to it. All controllers, clusterctl and the infrastructure providers
/// find objects by it.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// On Machines of the control plane, with an empty value. clusterctl and the drain read it.
pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
/// The name of the control plane object of a Machine.
pub const CONTROL_PLANE_NAME: &str = "cluster.x-k8s.io/control-plane-name";
/// The name of the `MachineDeployment`, on its `MachineSet`s and Machines. Infrastructure providers group Machines by it.
pub const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
/// The name of the `MachineSet`, on its Machines; a hash of it where it is longer than a label may be.
pub const SET_NAME: &str = "cluster.x-k8s.io/set-name";
/// The name of the `MachinePool` of a Machine. Such a Machine needs no bootstrap object of its own.
pub const POOL_NAME: &str = "cluster.x-k8s.io/pool-name";
/// The revision of a `MachineSet` among those of its deployment, on its Machines too: selectors tell them apart by it.
pub const MACHINE_TEMPLATE_HASH: &str = "machine-template-hash";
/// Compared with `--watch-filter`: a daemon with a filter works on objects with that value alone.
pub const WATCH_FILTER: &str = "cluster.x-k8s.io/watch-filter";
/// On Nodes whose instance the cloud may take back. The infrastructure provider asks for it.
pub const INTERRUPTIBLE: &str = "cluster.x-k8s.io/interruptible";
/// On a Pod of a workload cluster: `skip` keeps it from being evicted, `wait-completed` makes the drain wait for its end.
/// It counts more than any `MachineDrainRule`.
pub const POD_DRAIN: &str = "cluster.x-k8s.io/drain";
/// On definitions and other parts of a provider, with its name. clusterctl finds what belongs to a provider by it.
pub const PROVIDER: &str = "cluster.x-k8s.io/provider";
/// On definitions that clusterctl may move and delete.
pub const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
/// On a definition: the versions that implement the contract of the same name. Controllers that follow a reference without
/// version read it.
pub const CONTRACT: &str = "cluster.x-k8s.io/v1beta2";
/// The prefix of role labels, which the machine controller copies from a Machine to its Node.
pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io";
/// The domain of labels that a kubelet cannot set itself; the machine controller copies them, subdomains too.
pub const NODE_RESTRICTION_DOMAIN: &str = "node-restriction.kubernetes.io";
/// The domain of labels and annotations that belong to the machine controller; it copies them, subdomains too.
pub const MANAGED_NODE_DOMAIN: &str = "node.cluster.x-k8s.io";

/// The value of a label for the name of an object: the name, or a hash of it where a label cannot have it. Cluster API writes
/// [`SET_NAME`] and [`CONTROL_PLANE_NAME`] by this rule, and they must be equal byte for byte.
pub fn value_of(name: &str) -> String {
    if is_value(name) {
        return name.to_owned();
    }
    // FNV-1a of 32 bits
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("hash_{}_z", base64_url(hash))
}

/// Whether a text can be the value of a label.
pub fn is_value(text: &str) -> bool {
    let is_inner = |letter: u8| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter);
    let is_outer = |letter: Option<&u8>| letter.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().copied().all(is_inner)
        && is_outer(bytes.first())
        && is_outer(bytes.last())
}

/// Whether a text can be the key of a label: a name of at most 63 characters, with or without a DNS domain in front.
pub fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        None => !text.is_empty() && is_value(text),
        Some((domain, name)) => is_domain(domain) && !name.is_empty() && is_value(name),
    }
}

fn is_domain(text: &str) -> bool {
    let is_inner = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(is_inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

/// The four bytes of a number in base64 for URLs, without padding: six letters.
fn base64_url(number: u32) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u64::from(number) << 4;
    (0..6).rev().map(|place| char::from(LETTERS[((bits >> (place * 6)) & 63) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_are_values_and_others_are_hashed() {
        let long = "very-long-machine-set-name-that-does-not-fit-into-the-value-of-a-label-1";
        // Go's hash/fnv and encoding/base64 made these
        for (name, value) in [
            ("md-0", "md-0"),
            ("", ""),
            ("UPPER_.", "hash_aIaQ8g_z"),
            ("-a", "hash_ZM2IGw_z"),
            (long, "hash_njrKcw_z"),
        ] {
            assert_eq!(value_of(name), value, "{name}");
        }
    }

    #[test]
    fn keys_have_a_name_and_may_have_a_domain() {
        for good in ["a", "app", "a_b.c-D", "example.org/a", "x-y.z0/A"] {
            assert!(is_key(good), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "/a", "a/", "a/b/c", "-a", "a-", "Example.org/a", "a..b/c", "-a/b", "ä", &long] {
            assert!(!is_key(bad), "{bad}");
        }
    }
}
