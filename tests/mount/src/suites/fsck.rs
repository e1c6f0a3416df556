//! `sheen fsck` over clusters that have lived: with files of every kind, and servers that were killed under load, nothing is wrong;
//! with damage in their directories, that is found.

use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use crate::bounded::Said;
use crate::case::{
    Bed, Case, Context, Suite, expect, expect_bytes, expect_eq, expect_errno, names, wait_until, write,
};
use crate::cluster::{COMMAND_LIMIT, Cluster, Shape};
use crate::load::{self, Stop, Unfailing};
use crate::random::Random;
use crate::sys;

/// The suite.
pub static SUITE: Suite = Suite { name: "fsck", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "clean_after_kills_under_load", seconds: 240, run: after_kills },
    Case { name: "clean_where_everything_died", seconds: 240, run: where_everything_died },
    Case { name: "damage_in_directories", seconds: 180, run: damage },
    Case { name: "damaged_base_among_others", seconds: 240, run: among_others },
];

const SHAPE: Shape = Shape { mdt_count: 2, ost_count: 2, is_split: true };
const WORKER_COUNT: usize = 2;
/// Bytes of a block, and of the checksums before the first one of an object.
const BLOCK_BYTES: u64 = 4096;

/// Runs a check, which must end with this status; -> what it said.
pub fn fsck(cluster: &Cluster, options: &[&str], status: i32) -> Result<Said> {
    let data = cluster.data.to_string_lossy();
    let arguments = [&["fsck", &data][..], options].concat();
    let said = cluster.try_sheen(&arguments, COMMAND_LIMIT)?;
    let found = said.end.status_code();
    let words = arguments.join(" ");
    expect(
        found == Some(status),
        &format!("{words}: {}, not {status}: {}", said.end.describe(), said.all()),
    )?;
    expect(!said.all().contains("panicked"), &format!("{words}: {}", said.all()))?;
    Ok(said)
}

fn number(json: &Value, name: &str) -> Result<u64> {
    json.get(name).and_then(Value::as_u64).with_context(|| format!("no {name} in {json}"))
}

/// One of everything, in a directory of the mount.
fn make_everything(context: &Context, cluster: &Cluster, place: &Path) -> Result<()> {
    fs::create_dir(place)?;
    let (remote, striped) = (place.join("remote"), place.join("striped"));
    context.mkdir_on(1, &remote)?;
    cluster.sheen(&["lfs", "mkdir", "-c", "2", &striped.to_string_lossy()])?;
    for index in 0..20 {
        write(&striped.join(format!("file{index}")), &vec![index; 3000])?;
        fs::create_dir(striped.join(format!("directory{index}")))?;
    }
    fs::rename(striped.join("file3"), striped.join("renamed"))?;
    fs::rename(striped.join("directory3"), remote.join("moved"))?;
    write(&place.join("empty"), b"")?;
    write(&place.join("plain"), &vec![7; 300_000])?;
    let wide = place.join("wide");
    context.set_stripes(&wide, 2, "64K")?;
    write(&wide, &vec![8; 1_000_000])?;
    fs::hard_link(&wide, remote.join("far name"))?;
    fs::hard_link(place.join("plain"), place.join("second name"))?;
    let holes = fs::File::create(place.join("holes"))?;
    holes.write_all_at(b"behind a hole", 3_000_000)?;
    holes.set_len(5_000_000)?;
    let cut = fs::File::create(place.join("cut"))?;
    cut.write_all_at(&[9; 200_000], 0)?;
    cut.set_len(70_001)?;
    fs::create_dir(place.join("small"))?;
    let small = place.join("small").to_string_lossy().into_owned();
    cluster.sheen(&["lfs", "setstripe", "-E", "64K", "-L", "mdt", "-E", "-1", &small])?;
    for (index, byte_count) in [0, 1, 20_000, 65_536, 200_000].into_iter().enumerate() {
        write(&place.join("small").join(format!("file{index}")), &vec![3; byte_count])?;
    }
    symlink("nowhere", place.join("symlink"))?;
    sys::mknod(&place.join("fifo"), libc::S_IFIFO | 0o600, 0)?;
    sys::mknod(&place.join("device"), libc::S_IFCHR | 0o600, 0x103)?;
    for (name, value) in [("user.one", &b"value"[..]), ("user.large", &[1; 9000]), ("trusted.two", b"")] {
        sys::set_xattr(&place.join("plain"), name, value, 0)?;
    }
    sys::remove_xattr(&place.join("plain"), "user.one")?;
    for index in 0..10 {
        write(&place.join(format!("gone{index}")), &vec![1; 10_000])?;
        fs::remove_file(place.join(format!("gone{index}")))?;
    }
    Ok(())
}

fn start(context: &Context) -> Result<Cluster> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, SHAPE)?;
    cluster.up()?;
    Ok(cluster)
}

/// Whoever kills them has the restart ready: see `up_in_waiting`.
fn kill_servers(cluster: &Cluster) -> Result<()> {
    let (targets, up) = (cluster.targets()?, cluster.up_in_waiting()?);
    for (name, pid) in targets {
        sys::kill(pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
    }
    up.go()
}

fn after_kills(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    make_everything(context, &cluster, &cluster.mount.join("everything"))?;
    let said = fsck(&cluster, &[], 8)?;
    expect(
        said.output.is_empty() && said.errors.lines().count() == 1 && said.errors.contains("sheen down"),
        &format!("a cluster that runs is refused in one line: {}", said.all()),
    )?;
    let open = fs::File::create(cluster.mount.join("open"))?;
    load::under_load(&cluster, &mut context.random(), || {
        open.write_all_at(&[5; 50_000], 0)?;
        fs::remove_file(cluster.mount.join("open"))?;
        kill_servers(&cluster)
    })?;
    make_everything(context, &cluster, &cluster.mount.join("more"))?;
    fs::remove_dir_all(cluster.mount.join("everything"))?;
    drop(open);
    cluster.down()?;
    let before = meta_files(&cluster)?;
    let said = fsck(&cluster, &["--data", "--json"], 0)?;
    let json: Value = serde_json::from_str(&said.output)?;
    expect_eq(json.get("findings"), Some(&Value::Array(Vec::new())), "findings")?;
    expect_eq(json.get("awaiting_mounts"), Some(&Value::Array(Vec::new())), "mounts that are awaited")?;
    expect(number(&json, "inode_count")? > 60, &format!("inodes in {json}"))?;
    expect(number(&json, "read_bytes")? > 1_000_000, &format!("bytes in {json}"))?;
    let said = fsck(&cluster, &["--repair"], 0)?;
    expect(said.output.ends_with("clean\n"), &said.output)?;
    expect(meta_files(&cluster)? == before, "a check has changed something")?;
    // What was checked is what is there.
    cluster.up()?;
    expect(names(&cluster.mount)?.contains(&"more".to_owned()), "the directory is there")?;
    cluster.down().map(drop)
}

/// Bytes of bases and logs.
fn meta_files(cluster: &Cluster) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = Vec::new();
    for target in names(&cluster.data)? {
        let meta = cluster.data.join(target).join("meta");
        let log = meta.join("log");
        for directory in [meta, log].into_iter().filter(|directory| directory.is_dir()) {
            for path in fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())) {
                let path = path?;
                if path.is_file() {
                    found.push((path.clone(), fs::read(path)?));
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Servers and mount are killed under load and not restarted: what is undone is no damage, whatever it is. Nor is anything wrong when
/// the next servers have recovered from it.
fn where_everything_died(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    make_everything(context, &cluster, &cluster.mount.join("everything"))?;
    let stop = Stop::default();
    std::thread::scope(|scope| -> Result<()> {
        for index in 0..WORKER_COUNT {
            let (stop, mut random) = (&stop, Random::new(context.seed + index as u64));
            let mut worker = Unfailing::new(cluster.mount.join(format!("worker{index}")))?;
            // It is cut off in the middle, so its calls fail.
            scope.spawn(move || drop(worker.work(stop, &mut random)));
        }
        std::thread::sleep(Duration::from_millis(900));
        let processes: Vec<(String, i32)> = cluster.targets()?.into_iter().chain(cluster.mounts()?).collect();
        stop.now();
        for (name, pid) in processes {
            sys::kill(pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
        }
        Ok(())
    })?;
    cluster.release();
    let said = fsck(&cluster, &[], 0)?;
    expect(
        said.output.contains("mounts may come back"),
        &format!("who is awaited is said: {}", said.output),
    )?;
    cluster.up()?;
    make_everything(context, &cluster, &cluster.mount.join("more"))?;
    cluster.down()?;
    fsck(&cluster, &["--data"], 0).map(drop)
}

/// The only file of an object in whose first bytes this is.
fn object_with(cluster: &Cluster, bytes: &[u8]) -> Result<PathBuf> {
    for target in names(&cluster.data)?.iter().filter(|name| name.starts_with("ost")) {
        let objects = cluster.data.join(target).join("objects");
        for directory in names(&objects)? {
            for name in names(&objects.join(&directory))? {
                let path = objects.join(&directory).join(name);
                let stored = fs::read(&path)?;
                if stored.get(BLOCK_BYTES as usize..).is_some_and(|data| data.starts_with(bytes)) {
                    return Ok(path);
                }
            }
        }
    }
    Err(anyhow!("no object begins with {:?}", bytes.get(..8)))
}

fn flip(path: &Path, at: u64) -> Result<()> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&[byte[0] ^ 16], at)?;
    Ok(())
}

fn damage(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let place = cluster.mount.join("place");
    fs::create_dir(&place)?;
    write(&place.join("file"), &[0x5a; 20_000])?;
    write(&place.join("other"), &[0x6b; 20_000])?;
    cluster.down()?;
    fsck(&cluster, &["--data"], 0)?;
    let object = object_with(&cluster, &[0x5a; 5000])?;
    // An object of a file that never was: wherever an OST looks for it.
    let name = object.file_name().context("a name")?.to_string_lossy().into_owned();
    let stray = format!("{}00ffff{}", &name[..18], &name[24..]);
    for directory in fs::read_dir(object.ancestors().nth(2).context("objects")?)? {
        fs::copy(&object, directory?.path().join(&stray))?;
    }
    let said = fsck(&cluster, &[], 4)?;
    expect(said.output.starts_with("object-without-inode OST"), &said.output)?;
    // It has bytes, which are not removed before that is said.
    let said = fsck(&cluster, &["--repair"], 4)?;
    expect(said.output.contains("--remove-remains removes it"), &said.output)?;
    fsck(&cluster, &["--repair", "--remove-remains"], 1)?;
    fsck(&cluster, &["--data", "--repair"], 0)?;
    // Bit rot in data: told with its file and its bytes.
    flip(&object, BLOCK_BYTES + 2 * BLOCK_BYTES + 99)?;
    fsck(&cluster, &[], 0)?;
    let said = fsck(&cluster, &["--data", "--repair"], 4)?;
    let words = "/place/file (object ";
    expect(said.output.starts_with("data-damaged OST") && said.output.contains(words), &said.output)?;
    expect(said.output.contains("bytes [8192, 12288) of the file"), &said.output)?;
    flip(&object, BLOCK_BYTES + 2 * BLOCK_BYTES + 99)?;
    // An object that goes, and one that is cut.
    let aside = context.work.join("aside");
    fs::rename(&object, &aside)?;
    let said = fsck(&cluster, &[], 4)?;
    expect(said.output.starts_with("object-missing OST"), &said.output)?;
    fs::copy(&aside, &object)?;
    fs::OpenOptions::new().write(true).open(&object)?.set_len(9000)?;
    let said = fsck(&cluster, &[], 4)?;
    expect(said.output.starts_with("object-cut OST"), &said.output)?;
    fs::copy(&aside, &object)?;
    damaged_base(&cluster)?;
    fsck(&cluster, &["--data"], 0)?;
    read_only(context, &cluster)?;
    cluster.up()?;
    expect_eq(fs::read(place.join("file"))?, vec![0x5a; 20_000], "the file")?;
    cluster.down().map(drop)
}

/// A snapshot of the devices, or one that the kernel has made read-only after an error. Servers of the same device are seen all the same.
fn read_only(context: &Context, cluster: &Cluster) -> Result<()> {
    let place = context.work.join("read-only");
    fs::create_dir(&place)?;
    let (data, seen) = (cluster.data.to_string_lossy(), place.to_string_lossy());
    let run = |words: &[&str]| -> Result<()> {
        let (program, arguments) = words.split_first().context("a program")?;
        let status = Command::new(program).args(arguments).status()?;
        expect(status.success(), &format!("{words:?}: {status}"))
    };
    run(&["mount", "--bind", &data, &seen])?;
    let checked = (|| {
        run(&["mount", "-o", "remount,bind,ro", &seen])?;
        let check = || cluster.try_sheen(&["fsck", &seen, "--data"], COMMAND_LIMIT);
        let said = check()?;
        expect(said.end.status_code() == Some(0) && said.output.ends_with("clean\n"), &said.all())?;
        cluster.up()?;
        let said = check()?;
        expect(said.end.status_code() == Some(8) && said.errors.contains("already running"), &said.all())?;
        cluster.down().map(drop)
    })();
    run(&["umount", &seen])?;
    checked
}

/// A bit in the base of an MDT, and a base that is cut.
fn damaged_base(cluster: &Cluster) -> Result<()> {
    let index = cluster.data.join("mdt0000/meta/index");
    let sound = fs::read(&index)?;
    for block in [2, 5, 20, sound.len() as u64 / BLOCK_BYTES - 1] {
        flip(&index, block * BLOCK_BYTES + 7)?;
        let said = fsck(cluster, &["--data"], 4)?;
        let words = format!("bytes [{}, {})", block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
        expect(said.output.contains("index-damaged MDT0000"), &said.output)?;
        expect(said.output.contains(&words) || !said.output.contains("bytes ["), &said.output)?;
        fs::write(&index, &sound)?;
    }
    fs::OpenOptions::new().write(true).open(&index)?.set_len(sound.len() as u64 / 2)?;
    let said = fsck(cluster, &["--repair"], 4)?;
    expect(said.output.starts_with("index-damaged MDT0000"), &said.all())?;
    fs::write(&index, &sound)?;
    Ok(())
}

/// How often a target is looked after, and some more.
const NOTICE_LIMIT: Duration = Duration::from_secs(60);

/// The targets of a cluster, without its logs: those go on.
fn copy_targets(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if !from.join(&name).join("target.json").exists() {
            continue;
        }
        let _ = fs::remove_dir_all(to.join(&name));
        let status = Command::new("cp").arg("-a").args([from.join(&name), to.join(&name)]).status()?;
        expect(status.success(), &format!("{} is copied", from.join(&name).display()))?;
    }
    Ok(())
}

/// What `status` says of a target that is not served: why, and what to do.
fn refusal(cluster: &Cluster, name: &str) -> Result<Option<String>> {
    let status = cluster.status()?;
    let list = |of: &str| status.get(of).and_then(Value::as_array).cloned().unwrap_or_default();
    let word = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let failed = |target: &Value| word(target, "name") == name && word(target, "state") == "failed";
    if !list("targets").iter().any(failed) {
        return Ok(None);
    }
    let alerts = list("alerts");
    let alert = alerts.iter().find(|alert| word(alert, "text").contains(&format!("{name} is not served: ")));
    let alert = alert.with_context(|| format!("no alert of {name}: {status}"))?;
    expect(word(alert, "fix").contains("restore"), &format!("what to do: {alert}"))?;
    Ok(Some(word(alert, "text")))
}

/// One process has all targets. One of which the base is damaged, before the start or while it is served, is named with what to do, and
/// nothing of it is served; the others go on.
fn among_others(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let mut cluster = Cluster::new(&context.options, &context.work, Shape { is_split: false, ..SHAPE })?;
    cluster.up()?;
    let place = cluster.mount.join("place");
    fs::create_dir(&place)?;
    context.mkdir_on(1, &place.join("remote"))?;
    for (name, ost) in [("first", "0"), ("second", "1"), ("third", "1")] {
        let path = place.join(name);
        cluster.sheen(&["lfs", "setstripe", "-c", "1", "-i", ost, &path.to_string_lossy()])?;
        write(&path, &[0x5a; 20_000])?;
    }
    for name in 0..200 {
        write(&place.join(format!("remote/{name}")), b"")?;
    }
    cluster.down()?;
    let sound = context.work.join("sound");
    copy_targets(&cluster.data, &sound)?;
    for (what, at) in [
        ("a cut base", None),
        ("a bit of its header", Some(BLOCK_BYTES + 9)),
        ("a bit of a seal", Some(2 * BLOCK_BYTES - 3590)),
    ] {
        damaged_before(&mut cluster, at).context(what)?;
        copy_targets(&sound, &cluster.data)?;
    }
    damaged_label(&mut cluster)?;
    copy_targets(&sound, &cluster.data)?;
    missing(&mut cluster)?;
    damaged_while_served(&mut cluster)?;
    copy_targets(&sound, &cluster.data)?;
    // The first MDT has the root: nothing can be mounted, and what is wrong is said at once.
    let index = cluster.data.join("mdt0000/meta/index");
    fs::OpenOptions::new().write(true).open(&index)?.set_len(50_000)?;
    let data = cluster.data.to_string_lossy().into_owned();
    let said = cluster.try_sheen(&["up", "--dir", &data], COMMAND_LIMIT)?;
    expect(!said.is_success() && said.errors.contains(&*index.to_string_lossy()), &said.all())?;
    expect(refusal(&cluster, "MDT0000")?.is_some(), "the first MDT is refused")?;
    expect_eq(cluster.targets()?.len(), 5, "targets that are named")?;
    cluster.down()?;
    copy_targets(&sound, &cluster.data)?;
    cluster.up()?;
    expect_bytes(&fs::read(place.join("second"))?, &[0x5a; 20_000], "the file on the OST")?;
    expect_eq(names(&place.join("remote"))?.len(), 200, "names on the other MDT")?;
    cluster.down()?;
    fsck(&cluster, &["--data"], 0).map(drop)
}

/// The base of an OST: cut, or a bit of it is another.
fn damaged_before(cluster: &mut Cluster, bit_at: Option<u64>) -> Result<()> {
    let (place, index) = (cluster.mount.join("place"), cluster.data.join("ost0001/meta/index"));
    match bit_at {
        Some(at) => flip(&index, at)?,
        None => fs::OpenOptions::new().write(true).open(&index)?.set_len(fs::metadata(&index)?.len() / 2)?,
    }
    let damaged = fs::read(&index)?;
    let said = fsck(cluster, &["--repair"], 4)?;
    expect(said.output.contains("index-damaged OST0001"), &said.all())?;
    cluster.up()?;
    let why = refusal(cluster, "OST0001")?.context("the OST is not served")?;
    expect(why.contains(&*index.to_string_lossy()), &why)?;
    expect_bytes(&fs::read(place.join("first"))?, &[0x5a; 20_000], "a file on the other OST")?;
    write(&place.join("first"), &[0x6b; 30_000])?;
    expect_eq(names(&place.join("remote"))?.len(), 200, "names on the other MDT")?;
    let complaints = cluster.new_complaints();
    expect(
        complaints.iter().any(|line| line.contains("index") && line.contains("damaged")),
        &format!("{complaints:#?}"),
    )?;
    cluster.down()?;
    expect(fs::read(&index)? == damaged, "the damaged base was left as it is")
}

/// The file that says which target a directory is: cut.
fn damaged_label(cluster: &mut Cluster) -> Result<()> {
    let (place, label) = (cluster.mount.join("place"), cluster.data.join("ost0001/target.json"));
    fs::OpenOptions::new().write(true).open(&label)?.set_len(fs::metadata(&label)?.len() / 2)?;
    cluster.up()?;
    let why = refusal(cluster, "OST0001")?.context("the OST is not served")?;
    expect(why.contains("ost0001") && why.contains("damaged"), &why)?;
    expect_bytes(&fs::read(place.join("first"))?, &[0x5a; 20_000], "a file on the other OST")?;
    let complaints = cluster.new_complaints();
    expect(complaints.iter().any(|line| line.contains("OST0001")), &format!("{complaints:#?}"))?;
    cluster.down().map(drop)
}

/// The disk of an OST is not there, as if it had not been mounted: nothing is made in its place, and the others are served.
fn missing(cluster: &mut Cluster) -> Result<()> {
    let (place, dir) = (cluster.mount.join("place"), cluster.data.join("ost0001"));
    let away = cluster.data.join("away");
    fs::rename(&dir, &away)?;
    cluster.up()?;
    let why = refusal(cluster, "OST0001")?.context("the OST is not served")?;
    expect(why.contains(&*dir.to_string_lossy()) && why.contains("mount its disk"), &why)?;
    expect_bytes(&fs::read(place.join("first"))?, &[0x5a; 20_000], "a file on the other OST")?;
    let (processes, held) = (cluster.targets()?, fs::File::open(place.join("first"))?);
    cluster.up()?;
    expect_eq(cluster.targets()?, processes, "who uses the others is not cut off")?;
    drop(held);
    expect(!dir.exists(), "nothing was made")?;
    fs::rename(&away, &dir)?;
    cluster.up()?;
    expect_eq(refusal(cluster, "OST0001")?, None, "the OST is served")?;
    expect_bytes(&fs::read(place.join("second"))?, &[0x5a; 20_000], "a file on it")?;
    let complaints = cluster.new_complaints();
    expect(complaints.iter().all(|line| line.contains("OST0001")), &format!("{complaints:#?}"))?;
    cluster.down().map(drop)
}

/// The base of an OST is cut under its server, then every block of that of an MDT loses a bit, then what is noted of locks is cut.
fn damaged_while_served(cluster: &mut Cluster) -> Result<()> {
    cluster.up()?;
    let place = cluster.mount.join("place");
    let pids = cluster.targets()?;
    // Whoever has no session waits for one, as with a target that is down.
    expect_bytes(&fs::read(place.join("second"))?, &[0x5a; 20_000], "a file on the OST")?;
    expect_errno(fs::metadata(place.join("remote/nothing")), libc::ENOENT, "no name")?;
    let index = cluster.data.join("ost0001/meta/index");
    fs::OpenOptions::new().write(true).open(&index)?.set_len(BLOCK_BYTES)?;
    wait_until(NOTICE_LIMIT, "the OST is stopped", || Ok(refusal(cluster, "OST0001")?.is_some()))?;
    expect_errno(fs::read(place.join("third")), libc::EIO, "a file on the OST")?;
    expect_bytes(&fs::read(place.join("first"))?, &[0x5a; 20_000], "a file on the other OST")?;
    let index = cluster.data.join("mdt0001/meta/index");
    for block in 0..fs::metadata(&index)?.len() / BLOCK_BYTES {
        flip(&index, block * BLOCK_BYTES + 9)?;
    }
    wait_until(NOTICE_LIMIT, "the MDT is stopped", || Ok(refusal(cluster, "MDT0001")?.is_some()))?;
    // Names that it has told before may be believed by whoever has a lock on them. It gives no other, and takes nothing.
    expect_errno(fs::write(place.join("remote/new"), b""), libc::EIO, "a name on the MDT")?;
    let notes = fs::read_dir(cluster.run_dir().join("held"))?.collect::<Result<Vec<_>, _>>()?;
    expect(!notes.is_empty(), "what is held is noted")?;
    for note in notes {
        fs::OpenOptions::new().write(true).open(note.path())?.set_len(0)?;
    }
    fs::create_dir(place.join("new"))?;
    for name in 0..50 {
        let path = place.join(format!("new/{name}"));
        write(&path, b"")?;
    }
    write(&place.join("first"), &[0x6b; 30_000])?;
    expect_bytes(&fs::read(place.join("first"))?, &[0x6b; 30_000], "what was written")?;
    expect_eq(cluster.targets()?, pids, "targets and their process")?;
    let complaints = cluster.new_complaints();
    for words in ["OST0001", "MDT0001", "the note of what clients hold"] {
        expect(complaints.iter().any(|line| line.contains(words)), &format!("{words}: {complaints:#?}"))?;
    }
    cluster.sheen(&["down", "--force", "--dir", &cluster.data.to_string_lossy()]).map(drop)
}
