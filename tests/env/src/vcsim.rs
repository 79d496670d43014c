//! A vCenter: govmomi's simulator, extended so that tests can count calls, change objects and inject faults.

mod options;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

pub use self::options::VcsimOptions;
use crate::PATIENCE;
use crate::built;
use crate::error::{StartError, need_programs};
use crate::http::Server;
use crate::keys;
use crate::ports::free_port;
use crate::process::{Process, collect_seldom, run};
use crate::scratch::Scratch;

/// The calls with which objects and tasks are followed, as [`Vcsim::counts`] names them.
pub const WATCH_CALLS: [&str; 6] = [
    "soap:WaitForUpdatesEx",
    "soap:CancelWaitForUpdates",
    "soap:CreatePropertyCollector",
    "soap:DestroyPropertyCollector",
    "soap:CreateFilter",
    "soap:DestroyPropertyFilter",
];

/// How long its control port may say nothing: it waits for a call that holds the lock of an object.
const SILENCE: Duration = Duration::from_mins(5);

/// A simulated vCenter as a process. Stopped and removed when dropped.
///
/// It serves TLS with a certificate of its own CA. Like a real vCenter, and unlike the plain simulator, it
/// quotes the session cookie and requires the quotes.
#[derive(Debug)]
pub struct Vcsim {
    // Fields drop in this order: the process before its folder
    process: Process,
    options: VcsimOptions,
    port: u16,
    control: Server,
    scratch: Scratch,
}

impl Vcsim {
    /// Starts it and waits until it serves. If the program is not in the cache, it is built first, which
    /// takes a minute.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot run the program, [`StartError::Failed`] if it does
    /// not serve within [`PATIENCE`].
    pub fn start(options: &VcsimOptions) -> Result<Self, StartError> {
        need_programs(&["curl", "openssl", "setpriv"])?;
        let program = built("vcsim")?.join("vcsim");
        let scratch = Scratch::new("vcsim")?;
        keys::server(&scratch, &[])?;
        let (port, control) = (free_port()?, free_port()?);
        let process = spawn(&program, &scratch, options, port, control)?;
        let control = Server::plain(control, SILENCE);
        let mut started = Self { process, options: options.clone(), port, control, scratch };
        started.wait()?;
        Ok(started)
    }

    fn wait(&mut self) -> Result<()> {
        let server = self.control.clone();
        self.process.wait_until(PATIENCE, || server.get("/counts", None).is_ok())
    }

    /// Ends it at once, as a power failure would. Its port refuses connections until
    /// [`restart`](Self::restart).
    ///
    /// # Errors
    /// If the kernel refuses to end it.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill().map(drop)
    }

    /// Starts it again after [`kill`](Self::kill), with the same address and the initial inventory. Tags,
    /// changes, sessions, rules and counts are lost.
    ///
    /// # Errors
    /// If it does not serve within [`PATIENCE`].
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.process.kill()?;
        let program = built("vcsim")?.join("vcsim");
        self.process = spawn(&program, &self.scratch, &self.options, self.port, self.control.port())?;
        Ok(self.wait()?)
    }

    /// The process, for example to freeze it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The port of the vCenter on 127.0.0.1, which is also reachable as `localhost`.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `https://127.0.0.1:PORT/sdk`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}/sdk", self.port)
    }

    /// The only user.
    pub fn user(&self) -> &str {
        &self.options.user
    }

    /// The token that its session manager requires.
    pub const SESSION_MANAGER_TOKEN: &str = "bearer-of-the-test";

    /// The URL where its session manager gives tickets. Each is good for one clone of a session that has no
    /// other use. Calls are counted as `rest:GET /session-manager`.
    pub fn session_manager_url(&self) -> String {
        format!("https://127.0.0.1:{}/session-manager", self.port)
    }

    /// Whether the session that the session manager shares is alive.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn is_shared_session_alive(&self) -> Result<bool> {
        let answer = self.get("original")?;
        answer.as_bool().with_context(|| format!("vcsim answers {answer}"))
    }

    /// The initial password.
    pub fn password(&self) -> &str {
        &self.options.password
    }

    /// The file with the certificate of its CA.
    pub fn ca_file(&self) -> PathBuf {
        self.scratch.join("ca.crt")
    }

    /// The fingerprint of its certificate, such as `A1:B2:...`, by `sha1` or `sha256`.
    ///
    /// # Errors
    /// If openssl cannot compute it.
    pub fn thumbprint(&self, hash: &str) -> Result<String> {
        let mut command = Command::new("openssl");
        command.args(["x509", "-noout", "-fingerprint", &format!("-{hash}"), "-in"]);
        let line = run(command.arg(self.scratch.join("server.crt")))?;
        line.trim().split_once('=').map(|(_, print)| print.to_owned()).context("no fingerprint")
    }

    /// The number of calls of each method, by names such as `soap:Login` and `rest:POST /session`. Calls that
    /// a rule affected are counted again with the prefix `hit:`.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn counts(&self) -> Result<BTreeMap<String, u64>> {
        Ok(serde_json::from_value(self.get("counts")?)?)
    }

    /// Resets the counts to zero.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn reset_counts(&self) -> Result<()> {
        self.post("counts/reset", &json!({})).map(drop)
    }

    /// The number of SOAP sessions alive, of SOAP sessions ever opened, and of REST sessions alive.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn sessions(&self) -> Result<(u64, u64, u64)> {
        let answer = self.get("sessions")?;
        let number = |key: &str| answer[key].as_u64().with_context(|| format!("no {key} in {answer}"));
        Ok((number("soap")?, number("soapEver")?, number("rest")?))
    }

    /// Ends every session, of SOAP and of REST.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn expire_sessions(&self) -> Result<()> {
        self.post("expire", &json!({})).map(drop)
    }

    /// Changes the user and the password that may log in. Sessions stay.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn set_credentials(&self, user: &str, password: &str) -> Result<()> {
        self.post("credentials", &json!({"user": user, "password": password})).map(drop)
    }

    /// Replaces the rules for injected faults: a list of objects with `methods` (names as in the counts,
    /// where a trailing `*` is a wildcard), `except`, and the effect: `delayMillis`, `fault` (a type, such as
    /// `NotAuthenticated`), `status`, `drop`, or `expire`, which ends every session before the call.
    /// `probability`, `times`, `skip` and `every` say how often. With `after`, the call still takes place
    /// before its answer is replaced. `hang` never answers, and `loseTask` answers with a task that does not exist.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn set_rules(&self, rules: &Value) -> Result<()> {
        self.post("rules", rules).map(drop)
    }

    /// Its machines, as objects with `ref`, `name`, `uuid`, `instanceUuid`, `hostName`, `host`, `cluster`, `power`. A clone stays on
    /// the host of its template, whatever its resource pool is; `cluster` is that of the pool.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn inventory(&self) -> Result<Vec<Value>> {
        Ok(serde_json::from_value(self.get("inventory")?)?)
    }

    /// All that a machine is, as JSON of the vSphere API: its `config`, and where it is.
    ///
    /// # Errors
    /// If there is no such machine.
    pub fn machine(&self, machine: &str) -> Result<Value> {
        self.post("machine", &json!({"vm": machine}))
    }

    /// The files of its datastores, such as `DC0-LocalDS_0/DC0_C0_RP0_VM0/disk1.vmdk`, sorted.
    ///
    /// # Errors
    /// If a folder cannot be read.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.scratch.path())? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("govcsim-")) {
                add_files(&path, "", &mut found)?;
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Changes a machine, by name or reference. Keys are any of `hostName`, `tools` (a `toolsRunningStatus`),
    /// `canShutDown`, `uuid`, `instanceUuid`, `connection` (a `connectionState`), `cpus`, `memoryMiB`, `guestId`,
    /// `extraConfig` (an object) and `nics`, a list of objects with `network`, `mac`, `deviceConfigId`, `ips`
    /// (each with its prefix length).
    ///
    /// # Errors
    /// If there is no such machine.
    pub fn set_guest(&self, machine: &str, mut changes: Value) -> Result<()> {
        changes["vm"] = machine.into();
        self.post("guest", &changes).map(drop)
    }

    /// Acts on a machine: `power-on`, `power-off`, `suspend`, `destroy`, `unregister`, `rename` to a name,
    /// `clone` to a name, `move` to a host of any datacenter, `reconfigure` with `KEY=VALUE` for its extra
    /// configuration, `volume` to make its last disk a volume of Kubernetes, `disk` for a new one with a file such as
    /// `[LocalDS_0] volumes/one.vmdk`, `snapshot` with a name.
    ///
    /// # Errors
    /// vCenter's error.
    pub fn act(&self, machine: &str, action: &str, argument: &str) -> Result<()> {
        self.post("act", &json!({"vm": machine, "action": action, "argument": argument})).map(drop)
    }

    /// Makes the next task of a method fail, such as `CloneVM_Task` with `NoDiskSpace` or
    /// `InsufficientResourcesFault`.
    ///
    /// # Errors
    /// If it knows no such fault.
    pub fn fail_next_task(&self, method: &str, fault: &str) -> Result<()> {
        self.post("fail-task", &json!({"method": method, "fault": fault})).map(drop)
    }

    /// Switches DRS of a cluster (`ClusterComputeResource`), or Storage DRS of a datastore cluster (`StoragePod`), on or off. Both are on
    /// at first.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn set_drs(&self, kind: &str, name: &str, is_enabled: bool) -> Result<()> {
        self.post("drs", &json!({"kind": kind, "name": name, "enabled": is_enabled})).map(drop)
    }

    /// Makes a group of machines in a cluster, a group of these of its hosts, and the rule that ties them.
    ///
    /// # Errors
    /// If there is no such cluster, host or machine, or there are such groups.
    pub fn make_groups(
        &self,
        cluster: &str,
        vm_group: &str,
        machines: &[&str],
        host_group: &str,
        hosts: &[&str],
    ) -> Result<()> {
        let wanted = json!({
            "cluster": cluster, "vmGroup": vm_group, "machines": machines, "hostGroup": host_group, "hosts": hosts,
        });
        self.post("group", &wanted).map(drop)
    }

    /// The names of the machines in each group of machines, sorted.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn vm_groups(&self) -> Result<BTreeMap<String, Vec<String>>> {
        Ok(serde_json::from_value(self.get("groups")?)?)
    }

    /// The cluster modules, as objects with `module`, the name of its `cluster`, and the names of its `machines`, sorted. A machine that was
    /// destroyed before it was taken out has its reference there.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn cluster_modules(&self) -> Result<Vec<Value>> {
        Ok(serde_json::from_value(self.get("modules")?)?)
    }

    /// Attaches a tag to the object with this name, such as `ClusterComputeResource` `DC0_C0`. Creates the
    /// tag if necessary.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn attach_tag(&self, category: &str, tag: &str, kind: &str, object: &str) -> Result<()> {
        self.attach_tag_with_id(category, tag, kind, object).map(drop)
    }

    /// The same. Returns the ID of the tag.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn attach_tag_with_id(&self, category: &str, tag: &str, kind: &str, object: &str) -> Result<String> {
        let wanted = json!({"category": category, "name": tag, "kind": kind, "object": object});
        let id = self.post("tag", &wanted)?;
        id.as_str().map(str::to_owned).with_context(|| format!("vcsim answers {id}"))
    }

    /// Detaches a tag from an object.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn detach_tag(&self, category: &str, tag: &str, kind: &str, object: &str) -> Result<()> {
        let wanted =
            json!({"category": category, "name": tag, "kind": kind, "object": object, "detach": true});
        self.post("tag", &wanted).map(drop)
    }

    /// Calls methods of the vSphere API in a session of its own. `calls` are the elements in the bodies of the requests, such as
    /// `<Destroy_Task xmlns="urn:vim25">...</Destroy_Task>`. The answers are whole.
    ///
    /// # Errors
    /// If it does not answer, or with a fault.
    pub fn call(&self, calls: &[&str]) -> Result<Vec<String>> {
        let cookies = Scratch::new("vcsim-session")?;
        let cookies = cookies.join("cookies");
        let manager = "<_this type=\"SessionManager\">SessionManager</_this>";
        let login = format!(
            "<Login xmlns=\"urn:vim25\">{manager}<userName>{}</userName><password>{}</password></Login>",
            self.user(),
            self.password()
        );
        let logout = format!("<Logout xmlns=\"urn:vim25\">{manager}</Logout>");
        let mut answers = Vec::new();
        for call in [login.as_str()].iter().chain(calls).chain([&logout.as_str()]) {
            let envelope = format!(
                "<soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
                 xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"><soapenv:Body>{call}</soapenv:Body></soapenv:Envelope>"
            );
            let mut command = Command::new("curl");
            command.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "300"]);
            command.args(["--fail-with-body", "--header", "Content-Type: text/xml", "--header"]);
            command.arg("SOAPAction: urn:vim25/8.0").arg("--cacert").arg(self.ca_file());
            command.arg("--cookie").arg(&cookies).arg("--cookie-jar").arg(&cookies);
            answers.push(run(command.arg("--data").arg(envelope).arg(self.url()))?);
        }
        answers.pop();
        Ok(answers.split_off(1))
    }

    /// The body of the last request of each method, by name.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn last_requests(&self) -> Result<BTreeMap<String, String>> {
        Ok(serde_json::from_value(self.get("requests")?)?)
    }

    fn get(&self, path: &str) -> Result<Value> {
        let answer = self.control.get(&format!("/{path}"), None)?;
        serde_json::from_str(&answer).with_context(|| format!("vcsim answers {answer}"))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let answer = self.control.post(&format!("/{path}"), None, &body.to_string());
        let answer = answer.with_context(|| format!("vcsim refuses {path} {body}"))?;
        serde_json::from_str(&answer).with_context(|| format!("vcsim answers {answer}"))
    }
}

fn spawn(
    program: &Path,
    scratch: &Scratch,
    options: &VcsimOptions,
    port: u16,
    control: u16,
) -> Result<Process> {
    let mut command = Command::new(program);
    command
        .arg(format!("-listen=127.0.0.1:{port}"))
        .arg(format!("-control=127.0.0.1:{control}"))
        .arg(format!("-cert={}", scratch.join("server.crt").display()))
        .arg(format!("-key={}", scratch.join("server.key").display()))
        .arg(format!("-user={}", options.user))
        .arg(format!("-password={}", options.password))
        .arg(format!("-rest={}", options.rest))
        .arg(format!("-session-manager-token={}", Vcsim::SESSION_MANAGER_TOKEN))
        .arg(format!("-share-sessions={}", options.shares_sessions))
        .arg(format!("-nodes={}", options.nodes))
        .arg(format!("-first-node={}", options.first_node))
        .arg(format!("-others={}", options.others))
        .arg(format!("-boot-guests={}", options.boots_guests))
        .arg(format!("-task-delay={}", options.task_delays))
        // differs between vCenters, as their ports do
        .arg(format!("-instance-uuid=277d6516-b980-529a-98a9-{port:012}"))
        .arg(format!("-dc={}", options.datacenters))
        .arg(format!("-cluster={}", options.clusters))
        .arg(format!("-host={}", options.hosts))
        .arg(format!("-ds={}", options.datastores))
        .arg(format!("-pod={}", options.pods))
        .arg(format!("-vm={}", options.machines))
        // the simulator creates a folder for each datastore
        .env("TMPDIR", scratch.path());
    collect_seldom(&mut command);
    Process::spawn("vcsim", &command, scratch.join("vcsim.log"))
}

/// Adds the files below a folder. Their names begin with `prefix`.
fn add_files(folder: &Path, prefix: &str, found: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            add_files(&entry.path(), &format!("{name}/"), found)?;
        } else {
            found.push(name);
        }
    }
    Ok(())
}
