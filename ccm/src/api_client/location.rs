//! Where the API server is and who we are, as flags and files say.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use cloudprovider::error_chain;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

/// A kubeconfig and `--master`; without both of them the cluster that runs this pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The flag that names the kubeconfig, for messages.
    pub flag: &'static str,
    /// The kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`, empty where it is not given.
    pub master: String,
}

/// What was read, and from where.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub config: Config,
    /// All files that had a part in it.
    pub files: BTreeSet<PathBuf>,
}

impl Location {
    /// What `--kubeconfig` and `--master` say.
    pub fn new(kubeconfig: Option<PathBuf>, master: impl Into<String>) -> Self {
        Self { flag: "--kubeconfig", kubeconfig, master: master.into() }
    }

    /// What another flag with a kubeconfig says.
    pub fn of_flag(flag: &'static str, kubeconfig: Option<PathBuf>) -> Self {
        Self { flag, kubeconfig, master: String::new() }
    }

    /// Reads it. The files of `config` that a client reads itself are named and not read yet.
    pub(super) async fn load(&self) -> anyhow::Result<Loaded> {
        let mut files = BTreeSet::new();
        let mut config = match self.kubeconfig.as_ref().filter(|path| !path.as_os_str().is_empty()) {
            Some(path) => {
                files.insert(path.clone());
                read_kubeconfig(path, &mut files).await.map_err(|error| self.blame(error))?
            }
            None if self.master.is_empty() => Config::incluster().map_err(|error| {
                anyhow!(
                    "neither --kubeconfig nor --master is given, and this is no pod: {}",
                    error_chain(&error)
                )
            })?,
            None => Config::new(self.master_url()?),
        };
        if !self.master.is_empty() {
            config.cluster_url = self.master_url()?;
        }
        if config.cluster_url.host().is_none() || config.cluster_url.scheme().is_none() {
            let source = if self.master.is_empty() { "the kubeconfig's server" } else { "--master" };
            bail!("{source} is not the URL of an API server; expected https://host:port");
        }
        files.extend(config.root_cert_file.clone());
        files.extend(config.auth_info.token_file.as_ref().map(PathBuf::from));
        Ok(Loaded { config, files })
    }

    /// Names the kubeconfig, if there is one, as the one at fault.
    pub fn blame(&self, error: anyhow::Error) -> anyhow::Error {
        match &self.kubeconfig {
            Some(path) if !path.as_os_str().is_empty() => {
                error.context(format!("{} {}", self.flag, path.display()))
            }
            _ => error,
        }
    }

    fn master_url(&self) -> anyhow::Result<http::Uri> {
        // Not shown: a password may stand in it.
        self.master.parse().context("--master is not a URL; expected https://host:port")
    }
}

/// Finds the API server as upstream does: `--kubeconfig`, with `--master` in place of its server; else the
/// configuration of the cluster that runs this pod.
///
/// # Errors
/// A file that cannot be read or understood, with its path and without its content.
pub async fn config(kubeconfig: Option<&Path>, master: &str) -> anyhow::Result<Config> {
    let location = Location::new(kubeconfig.map(Path::to_owned), master);
    Ok(location.load().await?.config)
}

async fn read_kubeconfig(path: &Path, files: &mut BTreeSet<PathBuf>) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).context("the file cannot be read")?;
    // With snippets the error would quote the lines around the fault, tokens and keys among them.
    let options = serde_saphyr::options! { with_snippet: false };
    let mut kubeconfig: Kubeconfig = serde_saphyr::from_str_with_options(&text, options)
        .map_err(|error| anyhow!("the file is not a kubeconfig: {error}"))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    resolve_paths(&mut kubeconfig, folder, files);
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| anyhow!("the file cannot be used: {}", error_chain(&error)))
}

/// Relative paths in a kubeconfig are relative to its folder. Takes note of all files.
fn resolve_paths(kubeconfig: &mut Kubeconfig, folder: &Path, files: &mut BTreeSet<PathBuf>) {
    let mut resolve = |path: &mut Option<String>| {
        if let Some(path) = path.as_mut().filter(|path| !path.is_empty()) {
            let resolved = folder.join(&*path);
            *path = resolved.to_string_lossy().into_owned();
            files.insert(resolved);
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        resolve(&mut cluster.certificate_authority);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        resolve(&mut user.client_certificate);
        resolve(&mut user.client_key);
        resolve(&mut user.token_file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("written");
        file
    }

    #[tokio::test]
    async fn faults_name_the_flag_and_hold_no_secret() {
        let broken =
            file("apiVersion: v1\nusers:\n- name: a\n  user:\n    token: hunter2\n   bad: indentation\n");
        let error = format!("{:#}", config(Some(broken.path()), "").await.expect_err("broken"));
        assert!(error.starts_with("--kubeconfig ") && error.contains("is not a kubeconfig"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        let missing = config(Some(Path::new("/nonexistent/kubeconfig")), "").await.expect_err("missing");
        assert!(
            format!("{missing:#}").contains("--kubeconfig /nonexistent/kubeconfig: the file cannot be read")
        );
        let error = format!("{:#}", config(None, "https://u:hunter2@not a url").await.expect_err("no URL"));
        assert!(error.contains("--master is not a URL") && !error.contains("hunter2"), "{error}");
        assert!(config(None, "localhost").await.is_err());
    }

    #[tokio::test]
    async fn the_flag_at_fault_is_the_one_that_is_named() {
        let location = Location::of_flag("--authentication-kubeconfig", Some("/nonexistent".into()));
        let error = format!("{:#}", location.load().await.expect_err("missing"));
        assert!(
            error.starts_with("--authentication-kubeconfig /nonexistent: the file cannot be read"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn master_overrides_the_kubeconfig() {
        let kubeconfig = file(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: c, cluster: {server: https://a:1}}]\n\
             contexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n",
        );
        let read = config(Some(kubeconfig.path()), "").await.expect("good");
        assert_eq!(read.cluster_url.to_string(), "https://a:1/");
        let read = config(Some(kubeconfig.path()), "https://b:2").await.expect("good");
        assert_eq!(read.cluster_url.to_string(), "https://b:2/");
    }

    #[tokio::test]
    async fn the_files_that_a_kubeconfig_names_are_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        std::fs::write(
            &path,
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
             clusters: [{name: c, cluster: {server: https://a:1, insecure-skip-tls-verify: true}}]\n\
             contexts: [{name: x, context: {cluster: c, user: u}}]\n\
             users: [{name: u, user: {tokenFile: token, client-certificate: /x/cert, client-key: key}}]\n",
        )
        .expect("written");
        let location = Location::new(Some(path.clone()), "");
        let files = location.load().await.expect("good").files;
        let expected = [path, folder.path().join("token"), "/x/cert".into(), folder.path().join("key")];
        assert_eq!(files, expected.into());
    }
}
