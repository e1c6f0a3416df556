//! What is known of an inode because it is a file whose data are, or lately were, read, written or locked here. Of most that the kernel
//! knows it has asked for names and attributes only.

use crate::advisory::Advisory;
use crate::opened::OpenedData;
use crate::pages::Pages;
use crate::seldom::{Bare, Seldom};
use base::{Epoch, LockId, TargetId, Time, Transno, WallTime};
use wire::ost::ObjectAttr;

/// What the objects of a file said, by stripe. True as long as they are `at_rest`, but for what is kept back here or on its way after that.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) at_rest: AtRest,
    pub(crate) objects: Vec<ObjectAttr>,
    /// Told with the answer to a write: from when this is committed, no crash can take it back.
    pub(crate) written: Option<(TargetId, Transno)>,
}

/// A time in which nobody changes the objects of a file: a lock on the whole of each is held, its target has restarted so often, and the
/// last requests of this client that change them, and that bring what was kept back, were those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AtRest {
    pub(crate) locks: Vec<(LockId, Epoch)>,
    pub(crate) objects_changed_at: u64,
    pub(crate) kept_arrived_at: u64,
}

#[derive(Debug, Default)]
pub(crate) struct FileData {
    /// Write epoch in which the size in `Node::attr` was known, while this client has changed no data since.
    pub(crate) unchanged_since: Option<u64>,
    /// The same, while all that this client has changed since is kept back here (`dirty`).
    pub(crate) kept_since: Option<u64>,
    pub(crate) opened: Option<Box<OpenedData>>,
    /// `State::data_change_count` as of this client's last change of data or of pages: when it had the locks, and at its end.
    pub(crate) changed_at: u64,
    /// `State::data_change_count` when a request that changes its objects last began or ended. Those do not count that bring what was kept
    /// back, unless one fails.
    pub(crate) objects_changed_at: u64,
    /// The same when something arrived that was kept back.
    pub(crate) kept_arrived_at: u64,
    /// When locks were last asked for that nothing but its size needs.
    pub(crate) size_locks_asked_at: Time,
    /// What the objects said last, if it can be believed again.
    pub(crate) measured: Option<Box<Measured>>,
    /// Its size is being measured for its MDT, which does not know it although nobody writes.
    pub(crate) is_settling: bool,
    /// The write epoch in which its MDT did not know its size although nobody could write it any more, and since when.
    pub(crate) unsettled: Option<(u64, Time)>,
    /// When its MDT was last asked whether somebody may write it, or that began to be of interest.
    pub(crate) settling_asked_at: Option<Time>,
    /// When a short READ was last refused, and where it began.
    pub(crate) refused_read: Option<(Time, u64)>,
    /// A lock on its data was refused for others: it is waited for, and not asked for with a write.
    pub(crate) is_contended: bool,
    /// When the write-back lock was last asked for.
    pub(crate) write_back_asked_at: Time,
    /// The last one that this client has given out.
    pub(crate) last_stamp: WallTime,
    /// Handles for writing through the page cache (hazard 3.5).
    pub(crate) cached_writer_count: u32,
    /// All handles for writing.
    pub(crate) writer_count: u32,
    /// What says that this mount alone has changed its size since the kernel was last told to believe no answers from before.
    pub(crate) late_answers_void_under: Option<LockId>,
    /// What the kernel may have in its page cache.
    pub(crate) pages: Seldom<Pages>,
    /// Directories have them, too, by flock(2).
    pub(crate) advisory: Seldom<Advisory>,
}

impl Bare for FileData {
    const BARE: &'static FileData = &FileData {
        unchanged_since: None,
        kept_since: None,
        opened: None,
        changed_at: 0,
        objects_changed_at: 0,
        kept_arrived_at: 0,
        size_locks_asked_at: Time::ZERO,
        measured: None,
        is_settling: false,
        unsettled: None,
        settling_asked_at: None,
        refused_read: None,
        is_contended: false,
        write_back_asked_at: Time::ZERO,
        last_stamp: WallTime(0),
        cached_writer_count: 0,
        writer_count: 0,
        late_answers_void_under: None,
        pages: Seldom::none(),
        advisory: Seldom::none(),
    };
}

impl FileData {
    /// Takes in the answer to an open for writing. An epoch that follows the known one is this open's own.
    pub(crate) fn note_write_open(&mut self, write_epoch: u64, was_size_known: bool) {
        let is_unchanged = was_size_known || self.unchanged_since.map(|epoch| epoch + 1) == Some(write_epoch);
        self.unchanged_since = is_unchanged.then_some(write_epoch);
        self.kept_since = self.unchanged_since;
    }
}
