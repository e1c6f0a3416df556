//! Roots of nodes: mounts of an image, and overlays above them, while it changes and while their client is in trouble.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{Bench, Gate, LIMIT, letter, mount, pages, read_all, text};
use crate::case::{Context, expect, expect_eq, note, read, wait_until, write};
use crate::cluster::Cluster;
use crate::sys;

/// The root of a node as the initramfs makes it: an overlay, and above it `/usr` straight from the image. A file that is in use is replaced in
/// both. By itself the kernel's overlay would say ESTALE for the name.
pub fn overlay(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    let node = bench.node("node1")?.canonicalize()?;
    let root = Root::over(&node, &bench.cluster.point("root1")?, &bench.cluster.point("changes1")?)?;
    let holder = bench.hold(&node)?;
    let (direct, through) = (root.point.join("usr/bin/sh"), root.point.join("etc/pages"));
    let open = fs::File::open(&direct)?;
    expect_eq(read(&direct)?, b"#!\n".to_vec(), "before")?;
    expect_eq(letter(&through)?, b'0', "before")?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        // Whoever runs a program from there finds the old one or the new one, each time.
        let reader = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                let bytes = fs::read(&direct).context("straight from the image, while it is updated")?;
                expect(bytes == b"#!\n" || bytes.len() == 10, &format!("the old or the new: {bytes:?}"))?;
            }
            Ok(())
        });
        let update = || -> Result<()> {
            for round in b'1'..=b'4' {
                let in_use = (round == b'4').then(|| fs::File::open(&through)).transpose()?;
                for (name, bytes) in [("usr/bin/sh", vec![round; 10]), ("etc/pages", pages(round))] {
                    write(&bench.source.join("aside"), &bytes)?;
                    fs::rename(bench.source.join("aside"), bench.source.join(name))?;
                }
                bench.image("update", &["--from", &text(&bench.source), "--checksum"])?;
                expect_eq(read(&direct)?, vec![round; 10], "at once, although it is in use")?;
                if let Some(in_use) = in_use {
                    // The overlay has been told to forget once more since the update ended, and cannot forget this.
                    std::thread::sleep(Duration::from_secs(1));
                    expect_eq(
                        fs::read(&through).map_err(|error| error.raw_os_error()),
                        Err(Some(libc::ESTALE)),
                        "in use",
                    )?;
                    expect_eq(read_all(&in_use)?, pages(b'3'), "what was open")?;
                }
                wait_until(LIMIT, "the overlay follows", || {
                    Ok(letter(&through).is_ok_and(|letter| letter == round))
                })?;
            }
            Ok(())
        };
        let updated = update();
        is_over.store(true, Ordering::Relaxed);
        let Ok(seen) = reader.join() else { bail!("the reader panicked") };
        updated.and(seen)
    })?;
    expect_eq(read_all(&open)?, b"#!\n".to_vec(), "what was open")?;
    // What the node itself has changed hides the updates.
    write(&through, &pages(b'9'))?;
    bench.image("update", &["--from", &text(&bench.source), "--checksum"])?;
    expect_eq(letter(&through)?, b'9', "the node's own")?;
    expect_eq(letter(&bench.image.join("etc/pages"))?, b'4', "the image's")?;
    drop(open);
    holder.end()
}

/// An update that goes on for long says so again and again, and nodes see before its end what it has replaced.
pub fn long_update(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    let node = bench.node("node1")?.canonicalize()?;
    let root = Root::over(&node, &bench.cluster.point("root1")?, &bench.cluster.point("changes1")?)?;
    let holder = bench.hold(&node)?;
    let through = root.point.join("etc/pages");
    expect_eq(letter(&through)?, b'0', "before")?;

    let gate = Gate::new(&context.work)?;
    write(&bench.source.join("aside"), &pages(b'1'))?;
    fs::rename(bench.source.join("aside"), bench.source.join("etc/pages"))?;
    let mut command = bench.cluster.command();
    command.args(["image", "update", &text(&bench.image), "--checksum", "--from"]).arg(&bench.source);
    command.env("PATH", &gate.path);
    let mut update = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let seconds = || -> Result<Option<u64>> {
        Ok(bench.list()?.first().and_then(|image| image["changing_seconds"].as_u64()))
    };
    let followed = || -> Result<()> {
        wait_until(LIMIT, "it says that it goes on", || Ok(seconds()? >= Some(2)))?;
        expect_eq(letter(&node.join("etc/pages"))?, b'1', "straight from the image")?;
        wait_until(LIMIT, "the overlay follows", || Ok(letter(&through).is_ok_and(|letter| letter == b'1')))?;
        expect_eq(bench.list()?.first().map(|image| image["is_changing"] == true), Some(true), "it runs")
    };
    let followed = followed();
    gate.open()?;
    let ended = update.wait()?;
    followed?;
    expect(ended.success(), &format!("the update: {ended}"))?;
    let listed = bench.list()?;
    let mark = listed.first().context("an image")?;
    expect_eq(
        (mark["is_changing"].as_bool(), mark["changing_seconds"].as_u64(), mark["version"].as_u64()),
        (Some(false), Some(0), Some(2)),
        "afterwards",
    )?;
    holder.end()
}

/// Mounts of a node above that of the image, unmounted with it.
struct Root {
    point: PathBuf,
    changes: PathBuf,
}

impl Root {
    fn over(image: &Path, point: &Path, changes: &Path) -> Result<Root> {
        let root = Root { point: point.to_owned(), changes: changes.to_owned() };
        mount(&["-t", "tmpfs", "changes", &text(changes)])?;
        let (upper, work) = (changes.join("upper"), changes.join("work"));
        fs::create_dir(&upper)?;
        fs::create_dir(&work)?;
        let options = format!("lowerdir={},upperdir={},workdir={}", text(image), text(&upper), text(&work));
        mount(&["-t", "overlay", "-o", &options, "root", &text(point)])?;
        mount(&["--bind", &text(&image.join("usr")), &text(&point.join("usr"))])?;
        Ok(root)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for point in [&self.point.join("usr"), &self.point, &self.changes] {
            // What was not mounted need not go.
            let _ = sys::detach(point);
        }
    }
}

/// What `sheen health` says about overlays over a mount.
fn overlay_line(cluster: &Cluster, mount: &Path) -> Result<Option<String>> {
    let said = cluster.try_sheen(&["health", &text(mount)], Duration::from_secs(60))?;
    expect(said.output.contains("options"), &said.all())?;
    Ok(said.output.lines().find(|line| line.starts_with("yellow overlay ")).map(str::to_owned))
}

/// Servers throw the client out of which the root is made, and it comes back: an overlay, and what is bound over it, goes on too. A kernel that had
/// been told to drop all names would say ESTALE for ever.
pub fn evicted(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    let source = bench.cluster.source()?;
    for (index, word) in ["names=cached", "names=uncached", "x-initrd.mount"].into_iter().enumerate() {
        let [node, point, changes] = ["node", "root", "changes"].map(|name| format!("{name}{index}"));
        let node = bench.cluster.point(&node)?.canonicalize()?;
        let options = format!("transport={},ro,{word}", bench.cluster.transport());
        bench.cluster.sheen(&["mount", &format!("{source}/images/node"), &text(&node), "-o", &options])?;
        let root = Root::over(&node, &bench.cluster.point(&point)?, &bench.cluster.point(&changes)?)?;
        let is_warned =
            overlay_line(&bench.cluster, &node)?.is_some_and(|line| line.contains("names=uncached"));
        let is_harmed = word == "names=cached" && sys::kernel_version() >= (6, 16);
        expect_eq(
            is_warned,
            is_harmed,
            &format!("whether `sheen health` says what an overlay needs, {word}"),
        )?;
        if word == "names=cached" {
            continue;
        }
        let places = [root.point.join("usr/bin/sh"), root.point.join("etc/pages")];
        let before = places.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
        bench.evict_all()?;
        for (path, before) in places.iter().zip(before) {
            // The client hears of it with its next request or ping, and until then the kernel may say what it has.
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(100));
                let found = fs::read(path).with_context(|| format!("{word}: {}", path.display()))?;
                expect(found == before, "the same bytes")?;
            }
        }
    }
    drop(bench.cluster);
    Ok(())
}

/// systemd stops all processes of a machine that goes off, while it looks whom to kill; it may have to read its own program then.
pub fn stopped(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    let (point, source) = (bench.cluster.point("root1")?, bench.cluster.source()?);
    let options = format!("transport={},ro,x-initrd.mount", bench.cluster.transport());
    bench.cluster.sheen(&["mount", &format!("{source}/images/node"), &text(&point), "-o", &options])?;
    let mounts = bench.cluster.sheen(&["mounts"])?;
    let line = mounts.lines().find(|line| line.contains("root1")).context("the mount")?;
    let pid: i32 = line.rsplit_once("pid ").context("its process")?.1.trim().parse()?;
    expect_above_pressure(pid)?;
    for round in b'1'..=b'5' {
        write(&bench.source.join("aside"), &pages(round))?;
        fs::rename(bench.source.join("aside"), bench.source.join("etc/pages"))?;
        bench.image("update", &["--from", &text(&bench.source), "--checksum"])?;
        sys::kill(pid, libc::SIGSTOP)?;
        // Nobody has read this yet: only the client can answer.
        expect_eq(letter(&point.join("etc/pages"))?, round, "of a client that was stopped")?;
    }
    Ok(())
}

/// The kernel waits for no page of others when this process allocates, and kills it last.
fn expect_above_pressure(pid: i32) -> Result<()> {
    let Some(flags) = sys::io_flusher_flags()? else {
        note("memory pressure: this process may not say that it flushes (CAP_SYS_RESOURCE)");
        return Ok(());
    };
    expect(flags != 0, "the kernel says who flushes")?;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        let found = match sys::task_flags(&task.join("stat")) {
            // It has ended meanwhile.
            Err(_) if !task.exists() => continue,
            found => found?,
        };
        expect(found & flags == flags, &format!("{} flushes: {found:x}, {flags:x}", task.display()))?;
    }
    let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))?;
    expect_eq(score.trim(), "-1000", "how readily it is killed for want of memory")
}

/// A forced unmount of one place of the image, as systemd's last one of /usr, would end its client.
pub fn detached(context: &Context) -> Result<()> {
    let bench = Bench::new(context)?;
    bench.image("create", &["--from", &text(&bench.source)])?;
    let node = bench.node("node1")?.canonicalize()?;
    let root = Root::over(&node, &bench.cluster.point("root1")?, &bench.cluster.point("changes1")?)?;
    let place = bench.cluster.point("opt1")?;
    mount(&["--bind", &text(&node.join("etc")), &text(&place)])?;
    let busy = fs::File::open(place.join("pages"))?;
    bench.cluster.sheen(&["image", "detach", &text(&node)])?;
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mounted = |path: &Path| table.lines().any(|line| line.contains(&format!(" {} ", text(path))));
    expect(mounted(&node) && mounted(&root.point), &table)?;
    expect(!mounted(&root.point.join("usr")) && !mounted(&place), &table)?;
    // Nobody has read this yet, here or there.
    expect_eq(read(&root.point.join("usr/bin/sh"))?, b"#!\n".to_vec(), "through the overlay")?;
    expect_eq(read_all(&busy)?, pages(b'0'), "what was open")?;
    bench.refused(&["detach", &text(&node.join("etc"))], "is no image")?;
    // A second time there is nothing left to do.
    bench.cluster.sheen(&["image", "detach", &text(&node)]).map(drop)
}
