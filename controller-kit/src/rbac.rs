//! Permissions, in the terms of RBAC.

use std::{borrow::Cow, fmt};

/// The namespace of the API server's own configuration and of the controllers' service accounts.
pub const SYSTEM_NAMESPACE: &str = "kube-system";

/// One action of the daemon at the API server, in the terms of RBAC: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// API group, empty for the core one.
    pub group: Cow<'static, str>,
    /// Plural name of the resource, for example `nodes`.
    pub resource: Cow<'static, str>,
    /// For example `status`. Empty for the resource itself.
    pub subresource: Cow<'static, str>,
    /// The controller's own service account in `kube-system` that needs the permission
    /// (`--use-service-account-credentials`). `None`: the daemon's account.
    pub account: Option<Cow<'static, str>>,
    /// For example `get`.
    pub verb: Cow<'static, str>,
    /// The namespace. `None`: all namespaces.
    pub namespace: Option<Cow<'static, str>>,
    /// The names of the objects. Empty: all objects.
    pub resource_names: Vec<Cow<'static, str>>,
    /// The purpose, for operators: what fails without the permission.
    pub needed_for: Cow<'static, str>,
    /// Whether the daemon cannot work without it. If `false`, only the given purpose is lost.
    pub required: bool,
}

impl Permission {
    /// A permission of the daemon's own account on all objects, without which the daemon cannot work. `resource` may name a
    /// subresource: `nodes/status`.
    pub fn new(
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

    /// Limits it to one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<Cow<'static, str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Makes the permission optional: the daemon can work without it.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.required = false;
        self
    }

    /// Sets the account that needs it. `None`: the daemon's own account.
    #[must_use]
    pub fn for_account(mut self, account: Option<&'static str>) -> Self {
        self.account = account.map(Into::into);
        self
    }

    /// Limits it to the object of this name.
    #[must_use]
    pub fn on(mut self, name: impl Into<Cow<'static, str>>) -> Self {
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
