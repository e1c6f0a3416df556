//! Access times of what is run and of what is mapped: an access each, when the process ends, or the mapping goes.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{LIMIT, start, stop};
use crate::case::{Context, expect, expect_eq, note, wait_until, write};
use crate::cluster::Cluster;
use crate::sys::{MapKind, Mapping};

/// What is run, and what is mapped.
const NAMES: [&str; 3] = ["program", "shared", "private"];
const MAPPED_BYTES: usize = 4096;
/// A close of what was only read is told within a second: by then it would have been seen.
const TOLD: Duration = Duration::from_secs(2);
const USE_COUNT: u64 = 10;
/// Whoever else drops caches on this machine costs a mount requests; nobody does so all the time: this many of the attempts have none, before
/// as many have some.
const MOST_COUNT: usize = 2;

/// Mounts by their rule, and one that looks on.
struct Bed {
    cluster: Cluster,
    strict: PathBuf,
    relative: PathBuf,
    never: PathBuf,
}

type Times = [(i64, i64); 3];

fn map(point: &Path, name: &str, kind: MapKind) -> Result<Mapping> {
    let file = File::open(point.join(name))?;
    let map = Mapping::new(&file, kind, MAPPED_BYTES)?;
    // The descriptor is gone before anything is read.
    drop(file);
    expect_eq(map.read(0, 6), b"mapped".to_vec(), "what is mapped")?;
    Ok(map)
}

impl Bed {
    fn new(context: &Context) -> Result<Bed> {
        let cluster = start(context)?;
        fs::copy("/bin/sleep", cluster.mount.join("program")).context("a copy of sleep(1)")?;
        for name in ["shared", "private"] {
            write(&cluster.mount.join(name), &[&b"mapped"[..], &[0; MAPPED_BYTES]].concat())?;
        }
        let strict = cluster.mount_with("strict", "strictatime")?;
        let relative = cluster.mount_with("relative", "relatime")?;
        let never = cluster.mount_with("never", "noatime")?;
        Ok(Bed { cluster, strict, relative, never })
    }

    /// What the mount sees that only looks on.
    fn seen(&self) -> Result<Times> {
        let mut times = Times::default();
        for (time, name) in times.iter_mut().zip(NAMES) {
            let meta = fs::metadata(self.cluster.mount.join(name))?;
            *time = (meta.atime(), meta.atime_nsec());
        }
        Ok(times)
    }

    fn use_all(&self, point: &Path) -> Result<()> {
        let said = self.cluster.say(Command::new(point.join("program")).arg("0"))?;
        expect(said.is_success(), &format!("running a program: {}", said.all()))?;
        drop(map(point, "shared", MapKind::SharedRead)?);
        let private = map(point, "private", MapKind::PrivateWrite)?;
        private.write(0, b"stored");
        Ok(())
    }

    fn rise(&self, before: &Times, what: &str) -> Result<()> {
        wait_until(LIMIT, what, || {
            let seen = self.seen()?;
            Ok(seen.iter().zip(before).all(|(seen, before)| seen > before))
        })
    }

    fn use_and_rise(&self, point: &Path, what: &str) -> Result<()> {
        let before = self.seen()?;
        self.use_all(point)?;
        self.rise(&before, what)
    }

    fn use_and_stay(&self, point: &Path, what: &str) -> Result<()> {
        let before = self.seen()?;
        self.use_all(point)?;
        std::thread::sleep(TOLD);
        expect_eq(self.seen()?, before, what)
    }

    /// While a program runs and a mapping is there, nobody has read anything yet.
    fn held(&self) -> Result<()> {
        let before = self.seen()?;
        let mut running = Command::new(self.strict.join("program")).arg("1000").spawn()?;
        let maps = map(&self.strict, "shared", MapKind::SharedRead)
            .and_then(|shared| Ok((shared, map(&self.strict, "private", MapKind::PrivateWrite)?)));
        std::thread::sleep(TOLD);
        let held = self.seen();
        running.kill()?;
        running.wait()?;
        drop(maps?);
        expect_eq(held?, before, "while a program runs and mappings are there")?;
        self.rise(&before, "after the end of a program and of mappings")
    }

    /// A listing counts for the directory, but with nodiratime, which says nothing of files.
    fn directories(&self) -> Result<()> {
        let apart = self.cluster.mount_with("apart", "strictatime,nodiratime")?;
        let top = self.cluster.mount.join("dir");
        fs::create_dir(&top)?;
        let seen = || -> Result<(i64, i64)> {
            let meta = fs::metadata(&top)?;
            Ok((meta.atime(), meta.atime_nsec()))
        };
        let (made, before) = (seen()?, self.seen()?);
        fs::read_dir(apart.join("dir"))?.for_each(drop);
        self.use_all(&apart)?;
        self.rise(&before, "files with nodiratime")?;
        expect_eq(seen()?, made, "a directory with nodiratime")?;
        fs::read_dir(self.strict.join("dir"))?.for_each(drop);
        // With the next request that goes to the MDT anyway, a ping at the latest.
        wait_until(LIMIT, "a listing with strictatime", || Ok(seen()? > made))?;
        self.cluster.unmount(&apart)?;
        let leaving = self.cluster.mount_with("leaving", "strictatime")?;
        for _ in 0..2 {
            fs::read_dir(leaving.join("dir"))?.for_each(drop);
        }
        let read = fs::metadata(leaving.join("dir"))?;
        self.cluster.unmount(&leaving)?;
        expect_eq(seen()?, (read.atime(), read.atime_nsec()), "a listing just before an unmount")
    }

    /// Requests of a mount by their kinds, without those that time alone brings.
    fn requests(&self, point: &Path) -> Result<BTreeMap<String, u64>> {
        let text = self.cluster.sheen(&["metrics"])?;
        let mount = format!("mount=\"{}\"", point.display());
        let of_mount = text
            .lines()
            .filter(|line| line.starts_with("sheen_mount_requests_total{") && line.contains(&mount));
        let mut requests = BTreeMap::new();
        for line in of_mount {
            let kind = line.split("request=\"").nth(1).and_then(|rest| rest.split('"').next());
            let count = line.rsplit(' ').next().and_then(|word| word.parse::<f64>().ok());
            let (kind, count) = kind.zip(count).with_context(|| line.to_owned())?;
            if kind != "obd_ping" {
                requests.insert(kind.to_owned(), count as u64);
            }
        }
        expect(!requests.is_empty(), &format!("requests of {mount} in {text}"))?;
        Ok(requests)
    }

    /// What so many uses cost, when everything is known.
    fn cost(&self, point: &Path) -> Result<BTreeMap<String, u64>> {
        self.use_all(point)?;
        std::thread::sleep(TOLD);
        let before = self.requests(point)?;
        for _ in 0..USE_COUNT {
            self.use_all(point)?;
        }
        std::thread::sleep(TOLD);
        let mut cost = self.requests(point)?;
        for (kind, count) in &mut cost {
            *count -= before.get(kind).copied().unwrap_or_default();
        }
        cost.retain(|_, count| *count > 0);
        println!("{}: {cost:?}", point.display());
        Ok(cost)
    }

    /// Uses cost their opens and closes, and nothing else.
    fn check_cost(&self, point: &Path) -> Result<()> {
        let is_own = |kind: &String| kind == "mds_open" || kind == "mds_close";
        let (mut own, mut others) = (Vec::new(), Vec::new());
        while own.len() < MOST_COUNT && others.len() < MOST_COUNT {
            let cost = self.cost(point)?;
            if cost.keys().all(is_own) { own.push(cost) } else { others.push(cost) }
        }
        if !others.is_empty() {
            note(&format!("{}: requests beside opens and closes: {others:?}", point.display()));
        }
        expect(others.len() < MOST_COUNT, &format!("requests beside opens and closes: {others:?}"))?;
        own.iter().try_for_each(|cost| Bed::check_own(point, cost))
    }

    fn check_own(point: &Path, cost: &BTreeMap<String, u64>) -> Result<()> {
        let of = |kind: &str| cost.get(kind).copied().unwrap_or_default();
        expect_eq(of("mds_open"), 3 * USE_COUNT, &format!("opens of {}", point.display()))?;
        // How many closes go together depends on how quick the machine is.
        expect(of("mds_close") <= 3 * USE_COUNT, &format!("closes in {cost:?}"))
    }
}

pub fn run(context: &Context) -> Result<()> {
    let bed = Bed::new(context)?;
    bed.use_and_stay(&bed.never, "with noatime")?;
    bed.use_and_rise(&bed.strict, "the first time with strictatime")?;
    bed.use_and_rise(&bed.strict, "the second time with strictatime")?;
    bed.use_and_stay(&bed.relative, "not changed since, with relatime")?;
    for name in NAMES {
        fs::set_permissions(bed.cluster.mount.join(name), Permissions::from_mode(0o700))?;
    }
    bed.use_and_rise(&bed.relative, "changed since, with relatime")?;
    bed.held()?;
    bed.directories()?;
    let private = fs::read(bed.cluster.mount.join("private"))?;
    expect(private.starts_with(b"mapped"), "what was stored privately is seen by nobody")?;
    for point in [&bed.never, &bed.relative, &bed.strict] {
        bed.check_cost(point)?;
    }
    stop(bed.cluster)
}
