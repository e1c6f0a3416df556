//! Wrong commands: one line that says what is wrong, an exit status that is not zero, and nothing changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::bounded::{End, Said};
use crate::case::{
    Bed, Case, Context, Suite, expect, expect_bytes, expect_eq, expect_errno, read, wait_until, write,
};
use crate::cluster::{Cluster, Shape};
use crate::disk::LoopDisk;
use crate::sys;

mod formats;

/// The suite.
pub static SUITE: Suite = Suite { name: "badinput", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "unknown_options", seconds: 60, run: unknown_options },
    Case { name: "missing_directories", seconds: 60, run: missing_directories },
    Case { name: "already_running", seconds: 60, run: already_running },
    Case { name: "other_file_system", seconds: 60, run: other_file_system },
    Case { name: "wrong_fsname", seconds: 90, run: wrong_fsname },
    Case { name: "port_in_use", seconds: 60, run: port_in_use },
    Case { name: "disk_full", seconds: 60, run: disk_full },
    Case { name: "mount_point_in_use", seconds: 90, run: mount_point_in_use },
    Case { name: "version_mismatch", seconds: 60, run: formats::version_mismatch },
    Case { name: "upgrade", seconds: 90, run: formats::upgrade },
    Case { name: "damaged_configuration", seconds: 60, run: damaged_configuration },
    Case { name: "damaged_log", seconds: 90, run: damaged_log },
    Case { name: "damaged_objects", seconds: 90, run: damaged_objects },
    Case { name: "network_without_saying_so", seconds: 60, run: open_network },
    Case { name: "random_bytes_on_sockets", seconds: 90, run: random_bytes },
    Case { name: "half_frames_and_idle_connections", seconds: 120, run: idle_connections },
    Case { name: "commands_of_a_newcomer", seconds: 120, run: newcomer },
    Case { name: "place_of_another_cluster", seconds: 90, run: other_cluster },
    Case { name: "names_that_are_no_text", seconds: 120, run: no_text },
    Case { name: "places_that_cannot_be_used", seconds: 120, run: unusable_places },
    Case { name: "two_at_once", seconds: 120, run: two_at_once },
    Case { name: "nobody_reads_the_output", seconds: 120, run: nobody_reads },
    Case { name: "parameters_and_files", seconds: 120, run: parameters_and_files },
];

const LIMIT: Duration = Duration::from_secs(45);

/// Every file below a directory with its contents, sockets and the like by name only.
fn snapshot(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() {
                waiting.push(path.clone());
            }
            let bytes = if meta.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
            found.insert(path, bytes);
        }
    }
    found
}

/// The command must fail with one line that contains one of the words, and leave `untouched` as it was.
fn refuse(cluster: &Cluster, arguments: &[&str], words: &[&str], untouched: Option<&Path>) -> Result<()> {
    let before = untouched.map(snapshot);
    let said = cluster.try_sheen(arguments, LIMIT)?;
    println!("$ sheen {}\n{}[{}]", arguments.join(" "), said.all(), said.end.describe());
    judge(&said, words).with_context(|| format!("sheen {}", arguments.join(" ")))?;
    if before != untouched.map(snapshot) {
        bail!("sheen {}: something changed", arguments.join(" "));
    }
    Ok(())
}

fn judge(said: &Said, words: &[&str]) -> Result<()> {
    match &said.end {
        End::Exited(status) if status.success() => bail!("it worked, and should not"),
        End::Exited(status) if status.code().is_none() => bail!("it died: {status}"),
        End::Exited(_) => {}
        End::TimedOut { .. } => bail!("it does not end within {LIMIT:?}"),
    }
    let line_count = said.errors.trim_end().lines().count();
    expect(line_count == 1, &format!("{line_count} lines instead of one: {}", said.errors))?;
    expect(said.output.is_empty(), &format!("something on standard output: {}", said.output))?;
    let text = said.errors.to_lowercase();
    expect(!text.contains("panicked"), "a panic")?;
    expect(
        words.iter().any(|word| text.contains(&word.to_lowercase())),
        &format!("none of {words:?} in: {text}"),
    )
}

fn idle(context: &Context) -> Result<Cluster> {
    context.skip_if_local()?;
    Cluster::new(&context.options, &context.work, Shape { is_split: false, ..Shape::SMALL })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn unknown_options(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let words = &["--no-such-option"];
    for command in
        ["up", "down", "serve", "mkfs", "mount", "umount", "mounts", "status", "sync", "fsck", "upgrade"]
    {
        refuse(&cluster, &[command, "--no-such-option"], words, Some(&context.work))?;
    }
    refuse(&cluster, &["lfs", "df", "--no-such-option"], words, Some(&context.work))?;
    refuse(&cluster, &["lctl", "get_param", "--no-such-option"], words, Some(&context.work))?;
    refuse(&cluster, &["no-such-command"], &["no-such-command"], Some(&context.work))?;
    refuse(&cluster, &["up", "--mdts", "0"], &["mdts"], Some(&context.work))?;
    refuse(&cluster, &["up", "--osts", "many"], &["osts"], Some(&context.work))
}

fn missing_directories(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let nowhere = text(&context.work.join("nowhere"));
    refuse(&cluster, &["serve", &nowhere], &["nowhere"], Some(&context.work))?;
    refuse(&cluster, &["down", "--dir", &nowhere], &["nowhere"], Some(&context.work))?;
    refuse(&cluster, &["status", "--dir", &nowhere], &["nowhere"], Some(&context.work))?;
    refuse(&cluster, &["mount", "127.0.0.1:1@tcp:/F", &nowhere], &["nowhere"], Some(&context.work))?;
    refuse(&cluster, &["umount", &nowhere], &["nowhere"], Some(&context.work))?;
    refuse(&cluster, &["lfs", "df", &nowhere], &["nowhere"], Some(&context.work))?;
    refuse(&cluster, &["sync", &nowhere], &["nowhere"], Some(&context.work))?;
    refuse(&cluster, &["upgrade", &nowhere], &["nowhere"], Some(&context.work))?;
    refuse(&cluster, &["fsck", &nowhere], &["nowhere"], Some(&context.work))
}

/// A process that is killed with the case.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.try_wait();
    }
}

fn serve(cluster: &Cluster, arguments: &[&str], log: &Path) -> Result<Server> {
    let log_file = fs::File::create(log)?;
    let mut command = cluster.command();
    command.arg("serve").args(arguments).stdout(log_file.try_clone()?).stderr(log_file);
    Ok(Server(command.spawn()?))
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn is_open(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn already_running(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let (target, port) = (text(&context.work.join("mgs")), free_port()?);
    cluster.sheen(&["mkfs", "--mgs", &target])?;
    let _server =
        serve(&cluster, &["--listen", &format!("127.0.0.1:{port}"), &target], &context.work.join("log"))?;
    wait_until(LIMIT, "the server listens", || Ok(is_open(port)))?;
    refuse(&cluster, &["serve", &target], &["running", "in use", "lock"], None)?;
    refuse(&cluster, &["mkfs", "--mgs", &target], &["mgs", "already", "empty"], None)
}

fn other_file_system(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let full = context.work.join("full");
    fs::create_dir(&full)?;
    write(&full.join("letter"), b"somebody else's")?;
    let path = text(&full);
    refuse(&cluster, &["mkfs", "--mgs", &path], &["empty", "full"], Some(&full))?;
    let target = text(&context.work.join("ost"));
    let mkfs = |fsname: &'static str| {
        ["mkfs", "--ost", "--index", "0", "--fsname", fsname, "--mgsnode", "127.0.0.1@tcp"]
    };
    cluster.sheen(&[&mkfs("one")[..], &[&target]].concat())?;
    refuse(
        &cluster,
        &[&mkfs("two")[..], &[&target]].concat(),
        &["one", "already", "empty"],
        Some(Path::new(&target)),
    )?;
    refuse(&cluster, &["serve", &path], &["target", "mkfs"], Some(&full))?;
    refuse(
        &cluster,
        &["mkfs", "--ost", "--fsname", "x", "--mgsnode", "127.0.0.1@tcp", &text(&context.work.join("n"))],
        &["index"],
        Some(&context.work),
    )?;
    refuse(
        &cluster,
        &[
            "mkfs",
            "--mdt",
            "--index",
            "0",
            "--fsname",
            "far too long a name",
            "--mgsnode",
            "x@tcp",
            &text(&context.work.join("n")),
        ],
        &["name", "fsname"],
        Some(&context.work),
    )
}

fn wrong_fsname(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    cluster.up()?;
    let point = context.work.join("point");
    fs::create_dir(&point)?;
    let nid = cluster.source()?.rsplit_once(":/").context("a source")?.0.to_owned();
    refuse(&cluster, &["mount", &format!("{nid}:/wrong"), &text(&point)], &["wrong"], Some(&point))?;
    refuse(&cluster, &["mount", "not a source", &text(&point)], &["not a source"], Some(&point))?;
    refuse(&cluster, &["mount", "127.0.0.1:99999@tcp:/F", &text(&point)], &["99999"], Some(&point))?;
    let data = text(&cluster.data);
    refuse(&cluster, &["up", "--dir", &data, "--fsname", "other"], &["other", "suite"], None)?;
    cluster.down()?;
    refuse(&cluster, &["up", "--dir", &data, "--fsname", "other"], &["other", "suite"], None)
}

fn port_in_use(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let holder = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = format!("127.0.0.1:{}", holder.local_addr()?.port());
    let target = text(&context.work.join("mgs"));
    cluster.sheen(&["mkfs", "--mgs", &target])?;
    refuse(&cluster, &["serve", "--listen", &address, &target], &["in use", &address], None)
}

fn disk_full(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let disk = LoopDisk::new(&context.work, 16)?;
    // Large pieces first, then whatever still fits.
    for (kind, byte_count) in [("large", 1 << 20), ("small", 4096), ("tiny", 1)] {
        let ballast = vec![1u8; byte_count];
        let mut index = 0;
        while fs::write(disk.path(&format!("{kind}{index}")), &ballast).is_ok() && index < 100_000 {
            index += 1;
        }
    }
    let mgs = text(&disk.path("mgs"));
    refuse(&cluster, &["mkfs", "--mgs", &mgs], &["space", "full"], None)?;
    expect(!Path::new(&mgs).join("target.json").exists(), "no half-made target is left")
}

fn mount_point_in_use(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    cluster.up()?;
    let source = cluster.source()?;
    let full = context.work.join("full");
    fs::create_dir(&full)?;
    write(&full.join("letter"), b"here")?;
    refuse(&cluster, &["mount", &source, &text(&full)], &["empty"], Some(&full))?;
    refuse(&cluster, &["mount", &source, &text(&cluster.mount)], &["mounted", "empty", "mount point"], None)?;
    refuse(&cluster, &["mount", &source, &text(&full.join("letter"))], &["director"], Some(&full))?;
    refuse(&cluster, &["umount", &text(&full)], &["mount"], Some(&full))?;
    cluster.down().map(drop)
}

/// Every truncation and some flips of the configuration files: a refusal or, if the damage does not matter, a working command.
fn damaged_configuration(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    cluster.up()?;
    cluster.down()?;
    let file = cluster.data.join("cluster.json");
    let original = fs::read(&file).context("cluster.json")?;
    for cut in [0, 1, original.len() / 2, original.len().saturating_sub(3)] {
        fs::write(&file, &original[..cut])?;
        refuse(&cluster, &["up", "--dir", &text(&cluster.data)], &["damaged", "cluster.json"], None)?;
        refuse(&cluster, &["status", "--dir", &text(&cluster.data)], &["damaged", "cluster.json"], None)?;
    }
    fs::write(&file, &original)?;
    cluster.up()?;
    cluster.down()?;
    let superblock = cluster.data.join("mdt0000/target.json");
    let original = fs::read(&superblock).context("the superblock of MDT0000")?;
    fs::write(&superblock, &original[..original.len() / 2])?;
    refuse(&cluster, &["up", "--dir", &text(&cluster.data)], &["damaged", "target.json"], None)?;
    fs::write(&superblock, &original)?;
    cluster.up()?;
    cluster.down().map(drop)
}

/// A log that is damaged where it had been durable is refused, with the file and the byte, and left as it is; what was never whole behind
/// its end is cut off.
fn damaged_log(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let target = context.work.join("mgs");
    cluster.sheen(&["mkfs", "--mgs", &text(&target)])?;
    let serves = || -> Result<()> {
        let port = free_port()?;
        let arguments = ["--listen", &format!("127.0.0.1:{port}"), &text(&target)];
        let mut server = serve(&cluster, &arguments, &context.work.join("log"))?;
        wait_until(LIMIT, "the server listens", || Ok(is_open(port)))?;
        // In order, so that all of it is known to be durable.
        sys::kill(server.0.id() as i32, libc::SIGTERM)?;
        wait_until(LIMIT, "the server ends", || Ok(server.0.try_wait()?.is_some()))
    };
    serves()?;
    let log = target.join("meta/log");
    let is_used = |bytes: &Vec<u8>| bytes.iter().any(|byte| *byte != 0);
    let used = snapshot(&log).into_iter().find(|(_, bytes)| is_used(bytes));
    let (file, sound) = used.context("a segment of the log that was used")?;
    // Its header, and what it holds.
    for at in [10, 70] {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        fs::write(&file, &damaged)?;
        let place = format!("at byte 0 of {}", text(&file));
        refuse(&cluster, &["serve", &text(&target)], &[&place], Some(&log))?;
    }
    let mut torn = sound;
    let end = torn.iter().rposition(|byte| *byte != 0).context("the end of the log")? + 1;
    torn[end..end + 600].copy_from_slice(&context.random().bytes(600));
    fs::write(&file, &torn)?;
    serves()
}

/// The object file that holds what was written.
fn object_file(cluster: &Cluster, contents: &[u8]) -> Result<PathBuf> {
    let files = snapshot(&cluster.data).into_iter();
    let mut found = files.filter(|(path, bytes)| {
        path.components().any(|part| part.as_os_str() == "objects")
            && bytes.windows(512).step_by(512).any(|part| contents.starts_with(part))
    });
    found.next().map(|(path, _)| path).context("the object of a file")
}

/// Objects with a flipped bit, without what says that they are whole, cut anywhere, with nothing left, removed: EIO for what is damaged, never other bytes and
/// never a shorter file; sizes stay, other files are untouched, and a damaged file can be removed.
fn damaged_objects(context: &Context) -> Result<()> {
    type Damage = fn(&Path) -> std::io::Result<()>;
    fn set_length(path: &Path, stored_bytes: u64) -> std::io::Result<()> {
        fs::OpenOptions::new().write(true).open(path)?.set_len(stored_bytes)
    }
    fn clear(path: &Path, byte_count: usize) -> std::io::Result<()> {
        let mut bytes = fs::read(path)?;
        bytes[..byte_count].fill(0);
        fs::write(path, bytes)
    }
    let damages: [(&str, Damage); 10] = [
        ("whole", |_| Ok(())),
        ("flipped", |path| {
            let mut bytes = fs::read(path)?;
            bytes[10_000] ^= 1;
            fs::write(path, bytes)
        }),
        ("flipped-in-its-header", |path| {
            let mut bytes = fs::read(path)?;
            bytes[17] ^= 1;
            fs::write(path, bytes)
        }),
        ("without-its-header", |path| clear(path, 32)),
        ("begins-with-zeros", |path| clear(path, 8192)),
        ("cut-a-byte", |path| set_length(path, 4096 + 19_999)),
        ("cut-at-a-block", |path| set_length(path, 3 * 4096)),
        ("cut-to-checksums", |path| set_length(path, 4096)),
        ("emptied", |path| set_length(path, 0)),
        ("removed", |path| fs::remove_file(path)),
    ];
    let mut cluster = idle(context)?;
    cluster.up()?;
    let contents = |index: usize| -> Vec<u8> {
        (0..20_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (2 * index) as u8 | 1).collect()
    };
    for (index, (name, _)) in damages.iter().enumerate() {
        write(&cluster.mount.join(name), &contents(index))?;
    }
    cluster.down()?;
    for (index, (_, damage)) in damages.iter().enumerate() {
        damage(&object_file(&cluster, &contents(index))?)?;
    }
    cluster.up()?;
    for (index, (name, _)) in damages.iter().enumerate() {
        let path = cluster.mount.join(name);
        expect_eq(fs::metadata(&path)?.len(), 20_000, &format!("size of {name}"))?;
        if *name == "whole" {
            expect_bytes(&read(&path)?, &contents(index), name)?;
            continue;
        }
        expect_errno(fs::read(&path).map(|bytes| bytes.len()), libc::EIO, &format!("reading {name}"))?;
    }
    let complaints = cluster.new_complaints();
    let told = complaints.iter().filter(|line| line.contains("damaged data were found and refused")).count();
    expect(told >= damages.len() - 1, &format!("each damaged object is in the log: {complaints:#?}"))?;
    for (name, _) in damages {
        fs::remove_file(cluster.mount.join(name)).with_context(|| format!("removing {name}"))?;
    }
    cluster.down().map(drop)
}

fn open_network(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let target = text(&context.work.join("mgs"));
    cluster.sheen(&["mkfs", "--mgs", &target])?;
    refuse(&cluster, &["serve", "--listen", "0.0.0.0", &target], &["insecure-network"], None)?;
    // On loopback nobody would reach it who reaches its management server.
    let beside = text(&context.work.join("ost"));
    let words = ["mkfs", "--ost", "--index", "0", "--fsname", "suite", "--mgsnode", "192.0.2.1@tcp", &beside];
    cluster.sheen(&words)?;
    refuse(&cluster, &["serve", &beside], &["add --listen ADDRESS --insecure-network"], None)?;
    let data = text(&context.work.join("data2"));
    refuse(&cluster, &["up", "--dir", &data, "--listen", "0.0.0.0"], &["insecure-network"], None)
}

/// Garbage on every port and control socket: the servers live, in bounded memory, and the file system works.
fn random_bytes(context: &Context) -> Result<()> {
    use std::io::Write;
    let mut cluster = idle(context)?;
    cluster.up()?;
    write(&cluster.mount.join("file"), b"before")?;
    let status = cluster.status()?.to_string();
    let ports: Vec<u16> =
        status.split("127.0.0.1:").skip(1).filter_map(|rest| rest.split('@').next()?.parse().ok()).collect();
    expect(!ports.is_empty(), &format!("ports in the status: {status}"))?;
    let mut random = context.random();
    for round in 0..40 {
        let port = ports[random.size(ports.len())];
        let mut bytes = vec![0u8; 1 + random.size(5000)];
        bytes.iter_mut().for_each(|byte| *byte = random.number() as u8);
        if round % 4 == 0 {
            // A length that promises everything.
            bytes.iter_mut().take(4).for_each(|byte| *byte = 0xFF);
        }
        if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) {
            // The other side may close at the first wrong byte.
            let _ = stream.write_all(&bytes);
        }
    }
    let pids: Vec<i32> = cluster.targets()?.into_iter().map(|(_, pid)| pid).collect();
    expect(pids.iter().all(|pid| *pid > 0), "every target runs after garbage on its port")?;
    expect_bytes(&read(&cluster.mount.join("file"))?, b"before", "the file afterwards")?;
    // Warnings about garbage are right; errors page somebody at night for nothing.
    let complaints = cluster.new_complaints();
    let errors = complaints.iter().filter(|line| line.contains(" ERROR ")).count();
    expect(errors == 0, &format!("garbage from a stranger is logged as ERROR: {complaints:#?}"))?;
    cluster.down().map(drop)
}

/// A thousand connections that say nothing, or begin a frame with the largest lengths and never go on, on every port;
/// hundreds on every control socket, some with a line that has no end.
fn idle_connections(context: &Context) -> Result<()> {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    const MORE_KIB_MAX: u64 = 200 << 10;
    let cluster = idle(context)?;
    cluster.up()?;
    write(&cluster.mount.join("file"), b"before")?;
    let pid = cluster.targets()?.first().map(|(_, pid)| *pid).context("a target")?;
    let before = sys::status_kib(pid, "RssAnon")?;
    let status = cluster.status()?.to_string();
    let ports: Vec<u16> =
        status.split("127.0.0.1:").skip(1).filter_map(|rest| rest.split('@').next()?.parse().ok()).collect();
    let port = *ports.first().context("a port")?;
    // Magic, header bytes, kind, then the largest body and data that are allowed.
    let mut begun = vec![0x53, 0x48, 0x4e, 0x31, 128, 0, 1, 0];
    begun.extend_from_slice(&(1_u32 << 20).to_le_bytes());
    begun.extend_from_slice(&(4_u32 << 20).to_le_bytes());
    let hold = || -> Result<Vec<std::net::TcpStream>> {
        // Far more than have a thread of their own at the server.
        let held = (0..1100).map(|index| {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
            let said: &[u8] = match index % 4 {
                0 => &[],
                1 => &begun[..7],
                _ => &begun,
            };
            // It may have been closed already.
            let _ = stream.write_all(said);
            Ok(stream)
        });
        held.collect()
    };
    // Memory that the process has used before is not fresh from the kernel: whoever fills it with zeros pays for all of it.
    drop(hold()?);
    let held = hold()?;
    let mut talking = Vec::new();
    for entry in fs::read_dir(cluster.run_dir())?.flatten().filter(|entry| entry.file_name() != "log") {
        for index in 0..200 {
            let Ok(mut stream) = UnixStream::connect(entry.path()) else { continue };
            if index % 2 == 0 {
                let _ = stream.write_all(b"{\"op\":\"get_param\",\"pattern\":\"");
            }
            talking.push(stream);
        }
    }
    expect(!talking.is_empty(), "control sockets were found")?;
    write(&cluster.mount.join("second"), b"while they wait")?;
    expect_bytes(&read(&cluster.mount.join("file"))?, b"before", "the file")?;
    let again = cluster.mount_again("mnt2")?;
    expect_bytes(&read(&again.join("file"))?, b"before", "the file, through a mount that has come later")?;
    cluster.unmount(&again)?;
    let more = sys::status_kib(pid, "RssAnon")?.saturating_sub(before);
    println!("{more} KiB more for {} connections", held.len() + talking.len());
    expect(more < MORE_KIB_MAX, &format!("{more} KiB more while strangers hold connections"))?;
    drop((held, talking));
    cluster.sheen(&["lctl", "get_param", "version"])?;
    cluster.down().map(drop)
}

/// What somebody types who has never seen the commands.
fn newcomer(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let new = text(&context.work.join("new"));
    let file = context.work.join("plain");
    write(&file, b"a file")?;
    let file = text(&file);
    let point = context.work.join("point");
    fs::create_dir(&point)?;
    let point = text(&point);
    let commands: &[(&[&str], &str)] = &[
        (&[], "--help"),
        (&["lfs"], "--help"),
        (&["lctl"], "--help"),
        (&["mont"], "mount"),
        (&["up", "--mdt", "2"], "--mdts"),
        (&["up", "now"], "now"),
        (&["up", "--dir", ""], "--dir"),
        (&["up", "--dir", &file], "no directory"),
        (&["up", "--dir", &new, "--fsname", "a b"], "letters"),
        (&["up", "--dir", &new, "--fsname", "longer-than-8"], "1 to 8"),
        (&["up", "--dir", &new, "--mount", &file], "no directory"),
        (&["up", "--dir", &new, "--transport", "fast"], "uring"),
        (&["up", "--dir", &new, "--mdts", "65"], "1..=64"),
        (&["up", "--dir", &new, "--listen", "no.such.host.invalid"], "not known"),
        (&["up", "--dir", &new, "--mount", &point, "--listen", "127.0.0.1:9300", "--split"], "host only"),
        (&["down", "--dir", &new], "no cluster"),
        (&["serve"], "dir"),
        (&["serve", &file], "plain"),
        (&["serve", &point], "mkfs"),
        (&["mkfs"], "--mgs"),
        (&["mkfs", "--mgs", "--mdt", &new], "--mdt"),
        (&["mkfs", "--mgs", "--fsname", "one", &new], "leave --fsname out"),
        (&["mkfs", "--mgs", "--index", "0", &new], "leave it out"),
        (&["mkfs", "--mdt", "--index", "70000", "--fsname", "a", "--mgsnode", "h@tcp", &new], "65534"),
        (&["mkfs", "--ost", "--index", "65535", "--fsname", "a", "--mgsnode", "h@tcp", &new], "65534"),
        (&["mkfs", "--ost", "--index", "0", "--fsname", "a", "--mgsnode", "::1@tcp", &new], "[::1]@tcp"),
        (&["mkfs", "--mdt", "--index", "0", "--fsname", "a", "--mgsnode", "host", &new], "@tcp"),
        (&["mkfs", "--ost", "--index", "0", "--fsname", "a", "--mgsnode", "h@o2ib", &new], "o2ib"),
        (&["mkfs", "--ost", "--index", "0", "--fsname", "a", &new], "--mgsnode"),
        (&["mount"], "source"),
        (&["mount", "127.0.0.1@tcp:F", &point], "no file system"),
        (&["mount", "127.0.0.1@tcp:/F", &point, "-o", "bogus"], "bogus"),
        (&["umount", "/"], "mounts"),
        (&["sync", "/"], "mounts"),
        (&["lfs", "df", &point], "mounts"),
        (&["lfs", "getstripe", &file], "mounts"),
        (&["lfs", "setstripe", "-S", "1000", &file], "64K"),
        (&["lfs", "setstripe", "-E", "100K", &file], "64K"),
        (&["lfs", "setstripe", "-c", "1", "-E", "1M", &file], "before the first -E"),
        (&["lfs", "setstripe", "-E", "2M", "-E", "1M", &file], "rise"),
        (&["lfs", "setstripe", "-E", "1M", "-L", "mdt", &file], "524288"),
        (&["lfs", "fid2path", &point, "0x1"], "FID"),
        (&["lctl", "get_param", "llite.*.stats"], "sheen up"),
        (&["bench", "md", &new], "new"),
        (&["sim", "--seeds", "5..1"], "no seed"),
        (&["sim", "--clients", "0"], "1..=10000"),
        (&["status", "--dir", &new], "no cluster"),
    ];
    for (arguments, word) in commands {
        refuse(&cluster, arguments, &[word], Some(&context.work))?;
    }
    Ok(())
}

/// A second cluster cannot take the mount point of the first one, and is not begun.
fn other_cluster(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    cluster.up()?;
    let (new, mount) = (text(&context.work.join("new")), text(&cluster.mount));
    refuse(&cluster, &["up", "--dir", &new, "--mount", &mount], &["mount point"], None)?;
    expect(!Path::new(&new).exists(), "nothing of the second cluster is left")?;
    let data = text(&cluster.data);
    refuse(&cluster, &["mkfs", "--mgs", &text(&cluster.data.join("mgs"))], &["target already"], None)?;
    refuse(&cluster, &["serve", &text(&cluster.data.join("mgs"))], &["already running"], None)?;
    refuse(&cluster, &["up", "--dir", &data, "--mdts", "7"], &["leave --mdts"], None)?;
    refuse(&cluster, &["up", "--dir", &data, "--listen", "127.0.0.2"], &["--listen", "sheen down"], None)?;
    cluster.down().map(drop)
}

/// `sheen … | head` must not end a command in the middle of its work, nor what it has started, and is no reason to complain.
fn nobody_reads(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let read_by_nobody = |command: &mut Command| -> Result<std::process::ExitStatus> {
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let output = command.stdout(writer).stderr(Stdio::piped()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("$ {command:?} | -\n{errors}[{}]", output.status);
        expect_eq(errors, String::new(), "what it says on standard error")?;
        Ok(output.status)
    };
    let is_quiet_end = |status: std::process::ExitStatus| status.signal() == Some(libc::SIGPIPE);
    expect(is_quiet_end(read_by_nobody(&mut cluster.up_command())?), "up ends by SIGPIPE")?;
    write(&cluster.mount.join("file"), b"after up")?;
    let targets = cluster.targets()?;
    expect(!targets.is_empty() && targets.iter().all(|(_, pid)| *pid > 0), &format!("running: {targets:?}"))?;
    let dir = cluster.data.to_string_lossy().into_owned();
    let mount = cluster.mount.to_string_lossy().into_owned();
    for words in [
        &["status", "--dir", &dir][..],
        &["mounts"],
        &["lfs", "df", &mount],
        &["lctl", "get_param", "llite.*.*"],
    ] {
        expect(is_quiet_end(read_by_nobody(cluster.command().args(words))?), &format!("{words:?}"))?;
    }
    // A device that takes nothing is an error, in one line.
    for words in [
        &["status", "--dir", &dir][..],
        &["mounts"],
        &["lfs", "df", &mount],
        &["lfs", "path2fid", &mount],
        &["lctl", "list_param", "llite"],
        &["lctl", "set_param", "osc.*.max_rpcs_in_flight=8"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full")?;
        let output = cluster.command().args(words).stdout(full).stderr(Stdio::piped()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("$ sheen {words:?} >/dev/full\n{errors}[{}]", output.status);
        expect_eq(output.status.code(), Some(1), &format!("{words:?} to /dev/full"))?;
        let is_told = errors.lines().count() == 1 && errors.contains("No space left on device");
        expect(is_told, &format!("{words:?} to /dev/full: {errors}"))?;
    }
    let prefix = context.work.join("prefix");
    fs::create_dir_all(prefix.join("sbin"))?;
    let install = ["install-helpers", "--prefix", &prefix.to_string_lossy()];
    expect(is_quiet_end(read_by_nobody(cluster.command().args(install))?), "install-helpers")?;
    expect_eq(crate::case::names(&prefix.join("sbin"))?.len(), 5, "all of the links")?;
    // The same servers as before: nothing of this has ended them.
    expect_eq(cluster.targets()?, targets, "targets")?;
    expect_bytes(&read(&cluster.mount.join("file"))?, b"after up", "the file")?;
    // A terminal that is gone: neither error messages nor waiting notes can be written.
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let refused =
        cluster.command().args(["up", "--fsname", "other", "--dir", &dir]).stderr(writer).status()?;
    expect_eq(refused.code(), Some(1), "an error that nobody reads")?;
    let status = read_by_nobody(&mut cluster.down_command())?;
    expect(status.success(), &format!("down: {status}"))?;
    expect(crate::sweep::mounts_under(&cluster.mount).is_empty(), "down has unmounted")
}

fn parameters_and_files(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    cluster.up()?;
    let in_mount = |name: &str| text(&cluster.mount.join(name));
    let (file, mount) = (in_mount("file"), text(&cluster.mount));
    write(Path::new(&file), b"before")?;
    let all = || cluster.sheen(&["lctl", "get_param", "osc.*.max_rpcs_in_flight", "mgs.MGS.live.*", "debug"]);
    let before = all()?;
    let commands: &[(&[&str], &str)] = &[
        (&["lctl", "get_param", "osc.*.max_rpc_in_flight"], "osc.*.max_rpcs_in_flight"),
        (&["lctl", "get_param", "llite.*.statahead_min"], "a listing brings"),
        (&["lctl", "list_param", "lite"], "llite"),
        (&["lctl", "set_param", "osc.*.max_rpcs_in_flight"], "PATH=VALUE"),
        (&["lctl", "set_param", "osc.*.max_rpcs_in_flight=8", "osc.*.active=2"], "0 or 1"),
        (&["lctl", "set_param", "osc.*.max_rpcs_in_flight=7", "osc.nosuch*.active=1"], "osc.nosuch"),
        (&["lctl", "set_param", "osc.*.max_rpcs_in_flight=7", "at_max=1", "at_min=2"], "at_min would be 2"),
        (
            &["lctl", "set_param", "-P", "osc.*.max_rpcs_in_flight=7", "at_min=2", "at_max=1"],
            "at_min would be 2",
        ),
        (&["lctl", "set_param", "-P", "osc.*.max_rpcs_in_flight=0"], "1 to 512"),
        (&["lctl", "set_param", "-P", "llite.*.uuid=1"], "only be read"),
        (&["lctl", "set_param", "-P", "llite.*.stats=1"], "once"),
        (&["lctl", "set_param", "-P", "-d", "osc.*.active"], "permanent"),
        (&["lctl", "set_param", "-d", "osc.*.active"], "-P"),
        (&["lctl", "set_param", "debug=loud,=,"], "info"),
        (&["lctl", "set_param", "debug=wran"], "'wran' is no level"),
        (&["lctl", "dl"], "sheen status"),
        (&["lfs", "find", &mount, "-size", "1"], "find(1)"),
        (&["lfs", "df", "/no/such/place"], "No such file"),
        (&["lfs", "df", &in_mount("nothere")], "No such file"),
        (&["lctl", "set_param", "mdt.*.evict_client=nid:nobody@tcp"], "no client"),
        (&["lfs", "setstripe", "-c", "2001", &in_mount("new")], "0 to 2000"),
        (&["lfs", "setstripe", "-i", "77", &in_mount("new")], "no OST 77"),
        (&["lfs", "setstripe", "-c", "1", &file], "exists"),
        (&["lfs", "setstripe", "-o", "77,78", &in_mount("new")], "no OSTs 77,78"),
        (&["lfs", "setstripe", "-d", &file], "no directory"),
        (&["lfs", "setstripe", "-d", "-c", "2", &mount], "leave the other options out"),
        (&["lfs", "mkdir", "-i", "9", &in_mount("new")], "no MDT 9"),
        (&["lfs", "getdirstripe", &file], "no directory"),
        (&["lfs", "fid2path", &mount, "[0x200000400:0xfffff:0x0]"], "[0x200000400"),
        (&["umount", &file], "mount"),
    ];
    for (arguments, word) in commands {
        refuse(&cluster, arguments, &[word], Some(&cluster.mount))?;
    }
    crate::case::expect_eq(all()?, before, "parameters after refusals")?;
    cluster.down().map(drop)
}

/// Paths are bytes, and work whatever they are; everything else that is typed is text.
fn no_text(context: &Context) -> Result<()> {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;
    let cluster = idle(context)?;
    let odd = OsStr::from_bytes(b"odd\xff \n");
    let say = |arguments: &[&OsStr]| -> Result<Said> {
        let mut command = cluster.command();
        command.args(arguments);
        let said = crate::bounded::say(&mut command, "SHEEN_ODD=1", LIMIT)?;
        println!("$ sheen {arguments:?}\n{}[{}]", said.all(), said.end.describe());
        Ok(said)
    };
    let os = |words: &[&str]| -> Vec<OsString> { words.iter().map(OsString::from).collect() };
    for before in [
        os(&["lctl", "get_param"]),
        os(&["lctl", "list_param"]),
        os(&["lctl", "set_param"]),
        os(&["up", "--fsname"]),
        os(&["serve", "/", "--listen"]),
        os(&["sim", "--seeds"]),
    ] {
        let arguments: Vec<&OsStr> = before.iter().map(OsString::as_os_str).chain([odd]).collect();
        judge(&say(&arguments)?, &["is not UTF-8 text"])?;
    }
    let (data, mount) = (context.work.join(odd), cluster.mount.parent().context("a parent")?.join(odd));
    fs::create_dir(&mount)?;
    let works = |words: &[&str], path: &Path| -> Result<String> {
        let words = os(words);
        let arguments: Vec<&OsStr> =
            words.iter().map(OsString::as_os_str).chain([path.as_os_str()]).collect();
        let said = say(&arguments)?;
        expect(said.is_success(), &format!("{arguments:?}: {}", said.errors))?;
        Ok(said.output)
    };
    let up: Vec<&OsStr> = ["up", "--mdts", "1", "--osts", "1", "--split", "--mount"].map(OsStr::new).to_vec();
    let up = say(&[&up[..], &[mount.as_os_str(), OsStr::new("--dir"), data.as_os_str()]].concat())?;
    expect(up.is_success(), &format!("up: {}", up.errors))?;
    let file = mount.join(odd);
    write(&file, b"in the file")?;
    for words in [&["lfs", "path2fid"][..], &["lfs", "getstripe"], &["lfs", "df"], &["sync"]] {
        works(words, &file)?;
    }
    works(&["lfs", "mkdir", "-i", "0"], &mount.join(OsStr::from_bytes(b"\xfe")))?;
    let report: serde_json::Value = serde_json::from_str(&works(&["status", "--json", "--dir"], &data)?)?;
    let mounts = report.get("mounts").and_then(|mounts| mounts.as_array()).map_or(0, Vec::len);
    expect(mounts == 1, "the status shows the mount")?;
    works(&["umount"], &mount)?;
    works(&["up", "--dir"], &data)?;
    crate::case::expect_bytes(&crate::case::read(&file)?, b"in the file", "after umount and up")?;
    works(&["down", "--dir"], &data)?;
    expect(crate::sweep::mounts_under(&mount).is_empty(), "down has unmounted")
}

/// Disks that are full or read-only, directories within each other, control sockets that cannot be made: nothing is left behind.
fn unusable_places(context: &Context) -> Result<()> {
    let mut cluster = idle(context)?;
    let disk = LoopDisk::new(&context.work, 16)?;
    fs::create_dir(disk.path("there"))?;
    disk.remount("ro")?;
    let mount = text(&cluster.mount);
    let on_disk = |name: &str| text(&disk.path(name));
    for arguments in [
        &["up", "--dir", &on_disk("new/data"), "--mount", &mount][..],
        &["up", "--dir", &on_disk("there"), "--mount", &mount],
        &["mkfs", "--mgs", &on_disk("mgs")],
        &["mkfs", "--mgs", &on_disk("there")],
    ] {
        refuse(&cluster, arguments, &["Read-only"], Some(&disk.point))?;
    }
    disk.remount("rw")?;
    fs::create_dir(disk.path("ballast"))?;
    let mut index = 0;
    for byte_count in [1 << 20, 4096, 1] {
        while fs::write(disk.path(&format!("ballast/{index}")), vec![1u8; byte_count]).is_ok() {
            index += 1;
        }
    }
    for arguments in [
        &["up", "--dir", &on_disk("new/data"), "--mount", &mount][..],
        &["mkfs", "--ost", "--index", "0", "--fsname", "f", "--mgsnode", "h@tcp", &on_disk("a/b/ost")],
    ] {
        refuse(&cluster, arguments, &["space"], Some(&disk.point))?;
    }
    let (outer, inner) = (context.work.join("outer"), context.work.join("outer/inner"));
    fs::create_dir(&outer)?;
    for (dir, point) in [(&inner, &outer), (&outer, &outer)] {
        let arguments = ["up", "--dir", &text(dir), "--mount", &text(point)];
        refuse(&cluster, &arguments, &["in each other"], Some(&outer))?;
    }
    let new = text(&context.work.join("new"));
    let long = context.work.join("l".repeat(100));
    for (run, word) in [(text(&long), "SHEEN_RUN"), ("/proc/nothing".to_owned(), "SHEEN_RUN")] {
        cluster.set_environment("SHEEN_RUN", &run);
        refuse(&cluster, &["up", "--dir", &new, "--mount", &mount], &[word], None)?;
        refuse(&cluster, &["serve", &text(&outer)], &[word], Some(&outer))?;
    }
    expect(!Path::new(&new).exists(), "no cluster was begun")
}

/// The same command twice at the same time: both work, or the second says why not.
fn two_at_once(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let twice = |command: &dyn Fn() -> std::process::Command| -> Result<Vec<Said>> {
        std::thread::scope(|scope| {
            let run = || {
                let mut command = command();
                scope.spawn(move || crate::bounded::say(&mut command, "SHEEN_TWICE=1", 2 * LIMIT))
            };
            let running = [run(), run()];
            let join = |thread: std::thread::ScopedJoinHandle<'_, std::io::Result<Said>>| {
                Ok(thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??)
            };
            running.into_iter().map(join).collect()
        })
    };
    for said in twice(&|| cluster.up_command())? {
        expect(said.is_success(), &format!("two `up` at once: {}", said.errors))?;
    }
    expect(cluster.mounts()?.len() == 1, "one mount")?;
    write(&cluster.mount.join("file"), b"x")?;
    for said in twice(&|| cluster.down_command())? {
        expect(said.is_success(), &format!("two `down` at once: {}", said.errors))?;
    }
    expect(crate::sweep::mounts_under(&cluster.mount).is_empty(), "down has unmounted")?;
    let target = context.work.join("ost");
    let mkfs = || {
        let mut command = cluster.command();
        command.args(["mkfs", "--ost", "--index", "0", "--fsname", "f", "--mgsnode", "h@tcp"]).arg(&target);
        command
    };
    let said = twice(&mkfs)?;
    expect(said.iter().any(Said::is_success), &format!("one of two mkfs works: {said:?}"))?;
    for failed in said.iter().filter(|said| !said.is_success()) {
        judge(failed, &["in use", "already"])?;
    }
    refuse(&cluster, &["mkfs", "--mgs", &text(&target)], &["already"], Some(&target))
}
