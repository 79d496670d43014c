//! The file `meta-data` of `NoCloud`.

use cloudprovider::machines::Mark;

/// `instance-id` and the host name. `hostname` repeats `local-hostname`, since templates of bootstrap data use
/// either name (`{{ ds.meta_data.hostname }}`).
pub(super) fn render(mark: &Mark) -> String {
    let name = scalar(mark.name());
    format!("instance-id: {}\nlocal-hostname: {name}\nhostname: {name}\n", scalar(&mark.uid))
}

/// A text in YAML. Without quotes where it can only be a text, since small guests without a parser of YAML
/// read this file too.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.contains('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'));
    let is_uuid = text.len() == 36 && cloudprovider::uuids::parse_uuid(text).is_some();
    if is_plain || is_uuid { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
