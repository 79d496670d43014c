//! The modules of cloud-init beside files: commands, time, users, disks and mounts.

use std::fmt::Write as _;

use basics::go::quoted;
use cluster_api::SecretText;
use cluster_api::kubeadm::{DiskSetup, NTP, Partition, PartitionTableType, User};

use super::scalar::scalar;
use crate::present::is_set;

/// Appends a line to the document, whose last line has no line break.
macro_rules! line {
    ($out:expr, $($text:tt)*) => {{
        $out.push('\n');
        // writing into a text cannot fail
        let _ = write!($out, $($text)*);
    }};
}

pub(super) fn commands(out: &mut String, commands: &[String]) {
    for command in commands {
        line!(out, "  - {}", quoted(command));
    }
}

pub(super) fn ntp(out: &mut String, ntp: &NTP) {
    if !is_set(ntp) {
        return;
    }
    line!(out, "ntp:");
    if let Some(enabled) = ntp.enabled {
        line!(out, "  enabled: {enabled}");
    }
    line!(out, "  servers:");
    list(out, 4, &ntp.servers);
}

pub(super) fn users(out: &mut String, users: &[User], passwords: &[Option<SecretText>]) {
    if users.is_empty() {
        return;
    }
    line!(out, "users:");
    for (user, password) in users.iter().zip(passwords) {
        let text = |out: &mut String, key: &str, value: Option<&str>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                line!(out, "    {key}: {}", scalar(value));
            }
        };
        let flag = |out: &mut String, key: &str, value: Option<bool>| {
            if let Some(value) = value {
                line!(out, "    {key}: {value}");
            }
        };
        line!(out, "  - name: {}", scalar(&user.name));
        text(out, "passwd", password.as_deref());
        text(out, "gecos", user.gecos.as_deref());
        text(out, "groups", user.groups.as_deref());
        text(out, "homedir", user.home_dir.as_deref());
        flag(out, "inactive", user.inactive);
        flag(out, "lock_passwd", user.lock_password);
        text(out, "shell", user.shell.as_deref());
        text(out, "primary_group", user.primary_group.as_deref());
        text(out, "sudo", user.sudo.as_deref());
        if !user.ssh_authorized_keys.is_empty() {
            line!(out, "    ssh_authorized_keys:");
            list(out, 6, &user.ssh_authorized_keys);
        }
    }
}

fn list(out: &mut String, indent: usize, items: &[String]) {
    for item in items {
        line!(out, "{:indent$}- {}", "", scalar(item));
    }
}

pub(super) fn disk_setup(out: &mut String, disks: &DiskSetup) {
    if !is_set(disks) {
        return;
    }
    line!(out, "disk_setup:");
    for partition in &disks.partitions {
        line!(out, "  {}:", scalar(&partition.device));
        if let Some(kind) = partition.table_type {
            line!(out, "    table_type: {}", table_type(kind));
        }
        layout(out, partition);
        if let Some(overwrite) = partition.overwrite {
            line!(out, "    overwrite: {overwrite}");
        }
    }
}

fn table_type(kind: PartitionTableType) -> &'static str {
    match kind {
        PartitionTableType::Mbr => "mbr",
        PartitionTableType::Gpt => "gpt",
    }
}

fn layout(out: &mut String, partition: &Partition) {
    if let Some(layout) = partition.layout {
        line!(out, "    layout: {layout}");
        return;
    }
    line!(out, "    layout:");
    for part in &partition.disk_layout {
        match part.partition_type.as_deref().filter(|kind| !kind.is_empty()) {
            Some(kind) => line!(out, "      - [{}, {}]", part.percentage, partition_type(kind)),
            None => line!(out, "      - {}", part.percentage),
        }
    }
}

/// The number of a type in an MBR, by the name that Cluster API gives it. What else is valid is a GUID.
fn partition_type(name: &str) -> &str {
    match name {
        "Linux" => "83",
        "LinuxSwap" => "82",
        "LinuxRAID" => "fd",
        "LVM" => "8e",
        "Fat32" => "0c",
        "NTFS" => "07",
        "LinuxExtended" => "85",
        guid => guid,
    }
}

pub(super) fn fs_setup(out: &mut String, disks: &DiskSetup) {
    if !is_set(disks) {
        return;
    }
    line!(out, "fs_setup:");
    for filesystem in &disks.filesystems {
        let text = |out: &mut String, key: &str, value: Option<&str>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                line!(out, "    {key}: {}", scalar(value));
            }
        };
        line!(out, "  - label: {}", scalar(filesystem.label.as_deref().unwrap_or_default()));
        line!(out, "    filesystem: {}", scalar(&filesystem.filesystem));
        line!(out, "    device: {}", scalar(&filesystem.device));
        text(out, "partition", filesystem.partition.as_deref());
        if let Some(overwrite) = filesystem.overwrite {
            line!(out, "    overwrite: {overwrite}");
        }
        text(out, "replace_fs", filesystem.replace_fs.as_deref());
        if !filesystem.extra_opts.is_empty() {
            line!(out, "    extra_opts:");
            list(out, 6, &filesystem.extra_opts);
        }
    }
}

pub(super) fn mounts(out: &mut String, mounts: &[Vec<String>]) {
    if mounts.is_empty() {
        return;
    }
    line!(out, "mounts:");
    for mount in mounts {
        line!(out, "  - ");
        for field in mount {
            let _ = write!(out, "- {}\n    ", scalar(field));
        }
    }
}
