//! Types of Cluster API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SecretText;
use crate::serde_with::is_default;

/// `File` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// `path`.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// `owner`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub owner: Option<String>,
    /// `permissions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub permissions: Option<String>,
    /// `encoding`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// `append`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<bool>,
    /// `content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10240))]
    pub content: Option<SecretText>,
    /// `contentFrom`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub content_from: FileSource,
    /// `contentFormat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_format: Option<FileContentFormat>,
}

/// `FileSource` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSource {
    /// `secret`.
    pub secret: SecretFileSource,
}

/// `SecretFileSource` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretFileSource {
    /// `name`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `key`.
    #[schemars(length(min = 1, max = 256))]
    pub key: String,
}

/// `DiskSetup` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct DiskSetup {
    /// `partitions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub partitions: Vec<Partition>,
    /// `filesystems`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub filesystems: Vec<Filesystem>,
}

/// `Partition` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"message": "exactly one of the fields in [layout diskLayout] must be set", "rule": "[has(self.layout),has(self.diskLayout)].filter(x,x==true).size() == 1"}]))]
pub struct Partition {
    /// `device`.
    #[schemars(length(min = 1, max = 256))]
    pub device: String,
    /// `layout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<bool>,
    /// `overwrite`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwrite: Option<bool>,
    /// `tableType`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_type: Option<PartitionTableType>,
    /// `diskLayout`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub disk_layout: Vec<PartitionSpec>,
}

/// `PartitionSpec` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionSpec {
    /// `percentage`.
    #[schemars(range(min = 1, max = 100))]
    pub percentage: i32,
    /// `partitionType`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 36), extend("x-kubernetes-validations" = [{"message": "partitionType must be one of Linux, LinuxSwap, LinuxRAID, LVM, Fat32, NTFS, LinuxExtended or a full GPT partition GUID", "rule": "self.matches('^(Linux|LinuxSwap|LinuxRAID|LVM|Fat32|NTFS|LinuxExtended|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$')"}]))]
    pub partition_type: Option<String>,
}

/// `Filesystem` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Filesystem {
    /// `device`.
    #[schemars(length(min = 1, max = 256))]
    pub device: String,
    /// `filesystem`.
    #[schemars(length(min = 1, max = 128))]
    pub filesystem: String,
    /// `label`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub label: Option<String>,
    /// `partition`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub partition: Option<String>,
    /// `overwrite`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwrite: Option<bool>,
    /// `replaceFS`.
    #[serde(rename = "replaceFS", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub replace_fs: Option<String>,
    /// `extraOpts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_opts: Vec<String>,
}

/// `User` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// `name`.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// `gecos`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub gecos: Option<String>,
    /// `groups`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub groups: Option<String>,
    /// `homeDir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub home_dir: Option<String>,
    /// `inactive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<bool>,
    /// `shell`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub shell: Option<String>,
    /// `passwd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub passwd: Option<SecretText>,
    /// `passwdFrom`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub passwd_from: PasswdSource,
    /// `primaryGroup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub primary_group: Option<String>,
    /// `lockPassword`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_password: Option<bool>,
    /// `sudo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub sudo: Option<String>,
    /// `sshAuthorizedKeys`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 2048)), extend("x-kubernetes-list-type" = "atomic"))]
    pub ssh_authorized_keys: Vec<String>,
}

/// `PasswdSource` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PasswdSource {
    /// `secret`.
    pub secret: SecretPasswdSource,
}

/// `SecretPasswdSource` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretPasswdSource {
    /// `name`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `key`.
    #[schemars(length(min = 1, max = 256))]
    pub key: String,
}

/// `NTP` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct NTP {
    /// `servers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub servers: Vec<String>,
    /// `enabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// `IgnitionSpec` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct IgnitionSpec {
    /// `containerLinuxConfig`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub container_linux_config: ContainerLinuxConfig,
}

/// `ContainerLinuxConfig` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ContainerLinuxConfig {
    /// `additionalConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32768))]
    pub additional_config: Option<SecretText>,
    /// `strict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

/// `Encoding` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Encoding {
    /// `base64`.
    #[serde(rename = "base64")]
    Base64,
    /// `gzip`.
    #[serde(rename = "gzip")]
    Gzip,
    /// `gzip+base64`.
    #[serde(rename = "gzip+base64")]
    GzipBase64,
}

/// `FileContentFormat` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum FileContentFormat {
    /// `Raw`.
    Raw,
    /// `Template`.
    Template,
}

/// `PartitionTableType` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum PartitionTableType {
    /// `mbr`.
    #[serde(rename = "mbr")]
    Mbr,
    /// `gpt`.
    #[serde(rename = "gpt")]
    Gpt,
}
