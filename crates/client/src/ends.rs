//! Short reads that the kernel would not believe.
//!
//! Where a file ends that another mount has cut, the kernel learns from a READ that brings less than it asked for. It believes
//! that only if the inode's attributes are of the version that they had when it sent the READ. Each notification about the inode
//! makes a new version, and so does each short READ that was believed: of several READs at once, only the first to be answered is.
//! If that one lies behind the end, the kernel takes where it starts for the end, puts zeros where the others brought nothing, and
//! hands them on.
//!
//! A READ of several pages is the kernel's reading ahead. Answered EAGAIN, its pages stay empty, nobody is told, and who needs one
//! of them asks for that page alone. So READs behind the end, and short ones that come too late, are answered so. Single pages cannot
//! be: their reader would see it. One behind the end waits until those below it are answered. One in which the file ends, and that
//! a notification has overtaken, may show zeros behind the end; it is dropped a little later, so that the next reader asks anew.

use crate::call::Answer;
use crate::ctx::Ctx;
use crate::machine::{Notify, NotifyId, Output};
use crate::pages::PAGE_BYTES;
use crate::state::State;
use base::{Attr, Duration, Extent, FileType, Time};

/// The kernel notes the version when it sends, which is as long before a READ is here at most.
const UNDERWAY: Duration = Duration::from_millis(10);

/// How long a page behind the end waits before it is looked at again, and how often.
pub(crate) const LATER: Duration = Duration::from_millis(1);
pub(crate) const LATER_COUNT_MAX: u32 = 100;

/// Until then whoever reads on after an end that was perhaps not believed has done so: his next pages must not be overtaken too.
const DOUBT_LIFE: Duration = Duration::from_millis(20);

/// A READ that found less than it wanted, or as much.
#[derive(Clone, Copy)]
pub(crate) struct ShortRead {
    pub(crate) came: Time,
    pub(crate) extent: Extent,
    pub(crate) found_byte_count: u64,
}

pub(crate) enum End {
    /// It is answered.
    Believed,
    /// It is answered, and the kernel may not believe it: its page goes again.
    Doubted,
    /// It is answered EAGAIN.
    Refused,
    /// Others that lie below it are to be answered first. Its pages are empty, and it is read anew.
    Later,
}

impl State {
    /// Tells the kernel to forget something.
    pub(crate) fn send_notify(&mut self, notify: Notify) -> NotifyId {
        self.last_notify += 1;
        let id = NotifyId(self.last_notify);
        let all = match &notify {
            Notify::Several(notices) => notices.as_slice(),
            one => std::slice::from_ref(one),
        };
        for notice in all {
            if let Notify::InvalInode { node, .. } | Notify::Store { node, .. } = notice {
                self.telling.insert(id, *node);
            }
            // What is pushed makes no version: it lies within the size.
            if let Notify::InvalInode { node, .. } = notice {
                self.note_size_version(*node);
            }
        }
        self.out.push(Output::Notify(id, notify));
        id
    }

    /// The kernel has been told.
    pub(crate) fn note_told(&mut self, id: NotifyId) {
        for node in self.telling.remove(id) {
            self.note_version(node);
            if !self.pushes.is_one(id) {
                self.note_size_version(node);
            }
        }
    }

    fn note_size_version(&mut self, node: u64) {
        let now = self.now.time;
        if let Some(node) = self.nodes.get_mut(node) {
            node.kernel_size.on_version(now);
        }
    }

    /// The kernel counts the version of a file's attributes up as well when a name of it has gone.
    pub(crate) fn note_name_gone(&mut self, node: u64) {
        self.note_version(node);
        self.note_size_version(node);
    }

    /// The kernel is told sizes of files, in the answer to a call that came at `came`.
    pub(crate) fn note_sizes(&mut self, answer: &Answer, came: Time) {
        match answer {
            Answer::Attr(answer) => self.note_size(&answer.attr, came),
            Answer::Entry(entry) | Answer::Created { entry, .. } => {
                entry.attr.iter().for_each(|attr| self.note_size(attr, came));
            }
            Answer::Entries(entries) => {
                let attrs = entries.iter().filter_map(|entry| entry.entry.as_ref()?.attr.as_ref());
                attrs.for_each(|attr| self.note_size(attr, came));
            }
            _ => {}
        }
    }

    fn note_size(&mut self, attr: &Attr, came: Time) {
        if attr.file_type != FileType::Regular {
            return;
        }
        let (now, node) = (self.now.time, attr.fid.inode_number());
        let is_disturbed = self.telling.about(node).any(|id| !self.pushes.is_one(id));
        if let Some(node) = self.nodes.get_mut(node) {
            node.kernel_size.on_told(attr.size_bytes, (came, now), is_disturbed);
        }
    }

    /// The kernel is told that it has written up to there.
    pub(crate) fn note_kernel_wrote(&mut self, node: u64, end: u64) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.kernel_size.on_written(end);
        }
    }

    /// The kernel may have just counted the version of the inode's attributes up.
    fn note_version(&mut self, node: u64) {
        let now = self.now.time;
        if let Some(node) = self.nodes.get_mut(node) {
            node.versioned_at = now;
        }
    }

    /// Whether the kernel believes that a file ends with what a cached READ has found.
    pub(crate) fn end_of_read(&mut self, node: u64, read: ShortRead) -> End {
        let now = self.now.time;
        if read.found_byte_count == read.extent.byte_count() {
            return End::Believed;
        }
        if let Some(known) = self.nodes.get_mut(node) {
            known.kernel_size.on_short_read(read.extent.start + read.found_byte_count, now);
        }
        if self.ahead.bounds.kernel_window_bytes == 0 {
            return End::Believed;
        }
        let is_told = self.telling.about(node).next().is_some();
        let is_below_in_flight = self.traffic.has_read_below(node, read.extent.start);
        let Some(known) = self.nodes.get_mut(node) else { return End::Believed };
        let is_overtaken = is_told || known.versioned_at >= read.came;
        let is_late = is_told || known.versioned_at.after(UNDERWAY) >= read.came;
        let is_empty = read.found_byte_count == 0;
        if read.extent.byte_count() > PAGE_BYTES && (is_empty || is_late) {
            known.data.refused_read = Some((now, read.extent.start));
            return End::Refused;
        }
        let is_asked_again =
            |(at, start): (Time, u64)| start < read.extent.start && at.after(UNDERWAY) >= now;
        if is_empty && (is_below_in_flight || known.data.refused_read.is_some_and(is_asked_again)) {
            return End::Later;
        }
        known.versioned_at = now;
        if is_overtaken && !is_empty { End::Doubted } else { End::Believed }
    }
}

/// The kernel forgets the pages of a READ, when it has been answered.
pub(crate) fn drop_doubted(ctx: &Ctx, node: u64, extent: Extent) {
    let later = ctx.clone();
    ctx.spawn(async move {
        later.sleep(DOUBT_LIFE).await;
        later.with(|state| state.drop_unasked(node, extent));
    });
}
