//! The first root of the guest: a shell, the modules, and a script that puts the real root together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::package::Kernel;

/// What the guest needs beyond what is built into Debian's kernel; what these need themselves is found by their own words.
const MODULES: &[&str] =
    &["virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "crc32c_generic", "ext4", "overlay", "loop", "fuse"];

/// Puts this machine's root (read-only) under a writable disk, and goes there.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module || echo "cannot load $module"; done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose host /host || exec poweroff -f
mount -t ext4 /dev/vda /scratch || exec poweroff -f
mkdir /scratch/upper /scratch/overlay /scratch/work
mount -t overlay -o lowerdir=/host,upperdir=/scratch/upper,workdir=/scratch/overlay overlay /new || exec poweroff -f
mkdir -p /new/scratch /new/out /new/dev /new/proc /new/sys /new/run /new/tmp
mount --move /scratch /new/scratch
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 out /new/out
mount --move /dev /new/dev
mount --move /proc /new/proc
mount --move /sys /new/sys
mount -t tmpfs run /new/run
mount -t tmpfs tmp /new/tmp
mkdir -p /new/dev/shm
mount -t tmpfs shm /new/dev/shm
ln -s /proc/self/fd /new/dev/fd
mount -t fusectl fusectl /new/sys/fs/fuse/connections
ifconfig lo 127.0.0.1 up
hostname guest
cp /script /bin/busybox /new/run/
exec switch_root /new /run/busybox sh -c '/run/busybox sh /run/script; sync; exec /run/busybox reboot -f'
"#;

/// The archive that the kernel unpacks into its first root.
///
/// # Errors
/// A module is missing.
pub fn build(kernel: &Kernel, script: &str) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["bin", "dev", "proc", "sys", "host", "scratch", "new", "modules"] {
        archive.directory(directory);
    }
    archive.file("bin/busybox", 0o755, &fs::read(&kernel.shell)?);
    archive.file("init", 0o755, INIT.as_bytes());
    archive.file("script", 0o644, script.as_bytes());
    let mut order = Vec::new();
    for module in in_order(&kernel.modules)? {
        let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
        archive.file(&format!("modules/{name}"), 0o644, &fs::read(&module)?);
        order.push(name);
    }
    archive.file("modules/order", 0o644, order.join("\n").as_bytes());
    Ok(archive.finish())
}

/// The modules, each after those that it depends on.
fn in_order(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut known = BTreeMap::new();
    find_modules(directory, &mut known)?;
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    for name in MODULES {
        add(name, &known, &mut seen, &mut order)?;
    }
    Ok(order)
}

fn find_modules(directory: &Path, known: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            find_modules(&path, known)?;
        } else if path.extension().is_some_and(|extension| extension == "ko") {
            // In names of modules both signs mean the same.
            let name = path.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
            known.insert(name, path);
        }
    }
    Ok(())
}

fn add(
    name: &str,
    known: &BTreeMap<String, PathBuf>,
    seen: &mut BTreeSet<String>,
    order: &mut Vec<PathBuf>,
) -> Result<()> {
    if !seen.insert(name.to_owned()) {
        return Ok(());
    }
    let path = known.get(name).with_context(|| format!("the kernel's package has no module {name}"))?;
    for needed in depends(&fs::read(path)?) {
        add(&needed.replace('-', "_"), known, seen, order)?;
    }
    order.push(path.clone());
    Ok(())
}

/// The `depends=` entry of a module's description.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module.get(at + KEY.len()..).unwrap_or_default();
    let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(value);
    text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// A cpio archive of the format `newc`, which the kernel reads: a header of hexadecimal words, the name, the bytes, each padded
/// to four bytes.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entry_count: u32,
}

impl Archive {
    fn directory(&mut self, name: &str) {
        self.entry(name, 0o040_755, &[]);
    }

    fn file(&mut self, name: &str, permissions: u32, contents: &[u8]) {
        self.entry(name, 0o100_000 | permissions, contents);
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entry_count += 1;
        let name_bytes = name.len() + 1;
        // inode, mode, uid, gid, links, mtime, size, device and its number twice, length of the name, checksum
        let words =
            [self.entry_count as usize, mode as usize, 0, 0, 1, 0, contents.len(), 0, 0, 0, 0, name_bytes, 0];
        self.bytes.extend_from_slice(b"070701");
        for word in words {
            self.bytes.extend_from_slice(format!("{word:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests;
