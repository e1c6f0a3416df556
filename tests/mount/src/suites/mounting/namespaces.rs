//! Mount namespaces, as containers have: copies of a mount in them when that goes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context as _, Result};

use super::{LIMIT, bounded_end, names_of, start, stop};
use crate::bounded;
use crate::case::{Context, expect, expect_bytes, expect_eq, expect_errno, names, read, skip, write};
use crate::cluster::{COMMAND_LIMIT, Cluster};
use crate::sweep;
use crate::sys;

/// Which of two processes answers first is chance.
const NAMESAKE_COUNT: usize = 4;

/// A process in a mount namespace of its own, as a container has one, with a copy of all mounts. It ends with the case.
struct Container(Child);

impl Container {
    /// Runs the script until it prints a line; after that it has what it has and waits.
    fn start(cluster: &Cluster, script: &str) -> Result<Container> {
        use std::io::BufRead;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg(format!("{script}\necho ready; exec sleep 100000")).current_dir("/");
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        cluster.tag(&mut command);
        let mut child = Container(command.spawn().context("unshare (package util-linux)")?);
        let mut line = String::new();
        io::BufReader::new(child.0.stdout.take().context("its output")?).read_line(&mut line)?;
        if line.trim_end() != "ready" {
            return skip("mount namespaces cannot be made here");
        }
        Ok(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// A path as this process sees it.
    fn path(&self, path: &Path) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.pid())).join(path.strip_prefix("/").unwrap_or(path))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn down(cluster: &Cluster, option: Option<&str>) -> Result<bounded::Said> {
    let data = cluster.data.to_string_lossy().into_owned();
    let arguments: Vec<&str> = ["down", "--dir", &data].into_iter().chain(option).collect();
    let said = cluster.try_sheen(&arguments, COMMAND_LIMIT)?;
    println!("$ sheen {}\n{}[{}]", arguments.join(" "), said.all(), said.end.describe());
    Ok(said)
}

/// `down` has worked, said in one line what it has cut off, and nothing is left of the cluster.
fn expect_down(cluster: &Cluster, said: &bounded::Said, words: &str) -> Result<()> {
    expect(said.is_success(), "down has worked")?;
    // A slow disk is waited for, which is said too.
    let lines = said.errors.lines().filter(|line| line.contains(words)).count();
    expect_eq(lines, 1, &format!("lines with '{words}' in '{}'", said.errors.trim_end()))?;
    expect(sweep::mounts_under(&cluster.mount).is_empty(), "down has unmounted")?;
    expect(cluster.targets()?.iter().all(|(_, pid)| *pid == 0), "no target runs")
}

/// A copy of the mount that nobody uses holds nothing up: it is cut off, and what was written is there.
pub(super) fn down_with_copy(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let container = Container::start(&cluster, "")?;
    let inside = container.path(&cluster.mount);
    write(&cluster.mount.join("outside"), b"from outside")?;
    write(&inside.join("inside"), b"through the copy")?;
    let said = down(&cluster, None)?;
    expect_down(&cluster, &said, &format!("in the mount namespace of pid {}", container.pid()))?;
    expect_errno(names_of(&inside), libc::ENOTCONN, "the copy after down")?;
    cluster.up()?;
    expect_bytes(&read(&cluster.mount.join("outside"))?, b"from outside", "after down and up")?;
    expect_bytes(&read(&cluster.mount.join("inside"))?, b"through the copy", "after down and up")?;
    drop(container);
    stop(cluster)
}

/// Nobody is cut off without `--force`, in whatever namespace; with it whoever has files open gets ENOTCONN, and all that was
/// acknowledged is there, stores to mapped pages too.
pub(super) fn down_in_use(context: &Context) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let cluster = start(context)?;
    let (path, mapped_path) = (cluster.mount.join("file"), cluster.mount.join("mapped"));
    let container = Container::start(&cluster, &format!("exec 3<>'{}'", path.display()))?;
    let refused = |pid: u32| -> Result<()> {
        let said = down(&cluster, None)?;
        expect(!said.is_success(), "down is refused")?;
        let line = said.errors.lines().last().unwrap_or_default();
        expect(line.contains(&format!("in use by pid {pid} ")), "who uses it")?;
        expect(line.contains("--force"), "what to do")?;
        write(&cluster.mount.join("goes-on"), b"x").context("nothing has changed")
    };
    refused(container.pid())?;
    drop(container);
    let file = fs::File::options().read(true).write(true).open(&path)?;
    file.write_all_at(b"acknowledged", 0)?;
    write(&mapped_path, &[b'-'; 8192])?;
    let mapped = fs::File::options().read(true).write(true).open(&mapped_path)?;
    let map = sys::Mapping::new(&mapped, sys::MapKind::SharedWrite, 8192)?;
    drop(mapped);
    map.write(4096, b"stored");
    refused(std::process::id())?;
    let said = down(&cluster, Some("--force"))?;
    expect_down(&cluster, &said, "everything is durable, cutting it off")?;
    expect_errno(file.write_at(b"late", 0), libc::ENOTCONN, "a write after down --force")?;
    drop((file, map));
    cluster.up()?;
    expect_bytes(&read(&path)?, b"acknowledged", "what was written before")?;
    expect_bytes(read(&mapped_path)?.get(4096..4102).unwrap_or_default(), b"stored", "what was stored")?;
    stop(cluster)
}

/// umount(8) leaves copies in other places alone: they work on beside a new mount of the same cluster, until the end of that.
pub(super) fn umount_with_copy(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    write(&cluster.mount.join("file"), b"before")?;
    let container = Container::start(&cluster, "")?;
    let inside = container.path(&cluster.mount);
    cluster.unmount(&cluster.mount)?;
    expect_eq(names(&cluster.mount)?, Vec::<String>::new(), "what is under the mount")?;
    expect_eq(cluster.mounts()?.len(), 0, "mounts that `status` shows")?;
    expect_bytes(&read(&inside.join("file"))?, b"before", "through the copy")?;
    cluster.up()?;
    write(&cluster.mount.join("file"), b"after")?;
    expect_bytes(&read(&inside.join("file"))?, b"after", "through the copy, from the new mount")?;
    write(&inside.join("inside"), b"through the copy")?;
    expect_bytes(&read(&cluster.mount.join("inside"))?, b"through the copy", "through the new mount")?;
    let said = down(&cluster, None)?;
    expect(said.is_success(), "down works")?;
    expect_errno(names_of(&inside), libc::ENOTCONN, "the copy after down")?;
    cluster.up()?;
    expect_bytes(&read(&cluster.mount.join("inside"))?, b"through the copy", "after down and up")?;
    drop(container);
    stop(cluster)
}

/// Two mounts on the same path in two namespaces, whose processes are found in one run directory: who unmounts the path means
/// the one that he sees there.
pub(super) fn umount_with_namesake(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    write(&cluster.mount.join("file"), b"seen")?;
    let (point, source) = (cluster.point("namesake")?, cluster.source()?);
    let (run, program) = (cluster.run_dir(), &context.options.sheen);
    let script = format!(
        "SHEEN_RUN='{}' '{}' mount '{source}' '{}' -o transport={} >&2 || exit 1",
        run.display(),
        program.display(),
        point.display(),
        cluster.transport()
    );
    let container = Container::start(&cluster, &script)?;
    let inside = container.path(&point);
    expect_bytes(&read(&inside.join("file"))?, b"seen", "through the mount in the other namespace")?;
    let there = cluster.mounts()?.into_iter().find(|(path, _)| Path::new(path) == point);
    let (_, there) = there.context("the process of that mount")?;
    for round in 0..NAMESAKE_COUNT {
        cluster.mount_again("namesake")?;
        cluster.sheen(&["umount", &point.to_string_lossy()])?;
        expect(sweep::mounts_under(&point).is_empty(), &format!("it is unmounted here, round {round}"))?;
        let seen = read(&inside.join("file")).context("the other one goes on")?;
        expect_bytes(&seen, b"seen", "through the mount in the other namespace")?;
    }
    sys::kill(there, libc::SIGTERM)?;
    bounded_end(there, LIMIT)?;
    drop(container);
    stop(cluster)
}
