//! Which operations run, and which run together.

use crate::model::{Op, Path};
use base::{Layout, PoolName, Rng};
use std::collections::{BTreeMap, BTreeSet};
use wire::{ComponentHint, LayoutHint};

const DIRS: [&str; 3] = ["d0", "d1", "d2"];
const FILES: [&str; 4] = ["f0", "f1", "f2", "f3"];
pub const XATTRS: [&str; 2] = ["user.a", "trusted.b"];
pub const SLOTS: usize = 3;
/// Handles from this one on are for reading only.
pub const FIRST_READING_SLOT: usize = 10;
const READING_SLOTS: usize = 2;
/// Writes stay below this, so that the model stays small; it spans several stripe units of the smallest size.
const FILE_BYTES_MAX: u64 = 300_000;

pub struct Workload<'a> {
    pub rng: &'a mut Rng,
    /// What the processes have open, by client and slot.
    pub open: &'a BTreeSet<(usize, usize)>,
    /// A name of a file that another client has open and that is cut off with it.
    pub hot: Option<&'a Path>,
    /// A name of a file that another client has open, and writes perhaps.
    pub written: Option<Path>,
    /// Handles of files that have no name any more.
    pub nameless: &'a BTreeSet<(usize, usize)>,
    /// What another client has moved in the round before, from and to: the same, if it went to another MDT under its name.
    pub moved: Option<&'a (Path, Path)>,
    /// A name of a file that another client has written to in the round before.
    pub just_written: Option<&'a Path>,
    /// A name that everybody is at.
    pub storm: Option<&'a Path>,
    /// Clients that cannot reach an MDT: what needs it would wait to the end of the cut.
    pub cut_off: &'a BTreeSet<usize>,
    /// Some OSTs are full and others are not.
    pub is_partly_full: bool,
    /// Nothing has happened yet.
    pub is_first: bool,
    pub mdt_count: u16,
    pub busy_slots: Vec<(usize, usize)>,
    /// What clients do next with files that they have just made, the next one last.
    pub planned: &'a mut BTreeMap<usize, Vec<Op>>,
}

pub const LAYOUT_COUNT: usize = 10;
pub const FIRST_LAYOUT_ON_MDT: usize = 8;

/// Layouts whose borders are where the workload writes; the first one is the MDT's own.
pub fn layout(index: usize) -> LayoutHint {
    let part = |end_bytes: Option<u64>, stripe_size_bytes: u32, stripe_count: u16| ComponentHint {
        end_bytes,
        stripe_size_bytes: Some(stripe_size_bytes),
        stripe_count: Some(stripe_count),
        ..ComponentHint::default()
    };
    let on_mdt =
        |end_bytes: u64| ComponentHint { osts: vec![Layout::ON_MDT], ..part(Some(end_bytes), 65_536, 1) };
    let pooled = |component| ComponentHint { pool: Some(pool_name()), ..component };
    const UNIT: u64 = 65_536;
    let unit = UNIT as u32;
    let components = match index {
        1 => vec![part(None, unit, u16::MAX)],
        2 => vec![part(Some(UNIT), unit, 1), part(None, unit, u16::MAX)],
        3 => vec![part(Some(UNIT), unit, 1), part(Some(3 * UNIT), unit, 2), part(None, 2 * unit, 1)],
        4 => vec![part(Some(2 * UNIT), 2 * unit, 1), part(None, unit, 2)],
        // It ends behind what is written.
        5 => vec![part(Some(UNIT), unit, 2), part(Some(64 * UNIT), unit, 1)],
        6 => vec![pooled(part(None, unit, u16::MAX))],
        7 => vec![part(Some(UNIT), unit, u16::MAX), pooled(part(None, unit, 1))],
        8 => vec![on_mdt(UNIT), part(None, unit, u16::MAX)],
        9 => vec![on_mdt(3 * UNIT), part(None, 2 * unit, 1)],
        _ => Vec::new(),
    };
    LayoutHint { components }
}

/// A pool that the cluster has, of some of its OSTs.
pub fn pool_name() -> PoolName {
    let name = "some".parse();
    name.unwrap_or_else(|error| unreachable!("{error}"))
}

/// A name for a file, in the root or in one of the directories that come and go.
pub fn any_file(rng: &mut Rng) -> Path {
    let mut path = if rng.one_in(2) { Vec::new() } else { vec![pick(rng, &DIRS)] };
    path.push(pick(rng, &FILES));
    path
}

/// The kernel finds the directories first: with one of them moved away in between, a rename upwards moves what the path did not lead to
/// any more.
fn rename(from: Path, to: Path, flags: u32) -> Op {
    let is_upwards = from.len() > to.len() && from.starts_with(&to);
    if is_upwards { Op::Stat { path: from } } else { Op::Rename { from, to, flags } }
}

fn pick(rng: &mut Rng, from: &[&str]) -> String {
    rng.pick(from).map_or(String::new(), |name| (*name).to_string())
}

impl Workload<'_> {
    fn pick(&mut self, from: &[&str]) -> String {
        pick(self.rng, from)
    }

    fn directory(&mut self) -> Path {
        match self.rng.below(8) {
            0..4 => Vec::new(),
            4..7 => vec![self.pick(&DIRS)],
            _ => vec![self.pick(&DIRS), self.pick(&DIRS)],
        }
    }

    fn file(&mut self) -> Path {
        let mut path = self.directory();
        path.push(self.pick(&FILES));
        path
    }

    fn dir(&mut self) -> Path {
        let mut path = self.directory();
        path.truncate(1);
        path.push(self.pick(&DIRS));
        path
    }

    fn any(&mut self) -> Path {
        match self.rng.below(10) {
            0..6 => self.file(),
            6..9 => self.dir(),
            _ => vec!["s0".to_string()],
        }
    }

    fn offset(&mut self) -> u64 {
        let unit = 65_536;
        match self.rng.below(4) {
            0 => 0,
            1 => self.rng.below(4000),
            2 => unit * self.rng.below(4),
            _ => self.rng.below(FILE_BYTES_MAX),
        }
    }

    fn byte_count(&mut self, offset: u64) -> u64 {
        let wanted = match self.rng.below(5) {
            0..3 => 1 + self.rng.below(8000),
            3 => 65_536,
            _ => 1 + self.rng.below(150_000),
        };
        wanted.min(FILE_BYTES_MAX.saturating_sub(offset)).max(1)
    }

    /// A handle of this client that is open, and not in use by another operation of the round.
    fn open_slot(&mut self, client: usize) -> Option<usize> {
        let busy = &self.busy_slots;
        let open = self.open.range((client, 0)..(client + 1, 0)).filter(|key| !busy.contains(key));
        let open: Vec<usize> = open.map(|(_, slot)| *slot).collect();
        // Late data of a file that goes with its last close are the ones that may make its objects again.
        let nameless = open.iter().find(|slot| self.nameless.contains(&(client, **slot))).copied();
        if nameless.is_some() && self.rng.one_in(2) { nameless } else { self.rng.pick(&open).copied() }
    }

    fn free_slot(&mut self, client: usize) -> Option<usize> {
        let is_free = |slot: &usize| {
            !self.open.contains(&(client, *slot)) && !self.busy_slots.contains(&(client, *slot))
        };
        (0..SLOTS).find(is_free)
    }

    /// The same for an open(2), which may be for reading only: then the client may read ahead.
    fn slot_to_open(&mut self, client: usize) -> Option<usize> {
        let reading = FIRST_READING_SLOT..FIRST_READING_SLOT + READING_SLOTS;
        let is_free = |slot: &usize| {
            !self.open.contains(&(client, *slot)) && !self.busy_slots.contains(&(client, *slot))
        };
        let free = reading.into_iter().find(is_free);
        if self.rng.one_in(2) { free } else { self.free_slot(client) }
    }

    /// The next operation of a client.
    pub fn next(&mut self, client: usize) -> Op {
        let op = self.draw(client);
        match &op {
            Op::Create { slot: Some(slot), .. }
            | Op::Open { slot, .. }
            | Op::Tmpfile { slot, .. }
            | Op::LinkOpen { slot, .. }
            | Op::Close { slot }
            | Op::Write { slot, .. }
            | Op::Append { slot, .. }
            | Op::Read { slot, .. }
            | Op::Fstat { slot }
            | Op::Fsync { slot } => self.busy_slots.push((client, *slot)),
            _ => {}
        }
        op
    }

    /// The next step of a small file, which is made, written and closed, or of one that is read so.
    fn planned(&mut self, client: usize) -> Option<Op> {
        let op = self.planned.get_mut(&client)?.pop()?;
        let (Op::Write { slot, .. } | Op::Read { slot, .. } | Op::Close { slot }) = op else { return None };
        let is_usable = self.open.contains(&(client, slot)) && !self.busy_slots.contains(&(client, slot));
        if !is_usable {
            self.planned.remove(&client);
        }
        is_usable.then_some(op)
    }

    fn begin_small_file(&mut self, client: usize) -> Option<Op> {
        let slot = self.free_slot(client)?;
        let (path, offset) = (self.file(), self.offset().min(60_000));
        let byte_count = 1 + self.rng.below(5000);
        let is_made = self.rng.one_in(2);
        let first = match is_made {
            true => Op::Write { slot, offset, byte_count, fill: self.rng.below(256) as u8 },
            false => Op::Read { slot, offset: 0, byte_count: 70_000 },
        };
        self.planned.insert(client, vec![Op::Close { slot }, first]);
        Some(match is_made {
            true => Op::Create { path, is_exclusive: false, slot: Some(slot) },
            false => Op::Open { path, slot },
        })
    }

    fn draw(&mut self, client: usize) -> Op {
        // Else few files have several objects.
        if self.is_first && self.rng.one_in(2) {
            let layout = 1 + self.rng.below(LAYOUT_COUNT as u64 - 1) as usize;
            return Op::Setstripe { path: Path::new(), layout };
        }
        if let Some(op) = self.planned(client) {
            return op;
        }
        let open = self.open_slot(client);
        if let Some(slot) = open
            && self.is_partly_full
            && self.rng.one_in(2)
        {
            return self.read_or_write(slot);
        }
        if let Some(slot) = open
            && self.cut_off.contains(&client)
        {
            return self.read_or_write(slot);
        }
        if let Some((from, to)) = self.moved
            && self.rng.one_in(4)
        {
            return self.build_on(client, from.clone(), to.clone());
        }
        if let Some(path) = self.just_written
            && self.rng.one_in(6)
        {
            return Op::Unlink { path: path.clone() };
        }
        // Of those without a name, some never had one.
        if let Some(slot) = open
            && self.rng.one_in(if self.nameless.contains(&(client, slot)) { 6 } else { 40 })
        {
            return Op::LinkOpen { slot, to: self.file() };
        }
        if let Some(slot) = open
            && self.rng.one_in(2)
        {
            return self.data_op(slot);
        }
        if let Some(path) = self.hot
            && self.rng.one_in(4)
        {
            return Op::Unlink { path: path.clone() };
        }
        if let Some(path) = self.written.take()
            && self.rng.one_in(5)
        {
            // One that is replaced goes on without a name.
            if self.rng.one_in(3) {
                return rename(self.file(), path, 0);
            }
            return match self.slot_to_open(client) {
                Some(slot) if self.rng.one_in(4) => Op::Open { path, slot },
                _ => Op::Stat { path },
            };
        }
        if let Some(path) = self.storm.cloned()
            && !self.rng.one_in(4)
        {
            return self.storm_op(client, path);
        }
        if !self.cut_off.contains(&client)
            && self.rng.one_in(8)
            && let Some(op) = self.begin_small_file(client)
        {
            return op;
        }
        match self.rng.below(100) {
            0..18 => {
                let slot = self.free_slot(client).filter(|_| self.rng.one_in(2));
                if let Some(slot) = slot
                    && self.rng.one_in(4)
                {
                    return Op::Tmpfile { parent: self.directory(), slot };
                }
                Op::Create { path: self.file(), is_exclusive: self.rng.one_in(2), slot }
            }
            18..27 => {
                let on = self.mdt_count > 1 && self.rng.one_in(3);
                let mdt_index = on.then(|| self.rng.below(u64::from(self.mdt_count)) as u16);
                let is_striped = self.mdt_count > 1 && self.rng.one_in(3);
                let more = u64::from(self.mdt_count) - 1;
                let stripe_count = if is_striped { 2 + self.rng.below(more) as u16 } else { 1 };
                Op::Mkdir { path: self.dir(), mdt_index, stripe_count }
            }
            27..29 => Op::Symlink { path: vec!["s0".into()], target: self.pick(&FILES) },
            29..36 => Op::Unlink { path: self.any() },
            36..40 => Op::Rmdir { path: self.dir() },
            40..50 => {
                let (from, to) = match self.rng.below(4) {
                    0 => (self.dir(), self.dir()),
                    1 => (self.any(), self.any()),
                    _ => (self.file(), self.file()),
                };
                let flags = [0, 0, 0, 1, 2][self.rng.below(5) as usize];
                rename(from, to, flags)
            }
            50..56 => {
                let (from, to) = (self.file(), self.file());
                // The kernel walks twice; one name taken away in between would be made again.
                if from == to { Op::Stat { path: from } } else { Op::Link { from, to } }
            }
            56..59 if self.mdt_count > 1 && self.rng.one_in(2) => {
                let path = match self.rng.below(8) {
                    0 => vec!["s0".into()],
                    1..5 => self.file(),
                    _ => self.dir(),
                };
                Op::Migrate { path, mdt_index: self.rng.below(u64::from(self.mdt_count)) as u16 }
            }
            56..65 => Op::Stat { path: self.any() },
            65..68 => {
                let path = if self.rng.one_in(2) { Vec::new() } else { self.dir() };
                if self.mdt_count > 1 && self.rng.one_in(4) {
                    let stripe_count = self.rng.below(u64::from(self.mdt_count) + 1) as u16;
                    return Op::Setdirstripe { path, stripe_count };
                }
                // What is on an MDT takes ways of its own.
                let first = if self.rng.one_in(2) { FIRST_LAYOUT_ON_MDT } else { 0 };
                let layout = first + self.rng.below((LAYOUT_COUNT - first) as u64) as usize;
                Op::Setstripe { path, layout }
            }
            68..70 => Op::Readlink { path: vec!["s0".into()] },
            70..77 => {
                let path = if self.rng.one_in(2) { Vec::new() } else { self.dir() };
                Op::List { path }
            }
            77..85 => match self.slot_to_open(client) {
                Some(slot) => Op::Open { path: self.file(), slot },
                None => Op::Stat { path: self.file() },
            },
            85..89 => {
                let size = if self.rng.one_in(2) { 0 } else { self.offset() };
                Op::Truncate { path: self.file(), size }
            }
            89..92 => Op::Chmod { path: self.file(), permissions: 0o600 + self.rng.below(64) as u32 },
            92..95 => {
                let (path, name) = (self.file(), self.pick(&XATTRS));
                Op::Setxattr { path, name, value: self.rng.below(256) as u8 }
            }
            95..97 => Op::Getxattr { path: self.file(), name: self.pick(&XATTRS) },
            97..98 => Op::Removexattr { path: self.file(), name: self.pick(&XATTRS) },
            98..99 => Op::SyncAll,
            _ => Op::Statfs,
        }
    }

    /// Takes away, replaces, moves on or fills the place of what somebody has just moved: a replay that comes after another one was lost
    /// finds other names than it had found at first.
    fn build_on(&mut self, client: usize, from: Path, to: Path) -> Op {
        match self.rng.below(10) {
            0..2 => Op::Unlink { path: to },
            2 => Op::Rmdir { path: to },
            7 => Op::Migrate { path: to, mdt_index: self.rng.below(u64::from(self.mdt_count)) as u16 },
            3 => {
                let slot = self.free_slot(client).filter(|_| self.rng.one_in(2));
                Op::Create { path: from, is_exclusive: self.rng.one_in(2), slot }
            }
            4 => rename(to, from, 0),
            5 => rename(self.file(), to, 0),
            6 => rename(to, self.file(), 0),
            _ => match self.slot_to_open(client) {
                Some(slot) => Op::Open { path: to, slot },
                None => Op::Stat { path: to },
            },
        }
    }

    /// No truncation by name: the kernel finds the inode first, and whoever has the file open may see that the name went in between.
    fn storm_op(&mut self, client: usize, path: Path) -> Op {
        match self.rng.below(8) {
            0..2 => {
                let slot = self.free_slot(client).filter(|_| self.rng.one_in(2));
                Op::Create { path, is_exclusive: self.rng.one_in(2), slot }
            }
            2..4 => Op::Unlink { path },
            4 => match self.slot_to_open(client) {
                Some(slot) => Op::Open { path, slot },
                None => Op::Stat { path },
            },
            _ => Op::Stat { path },
        }
    }

    /// A write over several objects, most likely.
    fn long_write(&mut self, slot: usize) -> Op {
        let (fill, byte_count) = (self.rng.below(256) as u8, 30_000 + self.rng.below(120_000));
        match self.rng.below(4) {
            0 => Op::Append { slot, byte_count, fill },
            _ => Op::Write { slot, offset: self.offset().min(FILE_BYTES_MAX - byte_count), byte_count, fill },
        }
    }

    fn read_or_write(&mut self, slot: usize) -> Op {
        if self.is_partly_full && slot < FIRST_READING_SLOT && self.rng.one_in(2) {
            return self.long_write(slot);
        }
        let fill = self.rng.below(256) as u8;
        match self.rng.below(14) {
            _ if slot >= FIRST_READING_SLOT => {
                let offset = self.offset();
                Op::Read { slot, offset, byte_count: self.byte_count(offset) }
            }
            0..7 => {
                let offset = self.offset();
                Op::Write { slot, offset, byte_count: self.byte_count(offset), fill }
            }
            7..9 => Op::Append { slot, byte_count: 1 + self.rng.below(5000), fill },
            _ => {
                let offset = self.offset();
                Op::Read { slot, offset, byte_count: self.byte_count(offset) }
            }
        }
    }

    fn data_op(&mut self, slot: usize) -> Op {
        match self.rng.below(20) {
            0..14 => self.read_or_write(slot),
            14..16 => Op::Fstat { slot },
            16..17 => Op::Fsync { slot },
            _ => Op::Close { slot },
        }
    }
}
