//! The address of the API server and the daemon's credentials, from flags and files.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use basics::error_chain;
use kube::{
    Client,
    config::{Config, InClusterError, KubeConfigOptions, Kubeconfig},
};

use super::{
    credentials,
    plugin::{Plugin, Validity},
    proxy::{self, Proxy},
    transport, url,
};

/// A kubeconfig and `--master`. Without both, the cluster that runs this pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The flag that names the kubeconfig, for messages.
    pub flag: &'static str,
    /// The kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`. Empty if it is not given.
    pub master: String,
}

/// What was read, and the files that it came from.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    /// Names no plugin and no files of tokens and CAs, since these have been read.
    config: Config,
    proxy: Option<Proxy>,
    plugin: Option<Plugin>,
    /// All files that were read.
    pub files: BTreeSet<PathBuf>,
}

/// Everything that a client is created from. No file is read and no plugin is run after this.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub config: Config,
    pub proxy: Option<Proxy>,
    /// The validity of the credentials, if a plugin printed them.
    pub validity: Option<Validity>,
}

impl Loaded {
    /// Whether a program gives the credentials.
    #[cfg(feature = "serving")]
    pub(super) fn has_plugin(&self) -> bool {
        self.plugin.is_some()
    }

    /// Runs the credential plugin, if there is one.
    ///
    /// # Errors
    /// The same as [`Plugin::run`].
    pub(super) async fn ready(self) -> anyhow::Result<Ready> {
        let Self { mut config, proxy, plugin, .. } = self;
        let validity = match plugin {
            Some(plugin) => Some(Box::pin(plugin.run(&mut config.auth_info)).await?),
            None => None,
        };
        Ok(Ready { config, proxy, validity })
    }
}

impl Location {
    /// The location that `--kubeconfig` and `--master` name.
    pub fn new(kubeconfig: Option<PathBuf>, master: impl Into<String>) -> Self {
        Self { flag: "--kubeconfig", kubeconfig, master: master.into() }
    }

    /// The location that another flag for a kubeconfig names.
    pub fn of_flag(flag: &'static str, kubeconfig: Option<PathBuf>) -> Self {
        Self { flag, kubeconfig, master: String::new() }
    }

    /// Reads the files. Does not run a plugin.
    ///
    /// # Errors
    /// What cannot be read, parsed or used, with the flag or file that is wrong.
    pub(super) async fn load(&self) -> anyhow::Result<Loaded> {
        let mut files = BTreeSet::new();
        let mut proxy_url = None;
        let (mut config, server) = match self.kubeconfig.as_ref().filter(|path| !path.as_os_str().is_empty())
        {
            Some(path) => {
                files.insert(path.clone());
                let read =
                    Box::pin(read_kubeconfig(path, &mut files)).await.map_err(|error| self.blame(error))?;
                proxy_url = read.proxy_url;
                (read.config, read.server)
            }
            None if self.master.is_empty() => {
                let config = Config::incluster().map_err(|error| {
                    let why = match error {
                        InClusterError::ReadEnvironmentVariable(_) => {
                            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set".to_owned()
                        }
                        error => error_chain(&error),
                    };
                    anyhow!("neither --kubeconfig nor --master is given, and this is no pod: {why}")
                })?;
                let server = config.cluster_url.to_string();
                (config, server)
            }
            None => (Config::new(http::Uri::default()), String::new()),
        };
        let (source, server) = if self.master.is_empty() {
            ("the cluster's server", server)
        } else {
            ("--master", self.master.clone())
        };
        let blame = |error| if self.master.is_empty() { self.blame(error) } else { error };
        files.extend(config.root_cert_file.take());
        files.extend(config.auth_info.token_file.as_ref().map(PathBuf::from));
        credentials::settle(&mut config.auth_info).map_err(|error| self.blame(error))?;
        let auth = &mut config.auth_info;
        let is_tls = config.root_cert.is_some()
            || config.accept_invalid_certs
            || auth.client_certificate.is_some()
            || auth.client_certificate_data.is_some();
        let (url, user) = url::server(&server, is_tls).context(source).map_err(blame)?;
        if let Some(user) = user
            && auth.token.is_none()
            && auth.username.is_none()
            && auth.exec.is_none()
        {
            (auth.username, auth.password) = (Some(user.user), Some(user.password));
        }
        let plugin = Plugin::take(auth).map_err(|error| self.blame(error))?;
        let proxy = proxy::choose(&url, proxy_url.as_deref(), |name| std::env::var(name).ok())
            .map_err(|error| if proxy_url.is_some() { self.blame(error) } else { error })?;
        (config.cluster_url, config.proxy_url) = (url, None);
        Ok(Loaded { config, proxy, plugin, files })
    }

    /// Reads the files and runs the plugin, if there is one.
    ///
    /// # Errors
    /// The same as [`Self::load`] and [`Plugin::run`].
    pub(super) async fn ready(&self) -> anyhow::Result<Ready> {
        Box::pin(self.load().await?.ready()).await.map_err(|error| self.blame(error))
    }

    /// A client that keeps its first credentials, and the address, without parts that may be secret.
    ///
    /// # Errors
    /// The same as [`Self::ready`]. Credentials that cannot be used.
    pub(super) async fn connect(&self) -> anyhow::Result<(Client, String)> {
        let ready = self.ready().await?;
        let client =
            transport::client(&ready.config, ready.proxy.as_ref()).map_err(|error| self.blame(error))?;
        Ok((client, url::shown(&ready.config.cluster_url)))
    }

    /// Adds the name of the kubeconfig, if there is one, to the error.
    pub fn blame(&self, error: anyhow::Error) -> anyhow::Error {
        match &self.kubeconfig {
            Some(path) if !path.as_os_str().is_empty() => {
                error.context(format!("{} {}", self.flag, path.display()))
            }
            _ => error,
        }
    }
}

/// The configuration that [`connect`](super::connect) reads, for a client that kube creates.
///
/// # Errors
/// The same as [`connect`](super::connect).
pub async fn config(kubeconfig: Option<&Path>, master: &str) -> anyhow::Result<Config> {
    Ok(Location::new(kubeconfig.map(Path::to_owned), master).ready().await?.config)
}

/// A kubeconfig, with the parts that kube must not interpret.
struct Read {
    config: Config,
    server: String,
    proxy_url: Option<String>,
}

async fn read_kubeconfig(path: &Path, files: &mut BTreeSet<PathBuf>) -> anyhow::Result<Read> {
    let text = std::fs::read_to_string(path).context("the file cannot be read")?;
    // A snippet in the error would quote the lines around the fault, which may contain tokens and keys.
    let options = serde_saphyr::options! { with_snippet: false };
    let mut kubeconfig: Kubeconfig = serde_saphyr::from_str_with_options(&text, options)
        .map_err(|error| anyhow!("the file is not a kubeconfig: {error}; {EXPECTED}"))?;
    if let Some(fault) = other_file(&kubeconfig) {
        return Err(anyhow!("the file is not a kubeconfig: {fault}; {EXPECTED}"));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    resolve_paths(&mut kubeconfig, folder, files);
    let (server, proxy_url) = take_urls(&mut kubeconfig);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| anyhow!("the file cannot be used: {}", error_chain(&error)))?;
    // A plugin is told the cluster's values as the file has them.
    if let Some(cluster) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
        (cluster.server, cluster.proxy_url) = (Some(server.clone()), proxy_url.clone());
    }
    Ok(Read { config, server, proxy_url })
}

/// What would be right.
const EXPECTED: &str = "expected a file of kind Config with clusters, users, contexts and a current-context, as kubectl reads it";

/// What shows that the file is another one: it has nothing of a kubeconfig.
fn other_file(kubeconfig: &Kubeconfig) -> Option<String> {
    let is_empty =
        kubeconfig.clusters.is_empty() && kubeconfig.contexts.is_empty() && kubeconfig.auth_infos.is_empty();
    if !is_empty {
        return None;
    }
    let is_plain = |kind: &&str| kind.len() <= 40 && kind.bytes().all(|byte| byte.is_ascii_alphabetic());
    Some(match kubeconfig.kind.as_deref().filter(is_plain) {
        Some(kind) if kind != "Config" => format!("it is a manifest of kind {kind}"),
        _ => "it has no clusters, no users and no contexts".to_owned(),
    })
}

/// Takes the current cluster's `server` and `proxy-url` out of the kubeconfig and replaces them by harmless
/// values. kube interprets both differently from client-go, and without a proxy it reads the environment by
/// rules of its own.
fn take_urls(kubeconfig: &mut Kubeconfig) -> (String, Option<String>) {
    let current = kubeconfig.current_context.as_deref().unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|context| context.name == current);
    let name = context.and_then(|context| Some(context.context.as_ref()?.cluster.clone()));
    let cluster = kubeconfig.clusters.iter_mut().find(|cluster| Some(&cluster.name) == name.as_ref());
    let Some(cluster) = cluster.and_then(|named| named.cluster.as_mut()) else { return Default::default() };
    let server = cluster.server.replace("https://unused".to_owned()).unwrap_or_default();
    (server, cluster.proxy_url.replace("http://unused".to_owned()))
}

/// Resolves relative paths against the folder of the kubeconfig. Adds all files to `files`.
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
        // A command without a slash is looked up in $PATH.
        if let Some(command) = user.exec.as_mut().and_then(|exec| exec.command.as_mut())
            && command.contains('/')
        {
            *command = folder.join(&*command).to_string_lossy().into_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<(Client, String)> {
        Location::new(kubeconfig.map(Path::to_owned), "").connect().await
    }

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
        assert!(error.starts_with("--master: not the URL of an API server"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn another_file_is_no_kubeconfig() {
        for (content, words) in [
            ("", "it has no clusters, no users and no contexts"),
            ("hypervisors:\n- name: hunter2\n", "it has no clusters, no users and no contexts"),
            ("apiVersion: v1\nkind: Config\n", "it has no clusters, no users and no contexts"),
            ("apiVersion: v1\nkind: Secret\ndata: {password: hunter2}\n", "it is a manifest of kind Secret"),
            ("hunter2\n", ""),
            ("- hunter2\n", ""),
            ("[global]\nuser = hunter2\n", ""),
        ] {
            let file = file(content);
            let error = format!("{:#}", config(Some(file.path()), "").await.expect_err(content));
            let beginning =
                format!("--kubeconfig {}: the file is not a kubeconfig: {words}", file.path().display());
            assert!(error.starts_with(&beginning), "{content:?}: {error}");
            assert!(error.contains("; expected a file of kind Config with clusters"), "{content:?}: {error}");
            assert!(!error.contains("hunter2"), "{content:?}: {error}");
        }
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
    async fn a_password_in_the_url_becomes_basic_authentication() {
        let read = config(None, "https://u:hunter%402@b:2").await.expect("good");
        assert_eq!(read.cluster_url.to_string(), "https://b:2/");
        let auth = read.auth_info;
        assert_eq!(auth.username.as_deref(), Some("u"));
        assert_eq!(auth.password.expect("a password").expose_secret(), "hunter@2");
        // As in client-go, there is no TLS without certificates.
        assert_eq!(config(None, "b:2").await.expect("good").cluster_url.to_string(), "http://b:2/");
    }

    fn kubeconfig(cluster: &str, user: &str) -> tempfile::NamedTempFile {
        file(&format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n",
        ))
    }

    #[tokio::test]
    async fn a_token_that_no_header_can_hold_is_a_fault() {
        let kubeconfig = kubeconfig("server: 'https://a'", "token: \"hunter2\\nabc\"");
        let error = format!("{:#}", connect(Some(kubeconfig.path())).await.err().expect("a fault"));
        assert!(error.contains("the user's token in the kubeconfig: it holds more than a token"), "{error}");
        assert!(error.starts_with("--kubeconfig /") && !error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn a_plugin_hears_of_its_cluster() {
        let script = file("echo \"status: {token: '$KUBERNETES_EXEC_INFO'}\"");
        let exec = format!(
            "exec: {{apiVersion: v1, command: sh, args: [{}], provideClusterInfo: true}}",
            script.path().display()
        );
        let kubeconfig = kubeconfig("server: 'https://a'", &exec);
        let told = config(Some(kubeconfig.path()), "").await.expect("good").auth_info.token.expect("a token");
        let told: serde_json::Value = serde_json::from_str(told.expose_secret()).expect("JSON");
        assert_eq!(told["kind"], "ExecCredential");
        let spec = &told["spec"];
        assert_eq!((&spec["cluster"]["server"], &spec["interactive"]), (&"https://a".into(), &false.into()));
        assert!(spec["cluster"].get("proxy-url").is_none(), "{told}");
    }

    #[tokio::test]
    async fn a_proxy_is_used_and_its_password_not_told() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for proxy in ["http://u:hunter2@p:1", "https://p", "socks5://u:hunter2@p"] {
            let cluster = format!("server: 'https://a', proxy-url: '{proxy}'");
            let kubeconfig = kubeconfig(&cluster, "token: t");
            connect(Some(kubeconfig.path())).await.expect(proxy);
        }
        let kubeconfig = kubeconfig("server: 'https://a', proxy-url: 'ftp://u:hunter2@p'", "token: t");
        let error = format!("{:#}", connect(Some(kubeconfig.path())).await.err().expect("a fault"));
        assert!(error.contains("the cluster's proxy-url: not the URL of a proxy"), "{error}");
        assert!(error.starts_with("--kubeconfig /") && !error.contains("hunter2"), "{error}");
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
        std::fs::write(folder.path().join("token"), "t").expect("written");
        let files = location.load().await.expect("good").files;
        let expected = [path, folder.path().join("token"), "/x/cert".into(), folder.path().join("key")];
        assert_eq!(files, expected.into());
    }
}
