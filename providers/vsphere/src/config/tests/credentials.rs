//! Where credentials come from.

use super::*;

#[test]
fn credentials_come_from_where_they_are() {
    let object = |namespace: &str, name: &str| {
        Some(SecretPlace::Object(SecretName { namespace: namespace.into(), name: name.into() }))
    };
    let directory = Some(SecretPlace::Directory("/secrets".into()));
    for (global, own, secret, has_inline) in [
        ("secretName: s, secretNamespace: n", "", object("n", "s"), false),
        ("secretName: s, secretNamespace: n", "secretName: t, secretNamespace: m", object("m", "t"), false),
        ("secretName: s, secretNamespace: n", "secretName: t", object("n", "s"), false),
        ("secretName: s, secretNamespace: n", "user: u, password: p", object("n", "s"), true),
        ("secretsDirectory: /secrets", "", directory.clone(), false),
        ("secretsDirectory: /secrets", "secretName: t, secretNamespace: m", object("m", "t"), false),
        ("secretsDirectory: /secrets, secretName: s", "", directory.clone(), false),
        (
            "secretsDirectory: /secrets, secretName: s, secretNamespace: n, user: u, password: p",
            "",
            None,
            true,
        ),
        ("user: u", "password: p", None, true),
        ("user: u, password: p, secretName: s", "", None, true),
    ] {
        let config = parse(&format!("global: {{{global}}}\nvcenter: {{a: {{server: vc1, {own}}}}}"));
        let places = &config.vcenters[0].credentials;
        assert_eq!((&places.secret, places.inline.is_some()), (&secret, has_inline), "{global} {own}");
    }
}

#[test]
fn missing_credentials_say_which() {
    let vcenter = "vcenter: {a: {server: vc1}}";
    for (global, part) in [
        ("{}", "vcenter.a: has no credentials; give secretName and secretNamespace of a Secret"),
        ("{user: u}", "vcenter.a: has a user and no password"),
        ("{password: p}", "vcenter.a: has a password and no user"),
        ("{secretName: s}", "vcenter.a: has a secretName and no secretNamespace"),
        ("{secretNamespace: s}", "vcenter.a: has a secretNamespace and no secretName"),
        (
            "{secretName: s, secretNamespace: n, secretsDirectory: /s}",
            "global.secretsDirectory: stands beside the name of a Secret; give one of the two",
        ),
    ] {
        let found = problems(&format!("global: {global}\n{vcenter}"));
        assert!(found.iter().any(|problem| problem.starts_with(part)), "{global}: {found:?}");
    }
    let ini = problems("[VirtualCenter \"vc1\"]\n");
    assert!(
        ini[0].starts_with("[VirtualCenter \"vc1\"]: has no credentials; give secret-name and"),
        "{ini:?}"
    );
}

#[test]
fn names_of_secrets_that_cannot_be() {
    let long = "a".repeat(64);
    let longer = format!("{long}.").repeat(4);
    for (key, name, is_right) in [
        ("secretName", "a", true),
        ("secretName", "vc.prod-1.0", true),
        ("secretName", long.as_str(), true),
        ("secretName", longer.as_str(), false),
        ("secretName", "vc_prod", false),
        ("secretName", "VC", false),
        ("secretName", "-vc", false),
        ("secretName", "vc.", false),
        ("secretName", "kube-system/vc", false),
        ("secretNamespace", "kube-system", true),
        ("secretNamespace", "0", true),
        ("secretNamespace", long.as_str(), false),
        ("secretNamespace", "kube.system", false),
        ("secretNamespace", "kube-system-", false),
        ("secretNamespace", "é", false),
    ] {
        let other = if key == "secretName" { "secretNamespace: n" } else { "secretName: n" };
        for text in [
            format!("global: {{server: vc1, {key}: '{name}', {other}}}"),
            format!("vcenter: {{a: {{server: vc1, {key}: '{name}', {other}}}}}"),
        ] {
            if is_right {
                parse(&text);
                continue;
            }
            let found = problems(&text);
            let [only] = found.as_slice() else { panic!("{text}: {found:?}") };
            assert!(only.contains(&format!(".{key}: must be the name of a ")), "{only}");
            assert!(!only.contains(name), "{only}");
        }
    }
    let found = problems("[VirtualCenter \"vc1\"]\nsecret-name = a b\nsecret-namespace = n\n");
    assert!(
        found[0].starts_with("[VirtualCenter \"vc1\"] secret-name: must be the name of a Secret"),
        "{found:?}"
    );
}

#[test]
fn a_name_that_cannot_be_hides_the_secret_of_global() {
    let own = "user: u, password: p, secretNamespace: n, secretName: '<secret>'";
    for global in ["secretName: s, secretNamespace: n", "secretsDirectory: /secrets"] {
        let text = format!("global: {{{global}}}\nvcenter: {{a: {{server: vc1, {own}}}}}");
        let places = &parse(&text).vcenters[0].credentials;
        assert_eq!((&places.secret, places.inline.is_some(), places.is_inline_first), (&None, true, true));
        let told = warnings(&text);
        assert!(
            told.iter().any(|told| told.contains("no Secret is used, but user and password")),
            "{told:?}"
        );
    }
    // an invalid Secret name in global hides the folder as a valid one does
    let user = "vcenter: {a: {server: vc1, user: u, password: p}}";
    let global = "secretsDirectory: /secrets, secretName: '<secret>', secretNamespace: n";
    let text = format!("global: {{{global}}}\n{user}");
    assert_eq!(parse(&text).vcenters[0].credentials.secret, None);
    assert!(warnings(&text).iter().any(|told| told.contains("neither is used")));
    // a vCenter that names a valid Secret itself gets no misleading message
    let own = "secretName: t, secretNamespace: m, user: u, password: p";
    let text = format!(
        "global: {{secretName: '<secret>', secretNamespace: n}}\nvcenter: {{a: {{server: vc1, {own}}}}}"
    );
    assert!(parse(&text).vcenters[0].credentials.secret.is_some());
    assert!(!warnings(&text).iter().any(|told| told.contains("no Secret is used")), "{:?}", warnings(&text));
}

#[test]
fn a_password_of_common_words_is_no_placeholder() {
    let global = "global: {secretName: s, secretNamespace: n}";
    for (password, is_first) in [("changeme", true), ("your-password", true), ("<password>", false)] {
        let text = format!("{global}\nvcenter: {{a: {{server: vc1, user: u, password: '{password}'}}}}");
        assert_eq!(parse(&text).vcenters[0].credentials.is_inline_first, is_first, "{password}");
        let told = warnings(&text);
        assert_eq!(told.iter().any(|told| told.contains("placeholder")), !is_first, "{told:?}");
    }
}
