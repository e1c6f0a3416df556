//! The root of the nodes: a small Debian with a kernel, our package and an initramfs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Root, succeed};

const SUITE: &str = "bookworm";
/// Debian's kernel without the drivers of real machines: the initramfs is a third.
const PACKAGES: &str =
    "systemd-sysv,udev,initramfs-tools,linux-image-cloud-amd64,procps,iproute2,openssh-server";
/// Where the root says of which packages it was made.
const MADE_OF: &str = "etc/node-packages";
/// Who may log in by ssh, below the root's /root/.ssh.
pub const KEY: &str = "root/.ssh/id_ed25519";
/// Room on a disk of a node; most of it is a hole in a file.
const DISK_SIZE: &str = "2G";
const DEBOOTSTRAP_LIMIT: Duration = Duration::from_secs(1800);
const LIMIT: Duration = Duration::from_secs(600);

/// Makes what is not there yet of what Debian has, which takes no longer than `patience`.
pub fn make(home: &Path, patience: Duration) -> Result<()> {
    let root = home.join("root");
    if fs::read_to_string(root.join(MADE_OF)).is_ok_and(|made_of| made_of == PACKAGES) {
        println!("debootstrap made {} before", root.display());
        return Ok(());
    }
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    println!("debootstrap makes {}", root.display());
    let new = home.join("root.new");
    if new.exists() {
        fs::remove_dir_all(&new)?;
    }
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", &format!("--include={PACKAGES}"), SUITE]).arg(&new);
    succeed(&mut command, DEBOOTSTRAP_LIMIT.min(patience))?;
    // Only the half root has one: the boots that are timed start no more than before.
    succeed(Command::new("chroot").arg(&new).args(["systemctl", "disable", "ssh.service"]), LIMIT)?;
    let key = format!("/{KEY}");
    let script = format!(
        "mkdir -pm 700 /root/.ssh; ssh-keygen -q -t ed25519 -N '' -f {key}; cp {key}.pub /root/.ssh/authorized_keys"
    );
    succeed(Command::new("chroot").arg(&new).args(["sh", "-ec", &script]), LIMIT)?;
    fs::write(new.join(MADE_OF), PACKAGES)?;
    fs::rename(&new, &root)?;
    Ok(())
}

/// Puts today's package into it.
pub fn prepare(home: &Path, package: &Path) -> Result<Root> {
    let root = home.join("root");
    succeed(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root), LIMIT)?;
    fs::write(root.join("etc/hostname"), "node\n")?;
    // udev may take longer for it than systemd waits, where processors are emulated and others use them; nobody could log in then.
    let patience = root.join("etc/systemd/system/dev-ttyS0.device.d");
    fs::create_dir_all(&patience)?;
    fs::write(patience.join("patience.conf"), "[Unit]\nJobRunningTimeoutSec=infinity\n")?;
    // Logins without a password: nobody reaches the nodes but their consoles.
    succeed(Command::new("chroot").arg(&root).args(["passwd", "-d", "root"]), LIMIT)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec"]);
    command.arg("mount -t proc proc \"$0/proc\"; chroot \"$0\" update-initramfs -u").arg(&root);
    succeed(&mut command, LIMIT)?;
    let boot = root.join("boot");
    let names = fs::read_dir(&boot)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let kernel =
        names.into_iter().find(|name| name.starts_with("vmlinuz-")).context("the root has no kernel")?;
    let initramfs = boot.join(kernel.replacen("vmlinuz", "initrd.img", 1));
    Ok(Root { kernel: boot.join(kernel), initramfs, path: root })
}

/// Copies a root to a file with an ext4.
pub fn make_disk(root: &Path, disk: &Path) -> Result<()> {
    if disk.exists() {
        fs::remove_file(disk)?;
    }
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-d"]).arg(root).arg(disk).arg(DISK_SIZE);
    succeed(&mut command, LIMIT).map(drop)
}
