//! Rules (CEL) of the schemas: what Cluster API's webhooks refuse, refused by the API server itself.
//!
//! A rule may look at its own field and at those below. The API server estimates the cost of a rule from the limits of lists,
//! maps and texts, so what a rule goes through has such limits.

use serde::Serialize;

/// A rule and what is wrong where it is not met.
#[derive(Serialize)]
pub(crate) struct Rule {
    rule: &'static str,
    message: &'static str,
}

/// A health check does not look at what health checks write.
pub(crate) const CONDITION_OF_HEALTH_CHECK: &[Rule] = &[Rule {
    rule: "!(self in \
               ['Ready','Available','HealthCheckSucceeded','OwnerRemediated','ExternallyRemediated'])",
    message: "must not be Ready, Available, nor a condition that health checks and remediation write",
}];

/// Entries differ.
pub(crate) const ENTRIES: &[Rule] =
    &[Rule { rule: "self.all(x, self.exists_one(y, x == y))", message: "an entry is there twice" }];

/// Each argument is given once.
pub(crate) const ARGUMENTS: &[Rule] =
    &[Rule { rule: "self.all(x, self.exists_one(y, x.name == y.name))", message: "a name is there twice" }];

/// A type of partitions that cloud-init and Ignition know.
pub(crate) const PARTITION_TYPE: &[Rule] = &[Rule {
    rule: "self.matches('^(Linux|LinuxSwap|LinuxRAID|LVM|Fat32|NTFS|LinuxExtended|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$')",
    message: "must be Linux, LinuxSwap, LinuxRAID, LVM, Fat32, NTFS, LinuxExtended, or the GUID of a type of partitions",
}];

/// A reference of a Cluster may change, but not go; one is needed.
pub(crate) const CLUSTER: &[Rule] = &[
    Rule {
        rule: "!has(oldSelf.infrastructureRef) || has(self.infrastructureRef)",
        message: "spec.infrastructureRef cannot be taken away",
    },
    Rule {
        rule: "!has(oldSelf.controlPlaneRef) || has(self.controlPlaneRef)",
        message: "spec.controlPlaneRef cannot be taken away",
    },
    Rule {
        rule: "!has(oldSelf.topology) || has(self.topology)",
        message: "spec.topology cannot be taken away",
    },
    Rule {
        rule: "has(self.infrastructureRef) || has(self.controlPlaneRef) || has(self.topology)",
        message: "spec needs controlPlaneRef, infrastructureRef or topology",
    },
];

/// Ranges of addresses can be read.
pub(crate) const RANGES: &[Rule] =
    &[Rule { rule: "self.all(block, isCIDR(block))", message: "must be ranges such as 10.0.0.0/16" }];

/// The field is as it was when the object was made.
pub(crate) const UNCHANGED: &[Rule] = &[Rule { rule: "self == oldSelf", message: "cannot change" }];

/// A semantic version. A `v` may be missing in front: a controller adds it, as Cluster API's webhooks do.
pub(crate) const VERSION: &[Rule] = &[Rule {
    rule: "self.matches('^v?(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)(-[0-9A-Za-z-]+([.][0-9A-Za-z-]+)*)?([+][0-9A-Za-z-]+([.][0-9A-Za-z-]+)*)?$')",
    message: "must be a version such as v1.35.0",
}];

/// Taints that the machine controller, the node lifecycle controller and the cloud controller manager set and
/// remove themselves. Upstream refuses the same.
pub(crate) const TAINTS: &[Rule] = &[Rule {
    rule: "self.all(t, !(t.key in ['node.cluster.x-k8s.io/uninitialized', \
               'node.cluster.x-k8s.io/outdated-revision', 'node-role.kubernetes.io/master']) && \
               !t.key.startsWith('node.cloudprovider.kubernetes.io/') && \
               (!t.key.startsWith('node.kubernetes.io/') || t.key == \
               'node.kubernetes.io/out-of-service'))",
    message: "a taint that Kubernetes or Cluster API sets itself cannot be asked for",
}];

/// Bootstrap data come from somewhere. Upstream lets Machines of a `MachinePool` have neither; this daemon
/// has no such pools.
pub(crate) const BOOTSTRAP: &[Rule] = &[Rule {
    rule: "has(self.configRef) || has(self.dataSecretName)",
    message: "needs configRef or dataSecretName",
}];

/// Machines of a template are counted by their owner and belong to its Cluster.
pub(crate) const TEMPLATE_OF_MACHINES: &[Rule] = &[
    Rule {
        rule: "!has(self.selector) || !has(self.selector.matchLabels) || self.selector.matchLabels.all(k, \
               has(self.template.metadata) && has(self.template.metadata.labels) && k in \
               self.template.metadata.labels && self.template.metadata.labels[k] == \
               self.selector.matchLabels[k])",
        message: "spec.template.metadata.labels must have every label of spec.selector.matchLabels",
    },
    Rule {
        rule: "!has(self.selector) || !has(self.selector.matchExpressions) || self.selector.matchExpressions.all(e, \
               (has(self.template.metadata) && has(self.template.metadata.labels) && e.key in \
               self.template.metadata.labels) ? (e.operator == 'Exists' || (e.operator == 'In' && \
               has(e.values) && self.template.metadata.labels[e.key] in e.values) || (e.operator == \
               'NotIn' && !(has(e.values) && self.template.metadata.labels[e.key] in e.values))) : \
               e.operator in ['NotIn', 'DoesNotExist'])",
        message: "spec.template.metadata.labels must match spec.selector.matchExpressions",
    },
    Rule {
        rule: "self.clusterName == self.template.spec.clusterName",
        message: "spec.template.spec.clusterName must be spec.clusterName",
    },
    Rule {
        rule: "!has(self.template.spec.taints) || self.template.spec.taints.all(t, t.key != \
               'node-role.kubernetes.io/control-plane')",
        message: "spec.template.spec.taints: workers cannot have the taint of control planes",
    },
];

/// Names of Machines differ, and are names of objects. Upstream accepts more of Go's templates than the three
/// words.
pub(crate) const NAME_OF_MACHINES: &[Rule] = &[
    Rule { rule: "self.contains('{{ .random }}')", message: "must contain {{ .random }}" },
    Rule {
        rule: "self.replace('{{ .random }}', 'r').replace('{{ .cluster.name }}', 'c').replace('{{ \
               .machineSet.name }}', \
               'm').matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        message: "must be the name of an object with {{ .random }}, {{ .cluster.name }} and {{ .machineSet.name }} in it",
    },
];

/// A rolling update needs room. Upstream refuses the number 0 alone and stands still with `0%`.
pub(crate) const ROLLING_UPDATE: &[Rule] = &[Rule {
    rule: "!has(self.maxSurge) || !has(self.maxUnavailable) || (self.maxSurge != 0 && self.maxSurge \
               != '0%') || (self.maxUnavailable != 0 && self.maxUnavailable != '0%')",
    message: "maxSurge and maxUnavailable cannot both be 0",
}];

/// A number or a percentage. Upstream lets negative ones through.
pub(crate) const NUMBER_OR_PERCENTAGE: &[Rule] = &[Rule {
    rule: "type(self) == string ? self.matches('^[0-9]+%$') : self >= 0 && self <= 2147483647",
    message: "must be a number or a percentage such as 20%, not negative, and of 32 bits",
}];

/// A health check looks at Machines of one Cluster, and not at all of the namespace by mistake.
pub(crate) const HEALTH_CHECK: &[Rule] = &[
    Rule {
        rule: "(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || \
               (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",
        message: "spec.selector must not be empty",
    },
    Rule {
        rule: "!has(self.selector.matchLabels) || !('cluster.x-k8s.io/cluster-name' in \
               self.selector.matchLabels) || self.selector.matchLabels['cluster.x-k8s.io/cluster-name'] \
               == self.clusterName",
        message: "spec.selector chooses Machines of another Cluster than spec.clusterName",
    },
];

/// A timeout below half a minute would replace every Machine.
pub(crate) const NODE_STARTUP_TIMEOUT: &[Rule] =
    &[Rule { rule: "self == 0 || self >= 30", message: "must be 0 or at least 30" }];

/// The first number of a range is not larger than the second. Upstream finds that out at every pass.
pub(crate) const RANGE_OF_UNHEALTHY: &[Rule] = &[Rule {
    rule: "int(self.substring(1, self.indexOf('-'))) <= int(self.substring(self.indexOf('-') + 1, \
               size(self) - 1))",
    message: "the first number must not be larger than the second",
}];

/// The order is one of evictions.
pub(crate) const DRAIN: &[Rule] = &[Rule {
    rule: "self.behavior == 'Drain' || !has(self.order)",
    message: "order needs the behavior Drain",
}];

/// A set applies to some clusters, and what was applied does not change its meaning.
pub(crate) const RESOURCE_SET: &[Rule] = &[
    Rule {
        rule: "(has(self.clusterSelector.matchLabels) && size(self.clusterSelector.matchLabels) > 0) || \
               (has(self.clusterSelector.matchExpressions) && \
               size(self.clusterSelector.matchExpressions) > 0)",
        message: "spec.clusterSelector must not be empty",
    },
    Rule {
        rule: "!has(oldSelf.strategy) || (has(self.strategy) && self.strategy == oldSelf.strategy)",
        message: "spec.strategy cannot change",
    },
];

/// What Ignition cannot do.
pub(crate) const IGNITION: &[Rule] = &[
    Rule {
        rule: "!has(self.ignition) || (has(self.format) && self.format == 'ignition')",
        message: "ignition needs the format ignition",
    },
    Rule {
        rule: "!(has(self.format) && self.format == 'ignition') || !has(self.bootCommands)",
        message: "bootCommands cannot be had with the format ignition",
    },
    Rule {
        rule: "!(has(self.format) && self.format == 'ignition') || !has(self.users) || \
               self.users.all(u, !has(u.inactive) || !u.inactive)",
        message: "users[].inactive cannot be had with the format ignition",
    },
    Rule {
        rule: "!(has(self.format) && self.format == 'ignition') || !has(self.files) || \
               self.files.all(f, !has(f.encoding) || f.encoding == 'base64')",
        message: "files[].encoding: no compression with the format ignition",
    },
    Rule {
        rule: "!(has(self.format) && self.format == 'ignition') || !has(self.diskSetup) || \
               !has(self.diskSetup.partitions) || self.diskSetup.partitions.all(p, !has(p.tableType) || \
               p.tableType == 'gpt')",
        message: "diskSetup.partitions[].tableType: gpt alone with the format ignition",
    },
    Rule {
        rule: "!(has(self.format) && self.format == 'ignition') || !has(self.diskSetup) || \
               !has(self.diskSetup.filesystems) || self.diskSetup.filesystems.all(f, !has(f.replaceFS) \
               && !has(f.partition))",
        message: "diskSetup.filesystems[]: replaceFS and partition cannot be had with the format ignition",
    },
];

/// Each file is written once.
pub(crate) const FILES: &[Rule] = &[Rule {
    rule: "self.all(f, self.exists_one(g, g.path == f.path))",
    message: "two files have the same path",
}];

/// A kubeconfig authenticates in one way.
pub(crate) const USER_OF_KUBECONFIG: &[Rule] = &[Rule {
    rule: "!has(self.authProvider) || !has(self.exec)",
    message: "authProvider and exec exclude each other",
}];

/// A file has one content.
pub(crate) const CONTENT_OF_FILE: &[Rule] = &[Rule {
    rule: "!has(self.content) || !has(self.contentFrom)",
    message: "content and contentFrom exclude each other",
}];

/// A device has one description of its partitions.
pub(crate) const LAYOUT: &[Rule] = &[Rule {
    rule: "[has(self.layout),has(self.diskLayout)].filter(x,x==true).size() == 1",
    message: "needs either layout or diskLayout",
}];

/// Partitions fit into their device.
pub(crate) const DISK_LAYOUT: &[Rule] = &[Rule {
    rule: "self.map(p, p.percentage).sum() <= 100",
    message: "the percentages are more than 100 together",
}];

/// A user has one password.
pub(crate) const PASSWORD_OF_USER: &[Rule] = &[Rule {
    rule: "!has(self.passwd) || !has(self.passwdFrom)",
    message: "passwd and passwdFrom exclude each other",
}];

/// The name of the object becomes the value of a label, which has at most 63 characters.
pub(crate) const NAME: &[Rule] = &[Rule {
    rule: "size(self.metadata.name) <= 63",
    message: "metadata.name must have at most 63 characters, since it becomes a label",
}];

/// Two operators compare with values, two do not.
pub(crate) const EXPRESSION: &[Rule] = &[Rule {
    rule: "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : \
               !has(self.values) || size(self.values) == 0",
    message: "In and NotIn need values, Exists and DoesNotExist have none",
}];

/// Offsets can move the last hours of the year 9999 out of what programs can hold. An object that cannot be
/// read would hide all others of its kind.
pub(crate) const TIME: &[Rule] =
    &[Rule { rule: "self.getFullYear() < 9999", message: "must be before the year 9999" }];
