use cloudprovider::machines::BootstrapFormat;
use proptest::prelude::*;

use super::*;

fn quote(log: &str) -> Option<String> {
    excerpt(log.as_bytes(), None)
}

#[test]
fn the_last_lines_are_quoted_without_control_characters() {
    let log = "\u{1b}[2J\u{1b}[1;1H[    0.1] Booting\r\n\u{1b}[0;32m  OK  \u{1b}[0m\u{8}\0 \r\n\
        \u{1b}]0;title\u{7}Kernel panic - not syncing: VFS: Unable to mount root fs\u{1b}(B\r\n\n";
    assert_eq!(
        quote(log).as_deref(),
        Some("[    0.1] Booting | OK | Kernel panic - not syncing: VFS: Unable to mount root fs")
    );
    assert_eq!(quote(""), None);
    assert_eq!(quote("\r\n\u{1b}[0m \n\u{1b}["), None);
    assert_eq!(excerpt(b"ends in \xff\xfe", None).as_deref(), Some("ends in \u{fffd}\u{fffd}"));
}

#[test]
fn a_quotation_is_short() {
    let lines: Vec<_> = (0..100).map(|n| format!("line {n}")).collect();
    let quoted = quote(&lines.join("\n")).expect("lines");
    assert!(quoted.starts_with("line 90 | ") && quoted.ends_with("| line 99"), "{quoted}");
    let long = "wide ".repeat(100);
    let quoted = quote(&format!("{long}\n").repeat(20)).expect("lines");
    assert!(quoted.len() <= MAX_BYTES && quoted.len() > MAX_BYTES / 2, "{}", quoted.len());
}

#[test]
fn what_looks_like_a_secret_is_left_out() {
    for line in [
        "kubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef",
        "--discovery-token-ca-cert-hash sha256:0000",
        "Password: hunter2",
        "export AWS_SECRET_ACCESS_KEY=x",
        "-----BEGIN RSA PRIVATE KEY-----",
        "client-key-data: x",
        "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF",
        "key 0123456789abcdef0123456789abcdef",
        "Authorization: Bearer x",
    ] {
        assert_eq!(
            quote(&format!("before\n{line}\n{line}\nafter")).expect("lines"),
            format!("before | {LEFT_OUT} | after")
        );
    }
    for line in [
        "[    2.123456] EXT4-fs error (device vda1): ext4_validate_block_bitmap:390: comm ext4lazyinit",
        "[FAILED] Failed to start cloud-init.service - Initial cloud-init job.",
        "e1000e 0000:00:02.0 eth0: NIC Link is Down",
        "dracut-initqueue[1234]: Warning: dracut-initqueue timeout - starting timeout scripts",
        "SeaBIOS (version 1.16.2-debian-1.16.2-1)",
        "No bootable device.",
    ] {
        assert_eq!(quote(line).as_deref(), Some(line));
    }
}

#[test]
fn words_of_the_bootstrap_data_are_left_out() {
    let text = "#cloud-config\nwrite_files:\n- content: 'db.pw=Corr3ctHorse'\nruncmd: [kubeadm join]\nusers: [{name: jane.doe}]\n";
    let data = BootstrapData::new(BootstrapFormat::CloudConfig, text);
    let ask = |line: &str| excerpt(format!("a line\n{line}").as_bytes(), Some(&data)).expect("lines");
    for line in
        ["+ echo Corr3ctHorse", "x-Corr3ctHorse-y", "db.pw=Corr3ctHorse", "useradd \"jane.doe\": failed"]
    {
        assert_eq!(ask(line), format!("a line | {LEFT_OUT}"));
    }
    for line in ["kubelet failed", "cloud-init modules:final", "Starting kubeadm"] {
        assert_eq!(ask(line), format!("a line | {line}"));
    }
}

proptest! {
    #[test]
    fn any_bytes_give_a_short_text_without_control_characters(log in prop::collection::vec(any::<u8>(), 0..4000)) {
        if let Some(quoted) = excerpt(&log, None) {
            prop_assert!(quoted.len() <= MAX_BYTES && !quoted.chars().any(char::is_control), "{}", quoted);
        }
    }

    #[test]
    fn no_word_of_the_data_is_quoted(
        secret in "[A-Za-z0-9!$%&/?*+~.<>-]{8,40}", before in "[ =:\"'\\[]?", after in "[ ,;\"'\\]]?",
    ) {
        prop_assume!(!COMMON.contains(&secret.as_str()));
        let data = BootstrapData::new(BootstrapFormat::CloudConfig, format!("runcmd:\n- run {secret}\n"));
        let log = format!("+ run{before}{secret}{after}\n");
        let quoted = excerpt(log.as_bytes(), Some(&data));
        prop_assert_eq!(quoted.as_deref(), Some(LEFT_OUT));
    }
}
