//! A mount of another machine dies with an MDT, or an OST, and another one goes on before it is known that the first is gone.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};

use super::{SHAPE, kill_and_restart, recovered, recovered_at, start_in};
use crate::case::{Context, expect, expect_bytes, expect_eq, names, note};
use crate::cluster::Cluster;
use crate::load::Stop;
use crate::sys;

fn status(cluster: &Cluster) -> Result<String> {
    cluster.sheen(&["lctl", "get_param", "-n", "mdt.*MDT0000.recovery_status"])
}

/// What a line of it says.
fn number(status: &str, name: &str) -> Result<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let value = value.with_context(|| format!("no {name} in {status}"))?;
    value.parse().with_context(|| format!("{name} in {status}"))
}

/// Makes, renames and removes names until it is stopped. How many files are left.
fn go_on_in(dir: &Path, stop: &Stop) -> Result<usize> {
    let mut count = 0;
    while !stop.is_over() {
        let (made, kept) = (dir.join("made"), dir.join(format!("kept{count}")));
        fs::File::create_new(&made)?;
        fs::rename(&made, &kept)?;
        fs::create_dir(&made)?;
        fs::remove_dir(&made)?;
        count += 1;
    }
    Ok(count)
}

/// What a client that lives is served at least before the other one is given up.
const EARLY_COUNT_MIN: u64 = 5;
/// The server is back for three seconds then. On a busy machine a client may need most of them to come back itself.
const ATTEMPT_COUNT: usize = 4;

/// Runs it on new clusters until so many requests were served early; everything else must be right each time.
fn until_served(context: &Context, attempt: impl Fn(&Cluster) -> Result<u64>) -> Result<()> {
    let mut served = Vec::new();
    for number in 0..ATTEMPT_COUNT {
        let home = context.work.join(format!("attempt{number}"));
        fs::create_dir(&home)?;
        let cluster = start_in(context, &home, SHAPE)?;
        served.push(attempt(&cluster)?);
        cluster.down()?;
        note(&format!("requests served early: {served:?}"));
        if served.last() >= Some(&EARLY_COUNT_MIN) {
            return Ok(());
        }
    }
    bail!("who lives has waited: {served:?} requests were served early")
}

/// The one that lives is served in its own directory, and what concerns a file of the other waits until that one is given up.
pub fn served_early(context: &Context) -> Result<()> {
    until_served(context, |cluster| by_an_mdt(context, cluster))
}

fn by_an_mdt(context: &Context, cluster: &Cluster) -> Result<u64> {
    let (dying, pid) = cluster.mount_elsewhere("dying")?;
    let (living, _) = cluster.mount_elsewhere("living")?;
    // Whoever looks up a name of a small directory gets that whole, with locks of its subdirectories: the other knows `top`.
    let (ours, theirs) = (living.join("top/ours"), dying.join("theirs"));
    fs::create_dir_all(&ours)?;
    fs::create_dir(&theirs)?;
    let open = fs::File::create(theirs.join("open"))?;
    let wanted = living.join("theirs/open");
    expect(fs::metadata(&wanted)?.is_file(), "the living one knows it")?;
    // What the dying one knows of it is under its locks.
    fs::metadata(theirs.join("open"))?;
    let mut victims = cluster.targets()?;
    victims.retain(|(name, _)| name == "MDT0000");
    expect_eq(victims.len(), 1, "MDTs of that name")?;
    let stop = Stop::default();
    let (kept_count, given_up) = std::thread::scope(|scope| {
        let going_on = scope.spawn(|| go_on_in(&ours, &stop));
        let killed = sys::kill(pid, libc::SIGKILL).context("kill the mount");
        let changing = scope.spawn(|| {
            // The MDT is away by now, or dies with this.
            fs::set_permissions(&wanted, fs::Permissions::from_mode(0o600))?;
            number(&status(cluster)?, "evicted_clients")
        });
        let ended = killed.and_then(|()| {
            kill_and_restart(cluster, &victims, &mut context.random())?;
            recovered(cluster)
        });
        let given_up = changing.join().map_err(|_| anyhow!("a thread panicked"));
        stop.now();
        let kept_count = going_on.join().map_err(|_| anyhow!("a thread panicked"));
        ended?;
        Ok::<_, anyhow::Error>((kept_count??, given_up??))
    })?;
    let status = recovered(cluster)?;
    expect_eq(number(&status, "lossless")?, 1, &format!("nothing was lost: {status}"))?;
    expect_eq(number(&status, "evicted_clients")?, 1, &format!("who was given up: {status}"))?;
    expect_eq(given_up, 1, "who had been given up when its file was changed")?;
    expect_eq(names(&ours)?.len(), kept_count, "files in the directory of the one that lives")?;
    expect_eq(fs::metadata(&wanted)?.permissions().mode() & 0o777, 0o600, "what was changed late")?;
    // Its descriptor leads to nobody.
    drop(open);
    number(&status, "early_requests")
}

const OST_STATUS: &str = "obdfilter.*OST0000.recovery_status";

/// Writes and syncs files, an old one and new ones, until it is stopped. How many are left, and what the old one says.
fn write_in(dir: &Path, stop: &Stop) -> Result<(usize, Vec<u8>)> {
    let old = fs::OpenOptions::new().write(true).open(dir.join("old"))?;
    let (mut count, mut text) = (0, Vec::new());
    while !stop.is_over() {
        text = format!("{count:08}").into_bytes();
        old.write_all_at(&text, 0)?;
        old.sync_all()?;
        let mut new = fs::File::create_new(dir.join(format!("new{count}")))?;
        new.write_all(&text)?;
        new.sync_all()?;
        count += 1;
    }
    Ok((count, text))
}

/// The one that lives goes on with its own files on that OST, and reads what the other has written when that one is given up.
pub fn served_early_by_an_ost(context: &Context) -> Result<()> {
    until_served(context, |cluster| by_an_ost(context, cluster))
}

fn by_an_ost(context: &Context, cluster: &Cluster) -> Result<u64> {
    let (dying, pid) = cluster.mount_elsewhere("dying")?;
    let (living, _) = cluster.mount_elsewhere("living")?;
    let (ours, theirs) = (living.join("top/ours"), dying.join("theirs"));
    fs::create_dir_all(&ours)?;
    for dir in [&ours, &theirs] {
        if !dir.exists() {
            fs::create_dir(dir)?;
        }
        cluster.sheen(&["lfs", "setstripe", "-i", "0", &dir.to_string_lossy()])?;
    }
    fs::write(ours.join("old"), "00000000")?;
    let mut open = fs::File::create(theirs.join("open"))?;
    open.write_all(b"written")?;
    open.sync_all()?;
    // Its MDT has nothing more to be asked, and its lock of the bytes stays where it is.
    let wanted = fs::File::open(living.join("theirs/open"))?;
    open.write_all_at(b"WRITTEN", 0)?;
    open.sync_all()?;
    let mut victims = cluster.targets()?;
    victims.retain(|(name, _)| name == "OST0000");
    expect_eq(victims.len(), 1, "OSTs of that name")?;
    let stop = Stop::default();
    let ((count, text), (read, given_up)) = std::thread::scope(|scope| {
        let going_on = scope.spawn(|| write_in(&ours, &stop));
        let killed = sys::kill(pid, libc::SIGKILL).context("kill the mount");
        let reading = scope.spawn(|| {
            // The OST is away by now, or dies with this.
            let mut bytes = vec![0; 100];
            let count = wanted.read_at(&mut bytes, 0)?;
            bytes.truncate(count);
            let status = cluster.sheen(&["lctl", "get_param", "-n", OST_STATUS])?;
            Ok::<_, anyhow::Error>((bytes, number(&status, "evicted_clients")?))
        });
        let ended = killed.and_then(|()| {
            kill_and_restart(cluster, &victims, &mut context.random())?;
            recovered_at(cluster, OST_STATUS)
        });
        let read = reading.join().map_err(|_| anyhow!("a thread panicked"));
        stop.now();
        let written = going_on.join().map_err(|_| anyhow!("a thread panicked"));
        ended?;
        Ok::<_, anyhow::Error>((written??, read??))
    })?;
    let status = recovered_at(cluster, OST_STATUS)?;
    expect_eq(number(&status, "lossless")?, 1, &format!("nothing was lost: {status}"))?;
    expect_eq(number(&status, "replayed_requests")?, 0, &format!("nothing was to be replayed: {status}"))?;
    expect_eq(number(&status, "evicted_clients")?, 1, &format!("who was given up: {status}"))?;
    expect_eq(given_up, 1, "who had been given up when its file was read")?;
    expect_bytes(&read, b"WRITTEN", "what it had synced")?;
    expect_bytes(&fs::read(ours.join("old"))?, &text, "the old file")?;
    expect_eq(names(&ours)?.len(), count + 1, "files of the one that lives")?;
    // Its descriptor leads to nobody.
    drop(open);
    number(&status, "early_requests")
}
