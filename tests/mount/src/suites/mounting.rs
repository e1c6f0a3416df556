//! Mounting: options and how they are shown, the helpers of mount(8) and umount(8), clients that died, servers at several addresses;
//! users who are not root, mount namespaces, access times, file handles.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::case::{
    Bed, Case, Context, Suite, expect, expect_bytes, expect_eq, expect_errno, names, note, read, wait_until,
    write,
};
use crate::cluster::{COMMAND_LIMIT, Cluster, Shape};
use crate::disk::LoopDisk;
use crate::forest;
use crate::suites::smoke;
use crate::sweep;
use crate::sys;

mod accesses;
mod addresses;
mod automount;
mod failed;
mod handles;
mod hung;
mod namespaces;
mod users;

/// The suite.
pub static SUITE: Suite = Suite { name: "mounting", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "lock_scopes", seconds: 90, run: lock_scopes },
    Case { name: "user_xattrs", seconds: 90, run: user_xattrs },
    Case { name: "lazystatfs", seconds: 120, run: lazystatfs },
    Case { name: "options_are_shown", seconds: 90, run: options_are_shown },
    Case { name: "access_times", seconds: 90, run: access_times },
    Case { name: "access_times_of_programs_and_mappings", seconds: 180, run: accesses::run },
    Case { name: "unknown_options", seconds: 90, run: unknown_options },
    Case { name: "mount_helper", seconds: 90, run: mount_helper },
    Case { name: "a_mount_waits_for_its_servers", seconds: 120, run: before_servers },
    Case { name: "a_mount_waits_for_the_mdt_of_its_root", seconds: 180, run: before_mdt },
    Case { name: "a_mount_names_the_mdt_of_its_directory", seconds: 180, run: before_mdt_of_directory },
    Case { name: "remount", seconds: 90, run: remount },
    Case { name: "synchronous", seconds: 60, run: synchronous },
    Case { name: "a_mount_that_ends_well_leaves_no_log", seconds: 90, run: leaves_no_log },
    Case { name: "umount_makes_durable", seconds: 120, run: umount_makes_durable },
    Case { name: "umount_with_dead_servers", seconds: 240, run: umount_with_dead_servers },
    Case { name: "umount_of_a_mount_that_hangs", seconds: 240, run: hung::umount },
    Case { name: "clients_that_died", seconds: 120, run: clients_that_died },
    Case { name: "several_addresses", seconds: 120, run: several_addresses },
    Case { name: "failed_mounts_say_goodbye", seconds: 120, run: failed::say_goodbye },
    Case { name: "clients_have_their_own_addresses", seconds: 120, run: addresses::clients_have_their_own },
    Case { name: "handles_below_a_directory", seconds: 90, run: handles::below_a_directory },
    Case { name: "automounts", seconds: 180, run: automount::direct },
    Case { name: "automounts_that_cannot_end", seconds: 240, run: automount::refused },
    Case { name: "keys_of_the_terminal", seconds: 90, run: keys_of_terminal },
    Case { name: "descriptors_of_the_caller", seconds: 90, run: descriptors_of_the_caller },
    Case { name: "not_root", seconds: 120, run: users::not_root },
    Case { name: "run_directory_of_somebody_else", seconds: 60, run: users::foreign_run_directory },
    Case { name: "no_fusermount3", seconds: 60, run: users::no_fusermount3 },
    Case { name: "down_with_a_copy_elsewhere", seconds: 120, run: namespaces::down_with_copy },
    Case { name: "down_while_in_use", seconds: 120, run: namespaces::down_in_use },
    Case { name: "umount_with_a_copy_elsewhere", seconds: 120, run: namespaces::umount_with_copy },
    Case { name: "umount_with_a_namesake_elsewhere", seconds: 120, run: namespaces::umount_with_namesake },
];

/// Between two looks at what is mounted.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// For what another process is about to do.
const LIMIT: Duration = Duration::from_secs(50);

fn start(context: &Context) -> Result<Cluster> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, Shape::SMALL)?;
    cluster.up()?;
    Ok(cluster)
}

fn stop(mut cluster: Cluster) -> Result<()> {
    cluster.down()?;
    let complaints = cluster.new_complaints();
    expect(complaints.is_empty(), &format!("unexpected warnings or errors: {complaints:#?}"))
}

/// Two descriptors of `name`, one through each directory.
fn open_twice(one: &Path, other: &Path, name: &str) -> io::Result<(fs::File, fs::File)> {
    let open = |dir: &Path| sys::open(&dir.join(name), libc::O_RDWR | libc::O_CREAT, 0o644);
    Ok((open(one)?, open(other)?))
}

/// flock(2) of both: what the second one gets.
fn flock_twice(one: &Path, other: &Path, name: &str) -> io::Result<()> {
    let (first, second) = open_twice(one, other, name)?;
    let lock = |file| sys::flock(file, libc::LOCK_EX | libc::LOCK_NB);
    lock(&first)?;
    lock(&second)
}

/// The same with ranges of fcntl(2).
fn lock_range_twice(one: &Path, other: &Path, name: &str) -> io::Result<()> {
    let (first, second) = open_twice(one, other, name)?;
    let lock = |file| sys::lock(file, sys::LockKind::Ofd, sys::LockMode::Write, 0, 10, false);
    lock(&first)?;
    lock(&second)
}

/// `flock`: the cluster sees a lock; `localflock`: this mount does; `noflock`: there are none.
fn lock_scopes(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let again = cluster.mount_with("flock", "flock")?;
    let local = cluster.mount_with("local", "localflock")?;
    let other_local = cluster.mount_with("local2", "localflock")?;
    let none = cluster.mount_with("none", "noflock")?;
    for (call, lock) in [("flock(2)", flock_twice as Lock), ("fcntl(2)", lock_range_twice)] {
        let lock = |one: &Path, other: &Path, name: &str| lock(one, other, &format!("{name} by {call}"));
        let of = |what: &str| format!("{call}: {what}");
        let seen = lock(&cluster.mount, &again, "seen");
        expect_errno(seen, libc::EAGAIN, &of("a lock seen in the cluster"))?;
        expect_errno(lock(&local, &local, "here"), libc::EAGAIN, &of("a local lock on its own mount"))?;
        lock(&local, &other_local, "there")
            .with_context(|| of("a local lock is not seen by another mount"))?;
        lock(&cluster.mount, &local, "mixed")
            .with_context(|| of("nor one of the cluster by a local mount"))?;
        expect_errno(lock(&none, &none, "none"), libc::ENOSYS, &of("with noflock"))?;
    }
    let file = fs::File::create(none.join("fcntl"))?;
    let range = sys::lock(&file, sys::LockKind::Posix, sys::LockMode::Write, 0, 1, false);
    expect_errno(range, libc::ENOSYS, "fcntl(2) with noflock")?;
    drop(file);
    stop(cluster)
}

/// Takes a lock twice.
type Lock = fn(&Path, &Path, &str) -> io::Result<()>;

fn user_xattrs(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let without = cluster.mount_with("without", "nouser_xattr")?;
    let (file, same) = (cluster.mount.join("file"), without.join("file"));
    write(&file, b"x")?;
    sys::set_xattr(&file, "user.color", b"red", 0)?;
    sys::set_xattr(&file, "trusted.color", b"blue", 0)?;
    expect_errno(sys::get_xattr(&same, "user.color"), libc::EOPNOTSUPP, "read with nouser_xattr")?;
    expect_errno(sys::set_xattr(&same, "user.color", b"green", 0), libc::EOPNOTSUPP, "write")?;
    expect_errno(sys::remove_xattr(&same, "user.color"), libc::EOPNOTSUPP, "remove")?;
    expect_eq(sys::list_xattrs(&same)?, vec!["trusted.color".to_owned()], "names with nouser_xattr")?;
    expect_bytes(&sys::get_xattr(&same, "trusted.color")?, b"blue", "another name space")?;
    expect_bytes(&sys::get_xattr(&file, "user.color")?, b"red", "on the mount with user_xattr")?;
    let has_labels = Path::new("/sys/fs/selinux").exists();
    let none = if has_labels { libc::ENODATA } else { libc::EOPNOTSUPP };
    expect_errno(sys::get_xattr(&file, "security.selinux"), none, "a label that is not there")?;
    stop(cluster)
}

/// With an OST stopped or down, statfs(2) of a lazy mount answers what was known, and that of another one waits for the OST, until a signal
/// ends that.
fn lazystatfs(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let lazy = cluster.mount_with("lazy", "lazystatfs")?;
    let eager = cluster.mount_with("eager", "nolazystatfs")?;
    let before = sys::space(&lazy)?.total_bytes;
    expect_eq(sys::space(&eager)?.total_bytes, before, "total space on both mounts")?;
    expect(before > 0, "there is space")?;
    let targets = cluster.targets()?;
    let (_, ost) = targets.iter().find(|(name, _)| name.contains("OST")).context("an OST")?;
    sys::kill(*ost, libc::SIGSTOP)?;
    let stopped = while_stopped(&lazy, &eager, before);
    sys::kill(*ost, libc::SIGCONT)?;
    stopped?;
    sys::kill(*ost, libc::SIGKILL)?;
    let is_answered = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let waiting = scope.spawn(|| {
            let space = sys::space(&eager);
            is_answered.store(true, Ordering::Release);
            space
        });
        expect_eq(sys::space(&lazy)?.total_bytes, before, "total space with lazystatfs, an OST down")?;
        let shown = cluster.sheen(&["lctl", "get_param", "llite.*.lazystatfs"])?;
        let of_value = |value: &str| shown.lines().filter(|line| line.ends_with(value)).count();
        expect_eq(of_value("=1"), 2, &format!("mounts with lazystatfs:\n{shown}"))?;
        expect_eq(of_value("=0"), 1, &format!("mounts without:\n{shown}"))?;
        expect(!is_answered.load(Ordering::Acquire), "nolazystatfs waits for the OST")?;
        cluster.up()?;
        let space = waiting.join().map_err(|_| anyhow::anyhow!("the waiting thread panicked"))?;
        expect_eq(space?.total_bytes, before, "total space with nolazystatfs, the OST back")
    })?;
    let set = cluster.sheen(&["lctl", "set_param", "llite.*.lazystatfs=0"])?;
    expect_eq(set.lines().count(), 3, &format!("set_param says what it set:\n{set}"))?;
    let listed = cluster.sheen(&["mounts"])?;
    expect_eq(listed.matches("nolazystatfs").count(), 3, &format!("`sheen mounts` afterwards:\n{listed}"))?;
    cluster.down().map(drop)
}

/// Its connection lives, and it says nothing.
fn while_stopped(lazy: &Path, eager: &Path, before: u64) -> Result<()> {
    let mut waiting = Command::new("stat").arg("-f").arg(eager).stdout(Stdio::null()).spawn()?;
    // The second one is answered at once, since the first is not yet.
    let answered = [sys::space(lazy), sys::space(lazy)];
    let is_waiting = waiting.try_wait();
    let killed = sys::kill(i32::try_from(waiting.id())?, libc::SIGTERM);
    let status = waiting.wait()?;
    killed?;
    for space in answered {
        expect_eq(space?.total_bytes, before, "total space with lazystatfs, an OST stopped")?;
    }
    expect_eq(is_waiting?, None, "nolazystatfs waits for the OST")?;
    expect_eq(status.signal(), Some(libc::SIGTERM), "a signal ends the wait")
}

/// The words in parentheses that `sheen mounts` shows of a mount.
fn shown(cluster: &Cluster, point: &Path) -> Result<Vec<String>> {
    let listed = cluster.sheen(&["mounts"])?;
    let name = format!(" on {} type ", point.display());
    let line = listed.lines().find(|line| line.contains(&name));
    let line = line.with_context(|| format!("`sheen mounts` names {}:\n{listed}", point.display()))?;
    let words = line.split_once('(').and_then(|(_, rest)| rest.split_once(')')).context("the options")?.0;
    Ok(words.split(',').map(str::to_owned).collect())
}

fn expect_shown(cluster: &Cluster, point: &Path, words: &[&str]) -> Result<()> {
    let shown = shown(cluster, point)?;
    let missing: Vec<_> = words.iter().filter(|word| !shown.iter().any(|known| known == *word)).collect();
    expect(missing.is_empty(), &format!("`sheen mounts` shows {missing:?} among {shown:?}"))
}

fn options_are_shown(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    expect_shown(&cluster, &cluster.mount, &["rw", "relatime", "flock", "lazystatfs", "user_xattr"])?;
    fs::create_dir(cluster.mount.join("sub"))?;
    write(&cluster.mount.join("sub/file"), b"in the subdirectory")?;
    let options = "_netdev,ro,noatime,nosuid,localflock,nolazystatfs,nouser_xattr,retry=1";
    let other = cluster.mount_with("other", options)?;
    let expected = ["ro", "noatime", "nosuid", "localflock", "nolazystatfs", "nouser_xattr"];
    expect_shown(&cluster, &other, &expected)?;
    expect_errno(fs::write(other.join("file"), b""), libc::EROFS, "a write with ro")?;
    let point = cluster.point("sub")?;
    let source = format!("{}/sub", cluster.source()?);
    // A process that goes to the background has its log where the command was given.
    let here = point.parent().context("where mount points are")?;
    let mut command = cluster.command();
    command.args(["mount", &source, &point.to_string_lossy(), "-o", "strictatime", "--log", "logs/sub.log"]);
    let said = cluster.say(command.current_dir(here))?;
    expect(said.is_success(), &format!("a mount with a log of its own: {}", said.all()))?;
    let log =
        fs::read_to_string(here.join("logs/sub.log")).context("the log is where the command was given")?;
    expect(log.contains(" mounted "), &format!("the process of the mount logs there: {log}"))?;
    expect_bytes(&read(&point.join("file"))?, b"in the subdirectory", "through a mount of a directory")?;
    let listed = cluster.sheen(&["mounts"])?;
    let is_told = |line: &str| line.starts_with(&format!("{source} on ")) && smoke::ends_with_pid(line);
    expect(listed.lines().any(is_told), &format!("`sheen mounts` names the directory: {listed}"))?;
    let in_table = |point: &Path, word: &str| -> Result<bool> {
        let table = crate::sweep::table("/proc/self/mounts");
        let line = table.lines().find(|line| line.contains(&format!(" {} ", point.display())));
        Ok(line.context("a line of /proc/self/mounts")?.split([' ', ',']).any(|known| known == word))
    };
    expect(in_table(&other, "noatime")?, "the kernel shows noatime")?;
    expect(!in_table(&point, "relatime")?, "the kernel shows no relatime with strictatime")?;
    stop(cluster)
}

/// What of reading is seen through another mount, by option, and after a remount.
fn access_times(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let atime = |point: &Path| -> Result<(i64, i64)> {
        let meta = fs::metadata(point.join("file"))?;
        Ok((meta.atime(), meta.atime_nsec()))
    };
    let seen = || atime(&cluster.mount);
    // The close and what goes with it come later, and only then can a second read come after them.
    let rises = |point: &Path, what: &str| -> Result<()> {
        let before = seen()?;
        read(&point.join("file"))?;
        wait_until(LIMIT, what, || Ok(seen()? > before && atime(point)? == seen()?))
    };
    // A close is told within a second: by then it would have been seen.
    let stays = |point: &Path, what: &str| -> Result<()> {
        let before = seen()?;
        read(&point.join("file"))?;
        std::thread::sleep(Duration::from_secs(2));
        expect_eq(seen()?, before, what)
    };
    write(&cluster.mount.join("file"), b"read me")?;
    let strict = cluster.mount_with("strict", "strictatime")?;
    let (none, only) = (cluster.mount_with("none", "noatime")?, cluster.mount_with("only", "ro")?);
    stays(&none, "with noatime")?;
    stays(&only, "with ro")?;
    rises(&strict, "the first read with strictatime")?;
    rises(&strict, "the second read with strictatime")?;
    stays(&cluster.mount, "a second read with relatime")?;
    write(&cluster.mount.join("file"), b"changed")?;
    rises(&cluster.mount, "a read after a change with relatime")?;
    let said = cluster.say(Command::new("mount").args(["-o", "remount,noatime"]).arg(&strict))?;
    expect(said.is_success(), &format!("remount,noatime: {}", said.all()))?;
    stays(&strict, "after remount,noatime")?;
    let shown = cluster.sheen(&["lctl", "get_param", "llite.*.access_times"])?;
    let count = |value: &str| shown.lines().filter(|line| line.ends_with(value)).count();
    expect_eq((count("=noatime"), count("=relatime")), (3, 1), &format!("mounts by rule:\n{shown}"))?;
    stop(cluster)
}

/// A mount that must fail with one line that holds the word, and without having mounted anything.
fn refused(cluster: &Cluster, point: &Path, options: &str, word: &str) -> Result<()> {
    let (source, path) = (cluster.source()?, point.to_string_lossy().into_owned());
    let said = cluster.try_sheen(&["mount", &source, &path, "-o", options], COMMAND_LIMIT)?;
    println!("$ mount -o {options}: {}", said.errors.trim_end());
    expect(!said.is_success(), &format!("-o {options} is refused"))?;
    expect_eq(said.errors.lines().count(), 1, &format!("lines of {}", said.errors))?;
    expect(said.errors.contains(word), &format!("'{}' names {word}", said.errors.trim_end()))?;
    expect(sweep::mounts_under(point).is_empty(), "nothing is mounted")
}

fn unknown_options(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let point = cluster.point("refused")?;
    refused(&cluster, &point, "ro,lazystatf", "'lazystatfs'")?;
    refused(&cluster, &point, "noflok", "'noflock'")?;
    refused(&cluster, &point, "user_xatr", "'user_xattr'")?;
    refused(&cluster, &point, "completely-wrong", "completely-wrong")?;
    refused(&cluster, &point, "retry=soon", "retry=")?;
    refused(&cluster, &point, "noatime,strictatime", "exclude each other")?;
    refused(&cluster, &point, "flock,localflock", "exclude each other")?;
    refused(&cluster, &point, "strictatime,atime", "exclude each other")?;
    refused(&cluster, &point, "transport=foo", "'transport=auto', 'transport=dev' or 'transport=uring'")?;
    refused(&cluster, &point, "NOATIME", "'noatime'")?;
    stop(cluster)
}

/// `mount -t sheen`, as fstab and an operator call it.
fn mount_helper(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let (point, source) = (cluster.point("fstab")?, cluster.source()?);
    let options = format!("noflock,_netdev,noatime,transport={}", context.options.transport.word());
    let said =
        cluster.say(Command::new("mount").args(["-t", "sheen", "-o", &options, &source]).arg(&point))?;
    expect(said.is_success(), &format!("mount -t sheen: {}", said.all()))?;
    expect_shown(&cluster, &point, &["noatime", "noflock"])?;
    write(&point.join("file"), b"through the helper")?;
    expect_bytes(&read(&cluster.mount.join("file"))?, b"through the helper", "through the first mount")?;
    let wrong = cluster.say(
        Command::new("mount").args(["-t", "sheen", "-o", "nofloc", &source]).arg(cluster.point("no")?),
    )?;
    expect(!wrong.is_success() && wrong.errors.contains("noflock"), &format!("said: {}", wrong.errors))?;
    cluster.unmount(&point)?;
    expect(sweep::mounts_under(&point).is_empty(), "umount(8) has unmounted")?;
    stop(cluster)
}

/// A mount that begins before its servers: at once one line, or with `retry` one for each attempt, until they are there or it gives up.
fn before_servers(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    write(&cluster.mount.join("file"), b"before")?;
    let (point, source) = (cluster.point("early")?, cluster.source()?);
    cluster.down()?;
    let path = point.to_string_lossy().into_owned();
    let options = |retry: &str| format!("{retry},transport={}", context.options.transport.word());
    for (retry, line_count) in [("retry=0", 1), ("retry=1", 2)] {
        let said = cluster.try_sheen(&["mount", &source, &path, "-o", &options(retry)], COMMAND_LIMIT)?;
        expect_eq(said.end.status_code(), Some(1), &said.all())?;
        expect_eq(said.errors.lines().count(), line_count, &format!("{retry}: {}", said.errors))?;
        expect(said.errors.contains("does not answer"), &format!("why: {}", said.errors))?;
        expect(sweep::mounts_under(&point).is_empty(), "nothing is mounted")?;
    }
    let mut command = cluster.command();
    command.args(["mount", &source, &path, "-o", &options("retry=30")]).stderr(std::process::Stdio::piped());
    let mut early = command.spawn()?;
    let mut said = io::BufReader::new(early.stderr.take().context("its words")?);
    let mut line = String::new();
    io::BufRead::read_line(&mut said, &mut line)?;
    expect(line.contains("trying again (1 of 30)"), &line)?;
    end_wait(&cluster, &mut early, &point)
}

/// Its servers start: a mount that waits for them is there, with the file of before.
fn end_wait(cluster: &Cluster, early: &mut Child, point: &Path) -> Result<()> {
    cluster.up()?;
    let status = early.wait()?;
    expect(status.success(), &format!("the mount that waited: {status}"))?;
    expect_bytes(&read(&point.join("file"))?, b"before", "through the mount that waited")?;
    cluster.unmount(point)?;
    cluster.down().map(drop)
}

/// The management server is there, and the MDT is not: nothing is mounted, also below the root, until it is.
fn before_mdt(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let shape = Shape { mdt_count: 1, ost_count: 1, is_split: true };
    let cluster = Cluster::new(&context.options, &context.work, shape)?;
    cluster.up()?;
    fs::create_dir(cluster.mount.join("dir"))?;
    write(&cluster.mount.join("dir/file"), b"before")?;
    cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
    let (point, source) = (cluster.point("early")?, cluster.source()?);
    let path = point.to_string_lossy().into_owned();
    let transport = format!("transport={}", context.options.transport.word());
    let mdt = cluster.targets()?.into_iter().find(|(name, _)| name == "MDT0000");
    let (_, pid) = mdt.context("an MDT")?;
    sys::kill(pid, libc::SIGKILL)?;
    for source in [source.clone(), format!("{source}/dir")] {
        expect_given_up(&cluster, &source, &point, &transport, &["MDT0000 at 127.0.0.1", "does not answer"])?;
    }
    let mut command = cluster.command();
    let below = format!("{source}/dir");
    command.args(["mount", &below, &path, "-o", &format!("{transport},retry=30")]);
    let mut early = command.stderr(std::process::Stdio::null()).spawn()?;
    end_wait(&cluster, &mut early, &point)
}

/// An attempt without an MDT that it needs ends with one line, which has these words, and mounts nothing.
fn expect_given_up(
    cluster: &Cluster,
    source: &str,
    point: &Path,
    options: &str,
    words: &[&str],
) -> Result<()> {
    let began = Instant::now();
    let arguments = ["mount", source, &point.to_string_lossy(), "-o", options];
    let has_ended = AtomicBool::new(false);
    let (said, seen) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut seen = sweep::mounts_under(point);
            while !has_ended.load(Ordering::Acquire) && seen.is_empty() {
                std::thread::sleep(LOOK_INTERVAL);
                seen = sweep::mounts_under(point);
            }
            seen
        });
        let said = cluster.try_sheen(&arguments, COMMAND_LIMIT);
        has_ended.store(true, Ordering::Release);
        (said, looks.join().unwrap_or_default())
    });
    let said = said?;
    expect(seen.is_empty(), "nothing is mounted meanwhile")?;
    note(&format!("without its MDT {source} is given up after {} s", began.elapsed().as_secs()));
    expect_eq(said.end.status_code(), Some(1), &said.all())?;
    expect_eq(said.errors.lines().count(), 1, &said.errors)?;
    expect(words.iter().all(|word| said.errors.contains(word)), &said.errors)?;
    expect(sweep::mounts_under(point).is_empty(), "nothing is mounted")
}

/// The MDT on the way to the directory that is mounted is away, and that of the root is not.
fn before_mdt_of_directory(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let shape = Shape { mdt_count: 2, ost_count: 1, is_split: true };
    let cluster = Cluster::new(&context.options, &context.work, shape)?;
    cluster.up()?;
    cluster.sheen(&["lfs", "mkdir", "-i", "1", &cluster.mount.join("far").to_string_lossy()])?;
    fs::create_dir_all(cluster.mount.join("far/one/two"))?;
    write(&cluster.mount.join("far/one/two/file"), b"before")?;
    cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
    let (point, source) = (cluster.point("early")?, format!("{}/far/one/two", cluster.source()?));
    let path = point.to_string_lossy().into_owned();
    let transport = format!("transport={}", context.options.transport.word());
    let mdt = cluster.targets()?.into_iter().find(|(name, _)| name == "MDT0001");
    let (_, pid) = mdt.context("a second MDT")?;
    sys::kill(pid, libc::SIGKILL)?;
    let words = ["MDT0001 at 127.0.0.1", "'far' of 'far/one/two'"];
    expect_given_up(&cluster, &source, &point, &transport, &words)?;
    let mut command = cluster.command();
    command.args(["mount", &source, &path, "-o", &format!("{transport},retry=30")]);
    let mut early = command.stderr(std::process::Stdio::null()).spawn()?;
    end_wait(&cluster, &mut early, &point)
}

fn remount(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let point = cluster.mount_with("again", "noatime")?;
    write(&point.join("file"), b"before")?;
    let remount = |options: &str| cluster.say(Command::new("mount").args(["-o", options]).arg(&point));
    let said = remount("remount,ro")?;
    expect(said.is_success(), &format!("remount,ro: {}", said.all()))?;
    expect_errno(fs::write(point.join("file"), b"x"), libc::EROFS, "a write after remount,ro")?;
    expect_shown(&cluster, &point, &["ro"])?;
    write(&cluster.mount.join("file"), b"through the other")?;
    expect_bytes(&read(&point.join("file"))?, b"through the other", "still coherent")?;
    let said = remount("remount,rw")?;
    expect(said.is_success(), &format!("remount,rw: {}", said.all()))?;
    write(&point.join("file"), b"after")?;
    let said = remount("remount,noflock")?;
    expect(!said.is_success() && said.errors.contains("noflock"), &format!("said: {}", said.all()))?;
    let said = remount("remount,flock")?;
    expect(said.is_success(), &format!("the option in force may be said again: {}", said.all()))?;
    // With a line of fstab mount(8) says all of it, also what a parameter has changed since.
    cluster.sheen(&["lctl", "set_param", "llite.*.lazystatfs=0"])?;
    let said = remount("remount,flock,lazystatfs,user_xattr,names=cached")?;
    expect(said.is_success(), &format!("so may those from the mount's start: {}", said.all()))?;
    expect_shown(&cluster, &point, &["nolazystatfs", "names=cached"])?;
    let said = remount("remount,names=uncached")?;
    expect(!said.is_success() && said.errors.contains("names=uncached"), &format!("said: {}", said.all()))?;
    let said = remount("remount,dirsync")?;
    expect(!said.is_success() && said.errors.contains("dirsync"), &format!("said: {}", said.all()))?;
    stop(cluster)
}

/// Which changes have the MDT sync before they are answered, from the start of a mount on and after a remount.
fn synchronous(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let sync_count = || -> Result<u64> {
        let shown = cluster.sheen(&["lctl", "get_param", "-n", "mdc.*.stats"])?;
        let counts =
            shown.lines().filter_map(|line| line.strip_prefix("mds_sync")?.split_whitespace().next());
        Ok(counts.map(str::parse::<u64>).collect::<Result<Vec<_>, _>>()?.iter().sum())
    };
    let syncs = |change: &dyn Fn() -> io::Result<()>| -> Result<bool> {
        let before = sync_count()?;
        change()?;
        Ok(sync_count()? > before)
    };
    let point = cluster.mount_with("names", "dirsync")?;
    expect_shown(&cluster, &point, &["dirsync"])?;
    let (dir, same) = (point.join("dir"), cluster.mount.join("dir"));
    expect(syncs(&|| fs::create_dir(&dir))?, "mkdir(2) with dirsync")?;
    let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    expect(!syncs(&|| chmod(&dir, 0o700))?, "chmod(2) with dirsync")?;
    expect(!syncs(&|| fs::create_dir(same.join("sub")))?, "mkdir(2) without")?;
    let said = cluster.say(Command::new("mount").args(["-o", "remount,sync"]).arg(&point))?;
    expect(said.is_success(), &format!("remount,sync: {}", said.all()))?;
    expect_shown(&cluster, &point, &["sync"])?;
    expect(syncs(&|| chmod(&dir, 0o755))?, "chmod(2) with sync")?;
    stop(cluster)
}

/// umount(8) returns when everything is on the disk: the power goes in the next moment, and nothing is missing.
fn umount_makes_durable(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let disk = LoopDisk::new(&context.work, 1024)?;
    let home = disk.path("home");
    fs::create_dir_all(&home)?;
    let cluster = Cluster::new(&context.options, &home, Shape::SMALL)?;
    cluster.up()?;
    let second = cluster.mount_again("second")?;
    let leaves = forest::every_size(context.seed);
    forest::plant(&second.join("dir"), &leaves)?;
    cluster.unmount(&second)?;
    let cut = disk.cut_power();
    cluster.release();
    cut?;
    disk.unmount()?;
    disk.mount()?;
    cluster.up()?;
    forest::check(&cluster.mount.join("dir"), &leaves)?;
    cluster.down().map(drop)
}

/// Ten seconds are promised, and this is what a busy machine may take besides. Before there was a promise it was forty seconds.
const DEAD_UMOUNT_LIMIT: Duration = Duration::from_secs(30);

/// umount(8), with and without `-c`, and `sheen umount` while servers are dead or stand still. Nothing is missing there: it is done. Something is: it is refused,
/// as long as nobody gives that up, and whoever does hears what is lost. The end of the process is bounded as well.
fn umount_with_dead_servers(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let mounts = ["clean", "still", "plain", "dirty", "lazy", "ended"].map(|name| cluster.mount_again(name));
    let [clean, still, plain, dirty, lazy, ended] = mounts;
    let (clean, still, plain, dirty, lazy, ended) = (clean?, still?, plain?, dirty?, lazy?, ended?);
    for mount in [&clean, &still, &plain, &dirty, &lazy, &ended] {
        write(&mount.join(mount.file_name().context("a name")?), b"synced")?;
        cluster.sheen(&["sync", &mount.to_string_lossy()])?;
    }
    wait_until(LIMIT, "the mounts know that everything is durable", || {
        let imports = cluster.sheen(&["lctl", "get_param", "*.*.import"])?;
        Ok(imports.lines().filter(|line| line.contains("kept_for_replay:")).all(|line| line.ends_with(" 0")))
    })?;
    let targets = cluster.targets()?;
    let pid_of = |name: &str| {
        let found = targets.iter().find(|(known, _)| known.contains(name)).map(|(_, pid)| *pid);
        found.with_context(|| format!("{name} runs"))
    };
    let (ost, mdt) = (pid_of("OST")?, pid_of("MDT")?);
    let ended_pid = cluster.mounts()?.iter().find(|(path, _)| Path::new(path) == ended).map(|(_, pid)| *pid);
    let ended_pid = ended_pid.context("the mount that is to be ended")?;
    // Said, and not judged: a busy machine takes longer.
    let took = |what: &str, begun: Instant| note(&format!("{what}: {} ms", begun.elapsed().as_millis()));
    // No mount may believe any more what it knows of the root: umount(8) without -c asks for that.
    fs::set_permissions(&cluster.mount, fs::Permissions::from_mode(0o750))?;

    // They stand still: their connections live, and nobody is told.
    sys::kill(ost, libc::SIGSTOP)?;
    sys::kill(mdt, libc::SIGSTOP)?;
    let begun = Instant::now();
    let said = cluster.say_within(Command::new("umount").arg("-c").arg(&still), DEAD_UMOUNT_LIMIT);
    took("umount -c, servers stopped", begun);
    sys::kill(mdt, libc::SIGCONT)?;
    let said = said?;
    expect(said.is_success(), &format!("umount, servers stopped: {} {}", said.end.describe(), said.all()))?;
    expect(sweep::mounts_under(&still).is_empty(), "umount has unmounted")?;

    // It goes on, and both die when they have just been written to: nobody knows yet whether that is on their disks.
    sys::kill(ost, libc::SIGCONT)?;
    for mount in [&dirty, &lazy, &ended] {
        write(&mount.join("late"), &[7; 10_000])?;
    }
    for pid in [ost, mdt] {
        sys::kill(pid, libc::SIGKILL)?;
    }
    let begun = Instant::now();
    let said = cluster.say_within(Command::new("umount").arg(&plain), DEAD_UMOUNT_LIMIT)?;
    took("umount, all dead", begun);
    expect(said.is_success(), &format!("plain umount, all dead: {} {}", said.end.describe(), said.all()))?;
    expect(sweep::mounts_under(&plain).is_empty(), "umount has unmounted")?;
    let umount = |arguments: &[&str], mount: &Path| {
        let mount = mount.to_string_lossy();
        let arguments = [&["umount"], arguments, &[&*mount]].concat();
        let begun = Instant::now();
        let said = cluster.try_sheen(&arguments, DEAD_UMOUNT_LIMIT);
        took(&format!("sheen {}, all dead", arguments.join(" ")), begun);
        said
    };
    let said = umount(&[], &clean)?;
    expect(said.is_success(), &format!("umount, all dead: {} {}", said.end.describe(), said.all()))?;
    expect(said.errors.contains("nothing of"), &said.all())?;

    let said = umount(&[], &dirty)?;
    expect_eq(said.end.status_code(), Some(1), &said.all())?;
    expect(said.errors.contains("stays mounted") && said.errors.contains("change"), &said.all())?;
    expect_eq(sweep::mounts_under(&dirty).len(), 1, "mounts after a refusal")?;
    let said = umount(&["--force"], &dirty)?;
    expect_eq(said.end.status_code(), Some(1), &said.all())?;
    expect(said.errors.contains("is lost: ") && said.errors.contains("change"), &said.all())?;
    expect(sweep::mounts_under(&dirty).is_empty(), "it is unmounted")?;
    let said = umount(&["--lazy"], &lazy)?;
    expect_eq(said.end.status_code(), Some(1), &said.all())?;
    expect(said.errors.contains("is lost: ") && sweep::mounts_under(&lazy).is_empty(), &said.all())?;

    // What a machine that shuts down does to whoever is left.
    sys::kill(ended_pid, libc::SIGTERM)?;
    let begun = Instant::now();
    bounded_end(ended_pid, DEAD_UMOUNT_LIMIT)?;
    took("the end of a process, all dead", begun);
    expect(sweep::mounts_under(&ended).is_empty(), "the mount of a process that was ended")?;
    let logs = logs_below(&cluster.run_dir())?;
    expect(logs.matches("lost at the end of the mount").count() >= 3, &format!("the logs say so:\n{logs}"))?;

    // The other one waits for its servers and has lost nothing.
    cluster.up()?;
    for name in ["clean", "still", "plain", "dirty", "lazy", "ended"] {
        expect_bytes(&read(&cluster.mount.join(name))?, b"synced", name)?;
    }
    cluster.down().map(drop)
}

/// A machine that mounts and unmounts again and again is not to fill its memory with logs.
fn leaves_no_log(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let logs = || names(&cluster.run_dir().join("log"));
    let mount = cluster.mount_again("quiet")?;
    expect_eq(logs()?.len(), 1, "logs while it is mounted")?;
    cluster.unmount(&mount)?;
    wait_until(LIMIT, "its log is gone", || Ok(logs()?.is_empty()))?;
    stop(cluster)
}

fn bounded_end(pid: i32, limit: Duration) -> Result<()> {
    wait_until(limit, "the process has ended", || Ok(sweep::has_ended(pid)))
}

/// The process that mounts is in the foreground of a terminal for a while: Ctrl-Z leaves no mount that hangs, Ctrl-\ none that is dead.
fn keys_of_terminal(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let point = cluster.mount_again("keys")?;
    let mounts = cluster.mounts()?;
    let pid = mounts.iter().find(|(path, _)| Path::new(path) == point).map(|(_, pid)| *pid);
    let pid = pid.context("the process of the mount")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.context("what it ignores")?.trim(), 16)?;
    // Asked for, not sent: a process that has left its terminal is not stopped by it.
    expect(ignored & 1 << (libc::SIGTSTP - 1) != 0, "a stop by the terminal is ignored")?;
    sys::kill(pid, libc::SIGQUIT)?;
    bounded_end(pid, LIMIT)?;
    expect(sweep::mounts_under(&point).is_empty(), "it ends as by Ctrl-C: unmounted")?;
    stop(cluster)
}

/// The process of a mount lives for long, and lets nothing live with it that the one who has mounted had open.
fn descriptors_of_the_caller(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let (point, locked) = (cluster.point("inherits")?, cluster.point("files")?.join("locked"));
    let sheen = cluster.command().get_program().to_string_lossy().into_owned();
    let options = format!("transport={}", context.options.transport.word());
    let script = format!(
        "exec 9>'{}'; flock -n 9 && exec '{sheen}' mount '{}' '{}' -o {options}",
        locked.display(),
        cluster.source()?,
        point.display()
    );
    let said = cluster.say(Command::new("sh").args(["-c", &script]))?;
    expect(said.is_success(), &said.all())?;
    expect(sweep::mounts_under(&point).len() == 1, "it is mounted")?;
    let again = fs::File::open(&locked)?;
    sys::flock(&again, libc::LOCK_EX | libc::LOCK_NB).context("the lock of a caller that has ended")?;
    cluster.unmount(&point)?;
    stop(cluster)
}

/// Of mounts that were made by hand.
fn logs_below(run_dir: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(run_dir.join("log"))? {
        text += &String::from_utf8_lossy(&fs::read(entry?.path())?);
    }
    Ok(text)
}

/// kill -9 of everything, mounts made by hand too: nobody waits for them afterwards, whether they come back or not.
fn clients_that_died(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let (back, gone) = (cluster.mount_again("back")?, cluster.mount_again("gone")?);
    for mount in [&cluster.mount, &back, &gone] {
        write(&mount.join(mount.file_name().context("a name")?), b"synced")?;
        cluster.sheen(&["sync", &mount.to_string_lossy()])?;
    }
    let held = fs::File::create(gone.join("held"))?;
    sys::flock(&held, libc::LOCK_EX)?;
    let pids = cluster.targets()?.into_iter().chain(cluster.mounts()?);
    for (name, pid) in pids {
        sys::kill(pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
    }
    drop(held);
    for mount in sweep::mounts_under(cluster.mount.parent().context("a parent")?) {
        mount.abort();
    }
    cluster.up()?;
    // An OST waits for its MDT too, which lives.
    wait_until(LIMIT, "recovery has ended everywhere", || {
        let statuses = cluster.sheen(&["lctl", "get_param", "*.*.recovery_status"])?;
        Ok(!statuses.lines().any(|line| line.trim() == "status: RECOVERING"))
    })?;
    let logs = logs_of(&cluster)?;
    let ended = logs.matches("its process has ended").count();
    // One MDT and one OST knew three clients each; that of `up` may have connected anew before it was found to be gone.
    expect(ended >= 4, &format!("servers were told {ended} times that a client has died"))?;
    expect(!logs.contains("why=Recovery"), "nobody was given up after a wait")?;
    sweep::detach(&back);
    let again = cluster.mount_again("back")?;
    expect_eq(names(&again)?, ["back", "gone", "held", "mnt"].map(str::to_owned).to_vec(), "names")?;
    let held = fs::File::open(again.join("held"))?;
    sys::flock(&held, libc::LOCK_EX | libc::LOCK_NB).context("the lock of the dead mount is free")?;
    drop(held);
    sweep::detach(&gone);
    cluster.down().map(drop)
}

/// Everything that the processes of a cluster have logged.
fn logs_of(cluster: &Cluster) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(cluster.data.join("log"))? {
        text.push_str(&String::from_utf8_lossy(&fs::read(entry?.path())?));
    }
    Ok(text)
}

/// `sheen serve ARGUMENTS…` in the background; it ends with the cluster at the latest.
fn serve(cluster: &Cluster, arguments: &[&str], log: &Path) -> Result<Child> {
    let log = fs::File::options().create(true).append(true).open(log)?;
    let mut command = cluster.command();
    command.arg("serve").args(arguments).stdout(log.try_clone()?).stderr(log);
    Ok(command.spawn()?)
}

fn free_port(host: &str) -> Result<String> {
    Ok(TcpListener::bind((host, 0))?.local_addr()?.to_string())
}

/// Servers with several NIDs, of which some are dead; a target that comes up on another node and keeps the NIDs of the first.
fn several_addresses(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, Shape::SMALL)?;
    let path = |name: &str| context.work.join(name).to_string_lossy().into_owned();
    let log = context.work.join("serve.log");
    let (dead, mgs, mgs2) = (free_port("127.0.0.9")?, free_port("127.0.0.1")?, free_port("127.0.0.2")?);
    let mgsnode = format!("{dead}@tcp,{mgs}@tcp:{mgs2}@tcp");
    cluster.sheen(&["mkfs", "--mgs", &path("mgs")])?;
    for kind in ["mdt", "ost"] {
        let (option, dir) = (format!("--{kind}"), path(kind));
        let rest = ["--index", "0", "--fsname", "nids", "--mgsnode", &mgsnode, &dir];
        cluster.sheen(&[&["mkfs", &option], &rest[..]].concat())?;
    }
    let _mgs = serve(&cluster, &["--listen", &format!("{mgs},{mgs2}"), &path("mgs")], &log)?;
    let (first, second) = (free_port("127.0.0.1")?, free_port("127.0.0.2")?);
    let targets = [path("mdt"), path("ost")];
    let on = |listen: &str| serve(&cluster, &["--listen", listen, &targets[0], &targets[1]], &log);
    let mut server = on(&format!("{first},{second}"))?;
    let point = cluster.mount.to_string_lossy().into_owned();
    let source = format!("{dead}@tcp,{mgs2}@tcp:/nids");
    let options = format!("retry=6,transport={}", context.options.transport.word());
    cluster.sheen(&["mount", &source, &point, "-o", &options])?;
    write(&cluster.mount.join("file"), b"before")?;
    let nids = || cluster.sheen(&["lctl", "get_param", "-n", "mgs.MGS.live.nids"]);
    knows_mount(&cluster, &point)?;
    let live = nids()?;
    expect(live.contains(&first) && live.contains(&second), &format!("{first} and {second} in\n{live}"))?;
    sys::kill(i32::try_from(server.id())?, libc::SIGKILL)?;
    server.wait()?;
    let other = free_port("127.0.0.3")?;
    let _server = on(&other)?;
    expect_bytes(&read(&cluster.mount.join("file"))?, b"before", "from the other node")?;
    write(&cluster.mount.join("file"), b"after")?;
    let live = nids()?;
    let is_listed = [&other, &first, &second].into_iter().all(|nid| live.contains(nid));
    expect(is_listed, &format!("the NIDs of both nodes, {other} {first} {second}, in\n{live}"))?;
    cluster.unmount(&cluster.mount)?;
    let open = cluster.try_sheen(&["serve", "--listen", "127.0.0.1,0.0.0.0", &path("mgs")], COMMAND_LIMIT)?;
    expect(
        !open.is_success() && open.errors.contains("--insecure-network"),
        &format!("said: {}", open.errors),
    )
}

/// Where a process says nothing, its mount is known by its source in the kernel's table, in which there is no comma.
fn knows_mount(cluster: &Cluster, point: &str) -> Result<()> {
    let shown = cluster.sheen(&["mounts"])?;
    let pid =
        shown.lines().find(|line| line.contains(&format!(" on {point} "))).context("the mount is shown")?;
    let pid: i32 = pid.rsplit(' ').next().context("its process")?.parse()?;
    sys::kill(pid, libc::SIGSTOP)?;
    let (status, listed) = (cluster.sheen(&["status"]), cluster.sheen(&["mounts"]));
    sys::kill(pid, libc::SIGCONT)?;
    let (status, listed) = (status?, listed?);
    expect(status.contains(&format!("process {pid} ({point}) does not answer")), &status)?;
    let is_listed =
        |line: &str| line.contains(&format!(" on {point} ")) && line.contains(&format!("pid {pid},"));
    expect(listed.lines().any(is_listed), &format!("`sheen mounts` names it too:\n{listed}"))
}

fn names_of(path: &Path) -> io::Result<usize> {
    Ok(fs::read_dir(path)?.count())
}
