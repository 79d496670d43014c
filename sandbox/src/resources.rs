//! The kinds that the API serves, and the rules by which they differ.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::{
    coordination::v1::Lease, core::v1, discovery::v1::EndpointSlice, networking::v1::IPAddress,
};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use serde_json::Value;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// One resource type: names, scope and subresources, as in discovery.
///
/// Created by [`ResourceKind::new`] and the methods after it, or from a CRD by [`ResourceKind::from_crd`].
/// Served after [`Sandbox::register`](crate::Sandbox::register).
#[derive(Debug, Clone)]
pub struct ResourceKind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// `/status` exists, and status is written only through it.
    pub(crate) status: bool,
    pub(crate) columns: Vec<Column>,
    pub(crate) rules: Rules,
}

/// One additional printer column of `kubectl get`.
#[derive(Debug, Clone)]
pub struct Column {
    pub(crate) name: String,
    /// `string`, `integer`, `date`, ...
    pub(crate) kind: String,
    /// JSON pointer into the object. `a[?(@.type=="X")].b` selects the first matching entry.
    pub(crate) path: String,
    /// 0 is always shown, more than 0 only with `-o wide`.
    pub(crate) priority: i32,
}

/// The differences between the API server's strategies for the kinds.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// Whether PUT to a name that does not exist creates the object.
    pub(crate) create_on_update: bool,
    /// Whether PUT without `metadata.resourceVersion` overwrites the object.
    pub(crate) unconditional_update: bool,
    /// Whether `metadata.generation` counts changes outside metadata and status.
    pub(crate) generation: bool,
    /// Whether the status in a create is kept (for Nodes: the kubelet registers with one).
    pub(crate) status_on_create: bool,
    /// Whether a write to `/status` may also change labels and annotations.
    pub(crate) status_writes_metadata: bool,
    /// Whether DELETE returns the object instead of a Status.
    pub(crate) delete_returns_object: bool,
    /// Whether strategic merge patches are supported: that needs Go types with patch strategies.
    pub(crate) strategic: bool,
    /// Whether items of a list have no kind and apiVersion, as in typed lists of the API server.
    pub(crate) bare_items: bool,
    /// Fields that a field selector may use, besides metadata.name and metadata.namespace.
    pub(crate) fields: &'static [&'static str],
    /// Pointers to fields that are removed if empty, as by `omitempty`.
    pub(crate) omit_empty: &'static [&'static str],
    /// Top-level fields that have another name in storage: (stored, served). Core and `events.k8s.io` Events
    /// are the same objects.
    pub(crate) renames: &'static [(&'static str, &'static str)],
    /// Checks whether the fields of an object (in storage form) have the types of the Go type. The error says
    /// which one does not.
    pub(crate) check: fn(&Value) -> Result<(), String>,
    /// The group whose storage is used, if it is not the kind's own.
    pub(crate) storage_group: Option<&'static str>,
}

impl Rules {
    /// The rules for custom resources.
    const CUSTOM: Self = Self {
        create_on_update: false,
        unconditional_update: false,
        generation: true,
        status_on_create: false,
        status_writes_metadata: false,
        delete_returns_object: false,
        strategic: false,
        bare_items: false,
        fields: &[],
        omit_empty: &[],
        renames: &[],
        check: |_| Ok(()),
        storage_group: None,
    };

    /// The common rules of built-in kinds.
    const BUILT_IN: Self = Self {
        unconditional_update: true,
        generation: false,
        status_writes_metadata: true,
        strategic: true,
        bare_items: true,
        ..Self::CUSTOM
    };
}

impl ResourceKind {
    /// A custom resource: cluster-scoped, without status subresource, singular = kind in lower case.
    pub fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: false,
            status: false,
            columns: Vec::new(),
            rules: Rules::CUSTOM,
        }
    }

    /// Every served version of a `CustomResourceDefinition`.
    ///
    /// Versions share their objects without conversion (strategy `None`). Schemas, defaults and scale
    /// subresources are not applied.
    pub fn from_crd(crd: &CustomResourceDefinition) -> Vec<Self> {
        let spec = &crd.spec;
        let served = spec.versions.iter().filter(|version| version.served);
        served
            .map(|version| {
                let mut kind = Self::new(&spec.group, &version.name, &spec.names.kind, &spec.names.plural);
                kind.namespaced = spec.scope == "Namespaced";
                kind.status = version.subresources.as_ref().is_some_and(|s| s.status.is_some());
                if let Some(singular) = &spec.names.singular {
                    kind.singular.clone_from(singular);
                }
                kind.short_names = spec.names.short_names.clone().unwrap_or_default();
                kind.categories = spec.names.categories.clone().unwrap_or_default();
                for column in version.additional_printer_columns.iter().flatten() {
                    kind.columns.push(Column {
                        name: column.name.clone(),
                        kind: column.type_.clone(),
                        path: column.json_path.clone(),
                        priority: column.priority.unwrap_or(0),
                    });
                }
                kind
            })
            .collect()
    }

    /// Makes it namespaced.
    #[must_use]
    pub fn namespaced(mut self) -> Self {
        self.namespaced = true;
        self
    }

    /// Adds the `/status` subresource: writes to the main resource ignore status, and writes to `/status`
    /// everything else.
    #[must_use]
    pub fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    /// Adds a name that `kubectl get` accepts besides plural and singular.
    #[must_use]
    pub fn short_name(mut self, name: &str) -> Self {
        self.short_names.push(name.to_owned());
        self
    }

    /// Adds a printer column. `path` is a `JSONPath` as in a CRD, such as `.spec.providerID`.
    #[must_use]
    pub fn column(mut self, name: &str, path: &str) -> Self {
        self.columns.push(Column {
            name: name.to_owned(),
            kind: "string".to_owned(),
            path: path.to_owned(),
            priority: 0,
        });
        self
    }

    fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// `v1`, `coordination.k8s.io/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `nodes`, `leases.coordination.k8s.io`: the resource's name in error messages.
    pub(crate) fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `Node`, `Lease.coordination.k8s.io`: the kind's name in error messages.
    pub(crate) fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// The key of the storage that holds the objects. All versions of a resource have the same.
    pub(crate) fn storage(&self) -> String {
        format!("{}/{}", self.rules.storage_group.unwrap_or(&self.group), self.plural)
    }
}

/// The kinds that are served.
#[derive(Debug)]
pub(crate) struct Registry(RwLock<Vec<Arc<ResourceKind>>>);

impl Registry {
    pub(crate) fn built_in() -> Self {
        Self(RwLock::new(built_in().into_iter().map(Arc::new).collect()))
    }

    /// Adds a kind, or replaces the one with the same group, version and plural.
    pub(crate) fn register(&self, kind: ResourceKind) {
        let mut kinds = self.0.write();
        let same = |k: &&mut Arc<ResourceKind>| {
            (&k.group, &k.version, &k.plural) == (&kind.group, &kind.version, &kind.plural)
        };
        // Replace it at its position: the first version of a resource is the stored one
        match kinds.iter_mut().find(same) {
            Some(known) => *known = Arc::new(kind),
            None => kinds.push(Arc::new(kind)),
        }
    }

    /// Stops serving all versions of a resource.
    pub(crate) fn unregister(&self, group: &str, plural: &str) {
        let mut kinds = self.0.write();
        kinds.retain(|kind| kind.group != group || kind.plural != plural);
    }

    pub(crate) fn all(&self) -> Vec<Arc<ResourceKind>> {
        self.0.read().clone()
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceKind>> {
        let kinds = self.0.read();
        kinds.iter().find(|k| k.group == group && k.version == version && k.plural == plural).cloned()
    }

    /// The kind in whose form the objects of `storage` are stored: the first one registered.
    pub(crate) fn storage_kind(&self, storage: &str) -> Option<Arc<ResourceKind>> {
        let kinds = self.0.read();
        kinds.iter().find(|k| k.storage() == storage).cloned()
    }

    /// Named groups with their versions, in order of registration.
    pub(crate) fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        let mut seen = BTreeSet::new();
        for kind in self.all().iter().filter(|k| !k.group.is_empty()) {
            if !seen.insert((kind.group.clone(), kind.version.clone())) {
                continue;
            }
            match groups.iter_mut().find(|(group, _)| *group == kind.group) {
                Some((_, versions)) => versions.push(kind.version.clone()),
                None => groups.push((kind.group.clone(), vec![kind.version.clone()])),
            }
        }
        groups
    }
}

/// Checks that an object can be read as its Kubernetes type. Unknown fields are allowed.
fn typed<T: DeserializeOwned>(object: &Value) -> Result<(), String> {
    T::deserialize(object).map(drop).map_err(|error| error.to_string())
}

fn built_in() -> Vec<ResourceKind> {
    let core =
        |kind: &str, plural: &str| ResourceKind::new("", "v1", kind, plural).rules(Rules::BUILT_IN.clone());
    let event_fields = &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ];
    let event_rules =
        Rules { check: typed::<v1::Event>, create_on_update: true, fields: event_fields, ..Rules::BUILT_IN };
    vec![
        core("Node", "nodes").with_status().short_name("no").rules(Rules {
            status_on_create: true,
            fields: &["spec.unschedulable"],
            omit_empty: &[
                "/spec/providerID",
                "/spec/podCIDR",
                "/spec/podCIDRs",
                "/spec/taints",
                "/spec/unschedulable",
                "/status/addresses",
                "/status/conditions",
                "/status/images",
                "/status/capacity",
                "/status/allocatable",
                "/status/volumesInUse",
                "/status/volumesAttached",
            ],
            check: typed::<v1::Node>,
            ..Rules::BUILT_IN
        }),
        core("Namespace", "namespaces").with_status().short_name("ns").rules(Rules {
            fields: &["status.phase"],
            check: typed::<v1::Namespace>,
            ..Rules::BUILT_IN
        }),
        core("Event", "events").namespaced().short_name("ev").rules(event_rules.clone()),
        core("ConfigMap", "configmaps").namespaced().short_name("cm").rules(Rules {
            omit_empty: &["/data", "/binaryData"],
            check: typed::<v1::ConfigMap>,
            ..Rules::BUILT_IN
        }),
        core("Secret", "secrets").namespaced().rules(Rules {
            fields: &["type"],
            omit_empty: &["/data"],
            check: typed::<v1::Secret>,
            ..Rules::BUILT_IN
        }),
        core("Service", "services").namespaced().with_status().short_name("svc").rules(Rules {
            create_on_update: true,
            delete_returns_object: true,
            fields: &["spec.clusterIP", "spec.type"],
            omit_empty: &[
                "/spec/ports",
                "/spec/selector",
                "/spec/clusterIP",
                "/spec/clusterIPs",
                "/spec/externalIPs",
                "/spec/externalName",
                "/spec/externalTrafficPolicy",
                "/spec/healthCheckNodePort",
                "/spec/ipFamilies",
                "/spec/loadBalancerIP",
                "/spec/publishNotReadyAddresses",
                "/spec/loadBalancerSourceRanges",
                "/status/conditions",
                "/status/loadBalancer/ingress",
            ],
            check: typed::<v1::Service>,
            ..Rules::BUILT_IN
        }),
        core("ServiceAccount", "serviceaccounts").namespaced().short_name("sa").rules(Rules {
            delete_returns_object: true,
            check: typed::<v1::ServiceAccount>,
            ..Rules::BUILT_IN
        }),
        core("Pod", "pods").namespaced().with_status().short_name("po").rules(Rules {
            generation: true,
            delete_returns_object: true,
            fields: &["spec.nodeName", "spec.serviceAccountName", "status.phase", "status.podIP"],
            omit_empty: &["/status/conditions", "/status/containerStatuses"],
            check: typed::<v1::Pod>,
            ..Rules::BUILT_IN
        }),
        core("Endpoints", "endpoints").namespaced().short_name("ep").rules(Rules {
            create_on_update: true,
            omit_empty: &["/subsets"],
            check: typed::<v1::Endpoints>,
            ..Rules::BUILT_IN
        }),
        ResourceKind::new("coordination.k8s.io", "v1", "Lease", "leases").namespaced().rules(Rules {
            create_on_update: true,
            unconditional_update: false,
            check: typed::<Lease>,
            ..Rules::BUILT_IN
        }),
        ResourceKind::new("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
            .namespaced()
            .rules(Rules { generation: true, check: typed::<EndpointSlice>, ..Rules::BUILT_IN }),
        ResourceKind::new("networking.k8s.io", "v1", "IPAddress", "ipaddresses")
            .short_name("ip")
            .rules(Rules { check: typed::<IPAddress>, ..Rules::BUILT_IN }),
        ResourceKind::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        )
        .with_status()
        .short_name("crd")
        .short_name("crds")
        .rules(Rules {
            generation: true,
            unconditional_update: false,
            check: typed::<CustomResourceDefinition>,
            ..Rules::BUILT_IN
        }),
        ResourceKind::new("events.k8s.io", "v1", "Event", "events").namespaced().short_name("ev").rules(
            Rules {
                renames: &[
                    ("involvedObject", "regarding"),
                    ("message", "note"),
                    ("source", "deprecatedSource"),
                    ("firstTimestamp", "deprecatedFirstTimestamp"),
                    ("lastTimestamp", "deprecatedLastTimestamp"),
                    ("count", "deprecatedCount"),
                    ("reportingComponent", "reportingController"),
                ],
                storage_group: Some(""),
                ..event_rules
            },
        ),
    ]
}
