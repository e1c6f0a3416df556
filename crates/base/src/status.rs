//! The one registry of outcomes: what a reply says, what a client does about it, and which errno a caller sees.

use borsh::{BorshDeserialize, BorshSerialize};
use std::fmt;

/// What to do about a status; retry logic matches on this only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// The operation's own result: hand it to the caller.
    Answer,
    /// Not now: send the same request again later.
    Retry,
    /// The session is unknown to the server: connect first.
    Reconnect,
    /// The client was evicted: its locks, opens and uncommitted work on this target are gone.
    Evicted,
    /// Damaged bytes were found and refused.
    Corrupt,
    /// The peers do not understand each other.
    Incompatible,
}

macro_rules! statuses {
    ($($name:ident = $code:literal, $class:ident, $errno:literal, $text:literal;)*) => {
        /// Outcome of a request. Codes are part of the wire format and never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Status { $($name = $code),* }

        impl Status {
            pub const ALL: &'static [Status] = &[$(Status::$name),*];

            pub fn code(self) -> u16 { self as u16 }

            /// `None` for a code of a newer version; callers treat that as `ProtocolError`.
            pub fn from_code(code: u16) -> Option<Status> {
                match code { $($code => Some(Status::$name),)* _ => None }
            }

            pub fn class(self) -> StatusClass {
                match self { $(Status::$name => StatusClass::$class),* }
            }

            /// The errno that a system call returns for it; 0 for success.
            pub fn errno(self) -> i32 {
                match self { $(Status::$name => $errno),* }
            }

            pub fn text(self) -> &'static str {
                match self { $(Status::$name => $text),* }
            }
        }
    };
}

statuses! {
    Ok = 0, Answer, 0, "success";
    NotPermitted = 1, Answer, 1, "operation not permitted";
    NotFound = 2, Answer, 2, "no such file or directory";
    Interrupted = 3, Answer, 4, "interrupted";
    Io = 4, Answer, 5, "input/output error";
    NoDevice = 5, Answer, 6, "no such device or address";
    BadHandle = 6, Answer, 9, "bad file handle";
    WouldBlock = 7, Answer, 11, "resource temporarily unavailable";
    NoMemory = 8, Answer, 12, "out of memory";
    AccessDenied = 9, Answer, 13, "permission denied";
    Busy = 10, Answer, 16, "busy";
    Exists = 11, Answer, 17, "file exists";
    CrossDevice = 12, Answer, 18, "cross-device link";
    NotDirectory = 13, Answer, 20, "not a directory";
    IsDirectory = 14, Answer, 21, "is a directory";
    Invalid = 15, Answer, 22, "invalid argument";
    TextBusy = 16, Answer, 26, "text file busy";
    TooBig = 17, Answer, 27, "file too large";
    NoSpace = 18, Answer, 28, "no space left on device";
    ReadOnly = 19, Answer, 30, "read-only file system";
    TooManyLinks = 20, Answer, 31, "too many links";
    OutOfRange = 21, Answer, 34, "result out of range";
    Deadlock = 22, Answer, 35, "resource deadlock avoided";
    NameTooLong = 23, Answer, 36, "file name too long";
    NoLocks = 24, Answer, 37, "no locks available";
    NotSupportedCall = 25, Answer, 38, "function not implemented";
    NotEmpty = 26, Answer, 39, "directory not empty";
    TooManySymlinks = 27, Answer, 40, "too many levels of symbolic links";
    NoData = 28, Answer, 61, "no such attribute";
    Stale = 29, Answer, 116, "stale file handle";
    Quota = 30, Answer, 122, "disk quota exceeded";
    NotSupported = 31, Answer, 95, "operation not supported";
    Overflow = 32, Answer, 75, "value too large";
    TooLargeXattr = 33, Answer, 7, "argument list too long";
    Again = 64, Retry, 11, "the target is busy: try again";
    Recovering = 65, Retry, 11, "the target is recovering";
    InProgress = 66, Retry, 115, "in progress";
    NotConnected = 67, Reconnect, 107, "no such session";
    Evicted = 68, Evicted, 5, "evicted";
    // A write under a lock that its client no longer holds: take the lock again, then send it again.
    LockLost = 69, Answer, 11, "the lock is not held any more";
    Corrupt = 70, Corrupt, 5, "damaged data";
    Poisoned = 71, Retry, 5, "the target's device failed";
    ProtocolError = 72, Incompatible, 71, "protocol error";
    VersionMismatch = 73, Incompatible, 71, "protocol versions do not fit";
    WrongTarget = 74, Incompatible, 71, "this is another target or file system";
    VersionConflict = 75, Answer, 5, "replay depends on something that was lost";
    // Unlike what was removed, it is found again under its name: the kernel walks there once more.
    Moved = 76, Answer, 116, "it has moved to another MDT";
    Outdated = 77, Incompatible, 71, "an older copy of a target that was started since";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Status {}

impl BorshSerialize for Status {
    fn serialize<W: borsh::io::Write>(&self, writer: &mut W) -> borsh::io::Result<()> {
        self.code().serialize(writer)
    }
}

impl BorshDeserialize for Status {
    fn deserialize_reader<R: borsh::io::Read>(reader: &mut R) -> borsh::io::Result<Self> {
        Ok(Status::from_code(u16::deserialize_reader(reader)?).unwrap_or(Status::ProtocolError))
    }
}

#[cfg(test)]
mod tests;
