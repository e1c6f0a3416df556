//! The size of a file, which its objects have: asked for, or told by the answer to a write, and true for as long as nobody can change it.

use super::wait_for_osts;
use crate::ctx::{Ctx, OstAnswer, Outcome, join_all};
use crate::dirty::write_out_file;
use crate::file_data::{AtRest, Measured};
use crate::ops::io::File;
use crate::state::State;
use base::{Extent, Status, TargetId, Transno, WallTime};
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

/// Asks all objects of a file, each OST once; unless they have answered before and could not change since.
pub(crate) async fn object_size(ctx: &Ctx, file: &File) -> Outcome<FileSize> {
    // The answer to the last of what is here may tell the size.
    write_out_file(ctx, file.fid).await;
    let before = ctx.with(|state| state.at_rest(file));
    let known = ctx.with(|state| {
        let measured = state.nodes.by_fid(file.fid)?.data.measured.as_ref()?;
        (Some(&measured.at_rest) == before.as_ref()).then_some(measured.size)
    });
    if let Some(size) = known {
        return Ok(size);
    }
    let (size, _) = measure(ctx, file).await?;
    ctx.with(|state| {
        let at_rest = before.filter(|before| state.at_rest(file).as_ref() == Some(before));
        if let Some(node) = state.nodes.by_fid_mut(file.fid) {
            node.data.measured = at_rest.map(|at_rest| Box::new(Measured { at_rest, size, written: None }));
        }
    });
    Ok(size)
}

/// The same, and what must be committed before no crash can take the answer back: others may have changed the file.
pub(super) async fn measure(ctx: &Ctx, file: &File) -> Outcome<(FileSize, BTreeMap<TargetId, Transno>)> {
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
    let mut sum = FileSize::default();
    let mut uncommitted: BTreeMap<TargetId, Transno> = BTreeMap::new();
    for (target, stripes, result) in join_all(requests).await {
        let attrs = match result?.0 {
            Some(OstReply::Attrs(attrs)) if attrs.len() == stripes.len() => attrs,
            _ => return Err(Status::ProtocolError),
        };
        for (stripe, attr) in stripes.into_iter().zip(attrs) {
            let attr = attr.unwrap_or_default();
            let ObjectAttr { size_bytes, block_count, stamp, .. } = attr;
            let last = uncommitted.entry(target).or_default();
            *last = attr.uncommitted.max(*last);
            sum.size_bytes = sum.size_bytes.max(file.layout.file_size(stripe, size_bytes));
            sum.block_count = sum.block_count.saturating_add(block_count);
            sum.stamp = sum.stamp.max(stamp);
        }
    }
    uncommitted.retain(|_, transno| *transno > Transno::ZERO);
    Ok((sum, uncommitted))
}

impl State {
    /// A write has ended, and its locks are not pinned any more: what its answer says of the object is all that is to know of a
    /// file that has one.
    pub(crate) fn note_written(&mut self, file: &File, written: &Written) {
        let Written { target, attr, transno } = *written;
        let is_present = self
            .connections
            .get(&target)
            .is_some_and(|connection| connection.import.target_epoch() == transno.epoch());
        if !is_present || file.layout.stripe_count() != 1 {
            return;
        }
        let Some(at_rest) = self.at_rest(file) else { return };
        let size = FileSize {
            size_bytes: file.layout.file_size(0, attr.size_bytes),
            block_count: attr.block_count,
            stamp: attr.stamp,
        };
        if let Some(node) = self.nodes.by_fid_mut(file.fid) {
            let written = Some((target, transno));
            node.data.measured = Some(Box::new(Measured { at_rest, size, written }));
        }
    }

    /// The size that a write's answer told, if nothing has changed it since.
    pub(super) fn written_size(&self, file: &File) -> Option<(FileSize, TargetId, Transno)> {
        let measured = self.nodes.by_fid(file.fid)?.data.measured.as_ref()?;
        let (target, transno) = measured.written?;
        (self.at_rest(file).as_ref() == Some(&measured.at_rest)).then_some((measured.size, target, transno))
    }

    /// Nobody changes the data of a file now, and nobody can without this changing.
    fn at_rest(&self, file: &File) -> Option<AtRest> {
        let data_changed_at = self.data_changed_at(file.fid)?;
        let whole = LockPolicy::Extent(Extent::WHOLE);
        let lock_of = |stripe: u32| {
            let target = file.target(stripe).ok()?;
            let connection = self.connections.get(&target)?;
            let (locks, resource) = (&connection.locks, Resource::Object(file.layout.object(stripe)));
            let lock = locks.find(resource, LockMode::Pr, whole)?;
            // There may be another one, for a change that is under way.
            let is_unused = locks.on_resource(resource).iter().all(|lock| locks.pin_count(*lock) == 0);
            let is_good = is_unused && !self.lease_left(target).is_zero();
            is_good.then(|| (lock, connection.import.target_epoch()))
        };
        let locks = file.layout.stripes().map(lock_of).collect::<Option<_>>()?;
        Some(AtRest { locks, data_changed_at })
    }
}
