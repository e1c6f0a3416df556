//! The size of a file, which its objects have: asked for, or told by the answer to a write, and true for as long as nobody can change it.
//! What is kept back here comes on top of that.

use super::wait_for_osts;
use crate::cache::is_strict;
use crate::ctx::{Ctx, OstAnswer, Outcome, join_all};
use crate::dirty::{Arrived, LOCK_RETRY_INTERVAL, write_out_file};
use crate::file_data::{AtRest, Measured};
use crate::locks::try_lock_whole;
use crate::ops::io::File;
use crate::state::State;
use base::{Attr, Extent, Fid, Layout, LockId, ObjectId, Status, TargetId, Time, Transno, WallTime};
use bytes::Bytes;
use rpc::Kind;
use std::collections::BTreeMap;
use wire::ost::ObjectAttr;
use wire::{LockMode, LockPolicy, OstReply, OstRequest, Resource};

/// A file as its objects have it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FileSize {
    pub(crate) size_bytes: u64,
    pub(crate) block_count: u64,
    /// When data last changed; zero when never.
    pub(crate) stamp: WallTime,
}

/// What the answer to a write said of its object, and nothing else of this client was under way meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Written {
    pub(crate) target: TargetId,
    pub(crate) attr: ObjectAttr,
    pub(crate) transno: Transno,
}

impl Written {
    pub(crate) fn of(target: TargetId, answer: &OstAnswer) -> Option<Written> {
        let (Some(OstReply::Written { attr: Some(attr), .. }), _, transno) = answer else { return None };
        Some(Written { target, attr: *attr, transno: *transno })
    }
}

/// Objects that are locked for the sake of the size, at most: each is a request, and they are asked together without locks.
const SIZE_LOCK_COUNT_MAX: usize = 32;

impl FileSize {
    pub(super) fn of(layout: &Layout, objects: impl Iterator<Item = ObjectAttr>) -> FileSize {
        let mut sum = FileSize::default();
        for (stripe, ObjectAttr { size_bytes, block_count, stamp, .. }) in layout.stripes().zip(objects) {
            sum.size_bytes = sum.size_bytes.max(layout.file_size(stripe, size_bytes));
            sum.block_count = sum.block_count.saturating_add(block_count);
            sum.stamp = sum.stamp.max(stamp);
        }
        sum
    }

    /// What an MDT has said of the file, completed.
    pub(super) fn applied_to(&self, mut attr: Attr) -> Attr {
        attr.size_bytes = self.size_bytes;
        attr.block_count = self.block_count;
        if self.stamp > attr.mtime_stamp {
            attr.mtime = self.stamp;
            attr.mtime_stamp = self.stamp;
        }
        attr.ctime = attr.ctime.max(self.stamp);
        attr
    }
}

/// The size with what is kept back here, which stays here if nobody else can change the file.
pub(super) async fn size_with_kept(ctx: &Ctx, file: &File) -> Outcome<FileSize> {
    if let Some(size) = ctx.with(|state| state.known_size(file)) {
        return Ok(size);
    }
    lock_for_size(ctx, file).await;
    object_size(ctx, file).await
}

/// Who alone has the file open, and writes it, gets the locks without which he would have to ask each time: stripes that he has not come to are not
/// locked by his writes. Where others are in the way he goes without for a while.
async fn lock_for_size(ctx: &Ctx, file: &File) {
    let wanted = ctx.with(|state| state.locks_for_size(file));
    let asking = wanted.into_iter().map(|(target, object)| try_lock_whole(ctx, target, object)).collect();
    for pin in join_all(asking).await.into_iter().flatten() {
        ctx.with(|state| state.unpin(pin));
    }
}

/// Asks all objects of a file, each OST once, when they have what is kept back here; unless they have answered before and could not change since.
pub(crate) async fn object_size(ctx: &Ctx, file: &File) -> Outcome<FileSize> {
    // The answer to the last of what is here may tell the size.
    write_out_file(ctx, file.fid).await;
    let before = ctx.with(|state| state.at_rest(file));
    if let Some(size) = ctx.with(|state| state.known_size(file).filter(|_| state.is_unused(file))) {
        return Ok(size);
    }
    let (objects, _) = measure(ctx, file).await?;
    let size = FileSize::of(&file.layout, objects.iter().copied());
    ctx.with(|state| {
        let at_rest = before.filter(|before| state.at_rest(file).as_ref() == Some(before));
        if let Some(node) = state.nodes.by_fid_mut(file.fid) {
            node.data.measured =
                at_rest.map(|at_rest| Box::new(Measured { at_rest, objects, written: None }));
        }
    });
    Ok(size)
}

/// The objects by stripe, and what must be committed before no crash can take the answer back: others may have changed the file.
pub(super) async fn measure(
    ctx: &Ctx,
    file: &File,
) -> Outcome<(Vec<ObjectAttr>, BTreeMap<TargetId, Transno>)> {
    write_out_file(ctx, file.fid).await;
    wait_for_osts(ctx, &file.layout).await;
    let mut by_target: BTreeMap<TargetId, Vec<u32>> = BTreeMap::new();
    for stripe in file.layout.stripes() {
        by_target.entry(file.target(stripe)?).or_default().push(stripe);
    }
    let mut requests = Vec::with_capacity(by_target.len());
    for (target, stripes) in by_target {
        let objects = stripes.iter().map(|stripe| file.layout.object(*stripe)).collect();
        let ctx = ctx.clone();
        requests.push(async move {
            (
                target,
                stripes,
                ctx.ost(target, OstRequest::Getattr { objects }, Bytes::new(), Kind::Plain).await,
            )
        });
    }
    let mut objects = vec![ObjectAttr::default(); file.layout.stripe_count() as usize];
    let mut uncommitted: BTreeMap<TargetId, Transno> = BTreeMap::new();
    for (target, stripes, result) in join_all(requests).await {
        let attrs = match result?.0 {
            Some(OstReply::Attrs(attrs)) if attrs.len() == stripes.len() => attrs,
            _ => return Err(Status::ProtocolError),
        };
        for (stripe, attr) in stripes.into_iter().zip(attrs) {
            let attr = attr.unwrap_or_default();
            let last = uncommitted.entry(target).or_default();
            *last = attr.uncommitted.max(*last);
            if let Some(object) = objects.get_mut(stripe as usize) {
                *object = attr;
            }
        }
    }
    uncommitted.retain(|_, transno| *transno > Transno::ZERO);
    Ok((objects, uncommitted))
}

impl State {
    /// Attributes of a file whose size was known when it was opened here, if nothing was changed since or all of that goes with its close.
    pub(super) fn attr_since_open(&self, attr: &Attr) -> Option<Attr> {
        let unchanged_since = self.nodes.by_fid(attr.fid)?.data.unchanged_since;
        if unchanged_since == Some(attr.write_epoch) { Some(attr.clone()) } else { self.attr_with_kept(attr) }
    }

    /// Attributes of a file that this mount writes, if nobody has to be asked.
    pub(crate) fn attr_of_written(&self, fid: Fid) -> Option<Attr> {
        let is_written = self.nodes.by_fid(fid)?.data.writer_count > 0;
        let (attr, layout) = self.cached_row(fid).filter(|(attr, _)| is_written && !is_strict(attr))?;
        let known = self.attr_since_open(&attr);
        known.or_else(|| Some(self.known_size(&File::new(fid, layout))?.applied_to(attr)))
    }

    /// A write has ended, and its locks are not pinned any more: what its answer says of the object is all that is to know of a
    /// file that has one.
    pub(crate) fn note_written(&mut self, file: &File, written: &Written) {
        let Written { target, attr, transno } = *written;
        if !self.is_of_present(written) || file.layout.stripe_count() != 1 || !self.is_unused(file) {
            return;
        }
        let Some(at_rest) = self.at_rest(file) else { return };
        if let Some(node) = self.nodes.by_fid_mut(file.fid) {
            let (objects, written) = (vec![attr], Some((target, transno)));
            node.data.measured = Some(Box::new(Measured { at_rest, objects, written }));
        }
    }

    /// Something that was kept back has arrived. If nothing else has changed the objects since it was sent, they have only grown: of what several
    /// answers say, which come in any order, the most is true.
    pub(crate) fn note_kept_arrived(&mut self, file: &File, object: ObjectId, arrived: &Arrived) {
        let at_rest = self.at_rest(file);
        let is_alone = self.objects_changed_at(file.fid) == arrived.objects_changed_at;
        let told = arrived.told.filter(|told| is_alone && self.is_of_present(told));
        self.data_change_count += 1;
        let count = self.data_change_count;
        let is_one = file.layout.stripe_count() == 1;
        let Some(node) = self.nodes.by_fid_mut(file.fid) else { return };
        let data = &mut *node.data;
        data.kept_arrived_at = count;
        let measured = data.measured.as_mut().filter(|measured| Some(&measured.at_rest) == at_rest.as_ref());
        let stripe = file.layout.stripe_of(object).map(|stripe| stripe as usize);
        if let (Some(told), Some(measured), Some(stripe)) = (told, measured, stripe)
            && let Some(known) = measured.objects.get_mut(stripe)
        {
            let Written { target, attr, transno } = told;
            known.size_bytes = known.size_bytes.max(attr.size_bytes);
            known.block_count = known.block_count.max(attr.block_count);
            known.stamp = known.stamp.max(attr.stamp);
            measured.at_rest.kept_arrived_at = count;
            let last = measured.written.map_or(transno, |(_, last)| last.max(transno));
            measured.written = is_one.then_some((target, last));
        } else if let Some(told) = &arrived.told_alone {
            self.note_written(file, told);
        }
    }

    /// Whether its target has not restarted since.
    fn is_of_present(&self, written: &Written) -> bool {
        let connection = self.connections.get(&written.target);
        connection.is_some_and(|connection| connection.import.target_epoch() == written.transno.epoch())
    }

    /// The size that a write's answer told, if nothing has changed it since.
    pub(super) fn written_size(&self, file: &File) -> Option<(FileSize, TargetId, Transno)> {
        let (target, transno) = self.measured(file)?.written?;
        let is_there = self.is_unused(file) && !self.dirty.has_some_of(file.fid);
        Some((self.known_size(file).filter(|_| is_there)?, target, transno))
    }

    /// What the objects have said, if they say it still.
    fn measured(&self, file: &File) -> Option<&Measured> {
        let measured = self.nodes.by_fid(file.fid)?.data.measured.as_ref()?;
        let is_whole = measured.objects.len() == file.layout.stripe_count() as usize;
        (is_whole && self.at_rest(file).as_ref() == Some(&measured.at_rest)).then_some(measured)
    }

    /// The size with what is kept back here, if nobody has to be asked.
    fn known_size(&self, file: &File) -> Option<FileSize> {
        let objects = self.measured(file)?.objects.iter();
        let with_kept =
            |(stripe, attr): (u32, &ObjectAttr)| self.dirty.with_kept(file.layout.object(stripe), *attr);
        Some(FileSize::of(&file.layout, file.layout.stripes().zip(objects).map(with_kept)))
    }

    /// Nobody changes the objects of a file now, but with what is kept back here, and nobody can without this changing.
    fn at_rest(&self, file: &File) -> Option<AtRest> {
        let data = &self.nodes.by_fid(file.fid)?.data;
        let lock_of = |stripe: u32| {
            let target = file.target(stripe).ok()?;
            let lock = self.lock_on_whole(target, file.layout.object(stripe))?;
            Some((lock, self.connections.get(&target)?.import.target_epoch()))
        };
        let locks = file.layout.stripes().map(lock_of).collect::<Option<_>>()?;
        let (objects_changed_at, kept_arrived_at) = (data.objects_changed_at, data.kept_arrived_at);
        Some(AtRest { locks, objects_changed_at, kept_arrived_at })
    }

    fn lock_on_whole(&self, target: TargetId, object: ObjectId) -> Option<LockId> {
        let (resource, whole) = (Resource::Object(object), LockPolicy::Extent(Extent::WHOLE));
        let lock = self.connections.get(&target)?.locks.find(resource, LockMode::Pr, whole)?;
        (!self.lease_left(target).is_zero()).then_some(lock)
    }

    /// Whether no lock on its objects is in use, perhaps for a change that is under way.
    fn is_unused(&self, file: &File) -> bool {
        file.layout.stripes().all(|stripe| {
            let target = file.target(stripe).ok();
            let locks = target.and_then(|target| self.connections.get(&target)).map(|known| &known.locks);
            let resource = Resource::Object(file.layout.object(stripe));
            locks.is_some_and(|locks| {
                locks.on_resource(resource).iter().all(|lock| locks.pin_count(*lock) == 0)
            })
        })
    }

    /// The objects to lock so that the size is known from then on.
    fn locks_for_size(&mut self, file: &File) -> Vec<(TargetId, ObjectId)> {
        let now = self.now.time;
        let is_for_it = self.may_keep_back(file.fid) && self.is_cached_writer(file.fid);
        let missing = |stripe: u32| {
            let (target, object) = (file.target(stripe).ok()?, file.layout.object(stripe));
            self.lock_on_whole(target, object).is_none().then_some((target, object))
        };
        let missing: Vec<_> = match is_for_it {
            true => file.layout.stripes().filter_map(missing).collect(),
            false => Vec::new(),
        };
        let Some(node) = self.nodes.by_fid_mut(file.fid) else { return Vec::new() };
        let asked_at = node.data.size_locks_asked_at;
        let is_due = asked_at == Time::ZERO || asked_at.after(LOCK_RETRY_INTERVAL) <= now;
        if missing.is_empty() || missing.len() > SIZE_LOCK_COUNT_MAX || !is_due {
            return Vec::new();
        }
        node.data.size_locks_asked_at = now;
        missing
    }
}
