//! The judge of a round: some order of its operations must explain what all of them told.

use super::*;
use crate::model::{EINVAL, EIO, ENOSPC, Stat};
use base::{Extent, Layout};
use mds::rows;

impl World {
    /// What is about to be written is not what was synced any more.
    pub(super) fn forget_synced(&mut self, seat: usize, op: &Op) {
        match op {
            Op::Write { slot, .. } | Op::Append { slot, .. } => {
                let node = self.mounts[seat].port.borrow().handles.get(slot).map(|(node, _)| *node);
                if let Some(node) = node {
                    self.synced.remove(&node);
                }
            }
            Op::Truncate { .. } => self.synced.clear(),
            _ => {}
        }
    }

    /// What fsync has answered survives everything, its caller too.
    pub(super) fn note_synced(&mut self, round: &[Done]) {
        let is_writing =
            |done: &Done| matches!(done.op, Op::Write { .. } | Op::Append { .. } | Op::Truncate { .. });
        if self.candidates.len() != 1 || round.iter().any(is_writing) {
            return;
        }
        for done in round {
            let Op::Fsync { slot } = done.op else { continue };
            let inode = self.model.handles.get(&(done.client, slot)).map(|ino| self.model.inode(*ino));
            if let Some(Inode { content: Content::File(data), node: Some(node), .. }) = inode
                && done.outcome == Some(Told::Done)
                && !done.has_told_loss
            {
                self.synced.insert(*node, Rc::clone(data));
                self.shared
                    .borrow_mut()
                    .counts
                    .entry("fsync to be kept")
                    .and_modify(|n| *n += 1)
                    .or_insert(1);
            }
        }
    }

    /// Some order of the operations must explain what all of them told.
    pub(super) fn judge_round(&mut self) {
        for index in 0..self.round.len() {
            self.round[index].take_told_loss();
            let told = self.round[index].outcome.as_ref();
            self.count(match told {
                Some(Told::Written(_)) => "write was short",
                Some(Told::Error(_)) => "operation failed",
                _ => "operation succeeded",
            });
            let failed =
                told.and_then(|told| if let Told::Error(errno) = told { Some(*errno) } else { None });
            if let (Some(EIO), false) = (failed, self.is_doubtful) {
                let done = &self.round[index];
                self.violate("model", format!("client {}: {:?} failed with EIO", done.client, done.op));
                return;
            }
        }
        if self.is_doubtful {
            return;
        }
        let round = std::mem::take(&mut self.round);
        let ops: Vec<&Done> = round.iter().collect();
        let room = self.room_for(&ops);
        let candidates = explain(&self.candidates, &ops, &room, self.started * 10);
        match candidates.first() {
            Some(model) => {
                self.model = model.clone();
                self.candidates = candidates;
                self.note_synced(&round);
                self.note_fresh(&round);
            }
            None => {
                let told: Vec<String> = round.iter().map(|done| self.explain_one(done)).collect();
                self.violate("model", format!("no order explains: {}", told.join("; ")));
            }
        }
    }

    /// What others are to build on in the next round.
    fn note_fresh(&mut self, round: &[Done]) {
        let succeeded = round.iter().filter(|done| !matches!(done.outcome, None | Some(Told::Error(_))));
        for Done { client, op, .. } in succeeded {
            match op {
                Op::Rename { from, to, .. } => self.moved.push((*client, (from.clone(), to.clone()))),
                Op::Migrate { path, .. } => self.moved.push((*client, (path.clone(), path.clone()))),
                Op::Write { slot, .. } | Op::Append { slot, .. } => {
                    let ino = self.model.handles.get(&(*client, *slot)).copied();
                    let path = ino.and_then(|ino| self.model.path_of(ino));
                    self.just_written.extend(path.map(|path| (*client, path)));
                }
                _ => {}
            }
        }
    }

    /// What is to know of those that were refused for want of space.
    fn room_for(&self, ops: &[&Done]) -> Room {
        let mut room = Room { full: self.was_full.clone(), layouts: BTreeMap::new() };
        if ops.iter().any(|done| done.written_before_refusal().is_some()) {
            let mdts = self.servers.values().filter(|server| server.id.kind == TargetKind::Mdt);
            let rows = mdts.flat_map(|server| server.meta.rows());
            let inodes = rows.filter(|((table, _), _)| *table == rows::INODES);
            let inodes = inodes.filter_map(|(_, value)| rows::decode::<rows::Inode>(&value).ok());
            let layouts = inodes.filter_map(|inode| Some((inode.attr.fid.inode_number(), inode.layout?)));
            room.layouts = layouts.collect();
        }
        room
    }

    pub(super) fn explain_one(&self, done: &Done) -> String {
        let mut model = self.model.clone();
        model.prepare(usize::MAX / 2);
        let expected = model.apply(done.client, &done.op).unwrap_or_else(Told::Error);
        let told = done.outcome.as_ref().map(tell).unwrap_or_default();
        let expected = tell(&expected);
        format!("client {}: {:?} -> {told} (alone: {expected})", done.client, done.op)
    }

    /// Judges one operation that ran alone. False when no state explains it; `model` is one that does.
    pub fn judge_alone(&mut self, seat: usize, op: &Op, told: &Told) -> bool {
        let before = self.candidates.len();
        self.candidates.retain_mut(|model| model.explains(seat, op, told));
        match self.candidates.first() {
            Some(model) => self.model = model.clone(),
            None => assert!(before > 0, "there is always a state"),
        }
        !self.candidates.is_empty()
    }

    /// After reading the state back everything is certain again.
    pub fn trust(&mut self) {
        self.is_doubtful = false;
        for mount in &mut self.mounts {
            mount.is_doubtful = false;
        }
    }
}

impl Done {
    /// Of EIO where something was lost `losses` judges. Else such a call has done what it does without it.
    pub fn take_told_loss(&mut self) {
        let may_tell = matches!(self.op, Op::Fsync { .. } | Op::Close { .. } | Op::SyncAll);
        if may_tell && self.outcome == Some(Told::Error(EIO)) {
            self.outcome = Some(Told::Done);
            self.has_told_loss = true;
        }
    }

    /// For a write that was not wholly done since a disk was full: how many bytes were.
    fn written_before_refusal(&self) -> Option<u64> {
        match (&self.op, &self.outcome) {
            (Op::Write { .. } | Op::Append { .. }, Some(Told::Error(ENOSPC))) => Some(0),
            (_, Some(Told::Written(byte_count))) => Some(*byte_count),
            _ => None,
        }
    }

    /// What it has done: a short write is one of fewer bytes, and nothing else.
    fn effect(&self) -> Op {
        let mut op = self.op.clone();
        if let Op::Write { byte_count, .. } | Op::Append { byte_count, .. } = &mut op {
            *byte_count = self.written_before_refusal().unwrap_or(*byte_count);
        }
        op
    }
}

/// Where there was none in a round.
#[derive(Default)]
struct Room {
    full: BTreeSet<TargetId>,
    /// By node, of files; empty unless somebody was refused.
    layouts: BTreeMap<u64, Layout>,
}

impl Room {
    /// Whether a write may have ended where it did: what comes next belongs to another object, or is the first of all, and that
    /// object's OST was full.
    fn has_refused(&self, model: &Model, done: &Done) -> bool {
        let Some(written) = done.written_before_refusal() else { return false };
        let (Op::Write { slot, .. } | Op::Append { slot, .. }) = done.op else { return false };
        let Some(ino) = model.handles.get(&(done.client, slot)) else { return false };
        let inode = model.inode(*ino);
        let Content::File(data) = &inode.content else { return false };
        let (start, byte_count) = match done.op {
            Op::Write { offset, byte_count, .. } => (offset, byte_count),
            Op::Append { byte_count, .. } => (data.len() as u64, byte_count),
            _ => return false,
        };
        if done.outcome == Some(Told::Written(0)) {
            return false;
        }
        // An MDT that has just lost power may not know the file yet.
        let Some(layout) = inode.node.and_then(|node| self.layouts.get(&node)) else {
            return !self.full.is_empty();
        };
        layout.pieces(Extent::at(start, byte_count)).iter().any(|piece| {
            let ost = layout.stripe(piece.stripe).map(|stripe| TargetId::ost(stripe.ost));
            piece.file_offset_bytes == start + written && ost.is_some_and(|ost| self.full.contains(&ost))
        })
    }
}

/// Whether the operation is a rename that may have walked to its directories before another rename and have named them
/// after it: then it moved a directory below itself, although no order of the two says so.
fn is_below_itself(ops: &[&Done], index: usize) -> bool {
    let is_rename = |done: &Done| matches!(done.op, Op::Rename { .. });
    let is_moved = |done: &Done| is_rename(done) && done.outcome == Some(Told::Done);
    is_rename(ops[index]) && ops.iter().enumerate().any(|(other, done)| other != index && is_moved(done))
}

/// The objects of one file change one by one: beside a write or a truncate a stat may find some changed and some not
/// (docs/limits.md). Such a size is taken for the one before.
fn told_between(ops: &[&Done], index: usize, model: &Model) -> Option<Told> {
    let done = ops.get(index)?;
    let Some(Told::Stat(stat)) = &done.outcome else { return None };
    let mut inodes =
        model.inodes.iter().filter(|(_, inode)| inode.node == Some(stat.node) && inode.is_striped);
    let (ino, inode) = inodes.next()?;
    let Content::File(data) = &inode.content else { return None };
    let size = data.len() as u64;
    let is_of_file = |client: usize, slot: usize| model.handles.get(&(client, slot)) == Some(ino);
    let others = ops.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other);
    let mut sizes_after = others.filter_map(|other| match other.effect() {
        Op::Write { slot, offset, byte_count, .. } if is_of_file(other.client, slot) => {
            Some(offset + byte_count)
        }
        Op::Append { slot, byte_count, .. } if is_of_file(other.client, slot) => Some(size + byte_count),
        Op::Truncate { size, .. } => Some(size),
        _ => None,
    });
    let is_between = |after: u64| (size.min(after)..size.max(after)).contains(&stat.size);
    sizes_after.any(is_between).then(|| Told::Stat(Stat { size, ..stat.clone() }))
}

/// All models that some order of the operations leads to. Operations whose sets have met are merged, so this is a
/// search over sets of operations and not over their orders.
fn explain(models: &[Model], ops: &[&Done], room: &Room, first_ino: usize) -> Vec<Model> {
    let mut by_set: BTreeMap<u32, Vec<Model>> = BTreeMap::from([(0, models.to_vec())]);
    let all = (1_u32 << ops.len()) - 1;
    while let Some((set, models)) = by_set.pop_first() {
        if set == all {
            return models;
        }
        for (index, done) in ops.iter().enumerate().filter(|(index, _)| set & (1 << index) == 0) {
            let others = ops.iter().enumerate().filter(|(other, _)| *other != index);
            let is_list = matches!(done.op, Op::List { .. });
            let is_disturbing = |op: &Op| if is_list { op.is_naming() } else { op.is_removing() };
            let is_disturbed = others.map(|(_, other)| other).any(|other| is_disturbing(&other.op));
            let told = done.outcome.as_ref();
            let may_miss = is_disturbed && told.is_some_and(|told| done.op.may_miss(told))
                || told == Some(&Told::Error(EINVAL)) && is_below_itself(ops, index);
            let effect = done.effect();
            for model in &models {
                let mut next = model.clone();
                if let Some(written) = done.written_before_refusal() {
                    let is_right = room.has_refused(model, done)
                        && (written == 0 || next.apply(done.client, &effect).is_ok());
                    if !is_right {
                        continue;
                    }
                } else if !may_miss {
                    next.prepare(first_ino + index);
                    let between = told_between(ops, index, model);
                    let told = between.as_ref().or(done.outcome.as_ref());
                    if !told.is_some_and(|told| next.explains(done.client, &effect, told)) {
                        continue;
                    }
                    next.prepare(0);
                }
                let known = by_set.entry(set | (1 << index)).or_default();
                if known.len() < CANDIDATES_MAX && !known.contains(&next) {
                    known.push(next);
                }
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests;
