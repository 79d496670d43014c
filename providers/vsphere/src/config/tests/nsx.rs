//! The NSX-T parts.

use super::*;

#[test]
fn nsx_is_accepted_and_told_to_do_nothing() {
    let text = format!(
        "{MINIMAL}nsxt: {{host: nsx, user: u, password: p}}\nloadBalancer: {{size: SMALL, lbServiceId: x, \
         tcpAppProfileName: t, udpAppProfileName: u, ipPoolName: pool, tags: {{a: b}}}}\n\
         loadBalancerClass: {{public: {{ipPoolName: q}}}}\nroute: {{routerPath: /infra/tier-1s/x}}\n"
    );
    let config = parse(&text);
    assert_eq!(config.warnings(), []);
    assert_eq!(config.nsx, NsxParts { load_balancer: true, routes: true, manager: true });
    let notice = config.nsx.notice().expect("a notice");
    assert!(notice.contains("left alone") && notice.contains("no routes"), "{notice}");
    for (parts, part) in [
        ((true, false, true), "load balancers are configured"),
        ((false, true, true), "routes are configured"),
        ((false, false, true), "an NSX manager is configured"),
    ] {
        let (load_balancer, routes, manager) = parts;
        assert!(NsxParts { load_balancer, routes, manager }.notice().expect("a notice").contains(part));
    }
}

#[test]
fn faults_in_nsx_are_told_and_stop_nothing() {
    for (text, part) in [
        ("nsxt: {user: u}", "nsxt.password: is missing; user needs it"),
        ("nsxt: {host: h}", "nsxt: has no credentials"),
        ("nsxt: {user: u, password: p}", "nsxt.host: is missing"),
        ("nsxt: {host: h, vmcAccessToken: t}", "nsxt.vmcAuthHost: is missing"),
        ("nsxt: {host: h, clientAuthKeyFile: t}", "nsxt.clientAuthCertFile: is missing"),
        ("nsxt: {host: h, secretName: t}", "nsxt.secretNamespace: is missing"),
        ("loadBalancer: {size: HUGE}", "loadBalancer.size: must be one of DLB, LARGE, MEDIUM, SMALL, XLARGE"),
        ("loadBalancer: {size: SMALL}", "loadBalancer: needs lbServiceId or tier1GatewayPath"),
        ("loadBalancer: {size: SMALL}", "loadBalancer: needs ipPoolName or ipPoolId"),
        ("loadBalancer: {ipPoolName: a, ipPoolId: b}", "loadBalancer: has ipPoolName and ipPoolId"),
        ("loadBalancer: {tags: [a], snatDisabled: x}", "loadBalancer.tags: is a list, must be a mapping"),
        ("nsxt: hunter2", "nsxt: is a single value"),
        ("route: {}", "route.routerPath: is missing"),
    ] {
        let found = warnings(&format!("{MINIMAL}{text}\n"));
        assert!(found.iter().any(|warning| warning.starts_with(part)), "{text}: {found:#?}");
    }
}
