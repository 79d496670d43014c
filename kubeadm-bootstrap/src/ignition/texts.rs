//! The texts that Cluster API puts on the machine, and the rules for texts in them.

use crate::error::Error;
use crate::machine_file::Content;

/// The unit that runs the script once: the script moves the file away.
pub(super) const KUBEADM_UNIT: &str = "[Unit]
Description=kubeadm
# Run only once. After successful run, this file is moved to /tmp/.
ConditionPathExists=/etc/kubeadm.yml
After=network.target
[Service]
# To not restart the unit when it exits, as it is expected.
Type=oneshot
ExecStart=/bin/bash /etc/kubeadm.sh
[Install]
WantedBy=multi-user.target
";

/// What the script does after kubeadm.
pub(super) const AFTER_KUBEADM: &str = "
mkdir -p /run/cluster-api && echo success > /run/cluster-api/bootstrap-success.complete
mv /etc/kubeadm.yml /tmp/
";

/// The configuration of the SSH daemon if the users `USERS` may log in with a password.
pub(super) const SSH_DAEMON: &str = "# Use most defaults for sshd configuration.
Subsystem sftp internal-sftp
ClientAliveInterval 180
UseDNS no
UsePAM yes
PrintLastLog no # handled by PAM
PrintMotd no # handled by PAM

Match User USERS
  PasswordAuthentication yes
";

/// The rest of the time daemon's configuration, after its servers.
pub(super) const TIME_RESTRICTIONS: &str = "
# Warning: Using default NTP settings will leave your NTP
# server accessible to all hosts on the Internet.

# If you want to deny all machines (including your own)
# from accessing the NTP server, uncomment:
#restrict default ignore

# Default configuration:
# - Allow only time queries, at a limited rate, sending KoD when in excess.
# - Allow all local queries (IPv4, IPv6)
restrict default nomodify nopeer noquery notrap limited kod
restrict 127.0.0.1
restrict [::1]
";

/// The text with one line break at its end, unless it is empty.
pub(super) fn lines(text: &str) -> String {
    let trimmed = text.trim_end_matches('\n');
    if trimmed.is_empty() { String::new() } else { format!("{trimmed}\n") }
}

/// The content of a file: a text ends with one line break.
pub(super) fn content(content: &Content) -> Vec<u8> {
    match content {
        Content::Text(text) => lines(text).into_bytes(),
        Content::Bytes(bytes) => bytes.clone(),
    }
}

/// Refuses a text that would not stay on its line in a file of another program.
pub(super) fn one_line(field: &str, text: &str) -> Result<(), Error> {
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(field, "has a line break or another control character"));
    }
    Ok(())
}
