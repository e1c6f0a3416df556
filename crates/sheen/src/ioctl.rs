//! What `lfs` asks a mount, through one ioctl on any file or directory in it: so it works for every user and in every
//! container that sees the mount.
//!
//! The buffer goes in and comes out: u32 length (little-endian), then a borsh body. The kernel copies it by the size
//! in the command, so its bounds are the kernel's to check; the length inside is ours.

use base::{Advice, Extent, Fid, Layout, Pool};
use borsh::{BorshDeserialize, BorshSerialize};
use client::{Answer, Call, TargetSpace};
use wire::mdt::{DirStriping, LayoutHint, Statfs};

/// Bytes of the buffer; 14 bits of the command hold it.
pub const BUFFER_BYTES: usize = 16_376;
/// `_IOWR('S', 0x4c, BUFFER_BYTES)`
pub const COMMAND: u32 = (3 << 30) | ((BUFFER_BYTES as u32) << 16) | (0x53 << 8) | 0x4c;

const _: () = assert!(BUFFER_BYTES < 1 << 14);

/// The request; it is about the file or directory that is open.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Ask {
    Getstripe = 1,
    Setstripe(LayoutHint) = 2,
    /// A new file in this directory.
    CreateStriped {
        name: Vec<u8>,
        mode: u32,
        umask: u32,
        layout: LayoutHint,
    } = 3,
    /// A new directory in this one, on that MDT.
    MkdirOn {
        name: Vec<u8>,
        mode: u32,
        umask: u32,
        mdt_index: u16,
    } = 4,
    FidToPath(Fid) = 5,
    NodeFid = 6,
    Df = 7,
    /// Everything that was done through the mount becomes durable.
    Sync = 8,
    Advise {
        extent: Extent,
        advice: Advice,
    } = 9,
    ListPools = 10,
    /// A new directory in this one, over several MDTs.
    MkdirStriped {
        name: Vec<u8>,
        mode: u32,
        umask: u32,
        striping: DirStriping,
    } = 11,
    /// How new directories in this one are striped.
    Setdirstripe(Option<DirStriping>) = 12,
    Getdirstripe = 13,
    /// What has this name in this directory moves to that MDT.
    Migrate {
        name: Vec<u8>,
        mdt_index: u16,
    } = 14,
    /// `Df`, with targets that are switched off, and what operators have said of each.
    DfStates = 15,
    /// `FidToPath`, without so many of the first ones.
    FidToPathFrom {
        fid: Fid,
        skip_count: u32,
    } = 16,
    /// `DfStates`, without so many of the first ones.
    DfStatesFrom {
        skip_count: u32,
    } = 17,
    /// `ListPools`, without so many of the first ones.
    ListPoolsFrom {
        skip_count: u32,
    } = 18,
    /// `Getstripe` of what has this name in this directory, which nobody has to open then.
    GetstripeOf {
        name: Vec<u8>,
    } = 19,
    /// `NodeFid` of the same.
    FidOf {
        name: Vec<u8>,
    } = 20,
}

impl Ask {
    /// What the kernel would refuse on a read-only mount, if it knew what is asked for.
    pub fn is_change(&self) -> bool {
        match self {
            Ask::Setstripe(_)
            | Ask::CreateStriped { .. }
            | Ask::MkdirOn { .. }
            | Ask::MkdirStriped { .. }
            | Ask::Setdirstripe(_)
            | Ask::Migrate { .. } => true,
            Ask::Getstripe
            | Ask::GetstripeOf { .. }
            | Ask::FidOf { .. }
            | Ask::FidToPath(_)
            | Ask::FidToPathFrom { .. }
            | Ask::NodeFid
            | Ask::Df
            | Ask::DfStates
            | Ask::DfStatesFrom { .. }
            | Ask::Sync
            | Ask::Advise { .. }
            | Ask::ListPools
            | Ask::ListPoolsFrom { .. }
            | Ask::Getdirstripe => false,
        }
    }
}

/// One target in `lfs df`.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct TargetState {
    pub name: String,
    /// When it answers.
    pub space: Option<Statfs>,
    pub is_active: bool,
    pub is_drained: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Tell {
    Done = 1,
    Stripe {
        fid: Fid,
        layout: Option<Layout>,
    } = 2,
    /// As many as fit.
    Paths(Vec<Vec<u8>>) = 3,
    Fid(Fid) = 4,
    /// Target name, and its space when it answers. As many as fit.
    Targets(Vec<(String, Option<Statfs>)>) = 5,
    /// What new files in a directory get.
    DefaultStripe {
        fid: Fid,
        layout: LayoutHint,
    } = 6,
    /// As many as fit.
    Pools(Vec<Pool>) = 7,
    /// Those of a directory, and how new ones in it are striped.
    DirStripes {
        stripes: Vec<Fid>,
        default: Option<DirStriping>,
    } = 8,
    /// It was not there already.
    Migrated(bool) = 9,
    /// As many as fit.
    TargetStates(Vec<TargetState>) = 10,
    /// There is one more of what was asked for, which alone does not fit.
    TooLong = 11,
}

/// What the answer is made into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Bytes that the caller takes.
    out_bytes: usize,
    has_states: bool,
    /// Those of a list that it knows already.
    skip_count: usize,
}

/// The call of a request; `Err` is an errno.
pub fn decode(node: u64, ioctl: &fuse::Ioctl) -> Result<(Call, Want), i32> {
    if ioctl.cmd != COMMAND {
        return Err(libc::ENOTTY);
    }
    let ask = unpack::<Ask>(&ioctl.data).ok_or(libc::EINVAL)?;
    let has_states = matches!(ask, Ask::DfStates | Ask::DfStatesFrom { .. });
    let skip_count = match ask {
        Ask::FidToPathFrom { skip_count, .. }
        | Ask::DfStatesFrom { skip_count }
        | Ask::ListPoolsFrom { skip_count } => skip_count as usize,
        _ => 0,
    };
    let call = match ask {
        Ask::Getstripe => Call::Getstripe { node },
        Ask::Setstripe(layout) => Call::Setstripe { node, layout },
        Ask::CreateStriped { name, mode, umask, layout } => {
            check_name(&name)?;
            Call::CreateStriped { parent: node, name, mode, umask, layout }
        }
        Ask::MkdirOn { name, mode, umask, mdt_index } => {
            check_name(&name)?;
            Call::MkdirOn { parent: node, name, mode, umask, mdt_index }
        }
        Ask::MkdirStriped { name, mode, umask, striping } => {
            check_name(&name)?;
            Call::MkdirStriped { parent: node, name, mode, umask, striping }
        }
        Ask::Migrate { name, mdt_index } => {
            check_name(&name)?;
            Call::Migrate { parent: node, name, mdt_index }
        }
        Ask::GetstripeOf { name } => {
            check_name(&name)?;
            Call::GetstripeOf { parent: node, name }
        }
        Ask::FidOf { name } => {
            check_name(&name)?;
            Call::FidOf { parent: node, name }
        }
        Ask::Setdirstripe(striping) => Call::Setdirstripe { node, striping },
        Ask::Getdirstripe => Call::Getdirstripe { node },
        Ask::FidToPath(fid) | Ask::FidToPathFrom { fid, .. } => Call::FidToPath { fid },
        Ask::NodeFid => Call::NodeFid { node },
        Ask::Df | Ask::DfStates | Ask::DfStatesFrom { .. } => Call::DfTargets,
        Ask::ListPools | Ask::ListPoolsFrom { .. } => Call::ListPools,
        Ask::Sync => Call::SyncAll,
        Ask::Advise { extent, advice } if extent.start <= extent.end => Call::Advise { node, extent, advice },
        Ask::Advise { .. } => return Err(libc::EINVAL),
    };
    Ok((call, Want { out_bytes: ioctl.out_size as usize, has_states, skip_count }))
}

/// These names did not come through the kernel's path walk.
fn check_name(name: &[u8]) -> Result<(), i32> {
    base::names::check_name(name).map_err(base::Status::errno)
}

/// The bytes that the caller gets.
pub fn encode(want: &Want, answer: Answer) -> Vec<u8> {
    let room = want.out_bytes.min(BUFFER_BYTES);
    let tell = match answer {
        Answer::Stripe { fid, layout } => Tell::Stripe { fid, layout },
        Answer::DefaultStripe { fid, layout } => Tell::DefaultStripe { fid, layout },
        Answer::Migrated { has_moved } => Tell::Migrated(has_moved),
        Answer::DirStripes { stripes, default } => Tell::DirStripes { stripes, default },
        Answer::Fid(fid) => Tell::Fid(fid),
        Answer::Paths(paths) => fitting(paths, want, room, Tell::Paths),
        Answer::Pools(pools) => fitting(pools, want, room, Tell::Pools),
        Answer::Targets(targets) if want.has_states => {
            fitting(targets.into_iter().map(state_of).collect(), want, room, Tell::TargetStates)
        }
        Answer::Targets(targets) => {
            let of = |target: TargetSpace| (target.target.to_string(), target.space);
            fitting(targets.into_iter().map(of).collect(), want, room, Tell::Targets)
        }
        _ => Tell::Done,
    };
    let mut bytes = pack(&tell);
    bytes.truncate(room);
    bytes
}

fn state_of(target: TargetSpace) -> TargetState {
    let TargetSpace { target, space, is_active, is_drained } = target;
    TargetState { name: target.to_string(), space, is_active, is_drained }
}

/// The next ones, as many as there is room for.
fn fitting<T: Clone>(list: Vec<T>, want: &Want, room: usize, tell: impl Fn(Vec<T>) -> Tell) -> Tell {
    let byte_count_of = |list| pack(&tell(list)).len();
    let mut left = list.into_iter().skip(want.skip_count).peekable();
    if left.peek().is_none() {
        return tell(Vec::new());
    }
    let empty_byte_count = byte_count_of(Vec::new());
    let mut byte_count = empty_byte_count;
    let mut told = Vec::new();
    for item in left {
        byte_count += byte_count_of(vec![item.clone()]) - empty_byte_count;
        if byte_count > room {
            break;
        }
        told.push(item);
    }
    if told.is_empty() { Tell::TooLong } else { tell(told) }
}

/// Length and body.
pub fn pack<T: BorshSerialize>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    // Writing to memory cannot fail.
    let written = value.serialize(&mut bytes);
    assert!(written.is_ok(), "a value is written to memory");
    let length = (bytes.len() - 4) as u32;
    bytes.splice(..4, length.to_le_bytes());
    bytes
}

/// The value in a buffer; `None` if it is not whole.
pub fn unpack<T: BorshDeserialize>(bytes: &[u8]) -> Option<T> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let mut body = rest.get(..u32::from_le_bytes(*length) as usize)?;
    T::deserialize(&mut body).ok()
}

#[cfg(test)]
mod tests;
