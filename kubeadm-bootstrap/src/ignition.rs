//! The data as Ignition reads them: specification 2.3, in which Cluster API's controller writes them.
//!
//! `kubeadm.service` runs `/etc/kubeadm.sh` once: the commands before kubeadm, kubeadm, and the commands after it.

mod config;
mod json;
mod storage;
mod texts;

use std::fmt::Write as _;

use cluster_api::kubeadm::User;

use crate::error::Error;
use crate::request::Request;
use crate::resolved::{Kubeadm, Machine};
use config::{Config, File, IgnitionUser, Unit};
use texts::{lines, one_line};

/// The whole document.
pub(crate) fn document(request: &Request<'_>, machine: &Machine) -> Result<Vec<u8>, Error> {
    let spec = request.spec;
    let mut files = user_files(&spec.users)?;
    for file in &machine.files {
        files.push(storage::file(file)?);
    }
    let (command, configuration) = match &machine.kubeadm {
        Kubeadm::Init { cluster, init } => ("init", format!("---\n{cluster}\n---\n{init}")),
        Kubeadm::Join(join) => ("join", format!("---\n{join}")),
    };
    let script =
        script(request, &format!("kubeadm {command} --config /etc/kubeadm.yml {}", machine.verbosity));
    files.push(File::new("/etc/kubeadm.sh", 0o700, lines(&script).as_bytes()));
    files.push(File::new("/etc/kubeadm.yml", 0o600, lines(&configuration).as_bytes()));
    let has_time = spec.ntp.enabled == Some(true);
    if has_time && !spec.ntp.servers.is_empty() {
        files.push(File::new("/etc/ntp.conf", 0o644, time_configuration(&spec.ntp.servers)?.as_bytes()));
    }
    let mut units = vec![Unit::with_contents("kubeadm.service", texts::KUBEADM_UNIT)];
    if has_time {
        units.push(Unit::enabled("ntpd.service"));
    }
    units.extend(storage::mounts(spec)?);
    let mut config = Config::default();
    config.passwd.users = users(request, machine)?;
    config.storage.disks = storage::disks(spec)?;
    config.storage.files = files;
    config.storage.filesystems = storage::filesystems(spec)?;
    config.systemd.units = units;
    json::encode(&config)
}

fn script(request: &Request<'_>, kubeadm: &str) -> String {
    let spec = request.spec;
    let mut script = String::from("#!/bin/bash\nset -e\n");
    for command in &spec.pre_kubeadm_commands {
        script.push('\n');
        script.push_str(command);
    }
    script.push_str("\n\n");
    script.push_str(kubeadm);
    script.push_str(texts::AFTER_KUBEADM);
    for command in &spec.post_kubeadm_commands {
        script.push('\n');
        script.push_str(command);
    }
    script
}

fn users(request: &Request<'_>, machine: &Machine) -> Result<Vec<IgnitionUser>, Error> {
    let users = request.spec.users.iter().zip(&machine.passwords).enumerate();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    users
        .map(|(index, (user, password))| {
            one_line(&format!("spec.users[{index}].name"), &user.name)?;
            let groups = text(&user.groups);
            let groups = groups.split(", ").filter(|group| !group.is_empty()).map(str::to_owned).collect();
            Ok(IgnitionUser {
                gecos: text(&user.gecos),
                groups,
                home_dir: text(&user.home_dir),
                name: user.name.clone(),
                password_hash: password.as_deref().unwrap_or_default().to_owned(),
                primary_group: text(&user.primary_group),
                ssh_authorized_keys: user
                    .ssh_authorized_keys
                    .iter()
                    .map(|key| key.trim().to_owned())
                    .collect(),
                shell: text(&user.shell),
            })
        })
        .collect()
}

/// What users may do as root, and who may log in with a password.
fn user_files(users: &[User]) -> Result<Vec<File>, Error> {
    let mut files = Vec::new();
    let mut with_password = Vec::new();
    for (index, user) in users.iter().enumerate() {
        one_line(&format!("spec.users[{index}].name"), &user.name)?;
        if let Some(sudo) = user.sudo.as_deref().filter(|sudo| !sudo.is_empty()) {
            one_line(&format!("spec.users[{index}].sudo"), sudo)?;
            if user.name.contains('/') {
                return Err(Error::invalid(format!("spec.users[{index}].name"), "has a slash"));
            }
            let rule = format!("{} {sudo}\n", user.name);
            files.push(File::new(&format!("/etc/sudoers.d/{}", user.name), 0o600, rule.as_bytes()));
        }
        if user.lock_password == Some(false) {
            with_password.push(user.name.as_str());
        }
    }
    if !with_password.is_empty() {
        let text = texts::SSH_DAEMON.replace("USERS", &with_password.join(","));
        files.push(File::new("/etc/ssh/sshd_config", 0o600, text.as_bytes()));
    }
    Ok(files)
}

fn time_configuration(servers: &[String]) -> Result<String, Error> {
    let mut text = String::from("# Common pool\n");
    for (index, server) in servers.iter().enumerate() {
        one_line(&format!("spec.ntp.servers[{index}]"), server)?;
        // writing into a text cannot fail
        let _ = writeln!(text, "server {server}");
    }
    text.push_str(texts::TIME_RESTRICTIONS);
    Ok(text)
}

#[cfg(test)]
mod tests;
