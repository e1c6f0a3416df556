//! An MDT loses what it has answered, and evicts who could have brought it back: fsync(2) tells that once, and tells it to nobody else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{Program, SHAPE, recovered, start_with, until_missing};
use crate::case::{Context, expect, expect_answer, expect_eq};
use crate::cluster::{Cluster, Shape};
use crate::sys;

const TARGET: &str = "MDT0000";
/// A sync ends with an error; nothing bounds more than a hang.
const SYNC_LIMIT: Duration = Duration::from_secs(60);

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(status.success(), "cp -a {} {}: {status}", from.display(), to.display());
    Ok(())
}

/// open(2), fsync(2), close(2). -> errno
fn fsync(path: &Path) -> Result<i32> {
    let file = fs::File::open(path).with_context(|| path.display().to_string())?;
    Ok(file.sync_all().err().and_then(|error| error.raw_os_error()).unwrap_or(0))
}

fn sync(cluster: &Cluster, mount: &Path) -> Result<bool> {
    Ok(cluster.try_sheen(&["sync", &mount.to_string_lossy()], SYNC_LIMIT)?.is_success())
}

fn pid_of(named: &[(String, i32)], name: &str) -> Result<i32> {
    let found = named.iter().find(|(of, _)| of == name);
    found.map(|(_, pid)| *pid).with_context(|| format!("no process of {name}"))
}

/// Its disk is as it was when it had made nothing of the changes durable.
pub fn is_told(context: &Context) -> Result<()> {
    let cluster = start_with(context, Shape { mdt_count: 1, ..SHAPE })?;
    let (still, other) = (cluster.mount_again("still")?, cluster.mount_again("other")?);
    cluster.sheen(&["lctl", "set_param", "-P", "mdt.*.recovery_time_soft=300"])?;
    for directory in ["renames", "quiet"] {
        fs::create_dir(still.join(directory))?;
        fs::write(still.join(directory).join("file"), b"bytes")?;
    }
    fs::write(still.join("chmod"), b"bytes")?;
    fs::set_permissions(still.join("chmod"), fs::Permissions::from_mode(0o644))?;
    fs::metadata(other.join("chmod"))?;
    for mount in [&still, &other, &cluster.mount] {
        expect(sync(&cluster, mount)?, "a sync before anything is lost")?;
    }
    let (mdt, pid) =
        (pid_of(&cluster.targets()?, TARGET)?, pid_of(&cluster.mounts()?, &still.to_string_lossy())?);
    let (disk, before) = (cluster.data.join(TARGET.to_lowercase()), context.work.join("before"));
    sys::kill(mdt, libc::SIGSTOP)?;
    let copied = copy(&disk, &before);
    sys::kill(mdt, libc::SIGCONT)?;
    copied?;
    // It is a second before they are durable.
    fs::rename(still.join("renames/file"), still.join("renames/renamed"))?;
    fs::set_permissions(still.join("chmod"), fs::Permissions::from_mode(0o600))?;
    sys::kill(pid, libc::SIGSTOP)?;
    sys::kill(mdt, libc::SIGKILL)?;
    fs::remove_dir_all(&disk)?;
    copy(&before, &disk)?;
    let mut up = Program(cluster.up_command().stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
    let ended =
        until_missing(&cluster, TARGET).and_then(|()| cluster.sheen(&["lctl", "abort_recovery", TARGET]));
    sys::kill(pid, libc::SIGCONT)?;
    expect(up.0.wait()?.success(), "sheen up after the recovery")?;
    expect(ended?.contains("given up: 1"), "one is given up")?;
    recovered(&cluster)?;
    for path in ["chmod", "renames", "renames/file", "quiet", "quiet/file"] {
        expect_answer(fsync(&other.join(path))?, 0, &format!("{path}, where nothing was changed"))?;
    }
    for path in ["quiet", "quiet/file"] {
        expect_answer(fsync(&still.join(path))?, 0, &format!("{path}, of which nothing was lost"))?;
    }
    for path in ["chmod", "renames", "renames/file"] {
        expect_answer(fsync(&still.join(path))?, libc::EIO, &format!("{path}, of which something was lost"))?;
        expect_answer(fsync(&still.join(path))?, 0, &format!("{path} once more"))?;
    }
    expect(sync(&cluster, &other)?, "a sync of who has lost nothing")?;
    expect(!sync(&cluster, &still)?, "a sync of who has lost something tells of it")?;
    expect(sync(&cluster, &still)?, "and tells it once")?;
    let mode = fs::metadata(still.join("chmod"))?.permissions().mode() & 0o777;
    expect_eq(mode, 0o644, "the mode that is lost")?;
    cluster.down().map(drop)
}
