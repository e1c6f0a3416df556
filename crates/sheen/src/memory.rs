//! How much memory there is for the processes of this machine, and what targets take of it for their rows, and mounts for what they give
//! to the kernel unasked.

use base::TargetKind;
use std::path::{Path, PathBuf};

/// When neither the kernel nor a control group says anything.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// What a target may keep of its rows by default: an MDT nearly everything that a busy tree is made of, an OST what it knows of the
/// objects in use, a management server next to nothing.
pub fn metadata_cache_bytes(kind: TargetKind) -> usize {
    budget(kind, available_bytes())
}

fn budget(kind: TargetKind, available_bytes: u64) -> usize {
    const MIB: u64 = 1 << 20;
    let bytes = match kind {
        TargetKind::Mdt => (available_bytes / 48).clamp(32 * MIB, 4096 * MIB),
        TargetKind::Ost => (available_bytes / 384).clamp(8 * MIB, 256 * MIB),
        TargetKind::Mgt => 8 * MIB,
    };
    bytes as usize
}

/// Files up to this size are pushed into the page cache before somebody asks for their pages.
pub fn pushed_file_bytes() -> u64 {
    available_bytes() / 4
}

/// That of the machine, or less where a control group allows less.
fn available_bytes() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    [machine, group_limit_bytes()].into_iter().flatten().min().unwrap_or(UNKNOWN_BYTES)
}

/// What the control group of this process allows, where it bounds anything.
pub fn group_limit_bytes() -> Option<u64> {
    let group = std::fs::read_to_string("/proc/self/cgroup").ok().map(|text| group_of(&text))?;
    limit_of(Path::new("/sys/fs/cgroup"), &group)
}

/// `MemTotal:       24689432 kB`
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The group in the one hierarchy of version 2: `0::/user.slice`.
fn group_of(cgroups: &str) -> PathBuf {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"));
    PathBuf::from(path.unwrap_or_default())
}

/// The least limit of a group and those around it, whether more is refused or slow.
fn limit_of(root: &Path, group: &Path) -> Option<u64> {
    let limit = |path: PathBuf| -> Option<u64> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
    let limits = |group: &Path| ["memory.max", "memory.high"].map(|name| limit(root.join(group).join(name)));
    group.ancestors().flat_map(limits).flatten().min()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_budget_has_bounds() {
        assert_eq!(budget(TargetKind::Mdt, 24 << 30), 512 << 20);
        assert_eq!(budget(TargetKind::Ost, 24 << 30), 64 << 20);
        assert_eq!(budget(TargetKind::Mdt, 64 << 20), 32 << 20);
        assert_eq!(budget(TargetKind::Mdt, 2 << 40), 4 << 30);
    }

    #[test]
    fn the_kernel_says_what_there_is() {
        assert_eq!(total_of("MemTotal:       24689432 kB\nMemFree: 1 kB\n"), Some(24_689_432 << 10));
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
        assert_eq!(group_of("1:cpu:/x\n0::/a/b\n"), PathBuf::from("a/b"));
        assert_eq!(group_of(""), PathBuf::new());
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        let write =
            |group: &str, text| std::fs::write(root.path().join(group).join("memory.max"), text).unwrap();
        write("a", "1073741824\n");
        write("a/b", "max\n");
        assert_eq!(limit_of(root.path(), Path::new("a/b")), Some(1 << 30));
        write("a/b", "536870912\n");
        assert_eq!(limit_of(root.path(), Path::new("a/b")), Some(512 << 20));
        std::fs::write(root.path().join("a/memory.high"), "268435456\n").unwrap();
        assert_eq!(limit_of(root.path(), Path::new("a/b")), Some(256 << 20));
        assert_eq!(limit_of(root.path(), Path::new("")), None);
    }
}
