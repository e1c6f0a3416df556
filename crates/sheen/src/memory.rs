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

/// What answers to peers that do not read may take, all together.
pub fn backlog_bytes() -> usize {
    const MIB: u64 = 1 << 20;
    (available_bytes() / 8).max(256 * MIB) as usize
}

/// That of the machine, or less where a control group allows less.
fn available_bytes() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    [machine, group_limit_bytes()].into_iter().flatten().min().unwrap_or(UNKNOWN_BYTES)
}

/// What the control group of this process allows, where it bounds anything.
pub fn group_limit_bytes() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_of(Path::new("/sys/fs/cgroup"), &groups)
}

/// `MemTotal:       24689432 kB`
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit of a process's group and those around it, whether more is refused or slow: in the one hierarchy of version 2
/// (`0::/user.slice`) and in that of version 1 for memory (`4:memory:/slurm`), where their usual places below `root` are.
fn limit_of(root: &Path, groups: &str) -> Option<u64> {
    const UNIFIED: &[&str] = &["memory.max", "memory.high"];
    const LEGACY: &[&str] = &["memory.limit_in_bytes"];
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?.strip_prefix('/')?);
        if controllers.is_empty() {
            return least(root, group, UNIFIED);
        }
        let is_of_memory = controllers.split(',').any(|name| name == "memory");
        is_of_memory.then(|| least(&root.join(controllers), group, LEGACY)).flatten()
    });
    limits.min()
}

/// The least that any of the files says in a group or in one around it. A container may see its own group at the root.
fn least(root: &Path, group: &str, files: &[&str]) -> Option<u64> {
    // Version 1 says "no limit" as the most pages that a long can count.
    const NO_LIMIT_BYTES: u64 = 1 << 62;
    let limit = |path: PathBuf| -> Option<u64> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
    let limits = |group: &Path| files.iter().filter_map(|name| limit(root.join(group).join(name))).min();
    Path::new(group).ancestors().filter_map(limits).filter(|bytes| *bytes < NO_LIMIT_BYTES).min()
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
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        let write = |path: &str, text| std::fs::write(root.path().join(path), text).unwrap();
        let limit = |groups| limit_of(root.path(), groups);
        write("a/memory.max", "1073741824\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(limit("1:cpu:/x\n0::/a/b\n"), Some(1 << 30));
        write("a/b/memory.max", "536870912\n");
        assert_eq!(limit("0::/a/b\n"), Some(512 << 20));
        write("a/memory.high", "268435456\n");
        assert_eq!(limit("0::/a/b\n"), Some(256 << 20));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit(""), None);
    }

    #[test]
    fn groups_of_version_1_count_too() {
        const NO_LIMIT: &str = "9223372036854771712\n";
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("memory/slurm/job")).unwrap();
        std::fs::create_dir_all(root.path().join("cpu/slurm")).unwrap();
        let write = |path: &str, text| std::fs::write(root.path().join(path), text).unwrap();
        let limit = |groups| limit_of(root.path(), groups);
        write("memory/memory.limit_in_bytes", NO_LIMIT);
        write("memory/slurm/job/memory.limit_in_bytes", NO_LIMIT);
        write("cpu/slurm/memory.limit_in_bytes", "1\n");
        let groups = "4:memory:/slurm/job\n2:cpu,cpuacct:/slurm\n0::/\n";
        assert_eq!(limit(groups), None);
        write("memory/slurm/memory.limit_in_bytes", "1073741824\n");
        assert_eq!(limit(groups), Some(1 << 30));
        write("memory/memory.limit_in_bytes", "536870912\n");
        assert_eq!(
            limit("4:memory:/docker/of-the-host\n"),
            Some(512 << 20),
            "a container's own group is its root"
        );
    }
}
