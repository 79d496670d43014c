//! The mark of a machine in vCenter: whose it is, as a key of its extra configuration.
//!
//! The instance UUID of a machine is the UID of its mark. vCenter keeps it unique, but anybody may give a machine any
//! UUID, so the whole mark stands beside it.

use cloudprovider::machines::Mark;

/// The key of the extra configuration.
pub(crate) const MARK: &str = "cloud-controller-manager.mark";

/// The path of the key as a property.
pub(crate) const MARK_PATH: &str = "config.extraConfig[\"cloud-controller-manager.mark\"]";

/// A mark larger than this is not read.
const LARGEST: usize = 4096;

/// The mark as the value of the key.
pub(crate) fn write(mark: &Mark) -> String {
    // a structure of strings can always be written
    serde_json::to_string(mark).unwrap_or_default()
}

/// The mark that a value says, or `None` if it says none.
pub(crate) fn read(value: &str) -> Option<Mark> {
    (value.len() <= LARGEST).then(|| serde_json::from_str(value).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mark = Mark::machine("u-1", "default", "prod", "node-1");
        let text = write(&mark);
        assert_eq!(text, r#"{"uid":"u-1","namespace":"default","cluster":"prod","machine":"node-1"}"#);
        assert_eq!(read(&text), Some(mark));
        for other in ["", "{}", "node-1"] {
            assert_eq!(read(other), None, "{other}");
        }
        assert!(MARK_PATH.contains(MARK));
    }
}
