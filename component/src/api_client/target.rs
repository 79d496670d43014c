//! The object of a request, according to its path.

/// Parts of a path such as `/api/v1/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE`. Missing parts are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Target<'p> {
    pub group: &'p str,
    pub namespace: &'p str,
    pub resource: &'p str,
    pub name: &'p str,
    pub subresource: &'p str,
}

impl<'p> Target<'p> {
    /// `None` for a path that does not name a resource, such as `/version`.
    pub(super) fn of(path: &'p str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let _version = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            // Namespaces have only these two subresources, and no resource has such a name.
            ["namespaces", namespace, rest @ ..]
                if !rest.is_empty() && rest != ["status"] && rest != ["finalize"] =>
            {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default();
        if part(0).is_empty() {
            return None;
        }
        Some(Self { group, namespace, resource: part(0), name: part(1), subresource: part(2) })
    }

    /// The form of RBAC rules: `nodes/status`.
    pub(super) fn resource_with_subresource(&self) -> String {
        match self.subresource {
            "" => self.resource.to_owned(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }

    /// `NAMESPACE/NAME` or `NAME`.
    pub(super) fn full_name(&self, name: &str) -> String {
        if self.namespace.is_empty() { name.to_owned() } else { format!("{}/{name}", self.namespace) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        for (path, group, namespace, resource, name, subresource) in [
            ("/api/v1/nodes", "", "", "nodes", "", ""),
            ("/api/v1/nodes/a/status", "", "", "nodes", "a", "status"),
            ("/api/v1/namespaces/default/events/e", "", "default", "events", "e", ""),
            ("/api/v1/namespaces/x", "", "", "namespaces", "x", ""),
            ("/api/v1/namespaces/x/status", "", "", "namespaces", "x", "status"),
            ("/api/v1/namespaces/k/serviceaccounts/n/token", "", "k", "serviceaccounts", "n", "token"),
            (
                "/apis/coordination.k8s.io/v1/namespaces/k/leases/l",
                "coordination.k8s.io",
                "k",
                "leases",
                "l",
                "",
            ),
        ] {
            let expected = Target { group, namespace, resource, name, subresource };
            assert_eq!(Target::of(path), Some(expected), "{path}");
        }
        for path in ["/version", "/healthz", "/api/v1", "/apis", "", "/"] {
            assert_eq!(Target::of(path), None, "{path}");
        }
    }
}
