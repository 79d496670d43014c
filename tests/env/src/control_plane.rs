//! A Kubernetes control plane without machines: etcd and kube-apiserver.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::audit::{Accepted, AuditLog, Refusal};
use crate::error::need_programs;
use crate::http::Server;
use crate::keys;
use crate::ports::free_port;
use crate::process::{Process, collect_seldom, run};
use crate::scratch::Scratch;
use crate::{ControlPlanePrograms, StartError};

/// How often the start is tried: another process may take a free port before the server listens on it.
const ATTEMPTS: usize = 3;
/// How long a request of this crate waits for a server that says nothing.
const SILENCE: Duration = Duration::from_secs(20);

/// Options of a [`ControlPlane`].
#[derive(Debug, Clone, Default)]
pub struct ControlPlaneOptions {
    users: Vec<(String, Vec<String>)>,
    arguments: Vec<String>,
    addresses: Vec<String>,
    is_previous: bool,
}

impl ControlPlaneOptions {
    /// Uses the API server of the previous minor version.
    #[must_use]
    pub fn previous_version(mut self) -> Self {
        self.is_previous = true;
        self
    }

    /// Adds a user with a bearer token, see [`ControlPlane::token_for`]. RBAC decides what the user may do.
    #[must_use]
    pub fn user(mut self, name: &str, groups: &[&str]) -> Self {
        self.users.push((name.to_owned(), groups.iter().map(ToString::to_string).collect()));
        self
    }

    /// Makes the API server's certificate valid for a further IP address, at which it is reached through a relay.
    #[must_use]
    pub fn also_at(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }

    /// Adds a flag of kube-apiserver, `--name=value`. It overrides a flag that this crate sets.
    #[must_use]
    pub fn api_server_flag(mut self, flag: &str) -> Self {
        self.arguments.push(flag.to_owned());
        self
    }
}

/// etcd and kube-apiserver on loopback. Stopped and removed when dropped.
///
/// There is no controller manager and no scheduler: there is no garbage collection, contents of deleted
/// namespaces stay, and pods are not bound. Service account tokens can be requested; the `ServiceAccount`
/// admission plugin is off.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields drop in this order: the processes before their folder
    api_server: Mutex<Option<Process>>,
    etcd: Mutex<Process>,
    programs: ControlPlanePrograms,
    audit_log: AuditLog,
    port: u16,
    server: Server,
    api_server_arguments: Vec<String>,
    users: Vec<(String, String)>,
    admin_token: String,
    admin_kubeconfig: PathBuf,
    ca: PathBuf,
    scratch: Scratch,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver and waits up to 30 s until the API server is ready. If the programs are
    /// not in the cache, they are built first, which takes minutes.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot run the programs, [`StartError::Failed`] if a
    /// server does not become ready.
    pub fn start(options: &ControlPlaneOptions) -> Result<Self, StartError> {
        need_programs(&["openssl", "setpriv"])?;
        let programs = if options.is_previous {
            ControlPlanePrograms::find_previous()?
        } else {
            ControlPlanePrograms::find()?
        };
        let mut last = anyhow!("no attempt was made");
        for _ in 0..ATTEMPTS {
            match Self::attempt(&programs, options) {
                Ok(started) => return Ok(started),
                Err(error) if format!("{error:#}").contains("address already in use") => last = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }

    fn attempt(programs: &ControlPlanePrograms, options: &ControlPlaneOptions) -> Result<Self> {
        let scratch = Scratch::new("api")?;
        keys::server(&scratch, &options.addresses)?;

        let admin_token = random_token()?;
        // the columns are token, user, UID and groups; nothing depends on the UID
        let mut tokens = format!("{admin_token},admin,admin,\"system:masters\"\n");
        let mut users = Vec::new();
        for (name, groups) in &options.users {
            let token = random_token()?;
            writeln!(tokens, "{token},{name},{name},\"{}\"", groups.join(","))?;
            users.push((name.clone(), token));
        }
        scratch.write("tokens.csv", &tokens)?;

        let etcd_port = free_port()?;
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let etcd = start_etcd(&scratch, &programs.etcd, etcd_port, &etcd_url)?;

        let port = free_port()?;
        let in_scratch = |name: &str| scratch.join(name).display().to_string();
        let mut api_server_arguments = vec![
            format!("--etcd-servers={etcd_url}"),
            "--bind-address=127.0.0.1".into(),
            // without this flag the server needs a default route, which a test machine may not have
            "--advertise-address=127.0.0.1".into(),
            "--endpoint-reconciler-type=none".into(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", in_scratch("server.crt")),
            format!("--tls-private-key-file={}", in_scratch("server.key")),
            format!("--cert-dir={}", in_scratch("certs")),
            format!("--token-auth-file={}", in_scratch("tokens.csv")),
            format!("--client-ca-file={}", in_scratch("ca.crt")),
            "--authorization-mode=Node,RBAC".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", in_scratch("service-accounts.key")),
            format!("--service-account-signing-key-file={}", in_scratch("service-accounts.key")),
            "--disable-admission-plugins=ServiceAccount".into(),
            "--service-cluster-ip-range=10.0.0.0/16,fd00:10::/112".into(),
            // tests with thousands of Nodes measure the daemon, not the server's throttling
            "--max-requests-inflight=4000".into(),
            "--max-mutating-requests-inflight=2000".into(),
            // stop at once instead of waiting for open watches
            "--shutdown-delay-duration=0s".into(),
            "--allow-privileged=true".into(),
        ];
        let audit_log = AuditLog::new(&scratch)?;
        api_server_arguments.extend(audit_log.flags());
        api_server_arguments.extend(options.arguments.iter().cloned());

        let ca = scratch.join("ca.crt");
        let started = Self {
            api_server: Mutex::new(None),
            etcd: Mutex::new(etcd),
            programs: programs.clone(),
            audit_log,
            port,
            server: Server::tls(port, SILENCE, &ca)?,
            api_server_arguments,
            users,
            admin_kubeconfig: write_kubeconfig(
                &scratch,
                "admin.kubeconfig".as_ref(),
                port,
                &ca,
                &format!("token: {admin_token}"),
            )?,
            admin_token,
            ca,
            scratch,
        };
        started.start_api_server()?;
        Ok(started)
    }

    /// The API server's address, `https://127.0.0.1:PORT`. It does not change on a restart.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The API server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// PEM file with the certificate authority of the API server's certificate.
    pub fn ca_pem(&self) -> &Path {
        &self.ca
    }

    /// A file of the API server: `ca.crt`, `ca.key`, or `service-accounts.key`.
    pub(crate) fn key_file(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Bearer token of the administrator (`system:masters`).
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// Kubeconfig file of the administrator. It contains paths and the token.
    pub fn kubeconfig(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// Bearer token of a user of [`ControlPlaneOptions::user`].
    ///
    /// # Errors
    /// If there is no such user.
    pub fn token_for(&self, user: &str) -> Result<&str> {
        self.users
            .iter()
            .find(|(name, _)| name == user)
            .map(|(_, token)| token.as_str())
            .with_context(|| format!("the control plane was started without a user {user}"))
    }

    /// Writes a kubeconfig file for a user with these groups and returns its path. It authenticates with a
    /// client certificate. RBAC decides what the user may do. A service account is the user
    /// `system:serviceaccount:NAMESPACE:NAME` with the groups `system:serviceaccounts` and
    /// `system:serviceaccounts:NAMESPACE`; a kubelet is `system:node:NAME` with `system:nodes`.
    ///
    /// # Errors
    /// If the certificate cannot be made: a user name may have at most 64 characters.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let (certificate, key) = keys::client(&self.scratch, user, groups)?;
        let credentials =
            format!("client-certificate: {}\n    client-key: {}", certificate.display(), key.display());
        write_kubeconfig(
            &self.scratch,
            &certificate.with_extension("kubeconfig"),
            self.port,
            &self.ca,
            &credentials,
        )
    }

    /// Writes a kubeconfig file for a service account and returns its path. It authenticates with a token that is
    /// good for a day. RBAC decides what the account may do.
    ///
    /// # Errors
    /// If there is no such service account.
    pub fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 24 * 60 * 60},
        });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let answer = self.server.post(&path, Some(&self.admin_token), &request.to_string())?;
        let answer: Value = serde_json::from_str(&answer)?;
        let token = answer["status"]["token"].as_str().context("the API server gave no token")?;
        let file = format!("{namespace}-{name}.kubeconfig");
        write_kubeconfig(&self.scratch, file.as_ref(), self.port, &self.ca, &format!("token: {token}"))
    }

    /// A command that runs `kubectl` as the administrator.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(&self.programs.kubectl);
        // a cache that runs share would keep data of servers that no longer exist
        command
            .env("KUBECONFIG", &self.admin_kubeconfig)
            .env("KUBECACHEDIR", self.scratch.join("kubectl-cache"));
        command
    }

    /// Runs `kubectl` as the administrator and returns its output.
    ///
    /// # Errors
    /// If its exit status is not 0; the error contains its standard error.
    pub fn kubectl_output(&self, arguments: &[&str]) -> Result<String> {
        run(self.kubectl().args(arguments))
    }

    /// Whether the API server reports that it is ready.
    pub fn is_ready(&self) -> bool {
        self.get("/readyz").is_ok_and(|answer| answer == "ok")
    }

    /// The response body of an administrator's GET of a path such as `/api/v1/nodes`.
    ///
    /// # Errors
    /// If the server does not answer with success, or says nothing for 20 s.
    pub fn get(&self, path: &str) -> Result<String> {
        self.server.get(path, Some(&self.admin_token))
    }

    /// The API server's log file.
    pub fn api_server_log(&self) -> PathBuf {
        self.scratch.join("kube-apiserver.log")
    }

    /// The process IDs of API server and etcd. The API server's is missing while it is stopped.
    pub fn process_ids(&self) -> (Option<u32>, u32) {
        (self.api_server().as_ref().map(Process::id), self.etcd.lock().id())
    }

    /// The current end of the audit log, for [`Self::refusals_after`] and [`Self::writes_after`].
    pub fn audit_position(&self) -> u64 {
        self.audit_log.length()
    }

    /// Requests of service accounts that RBAC refused, after this position of the audit log.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn refusals_after(&self, position: u64) -> Result<Vec<Refusal>> {
        self.audit_log.refusals_after(position)
    }

    /// How often a service account has written after this position of the audit log, whether it was accepted or not:
    /// counts by verb and resource, such as `patch vspheremachines/status`.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn writes_after(&self, position: u64, user: &str) -> Result<BTreeMap<String, u64>> {
        self.audit_log.writes_after(position, user)
    }

    /// The writes of all service accounts after this position of the audit log that the API server accepted, in the order in which it
    /// answered them.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn accepted_after(&self, position: u64) -> Result<Vec<Accepted>> {
        self.audit_log.accepted_after(position)
    }

    /// Starts a stopped API server again, with the same address and data, and waits up to 30 s until it is
    /// ready. Does nothing if it is running.
    ///
    /// # Errors
    /// If it does not become ready; the error contains the end of its log.
    pub fn start_api_server(&self) -> Result<()> {
        let mut slot = self.api_server();
        if slot.as_mut().is_some_and(Process::is_running) {
            return Ok(());
        }
        let mut command = Command::new(&self.programs.api_server);
        command.args(&self.api_server_arguments);
        collect_seldom(&mut command);
        let mut process = Process::spawn("kube-apiserver", &command, self.api_server_log())?;
        // an API server without etcd waits for ever, and its log does not say why etcd is not there
        let mut has_etcd = true;
        process.wait_until(PATIENCE, || {
            has_etcd = self.etcd.lock().is_running();
            !has_etcd || self.is_ready()
        })?;
        if !has_etcd {
            self.etcd.lock().still_runs()?;
        }
        *slot = Some(process);
        Ok(())
    }

    /// Stops the API server gracefully (`SIGTERM`). etcd keeps running.
    ///
    /// # Errors
    /// If it cannot be stopped.
    pub fn stop_api_server(&self) -> Result<()> {
        self.api_server().take().map_or(Ok(()), |mut process| process.stop().map(drop))
    }

    /// Kills the API server (`SIGKILL`), which breaks open connections. etcd keeps running.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill_api_server(&self) -> Result<()> {
        self.api_server().take().map_or(Ok(()), |mut process| process.kill().map(drop))
    }

    /// Freezes the API server (`SIGSTOP`): the kernel accepts connections, but no request is answered.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn freeze_api_server(&self) -> Result<()> {
        self.signal_api_server(crate::Signal::Stop)
    }

    /// Resumes a frozen API server.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn thaw_api_server(&self) -> Result<()> {
        self.signal_api_server(crate::Signal::Cont)
    }

    /// Freezes etcd (`SIGSTOP`): the API server serves from its cache and cannot write.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn freeze_etcd(&self) -> Result<()> {
        crate::process::send(self.etcd.lock().id(), crate::Signal::Stop)
    }

    /// Resumes a frozen etcd.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn thaw_etcd(&self) -> Result<()> {
        crate::process::send(self.etcd.lock().id(), crate::Signal::Cont)
    }

    fn signal_api_server(&self, signal: crate::Signal) -> Result<()> {
        self.api_server().as_mut().context("the API server is stopped")?.signal(signal)
    }

    fn api_server(&self) -> MutexGuard<'_, Option<Process>> {
        // a panic of a test while it holds the lock leaves a valid slot
        self.api_server.lock()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // the data is not needed any more, so kill it without a graceful stop
        drop(self.kill_api_server());
        drop(self.etcd.get_mut().kill());
    }
}

fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

fn start_etcd(scratch: &Scratch, program: &Path, port: u16, url: &str) -> Result<Process> {
    let peer = format!("http://127.0.0.1:{}", free_port()?);
    let mut command = Command::new(program);
    command
        .arg("--data-dir")
        .arg(scratch.join("etcd"))
        .args(["--listen-client-urls", url, "--advertise-client-urls", url])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        // the data need not survive a power failure
        .arg("--unsafe-no-fsync")
        .args(["--log-level", "warn"]);
    collect_seldom(&mut command);
    // The API server waits for etcd, so this need not. But waiting here shows etcd's own failures sooner.
    let mut etcd = Process::spawn("etcd", &command, scratch.join("etcd.log"))?;
    let server = Server::plain(port, SILENCE);
    etcd.wait_until(PATIENCE, || server.get("/health", None).is_ok())?;
    Ok(etcd)
}

fn write_kubeconfig(
    scratch: &Scratch,
    file: &Path,
    port: u16,
    ca: &Path,
    credentials: &str,
) -> Result<PathBuf> {
    scratch.write(
        file,
        &format!(
            "apiVersion: v1\n\
             kind: Config\n\
             current-context: test\n\
             clusters:\n- name: test\n  cluster:\n    server: {}\n    certificate-authority: {}\n\
             contexts:\n- name: test\n  context: {{cluster: test, user: test}}\n\
             users:\n- name: test\n  user:\n    {credentials}\n",
            url(port),
            ca.display(),
        ),
    )
}

fn random_token() -> Result<String> {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("no random numbers")?;
    Ok(uuid.trim().to_owned())
}
