//! The file `meta-data` of `NoCloud`.

use std::fmt::Write as _;

use cloudprovider::{ControlPlaneEndpoint, machines::Mark};

/// `instance-id`, the host name, and where the API server of the cluster is reached, if that is known. `hostname` repeats
/// `local-hostname`, since templates of bootstrap data use either name (`{{ ds.meta_data.hostname }}`). Names of keys have
/// no hyphens where templates need them.
pub(super) fn render(mark: &Mark, endpoint: Option<&ControlPlaneEndpoint>) -> String {
    let name = scalar(mark.name());
    let mut text = format!("instance-id: {}\nlocal-hostname: {name}\nhostname: {name}\n", scalar(&mark.uid));
    if let Some(ControlPlaneEndpoint { host, port }) = endpoint {
        let host = scalar(host);
        // a String takes everything
        let _ = write!(text, "control_plane_endpoint_host: {host}\ncontrol_plane_endpoint_port: {port}\n");
    }
    text
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
