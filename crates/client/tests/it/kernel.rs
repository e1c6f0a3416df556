//! What a kernel does with the pages of one file, as far as it matters to a client: READs lock pages, WRITEs through the
//! cache fill them first, notifications wait for locked ones, and several things are under way at once.

use crate::read_ahead::EAGAIN;
use crate::world::{ROOT, World, write_call};
use base::Rng;
use bytes::Bytes;
use client::{Answer, Call, Caller, Input, Notify, NotifyId, NotifyResult};
use std::collections::BTreeMap;
use std::ops::Range;

pub const PAGE: u64 = 4096;
/// Pages that one READ asks for, at most.
const READ_PAGE_COUNT_MAX: u64 = 32;

struct Page {
    bytes: Vec<u8>,
    is_up_to_date: bool,
    /// The call that it is locked for.
    locked_for: Option<u64>,
}

/// What a thread of an application does.
pub enum Work {
    Idle,
    Read { start: u64, end: u64, found: Vec<u8> },
    Write { end: u64, at: u64, stamp: u8, sending: Sending },
}

/// A WRITE on its way.
#[derive(Clone, Copy, Debug)]
pub enum Sending {
    Nothing,
    /// Pages up to there hold the bytes, and nothing was sent yet.
    Filled(u64),
    /// The call, and where its bytes end.
    Sent(u64, u64),
}

/// Locked for a WRITE that was not sent yet.
const UNSENT: u64 = u64::MAX;

/// One mount's kernel.
pub struct Kernel {
    mount: usize,
    node: u64,
    reader: u64,
    writer: u64,
    /// WRITEs pass by the pages.
    is_direct: bool,
    pages: BTreeMap<u64, Page>,
    /// READs that were sent: first page and behind the last one.
    reads: BTreeMap<u64, (u64, u64)>,
    /// Notifications, and the page that each has come to.
    notices: Vec<(NotifyId, u64, u64)>,
    /// Pages that it was given, and which of each is next: a thread for each puts them in.
    pub stores: Vec<(NotifyId, u64, Bytes, u64)>,
    pub stored_count: u64,
    pub threads: Vec<Work>,
}

impl Kernel {
    pub fn new(mount: usize, node: u64, reader: u64, writer: u64, is_direct: bool) -> Kernel {
        let (pages, reads, notices, threads) = (BTreeMap::new(), BTreeMap::new(), vec![], vec![]);
        let (stores, stored_count) = (vec![], 0);
        Kernel {
            mount,
            node,
            reader,
            writer,
            is_direct,
            pages,
            reads,
            notices,
            stores,
            stored_count,
            threads,
        }
    }

    fn is_locked(&self, page: u64) -> bool {
        self.pages.get(&page).is_some_and(|page| page.locked_for.is_some())
    }

    /// Frees a page that nobody has locked.
    pub fn reclaim(&mut self, rng: &mut Rng) {
        let page = self.pages.keys().nth(rng.below(self.pages.len().max(1) as u64) as usize).copied();
        if let Some(page) = page.filter(|page| !self.is_locked(*page)) {
            self.pages.remove(&page);
        }
    }

    /// Takes answers and notices from the client; true when there were some.
    pub fn hear(&mut self, world: &mut World, rng: &mut Rng) -> bool {
        for (id, notice) in std::mem::take(&mut world.mounts[self.mount].stuck) {
            match notice {
                Notify::InvalInode { node, offset_bytes, byte_count }
                    if node == self.node && offset_bytes >= 0 =>
                {
                    let first = offset_bytes as u64 / PAGE;
                    let end = if byte_count <= 0 { u64::MAX } else { (offset_bytes + byte_count) as u64 };
                    self.notices.push((id, first, end.div_ceil(PAGE)));
                }
                Notify::Store { node, offset_bytes, data, .. } if node == self.node => {
                    self.stores.push((id, offset_bytes / PAGE, data, 0));
                }
                _ => world.input(self.mount, Input::Notified(id, NotifyResult::Ok)),
            }
        }
        let answered: Vec<u64> =
            self.reads.keys().copied().filter(|id| world.is_answered(self.mount, *id)).collect();
        let Some(id) = answered.get(rng.below(answered.len().max(1) as u64) as usize) else { return false };
        let Some((first, end)) = self.reads.remove(id) else { return false };
        let bytes = match world.mounts[self.mount].replies.remove(id) {
            Some(Ok(Answer::Bytes(bytes))) => Some(bytes),
            Some(Err(EAGAIN)) if end - first > 1 => None,
            other => panic!("a read fails: {other:?}"),
        };
        for page in first..end {
            let known = self.pages.get_mut(&page).expect("locked pages stay");
            assert_eq!(known.locked_for.take(), Some(*id));
            // Whoever needs one asks for it alone.
            let Some(bytes) = &bytes else { continue };
            known.is_up_to_date = true;
            let at = ((page - first) * PAGE) as usize;
            let part = bytes.get(at..bytes.len().min(at + PAGE as usize)).unwrap_or_default();
            known.bytes = part.to_vec();
            known.bytes.resize(PAGE as usize, 0);
        }
        true
    }

    /// Goes on with a notification; true when one could.
    pub fn drop_some(&mut self, world: &mut World, rng: &mut Rng) -> bool {
        let first = rng.below(self.notices.len().max(1) as u64) as usize;
        for turn in 0..self.notices.len() {
            let index = (first + turn) % self.notices.len();
            let (id, at, end) = self.notices[index];
            let Some(page) = self.pages.range(at..end.max(at)).next().map(|(page, _)| *page) else {
                self.notices.swap_remove(index);
                world.input(self.mount, Input::Notified(id, NotifyResult::Ok));
                return true;
            };
            if !self.is_locked(page) {
                self.pages.remove(&page);
                self.notices[index].1 = page + 1;
                return true;
            }
        }
        false
    }

    /// Puts one more page in; true when one could.
    pub fn store_some(&mut self, world: &mut World, rng: &mut Rng) -> bool {
        let first = rng.below(self.stores.len().max(1) as u64) as usize;
        let turns = (0..self.stores.len()).map(|turn| (first + turn) % self.stores.len());
        let can_go_on = |index: &usize| {
            let (_, first, _, done) = &self.stores[*index];
            !self.is_locked(first + done)
        };
        let Some(index) = turns.into_iter().find(can_go_on) else { return false };
        let (id, first, data, done) = &mut self.stores[index];
        let (id, page, at) = (*id, *first + *done, (*done * PAGE) as usize);
        let bytes = data[at..at + PAGE as usize].to_vec();
        self.pages.insert(page, Page { bytes, is_up_to_date: true, locked_for: None });
        *done += 1;
        self.stored_count += 1;
        if *done * PAGE == data.len() as u64 {
            self.stores.swap_remove(index);
            world.input(self.mount, Input::Notified(id, NotifyResult::Ok));
        }
        true
    }

    /// Goes on with the work of a thread; true when it could.
    pub fn work(&mut self, world: &mut World, rng: &mut Rng, thread: usize) -> bool {
        let mut work = std::mem::replace(&mut self.threads[thread], Work::Idle);
        let could = match &mut work {
            Work::Idle => false,
            Work::Read { start, end, found } => self.read((world, rng), thread, *start..*end, found),
            Work::Write { end, at, stamp, sending } => match *sending {
                Sending::Nothing => self.fill(*end, *at, *stamp, sending),
                Sending::Filled(filled) => self.send(world, *at, filled, *stamp, sending),
                Sending::Sent(id, sent) => self.finish(world, id, sent, at, sending),
            },
        };
        self.threads[thread] = work;
        could
    }

    fn read(
        &mut self,
        (world, rng): (&mut World, &mut Rng),
        thread: usize,
        range: Range<u64>,
        found: &mut Vec<u8>,
    ) -> bool {
        let (at, end) = (range.start + found.len() as u64, range.end);
        if at >= end {
            return false;
        }
        let page = at / PAGE;
        match self.pages.get(&page) {
            Some(known) if known.locked_for.is_some() => return false,
            Some(known) if known.is_up_to_date => {
                let from = (at % PAGE) as usize;
                let count = (PAGE as usize - from).min((end - at) as usize);
                found.extend_from_slice(&known.bytes[from..from + count]);
                return true;
            }
            _ => {}
        }
        let is_wanted = |page: &u64| {
            self.pages.get(page).is_none_or(|page| !page.is_up_to_date && page.locked_for.is_none())
        };
        let is_alone = self.pages.contains_key(&page);
        let count_max = if is_alone { 1 } else { rng.below(READ_PAGE_COUNT_MAX) + 1 };
        let count = (page..page + count_max).take_while(is_wanted).count() as u64;
        let call = Call::Read {
            node: self.node,
            fh: self.reader,
            offset_bytes: page * PAGE,
            byte_count: (count * PAGE) as u32,
            is_direct: false,
        };
        let id = world.prepare_as(self.mount, Caller { pid: thread as u32 + 1, ..ROOT }, call);
        for page in page..page + count {
            self.pages.insert(page, Page { bytes: vec![], is_up_to_date: false, locked_for: Some(id) });
        }
        self.reads.insert(id, (page, page + count));
        true
    }

    /// Copies bytes into pages, up to one that they fill in part and that holds nothing beside.
    fn fill(&mut self, end: u64, at: u64, stamp: u8, sending: &mut Sending) -> bool {
        let pages = at / PAGE..end.div_ceil(PAGE);
        if at >= end || pages.clone().any(|page| self.is_locked(page)) {
            return false;
        }
        let mut filled = at;
        for page in pages {
            let until = end.min((page + 1) * PAGE);
            if self.is_direct {
                self.pages.remove(&page);
                filled = until;
                continue;
            }
            let empty = || Page { bytes: vec![], is_up_to_date: false, locked_for: None };
            let known = self.pages.entry(page).or_insert_with(empty);
            let (from, count) = ((filled % PAGE) as usize, (until - filled) as usize);
            known.bytes.resize(PAGE as usize, 0);
            known.bytes[from..from + count].fill(stamp);
            known.is_up_to_date |= count == PAGE as usize;
            filled = until;
            if !known.is_up_to_date {
                known.locked_for = Some(UNSENT);
                break;
            }
        }
        *sending = Sending::Filled(filled);
        true
    }

    fn send(&mut self, world: &mut World, at: u64, filled: u64, stamp: u8, sending: &mut Sending) -> bool {
        let data = vec![stamp; (filled - at) as usize];
        let id = world.prepare(self.mount, write_call((self.node, self.writer), at, &data));
        for page in self.pages.values_mut().filter(|page| page.locked_for == Some(UNSENT)) {
            page.locked_for = Some(id);
        }
        *sending = Sending::Sent(id, filled);
        true
    }

    fn finish(&mut self, world: &mut World, id: u64, sent: u64, at: &mut u64, sending: &mut Sending) -> bool {
        let Some(result) = world.mounts[self.mount].replies.remove(&id) else { return false };
        assert_eq!(result, Ok(Answer::Written(sent - *at)));
        for page in self.pages.values_mut().filter(|page| page.locked_for == Some(id)) {
            page.locked_for = None;
        }
        *at = sent;
        *sending = Sending::Nothing;
        true
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Work::Idle => write!(formatter, "nothing"),
            Work::Read { start, end, found } => {
                write!(formatter, "reads {start}..{end}, is at {}", start + found.len() as u64)
            }
            Work::Write { end, at, sending, .. } => write!(formatter, "writes {at}..{end}: {sending:?}"),
        }
    }
}
