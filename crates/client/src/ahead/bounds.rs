//! What an operator sets and sees of read-ahead.

/// Bounds of an operator (`llite.*.max_read_ahead_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadBounds {
    /// Bytes in windows of all files, on their way or here; 0: reads ask for what they need.
    pub byte_count: u64,
    /// The same of one file, as it was asked for: no more than that of all files is in force.
    pub file_byte_count: u64,
    /// Files up to this size are fetched as a whole with their first read; no more than what one file may have is in force.
    pub whole_byte_count: u64,
    /// As much does the kernel ask for around a page fault; 0: not known.
    pub kernel_window_bytes: u64,
    /// What several threads will read in a stream is put into the kernel's page cache before it is asked for.
    pub is_pushing: bool,
    /// Of files up to this size. The kernel takes what it is given for used: of a file that does not fit into memory it would keep that
    /// rather than what others use, drop some of it all the same, and ask again.
    pub pushed_file_byte_count: u64,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAheadBound {
    Bytes(u64),
    FileBytes(u64),
    WholeBytes(u64),
    KernelWindowBytes(u64),
    Pushing(bool),
    PushedFileBytes(u64),
}

impl ReadAheadBounds {
    /// Each is kept as it was asked for, so that it does not matter which is set first.
    pub(crate) fn set(&mut self, bound: ReadAheadBound) {
        match bound {
            ReadAheadBound::Bytes(byte_count) => self.byte_count = byte_count,
            ReadAheadBound::FileBytes(byte_count) => self.file_byte_count = byte_count,
            ReadAheadBound::WholeBytes(byte_count) => self.whole_byte_count = byte_count,
            ReadAheadBound::KernelWindowBytes(byte_count) => self.kernel_window_bytes = byte_count,
            ReadAheadBound::Pushing(is_pushing) => self.is_pushing = is_pushing,
            ReadAheadBound::PushedFileBytes(byte_count) => self.pushed_file_byte_count = byte_count,
        }
    }

    /// What one file may have, in bytes.
    pub fn file_bytes_in_force(&self) -> u64 {
        self.file_byte_count.min(self.byte_count)
    }

    /// The size in bytes up to which a file is fetched as a whole.
    pub fn whole_bytes_in_force(&self) -> u64 {
        self.whole_byte_count.min(self.file_bytes_in_force())
    }
}

impl Default for ReadAheadBounds {
    fn default() -> ReadAheadBounds {
        ReadAheadBounds {
            byte_count: 256 << 20,
            file_byte_count: 64 << 20,
            whole_byte_count: 4 << 20,
            kernel_window_bytes: 0,
            is_pushing: true,
            pushed_file_byte_count: u64::MAX,
        }
    }
}

/// What read-ahead has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadStats {
    /// Pages that were answered from windows.
    pub hit_page_count: u64,
    /// Pages that were asked for by themselves.
    pub miss_page_count: u64,
    /// Pages that were dropped and never handed on.
    pub discarded_page_count: u64,
    /// Requests of the kernel that were refused, as they were about one page of many.
    pub refused_count: u64,
    /// Windows that were not fetched ahead for want of room.
    pub no_room_count: u64,
    /// The same for want of a lock.
    pub no_lock_count: u64,
    /// Pages that the kernel was given unasked.
    pub pushed_page_count: u64,
    /// Pages in each window that was asked for.
    pub window_pages: crate::stats::Counter,
}
