use super::*;
use crate::flags::{NODE_CONTROLLER, SERVICE_CONTROLLER, parse};

fn flags(args: &[&str]) -> Flags {
    parse(["ccm"].iter().chain(args)).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

fn provider(name: &str, config: Option<&str>) -> MachineProvider {
    MachineProvider { name: name.to_owned(), config: config.map(PathBuf::from) }
}

const BOTH: &str = "--controllers=*,machine-controller";

#[test]
fn providers_are_named_once_or_several_times() {
    let flags = flags(&[
        BOTH,
        "--machine-provider=libvirt=/etc/a=b.yaml,vsphere=/v.yaml",
        "--machine-provider",
        "other",
        "--machine-provider=libvirt=/etc/a=b.yaml",
    ]);
    assert_eq!(flags.faults(), [""; 0]);
    let expected = [
        provider("libvirt", Some("/etc/a=b.yaml")),
        provider("vsphere", Some("/v.yaml")),
        provider("other", None),
    ];
    assert_eq!(flags.machine_providers(), expected);
    assert_eq!(flags.cloud_provider(), None);
}

#[test]
fn without_the_flag_the_machines_are_those_of_the_cloud_provider() {
    let alone = flags(&[BOTH, "--cloud-provider=libvirt", "--cloud-config=/a"]);
    assert!(alone.machine_providers().is_empty() && alone.served_machines().of_main);
    let other = flags(&[BOTH, "--cloud-provider=rancher", "--machine-provider=libvirt=/b"]);
    assert!(other.faults().is_empty() && !other.served_machines().of_main);
    for same in ["--machine-provider=libvirt", "--machine-provider=libvirt=/a"] {
        let same = flags(&[BOTH, "--cloud-provider=libvirt", "--cloud-config=/a", same]);
        assert_eq!(same.faults(), [""; 0]);
        let served = same.served_machines();
        assert!(served.of_main && served.is_main_named && served.others.is_empty());
        assert_eq!(same.machine_providers(), [provider("libvirt", Some("/a"))]);
    }
}

#[test]
fn each_fault_names_its_flag() {
    let (one, alone) = ("--machine-provider=libvirt=/a", "--controllers=machine-controller");
    for (args, fault) in [
        (&[][..], "--cloud-provider cannot be empty"),
        (
            &[alone, "--machine-provider==/a"],
            "--machine-provider: \"=/a\" is not of the form NAME or NAME=FILE",
        ),
        (
            &[alone, "--machine-provider=a="],
            "--machine-provider: \"a=\" is not of the form NAME or NAME=FILE",
        ),
        (
            &[alone, one, "--machine-provider=libvirt=/b"],
            "--machine-provider: libvirt=/a and libvirt=/b: a provider has one configuration",
        ),
        (
            &[alone, one, "--machine-provider=libvirt"],
            "--machine-provider: libvirt=/a and libvirt: a provider has one configuration",
        ),
        (
            &[alone, one, "--cloud-provider=libvirt", "--cloud-config=/b"],
            "--machine-provider=libvirt=/a: libvirt is the provider of --cloud-provider too, and has one configuration: \
             that of --cloud-config; expected --machine-provider=libvirt",
        ),
        (
            &[alone, one, "--cloud-config=/b"],
            "--cloud-config /b: it is for --cloud-provider, which is not given; expected --machine-provider=NAME=/b",
        ),
        (
            &[one, "--controllers=machine-controller,cloud-node"],
            "--controllers: cloud-node-controller needs --cloud-provider",
        ),
        (&[one], "--machine-provider: --controllers does not name machine-controller, so nothing would run"),
    ] {
        assert_eq!(flags(args).faults(), [fault], "{args:?}");
    }
}

#[test]
fn without_a_cloud_provider_only_machines_are_served() {
    let flags = flags(&["--machine-provider=libvirt", BOTH]);
    assert_eq!(flags.faults(), [""; 0]);
    assert!(flags.enables(MACHINE_CONTROLLER));
    for controller in [NODE_CONTROLLER, SERVICE_CONTROLLER] {
        assert_eq!(flags.switched_off_by(controller), Some("--cloud-provider, which is not given"));
    }
}

#[test]
fn a_flag_that_nobody_needs_is_told() {
    let warnings = flags(&["--cloud-provider=a", "--machine-provider=b"]).warnings();
    assert_eq!(
        warnings,
        ["--machine-provider has no effect: --controllers does not name machine-controller"]
    );
    assert!(flags(&["--cloud-provider=a", "--machine-provider=b", BOTH]).warnings().is_empty());
}

#[test]
fn nobodys_machines_are_served_where_the_controller_does_not_run() {
    let flags = flags(&["--cloud-provider=a", "--machine-provider=a", "--machine-provider=b"]);
    assert_eq!(flags.served_machines(), ServedMachines::default());
    let named = flags.named_machines();
    assert!(named.of_main && named.others == [provider("b", None)]);
}

#[test]
fn an_asterisk_without_a_cloud_says_what_does_not_run() {
    let warning = "--controllers=*,lifecycle: cloud-node-controller, cloud-node-lifecycle-controller, \
                   service-lb-controller, node-route-controller do not run, since they need --cloud-provider, which is not given; give it, or \
                   leave out the *";
    let all = flags(&["--controllers=*,lifecycle"]);
    assert_eq!((all.faults(), all.warnings()), (Vec::new(), vec![warning.to_owned()]));
    for quiet in ["--controllers=lifecycle", "--controllers=*,lifecycle --cloud-provider=a"] {
        let args: Vec<_> = quiet.split(' ').collect();
        assert_eq!(flags(&args).warnings(), [""; 0], "{quiet}");
    }
}
