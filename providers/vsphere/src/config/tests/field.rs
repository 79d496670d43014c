//! Configuration files as operators write them. The behaviour of CPI was observed with `ReadCPIConfig` of CPI
//! 1.36.

use super::*;

/// Problems and warnings, marked by their first character. Also asserts that neither shows a secret.
fn told(text: &str) -> Vec<String> {
    let (outcome, warnings) = Config::read(text, &Environment::default());
    let problems = outcome.as_ref().err().map_or(&[][..], |error| error.problems());
    assert_eq!(outcome.is_err(), !problems.is_empty());
    let problems = problems.iter().map(|problem| format!("! {problem}"));
    let told: Vec<_> = problems.chain(warnings.iter().map(|warning| format!("? {warning}"))).collect();
    assert!(told.iter().all(|told| !told.contains("hunter2")), "{told:#?}");
    told
}

/// Asserts that each part is in one of the messages, and that there are no other messages.
fn assert_told(text: &str, parts: &[&str]) {
    let told = told(text);
    assert_eq!(told.len(), parts.len(), "{text}\n{told:#?}");
    for part in parts {
        let (kind, words) = part.split_at(1);
        let is_in = |told: &&String| told.starts_with(kind) && told.contains(words.trim_start());
        assert!(told.iter().any(|told| is_in(&told)), "{part}\n{text}\n{told:#?}");
    }
}

fn vcenter(keys: &str) -> String {
    format!("vcenter:\n  a:\n    server: vc1\n    {}\n", keys.replace('|', "\n    "))
}

fn with_password(password: &str) -> String {
    vcenter(&format!("user: u|password: {password}"))
}

fn password(text: &str) -> String {
    let places = &parse(text).vcenters[0].credentials;
    places.inline.as_ref().expect("inline").1.expose_secret().to_owned()
}

#[test]
fn what_explains_a_refusal_is_told_with_it() {
    for (text, parts) in [
        (
            "Global: {server: vc1, user: u, password: hunter2}",
            &["! no vCenter is given", "? \"Global\" is not known and ignored; did you mean global?"][..],
        ),
        (
            "VirtualCenter: {vc1: {user: u, password: hunter2}}",
            &["! no vCenter is given", "? did you mean vcenter?"],
        ),
        (
            "global: {secret-name: s, secret-namespace: n}\nvcenter: {a: {server: vc1}}",
            &[
                "! vcenter.a: has no credentials",
                "? did you mean secretName?",
                "? did you mean secretNamespace?",
            ],
        ),
        (
            "secretName: s\nsecretNamespace: n\nvcenter: {a: {server: vc1}}",
            &["! vcenter.a: has no credentials", "? it belongs below global:", "? it belongs below global:"],
        ),
        (
            "[Global]\nserver = vc1\n[vcenter \"vc1\"]\nuser = u\npassword = hunter2\n",
            &["! [Global]: has no credentials", "? did you mean VirtualCenter?"],
        ),
    ] {
        assert_told(text, parts);
    }
}

#[test]
fn passwords_that_end_too_early_are_told() {
    for (text, part) in [
        (
            "[Global]\nserver = a\nuser = u\npassword = ab#hunter2\n",
            "[Global] password: ends at a comment sign",
        ),
        (
            "[Global]\nserver = a\nuser = u\npassword = ab #hunter2\n",
            "[Global] password: ends at a comment sign",
        ),
        (
            "[Global]\nserver = a\nuser = u\npassword = ab;hunter2\n",
            "[Global] password: ends at a comment sign",
        ),
        (&with_password("ab #hunter2"), "vcenter.a.password: ends at a comment sign"),
    ] {
        assert_told(text, &[&format!("? {part}")]);
        assert_eq!(password(text), "ab");
    }
    for (text, expected) in [
        ("[Global]\nserver = a\nuser = u # who\npassword = ab # what\n", "ab"),
        ("[Global]\nserver = a #x\nuser = u\npassword = \"ab#c;d\" # what\n", "ab#c;d"),
        (&with_password("'ab #c' #x"), "ab #c"),
        (&with_password("ab#c # what"), "ab#c"),
    ] {
        assert_told(text, &[]);
        assert_eq!(password(text), expected);
    }
    // CPI also reports a missing password, but names the INI key for a YAML file
    for begins in ["#hunter2", "!hunter2", "&hunter2", "~", "null"] {
        assert_told(
            &with_password(begins),
            &["! has a user and no password; one that begins with # ! or &, or is ~"],
        );
    }
    let ini = "[Global]\nserver = a\nuser = u\npassword = #hunter2\n";
    assert_told(
        ini,
        &["! has a user and no password; one that begins with # or ;", "? ends at a comment sign"],
    );
}

#[test]
fn binary_is_decoded_as_in_cpi() {
    assert_eq!(password(&with_password("!!binary aHVudGVyMg==")), "hunter2");
    let block = vcenter("user: u") + "    password: !!binary |\n      aHVu\n      dGVyMg==\n";
    assert_eq!(password(&block), "hunter2");
    // `echo ... | base64` has included the line break, and CPI sends it
    let with_break = with_password("!!binary aHVudGVyMgo=");
    assert_eq!(password(&with_break), "hunter2\n");
    assert_told(&with_break, &["? vcenter.a.password: holds characters that copied texts often have"]);
    assert_told(&with_password("!!binary hunter2"), &["! is !!binary, and not base64 (line 5,"]);
}

#[test]
fn thumbprints_that_nobody_looks_at_stop_nothing() {
    for (keys, part) in [
        ("thumbprint: hunter2|insecureFlag: true", "it is not looked at, since insecureFlag is true"),
        ("thumbprint: hunter2|caFile: /ca.pem", "only an authority can vouch"),
        ("thumbprint: hunter2", "only an authority can vouch"),
    ] {
        let text = vcenter(&format!("user: u|password: p|{keys}"));
        assert_told(
            &text,
            &[&format!("? vcenter.a.thumbprint: must be the SHA-1 or SHA-256 of the certificate: {}", "20")],
        );
        assert!(told(&text)[0].contains(part));
    }
    let sha1 = "0102030405060708090A0B0C0D0E0F1011121314";
    for printed in [format!("sha1 Fingerprint={sha1}"), format!("vc1 {sha1}"), format!("\u{200e}{sha1}")] {
        let text = vcenter(&format!("user: u|password: p|thumbprint: \"{printed}\""));
        assert_told(&text, &[]);
        let thumbprint = parse(&text).vcenters[0].endpoint.thumbprint.clone().expect("one");
        assert_eq!(format!("{thumbprint:?}").replace(':', ""), sha1);
    }
}

#[test]
fn both_a_secret_and_a_user() {
    let secret = "global: {secretName: s, secretNamespace: n}\n";
    let own = "user: u|password: hunter2";
    for (text, is_inline_first, part) in [
        (
            format!("{secret}{}", vcenter(own)),
            true,
            "vcenter.a.user: stands beside Secret n/s: this user and its password are used, and Secret n/s where",
        ),
        (
            format!("{secret}{}", vcenter("user: use-your-vcenter-user-here|password: hunter2")),
            false,
            "vcenter.a.user: stands beside Secret n/s, which is used",
        ),
        (
            format!("global: {{secretName: s, secretNamespace: n, user: u, password: hunter2}}\n{}", vcenter("port: 1")),
            false,
            "global.user: stands beside Secret n/s, which is used",
        ),
        (
            "global: {server: vc1, secretName: s, secretNamespace: n, user: u, password: hunter2}\n".to_owned(),
            true,
            "global.user: stands beside Secret n/s: this user",
        ),
        (
            format!("global: {{secretsDirectory: /s}}\n{}", vcenter(own)),
            true,
            "vcenter.a.user: stands beside the folder /s: this user",
        ),
        (
            "[Global]\nsecret-name = s\nsecret-namespace = n\n[VirtualCenter \"vc1\"]\nuser = u\npassword = hunter2\n"
                .to_owned(),
            true,
            "[VirtualCenter \"vc1\"] user: stands beside Secret n/s: this user",
        ),
        // CPI inherits neither of them beside a Secret
        (
            format!("global: {{secretName: s, secretNamespace: n, password: hunter2}}\n{}", vcenter("user: u")),
            false,
            "vcenter.a.user: stands beside Secret n/s, which is used",
        ),
    ] {
        assert!(told(&text).iter().any(|told| told.contains(part)), "{part}\n{:#?}", told(&text));
        let places = &parse(&text).vcenters[0].credentials;
        assert!(places.secret.is_some() && places.inline.is_some());
        assert_eq!(places.is_inline_first, is_inline_first, "{text}");
    }
}

#[test]
fn a_secret_that_cannot_be_beside_a_user_stops_nothing() {
    let text = format!(
        "global: {{secretName: <your-secret>, secretNamespace: n}}\n{}",
        vcenter("user: u|password: p")
    );
    assert_told(
        &text,
        &[
            "? global.secretName: looks like a placeholder that nobody filled in",
            "? global.secretName: must be the name of a Secret",
        ],
    );
    let places = &parse(&text).vcenters[0].credentials;
    assert!(places.secret.is_none() && places.is_inline_first);
    let alone =
        format!("global: {{secretName: <your-secret>, secretNamespace: n}}\n{}", vcenter("port: 443"));
    assert_told(
        &alone,
        &["! global.secretName: must be the name", "? global.secretName: looks like a placeholder"],
    );
}

#[test]
fn copied_and_unfilled_values_are_named() {
    let user = |user: &str| vcenter(&format!("user: {user}|password: p"));
    for (text, parts) in [
        (user("\u{201c}u\u{201d}"), &["? vcenter.a.user: has typographic quotes"][..]),
        (user("u\u{a0}v"), &["? vcenter.a.user: holds a no-break space"]),
        (user("\"u \""), &["? vcenter.a.user: begins or ends with a blank"]),
        (user("<user>"), &["? vcenter.a.user: looks like a placeholder"]),
        (user("\"{{ user }}\""), &["? vcenter.a.user: looks like a placeholder"]),
        (with_password("${PASSWORD}"), &["? vcenter.a.password: looks like a placeholder"]),
        (with_password("\u{201c}hunter2\u{201d}"), &["? vcenter.a.password: holds characters that copied"]),
        (with_password("'hunter2 '"), &["? vcenter.a.password: holds characters that copied"]),
        (
            vcenter("user: u|password: p|insecureFlag: \u{201c}true\u{201d}"),
            &["! vcenter.a.insecureFlag: must be true or false; the value has typographic quotes"],
        ),
        (
            user("u").replace("vc1", "\"<vcenter>\""),
            &["! vcenter.a.server: must be a host name", "? vcenter.a.server: looks like a placeholder"],
        ),
        (
            user("u").replace("vc1", "\"vc1 \""),
            &["! vcenter.a.server: must be a host name", "? vcenter.a.server: begins or ends with a blank"],
        ),
        (user("u").replace("vc1", "{{ vcenter }}"), &["! a template that nobody filled in"]),
        (
            user("u").replace("    user", "\u{a0}\u{a0}\u{a0}\u{a0}user"),
            &["! a line is indented with no-break spaces"],
        ),
        ("[Global]\n\u{a0}user = u\n".to_owned(), &["! line 2: begins with a no-break space"]),
        ("[VirtualCenter \u{201c}vc1\u{201d}]\n".to_owned(), &["! line 1: has a name in typographic quotes"]),
        (
            "[Global]\nuser = u\u{a0}\npassword = p\nserver = vc1\n".to_owned(),
            &["? [Global] user: holds a no-break space"],
        ),
    ] {
        assert_told(&text, parts);
    }
}

#[test]
fn other_files_are_named_for_what_they_are() {
    let config = with_password("hunter2").replace('\n', "\n    ");
    for (text, part) in [
        (
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata:\n  vsphere.conf: |\n    {config}"
            ),
            "! is a Kubernetes manifest of kind ConfigMap, not the configuration in it",
        ),
        (
            "kind: Secret\napiVersion: v1\nstringData:\n  vc1.password: hunter2\n".to_owned(),
            "! is a Kubernetes manifest of kind Secret",
        ),
        (
            "apiVersion: v1\nkind: Config\nclusters: []\nusers: [{token: hunter2}]\n".to_owned(),
            "! is a kubeconfig",
        ),
        ("kind: DaemonSet\n---\nkind: Secret\n".to_owned(), "! is a Kubernetes manifest of kind DaemonSet"),
    ] {
        assert!(told(&text)[0].starts_with(part), "{:#?}", told(&text));
    }
    assert_told(&format!("kind: Anything\n{}", with_password("p")), &[]);
    let misspelt = "apiVersion: v1\nkind: Config\nvcentre: {a: {server: vc1}}\n";
    assert_told(misspelt, &["! no vCenter is given", "? did you mean vcenter?"]);
    let environment = [("VSPHERE_VCENTER", "vc1"), ("VSPHERE_USER", "u"), ("VSPHERE_PASSWORD", "p")];
    let named_elsewhere = Config::parse("apiVersion: v1\nkind: Config\n", &environment.into_iter().collect());
    let named_elsewhere = named_elsewhere.expect("the environment says all");
    assert!(named_elsewhere.warnings()[0].to_string().contains("is a kubeconfig"), "{named_elsewhere:?}");
    let two = format!("{}---\nvcenter: {{b: {{server: vc2}}}}\n", with_password("p"));
    assert_told(&two, &["? holds several YAML documents (---); only the first one counts"]);
    let in_tree =
        "[Global]\nuser = u\npassword = p\nserver = vc1\ndatacenter = DC0\n[Workspace]\nfolder = x\n[Disk]\n";
    assert_told(
        in_tree,
        &["? did you mean datacenters?", "? \"Workspace\" is of the in-tree", "? \"Disk\" is of"],
    );
}

#[test]
fn numbers_that_cannot_be() {
    for (key, value, part) in [
        ("port", "-1", "must be a port number, 1 to 65535"),
        ("port", "99999", "must be a port number, 1 to 65535"),
        ("port", "4.5", "must be a whole number"),
        ("port", "https", "must be a whole number"),
        ("soapRoundtripCount", "-1", "must be a whole number of at least 0"),
    ] {
        let text = vcenter(&format!("user: u|password: p|{key}: {value}"));
        assert_told(&text, &[&format!("! vcenter.a.{key}: {part}")]);
    }
    assert_told(
        "[Global]\nserver = a\nuser = u\npassword = p\nport = -1\n",
        &["! [Global] port: must be a port number"],
    );
    for (value, port) in [("443.0", 443), ("'8443'", 8443), ("!!int '9443'", 9443), ("0x1bb", 443)] {
        let text = vcenter(&format!("user: u|password: p|port: {value}"));
        assert_eq!(parse(&text).vcenters[0].endpoint.port, port, "{value}");
    }
}

#[test]
fn encodings_and_line_ends() {
    let yaml = with_password("p");
    let ini = "[Global]\nserver = vc1\nuser = u\npassword = p\n";
    for text in [yaml.as_str(), ini] {
        for text in [text.to_owned(), format!("\u{feff}{text}"), text.replace('\n', "\r\n")] {
            assert_told(&text, &[]);
            assert_eq!(password(&text), "p");
        }
    }
    assert_eq!(password(&yaml.replace('\n', "\r")), "p");
    assert_eq!(
        password("{\n\t\"global\": {\n\t\t\"server\":\"vc1\",\"user\":\"u\",\"password\":\"p\"}}"),
        "p"
    );
    for text in
        [yaml.replace("password: p", "password: p\u{7}"), yaml.replace("password: p", "password: p\0")]
    {
        assert!(told(&text)[0].starts_with("! not valid YAML"), "{:?}", told(&text));
    }
}
