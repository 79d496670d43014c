//! Times and messages in the form of the Kubernetes API.

use jiff::{Timestamp, Unit};

/// The API server's limit for the message of an event, in bytes. Conditions keep to it too.
const MESSAGE_LIMIT: usize = 1024;

/// A time as the API writes it, in whole seconds.
pub fn api_time(time: Timestamp) -> String {
    time.round(Unit::Second).unwrap_or(time).to_string()
}

/// Cuts a message to at most 1,024 bytes, at a character boundary.
pub fn truncated(mut message: String) -> String {
    if message.len() > MESSAGE_LIMIT {
        let mut end = MESSAGE_LIMIT - "...".len();
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str("...");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        let cut = truncated("ä".repeat(2000));
        assert!(cut.len() <= MESSAGE_LIMIT && cut.ends_with("..."));
        assert_eq!(truncated("short".into()), "short");
    }
}
