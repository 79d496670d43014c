//! Random texts.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn nothing_panics_and_no_password_is_told(text in "(?s).{0,200}", key in 0..keys().count(), value in "[^\n]{0,20}") {
        let _ = Config::parse(&text, &Environment::default());
        let (section, key) = keys().nth(key).expect("a key");
        for text in [
            format!("{}: {{{}: {value}}}\n{MINIMAL}", section.yaml, key.name),
            format!("[{} \"x\"]\n{} = {value}\n", section.ini, key.ini),
            format!("[{}]\n{} = {value}\n", section.ini, key.ini),
        ] {
            let _ = Config::parse(&text, &Environment::default());
        }
    }

    #[test]
    fn secrets_stay_secret(password in "[a-zA-Z0-9]{12,20}", junk in "[a-z]{0,3}[:=\\[\\]{}'\"#;&*!|>%@,-]{0,3}") {
        for text in [
            format!("vcenter: {{a: {{server: 'x y', user: u, password: {junk}{password}}}}}"),
            format!("vcenter:\n  a:\n    password: {password}\n    server: {junk}{password}/\n"),
            format!("[Global]\npassword = {password}{junk}\nport = {password}\n"),
            format!("[Global]\npassword {junk} {password}\n"),
            format!("{junk}{password}"),
        ] {
            if let Err(error) = Config::parse(&text, &Environment::default()) {
                let told = format!("{error} {error:?}");
                prop_assert!(!told.contains(&password), "{}\n{}", text, told);
            }
        }
    }
}
