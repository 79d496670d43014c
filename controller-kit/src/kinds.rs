//! How Cluster API finds the definition of a kind.

/// The plural by which Cluster API finds the CRD of a kind.
pub fn regular_plural(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    let is_after_consonant = |ending: &str| {
        kind.strip_suffix(ending).is_some_and(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']))
    };
    if is_after_consonant("y") {
        return format!("{}ies", &kind[..kind.len() - 1]);
    }
    let is_hissing = ["s", "x", "z", "ch", "sh"].iter().any(|ending| kind.ends_with(ending));
    if is_hissing { format!("{kind}es") } else { format!("{kind}s") }
}

#[cfg(test)]
mod tests {
    use super::regular_plural;

    #[test]
    fn plurals_are_regular() {
        for (kind, plural) in [
            ("LibvirtMachine", "libvirtmachines"),
            ("VSphereVM", "vspherevms"),
            ("VSphereClusterIdentity", "vsphereclusteridentities"),
            ("Gateway", "gateways"),
            ("KeyBox", "keyboxes"),
        ] {
            assert_eq!(regular_plural(kind), plural);
        }
    }
}
