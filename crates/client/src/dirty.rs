//! Data that writes have left here and that no OST has yet.
//!
//! A write through the page cache is answered from here while this client holds the file's write-back lock: then nobody else has
//! the file open, or is told its size, before the data are written. Each piece pins the extent lock that it was
//! written under, so that this lock goes back only after the data, and is named to a restarted OST. Pieces of one object never
//! overlap; what is written over data that are on their way is sent after them.

use crate::ctx::{Ctx, Outcome, mdt_of};
use crate::executor::{Receiver, Sender, oneshot};
use crate::locks::{LockUse, Pin};
use crate::ops::attr::Written;
use crate::ops::io::{File, is_small_part, note_answer, note_write};
use crate::ops::open::be_writer;
use crate::state::{Connection, State};
use base::layout::Piece;
use base::{Attr, Duration, Extent, Fid, Layout, LockId, ObjectId, Status, TargetId, Time, WallTime, limits};
use bytes::Bytes;
use rpc::Kind;
use std::collections::{BTreeMap, BTreeSet};
use wire::lock::{DataWant, bits};
use wire::mdt::{ClosingData, OpenArgs};
use wire::ost::ObjectAttr;
use wire::{LockMode, LockPolicy, OstRequest, Resource};

/// Pieces lie within ranges of an object that are as long as this, from 0 on; a full one is sent at once.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Older data are sent, whether somebody waits for them or not.
const AGE_MAX: Duration = Duration::from_millis(1000);
/// Bytes for one OST that are here or on their way at most, unless an operator says otherwise (`osc.*.max_dirty_mb`).
pub(crate) const DIRTY_BYTES_MAX: u64 = 32 << 20;
/// What a device gives room for: a piece takes all blocks that it touches.
const BLOCK_BYTES: u64 = 4096;
/// Pieces of one object here at most: random writes make many small ones.
const PIECE_COUNT_MAX: usize = 256;
/// After the write-back lock of a file has gone it is asked for again, by writers, this often.
pub(crate) const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(1000);
/// Nothing is kept back when no more than this is left of the time for which the MDT is known to count this client as a writer: what
/// was kept before is sent until then, and has arrived. Afterwards others may be told of the file without it. With a lease that time is too
/// short for this, and all is sent as soon as the lease and the MDT are late (`leases`).
pub(crate) const LEASE_LEFT_MIN: Duration = Duration::from_millis(4000);
/// How often data are sent anew when their MDT has evicted this client meanwhile.
const SEND_TRY_COUNT: u32 = 8;
/// With so many bytes an open costs hardly more than without.
const READ_AGAIN_BYTES_MAX: u64 = 16 << 10;
/// So long a file's write-back lock outlives its last writer: it serves who soon opens it again, and goes back together with others.
const UNWRITTEN_LIFE: Duration = Duration::from_millis(1000);

// What is kept is sent after twice its age at the latest (`write_out_aged`); as long again to arrive.
const _: () = assert!(LEASE_LEFT_MIN.as_millis() >= 4 * AGE_MAX.as_millis());
const _: () = assert!(
    limits::PING_INTERVAL.as_millis() * 3 + LEASE_LEFT_MIN.as_millis()
        < limits::KERNEL_CACHE_LIFE.as_millis()
);

/// Bytes of one object that were written under one lock.
struct Kept {
    bytes: Body,
    pin: Pin,
    /// Of the last write that it holds.
    stamp: WallTime,
    since: Time,
    number: u64,
}

enum Body {
    /// As it came.
    Whole(Bytes),
    /// The same of one of several objects, which would keep what came for all of them in memory until it is durable.
    Part(Bytes),
    /// Grows, or is written over.
    Own(Vec<u8>),
}

impl Body {
    fn as_slice(&self) -> &[u8] {
        match self {
            Body::Whole(bytes) | Body::Part(bytes) => bytes,
            Body::Own(bytes) => bytes,
        }
    }

    fn own(&mut self) -> &mut Vec<u8> {
        if let Body::Whole(bytes) | Body::Part(bytes) = self {
            *self = Body::Own(bytes.to_vec());
        }
        match self {
            Body::Own(bytes) => bytes,
            Body::Whole(_) | Body::Part(_) => unreachable!("made its own above"),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Body::Whole(bytes) => bytes,
            Body::Part(bytes) => base::buffers::copy(&bytes),
            Body::Own(bytes) => bytes.into(),
        }
    }
}

impl Kept {
    fn byte_count(&self) -> u64 {
        self.bytes.as_slice().len() as u64
    }
}

/// The room that a piece takes on its OST, of which grants are.
fn room_of(piece: Extent) -> u64 {
    let end = piece.end.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
    end - piece.start / BLOCK_BYTES * BLOCK_BYTES
}

/// The same of pieces of one write, by target.
fn room_by_target(file: &File, pieces: &[Piece]) -> BTreeMap<TargetId, u64> {
    let mut rooms = BTreeMap::new();
    for piece in pieces {
        if let Ok(target) = file.target(piece.stripe) {
            *rooms.entry(target).or_default() += room_of(piece.object_extent);
        }
    }
    rooms
}

/// One piece of those that a new one touches, ascending, with the new one over them.
fn merge(former: Vec<(u64, Kept)>, (new_start, new): (u64, Kept)) -> (u64, Kept) {
    let new_end = new_start + new.byte_count();
    let mut former = former.into_iter();
    let Some((first, mut merged)) = former.next() else { return (new_start, new) };
    if first > new_start {
        // What is between them comes with the new one.
        let mut bytes = vec![0; (first - new_start) as usize];
        bytes.extend_from_slice(merged.bytes.as_slice());
        merged.bytes = Body::Own(bytes);
    }
    let first = first.min(new_start);
    let bytes = merged.bytes.own();
    for (start, later) in former {
        bytes.resize((start - first) as usize, 0);
        bytes.extend_from_slice(later.bytes.as_slice());
        merged.since = merged.since.min(later.since);
        merged.number = merged.number.min(later.number);
    }
    if bytes.len() < (new_end - first) as usize {
        bytes.resize((new_end - first) as usize, 0);
    }
    bytes[(new_start - first) as usize..(new_end - first) as usize].copy_from_slice(new.bytes.as_slice());
    merged.stamp = new.stamp;
    (first, merged)
}

/// A piece on its way.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) object: ObjectId,
    extent: Extent,
    pub(crate) bytes: Bytes,
    pin: Pin,
    stamp: WallTime,
    number: u64,
}

impl Sent {
    pub(crate) fn closing_data(&self) -> ClosingData {
        let (object, offset_bytes) = (self.object, self.extent.start);
        ClosingData { object, offset_bytes, lock: self.pin.lock, stamp: self.stamp }
    }
}

/// What goes with the close of a file whose data the MDT has.
pub(crate) struct Carried {
    pub(crate) sent: Sent,
    /// Write epoch since which this is all that was changed.
    pub(crate) unchanged_since: u64,
    /// Ends with the close.
    pub(crate) write_back: Option<LockId>,
}

/// A piece that was sent, and not answered.
struct OnItsWay {
    number: u64,
    extent: Extent,
    stamp: WallTime,
}

#[derive(Default)]
struct DirtyObject {
    /// By first byte.
    kept: BTreeMap<u64, Kept>,
    sent: Vec<OnItsWay>,
    /// Woken, by being dropped, when something has arrived or is lost.
    waiters: Vec<Sender<()>>,
}

impl DirtyObject {
    fn kept_within(&self, extent: Extent) -> impl Iterator<Item = (Extent, &Kept)> + '_ {
        let first = self.kept.range(..=extent.start).next_back().map_or(extent.start, |(start, _)| *start);
        self.kept
            .range(first..extent.end.max(first))
            .map(|(start, kept)| (Extent::at(*start, kept.byte_count()), kept))
            .filter(move |(own, _)| own.overlaps(extent))
    }

    fn is_under_way(&self, extent: Extent) -> bool {
        self.sent.iter().any(|sent| sent.extent.overlaps(extent))
    }

    /// Whether something of `extent` that is not younger than the piece `number` is still here.
    fn has_until(&self, extent: Extent, number: u64) -> bool {
        self.kept_within(extent).any(|(_, kept)| kept.number <= number)
            || self.sent.iter().any(|sent| sent.number <= number && sent.extent.overlaps(extent))
    }
}

/// Everything of this client that no OST has.
#[derive(Default)]
pub(crate) struct Dirty {
    objects: BTreeMap<ObjectId, DirtyObject>,
    /// Room for what is here and on the way.
    byte_counts: BTreeMap<TargetId, u64>,
    /// Number of the youngest piece.
    last_number: u64,
    room_waiters: Vec<Sender<()>>,
    has_ager: bool,
    /// Files that nobody here writes any more, and whose write-back locks go back soon. A task sees to it while there are some.
    unwritten: BTreeSet<Fid>,
    /// Of files whose MDT was not heard for so long that nothing may be kept back any more: all of it goes in the tail.
    late: Vec<ObjectId>,
}

impl Dirty {
    pub(crate) fn byte_count(&self, target: TargetId) -> u64 {
        self.byte_counts.get(&target).copied().unwrap_or(0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// For the files of this MDT nothing is to be kept back any more. Who waits for room to do so looks again.
    pub(crate) fn end_keeping(&mut self, mdt: TargetId) {
        let is_of_it = |object: &&ObjectId| mdt_of(object.fid) == Ok(mdt);
        self.late.extend(self.objects.keys().filter(is_of_it));
        self.look_for_room_again();
    }

    /// There may be room now, or nothing may be kept back any more of the file that room is waited for.
    pub(crate) fn look_for_room_again(&mut self) {
        // Dropping them wakes who waits.
        self.room_waiters.clear();
    }

    pub(crate) fn take_late(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.late)
    }

    /// Whether something of a file is here or on its way.
    pub(crate) fn has_some_of(&self, fid: Fid) -> bool {
        self.objects_of(fid).next().is_some()
    }

    /// Where what is here of a file ends, or is on its way; zero when nothing is.
    pub(crate) fn end_of(&self, layout: &Layout) -> u64 {
        let end_of_object = |object: ObjectId| {
            let known = self.objects.get(&object)?;
            let kept = known.kept.iter().next_back().map(|(start, kept)| start + kept.byte_count());
            let end = kept.into_iter().chain(known.sent.iter().map(|sent| sent.extent.end)).max()?;
            Some(layout.file_size(layout.stripe_of(object)?, end))
        };
        self.objects_of(layout.fid).filter_map(end_of_object).max().unwrap_or(0)
    }

    /// An object as it will be when what is here of it, and on its way, has arrived.
    pub(crate) fn with_kept(&self, object: ObjectId, attr: ObjectAttr) -> ObjectAttr {
        let Some(known) = self.objects.get(&object) else { return attr };
        let kept = known.kept.iter().map(|(start, kept)| (Extent::at(*start, kept.byte_count()), kept.stamp));
        let sent = known.sent.iter().map(|sent| (sent.extent, sent.stamp));
        let (mut size_bytes, mut stamp, mut byte_count) = (attr.size_bytes, attr.stamp, 0);
        for (extent, own_stamp) in kept.chain(sent) {
            size_bytes = size_bytes.max(extent.end);
            stamp = stamp.max(own_stamp);
            byte_count += extent.byte_count();
        }
        // As if all of it were written where nothing is yet: a file with fewer blocks than bytes is taken for one with holes. But no more
        // than without any.
        let full_count = size_bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES / 512);
        let block_count = attr.block_count.saturating_add(byte_count.div_ceil(512));
        let block_count = block_count.min(full_count.max(attr.block_count));
        ObjectAttr { size_bytes, stamp, block_count, ..attr }
    }

    fn objects_of(&self, fid: Fid) -> impl Iterator<Item = ObjectId> + '_ {
        let first = ObjectId { fid, component: 0, stripe: 0 };
        self.objects.range(first..).map(|(object, _)| *object).take_while(move |object| object.fid == fid)
    }

    /// Asserts that the sums are those of the pieces.
    pub(crate) fn check(&self) {
        let mut byte_counts: BTreeMap<TargetId, u64> = BTreeMap::new();
        for object in self.objects.values() {
            assert!(!object.kept.is_empty() || !object.sent.is_empty());
            let mut end = 0;
            for (start, kept) in &object.kept {
                assert!(*start >= end && kept.byte_count() > 0, "pieces are apart");
                end = start + kept.byte_count();
                *byte_counts.entry(kept.pin.target).or_default() += room_of(Extent::new(*start, end));
            }
        }
        for (target, byte_count) in byte_counts {
            assert!(self.byte_count(target) >= byte_count);
        }
    }
}

impl State {
    /// Whether writes of a file may be answered before an OST has them.
    pub(crate) fn may_keep_back(&self, fid: Fid) -> bool {
        let Ok(mdt) = mdt_of(fid) else { return false };
        self.write_back_lock(mdt, fid).is_some() && self.has_lease_to_keep(mdt)
    }

    fn write_back_lock(&self, mdt: TargetId, fid: Fid) -> Option<LockId> {
        let (resource, policy) = (Resource::Inode(fid), LockPolicy::Bits(bits::WRITE_BACK));
        self.connections.get(&mdt)?.locks.find(resource, LockMode::Pw, policy)
    }

    /// Begins to give the write-back lock of a file back that nobody here writes through the page cache.
    fn give_back_unwritten(&mut self, fid: Fid) {
        let Ok(mdt) = mdt_of(fid) else { return };
        let Some(lock) = self.write_back_lock(mdt, fid).filter(|_| !self.is_cached_writer(fid)) else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(&mdt) {
            // From now on it keeps nothing back.
            let _ = connection.locks.on_callback(lock);
        }
        self.start_unasked_revocation(mdt, lock);
    }

    /// An id for the write-back lock of a file that this client writes through the page cache, unless it has it. None while the MDT
    /// does not count it as a writer: it would wait for an open elsewhere that waits for what it keeps back.
    pub(crate) fn want_write_back(&mut self, fid: Fid, is_writer: bool) -> Option<base::LockId> {
        let is_fit = is_writer && self.obstacle_to_write(fid).is_none();
        let mdt = mdt_of(fid).ok().filter(|mdt| is_fit && self.write_back_lock(*mdt, fid).is_none())?;
        let now = self.now.time;
        if let Some(node) = self.nodes.by_fid_mut(fid) {
            node.data.write_back_asked_at = now;
        }
        self.offer(mdt)
    }

    pub(crate) fn is_cached_writer(&self, fid: Fid) -> bool {
        self.nodes.by_fid(fid).is_some_and(|node| node.data.cached_writer_count > 0)
    }

    /// Locks to be asked for with a file that is made and opened, if the MDT has its data.
    pub(crate) fn want_data(&mut self, mdt: TargetId, open: OpenArgs) -> Option<DataWant> {
        let lock = self.offer(mdt)?;
        let write_back = if open.write { self.offer(mdt) } else { None };
        Some(DataWant { lock, write_back })
    }

    /// The same of one that is there. Who has all of its data locked already names that lock: the kernel does not say what it has
    /// dropped, so bytes come along if they are few, or if it never had any.
    pub(crate) fn want_data_of(&mut self, mdt: TargetId, fid: Fid, open: OpenArgs) -> Option<DataWant> {
        let node = self.nodes.by_fid(fid);
        let layout = node.and_then(|node| node.layout());
        if layout.is_some_and(|layout| !layout.is_on_mdt()) {
            return None;
        }
        // Of a file that was forgotten here the lock may be left; most have had one layout only.
        let object = layout.map_or(ObjectId { fid, component: 1, stripe: 0 }, |layout| layout.object(0));
        let resource = Resource::Object(object);
        let locks = &self.connections.get(&mdt)?.locks;
        if locks.on_resource(resource).is_empty() {
            return self.want_data(mdt, open);
        }
        let has_many = |node: &crate::nodes::Node| {
            let size_bytes = node.attr().map_or(0, |attr| attr.size_bytes);
            size_bytes > READ_AGAIN_BYTES_MAX && !node.data.pages.filled.is_empty()
        };
        let is_worth_it = !node.is_some_and(has_many);
        let lock = locks.find(resource, LockMode::Pr, LockPolicy::Extent(Extent::WHOLE));
        let lock = lock.filter(|_| !open.write && is_worth_it)?;
        Some(DataWant { lock, write_back: None })
    }

    /// What is kept back of a file, if it can go with its close: it is one piece, the MDT has its place, and nothing else of the
    /// file was changed by anybody since its size was known.
    fn piece_for_close(&self, fid: Fid) -> Option<(ObjectId, u64)> {
        let node = self.nodes.by_fid(fid)?;
        let unchanged_since = node.data.kept_since?;
        let layout = node.layout().filter(|layout| layout.is_on_mdt() && layout.fid == fid)?;
        let object = layout.object(0);
        let mut objects = self.dirty.objects_of(fid);
        if objects.next() != Some(object) || objects.next().is_some() {
            return None;
        }
        let known = self.dirty.objects.get(&object)?;
        let mut kept = known.kept.values();
        let only = kept.next().filter(|_| known.sent.is_empty() && kept.next().is_none())?;
        let mdt = only.pin.target;
        let is_covered = self.connections.get(&mdt)?.locks.get(only.pin.lock).is_some();
        let is_alone = self.write_back_lock(mdt, fid).is_some();
        (is_covered && is_alone).then_some((object, unchanged_since))
    }

    /// Attributes of a file of which all that was changed since the MDT knew its size is kept back here.
    pub(crate) fn attr_with_kept(&self, attr: &Attr) -> Option<Attr> {
        let (object, _) = self.piece_for_close(attr.fid).filter(|(_, since)| *since == attr.write_epoch)?;
        let (start, kept) = self.dirty.objects.get(&object)?.kept.first_key_value()?;
        let mut attr = attr.clone();
        attr.size_bytes = attr.size_bytes.max(start + kept.byte_count());
        // As if all of it were written where nothing is yet.
        attr.block_count = attr.block_count.saturating_add(kept.byte_count().div_ceil(512));
        if kept.stamp > attr.mtime_stamp {
            attr.mtime = kept.stamp;
            attr.mtime_stamp = kept.stamp;
        }
        attr.ctime = attr.ctime.max(kept.stamp);
        Some(attr)
    }

    pub(crate) fn is_for_close(&self, fid: Fid) -> bool {
        self.piece_for_close(fid).is_some()
    }

    /// Takes what goes with the close of a handle; the write-back lock too, if nobody else here writes the file.
    pub(crate) fn take_for_close(&mut self, fid: Fid) -> Option<Carried> {
        let (object, unchanged_since) = self.piece_for_close(fid)?;
        let sent = self.take_to_send(object, Extent::WHOLE, |_| true).pop()?;
        let mdt = sent.pin.target;
        let write_back = self.write_back_lock(mdt, fid).filter(|_| !self.is_cached_writer(fid));
        if let (Some(lock), Some(connection)) = (write_back, self.connections.get_mut(&mdt)) {
            // From now on it keeps nothing back.
            let _ = connection.locks.on_callback(lock);
        }
        if let Some(data) = self.nodes.by_fid_mut(fid).and_then(|node| node.data.known_mut()) {
            data.kept_since = None;
        }
        self.note_objects_change(fid);
        Some(Carried { sent, unchanged_since, write_back })
    }

    /// The close was answered.
    pub(crate) fn end_closing(&mut self, sent: &Sent, outcome: Outcome<()>, write_back: Option<LockId>) {
        let mdt = sent.pin.target;
        self.note_data_change(sent.object.fid);
        self.note_objects_change(sent.object.fid);
        self.end_sending(sent, outcome);
        let Some(lock) = write_back else { return };
        let Some(connection) = self.connections.get_mut(&mdt) else { return };
        if outcome.is_ok() {
            connection.locks.remove(lock);
        } else if connection.locks.get(lock).is_some() {
            self.start_unasked_revocation(mdt, lock);
        }
    }

    /// Whether a writer without the lock should ask for it.
    fn is_write_back_due(&self, fid: Fid) -> bool {
        // Most small files are written once.
        let is_due = |node: &crate::nodes::Node| {
            node.data.cached_writer_count > 0
                && node.data.changed_at > 0
                && node.data.write_back_asked_at.after(LOCK_RETRY_INTERVAL) <= self.now.time
        };
        self.nodes.by_fid(fid).is_some_and(is_due)
            && mdt_of(fid).is_ok_and(|mdt| self.write_back_lock(mdt, fid).is_none())
    }

    /// Lost or called back while the write waited for another one, a lock keeps nothing.
    fn is_held(&self, pin: Pin) -> bool {
        self.connections
            .get(&pin.target)
            .is_some_and(|known| known.locks.get(pin.lock).is_some() && !known.locks.is_dying(pin.lock))
    }

    /// Keeps the pieces of a write back, if all of them can be: `pins` are the locks over them. Returns what is to be sent now.
    fn keep_back(
        &mut self,
        file: &File,
        extent: Extent,
        pieces: &[Piece],
        data: &Bytes,
        pins: &BTreeMap<u32, Pin>,
    ) -> Option<Vec<Sent>> {
        let is_fit = |piece: &Piece| {
            let object = self.dirty.objects.get(&file.layout.object(piece.stripe));
            // An OST refuses what is longer, and its caller has to be told.
            let pin = pins
                .get(&piece.stripe)
                .filter(|pin| piece.object_extent.end <= limits::OBJECT_BYTES_MAX && self.is_held(**pin));
            pin.is_some_and(|pin| {
                // Others wait for what was written there under another lock.
                object.is_none_or(|object| {
                    object.kept_within(piece.object_extent).all(|(_, kept)| kept.pin == *pin)
                })
            })
        };
        // What had room when the locks were asked for may have none any more: others have come since, or the OST allows less.
        let has_room = self.full_target(file, pieces).is_none();
        // Its parts go by themselves, and would be met one by one.
        let is_met = pieces.len() > 1 && self.passages.has_long(file.fid, extent);
        if is_met || !has_room || !self.may_keep_back(file.fid) || !pieces.iter().all(is_fit) {
            return None;
        }
        self.note_data_change(file.fid);
        let stamp = self.stamp(file.fid);
        let mut due = Vec::new();
        for piece in pieces {
            let pin = *pins.get(&piece.stripe)?;
            let object = file.layout.object(piece.stripe);
            let mut start = piece.object_extent.start;
            while start < piece.object_extent.end {
                let end = (start / PIECE_BYTES_MAX + 1) * PIECE_BYTES_MAX;
                let part = Extent::new(start, end.min(piece.object_extent.end));
                let at =
                    (piece.file_offset_bytes - extent.start + start - piece.object_extent.start) as usize;
                let bytes = data.slice(at..at + part.byte_count() as usize);
                let is_alone = !is_small_part(pieces, &bytes, data);
                let bytes = if is_alone { Body::Whole(bytes) } else { Body::Part(bytes) };
                let first = self.put_piece(object, part, bytes, pin, stamp);
                let is_full = self.dirty.objects.get(&object).is_some_and(|known| {
                    known.kept.get(&first).is_some_and(|kept| kept.byte_count() == PIECE_BYTES_MAX)
                });
                if is_full {
                    due.extend(self.take_to_send(object, part, |_| true));
                }
                start = part.end;
            }
        }
        Some(due)
    }

    /// Puts bytes into one range of an object, over what is there; where the piece begins that they are in now.
    fn put_piece(&mut self, object: ObjectId, part: Extent, bytes: Body, pin: Pin, stamp: WallTime) -> u64 {
        self.dirty.last_number += 1;
        let range_start = part.start / PIECE_BYTES_MAX * PIECE_BYTES_MAX;
        let range = Extent::at(range_start, PIECE_BYTES_MAX);
        // Those that it overlaps or touches.
        let touched =
            Extent::new(part.start.saturating_sub(1).max(range.start), (part.end + 1).min(range.end));
        let known = self.dirty.objects.entry(object).or_default();
        let own = known.kept_within(touched).filter(|(_, kept)| kept.pin == pin).map(|(own, _)| own.start);
        let own: Vec<u64> = own.collect();
        let former: Vec<(u64, Kept)> =
            own.into_iter().filter_map(|start| Some((start, known.kept.remove(&start)?))).collect();
        let former_bytes: u64 =
            former.iter().map(|(start, kept)| room_of(Extent::at(*start, kept.byte_count()))).sum();
        let former_count = former.len();
        let new = Kept { bytes, pin, stamp, since: self.now.time, number: self.dirty.last_number };
        let (first, merged) = merge(former, (part.start, new));
        let count = self.dirty.byte_counts.entry(pin.target).or_default();
        *count = *count + room_of(Extent::at(first, merged.byte_count())) - former_bytes;
        known.kept.insert(first, merged);
        // Each piece pins once.
        match former_count {
            0 => {
                if let Some(connection) = self.connections.get_mut(&pin.target) {
                    connection.locks.pin(pin.lock);
                }
            }
            _ => (1..former_count).for_each(|_| self.unpin(pin)),
        }
        first
    }

    /// Takes the pieces of an object that overlap `extent` and fit, and that nothing on its way has to arrive before.
    fn take_to_send(
        &mut self,
        object: ObjectId,
        extent: Extent,
        is_fit: impl Fn(&Kept) -> bool,
    ) -> Vec<Sent> {
        let Some(known) = self.dirty.objects.get_mut(&object) else { return Vec::new() };
        let ready = known.kept_within(extent).filter(|(own, kept)| is_fit(kept) && !known.is_under_way(*own));
        let ready: Vec<Extent> = ready.map(|(own, _)| own).collect();
        let mut sent = Vec::with_capacity(ready.len());
        for extent in ready {
            let Some(kept) = known.kept.remove(&extent.start) else { continue };
            known.sent.push(OnItsWay { number: kept.number, extent, stamp: kept.stamp });
            let Kept { pin, stamp, number, .. } = kept;
            sent.push(Sent { object, extent, bytes: kept.bytes.into_bytes(), pin, stamp, number });
        }
        sent
    }

    /// Sends what overlaps `extent` and is not younger than the piece `number`; what to wait for, if something is left.
    fn write_out_step(
        &mut self,
        object: ObjectId,
        extent: Extent,
        number: u64,
    ) -> (Vec<Sent>, Option<Receiver<()>>) {
        let sent = self.take_to_send(object, extent, |kept| kept.number <= number);
        let known = self.dirty.objects.get_mut(&object).filter(|known| known.has_until(extent, number));
        let waiting = known.map(|known| {
            let (sender, receiver) = oneshot();
            known.waiters.push(sender);
            receiver
        });
        (sent, waiting)
    }

    /// A piece has arrived or is lost.
    fn end_sending(&mut self, sent: &Sent, outcome: Outcome<()>) {
        if let Some(known) = self.dirty.objects.get_mut(&sent.object) {
            known.sent.retain(|other| other.number != sent.number || other.extent != sent.extent);
            known.waiters.clear();
            if known.kept.is_empty() && known.sent.is_empty() {
                self.dirty.objects.remove(&sent.object);
            }
        }
        self.give_room(sent.pin.target, room_of(sent.extent));
        self.unpin(sent.pin);
        if let Err(status) = outcome {
            if status == Status::LockLost {
                self.on_blocking(sent.pin.target, sent.pin.lock);
            }
            self.note_objects_change(sent.object.fid);
            self.lose(sent.object.fid, status);
        }
    }

    fn give_room(&mut self, target: TargetId, byte_count: u64) {
        if let Some(count) = self.dirty.byte_counts.get_mut(&target) {
            *count = count.saturating_sub(byte_count);
        }
        self.dirty.look_for_room_again();
    }

    /// Data that were answered are lost: who has the file open is told, and the kernel forgets them.
    fn lose(&mut self, fid: Fid, status: Status) {
        let status = if status == Status::NoSpace { status } else { Status::Io };
        self.fail_handles(fid, status);
        self.drop_unasked(fid.inode_number(), Extent::WHOLE);
    }

    /// An OST has evicted this client: what it had not got yet must not reach it any more, for others may have written since.
    pub(crate) fn lose_dirty(&mut self, target: TargetId) {
        let mut lost = Vec::new();
        for (object, known) in &mut self.dirty.objects {
            let is_there = |kept: &Kept| kept.pin.target == target;
            let there = known.kept.iter().filter(|(_, kept)| is_there(kept));
            let byte_count: u64 =
                there.map(|(start, kept)| room_of(Extent::at(*start, kept.byte_count()))).sum();
            if byte_count > 0 {
                known.kept.retain(|_, kept| !is_there(kept));
                known.waiters.clear();
                lost.push((object.fid, byte_count));
            }
        }
        self.dirty.objects.retain(|_, known| !known.kept.is_empty() || !known.sent.is_empty());
        for (fid, byte_count) in lost {
            self.give_room(target, byte_count);
            self.lose(fid, Status::Io);
        }
    }

    /// Where pieces of one write go that have no room now, with all that goes there.
    fn full_target(&self, file: &File, pieces: &[Piece]) -> Option<TargetId> {
        let rooms = room_by_target(file, pieces);
        let is_full = |(target, room): &(&TargetId, &u64)| {
            let room_max = self.connections.get(target).map_or(0, Connection::keepable_bytes);
            self.dirty.byte_count(**target) + **room > room_max
        };
        let has_many = |piece: &Piece| {
            let known = self.dirty.objects.get(&file.layout.object(piece.stripe));
            let is_one = known.is_some_and(|known| known.kept.len() + known.sent.len() >= PIECE_COUNT_MAX);
            is_one.then(|| file.target(piece.stripe).ok()).flatten()
        };
        let full = rooms.iter().find(is_full).map(|(target, _)| *target);
        full.or_else(|| pieces.iter().find_map(has_many))
    }

    /// One of the OSTs, or an operator, does not allow as much as this at all.
    fn is_too_much(&self, file: &File, pieces: &[Piece]) -> bool {
        room_by_target(file, pieces).into_iter().any(|(target, room)| {
            self.connections.get(&target).is_none_or(|known| known.keepable_bytes() < room)
        })
    }
}

/// Whether a write may be kept back; waits for room for it. Holds no locks, for others may wait for those; nor is the call's last page in
/// their way.
pub(crate) async fn make_room(ctx: &Ctx, file: &File, pieces: &[Piece], lock_use: LockUse) -> bool {
    if ctx.with(|state| state.is_write_back_due(file.fid)) {
        let (asking, fid) = (ctx.clone(), file.fid);
        ctx.spawn(async move {
            // Without an answer this goes on as it is.
            let _ = crate::ops::attr::ask_inode(&asking, fid).await;
        });
    }
    loop {
        if ctx.with(|state| state.is_too_much(file, pieces) || !state.may_keep_back(file.fid)) {
            return false;
        }
        let Some(target) = ctx.with(|state| state.full_target(file, pieces)) else { return true };
        let (objects, receiver) = ctx.with(|state| {
            if let LockUse::Pages(call) = lock_use {
                state.page_call_waits(call);
            }
            let (sender, receiver) = oneshot();
            state.dirty.room_waiters.push(sender);
            let is_there = |(_, known): &(&ObjectId, &DirtyObject)| {
                known.kept.values().any(|kept| kept.pin.target == target)
            };
            let objects = state.dirty.objects.iter().filter(is_there).map(|(object, _)| *object);
            (objects.collect::<Vec<_>>(), receiver)
        });
        for object in objects {
            begin_write_out(ctx, object, |_| true);
        }
        receiver.await;
    }
}

/// Keeps a write back; false when it has to be sent.
pub(crate) fn keep_back(
    ctx: &Ctx,
    file: &File,
    extent: Extent,
    pieces: &[Piece],
    data: &Bytes,
    pins: &BTreeMap<u32, Pin>,
) -> bool {
    let Some(due) = ctx.with(|state| state.keep_back(file, extent, pieces, data, pins)) else { return false };
    send_all(ctx, due);
    if ctx
        .with(|state| !state.dirty.objects.is_empty() && !std::mem::replace(&mut state.dirty.has_ager, true))
    {
        ctx.spawn(write_out_aged(ctx.clone()));
    }
    true
}

/// Sends what has been here for long, until nothing is.
async fn write_out_aged(ctx: Ctx) {
    loop {
        ctx.sleep(AGE_MAX).await;
        let objects: Vec<ObjectId> = ctx.with(|state| state.dirty.objects.keys().copied().collect());
        if objects.is_empty() {
            ctx.with(|state| state.dirty.has_ager = false);
            return;
        }
        let now = ctx.now().time;
        for object in objects {
            let is_late = ctx.with(|state| !state.may_keep_back(object.fid));
            begin_write_out(&ctx, object, |kept| is_late || kept.since.after(AGE_MAX) <= now);
        }
    }
}

/// A handle was closed, or the lock may have come after that: nobody may have to wait for a lock that keeps nothing back.
pub(crate) fn give_back_if_unwritten(ctx: &Ctx, fid: Fid) {
    let begins = ctx.with(|state| {
        let has_lock = mdt_of(fid).is_ok_and(|mdt| state.write_back_lock(mdt, fid).is_some());
        let is_unwritten = has_lock && !state.is_cached_writer(fid);
        let had_none = state.dirty.unwritten.is_empty();
        is_unwritten && state.dirty.unwritten.insert(fid) && had_none
    });
    if begins {
        let later = ctx.clone();
        ctx.spawn(async move {
            later.sleep(UNWRITTEN_LIFE).await;
            later.with(|state| {
                for fid in std::mem::take(&mut state.dirty.unwritten) {
                    state.give_back_unwritten(fid);
                }
            });
        });
    }
}

fn begin_write_out(ctx: &Ctx, object: ObjectId, is_fit: impl Fn(&Kept) -> bool) {
    let sent = ctx.with(|state| state.take_to_send(object, Extent::WHOLE, is_fit));
    send_all(ctx, sent);
}

fn send_all(ctx: &Ctx, sent: Vec<Sent>) {
    for sent in sent {
        ctx.spawn(send(ctx.clone(), sent));
    }
}

async fn send(ctx: Ctx, sent: Sent) {
    let outcome = send_patiently(&ctx, &sent).await;
    ctx.with(|state| {
        state.end_sending(&sent, outcome.map(drop));
        let layout = state.nodes.by_fid(sent.object.fid).and_then(|node| node.layout().cloned());
        if let (Some(layout), Ok(arrived)) = (layout, outcome) {
            state.note_kept_arrived(&File::new(sent.object.fid, layout), sent.object, &arrived);
        }
    });
}

/// What was kept back has reached its OST.
#[derive(Clone, Copy)]
pub(crate) struct Arrived {
    /// `FileData::objects_changed_at` when it was sent.
    pub(crate) objects_changed_at: Option<u64>,
    /// What the answer told of the object.
    pub(crate) told: Option<Written>,
    /// The same, where no other change of the file has begun or ended meanwhile.
    pub(crate) told_alone: Option<Written>,
}

async fn send_patiently(ctx: &Ctx, sent: &Sent) -> Outcome<Arrived> {
    let Sent { object, extent, bytes, pin, stamp, .. } = sent;
    let is_small = extent.byte_count() < limits::BULK_BYTES_MIN;
    let kind = if is_small { Kind::Modifying } else { Kind::Behind };
    let mut tries = 0;
    loop {
        be_writer(ctx, object.fid, None).await?;
        let request = OstRequest::Write {
            object: *object,
            offset_bytes: extent.start,
            lock: pin.lock,
            stamp: *stamp,
            is_answered: true,
            asked: None,
        };
        let (before, objects_changed_at) =
            ctx.with(|state| (state.data_changed_at(object.fid), state.objects_changed_at(object.fid)));
        let result = ctx.ost(pin.target, request, bytes.clone(), kind).await;
        note_answer(ctx, object.fid, pin.target, &result);
        let told = result.as_ref().ok().and_then(|answer| Written::of(pin.target, answer));
        let status = match note_write(ctx, object.fid, before, vec![(pin.target, result)]) {
            Ok(told_alone) => return Ok(Arrived { objects_changed_at, told, told_alone }),
            Err(status) => status,
        };
        tries += 1;
        // Its MDT has evicted this client, and counts it as a writer no more; the OST has not.
        let is_locked = ctx.with(|state| state.is_known(*pin));
        if status != Status::Evicted || !is_locked || tries >= SEND_TRY_COUNT {
            return Err(status);
        }
    }
}

/// Returns when the OST has everything that was written to `extent` of an object before, or it is lost.
async fn write_out(ctx: &Ctx, object: ObjectId, extent: Extent) {
    let number = ctx.with(|state| state.dirty.last_number);
    loop {
        let (sent, waiting) = ctx.with(|state| state.write_out_step(object, extent, number));
        send_all(ctx, sent);
        let Some(waiting) = waiting else { return };
        waiting.await;
    }
}

/// The same of these pieces of a file.
pub(crate) async fn write_out_pieces(
    ctx: &Ctx,
    file: &File,
    pieces: impl IntoIterator<Item = (u32, Extent)>,
) {
    if ctx.with(|state| state.dirty.objects.is_empty()) {
        return;
    }
    for (stripe, extent) in pieces {
        write_out(ctx, file.layout.object(stripe), extent).await;
    }
}

/// The same of a whole file.
pub(crate) async fn write_out_file(ctx: &Ctx, fid: Fid) {
    let objects: Vec<ObjectId> = ctx.with(|state| state.dirty.objects_of(fid).collect());
    write_out_objects(ctx, objects).await;
}

/// The same of everything.
pub(crate) async fn write_out_all(ctx: &Ctx) {
    let objects: Vec<ObjectId> = ctx.with(|state| state.dirty.objects.keys().copied().collect());
    write_out_objects(ctx, objects).await;
}

async fn write_out_objects(ctx: &Ctx, objects: Vec<ObjectId>) {
    // All of them begin before one is waited for.
    for object in &objects {
        begin_write_out(ctx, *object, |_| true);
    }
    for object in objects {
        write_out(ctx, object, Extent::WHOLE).await;
    }
}

/// What is here of an object is not to be kept any longer.
pub(crate) async fn write_out_late(ctx: Ctx, object: ObjectId) {
    write_out(&ctx, object, Extent::WHOLE).await;
}

/// A lock on an object goes back: what was written under it goes first.
pub(crate) fn write_out_unasked(ctx: &Ctx, object: ObjectId) {
    if ctx.with(|state| state.dirty.objects.contains_key(&object)) {
        let ctx2 = ctx.clone();
        ctx.spawn(async move { write_out(&ctx2, object, Extent::WHOLE).await });
    }
}
