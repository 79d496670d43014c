//! Variables of the environment.

use super::*;

#[test]
fn the_environment_overrides_the_file() {
    let environment: Environment = [
        ("VSPHERE_VCENTER_PORT", "8443"),
        ("VSPHERE_USER", "env"),
        ("VSPHERE_PASSWORD", "a=b"),
        ("VSPHERE_INSECURE", "T"),
        ("VSPHERE_DATACENTER", "X,Y"),
        ("VSPHERE_LABEL_ZONE", "z"),
        ("VSPHERE_LABEL_REGION", "r"),
        ("VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR", "10.0.0.0/8"),
        ("VSPHERE_VCENTER_one", "a"),
        ("VCENTER_one_PORT", "9443"),
        ("VSPHERE_VCENTER_two", "vc2"),
        ("VCENTER_two_USERNAME", "second"),
        ("VCENTER_two_IP_FAMILY", "ipv6"),
        ("VSPHERE_VCENTER_three", "c"),
        ("VCENTER_three_SERVER", "vc3"),
        ("VSPHERE_CAFILE", ""),
        ("SKIP_NODE_DELETION", ""),
    ]
    .into_iter()
    .collect();
    let text = "global: {user: file, password: file, caFile: /ca}\nvcenter: {a: {server: vc1}}\n";
    let config = Config::parse(text, &environment).expect("valid");
    let all: Vec<_> = config
        .vcenters
        .iter()
        .map(|vcenter| {
            let (user, password) = vcenter.credentials.inline.as_ref().expect("inline");
            format!(
                "{} {} {user}/{}",
                vcenter.reference,
                vcenter.endpoint.authority(),
                password.expose_secret()
            )
        })
        .collect();
    assert_eq!(all, ["a vc1:9443 env/a=b", "c vc3:8443 env/a=b", "vc2 vc2:8443 second/a=b"]);
    assert!(config.vcenters.iter().all(|vcenter| vcenter.endpoint.insecure));
    assert!(config.vcenters.iter().all(|vcenter| vcenter.endpoint.ca_files == [Path::new("/ca")]));
    assert_eq!(config.vcenters[0].datacenters, ["X", "Y"]);
    assert_eq!(config.vcenters[2].families, [Family::Ipv6]);
    assert_eq!(config.labels.zone.as_deref(), Some("z"));
    assert_eq!(config.addresses.internal.networks.len(), 1);
    assert!(config.skip_node_deletion);
}

#[test]
fn the_environment_alone_is_a_configuration() {
    let environment: Environment =
        [("VSPHERE_VCENTER", "vc1"), ("VSPHERE_USER", "u"), ("VSPHERE_PASSWORD", "p")].into_iter().collect();
    assert_eq!(Config::parse("", &environment).expect("valid").vcenters[0].server, "vc1");
}

#[test]
fn faults_of_the_environment_name_the_variable() {
    let found = problems_in(
        MINIMAL,
        &[("VSPHERE_INSECURE", "hunter2"), ("VSPHERE_VCENTER_PORT", "hunter2"), ("VSPHERE_VCENTER_x", "a/b")],
    );
    assert_eq!(
        found,
        [
            "VSPHERE_VCENTER_PORT: must be a whole number",
            "VSPHERE_INSECURE: must be true or false",
            "VSPHERE_VCENTER_x: must be a host name or an IP address alone, without https:// and without a path",
        ]
    );
    assert_eq!(format!("{:?}", Environment::of_process()), "Environment(***)");
}
