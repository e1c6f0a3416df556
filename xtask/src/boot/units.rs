//! The package's unit serves, and /etc/fstab mounts, on a node with a disk of its own.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::node::Extras;
use super::{Bed, root, succeed};

const CONFIGURATION: &str = "targets = [\"/srv/sheen/mgs\", \"/srv/sheen/mdt0\", \"/srv/sheen/ost0\"]
listen = \"127.0.0.1\"
";
/// The first is served here. Of the second nobody ever hears: nothing listens at that port of the node.
const TABLE: &str = "/dev/vda / ext4 defaults 0 1
127.0.0.1@tcp:/local /mnt sheen _netdev,nofail,retry=4 0 0
127.0.0.1:9@tcp:/nobody /media sheen _netdev,nofail,retry=4 0 0
";

pub fn serve_and_mount(bed: &Bed) -> Result<()> {
    let copy = bed.machine.consoles.join("root.units");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    // The files are the same ones: what differs is replaced, never written to.
    succeed(Command::new("cp").args(["-al"]).arg(&bed.root).arg(&copy), bed.limit())?;
    let disk = bed.machine.consoles.join("units.img");
    let told = configure(bed, &copy)
        .and_then(|()| root::make_disk(&copy, &disk))
        .and_then(|()| on_a_node(bed, &disk));
    fs::remove_dir_all(&copy)?;
    if disk.exists() {
        fs::remove_file(&disk)?;
    }
    told
}

fn configure(bed: &Bed, copy: &Path) -> Result<()> {
    let inside = |arguments: &[&str]| succeed(Command::new("chroot").arg(copy).args(arguments), bed.limit());
    let write = |name: &str, text: &str| -> Result<()> {
        let path = copy.join(name);
        if path.exists() {
            fs::remove_file(&path)?;
        }
        Ok(fs::write(path, text)?)
    };
    fs::create_dir_all(copy.join("etc/sheen"))?;
    write("etc/sheen/local.toml", CONFIGURATION)?;
    write("etc/fstab", TABLE)?;
    // As the package's script does. It replaces the files of users.
    inside(&["useradd", "--system", "--user-group", "--no-create-home", "sheen"])?;
    fs::create_dir_all(copy.join("srv/sheen"))?;
    fs::set_permissions(copy.join("srv/sheen"), fs::Permissions::from_mode(0o700))?;
    let fsname = ["--fsname", "local"];
    inside(&["sheen", "mkfs", "--mgs", "/srv/sheen/mgs"])?;
    for kind in ["mdt", "ost"] {
        let (flag, dir) = (format!("--{kind}"), format!("/srv/sheen/{kind}0"));
        let of = ["sheen", "mkfs", &flag, "--index", "0", "--mgsnode", "127.0.0.1@tcp"];
        inside(&[&of[..], &fsname, &[&dir]].concat())?;
    }
    inside(&["chown", "-R", "sheen:sheen", "/srv/sheen"])?;
    let wants = copy.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    let unit = ["usr/lib/systemd/system", "lib/systemd/system"]
        .into_iter()
        .find(|dir| copy.join(dir).join("sheen-server@.service").exists());
    ensure!(unit.is_some(), "the package brings no sheen-server@.service");
    symlink("/lib/systemd/system/sheen-server@.service", wants.join("sheen-server@local.service"))?;
    Ok(())
}

fn on_a_node(bed: &Bed, disk: &Path) -> Result<()> {
    let extras = Extras { disk: Some(disk), ..Extras::default() };
    let mut node = bed.machine.start("units", "root=/dev/vda ro", &extras)?;
    node.log_in(bed.limit())?;
    let said = node.ask("until systemctl is-active multi-user.target; do sleep 1; done", bed.limit())?;
    // The mount that has no servers is still at it, and the login was not kept from coming.
    let mut other = node.ask("systemctl show -p ActiveState media.mount", bed.limit())?;
    ensure!(other.contains("=activating"), "the mount without servers: {other}, {said}");
    node.ask("until systemctl is-active mnt.mount; do sleep 1; done", bed.limit())?;
    let mounted = node.ask("cat /proc/mounts", bed.limit())?;
    ensure!(mounted.contains(" /mnt fuse.sheen "), "not mounted: {mounted}");
    node.ask("systemctl is-active sheen-server@local.service", bed.limit())?;
    let owner = node.ask("ps -o user= -p $(systemctl show -P MainPID sheen-server@local)", bed.limit())?;
    ensure!(owner.contains("sheen"), "the server runs as {owner}");
    node.ask("echo of-node >/mnt/word && sync && grep of-node /mnt/word", bed.limit())?;
    // It gives up by itself, and says why.
    other = node.ask("until systemctl is-failed media.mount; do sleep 1; done", bed.limit())?;
    ensure!(other.contains("failed"), "the mount without servers: {other}");
    node.ask("! grep ' /media ' /proc/mounts", bed.limit())?;
    // The mount goes before its servers.
    node.type_line("systemctl poweroff")?;
    node.wait_for_end(bed.limit())
}
