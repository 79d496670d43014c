//! Hosts on one Ethernet: network namespaces behind a bridge. They vanish with the test process.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Only ends a hang.
pub const PATIENCE: Duration = Duration::from_mins(10);

/// How often to look whether something has happened.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A network namespace with an interface `eth0`.
pub struct Host {
    /// Ends when its standard input ends, so with the test process at the latest.
    keeper: Child,
}

impl Host {
    fn new() -> Self {
        let mut keeper = Command::new("unshare");
        keeper.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let host = Self { keeper: keeper.spawn().expect("unshare") };
        let namespace = |id: &str| fs::read_link(format!("/proc/{id}/ns/net")).ok();
        let of_host = host.id().to_string();
        within(PATIENCE, "a namespace", || namespace(&of_host) != namespace("self"));
        host.ip("link set lo up");
        host
    }

    /// The ID of a process in the namespace.
    pub fn id(&self) -> u32 {
        self.keeper.id()
    }

    /// A command in the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.id())).arg("--").arg(program);
        command
    }

    /// Runs `ip` with these arguments, which must succeed.
    pub fn ip(&self, arguments: &str) -> String {
        let output = self.command("ip").args(arguments.split(' ')).output().expect("ip");
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sets a sysctl of the namespace.
    pub fn sysctl(&self, name: &str, value: &str) {
        let script = format!("echo {value} > /proc/sys/{}", name.replace('.', "/"));
        let output = self.command("sh").args(["-c", &script]).output().expect("sh");
        assert!(output.status.success(), "{script}");
    }

    /// The Ethernet address of `eth0`.
    pub fn mac(&self) -> String {
        let link = self.ip("-o link show dev eth0");
        let mut words = link.split_whitespace();
        words.find(|word| *word == "link/ether");
        words.next().expect("an Ethernet address").to_owned()
    }

    /// Whether any interface has the address.
    pub fn has(&self, address: &str) -> bool {
        self.ip("-o address show").split([' ', '/']).any(|word| word == address)
    }

    /// How long the kernel keeps the address from now on if nobody renews it, in whole seconds. Zero if no interface has it.
    pub fn keeps(&self, address: &str) -> Duration {
        let shown = self.ip("-o address show");
        let Some(line) = shown.lines().find(|line| line.split([' ', '/']).any(|word| word == address)) else {
            return Duration::ZERO;
        };
        let lifetime = line.split_whitespace().skip_while(|word| *word != "valid_lft").nth(1);
        let seconds = lifetime.and_then(|lifetime| lifetime.strip_suffix("sec")?.parse().ok());
        Duration::from_secs(seconds.unwrap_or_else(|| panic!("it is kept for ever: {line}")))
    }

    /// The Ethernet address that this host knows for an address.
    pub fn neighbour(&self, address: &str) -> Option<String> {
        let table = self.ip("neigh show dev eth0");
        let line = table.lines().find(|line| line.split(' ').next() == Some(address))?;
        let mut words = line.split_whitespace();
        words.find(|word| *word == "lladdr")?;
        words.next().map(str::to_owned)
    }

    /// Whether the address answers one ping within a second.
    pub fn reaches(&self, address: &str) -> bool {
        let family = if address.contains(':') { "-6" } else { "-4" };
        let ping = ["ping", family, "-c", "1", "-W", "1", address];
        self.command("busybox").args(ping).output().expect("busybox").status.success()
    }

    /// Starts the example `hold` and waits until it holds its addresses.
    pub fn hold(&self, arguments: &str) -> Holder {
        let mut command = self.command("stdbuf");
        command.arg("-oL").arg(example());
        let mut child = command
            .args(arguments.split(' '))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("hold");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let addresses = arguments.split(' ').filter(|word| word.contains(['.', ':'])).count();
        for _ in 0..addresses {
            if lines.next().is_none() {
                let mut words = String::new();
                let _ = child.stderr.take().expect("its errors").read_to_string(&mut words);
                panic!("hold {arguments}: {words}");
            }
        }
        Holder(child)
    }

    /// The error of the example `hold`, which must fail.
    pub fn hold_fails(&self, arguments: &str) -> String {
        failure(self.command(example().to_str().expect("a path")).args(arguments.split(' ')))
    }

    /// The error of the example `hold` without a capability.
    pub fn hold_fails_without(&self, capability: &str, arguments: &str) -> String {
        let mut command = self.command("setpriv");
        command.arg(format!("--bounding-set=-{capability}")).arg(example()).args(arguments.split(' '));
        failure(&mut command)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

fn failure(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("hold");
    let words = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success(), "hold does not fail: {words}");
    words
}

/// The example, which `cargo test` builds too.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("the test program");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("the folder of the build");
    let example = folder.join("examples/hold");
    assert!(example.is_file(), "{} is missing: cargo build -p announcing --examples", example.display());
    example
}

/// A process that holds addresses.
pub struct Holder(Child);

impl Holder {
    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        // nsenter and stdbuf became the program itself
        let status = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// Waits for its end.
    pub fn ended(mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client and two machines on a bridge. The bridge is in a namespace of its own.
pub struct Lan {
    pub client: Host,
    pub a: Host,
    pub b: Host,
    bridge: Host,
}

impl Lan {
    /// `None`, with a message, if this machine cannot have one. With `CI=true` that is a failure.
    pub fn new() -> Option<Self> {
        if let Some(why) = missing() {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "cannot be tested here: {why}");
            eprintln!("SKIPPED, nothing was tested: {why}");
            return None;
        }
        let lan = Self { client: Host::new(), a: Host::new(), b: Host::new(), bridge: Host::new() };
        lan.bridge.ip("link add br0 type bridge");
        lan.bridge.ip("link set br0 up");
        for (number, host) in [(1, &lan.client), (2, &lan.a), (3, &lan.b)] {
            lan.connect(host, number);
        }
        // For half an hour at least the client believes what it knows, so that only announcements change its mind.
        for family in ["ipv4", "ipv6"] {
            lan.client.sysctl(&format!("net.{family}.neigh.eth0.base_reachable_time_ms"), "3600000");
        }
        Some(lan)
    }

    /// Gives a host an interface `eth0` with the addresses 10.77.0.NUMBER and `fd77::NUMBER`.
    pub fn connect(&self, host: &Host, number: u8) {
        let id = host.id();
        self.bridge.ip(&format!("link add port{number} type veth peer name eth0 netns {id}"));
        self.bridge.ip(&format!("link set port{number} master br0 up"));
        host.ip("link set eth0 up");
        host.ip(&format!("address add 10.77.0.{number}/24 dev eth0"));
        host.ip(&format!("address add fd77::{number}/64 dev eth0 nodad"));
    }

    /// Takes the carrier of a host away, or gives it back.
    pub fn carrier(&self, number: u8, state: &str) {
        self.bridge.ip(&format!("link set port{number} {state}"));
    }
}

fn missing() -> Option<String> {
    let programs = ["ip", "nsenter", "unshare", "busybox", "setpriv", "stdbuf"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let absent: Vec<_> = programs.into_iter().filter(|program| !is_there(program)).collect();
    if !absent.is_empty() {
        return Some(format!("no {}; tests/env/install.sh installs what the tests need", absent.join(", ")));
    }
    let output = Command::new("unshare").args(["--net", "true"]).output().expect("unshare");
    (!output.status.success()).then(|| "no right to make network namespaces: run as root".to_owned())
}

/// Waits until `is_so`, and returns how long that took.
pub fn within(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < limit, "{what}: not within {limit:?}");
        sleep(POLL_INTERVAL);
    }
    began.elapsed()
}
