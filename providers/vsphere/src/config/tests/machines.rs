//! The section about machines of Cluster API.

use super::*;
use crate::config::MachineOptions;

#[test]
fn what_is_done_with_machines_is_asked_for() {
    assert_eq!(parse(MINIMAL).machines, MachineOptions::default());
    let ini = "[VirtualCenter \"vc1\"]\nuser = u\npassword = p\n[Machines]\nremove-bootstrap-data\nnode-anti-affinity = true\n";
    let yaml = format!("{MINIMAL}machines: {{removeBootstrapData: true, nodeAntiAffinity: true}}\n");
    for text in [ini, &yaml] {
        let config = parse(text);
        assert_eq!(config.warnings(), []);
        let expected = MachineOptions {
            remove_bootstrap_data: true,
            node_anti_affinity: true,
            ..MachineOptions::default()
        };
        assert_eq!(config.machines, expected, "{text}");
    }
    let found = problems(&format!("{MINIMAL}machines: {{nodeAntiAffinity: often}}\n"));
    assert_eq!(found, ["machines.nodeAntiAffinity: must be true or false"]);
    assert!(warnings(&format!("{MINIMAL}machines: {{antiAffinity: true}}\n"))[0].contains("antiAffinity"));
}
