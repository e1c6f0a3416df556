//! Between MDTs: operations that touch inodes or names on two of them.
//!
//! The coordinator is the MDT of the (target's) parent. It prepares the other parties, whose prepare is a durable
//! record of their own ("frozen by `id`"), then logs the whole operation: that record is the only commit point. When
//! it is durable, the decisions go out. A participant that restarts asks about what it finds prepared.
//!
//! Parts that can neither fail nor wait, because they make directories with FIDs that the participant has given for that,
//! need no prepare. They travel in a *stream*: held by the participant from the commit on, and executed, in order, when the
//! coordinator's record is durable.

use crate::mdt::{DirStriping, LayoutHint, MdtRequest};
use base::{Attr, ClientId, Fid, FileType, Layout, Transno, WallTime, Xid};
use borsh::{BorshDeserialize, BorshSerialize};

/// Names an operation for ever: coordinator, its incarnation, a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct OperationId {
    pub mdt_index: u16,
    pub epoch: u64,
    pub number: u64,
}

/// What a participant is asked to do, as far as other MDTs need to know; extended by `mds` as operations need it.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Part {
    /// Make this directory (mkdir on another MDT). The participant gives it a FID, unless `attr.fid` names one
    /// already (a replay).
    MakeDirectory {
        attr: Attr,
        parent: Fid,
        name: Vec<u8>,
        xattrs: Vec<(Vec<u8>, Vec<u8>)>,
        default_layout: Option<LayoutHint>,
    } = 1,
    /// Remove this directory if it is empty. `must_own`: only its owner may (sticky parent).
    RemoveDirectory { fid: Fid, must_own: bool } = 2,
    /// This name of the inode goes; the inode too when none is left and nobody has it open.
    DropLink { fid: Fid, parent: Fid, name: Vec<u8>, must_own: bool } = 3,
    /// One name more, for what is no directory.
    AddLink { fid: Fid, parent: Fid, name: Vec<u8> } = 4,
    /// Take this name away; it must lead to `fid`.
    RemoveName { parent: Fid, name: Vec<u8>, fid: Fid, file_type: FileType } = 5,
    /// Put this name; it must lead to `old` before (nothing when empty).
    PutName { parent: Fid, name: Vec<u8>, old: Option<(Fid, FileType)>, fid: Fid, file_type: FileType } = 6,
    /// The inode has a new parent and name (renamed).
    SetParent { fid: Fid, old_parent: Fid, old_name: Vec<u8>, parent: Fid, name: Vec<u8>, must_own: bool } =
        7,
    /// Make this directory, which has its FID already: a stripe, whose parent is the first one, without a name; or the first
    /// one itself, with all of them.
    MakeStripe {
        attr: Attr,
        parent: Fid,
        name: Vec<u8>,
        xattrs: Vec<(Vec<u8>, Vec<u8>)>,
        default_layout: Option<LayoutHint>,
        stripes: Vec<Fid>,
        default_striping: Option<DirStriping>,
    } = 8,
    /// A stripe takes over what its directory has got. `acls`: all that there are; `mtime`: where one was set.
    Follow {
        fid: Fid,
        permissions: u32,
        uid: u32,
        gid: u32,
        mtime: Option<WallTime>,
        acls: Vec<(Vec<u8>, Vec<u8>)>,
        default_layout: Option<LayoutHint>,
        default_striping: Option<DirStriping>,
    } = 9,
    /// `SetParent` from one stripe of a directory to another: what is moved keeps its parent, as everybody sees it.
    SetStripe { fid: Fid, old_parent: Fid, old_name: Vec<u8>, parent: Fid, name: Vec<u8>, must_own: bool } =
        10,
    /// The inode is another MDT's from now on, as `to`, with all names in it. It has to be as it was told (`attr`).
    GiveAway { fid: Fid, to: Fid, attr: Box<Attr> } = 11,
    /// The name leads to the same inode as before, under another FID.
    Redirect { parent: Fid, name: Vec<u8>, old: Fid, new: Fid, file_type: FileType } = 12,
    /// The directory in which these inodes have these names is the same one under another FID.
    MoveLinks { old_parent: Fid, parent: Fid, links: Vec<(Fid, Vec<u8>)> } = 13,
    /// `GiveAway` of a regular file that nobody has open. What this MDT has of its data has to be as the transaction `data` has
    /// left it; the objects on OSTs stay, for the other MDT has them adopted.
    GiveFile { fid: Fid, to: Fid, attr: Box<Attr>, data: Option<Transno> } = 14,
}

/// All of an inode that moves to another MDT, but for its data.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct Whole {
    pub attr: Attr,
    pub symlink_target: Option<Vec<u8>>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub default_layout: Option<LayoutHint>,
    pub default_striping: Option<DirStriping>,
    /// Of a directory, in the order of their positions.
    pub entries: Vec<(Vec<u8>, Fid, FileType)>,
}

/// All of a regular file that moves to another MDT, but for what OSTs have of it.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct WholeFile {
    pub attr: Attr,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub layout: Option<Layout>,
    /// What its MDT has of its data.
    pub data: Option<FileData>,
    /// Somebody has it open.
    pub is_open: bool,
    /// Work of a lost client may make its size untrue.
    pub is_size_doubtful: bool,
}

/// Data of a file that are on its MDT.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct FileData {
    pub size_bytes: u64,
    pub stamp: WallTime,
    /// The last change.
    pub transno: Transno,
    /// Numbers of chunks, and their bytes; the others are zeros.
    pub chunks: Vec<(u32, Vec<u8>)>,
}

/// Parts of one operation for one participant, at their place in the stream.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct Item {
    pub id: OperationId,
    /// The item before it in the same stream; `OperationId::before_all` for the first.
    pub previous: OperationId,
    pub parts: Vec<Part>,
    /// `None` once the coordinator's record is durable.
    pub witness: Option<Box<Witness>>,
}

/// The operation itself, as its client would replay it: so a coordinator that has lost its record, and the client too, gets it back
/// from the participant.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct Witness {
    pub client: ClientId,
    pub slot: u16,
    pub xid: Xid,
    pub transno: Transno,
    pub request: MdtRequest,
}

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum PeerRequest {
    /// Checks, locks and freezes; answered when that is durable. -> Prepared
    Prepare {
        id: OperationId,
        parts: Vec<Part>,
        uid: u32,
        gid: u32,
        groups: Vec<u32>,
        /// For an operation that a client replays: not kept waiting by a recovery of the participant, in which
        /// everything else has to wait.
        is_replay: bool,
    } = 1,
    /// What the coordinator's durable record says (commit), or that there is none (abort). Answered when durable.
    Decide {
        id: OperationId,
        is_commit: bool,
    } = 2,
    /// A participant asks what became of an operation. -> Decision
    Ask {
        id: OperationId,
    } = 3,
    /// Name and type that a directory slot leads to, without a lock. -> Name
    /// `epoch` of the MDT that asks: what it had prepared in an older one is void and does not make it wait.
    PeekName {
        parent: Fid,
        name: Vec<u8>,
        epoch: u64,
        is_replay: bool,
    } = 4,
    /// The parent of a directory, for the loop check of rename; waits while the directory is frozen. -> Parent
    PeekParent {
        fid: Fid,
        epoch: u64,
        is_replay: bool,
    } = 5,
    /// The one rename lock (MDT0000). Answered when granted.
    LockRename {
        id: OperationId,
        is_replay: bool,
    } = 6,
    UnlockRename {
        id: OperationId,
    } = 7,
    /// Which waits for fcntl(2) locks of this MDT follow from those of these owners: for deadlocks over several MDTs.
    /// -> FlockWaits
    FlockWaits {
        owners: Vec<FlockOwner>,
    } = 8,
    /// This wait is to end with EDEADLK. Answered also when it has ended.
    RefuseFlock {
        wait: FlockWaitId,
    } = 9,
    /// A FID for a directory to be made. Nothing remembers it. -> NewFid
    NewFid = 10,
    /// The stripes of a directory, and of which directory it is one; waits while it is frozen. -> Directory
    PeekDirectory {
        fid: Fid,
        epoch: u64,
        is_replay: bool,
    } = 11,
    /// FIDs for directories that the caller will make, for whose rows there is room. -> NewFids
    NewFids {
        count: u32,
    } = 12,
    /// The next items of the caller's stream, to be kept in memory. `epoch` of the caller.
    Hold {
        epoch: u64,
        items: Vec<Item>,
    } = 13,
    /// The caller's record is durable up to this item. Answered when all of them are executed, durably. -> Behind, if there
    /// are items that this MDT has not got.
    Release {
        epoch: u64,
        up_to: OperationId,
    } = 14,
    /// A restarted caller wants back what is held for its former incarnations. -> HeldBack, of as much as one answer holds
    TakeBack {
        epoch: u64,
    } = 15,
    /// The caller has recovered: what is held for former incarnations, and was not sent again, is void.
    Forget {
        epoch: u64,
    } = 16,
    /// Whether a directory with this FID is on its way, which the caller has given and does not know. -> Coming
    IsComing {
        fid: Fid,
        is_replay: bool,
    } = 17,
    /// All of an inode that is to move. -> Whole
    PeekWhole {
        fid: Fid,
        epoch: u64,
    } = 18,
    /// All of a regular file that is to move. -> File
    PeekFile {
        fid: Fid,
        epoch: u64,
    } = 19,
    /// `TakeBack`, piece by piece: what is held behind this item. -> HeldBackPart; `NotSupported` by an MDT that gives all at once.
    TakeBackPart {
        epoch: u64,
        after: Option<OperationId>,
    } = 20,
}

impl OperationId {
    /// Where a coordinator's stream begins.
    pub fn before_all(mdt_index: u16) -> OperationId {
        OperationId { mdt_index, epoch: 0, number: 0 }
    }
}

/// Who holds fcntl(2) locks or waits for them: a process, as its client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
pub struct FlockOwner {
    pub client: ClientId,
    pub owner: u64,
}

/// Names a wait among those of all MDTs; a younger one is greater, as far as their clocks agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
pub struct FlockWaitId {
    pub since: WallTime,
    pub mdt_index: u16,
    pub number: u64,
}

/// A request that waits for an fcntl(2) lock, and who is in its way.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct FlockWait {
    pub id: FlockWaitId,
    pub owner: FlockOwner,
    pub blockers: Vec<FlockOwner>,
}

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum PeerReply {
    /// Attributes of the inodes that the parts name, as they will be after a commit.
    Prepared {
        fid: Option<Fid>,
        attrs: Vec<Attr>,
    } = 1,
    /// `None`: still undecided.
    Decision {
        is_commit: Option<bool>,
    } = 2,
    /// `parent_attr`: of the directory that was asked.
    Name {
        entry: Option<(Fid, FileType)>,
        parent_attr: Attr,
    } = 3,
    Parent {
        fid: Option<Fid>,
    } = 4,
    FlockWaits(Vec<FlockWait>) = 5,
    NewFid {
        fid: Fid,
    } = 6,
    /// `stripes` is empty for a directory that has none, or that is not there.
    Directory {
        stripes: Vec<Fid>,
        master: Option<Fid>,
    } = 7,
    /// This one and those that follow it in its sequence.
    NewFids {
        first: Fid,
        count: u32,
    } = 8,
    /// What was executed so far.
    Behind {
        executed: OperationId,
    } = 9,
    HeldBack {
        witnesses: Vec<Witness>,
    } = 10,
    /// The item that makes the directory, if its execution is not known to be durable.
    Coming {
        item: Option<OperationId>,
    } = 11,
    Whole(Box<Whole>) = 12,
    File(Box<WholeFile>) = 13,
    /// `next`: where to go on; `None` when that was all.
    HeldBackPart {
        witnesses: Vec<Witness>,
        next: Option<OperationId>,
    } = 14,
}
