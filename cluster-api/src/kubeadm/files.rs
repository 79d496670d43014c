//! What a machine gets at its first boot besides kubeadm: files, users, disks, time servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SecretText;
use crate::rules;
use crate::serde_with::is_default;

/// A file that is written at the first boot: with a content, or with one from a Secret.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::CONTENT_OF_FILE))]
pub struct File {
    /// Where it is.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// Its owner, as `user:group`. Default: `root:root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub owner: Option<String>,
    /// Its mode, such as `0640`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub permissions: Option<String>,
    /// How the content is encoded. Default: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// Whether the content goes behind what is there. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<bool>,
    /// The content. Not together with `contentFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10240))]
    pub content: Option<SecretText>,
    /// Where the content is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub content_from: FileSource,
    /// Whether the content is a template. Default: `Raw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_format: Option<FileContentFormat>,
}

/// Where the content of a file is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSource {
    /// A key of a Secret of the namespace.
    pub secret: SecretFileSource,
}

/// A key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretFileSource {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 256))]
    pub key: String,
}

/// Partitions and file systems.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct DiskSetup {
    /// The partitions of each device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub partitions: Vec<Partition>,
    /// The file systems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub filesystems: Vec<Filesystem>,
}

/// The partitions of a device.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::LAYOUT))]
pub struct Partition {
    /// The device, such as `/dev/sdb`.
    #[schemars(length(min = 1, max = 256))]
    pub device: String,
    /// Whether one partition takes the whole device. Either this or `diskLayout` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<bool>,
    /// Whether what is on the device is lost. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwrite: Option<bool>,
    /// The kind of partition table; `gpt` alone with `ignition`. Default: `mbr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_type: Option<PartitionTableType>,
    /// The partitions, in this order, together at most 100 %.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"), extend("x-kubernetes-validations" = rules::DISK_LAYOUT))]
    pub disk_layout: Vec<PartitionSpec>,
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionSpec {
    /// How much of the device it takes, in percent.
    #[schemars(range(min = 1, max = 100))]
    pub percentage: i32,
    /// What it is for. Default: `Linux`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 36), extend("x-kubernetes-validations" = rules::PARTITION_TYPE))]
    pub partition_type: Option<String>,
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Filesystem {
    /// The device, such as `/dev/sdb1`.
    #[schemars(length(min = 1, max = 256))]
    pub device: String,
    /// Its type, such as `ext4`.
    #[schemars(length(min = 1, max = 128))]
    pub filesystem: String,
    /// Its label. cloud-init knows a file system that it made by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub label: Option<String>,
    /// The partition: a number, `auto`, `any` or `none`. Not with `ignition`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub partition: Option<String>,
    /// Whether what is there is lost. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwrite: Option<bool>,
    /// A type of file system that is replaced. Not with `ignition`.
    #[serde(rename = "replaceFS", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub replace_fs: Option<String>,
    /// More options of `mkfs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_opts: Vec<String>,
}

/// A user that is added. Its password has a hash, or one from a Secret.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::PASSWORD_OF_USER))]
pub struct User {
    /// The name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// The comment, such as the full name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub gecos: Option<String>,
    /// More groups, with commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub groups: Option<String>,
    /// The home folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub home_dir: Option<String>,
    /// Whether the user is disabled. Not with `ignition`. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<bool>,
    /// The shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub shell: Option<String>,
    /// The hash of the password. Not together with `passwdFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub passwd: Option<SecretText>,
    /// Where the hash of the password is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub passwd_from: PasswdSource,
    /// The main group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub primary_group: Option<String>,
    /// Whether no password is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_password: Option<bool>,
    /// The line in the rules of sudo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub sudo: Option<String>,
    /// Public keys that may log in by SSH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 2048)), extend("x-kubernetes-list-type" = "atomic"))]
    pub ssh_authorized_keys: Vec<String>,
}

/// Where the hash of a password is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PasswdSource {
    /// A key of a Secret of the namespace.
    pub secret: SecretPasswdSource,
}

/// A key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretPasswdSource {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 256))]
    pub key: String,
}

/// Time servers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct NTP {
    /// The servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub servers: Vec<String>,
    /// Whether the machine's clock follows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// What is added to Ignition's data.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct IgnitionSpec {
    /// A Container Linux configuration.
    #[serde(default, skip_serializing_if = "is_default")]
    pub container_linux_config: ContainerLinuxConfig,
}

/// A Container Linux configuration that is merged with the one for kubeadm.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ContainerLinuxConfig {
    /// The configuration, YAML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32768))]
    pub additional_config: Option<SecretText>,
    /// Whether warnings are errors. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

/// How the content of a file is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Encoding {
    /// Base64.
    #[serde(rename = "base64")]
    Base64,
    /// Compressed.
    #[serde(rename = "gzip")]
    Gzip,
    /// Compressed, then base64.
    #[serde(rename = "gzip+base64")]
    GzipBase64,
}

/// What the content of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum FileContentFormat {
    /// It is written as it is.
    Raw,
    /// A template in Go's language, with facts of the machine.
    Template,
}

/// A kind of partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum PartitionTableType {
    /// The old one of PCs.
    #[serde(rename = "mbr")]
    Mbr,
    /// The one of UEFI.
    #[serde(rename = "gpt")]
    Gpt,
}
