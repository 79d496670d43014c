//! A text that no log may show.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// A text that may be a credential: a token, a password, the content of a file. `Debug` hides it; serde writes it as it is.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(hidden)")
    }
}

impl Deref for SecretText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl JsonSchema for SecretText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "SecretText".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use crate::kubeadm::{BootstrapToken, File, User};

    #[test]
    fn what_is_secret_is_not_shown() {
        let file = File { content: Some("hidden-content".into()), ..File::default() };
        let user = User { passwd: Some("hidden-hash".into()), ..User::default() };
        let token = BootstrapToken { token: "hidden-token".into(), ..BootstrapToken::default() };
        let shown = format!("{file:?} {user:?} {token:?}");
        assert!(!shown.contains("hidden-"), "{shown}");
        let written = serde_json::json!([file, user, token]).to_string();
        for secret in ["hidden-content", "hidden-hash", "hidden-token"] {
            assert!(written.contains(secret), "{written}");
        }
    }
}
