//! What is shown of the flags.

#[test]
fn values_as_go_shows_them() {
    let flags = crate::flags::parse([
        "ccm",
        "--cloud-provider=x",
        "--node-monitor-period=90s",
        "--controllers=a,b",
        "--controllers=c",
        "--secure-port=0x10",
        "--leader-elect=F",
        "--kube-api-qps=5.5",
        "--feature-gates=WatchList=true",
        "--feature-gates=AllAlpha=false",
        "--tls-curve-preferences=29,23",
        "-v4",
    ])
    .expect("good flags");
    let shown = flags.shown();
    for (flag, value) in [
        ("cloud-provider", "x"),
        ("node-monitor-period", "1m30s"),
        ("controllers", "[a,b,c]"),
        ("secure-port", "16"),
        ("leader-elect", "false"),
        ("profiling", "true"),
        ("kube-api-qps", "5.5"),
        ("feature-gates", "WatchList=true,AllAlpha=false"),
        ("tls-curve-preferences", "[29,23]"),
        ("v", "4"),
        ("cloud-config", ""),
        ("node-deletion-breaker-percent", "20"),
        ("leader-elect-lease-duration", "15s"),
        ("authorization-always-allow-paths", "[/healthz,/readyz,/livez]"),
    ] {
        assert_eq!(shown.get(flag).map(String::as_str), Some(value), "--{flag}");
    }
}

#[test]
fn no_password_is_shown() {
    for (url, expected) in [
        ("https://u:hunter@2@host:6443/p", "https://CLASSIFIED@host:6443/p"),
        ("u:hunter2@host", "CLASSIFIED@host"),
        ("https://host?token=hunter2", "https://host?CLASSIFIED"),
        ("https://u:hunter?2@host", "https://CLASSIFIED@host"),
        ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
    ] {
        let flags = crate::flags::parse(["ccm", &format!("--master={url}")]).expect("good flags");
        assert_eq!(flags.shown()["master"], expected);
    }
    let flags = crate::flags::parse(["ccm", "--cloud-config=ftp://u:hunter2@host/x"]).expect("flags");
    assert!(!format!("{:?}", flags.shown()).contains("hunter2"));
}
