//! Tests of the configuration.

use std::{io, path::Path};

use cloudprovider::ErrorKind;
use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::*;

const GOOD: &str = "url: https://rancher.example.org\naccessKey: ABC\nsecretKey: correct-horse\n";

fn read(text: &str) -> Result<Config> {
    Config::read(&FactoryInput::new(text), &Environment::default())
}

fn problems(text: &str) -> Vec<String> {
    let error = read(text).expect_err("it has faults");
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
    error.problems().iter().map(ToString::to_string).collect()
}

fn keys(text: &str) -> Vec<String> {
    read(text).expect_err("it has faults").problems().iter().map(|problem| problem.key.clone()).collect()
}

/// The API key of a configuration.
fn key(config: &Config) -> (&str, &str) {
    match &config.server.credentials {
        Credentials::Key { access, secret } => (access.expose_secret(), secret.expose_secret()),
        Credentials::Token(_) => panic!("a token"),
    }
}

#[test]
fn the_old_variables_are_enough() {
    let environment: Environment = [
        ("CATTLE_URL", "https://rancher.example.org/v1/projects/1a5"),
        ("CATTLE_ACCESS_KEY", "ABC"),
        ("CATTLE_SECRET_KEY", "correct-horse"),
    ]
    .into_iter()
    .collect();
    let config = Config::read(&FactoryInput::default(), &environment).expect("good");
    assert_eq!(config.cattle_url(), "https://rancher.example.org/v2-beta/projects/1a5");
    assert_eq!(key(&config), ("ABC", "correct-horse"));
    // The environment is the lowest layer.
    let file = FactoryInput::new("[Global]\ncattle-access-key = DEF\n");
    let config = Config::read(&file, &environment).expect("good");
    assert_eq!(key(&config).0, "DEF");
}

/// Files as they are found beside the old manager, which opened them and read nothing.
#[test]
fn files_from_the_field_are_read() {
    for text in [
        "[Global]\ncattle-url = \"https://rancher.example.org\"\ncattle-access-key = \"ABC\"\ncattle-secret-key = \"correct-horse\"\n",
        "; of the installer\n[global]\nCattle-URL=https://rancher.example.org/v2-beta\ncattle-access-key=ABC\r\ncattle-secret-key=correct-horse\n",
        "[Global]\ncattle-url = https://rancher.example.org/v1/schemas\ncattle-access-key = ABC ; a key\ncattle-secret-key = correct-horse\n[Disk]\nscsi = x\n",
        "\u{feff}[Global]\ncattle-url = https://rancher.example.org/\ncattle-access-key = ABC\ncattle-secret-key = correct-horse\ncattle-colour = red\n",
    ] {
        let config = read(text).expect(text);
        assert_eq!(config.cattle_url(), "https://rancher.example.org/v2-beta", "{text}");
        assert_eq!(key(&config).1, "correct-horse");
        assert_eq!(config.cattle, CattleConfig::default());
        assert_eq!(config.load_balancer.mode, LoadBalancerMode::Cattle);
    }
    // An empty file beside the variables: the usual case.
    let environment: Environment =
        [("CATTLE_URL", "http://h:8080"), ("CATTLE_ACCESS_KEY", "a"), ("CATTLE_SECRET_KEY", "b")]
            .into_iter()
            .collect();
    for text in ["", "\n", "# nothing\n", "[Global]\n"] {
        let input = FactoryInput::new(text);
        assert_eq!(Config::read(&input, &environment).expect("good").cattle_url(), "http://h:8080/v2-beta");
        let warnings: Vec<_> = input.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(warnings, ["CATTLE_URL: is a URL without TLS: the API key is sent in the clear"]);
    }
}

#[test]
fn every_key_is_read_in_both_formats() {
    let yaml = "url: https://r.example.org:8443/sub\napiVersion: v2-beta\naccessKey: ABC\nsecretKey: correct-horse\n\
                projectID: 1a7\ninsecureSkipVerify: true\ntimeout: 20s\npageSize: 50\nrefreshInterval: 1m\n\
                pollInterval: 10s\naddresses: {types: both}\n\
                zones: {zoneLabel: rack, regionLabel: room, legacyZones: true}\n\
                loadBalancer: {mode: none, stackName: s, stackExternalID: 's://', imageSetting: i, retryInterval: 5s}\n";
    let gcfg = "[Global]\ncattle-url = https://r.example.org:8443/sub\napi-version = v2-beta\ncattle-access-key = ABC\n\
                cattle-secret-key = correct-horse\nproject-id = 1a7\ninsecure-skip-verify\ntimeout = 20s\npage-size = 50\n\
                refresh-interval = 1m\npoll-interval = 10s\n[Addresses]\ntypes = both\n\
                [Zones]\nzone-label = rack\nregion-label = room\nlegacy-zones = true\n\
                [LoadBalancer]\nmode = none\nstack-name = s\nstack-external-id = s://\nimage-setting = i\nretry-interval = 5s\n";
    let [yaml, gcfg] = [yaml, gcfg].map(|text| format!("{:?}", read(text).expect(text)));
    assert_eq!(yaml, gcfg);
    for part in [
        "url: \"https://r.example.org:8443/sub\"",
        "project: Some(\"1a7\")",
        "timeout: 20s",
        "page_size: 50",
        "refresh_interval: 60s",
        "poll_interval: 10s",
        "insecure: true",
        "address_types: Both",
        "legacy_zones: true",
        "mode: None",
        "retry_interval: 5s",
    ] {
        assert!(yaml.contains(part), "{part}: {yaml}");
    }
    assert!(!yaml.contains("correct-horse"), "{yaml}");
}

#[test]
fn all_faults_are_told_at_once() {
    let text = "url: ftp://x\napiVersion: v4\naccessKey: 5\npageSize: 0\ntimeout: fast\nrefreshInterval: 1s\n\
                caFile: /no/such/file\ncaCert: none\nprojectID: a b\ninsecureSkipVerify: perhaps\n\
                addresses: {types: inner}\nzones: {zoneLabel: 'a b', colour: red}\n\
                loadBalancer: {mode: servicelb, retryInterval: 0s}\nurll: x\n";
    let mut keys = keys(text);
    keys.sort();
    assert_eq!(
        keys,
        [
            "accessKey",
            "addresses.types",
            "apiVersion",
            "caCert",
            "caFile",
            "insecureSkipVerify",
            "loadBalancer.mode",
            "loadBalancer.retryInterval",
            "pageSize",
            "refreshInterval",
            "secretKey",
            "timeout",
            "url",
            "urll",
            "zones.colour",
            "zones.zoneLabel",
        ]
    );
    assert_eq!(problems(&format!("{GOOD}urll: x\n")), ["urll: unknown key; did you mean url?"]);
    assert_eq!(
        problems("accessKey: a\n"),
        [
            "url: is missing; give the URL of the Rancher server, here or in CATTLE_URL",
            "secretKey: is missing; give secretKey, secretKeyFile or the environment variable CATTLE_SECRET_KEY"
        ]
    );
    assert_eq!(keys_of_gcfg(), ["[Global] cattle-secret-key", "[Global] cattle-url"]);
}

/// Rancher 2.x does not answer more in time.
#[test]
fn a_page_is_as_long_as_the_server_can_answer() {
    let v3 = format!("url: https://h\ntoken: {TOKEN}\nclusterName: prod\n");
    for (text, most) in [(GOOD.to_owned(), 10_000), (v3, 3000)] {
        let config = read(&format!("{text}pageSize: {most}\n")).expect("a good configuration");
        assert_eq!(config.server.page_size, most);
        let found = problems(&format!("{text}pageSize: {}\n", most + 1));
        assert!(found[0].starts_with(&format!("pageSize: must be between 1 and {most}")), "{found:?}");
    }
}

fn keys_of_gcfg() -> Vec<String> {
    keys("[Global]\ncattle-url = nonsense\ncattle-access-key = ABC\ncattle-secret-key\n")
}

const TOKEN: &str = "token-abcde:correct-horse-battery";

#[test]
fn the_version_is_what_the_configuration_says() {
    for (text, version) in [
        (GOOD.to_owned(), ApiVersion::Auto),
        (format!("{GOOD}apiVersion: auto\n"), ApiVersion::Auto),
        (format!("{GOOD}apiVersion: v2-beta\n"), ApiVersion::V2Beta),
        (format!("{GOOD}projectID: 1a5\n"), ApiVersion::V2Beta),
        (GOOD.replace(".org", ".org/v1"), ApiVersion::V2Beta),
        (GOOD.replace(".org", ".org/v2-beta/projects/1a5/schemas"), ApiVersion::V2Beta),
        (format!("{GOOD}clusterID: local\n"), ApiVersion::V3),
        (format!("{}clusterName: prod\n", GOOD.replace(".org", ".org/v3")), ApiVersion::V3),
        (format!("{GOOD}apiVersion: v3\nclusterID: c-m-abcdefgh\n"), ApiVersion::V3),
        (format!("url: https://h\ntoken: {TOKEN}\nclusterName: prod\n"), ApiVersion::V3),
    ] {
        let config = read(&text).expect(&text);
        assert_eq!(config.api_version, version, "{text}");
        assert_eq!(config.management.is_some(), version == ApiVersion::V3, "{text}");
        let mode = if version == ApiVersion::V3 { LoadBalancerMode::None } else { LoadBalancerMode::Cattle };
        assert_eq!(config.load_balancer.mode, mode, "{text}");
    }
    let of_rancher_2 = format!("{GOOD}clusterID: local\n");
    for (text, expected) in [
        (format!("{GOOD}apiVersion: v3\n"), "clusterID"),
        (format!("{of_rancher_2}clusterName: prod\n"), "clusterName"),
        (format!("{of_rancher_2}projectID: 1a5\n"), "projectID"),
        (format!("{of_rancher_2}addresses: {{types: both}}\n"), "addresses.types"),
        (format!("{of_rancher_2}addresses: {{nodeIPCIDR: 10.0.0.0/33}}\n"), "addresses.nodeIPCIDR"),
        (format!("{of_rancher_2}addresses: {{excludeCIDRs: '10.0.0.1,'}}\n"), "addresses.excludeCIDRs"),
        (
            format!("{GOOD}apiVersion: v2-beta\naddresses: {{excludeCIDRs: fd00::/8}}\n"),
            "addresses.excludeCIDRs",
        ),
        (format!("{of_rancher_2}apiVersion: v2-beta\n"), "clusterID"),
        (format!("{GOOD}clusterID: 'a b'\n"), "clusterID"),
        (format!("{of_rancher_2}namespace: 'a b'\n"), "namespace"),
        (format!("{of_rancher_2}loadBalancer: {{mode: cattle}}\n"), "loadBalancer.mode"),
        (format!("{}apiVersion: v2-beta\n", GOOD.replace(".org", ".org/v3")), "url"),
        (format!("{}apiVersion: v3\nclusterID: local\n", GOOD.replace(".org", ".org/v1")), "url"),
        (GOOD.replace(".org", ".org/v3/clusters"), "url"),
    ] {
        let keys = keys(&text);
        assert!(keys.contains(&expected.to_owned()), "{text}: {keys:?}");
    }
}

#[test]
fn networks_have_commas_between_them() {
    let text = format!(
        "{GOOD}clusterID: local\naddresses: {{nodeIPCIDR: '10.0.0.0/8, fd00::/8', excludeCIDRs: 192.0.2.7/32}}\n"
    );
    let addresses = read(&text).expect("a configuration").management.expect("Rancher 2.x").addresses;
    let shown = |networks: &[ipnet::IpNet]| networks.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&addresses.internal), ["10.0.0.0/8", "fd00::/8"]);
    assert_eq!(shown(&addresses.excluded), ["192.0.2.7/32"]);
}

#[test]
fn a_token_takes_the_place_of_a_key() {
    let reader = |path: &Path| match path.to_str() {
        Some("/run/token") => Ok(format!("{TOKEN}\n").into_bytes()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let read = |text: &str| {
        let input = FactoryInput::new(text).with_reader(reader);
        // The variables are the lowest layer.
        let environment = [("CATTLE_ACCESS_KEY", "old"), ("CATTLE_SECRET_KEY", "old")].into_iter().collect();
        Config::read(&input, &environment)
    };
    for text in ["tokenFile: /run/token\n".to_owned(), format!("token: {TOKEN}\n")] {
        let config = read(&format!("url: https://h/v3\nclusterID: local\n{text}")).expect(&text);
        let Credentials::Token(token) = &config.server.credentials else { panic!("{config:?}") };
        assert_eq!(token.expose_secret(), TOKEN);
        assert!(!format!("{config:?}").contains("battery"), "{config:?}");
        assert_eq!(config.management_url(), "https://h/v3");
        let expected = ManagementConfig {
            cluster: ClusterSelector::Id("local".to_owned()),
            namespace: None,
            addresses: AddressRules::default(),
        };
        assert_eq!(config.management, Some(expected));
    }
    let error = read(&format!("url: https://h\nclusterID: local\ntoken: {TOKEN}\naccessKey: a\n"));
    let error = error.expect_err("both").report();
    assert!(error.contains("accessKey: stands beside a token") && !error.contains("battery"), "{error}");
}

#[test]
fn secrets_are_read_from_files() {
    let reader = |path: &Path| match path.to_str() {
        Some("/etc/ccm/access") => Ok(b"ABC\n".to_vec()),
        Some("/run/secret") => Ok(b"correct-horse\r\n".to_vec()),
        Some("/run/empty") => Ok(b"\n".to_vec()),
        Some("/run/two") => Ok(b"a\nb\n".to_vec()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let read = |access: &str, secret: &str| {
        let text = format!("url: https://h\naccessKeyFile: {access}\nsecretKeyFile: {secret}\n");
        let input = FactoryInput::new(text).with_path("/etc/ccm/config.yaml").with_reader(reader);
        // A file takes precedence over a variable.
        let environment = [("CATTLE_SECRET_KEY", "old")].into_iter().collect();
        Config::read(&input, &environment)
    };
    let config = read("access", "/run/secret").expect("good");
    assert_eq!(key(&config), ("ABC", "correct-horse"));
    let error = read("/run/empty", "/run/two").expect_err("bad files").report();
    assert!(
        error.contains("accessKeyFile: /run/empty is empty; secretKeyFile: /run/two has more"),
        "{error}"
    );
    let error = read("missing", "/run/secret").expect_err("no file").report();
    assert!(error.contains("accessKeyFile: cannot read /etc/ccm/missing"), "{error}");
    assert_eq!(keys(&format!("{GOOD}secretKeyFile: /no/such/file\n")), ["secretKeyFile", "secretKeyFile"]);
}

#[test]
fn urls_may_hold_a_path_and_a_project() {
    for (url, project, base) in [
        ("https://h", "", "https://h/v2-beta"),
        ("https://h/", "", "https://h/v2-beta"),
        ("https://h/v1", "1a5", "https://h/v2-beta/projects/1a5"),
        ("https://h/v2-beta/projects/1a5/", "", "https://h/v2-beta/projects/1a5"),
        ("https://h/v2-beta/projects/1a5", "1a5", "https://h/v2-beta/projects/1a5"),
        ("https://h/rancher/v1/projects/1a5/schemas", "", "https://h/rancher/v2-beta/projects/1a5"),
        ("https://[fd00::1]:8443", "", "https://[fd00::1]:8443/v2-beta"),
    ] {
        let project = if project.is_empty() { String::new() } else { format!("projectID: {project}\n") };
        let config = read(&format!("url: {url:?}\naccessKey: a\nsecretKey: b\n{project}")).expect(url);
        assert_eq!(config.cattle_url(), base, "{url}");
    }
    for url in ["https://", "rancher.example.org", "https://user:pw@h", "file:///etc"] {
        assert_eq!(keys(&format!("url: {url:?}\naccessKey: a\nsecretKey: b\n")), ["url"], "{url}");
    }
    assert_eq!(
        keys("url: https://h/v1/projects/1a5\nprojectID: 1a6\naccessKey: a\nsecretKey: b\n"),
        ["projectID"]
    );
}

#[test]
fn a_manifest_is_no_configuration() {
    let problems = problems("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n");
    assert!(problems.len() == 1 && problems[0].contains("Secret"), "{problems:?}");
}

#[test]
fn a_private_authority_is_read() {
    let key = rcgen::generate_simple_self_signed(vec!["h".to_owned()]).expect("a certificate");
    let pem = key.cert.pem().replace('\n', "\n  ");
    let config = read(&format!("{GOOD}caCert: |\n  {pem}\n")).expect("good");
    assert_eq!(config.server.authorities.expect("one").len(), 1);
}

proptest! {
    #[test]
    fn no_text_panics_or_shows_a_secret(
        text in "(\\[Global\\]|url: |cattle-url = |secretKey|accessKey|timeout|zones|: |=|\n| |hunter2hunter2|\\PC){0,30}",
    ) {
        let input = FactoryInput::new(text);
        let outcome = Config::read(&input, &Environment::default());
        let mut told: Vec<_> = input.warnings().iter().map(ToString::to_string).collect();
        told.extend(outcome.err().map(|error| error.report()));
        prop_assert!(!told.join("\n").contains("hunter2hunter2"), "{:?}", told);
    }
}
