//! The half root: what a node has in memory, while no server answers.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::node::{Extras, Node};
use super::{Bed, root, servers, succeed};

pub fn without_servers(bed: &Bed) -> Result<()> {
    let ssh_port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let extras = Extras { has_second_console: true, ssh_port: Some(ssh_port), ..Extras::default() };
    let begun = Instant::now();
    let mut node = bed.boot_with("half-root", "halfroot halfconsole=ttyS1", &extras)?;
    node.wait_for("KiB in memory", bed.limit())?;
    println!("    the half root is filled {:.0} s after the start", begun.elapsed().as_secs_f64());
    node.log_in(bed.limit())?;
    let mut half = node.second()?;
    bed.servers.kill(servers::ALL)?;
    let told = works_in_half_root(&mut half, bed.limit()).and_then(|()| works_by_ssh(bed, ssh_port));
    bed.servers.restart(servers::ALL)?;
    told?;
    // The image is there again.
    node.ask("echo 3 >/proc/sys/vm/drop_caches; ls -R /etc >/tmp/etc", bed.limit()).map(drop)
}

/// Logs in twice, with what was never asked for before, and looks around.
fn works_in_half_root(half: &mut Node, limit: Duration) -> Result<()> {
    half.log_in(limit)?;
    half.type_line("exit")?;
    half.log_in(limit)?;
    let processes = half.ask("ps -e", limit)?;
    ensure!(processes.contains("systemd") && processes.contains("sheen"), "ps does not see all: {processes}");
    let mounts = half.ask("mount", limit)?;
    ensure!(mounts.contains("sheen-half on / type tmpfs"), "mount says {mounts}");
    let ours = half.ask("sheen mounts", limit)?;
    ensure!(ours.contains("/images/node"), "sheen mounts says {ours}");
    let written = half.ask("ls -ld /tmp; echo mine >/tmp/of-half && cat /tmp/of-half", limit)?;
    ensure!(written.contains("drwxrwxrwt") && written.contains("mine"), "/tmp is not usable: {written}");
    // What has to ask the servers waits. Nobody waits for it.
    let lost = half.status("timeout 5 ls /proc/1/root/run/initramfs/sheen/image/opt", limit)?;
    ensure!(lost != 0, "the image answers without servers");
    Ok(())
}

/// A half root of what its list names, and of what its logins need.
pub fn of_a_list(bed: &Bed) -> Result<()> {
    let extras = Extras { has_second_console: true, ..Extras::default() };
    let list = "/bin/bash,/bin/cat,/sbin/agetty,/bin/login,/etc,/root,/srv/not-there";
    let mut node = bed.boot_with("half-list", &format!("halfroot={list} halfconsole=ttyS1"), &extras)?;
    node.wait_for("halfroot: the image has no /srv/not-there", bed.limit())?;
    node.log_in(bed.limit())?;
    let mut half = node.second()?;
    bed.servers.kill(servers::ALL)?;
    let told = has_what_the_list_names(&mut half, bed.limit());
    bed.servers.restart(servers::ALL)?;
    told
}

fn has_what_the_list_names(half: &mut Node, limit: Duration) -> Result<()> {
    half.log_in(limit)?;
    let name = half.ask("cat /etc/hostname", limit)?;
    ensure!(name.contains("node"), "/etc/hostname says {name}");
    ensure!(
        half.status("[ -e /bin/ps ] || [ -e /usr/bin/sheen ]", limit)? != 0,
        "it has what its list does not name"
    );
    Ok(())
}

/// Logs in over the network, by a key of root's that the image had.
fn works_by_ssh(bed: &Bed, port: u16) -> Result<()> {
    let mut ssh = Command::new("chroot");
    ssh.arg(&bed.root).args(["ssh", "-p", &port.to_string(), "-i", &format!("/{}", root::KEY)]);
    for option in ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"] {
        ssh.args(["-o", option]);
    }
    let said = succeed(ssh.args(["root@127.0.0.1", "ps -e; sheen mounts"]), bed.limit())?;
    ensure!(said.contains("systemd") && said.contains("/images/node"), "ssh to the half root says {said}");
    Ok(())
}
