//! How Cluster API finds the definition of a kind, and types that hold a part of a kind's fields.

/// Makes a type the part of a kind that is read: `of_kind!(WireNode, k8s_openapi::api::core::v1::Node)`. Its field `metadata` is an
/// `ObjectMeta`. A watch or list of it skips what the type has no field for.
#[macro_export]
macro_rules! of_kind {
    ($part:ty, $kind:ty) => {
        impl ::kube::Resource for $part {
            type DynamicType = ();
            type Scope = <$kind as ::kube::Resource>::Scope;

            fn kind(of: &()) -> ::std::borrow::Cow<'_, str> {
                <$kind as ::kube::Resource>::kind(of)
            }
            fn group(of: &()) -> ::std::borrow::Cow<'_, str> {
                <$kind as ::kube::Resource>::group(of)
            }
            fn version(of: &()) -> ::std::borrow::Cow<'_, str> {
                <$kind as ::kube::Resource>::version(of)
            }
            fn plural(of: &()) -> ::std::borrow::Cow<'_, str> {
                <$kind as ::kube::Resource>::plural(of)
            }
            fn meta(&self) -> &::kube::api::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ::kube::api::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

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
