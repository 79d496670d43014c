//! The configurations, in both formats, with the expected differences between the two programs.

use test_env::Vcsim;

use super::{
    World,
    compare::{INITIALIZED, Wanted},
    machines::{
        BY_NAME, CAPITALS, LARGE, NO_TOOLS, NO_ZONE, NODE_IP_FIRST, NODE_IP_SECOND, OFF, OTHER_NAME, PLAIN,
        SPLIT, STATIC, SWAPPED, WITH_NODE, is_on_tagged_host, name,
    },
};

/// The Secret in kube-system for [`with_secret`].
pub(super) const SECRET: &str = "vsphere-credentials";

/// The Secret there that still has the placeholders of CPI's own manifest.
pub(super) const UNFILLED: &str = "vsphere-cloud-secret";

/// A configuration and its expected results.
pub(super) struct Round {
    pub(super) title: &'static str,
    pub(super) config: fn(&World<'_>) -> anyhow::Result<String>,
    /// Whether the second vCenter is configured too.
    pub(super) with_second: bool,
    /// Machines that lack what both programs need for a Node.
    pub(super) both_wait: &'static [usize],
    pub(super) wanted: fn(&World<'_>) -> anyhow::Result<Vec<Wanted>>,
}

pub(super) fn all() -> Vec<Round> {
    vec![
        in_yaml(),
        in_ini(),
        by_networks(),
        by_names(),
        both_families(),
        ipv6_alone(),
        with_secret(),
        beside_unfilled_secret(),
        with_old_password(),
        two_vcenters(),
    ]
}

fn differs(
    number: usize,
    field: &'static str,
    cpi: &'static str,
    ours: &'static str,
    why: &'static str,
) -> Wanted {
    Wanted { node: name(number), field, cpi, ours, why }
}

/// Nodes that only CPI leaves uninitialised, with any configuration.
fn always() -> Vec<Wanted> {
    vec![
        differs(
            NODE_IP_SECOND,
            INITIALIZED,
            "false",
            "true",
            "CPI reports the first address alone, and the framework then misses the kubelet's",
        ),
        differs(
            OTHER_NAME,
            INITIALIZED,
            "false",
            "true",
            "CPI finds a machine by UUID only if its guest's host name is the Node's name",
        ),
    ]
}

/// With zones and regions.
fn with_labels(world: &World<'_>) -> anyhow::Result<Vec<Wanted>> {
    let mut wanted = always();
    wanted.push(differs(
        SPLIT,
        INITIALIZED,
        "false",
        "true",
        "CPI takes zone and region from one way up: from the host, the resource pool or the machine's folder",
    ));
    for number in WITH_NODE {
        let is_waiting =
            wanted.iter().any(|difference| difference.node == name(number)) || number == NO_TOOLS;
        if !is_waiting && is_on_tagged_host(&world.vcsim, number)? {
            for field in ["label topology.kubernetes.io/zone", "label failure-domain.beta.kubernetes.io/zone"]
            {
                let why = "a tag of the host is nearer than one of the cluster; CPI takes the farther one, since the \
                           region is farther still";
                wanted.push(differs(number, field, "z2", "z1", why));
            }
        }
    }
    Ok(wanted)
}

const WITH_LABELS: &[usize] = &[NO_TOOLS, NO_ZONE];

pub(super) fn in_yaml() -> Round {
    Round {
        title: "YAML",
        config: |world| {
            let vcsim = &world.vcsim;
            Ok(format!(
                "global:\n  user: {:?}\n  password: {:?}\n  port: {}\n  caFile: {}\nvcenter:\n  main:\n    \
                 server: 127.0.0.1\n    datacenters:\n    - DC0\n    - DC1\n    - DC2\n\
                 labels:\n  zone: k8s-zone\n  region: k8s-region\n",
                vcsim.user(),
                vcsim.password(),
                vcsim.port(),
                vcsim.ca_file().display()
            ))
        },
        with_second: false,
        both_wait: WITH_LABELS,
        wanted: with_labels,
    }
}

/// The same in INI, with the certificate's fingerprint instead of an authority.
fn in_ini() -> Round {
    Round {
        title: "INI",
        config: |world| {
            let vcsim = &world.vcsim;
            Ok(format!(
                "[Global]\nuser = {:?}\npassword = {:?} ; as it stands\nport = {}\nthumbprint = {}\n\n\
                 [VirtualCenter \"127.0.0.1\"]\ndatacenters = DC0, DC1,DC2\n\n\
                 [Labels]\nzone = k8s-zone\nregion = k8s-region\n",
                vcsim.user(),
                vcsim.password(),
                vcsim.port(),
                vcsim.thumbprint("sha1")?
            ))
        },
        with_second: false,
        both_wait: WITH_LABELS,
        wanted: with_labels,
    }
}

/// One vCenter with the user and the rest of the configuration, in YAML, without zones.
fn yaml(vcsim: &Vcsim, rest: &str) -> String {
    format!(
        "global:\n  insecureFlag: true\nvcenter:\n  main:\n    server: 127.0.0.1\n    port: {}\n    user: {:?}\n    \
         password: {:?}\n{rest}",
        vcsim.port(),
        vcsim.user(),
        vcsim.password()
    )
}

/// The same in INI.
fn ini(vcsim: &Vcsim, rest: &str) -> String {
    format!(
        "[Global]\ninsecure-flag = true\n[VirtualCenter \"main\"]\nserver = 127.0.0.1\nport = {}\nuser = {:?}\n\
         password = {:?}\n{rest}",
        vcsim.port(),
        vcsim.user(),
        vcsim.password()
    )
}

fn by_networks() -> Round {
    Round {
        title: "networks",
        config: |world| {
            let rest = "nodes:\n  internalNetworkSubnetCidr: 172.16.0.0/12,10.20.0.0/16\n  \
                        externalNetworkSubnetCidr: 192.0.2.0/24\n  \
                        excludeInternalNetworkSubnetCidr: 10.20.1.1/32,10.20.0.96/29\n  \
                        excludeExternalNetworkSubnetCidr: 198.51.100.0/24\n";
            Ok(yaml(&world.vcsim, rest))
        },
        with_second: false,
        both_wait: &[NO_TOOLS],
        wanted: |_| Ok(always()),
    }
}

fn by_names() -> Round {
    Round {
        title: "names",
        config: |world| {
            let rest = "[Nodes]\ninternal-vm-network-name = vm network\nexternal-vm-network-name = Public\n\
                        exclude-external-network-subnet-cidr = 10.20.0.0/30\n";
            Ok(ini(&world.vcsim, rest))
        },
        with_second: false,
        both_wait: &[NO_TOOLS],
        wanted: |_| Ok(always()),
    }
}

fn both_families() -> Round {
    Round {
        title: "families",
        config: |world| {
            let rest = "    ipFamily: [ipv6, ipv4]\nnodes:\n  internalNetworkSubnetCidr: fd00::/8\n  \
                        externalVmNetworkName: public\n";
            Ok(yaml(&world.vcsim, rest))
        },
        with_second: false,
        both_wait: ONE_FAMILY,
        wanted: |_| Ok(Vec::new()),
    }
}

/// Machines without addresses of both families.
const ONE_FAMILY: &[usize] = &[
    PLAIN,
    STATIC,
    OFF,
    NODE_IP_FIRST,
    NODE_IP_SECOND,
    SWAPPED,
    CAPITALS,
    LARGE,
    BY_NAME,
    OTHER_NAME,
    NO_TOOLS,
    SPLIT,
    NO_ZONE,
];

fn ipv6_alone() -> Round {
    Round {
        title: "IPv6",
        config: |world| {
            let rest = "ip-family = ipv6\n[Nodes]\nexternal-network-subnet-cidr = 2001:db8::/32\n";
            Ok(ini(&world.vcsim, rest))
        },
        with_second: false,
        both_wait: ONE_FAMILY,
        wanted: |_| Ok(Vec::new()),
    }
}

fn with_secret() -> Round {
    Round {
        title: "Secret",
        config: |world| {
            let vcsim = &world.vcsim;
            Ok(format!(
                "global:\n  server: 127.0.0.1\n  port: {}\n  caFile: {}\n  secretName: {SECRET}\n  \
                 secretNamespace: kube-system\nvcenter: {{}}\nlabels:\n  zone: k8s-zone\n  region: k8s-region\n",
                vcsim.port(),
                vcsim.ca_file().display()
            ))
        },
        with_second: false,
        both_wait: WITH_LABELS,
        wanted: with_labels,
    }
}

/// The vCenter's own user beside a Secret of placeholders: both programs use the user.
fn beside_unfilled_secret() -> Round {
    Round {
        title: "user beside an unfilled Secret",
        config: |world| {
            let secret = format!("global:\n  secretName: {UNFILLED}\n  secretNamespace: kube-system\n");
            Ok(yaml(&world.vcsim, "").replacen("global:\n", &secret, 1))
        },
        with_second: false,
        both_wait: &[NO_TOOLS],
        wanted: |_| Ok(always()),
    }
}

/// The configuration has an old password and the Secret the new one: vCenter refuses the old one, and both
/// programs use the Secret.
fn with_old_password() -> Round {
    Round {
        title: "old password beside a Secret",
        config: |world| {
            let secret = format!("global:\n  secretName: {SECRET}\n  secretNamespace: kube-system\n");
            let password = format!("password: {:?}", world.vcsim.password());
            let text = yaml(&world.vcsim, "").replacen("global:\n", &secret, 1);
            Ok(text.replacen(&password, "password: the-one-before", 1))
        },
        with_second: false,
        both_wait: &[NO_TOOLS],
        wanted: |_| Ok(always()),
    }
}

fn two_vcenters() -> Round {
    Round {
        title: "two vCenters",
        config: |world| {
            let (first, second) = (&world.vcsim, &world.second);
            Ok(format!(
                "global:\n  user: {:?}\n  password: {:?}\n  port: {}\n  caFile: {}\nvcenter:\n  first:\n    \
                 server: 127.0.0.1\n  second:\n    server: localhost\n    port: {}\n    caFile: {}\n    \
                 ipFamily: [ipv6]\nlabels:\n  zone: k8s-zone\n  region: k8s-region\n",
                first.user(),
                first.password(),
                first.port(),
                first.ca_file().display(),
                second.port(),
                second.ca_file().display()
            ))
        },
        with_second: true,
        both_wait: WITH_LABELS,
        wanted: with_labels,
    }
}
