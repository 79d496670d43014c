use base64::Engine as _;
use cloudprovider::machines::BootstrapFormat;
use proptest::prelude::*;

use super::*;

fn data(text: impl Into<Vec<u8>>) -> BootstrapData {
    BootstrapData::new(BootstrapFormat::CloudConfig, text)
}

fn quote(log: &str) -> Option<String> {
    excerpt(log.as_bytes(), &data(""))
}

/// Whether a line of the log, after another one, is left out.
fn is_hidden(line: &str, data: &BootstrapData) -> bool {
    let quoted = excerpt(format!("a line\n{line}\n").as_bytes(), data);
    match quoted.as_deref() {
        Some(quoted) if quoted == format!("a line | {LEFT_OUT}") => true,
        Some(quoted) if quoted == format!("a line | {line}") => false,
        other => panic!("{other:?}"),
    }
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
    assert_eq!(excerpt(b"ends in \xff\xfe\n", &data("")).as_deref(), Some("ends in \u{fffd}\u{fffd}"));
    assert_eq!(quote("whole\nnot who").as_deref(), Some("whole"));
}

#[test]
fn a_quotation_is_short() {
    let lines: Vec<_> = (0..100).map(|n| format!("line {n}")).collect();
    let quoted = quote(&(lines.join("\n") + "\n")).expect("lines");
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
            quote(&format!("before\n{line}\n{line}\nafter\n")).expect("lines"),
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
        assert_eq!(quote(&format!("{line}\n")).as_deref(), Some(line));
    }
}

#[test]
fn parts_of_the_bootstrap_data_are_left_out() {
    let data = data(
        "#cloud-config\nwrite_files:\n- content: 'db.pw=Corr3ctHorse'\nruncmd: [kubeadm join]\n\
         users: [{name: jane.doe}]\nchpasswd: {list: 'root:hunter2'}\nphrase: my(pa)ss=wo,rd;1\n\
         kubernetes-Pa5: x\n",
    );
    for line in [
        "+ echo Corr3ctHorse",
        "x-Corr3ctHorse-y",
        "+ echo corr3cthorse",
        "CORR3CTH...",
        "db.pw=Corr3ctHorse",
        "useradd \"jane.doe\": failed",
        "root hunter2",
        "+ x=hunter2.",
        "got my(pa)ss=wo,rd;1",
        "got kubernetes-Pa5",
    ] {
        assert!(is_hidden(line, &data), "{line}");
    }
    for line in
        ["kubelet failed", "cloud-init modules:final", "Starting kubeadm", "[FAILED] Failed to start kubelet"]
    {
        assert!(!is_hidden(line, &data), "{line}");
    }
}

#[test]
fn short_secrets_are_left_out_beside_any_sign() {
    let in_list = data("chpasswd: {list: 'root:s3cr3t'}\n");
    let in_url = data("runcmd: [mysql mysql://root:s3cr3t@db/x]\n");
    let with_signs = data("url: ftp://u:!a1?@host/\npw: '!!a1!!'\n");
    for data in [&in_list, &in_url] {
        for line in [
            "connect mysql://root:s3cr3t@db",
            "got s3cr3t|S3CR3T",
            "s3cr3t<x",
            "x\u{e9} s3cr3t&y",
            "x_s3cr3t-y",
            "a.s3cr3t/b",
            "PW=S3CR3T!",
        ] {
            assert!(is_hidden(line, data), "{line}");
        }
        assert_eq!(excerpt(b"x\ts3cr3t\ty\n", data).as_deref(), Some(LEFT_OUT));
        assert!(!is_hidden("xs3cr3ty s3cr3", data), "a part of a word");
    }
    assert!(is_hidden("+ echo x!!a1!!/y", &with_signs));
    let unit = data("- path: /etc/systemd/system/kubelet.service.d/10.conf\n  owner: root:root\n");
    for line in ["Starting kubelet", "systemd[1]: Reached target Local File System.", "root: x /etc"] {
        assert!(!is_hidden(line, &unit), "{line}");
    }
}

#[test]
fn a_secret_that_is_broken_over_lines_is_left_out() {
    let data = data("pw: Corr3ctHorse\n");
    for log in [
        "a line\nxxx Corr\n3ctHorse\nend\n",
        "a line\nCorr3c\r\ntHorse\nend\n",
        "a line\nCo\u{1b}[1mrr3ctHorse\nend\n",
    ] {
        assert_eq!(excerpt(log.as_bytes(), &data), Some(format!("a line | {LEFT_OUT} | end")), "{log}");
    }
}

#[test]
fn what_is_encoded_in_the_bootstrap_data_is_left_out() {
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let once = encode("export PW=Corr3ctHorse\n");
    let twice = encode(&format!("write {once} somewhere"));
    for text in [
        format!("content: {once}\n"),
        format!("content: {twice}\n"),
        format!("{{\"contents\":{{\"source\":\"data:;base64,{once}\"}}}}"),
        "{\"source\":\"data:,export%20PW%3DCorr3ct%48orse\"}".to_owned(),
        "content: \"export PW=Corr3ct\\u0048orse\\n\"".to_owned(),
        format!("runcmd: [\"echo {once}|base64 -d\"]"),
        format!("{{\"source\":\"data:,content%3A%20{once}\"}}"),
        format!("content: \"x\\n{once}\\n\""),
        format!("content: \"x\\\\n{once}\\\\n\""),
        format!("path/{once}"),
        format!("a-{once}"),
    ] {
        assert!(is_hidden("+ echo Corr3ctHorse", &data(text.clone())), "{text}");
        assert!(!is_hidden("Kernel panic - not syncing", &data(text.clone())), "{text}");
    }
}

#[test]
fn a_short_secret_in_base64_is_left_out() {
    for text in ["data: {password: czNjcjN0}\n", "data: {password: UGE1NQ==}\n"] {
        assert!(is_hidden("x/s3cr3t@y Pa55", &data(text)), "{text}");
    }
}

#[test]
fn data_that_cannot_be_compared_with_have_no_quotation() {
    let in_base64 = base64::engine::general_purpose::STANDARD.encode([0x1f, 0x8b, 8, 0, 0, 0]);
    for data in [
        data([0x1f, 0x8b, 8, 0, 0]),
        data([b'a', 0, b'b']),
        data([0xff, 0xfe]),
        data(format!("encoding: gz+b64\ncontent: {in_base64}\n")),
        data(format!("runcmd: ['x|{in_base64}']\n")),
        data(format!("source: data:,x%20{in_base64}\n")),
        data(format!("content: \"x\\n{in_base64}\"\n")),
        data("source: data:,%1f%8b%08%00\n"),
        data(vec![b'a'; (256 << 10) + 1]),
    ] {
        assert_eq!(excerpt(b"Kernel panic - not syncing\n", &data), None);
    }
}

proptest! {
    #[test]
    fn any_bytes_give_a_short_text_without_control_characters(log in prop::collection::vec(any::<u8>(), 0..4000)) {
        if let Some(quoted) = excerpt(&log, &data("")) {
            prop_assert!(quoted.len() <= MAX_BYTES && !quoted.chars().any(char::is_control), "{}", quoted);
        }
    }

    #[test]
    fn no_word_of_the_data_is_quoted(
        secret in "[A-Za-z0-9!$%&/?*+~.<>-]{8,40}", before in "[ =:\"'\\[]?", after in "[ ,;\"'\\]]?",
    ) {
        let data = data(format!("runcmd:\n- run {secret}\n"));
        let log = format!("+ run{before}{secret}{after}\n");
        let quoted = excerpt(log.as_bytes(), &data);
        prop_assert_eq!(quoted.as_deref(), Some(LEFT_OUT));
    }

    #[test]
    fn no_short_word_of_the_data_is_quoted(
        secret in "[A-Za-z0-9!$%&/?*+~.<>@|_-]{0,2}[0-9][A-Za-z0-9!$%&/?*+~.<>@|_-]{3,4}",
        before in "[[:punct:]]?", after in "[[:punct:]]?",
    ) {
        let data = data(format!("run '{secret}'
"));
        let quoted = excerpt(format!("+ x {before}{secret}{after}
").as_bytes(), &data);
        prop_assert_eq!(quoted.as_deref(), Some(LEFT_OUT));
    }

    #[test]
    fn no_short_part_of_a_word_of_the_data_is_quoted(
        secret in "[A-Za-z0-9][A-Za-z!-/:-@]{1,4}[0-9][a-z]",
        first in "[[:punct:]]", last in "[[:punct:]]",
        before in "[[:punct:]]?", after in "[[:punct:]]?",
    ) {
        let data = data(format!("run x{first}{secret}{last}x
"));
        let quoted = excerpt(format!("+ x {before}{secret}{after}
").as_bytes(), &data);
        prop_assert_eq!(quoted.as_deref(), Some(LEFT_OUT));
    }
}
