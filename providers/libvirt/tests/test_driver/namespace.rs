//! A hypervisor's network in a network namespace: a bridge that is the gateway of guests.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::{
    fs,
    future::Future,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, unshare};

use crate::support::PATIENCE;

/// Runs a test in a network namespace of its own, in which this host is a hypervisor: a bridge `virbr0` with
/// the addresses 192.168.122.1/24 and `fd00:122::1/64`, and forwarding. With `CI=true` it is a failure if
/// that is not possible here.
pub(crate) fn on_a_hypervisor<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send) {
    let in_namespace = || {
        if let Err(why) = unshare(CloneFlags::CLONE_NEWNET) {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "no right to make network namespaces: {why}");
            eprintln!(
                "SKIPPED, nothing was tested: no right to make network namespaces ({why}); run as root"
            );
            return;
        }
        for arguments in [
            "link set lo up",
            "link add virbr0 type bridge",
            "link set virbr0 up",
            "address add 192.168.122.1/24 dev virbr0",
            "address add fd00:122::1/64 dev virbr0 nodad",
            // gives the bridge a carrier
            "link add port0 type veth peer name peer0",
            "link set port0 master virbr0 up",
            "link set peer0 up",
        ] {
            ip(arguments);
        }
        // A work queue of the kernel inserts the local route of an IPv6 address after `ip` has returned.
        let begin = Instant::now();
        while !ip("-6 route show table local").contains("local fd00:122::1 ") {
            assert!(begin.elapsed() < PATIENCE, "fd00:122::1 is no address of the host");
            std::thread::sleep(Duration::from_millis(10));
        }
        sysctl("net.ipv4.ip_forward", "1");
        sysctl("net.ipv6.conf.all.forwarding", "1");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test());
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(in_namespace).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs `ip` in the namespace of this thread. It must succeed.
pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sets a sysctl of the namespace of this thread.
pub(crate) fn sysctl(name: &str, value: &str) {
    // `/proc/sys/net` is that of the thread that opens it
    fs::write(format!("/proc/sys/{}", name.replace('.', "/")), value).expect("a sysctl");
}

/// A guest on the bridge, which is its gateway. Its pod network ends on its loopback interface.
pub(crate) struct Guest {
    /// Keeps the namespace. Ends with the test process at the latest, since its input ends then.
    keeper: Child,
}

impl Guest {
    /// The guest with the addresses 192.168.122.NUMBER and `fd00:122::NUMBER`, and pods 10.244.NUMBER.1 and
    /// `fd10:NUMBER::1`.
    pub(crate) fn start(number: u8) -> Self {
        let mut keeper = Command::new("unshare");
        keeper.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let guest = Self { keeper: keeper.spawn().expect("unshare") };
        let id = guest.keeper.id().to_string();
        // of this thread, which is in another namespace than the process
        let own = fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
        let began = Instant::now();
        while !fs::read_link(format!("/proc/{id}/ns/net")).is_ok_and(|namespace| namespace != own) {
            assert!(began.elapsed() < PATIENCE, "unshare makes no namespace");
            std::thread::sleep(Duration::from_millis(10));
        }
        ip(&format!("link add port{number} type veth peer name eth0 netns {id}"));
        ip(&format!("link set port{number} master virbr0 up"));
        for arguments in [
            "link set lo up".to_owned(),
            "link set eth0 up".to_owned(),
            format!("address add 192.168.122.{number}/24 dev eth0"),
            format!("address add fd00:122::{number}/64 dev eth0 nodad"),
            format!("address add 10.244.{number}.1/32 dev lo"),
            format!("address add fd10:{number}::1/128 dev lo"),
            "route add default via 192.168.122.1".to_owned(),
            "route add default via fd00:122::1".to_owned(),
        ] {
            let status = guest.command("ip").args(arguments.split(' ')).status().expect("ip");
            assert!(status.success(), "ip {arguments}");
        }
        guest
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.keeper.id())).arg("--").arg(program);
        command
    }

    /// Whether a ping from one pod's address to another's is answered within some seconds: IPv6 needs two to
    /// settle on a new interface.
    pub(crate) fn reaches(&self, from: &str, to: &str) -> bool {
        (0..5).any(|_| self.pings(from, to))
    }

    /// Whether one ping is answered within a second.
    pub(crate) fn pings(&self, from: &str, to: &str) -> bool {
        let family = if to.contains(':') { "-6" } else { "-4" };
        let arguments = ["ping", family, "-c", "1", "-W", "1", "-I", from, to];
        let output = self.command("busybox").args(arguments).output().expect("busybox");
        output.status.success()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
