//! Tests of the contents of Secrets.

use std::{fs, os::unix::fs::symlink};

use proptest::prelude::*;

use super::*;

fn read(values: &[(&str, &str)]) -> SecretContents {
    SecretContents::read(&values.iter().copied().collect())
}

/// The login as `user/password`.
fn login(contents: &SecretContents, server: &str) -> String {
    match contents.find(server) {
        Ok(LoginMethod::Password { user, password }) => format!("{user}/{}", password.expose_secret()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_notations() {
    let contents = read(&[
        ("vc1.example.org.username", "u1"),
        ("vc1.example.org.password", "p1\n"),
        ("10.0.0.1.username", "u2"),
        ("10.0.0.1.password", "p2\r\n"),
        ("server_a", "fd00::1\n"),
        ("username_a", "u3\n"),
        ("password_a", "p 3"),
    ]);
    assert_eq!(login(&contents, "vc1.example.org"), "u1/p1");
    assert_eq!(login(&contents, "10.0.0.1"), "u2/p2");
    assert_eq!(login(&contents, "fd00::1"), "u3/p 3");
    assert_eq!(contents.oddities, [""; 0]);
}

#[test]
fn placeholders_and_copied_texts_are_told_without_the_values() {
    let contents = read(&[
        ("a.username", "<ENTER_YOUR_VCENTER_USERNAME>"),
        ("a.password", "hunter2"),
        ("b.username", "u"),
        ("b.password", "hunter2 \n"),
        ("c.username", "u"),
        ("c.password", "hunter2\n"),
    ]);
    let [password, user] = contents.oddities.as_slice() else { panic!("{:?}", contents.oddities) };
    let mut told = [password.as_str(), user.as_str()];
    told.sort_unstable();
    assert!(told[0].starts_with("the value of \"a.username\" looks like a placeholder"), "{told:?}");
    assert!(told[1].starts_with("the value of \"b.password\" holds characters"), "{told:?}");
    assert!(told.iter().all(|told| !told.contains("hunter2")));
    assert!(contents.find("a").expect("there").is_placeholder());
    assert!(!contents.find("b").expect("there").is_placeholder());
}

#[test]
fn another_spelling_of_the_server_is_the_same() {
    let contents = read(&[
        ("VC1.example.org.username", "u1"),
        ("VC1.example.org.password", "p1"),
        ("server_a", "fd00:0::1"),
        ("username_a", "u2"),
        ("password_a", "p2"),
    ]);
    assert_eq!(login(&contents, "vc1.Example.org"), "u1/p1");
    assert_eq!(login(&contents, "[fd00::1]"), "u2/p2");
}

#[test]
fn only_one_line_break_is_taken_off() {
    let contents = read(&[("a.username", "u"), ("a.password", "p\n\n")]);
    assert_eq!(login(&contents, "a"), "u/p\n");
}

#[test]
fn other_ways_to_log_in() {
    let contents = read(&[
        ("a.username", "-----BEGIN CERTIFICATE-----\n..."),
        ("a.password", "-----BEGIN PRIVATE KEY-----\n..."),
        ("b.vc-session-manager-url", "https://sessions.example.org\n"),
        ("b.vc-session-manager-token", "hunter2\n"),
        ("c.vc-session-manager-url", "https://sessions.example.org"),
        ("c.vc-session-manager-token", ""),
        ("c.username", "u"),
        ("c.password", "p"),
        ("d.vc-session-manager-token", "hunter2"),
    ]);
    assert!(matches!(contents.find("a"), Ok(LoginMethod::Certificate)));
    let shared = |server| match contents.find(server) {
        Ok(LoginMethod::SharedSession { url, token, user }) => (
            url.expose_secret().to_owned(),
            token.map(|token| token.expose_secret().to_owned()),
            user.map(|(user, password)| format!("{user}/{}", password.expose_secret())),
        ),
        other => panic!("{other:?}"),
    };
    let url = "https://sessions.example.org".to_owned();
    assert_eq!(shared("b"), (url.clone(), Some("hunter2".to_owned()), None));
    assert_eq!(shared("c"), (url, None, Some("u/p".to_owned())), "the user is for what needs one");
    let why = contents.find("d").expect_err("a token alone").to_string();
    assert!(why.contains("the token of a session manager for \"d\" and no vc-session-manager-url"), "{why}");
    assert!(!format!("{why} {:?} {contents:?}", contents.find("b")).contains("hunter2"));
}

#[test]
fn what_is_missing_is_told() {
    let contents =
        read(&[("a.username", "u"), ("b.password", "hunter2"), ("c.username", ""), ("c.password", "")]);
    for (server, part) in [
        ("a", "has a user name for \"a\" and no password"),
        ("b", "has a password for \"b\" and no user name"),
        ("c", "no user name and password"),
        ("d", "it has some for \"a\", \"b\", \"c\""),
    ] {
        let why = contents.find(server).expect_err(server).to_string();
        assert!(why.contains(part), "{why}");
        assert!(!why.contains("hunter2"), "{why}");
    }
    let none = read(&[]).find("d").expect_err("empty").to_string();
    assert!(none.contains("it needs the keys \"d.username\" and \"d.password\""), "{none}");
}

#[test]
fn keys_that_mean_nothing_do_not_hide_those_that_do() {
    let contents = read(&[
        ("a.username", "u"),
        ("a.password", "p"),
        ("note", "hunter2"),
        ("username_x", "hunter2"),
        ("server_y", ""),
    ]);
    assert_eq!(login(&contents, "a"), "u/p");
    assert_eq!(contents.oddities.len(), 3, "{:?}", contents.oddities);
    assert!(!format!("{:?}", contents.oddities).contains("hunter2"));
}

#[test]
fn bytes_that_are_no_text_are_told() {
    let data: SecretData = [("a.username", vec![0xff]), ("a.password", b"p".to_vec())].into_iter().collect();
    let contents = SecretContents::read(&data);
    assert_eq!(contents.oddities, ["the value of \"a.username\" is not UTF-8"]);
    assert!(contents.find("a").is_err());
}

#[test]
fn a_token_that_is_no_text_is_not_replaced_by_the_pods() {
    let data: SecretData = [
        ("a.vc-session-manager-url", b"https://sessions.example.org".to_vec()),
        ("a.vc-session-manager-token", vec![0xff, 0xfe]),
    ]
    .into_iter()
    .collect();
    let why = SecretContents::read(&data).find("a").expect_err("no credentials").to_string();
    assert_eq!(why, "has a token of a session manager for \"a\" that is not UTF-8");
}

#[test]
fn a_mounted_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("..2026_11_21");
    fs::create_dir(&data).expect("a folder");
    fs::write(data.join("a.username"), "u").expect("written");
    fs::write(data.join("a.password"), "p\n").expect("written");
    symlink("..2026_11_21", folder.path().join("..data")).expect("a link");
    for key in ["a.username", "a.password"] {
        symlink(format!("..data/{key}"), folder.path().join(key)).expect("a link");
    }
    fs::create_dir(folder.path().join("more")).expect("a folder");
    let contents = SecretContents::read(&read_directory(folder.path()).expect("readable"));
    assert_eq!(login(&contents, "a"), "u/p");
    assert_eq!(contents.oddities, [""; 0]);
    let why = read_directory(&folder.path().join("none")).expect_err("not there");
    assert!(why.contains("/none: "), "{why}");
}

#[test]
fn nothing_is_shown() {
    let contents = read(&[("a.username", "root"), ("a.password", "hunter2")]);
    assert!(!format!("{contents:?} {:?}", contents.find("a")).contains("hunter2"));
}

proptest! {
    #[test]
    fn nothing_panics(values in prop::collection::vec(("[a-z._]{0,20}(|\\.username|\\.password)", ".{0,10}"), 0..6)) {
        let data: SecretData = values.into_iter().collect();
        let contents = SecretContents::read(&data);
        for server in ["a", "", "10.0.0.1"] {
            let _ = contents.find(server);
        }
    }
}
