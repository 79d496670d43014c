//! What Cluster API's webhook and the schema of the kind refuse. An object may have been written before they were there.

use std::collections::BTreeSet;

use cluster_api::kubeadm::{Encoding, Format, KubeadmConfigSpec, Partition, PartitionTableType, Timeouts};

use crate::error::Error;
use crate::present::is_set;
use crate::request::Request;

const WITH_IGNITION: &str = "is not supported with the format ignition";

/// Checks the spec. Errors name the first field that is wrong.
pub(crate) fn spec(request: &Request<'_>) -> Result<(), Error> {
    let spec = request.spec;
    files(spec)?;
    users(spec)?;
    format(spec)?;
    let mut devices = BTreeSet::new();
    for (index, partition) in spec.disk_setup.partitions.iter().enumerate() {
        let field = || format!("spec.diskSetup.partitions[{index}].device");
        // a cloud-config has the devices as keys
        check(devices.insert(partition.device.trim()), field, "is the device of another entry")?;
        check(!partition.device.is_empty(), field, "is empty")?;
        self::partition(partition, &format!("spec.diskSetup.partitions[{index}]"))?;
    }
    for (index, filesystem) in spec.disk_setup.filesystems.iter().enumerate() {
        let field = |name: &str| format!("spec.diskSetup.filesystems[{index}].{name}");
        check(!filesystem.device.is_empty(), || field("device"), "is empty")?;
        check(!filesystem.filesystem.is_empty(), || field("filesystem"), "is empty")?;
    }
    for (index, token) in spec.init_configuration.bootstrap_tokens.iter().enumerate() {
        let field = format!("spec.initConfiguration.bootstrapTokens[{index}]");
        check(
            is_bootstrap_token(&token.token),
            || format!("{field}.token"),
            "is not of the form abcdef.0123456789abcdef",
        )?;
        not_negative(token.ttl_seconds, || format!("{field}.ttlSeconds"))?;
    }
    timeouts(&spec.init_configuration.timeouts, "spec.initConfiguration.timeouts")?;
    timeouts(&spec.join_configuration.timeouts, "spec.joinConfiguration.timeouts")?;
    let user = &spec.join_configuration.discovery.file.kube_config.user;
    let field = || "spec.joinConfiguration.discovery.file.kubeConfig.user".to_owned();
    check(!(is_set(&user.auth_provider) && is_set(&user.exec)), field, "has both authProvider and exec")
}

fn check(is_right: bool, field: impl FnOnce() -> String, problem: &str) -> Result<(), Error> {
    if is_right { Ok(()) } else { Err(Error::invalid(field(), problem)) }
}

fn files(spec: &KubeadmConfigSpec) -> Result<(), Error> {
    let mut paths = BTreeSet::new();
    for (index, file) in spec.files.iter().enumerate() {
        let field = |name: &str| format!("spec.files[{index}]{name}");
        check(!file.path.is_empty(), || field(".path"), "is empty")?;
        check(paths.insert(&file.path), || field(".path"), "is the path of another file")?;
        if is_set(&file.content_from) {
            let has_content = file.content.as_deref().is_some_and(|content| !content.is_empty());
            check(!has_content, || field(""), "has both content and contentFrom")?;
            let secret = &file.content_from.secret;
            check(!secret.name.is_empty(), || field(".contentFrom.secret.name"), "is empty")?;
            check(!secret.key.is_empty(), || field(".contentFrom.secret.key"), "is empty")?;
        }
    }
    Ok(())
}

fn users(spec: &KubeadmConfigSpec) -> Result<(), Error> {
    for (index, user) in spec.users.iter().enumerate() {
        let field = |name: &str| format!("spec.users[{index}]{name}");
        check(!user.name.is_empty(), || field(".name"), "is empty")?;
        if is_set(&user.passwd_from) {
            let has_password = user.passwd.as_deref().is_some_and(|password| !password.is_empty());
            check(!has_password, || field(""), "has both passwd and passwdFrom")?;
            let secret = &user.passwd_from.secret;
            check(!secret.name.is_empty(), || field(".passwdFrom.secret.name"), "is empty")?;
            check(!secret.key.is_empty(), || field(".passwdFrom.secret.key"), "is empty")?;
        }
    }
    Ok(())
}

fn format(spec: &KubeadmConfigSpec) -> Result<(), Error> {
    if is_set(&spec.ignition) {
        let problem = "is not supported: the bootstrap data have no part for it";
        return Err(Error::invalid("spec.ignition.containerLinuxConfig", problem));
    }
    if spec.format != Some(Format::Ignition) {
        return Ok(());
    }
    for (index, user) in spec.users.iter().enumerate() {
        check(user.inactive != Some(true), || format!("spec.users[{index}].inactive"), WITH_IGNITION)?;
    }
    for (index, file) in spec.files.iter().enumerate() {
        let is_plain = matches!(file.encoding, None | Some(Encoding::Base64));
        check(is_plain, || format!("spec.files[{index}].encoding"), WITH_IGNITION)?;
    }
    check(spec.boot_commands.is_empty(), || "spec.bootCommands".to_owned(), WITH_IGNITION)?;
    for (index, partition) in spec.disk_setup.partitions.iter().enumerate() {
        let is_gpt = partition.table_type.is_none_or(|kind| kind == PartitionTableType::Gpt);
        check(is_gpt, || format!("spec.diskSetup.partitions[{index}].tableType"), WITH_IGNITION)?;
    }
    for (index, filesystem) in spec.disk_setup.filesystems.iter().enumerate() {
        let field = |name: &str| format!("spec.diskSetup.filesystems[{index}].{name}");
        let is_empty = |value: &Option<String>| value.as_deref().is_none_or(str::is_empty);
        check(is_empty(&filesystem.replace_fs), || field("replaceFS"), WITH_IGNITION)?;
        check(is_empty(&filesystem.partition), || field("partition"), WITH_IGNITION)?;
    }
    Ok(())
}

fn partition(partition: &Partition, field: &str) -> Result<(), Error> {
    let has_layouts = !partition.disk_layout.is_empty();
    check(
        partition.layout.is_some() != has_layouts,
        || field.to_owned(),
        "needs either layout or diskLayout",
    )?;
    let mut sum: i32 = 0;
    for (index, layout) in partition.disk_layout.iter().enumerate() {
        let field = |name: &str| format!("{field}.diskLayout[{index}].{name}");
        check((1..=100).contains(&layout.percentage), || field("percentage"), "is not from 1 to 100")?;
        sum = sum.saturating_add(layout.percentage);
        let is_known = layout.partition_type.as_deref().is_none_or(is_partition_type);
        check(is_known, || field("partitionType"), "is neither a known type nor a GUID")?;
    }
    check(sum <= 100, || format!("{field}.diskLayout"), "has more than 100 percent")
}

/// The names that Cluster API gives to types of partitions, or a GUID of a GPT.
fn is_partition_type(kind: &str) -> bool {
    let is_name =
        ["Linux", "LinuxSwap", "LinuxRAID", "LVM", "Fat32", "NTFS", "LinuxExtended"].contains(&kind);
    let parts: Vec<&str> = kind.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let are_digits = parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_name || (lengths == [8, 4, 4, 4, 12] && are_digits)
}

/// Six and sixteen lower-case letters or digits, with a dot between them.
fn is_bootstrap_token(token: &str) -> bool {
    let is_part = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    token.split_once('.').is_some_and(|(id, secret)| is_part(id, 6) && is_part(secret, 16))
}

fn timeouts(timeouts: &Timeouts, field: &str) -> Result<(), Error> {
    for (name, seconds) in [
        ("controlPlaneComponentHealthCheckSeconds", timeouts.control_plane_component_health_check_seconds),
        ("kubeletHealthCheckSeconds", timeouts.kubelet_health_check_seconds),
        ("kubernetesAPICallSeconds", timeouts.kubernetes_api_call_seconds),
        ("etcdAPICallSeconds", timeouts.etcd_api_call_seconds),
        ("tlsBootstrapSeconds", timeouts.tls_bootstrap_seconds),
        ("discoverySeconds", timeouts.discovery_seconds),
    ] {
        not_negative(seconds, || format!("{field}.{name}"))?;
    }
    Ok(())
}

fn not_negative(value: Option<i32>, field: impl FnOnce() -> String) -> Result<(), Error> {
    check(value.is_none_or(|value| value >= 0), field, "is negative")
}

#[cfg(test)]
mod tests;
