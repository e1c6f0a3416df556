//! A node goes off, and its client serves the root to the very end.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use anyhow::{Result, ensure};

use super::Bed;
use super::node::Extras;

/// What systemd-shutdown runs as its last act: its sweep has killed whom it kills, and what can be unmounted is.
const PROGRAM: &str = "usr/lib/systemd/system-shutdown/last-word";
/// It reads a file straight from the image and one through the overlay.
const SCRIPT: &str = "#!/bin/sh
for dir in /usr/share /srv; do
	read -r word <$dir/last-word && echo \"after the sweep: $dir says $word\" >/dev/console
done
";
const FILES: [&str; 2] = ["usr/share/last-word", "srv/last-word"];
/// The image brings its own word on the network, which by itself would take the address away before the end.
const NETWORK: &str = "etc/systemd/network/20-dhcp.network";
/// What it says besides stays.
const ADDRESS: &str = "10.99.0.7";
const NETWORKD: &str = "etc/systemd/system/multi-user.target.wants/systemd-networkd.service";

/// What it reads then, no page of the node has: only the client can answer.
pub fn serves_to_the_end(bed: &Bed) -> Result<()> {
    let told = prepare(bed).and_then(|()| power_off(bed));
    for name in FILES.into_iter().chain([PROGRAM, NETWORK, NETWORKD]) {
        fs::remove_file(bed.root.join(name))?;
    }
    told
}

fn prepare(bed: &Bed) -> Result<()> {
    fs::write(bed.root.join(PROGRAM), SCRIPT)?;
    fs::set_permissions(bed.root.join(PROGRAM), fs::Permissions::from_mode(0o755))?;
    for name in FILES {
        fs::write(bed.root.join(name), "served\n")?;
    }
    let network = format!("[Match]\nName=e*\n[Network]\nDHCP=yes\nAddress={ADDRESS}/24\n");
    fs::write(bed.root.join(NETWORK), network)?;
    symlink("/lib/systemd/system/systemd-networkd.service", bed.root.join(NETWORKD))?;
    bed.servers.update_image("node", &bed.root, &[])
}

fn power_off(bed: &Bed) -> Result<()> {
    let words = "loglevel=7 systemd.log_level=debug systemd.log_target=kmsg printk.devkmsg=on";
    let mut node = bed.boot_with("off", words, &Extras::default())?;
    node.log_in(bed.limit())?;
    // What networkd itself writes down; networkctl would ask a bus that the node does not have.
    let links = "/run/systemd/netif/links";
    node.ask(&format!("until grep -h ADMIN_STATE=configured {links}/*; do sleep 1; done"), bed.limit())?;
    let network = node.ask(&format!("cat {links}/*"), bed.limit())?;
    ensure!(network.contains("20-dhcp.network"), "networkd goes by another file: {network}");
    let addresses = node.ask("cat /proc/net/fib_trie", bed.limit())?;
    ensure!(addresses.contains(ADDRESS), "networkd left an address out: {addresses}");
    // Whatever becomes of the units of the image.
    node.ask("systemctl stop sheen-image.service", bed.limit())?;
    let images = bed.servers.list_images()?;
    ensure!(images.contains(" in use "), "nothing holds the image: {images}");
    node.ask("echo 3 >/proc/sys/vm/drop_caches", bed.limit())?;
    node.type_line("systemctl poweroff")?;
    for dir in ["/usr/share", "/srv"] {
        let said = node.wait_for(&format!("after the sweep: {dir} says served"), bed.limit())?;
        ensure!(!said.contains("Stale file handle"), "somebody could not read: {said}");
    }
    node.wait_for_end(bed.limit())
}
