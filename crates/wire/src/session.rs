//! Sessions: what is said at connect.

use base::{ClientId, Epoch, Start, Transno, WallTime};
use borsh::{BorshDeserialize, BorshSerialize};

/// Features that both ends must name before either uses them.
pub mod features {
    /// Data may travel without a checksum (`flags::UNCHECKED_DATA`).
    pub const UNCHECKED_DATA: u64 = 1;
    /// Parts of operations over several MDTs may come in streams (`wire::peer`).
    pub const STREAMS: u64 = 2;
    /// What takes names away says what they led to (`mdt::Met`), and a replay names it again.
    pub const MET: u64 = 4;
    /// Inodes move between MDTs (`MdtRequest::Migrate` and the parts of it).
    pub const MIGRATION: u64 = 8;
    /// Who replays to an MDT says first what (`manifest`), and lets the target hear from it each second meanwhile.
    pub const MANIFESTS: u64 = 16;
    /// Regular files move between MDTs too: of an MDT that it gives them, of an OST that it adopts their objects
    /// (`OstRequest::Adopt`).
    pub const FILE_MIGRATION: u64 = 32;
    /// A lock on an object may come with bytes that are read under it (`OstRequest::LockAndRead`).
    pub const READ_WITH_LOCK: u64 = 64;
    /// `mdt::Entry::may_be_written` counts everybody. (Before: other clients that have the file open for writing.)
    pub const WRITERS: u64 = 128;
    /// Sizes of several files may be reported in one request (`MdtRequest::ReportSizes`).
    pub const REPORTS: u64 = 256;
    /// The same as `MANIFESTS` to an OST.
    pub const OBJECT_MANIFESTS: u64 = 512;
    /// The answer to a close has the attributes of a file that was open for writing also where a size is wanted
    /// (`MdtReply::Closed`).
    pub const CLOSED_ATTR: u64 = 1024;
    /// Everything that this build knows.
    pub const ALL: u64 = UNCHECKED_DATA
        | STREAMS
        | MET
        | MIGRATION
        | MANIFESTS
        | FILE_MIGRATION
        | READ_WITH_LOCK
        | WRITERS
        | REPORTS
        | OBJECT_MANIFESTS
        | CLOSED_ATTR;

    /// Whether what both ends know has replays listed. A target offers one of the two, by its kind.
    pub fn has_manifests(features: u64) -> bool {
        features & (MANIFESTS | OBJECT_MANIFESTS) != 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ConnectRequest {
    pub version: u32,
    pub version_oldest: u32,
    pub features: u64,
    pub fsname: String,
    pub client: ClientId,
    /// Rises when the client starts anew with the same id (a restarted MDT): what the old one held is dropped.
    pub incarnation: u64,
    /// Incarnation of the target that the client was last connected to; 0 for the first connect.
    pub target_epoch: Epoch,
    /// Session that the client believes in; 0 for none. Tells a client that was evicted in between.
    pub session: u64,
    /// What operators see: address and host name of the client.
    pub nid: String,
    /// Uuid that the configuration names for the target; 0 when not known.
    pub target_uuid: u128,
    /// Who does not know it skips it.
    #[borsh(serialize_with = "crate::starts::serialize", deserialize_with = "crate::starts::deserialize")]
    pub starts: Starts,
}

/// Starts of targets at both ends, by which a copy of one is told from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Starts {
    /// Of a caller that is a target: its last ones, this one the last; empty of any other.
    pub of_caller: Vec<Start>,
    /// When the target, as `target_epoch`, was started.
    pub target_at: WallTime,
    /// Up to there the target has said that everything is durable; zero: it has said nothing yet.
    pub committed: Transno,
}

/// What became of the client's state on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum SessionState {
    /// Nothing was known: a fresh session. A client that believed otherwise was evicted.
    New = 1,
    /// The session is as it was: resend what was not answered.
    Resumed = 2,
    /// The target was restarted and waits: replay, then say `ReplayDone`.
    Replay = 3,
}

/// Its frame's `transno`: of what the target has executed in `ConnectRequest::target_epoch`, everything up to there is there still (zero from
/// who does not say). Who was evicted replays nothing, and has lost the rest.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ConnectReply {
    pub version: u32,
    pub features: u64,
    pub session: u64,
    pub state: SessionState,
    pub target_epoch: Epoch,
    pub target_uuid: u128,
    pub slot_count: u16,
    /// Nanoseconds since 1970 at the target, for file times.
    pub server_time_ns: i64,
    pub lease_ms: u32,
    /// What the target runs, for operators; empty of one that does not say. Who does not know it skips it.
    #[borsh(
        serialize_with = "crate::software::serialize",
        deserialize_with = "crate::software::deserialize"
    )]
    pub software: String,
    /// When the target was started, as `target_epoch`; 0 of one that does not say. Skipped likewise.
    #[borsh(
        serialize_with = "crate::starts::serialize_time",
        deserialize_with = "crate::starts::deserialize_time"
    )]
    pub started_at: WallTime,
}
