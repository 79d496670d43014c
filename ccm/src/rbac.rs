//! A permission, as RBAC counts them.

use std::{borrow::Cow, fmt};

/// Where the API server keeps its own configuration, and controllers their service accounts.
pub(crate) const SYSTEM_NAMESPACE: &str = "kube-system";

/// One thing that the daemon does at the API server, as RBAC counts: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// API group, empty for the core one.
    pub group: Cow<'static, str>,
    /// Plural name of the resource, as in `nodes`.
    pub resource: Cow<'static, str>,
    /// Such as `status`; empty for the resource itself.
    pub subresource: Cow<'static, str>,
    /// The service account in `kube-system` that needs it, where that is a controller's own
    /// (`--use-service-account-credentials`); `None` for the daemon's.
    pub account: Option<Cow<'static, str>>,
    /// As in `get`.
    pub verb: Cow<'static, str>,
    /// Where: in one namespace, or everywhere (`None`).
    pub namespace: Option<Cow<'static, str>>,
    /// On the objects of these names only; empty for all.
    pub resource_names: Vec<Cow<'static, str>>,
    /// What does not work without it, for operators.
    pub needed_for: Cow<'static, str>,
    /// Whether the daemon cannot do its work without it; if not, only that is lost.
    pub required: bool,
}

impl Permission {
    pub(crate) fn new(
        group: &'static str,
        resource: &'static str,
        verb: &'static str,
        needed_for: &'static str,
    ) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Self {
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            account: None,
            verb: verb.into(),
            namespace: None,
            resource_names: Vec::new(),
            needed_for: needed_for.into(),
            required: true,
        }
    }

    pub(crate) fn in_namespace(mut self, namespace: impl Into<Cow<'static, str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The same, but not required: the daemon does its work without it.
    pub(crate) fn optional(mut self) -> Self {
        self.required = false;
        self
    }

    /// Needed by this account. `None`: by the daemon's own.
    pub(crate) fn for_account(mut self, account: Option<&'static str>) -> Self {
        self.account = account.map(Into::into);
        self
    }

    pub(crate) fn on(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.resource_names = vec![name.into()];
        self
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        for name in &self.resource_names {
            write!(f, " {name:?}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        if let Some(account) = &self.account {
            write!(f, " for the service account {SYSTEM_NAMESPACE}/{account}")?;
        }
        Ok(())
    }
}
