//! `sheen image`: what nodes boot from is old or new, whole, and never taken away from them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::case::{Bed, Case, Context, Suite, expect, expect_eq, names, read, wait_until, write};
use crate::cluster::{Cluster, Shape};
use crate::sys;

mod roots;

/// The suite.
pub static SUITE: Suite = Suite { name: "images", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "an_image_is_as_its_source", seconds: 120, run: create },
    Case { name: "debootstrap_makes_what_is_copied", seconds: 120, run: debootstrap },
    Case { name: "progress_is_for_terminals", seconds: 120, run: progress },
    Case { name: "files_change_whole_under_nodes_that_run", seconds: 120, run: in_place },
    Case { name: "a_root_with_an_overlay_follows_updates", seconds: 120, run: roots::overlay },
    Case {
        name: "a_root_with_an_overlay_outlives_its_client_being_thrown_out",
        seconds: 120,
        run: roots::evicted,
    },
    Case {
        name: "a_root_with_an_overlay_follows_an_update_that_runs",
        seconds: 120,
        run: roots::long_update,
    },
    Case { name: "the_client_of_a_root_goes_on_when_it_is_stopped", seconds: 120, run: roots::stopped },
    Case { name: "a_node_that_goes_off_has_the_image_in_one_place", seconds: 120, run: roots::detached },
    Case { name: "a_new_version_is_for_nodes_that_boot_next", seconds: 120, run: staged },
    Case { name: "an_image_in_use_is_not_removed", seconds: 120, run: in_use },
    Case { name: "a_command_that_was_killed_leaves_nothing_half", seconds: 400, run: killed },
    Case { name: "cold_read_bench", seconds: 180, run: cold_read_bench },
    Case { name: "a_node_that_was_thrown_out_holds_on", seconds: 120, run: holds_on },
    Case { name: "a_command_that_was_thrown_out_changes_no_more", seconds: 240, run: lost_lock },
    Case { name: "a_source_is_one_file_system", seconds: 120, run: one_file_system },
    Case { name: "wrong_words_change_nothing", seconds: 120, run: refused },
];

const LIMIT: Duration = Duration::from_secs(60);
/// For the copy of thousands of small files, on a machine whose disk is busy.
const COPY_LIMIT: Duration = Duration::from_secs(180);
const PAGES: usize = 64;
const PAGE: usize = 4096;

struct Bench {
    cluster: Cluster,
    source: PathBuf,
    images: PathBuf,
    image: PathBuf,
}

impl Bench {
    fn new(context: &Context) -> Result<Bench> {
        context.skip_if_local()?;
        if sys::effective_uid() != 0 {
            return crate::case::skip("only root gives files away");
        }
        let has_rsync = Command::new("rsync").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !has_rsync {
            return crate::case::skip("no rsync");
        }
        let shape = Shape { mdt_count: 2, ost_count: 2, is_split: true };
        let cluster = Cluster::new(&context.options, &context.work, shape)?;
        cluster.up()?;
        let source = context.work.join("source");
        make_root(&source)?;
        let images = cluster.mount.join("images");
        fs::create_dir(&images)?;
        let image = images.join("node");
        Ok(Bench { cluster, source, images, image })
    }

    /// `sheen image WORD IMAGE MORE…`
    fn image(&self, word: &str, more: &[&str]) -> Result<String> {
        self.cluster.sheen(&[&["image", word, &text(&self.image)], more].concat())
    }

    fn refused(&self, arguments: &[&str], words: &str) -> Result<()> {
        let said = self.cluster.try_sheen(&[&["image"], arguments].concat(), LIMIT)?;
        let status = said.end.status_code();
        expect(matches!(status, Some(1 | 2)), &format!("{arguments:?}: {}", said.all()))?;
        expect(said.errors.contains(words) && said.errors.lines().count() == 1, &said.all())
    }

    /// An update after one that was killed: its copy still runs for a moment, and until then the image is locked.
    fn update_when_free(&self, more: &[&str]) -> Result<()> {
        let (image, source) = (text(&self.image), text(&self.source));
        let arguments = [&["image", "update", &image, "--from", &source], more].concat();
        wait_until(COPY_LIMIT, "the copy of the killed command ends", || {
            let said = self.cluster.try_sheen(&arguments, COPY_LIMIT)?;
            let is_locked = said.errors.contains("another command changes the image");
            expect(said.is_success() || is_locked, &said.all())?;
            if is_locked {
                // A command at a time is enough to see when it is free.
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(said.is_success())
        })
    }

    fn list(&self) -> Result<Vec<Value>> {
        let said = self.cluster.sheen(&["image", "list", &text(&self.images), "--json"])?;
        serde_json::from_str(&said).with_context(|| format!("it says {said}"))
    }

    /// Versions of the image from the newest on: number, whether it is the current one, whether it is in use.
    fn versions(&self) -> Result<Vec<(u64, bool, bool)>> {
        let of = |stored: &Value| {
            let flag = |name: &str| stored[name].as_bool().context("a flag");
            Ok((stored["version"].as_u64().context("a version")?, flag("is_current")?, flag("is_in_use")?))
        };
        self.list()?.iter().map(of).collect()
    }

    /// MDTs throw all clients out, which come back.
    fn evict_all(&self) -> Result<()> {
        let evictions = || -> Result<u64> {
            let counts = self.cluster.sheen(&["lctl", "get_param", "-n", "mdt.*.eviction_count"])?;
            counts.lines().map(|line| line.trim().parse::<u64>().context("a count")).sum()
        };
        let before = evictions()?;
        for client in self.cluster.sheen(&["lctl", "get_param", "-n", "llite.*.uuid"])?.lines() {
            for mdt in ["MDT0000", "MDT0001"] {
                // A client that an MDT has never heard of cannot be thrown out there.
                let word = format!("mdt.*{mdt}.evict_client={client}");
                self.cluster.try_sheen(&["lctl", "set_param", &word], LIMIT)?;
            }
        }
        expect(evictions()? > before, "somebody was thrown out")
    }

    /// What a node has mounted as its root.
    fn node(&self, name: &str) -> Result<PathBuf> {
        let (point, source) = (self.cluster.point(name)?, self.cluster.source()?);
        let options = format!("transport={},ro,names=uncached", self.cluster.transport());
        let source = format!("{source}/images/node");
        self.cluster.sheen(&["mount", &source, &text(&point), "-o", &options])?;
        Ok(point)
    }

    /// A process that keeps a version in use as a node does.
    fn hold(&self, root: &Path) -> Result<Holder> {
        let mut command = self.cluster.command();
        command.args(["image", "hold"]).arg(root).stderr(Stdio::piped());
        let mut holder = Holder(command.spawn()?);
        let mut line = String::new();
        BufReader::new(holder.0.stderr.take().context("its words")?).read_line(&mut line)?;
        expect(line.contains("is held"), &line)?;
        Ok(holder)
    }
}

struct Holder(Child);

impl Holder {
    fn end(mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// What has the marks of a root, and one of everything.
fn make_root(root: &Path) -> Result<()> {
    for dir in ["usr/bin", "sbin", "etc", "dev"] {
        fs::create_dir_all(root.join(dir))?;
    }
    symlink("usr/bin", root.join("bin"))?;
    symlink("/nowhere/init", root.join("sbin/init"))?;
    write(&root.join("usr/bin/sh"), b"#!\n")?;
    fs::set_permissions(root.join("usr/bin/sh"), fs::Permissions::from_mode(0o4755))?;
    fs::hard_link(root.join("usr/bin/sh"), root.join("usr/bin/dash"))?;
    write(&root.join("etc/pages"), &pages(b'0'))?;
    std::os::unix::fs::chown(root.join("etc/pages"), Some(1234), Some(4321))?;
    sys::mknod(&root.join("dev/console"), libc::S_IFCHR | 0o600, libc::makedev(5, 1))?;
    sys::set_xattr(&root.join("etc/pages"), "user.mark", b"value", 0)?;
    Ok(())
}

/// A file that shows when it is torn.
fn pages(letter: u8) -> Vec<u8> {
    vec![letter; PAGES * PAGE]
}

/// The letter of a file that must be whole.
fn letter(path: &Path) -> Result<u8> {
    let bytes = read(path)?;
    let first = *bytes.first().context("an empty file")?;
    expect(bytes.len() == PAGES * PAGE && bytes.iter().all(|byte| *byte == first), "a torn file")?;
    Ok(first)
}

fn create(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    let said = bench.image("create", &["--from", &text(&bench.source)])?;
    expect(said.contains("version 1") && said.lines().count() == 1, &said)?;
    expect_eq(bench.versions()?, [(1, true, false)], "versions")?;
    let of = |path: &str| fs::symlink_metadata(bench.image.join(path));
    expect_eq(of("usr/bin/sh")?.mode() & 0o7777, 0o4755, "the mode")?;
    expect_eq(of("usr/bin/sh")?.ino(), of("usr/bin/dash")?.ino(), "a hard link")?;
    expect_eq((of("etc/pages")?.uid(), of("etc/pages")?.gid()), (1234, 4321), "the owner")?;
    expect_eq(of("dev/console")?.rdev(), libc::makedev(5, 1), "a device")?;
    expect_eq(sys::get_xattr(&bench.image.join("etc/pages"), "user.mark")?, b"value", "an xattr")?;
    expect_eq(fs::read_link(bench.image.join("sbin/init"))?, Path::new("/nowhere/init"), "a link")?;
    expect_eq(letter(&bench.image.join("etc/pages"))?, b'0', "contents")?;
    let listed = bench.list()?;
    let counts = listed.first().map(|it| (it["file_count"].as_u64(), it["total_bytes"].as_u64()));
    let (files, bytes) = counts.context("an image")?;
    // The root, usr, usr/bin, sbin, etc, dev, bin, init, sh, dash, pages, console.
    expect_eq(files, Some(12), "files")?;
    expect(bytes >= Some((PAGES * PAGE) as u64), "bytes")?;
    let said = bench.cluster.sheen(&["image", "list", &text(&bench.images)])?;
    expect(said.starts_with("node ") && said.contains("current") && said.contains("unused"), &said)?;
    // One hole, as a file has it in which each user has a place by number.
    let hole_bytes = 64 << 20;
    fs::File::create(bench.source.join("etc/hole"))?.set_len(hole_bytes)?;
    bench.image("update", &["--from", &text(&bench.source)])?;
    let found = fs::metadata(bench.image.join("etc/hole"))?;
    expect_eq(found.len(), hole_bytes, "bytes of the hole")?;
    expect(found.blocks() * 512 < hole_bytes / 8, &format!("{} blocks of the hole", found.blocks()))?;
    // One without holes comes in pieces as large as rsync makes them; a hole and bytes, and another name of them, stay what they are.
    write(&bench.source.join("etc/whole"), &vec![b'w'; 8 << 20])?;
    fs::OpenOptions::new()
        .write(true)
        .open(bench.source.join("etc/hole"))?
        .write_all_at(b"end", hole_bytes)?;
    fs::hard_link(bench.source.join("etc/hole"), bench.source.join("usr/hole"))?;
    bench.cluster.sheen(&["lctl", "set_param", "llite.*.stats=0"])?;
    bench.image("update", &["--staged", "--from", &text(&bench.source)])?;
    let said = bench.cluster.sheen(&["lctl", "get_param", "-n", "llite.*.stats"])?;
    let line = said.lines().find_map(|line| line.strip_prefix("write_bytes")).context("its writes")?;
    let write_count: u64 = line.split_whitespace().next().context("their count")?.parse()?;
    expect(write_count <= 64, &format!("{write_count} writes"))?;
    let found = fs::metadata(bench.image.join("etc/hole"))?;
    expect_eq((found.len(), found.ino()), (hole_bytes + 3, of("usr/hole")?.ino()), "the hole")?;
    expect(found.blocks() * 512 < hole_bytes / 8, &format!("{} blocks of the hole", found.blocks()))?;
    let mut end = [0; 3];
    fs::File::open(bench.image.join("usr/hole"))?.read_exact_at(&mut end, hole_bytes)?;
    expect_eq(&end, b"end", "what is behind the hole")
}

/// In the place of debootstrap(8): it writes down what it is told, and makes a root, or fails as the real one does.
const DEBOOTSTRAP: &str = "#!/bin/sh
echo \"$@\" >>ASKED
for word; do case $word in -*) ;; *) break ;; esac; shift; done
if [ \"$1\" = broken ]; then
    touch \"$2/half\"
    echo 'I: Retrieving InRelease'
    echo 'E: No such release' >&2
    exit 1
fi
cp -a SOURCE/. \"$2\"
echo 0123456789abcdef0123456789abcdef >\"$2/etc/machine-id\"
mkdir -p \"$2/var/lib/dbus\"
cp \"$2/etc/machine-id\" \"$2/var/lib/dbus\"
";

fn debootstrap(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    let (programs, temporary) = (context.work.join("programs"), context.work.join("temporary"));
    fs::create_dir(&programs)?;
    fs::create_dir(&temporary)?;
    let (program, asked) = (programs.join("debootstrap"), context.work.join("asked"));
    let script = DEBOOTSTRAP.replace("ASKED", &text(&asked)).replace("SOURCE", &text(&bench.source));
    write(&program, script.as_bytes())?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:{}", text(&programs), std::env::var("PATH")?);
    let create = |name: &str, words: &[&str]| {
        let mut command = bench.cluster.command();
        command.args(["image", "create"]).arg(bench.images.join(name)).args(words);
        command.env("PATH", &path).env("TMPDIR", &temporary).output()
    };
    let words = ["--debootstrap", "bookworm", "--include", "ssh,udev", "--mirror", "http://mirror/debian"];
    let said = create("node", &words)?;
    expect(said.status.success(), &String::from_utf8_lossy(&said.stderr))?;
    let told = String::from_utf8(read(&asked)?)?;
    let words: Vec<&str> = told.split_whitespace().collect();
    let [variant, include, suite, dir, mirror] = words[..] else { bail!("it was told {told}") };
    let options = (variant, include, suite, mirror);
    let wanted = ("--variant=minbase", "--include=systemd-sysv,ssh,udev", "bookworm", "http://mirror/debian");
    expect_eq(options, wanted, "what it was told")?;
    // On a local disk: dpkg makes every file durable.
    expect(Path::new(dir).starts_with(&temporary), dir)?;
    expect_eq(letter(&bench.image.join("etc/pages"))?, b'0', "contents")?;
    expect_eq(bench.versions()?, [(1, true, false)], "versions")?;
    // Nodes are not one machine.
    expect_eq(read(&bench.image.join("etc/machine-id"))?, Vec::<u8>::new(), "an identity")?;
    expect_eq(names(&bench.image.join("var/lib/dbus"))?, Vec::<String>::new(), "another place of it")?;

    let said = create("other", &["--debootstrap", "broken"])?;
    let errors = String::from_utf8_lossy(&said.stderr);
    expect(!said.status.success() && errors.contains("E: No such release"), &errors)?;
    expect_eq(errors.lines().count(), 1, "lines")?;
    expect_eq(names(&bench.images)?, [".node.lock", "node"], "images")?;
    expect_eq(names(&temporary)?, Vec::<String>::new(), "what it leaves behind")?;

    // Another process, of another host perhaps, has a directory of that name there.
    let script =
        "mkdir -p \"$TMPDIR/sheen-image-$$/mine\" && exec \"$0\" image create \"$1\" --debootstrap bookworm";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&context.options.sheen).arg(bench.images.join("other"));
    let ours = bench.cluster.command();
    command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let said = command.env("PATH", &path).env("TMPDIR", &temporary).output()?;
    let errors = String::from_utf8_lossy(&said.stderr);
    expect(!said.status.success() && errors.contains("cannot make"), &errors)?;
    let others = names(&temporary)?;
    let other = others.first().context("what was there is gone")?;
    expect_eq(names(&temporary.join(other))?, ["mine"], "what was there")
}

/// One line on a terminal, drawn again and again, and none elsewhere.
fn progress(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    let (program, image, source) = (text(&context.options.sheen), text(&bench.image), text(&bench.source));
    let create = format!("'{program}' image create '{image}' --from '{source}'");
    // script(1) has a terminal of its own for it.
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &create, "/dev/null"]).stdin(Stdio::null());
    let ours = bench.cluster.command();
    command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let Ok(said) = command.output() else { return crate::case::skip("no script(1)") };
    let shown = String::from_utf8_lossy(&said.stdout);
    expect(said.status.success() && shown.contains("version 1"), &shown)?;
    let is_whole = |line: &str| [" of 12 files, ", " KiB, ", "iB/s"].iter().all(|word| line.contains(word));
    expect(shown.split('\r').any(is_whole), &shown)?;

    write(&bench.source.join("etc/new"), b"new")?;
    let words = ["image", "update", &image, "--from", &source];
    let said = bench.cluster.try_sheen(&words, LIMIT)?;
    expect(said.is_success() && said.errors.is_empty() && said.output.lines().count() == 1, &said.all())
}

/// A node reads a file again and again while it is replaced, and a file that it has open stays what it was.
fn in_place(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    let node = bench.node("node1")?;
    let holder = bench.hold(&node)?;
    let open = fs::File::open(node.join("etc/pages"))?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let reader = scope.spawn(|| -> Result<Vec<u8>> {
            let mut seen = vec![letter(&node.join("etc/pages"))?];
            while !is_over.load(Ordering::Relaxed) {
                let now = letter(&node.join("etc/pages"))?;
                if seen.last() != Some(&now) {
                    seen.push(now);
                }
            }
            Ok(seen)
        });
        let update = || -> Result<()> {
            for round in b'1'..=b'5' {
                write(&bench.source.join("etc/pages"), &pages(round))?;
                fs::rename(bench.source.join("etc/pages"), bench.source.join("etc/aside"))?;
                write(&bench.source.join("etc/pages"), &pages(round))?;
                fs::remove_file(bench.source.join("etc/aside"))?;
                bench.image("update", &["--from", &text(&bench.source), "--checksum"])?;
                // At once: no cache of the node outlives the update.
                expect_eq(letter(&node.join("etc/pages"))?, round, "what the node sees")?;
            }
            Ok(())
        };
        let updated = update();
        is_over.store(true, Ordering::Relaxed);
        let Ok(seen) = reader.join() else { bail!("the reader panicked") };
        updated?;
        let seen = seen?;
        expect(seen.windows(2).all(|pair| pair[0] < pair[1]), &format!("in order: {seen:?}"))
    })?;
    expect(read_all(&open)? == pages(b'0'), "what was open before is what it was")?;

    write(&bench.source.join("etc/new"), b"new")?;
    fs::remove_file(bench.source.join("usr/bin/dash"))?;
    bench.image("update", &["--from", &text(&bench.source)])?;
    expect_eq(names(&node.join("etc"))?, ["new", "pages"], "what came")?;
    expect_eq(names(&node.join("usr/bin"))?, ["sh"], "what went")?;
    expect_eq(bench.versions()?, [(7, true, true)], "the node still holds it")?;
    holder.end()
}

fn staged(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    let old = bench.node("node1")?;
    let holder = bench.hold(&old)?;
    write(&bench.source.join("etc/pages"), &pages(b'1'))?;
    bench.image("update", &["--from", &text(&bench.source), "--staged"])?;
    expect_eq(letter(&old.join("etc/pages"))?, b'0', "a node that runs")?;
    let new = bench.node("node2")?;
    expect_eq(letter(&new.join("etc/pages"))?, b'1', "a node that boots now")?;
    expect_eq(bench.versions()?, [(2, true, false), (1, false, true)], "versions")?;
    let again = bench.hold(&new)?;
    expect_eq(bench.versions()?, [(2, true, true), (1, false, true)], "versions with a node each")?;
    again.end()?;

    bench.refused(&["remove", &text(&bench.image), "--version", "1"], "in use")?;
    bench.refused(&["remove", &text(&bench.image), "--version", "2"], "the current one")?;
    bench.refused(&["remove", &text(&bench.image), "--version", "3"], "has no version 3")?;
    expect_eq(letter(&old.join("etc/pages"))?, b'0', "after it was refused")?;
    holder.end()?;
    // Back again is an update from the older version.
    let before = bench.images.join(".node.1");
    bench.image("update", &["--from", &text(&before), "--staged"])?;
    expect_eq(letter(&bench.image.join("etc/pages"))?, b'0', "the contents before")?;
    for version in ["1", "2"] {
        bench.image("remove", &["--version", version])?;
    }
    expect_eq(bench.versions()?, [(3, true, false)], "what is left")?;
    expect_eq(names(&bench.images)?, [".node.lock", "node"], "in the directory")
}

/// The lock of a node ends with its client, however that ends.
fn in_use(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    let (point, pid) = bench.cluster.mount_elsewhere("node1")?;
    let holder = bench.hold(&point.join("images/node"))?;
    bench.refused(&["remove", &text(&bench.image)], "is in use")?;
    expect_eq(letter(&bench.image.join("etc/pages"))?, b'0', "after it was refused")?;
    sys::kill(pid, libc::SIGKILL)?;
    // It counts for as long as nobody waits for its lock.
    bench.image("remove", &[])?;
    expect_eq(names(&bench.images)?, [".node.lock"], "what is left")?;
    // Its lock went with its client.
    drop(holder);
    // What was removed can be made again.
    bench.image("create", &["--from", &text(&bench.source)]).map(drop)
}

/// An eviction takes the lock of a node away at both ends. It takes it again.
fn holds_on(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    let node = bench.node("node1")?;
    let holder = bench.hold(&node)?;
    bench.evict_all()?;
    wait_until(LIMIT, "the node holds its version again", || {
        Ok(bench.versions()?.first().is_some_and(|(_, _, is_in_use)| *is_in_use))
    })?;
    bench.refused(&["remove", &text(&bench.image)], "is in use")?;
    expect_eq(letter(&node.join("etc/pages"))?, b'0', "after it was refused")?;
    holder.end()?;
    bench.image("remove", &[]).map(drop)
}

fn mount(arguments: &[&str]) -> Result<()> {
    let said = Command::new("mount").args(arguments).output()?;
    expect(said.status.success(), &format!("mount {arguments:?}: {}", String::from_utf8_lossy(&said.stderr)))
}

fn read_all(mut file: &fs::File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// An rsync that has copied everything and does not end before its gate is gone; with a word beside the gate it fails then.
struct Gate {
    path: String,
    gate: PathBuf,
}

impl Gate {
    fn new(home: &Path) -> Result<Gate> {
        let (programs, gate) = (home.join("programs"), home.join("gate"));
        fs::create_dir_all(&programs)?;
        write(&gate, b"")?;
        let found = Command::new("sh").args(["-c", "command -v rsync"]).output()?;
        let real = String::from_utf8(found.stdout)?;
        let (real, shut) = (real.trim(), text(&gate));
        let script = format!(
            "#!/bin/sh\n'{real}' \"$@\"\nstatus=$?\nwhile [ -e '{shut}' ]; do sleep 0.05; done\n\
            [ ! -e '{shut}.fails' ] || exit 1\nexit $status\n"
        );
        write(&programs.join("rsync"), script.as_bytes())?;
        fs::set_permissions(programs.join("rsync"), fs::Permissions::from_mode(0o755))?;
        Ok(Gate { path: format!("{}:{}", text(&programs), std::env::var("PATH")?), gate })
    }

    fn fail(&self) -> Result<()> {
        write(&PathBuf::from(format!("{}.fails", text(&self.gate))), b"")?;
        self.open()
    }

    fn open(&self) -> Result<()> {
        Ok(fs::remove_file(&self.gate)?)
    }
}

/// Its lock went with its client's, and the next command is at work already, or was, when it wants to go on.
fn lost_lock(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    let half = bench.images.join(".node.new/etc/pages");
    // A command whose copy has made the file as it is now.
    let begin = |gate: &Gate, page: u8| -> Result<Holder> {
        write(&bench.source.join("etc/pages"), &pages(page))?;
        let mut command = bench.cluster.command();
        command.args(["image", "update", &text(&bench.image), "--staged", "--from"]).arg(&bench.source);
        command.env("PATH", &gate.path).stdout(Stdio::null()).stderr(Stdio::piped());
        let begun = Holder(command.spawn()?);
        wait_until(LIMIT, "the copy", || Ok(letter(&half).is_ok_and(|letter| letter == page)))?;
        Ok(begun)
    };
    let end = |mut command: Holder| -> Result<(bool, String)> {
        let mut said = String::new();
        command.0.stderr.take().context("its words")?.read_to_string(&mut said)?;
        Ok((command.0.wait()?.success(), said))
    };
    let gates = ["one", "two", "three"].map(|name| Gate::new(&context.work.join(name)));
    let [one, two, three] = gates;
    let (one, two, three) = (one?, two?, three?);

    let first = begin(&one, b'1')?;
    bench.evict_all()?;
    let second = begin(&two, b'2')?;
    one.fail()?;
    let (is_done, said) = end(first)?;
    expect(!is_done && said.contains("cannot copy"), &said)?;
    expect_eq(letter(&half)?, b'2', "what the second command makes")?;
    two.open()?;
    let (is_done, said) = end(second)?;
    expect(is_done, &said)?;
    expect_eq(letter(&bench.image.join("etc/pages"))?, b'2', "of the second command")?;

    let third = begin(&three, b'3')?;
    bench.evict_all()?;
    write(&bench.source.join("etc/pages"), &pages(b'4'))?;
    bench.update_when_free(&["--staged"])?;
    three.open()?;
    let (is_done, said) = end(third)?;
    expect(!is_done && said.contains("was lost") && said.lines().count() == 1, &said)?;
    expect_eq(letter(&bench.image.join("etc/pages"))?, b'4', "of the last command")?;
    let versions = [(3, true, false), (2, false, false), (1, false, false)];
    expect_eq(bench.versions()?, versions, "versions")?;
    expect_eq(names(&bench.images)?, [".node.1", ".node.2", ".node.lock", "node"], "in the directory")
}

/// What is on another file system is not copied: a root without it is refused, and of all else the operator hears.
fn one_file_system(context: &Context) -> Result<()> {
    struct Other(PathBuf);
    impl Drop for Other {
        fn drop(&mut self) {
            // It may be unmounted already.
            let _ = sys::detach(&self.0);
        }
    }
    let bench = Bench::new(context)?;
    let source = text(&bench.source);
    let other = |name: &str| -> Result<Other> {
        let place = bench.source.canonicalize()?.join(name);
        mount(&["-t", "tmpfs", "other", &text(&place)])?;
        Ok(Other(place))
    };
    let usr = other("usr")?;
    fs::create_dir(usr.0.join("bin"))?;
    write(&usr.0.join("bin/sh"), b"#!\n")?;
    bench.refused(&["create", &text(&bench.image), "--from", &source], "is on another file system")?;
    expect(!bench.image.exists(), "nothing was made")?;
    drop(usr);

    for dir in ["srv", "run"] {
        fs::create_dir(bench.source.join(dir))?;
    }
    let (srv, _run) = (other("srv")?, other("run")?);
    write(&srv.0.join("file"), b"x")?;
    write(&bench.source.join("etc/fstab"), b"UUID=1 / ext4 defaults 0 1\nUUID=2 /home ext4 defaults 0 2\n")?;
    let said =
        bench.cluster.try_sheen(&["image", "create", &text(&bench.image), "--from", &source], LIMIT)?;
    expect(said.is_success(), &said.all())?;
    let lines: Vec<&str> = said.errors.lines().collect();
    let [left_out, disks] = lines[..] else { bail!("it says {}", said.all()) };
    expect(left_out.contains("not copied") && left_out.ends_with(&text(&srv.0)), left_out)?;
    expect(disks.contains("etc/fstab") && disks.ends_with(": /home"), disks)?;
    expect_eq(names(&bench.image.join("srv"))?, Vec::<String>::new(), "of the other file system")
}

fn killed(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    let half = bench.images.join(".node.new");
    fs::create_dir(&half)?;
    write(&half.join("rest"), b"of a create")?;
    let images = text(&bench.images);
    let said = bench.cluster.sheen(&["image", "list", &images])?;
    expect(said.contains("node") && said.contains("incomplete: a command was broken off"), &said)?;
    let left = bench.list()?;
    expect(left.len() == 1 && left.iter().all(|left| left["is_incomplete"] == true), &format!("{left:?}"))?;
    bench.cluster.sheen(&["image", "clean", &images])?;
    expect(!half.exists() && bench.list()?.is_empty(), "nothing is left")?;
    fs::create_dir(&half)?;
    write(&half.join("rest"), b"of a create")?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    expect_eq(names(&bench.images)?, [".node.lock", "node"], "after a create")?;
    // Killed while rsync runs: nodes that boot get the old version.
    for index in 0..2000 {
        write(&bench.source.join(format!("etc/{index}")), b"x")?;
    }
    let mut command = bench.cluster.command();
    command.args(["image", "update", &text(&bench.image), "--staged", "--from"]).arg(&bench.source);
    let mut update = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn()?;
    wait_until(LIMIT, "the copy", || Ok(half.join("etc").is_dir()))?;
    update.kill()?;
    update.wait()?;
    expect_eq(names(&bench.image.join("etc"))?, ["pages"], "a node that boots now")?;
    bench.update_when_free(&["--staged"])?;
    expect_eq(names(&bench.image.join("etc"))?.len(), 2001, "after it was run again")?;
    expect_eq(bench.versions()?, [(2, true, false), (1, false, false)], "versions")?;

    // In place: partly done, which the list says; each file is old or new.
    for index in 0..2000 {
        write(&bench.source.join(format!("etc/{index}")), b"newer")?;
    }
    let mut command = bench.cluster.command();
    command.args(["image", "update", &text(&bench.image), "--from"]).arg(&bench.source);
    let mut update = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let is_changing = || Ok(bench.list()?.first().is_some_and(|image| image["is_changing"] == true));
    wait_until(LIMIT, "the update is at it", is_changing)?;
    update.kill()?;
    update.wait()?;
    for index in 0..2000 {
        let bytes = read(&bench.image.join(format!("etc/{index}")))?;
        expect(bytes == b"x" || bytes == b"newer", &format!("etc/{index} is torn: {bytes:?}"))?;
    }
    let said = bench.cluster.sheen(&["image", "list", &text(&bench.images)])?;
    expect(said.lines().any(|line| line.ends_with("or was broken off")), &said)?;
    bench.update_when_free(&[])?;
    expect(!is_changing()?, "it is whole")?;
    for index in 0..2000 {
        expect_eq(
            read(&bench.image.join(format!("etc/{index}")))?,
            b"newer".to_vec(),
            "after it was run again",
        )?;
    }
    Ok(())
}

/// `sheen bench image`: what it counts, with few mounts. Its times are not looked at.
fn cold_read_bench(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    // Two names of one file are read once, by a client that keeps what it has read.
    fs::remove_file(bench.source.join("usr/bin/dash"))?;
    let place = bench.cluster.point("bench")?;
    let (dir, from) = (text(&place), text(&bench.source));
    let transport = context.options.transport.word();
    let words =
        ["bench", "image", &dir, "--from", &from, "--clients", "3", "-n", "2", "--json", "--transport"];
    let said = bench.cluster.sheen(&[&words[..], &[transport]].concat())?;
    let report: Value = serde_json::from_str(&said).with_context(|| format!("it says {said}"))?;
    // sh and pages; usr, usr/bin, sbin, etc, dev, bin, init, console.
    expect_eq(report["image"]["file_count"].as_u64(), Some(2), "files")?;
    expect_eq(report["image"]["other_count"].as_u64(), Some(8), "other names")?;
    let total_bytes = (PAGES * PAGE) as u64 + 3;
    expect_eq(report["image"]["total_bytes"].as_u64(), Some(total_bytes), "bytes")?;
    let figure = |name: &str| report["figures"][name].clone();
    let least = |name: &str| figure(name)["min"].as_f64().with_context(|| format!("{name}: {said}"));
    for name in ["seconds", "mdt_cpu_seconds", "ost_cpu_seconds", "from_memory_percent"] {
        expect_eq(figure(name)["n"].as_u64(), Some(2), name)?;
    }
    // Each reads all of it from the servers, in every round: nothing was left in a cache of a client.
    let wanted = total_bytes as f64 / f64::from(1 << 20);
    expect(least("served_mib_per_client")? >= wanted, &said)?;
    expect(least("ost_requests_per_client")? >= 2.0, &said)?;
    expect(least("mdt_requests_per_client")? >= 5.0, &said)?;
    expect(least("from_memory_percent")? <= 100.0, &said)?;
    expect_eq(names(&place)?, Vec::<String>::new(), "what it leaves behind")?;

    let mine = bench.cluster.point("mine")?;
    write(&mine.join("mine"), b"x")?;
    let words = ["bench", "image", &text(&mine), "--from", &from];
    let said = bench.cluster.try_sheen(&words, LIMIT)?;
    expect(!said.is_success() && said.errors.contains("is not empty"), &said.all())?;
    expect_eq(names(&mine)?, ["mine"], "what was there")
}

fn refused(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    let (source, image) = (text(&bench.source), text(&bench.image));
    bench.image("create", &["--from", &source])?;
    let before = names(&bench.images)?;
    let at = |name: &str| text(&bench.images.join(name));
    bench.refused(&["create", &image, "--from", &source], "is there already")?;
    bench.refused(&["create", &at("a b"), "--from", &source], "no name of an image")?;
    bench.refused(&["create", &at("other")], "--from")?;
    bench.refused(&["create", &at("none/other"), "--from", &source], "make it first")?;
    bench.refused(&["create", &text(&context.work.join("other")), "--from", &source], "not on SheenFS")?;
    bench.refused(&["update", &at("other"), "--from", &source], "is no image")?;
    bench.refused(&["update", &image, "--from", &text(&bench.images)], "not the root of a machine")?;
    bench.refused(&["update", &image, "--from", &image], "lie in each other")?;
    bench.refused(&["update", &image, "--from", "/does/not/exist"], "cannot read")?;
    bench.refused(&["list", &text(&context.work)], "not on SheenFS")?;
    bench.refused(&["remove", &at("other")], "is no image")?;
    bench.refused(&["hold", &text(&bench.images)], "is no image")?;
    let local = bench.cluster.mount_with("local", "localflock")?;
    let at_local = |name: &str| text(&local.join("images").join(name));
    bench.refused(&["update", &at_local("node"), "--from", &source], "localflock")?;
    bench.refused(&["remove", &at_local("node")], "localflock")?;
    bench.refused(&["list", &text(&local.join("images"))], "localflock")?;
    bench.refused(&["hold", &at_local("node")], "localflock")?;
    let lock = fs::File::open(bench.images.join(".node.lock"))?;
    lock.lock()?;
    bench.refused(&["update", &image, "--from", &source], "another command")?;
    drop(lock);
    write(&bench.image.join(".sheen/image.json"), b"{")?;
    bench.refused(&["update", &image, "--from", &source], "is damaged")?;
    let without_locks = |names: Vec<String>| names.into_iter().filter(|name| !name.ends_with(".lock"));
    let (before, after): (Vec<_>, Vec<_>) =
        (without_locks(before).collect(), without_locks(names(&bench.images)?).collect());
    expect_eq(after, before, "nothing was changed")?;
    expect_eq(letter(&bench.image.join("etc/pages"))?, b'0', "contents")?;
    // It can be told, held and removed all the same.
    let said = bench.cluster.sheen(&["image", "list", &text(&bench.images)])?;
    expect(said.starts_with("node ") && said.contains("damaged"), &said)?;
    expect_eq(bench.list()?.first().map(|image| image["is_damaged"] == true), Some(true), "damaged")?;
    let holder = bench.hold(&bench.image)?;
    bench.refused(&["remove", &image], "is in use")?;
    holder.end()?;
    bench.image("remove", &[])?;
    expect(!bench.image.exists() && bench.list()?.is_empty(), "it is gone")
}
