//! Rows of an MDT in its `MetaStore`: tables, keys, and values (a version byte, then borsh).
//!
//! Keys begin with FIDs in big-endian order, so that what belongs to one inode or directory is contiguous.

mod known;

pub use known::check_known;

use base::{Attr, ClientId, Fid, FileType, Layout, Status};
use borsh::{BorshDeserialize, BorshSerialize};
use store::Table;
use wire::Life;
use wire::mdt::{DirStriping, LayoutHint};
use wire::peer::{OperationId, Part};

/// Parent FID, position of the name, name -> `Dentry`.
pub const DENTRIES: Table = 1;
/// FID -> `Inode`.
pub const INODES: Table = 2;
/// FID, name -> the value as it is.
pub const XATTRS: Table = 3;
/// FID, parent FID, name -> nothing: every name of an inode.
pub const LINKS: Table = 4;
/// FID -> nothing, or `NEVER_NAMED`: inodes without a name that somebody may have open.
pub const ORPHANS: Table = 5;
/// The value for an inode made with O_TMPFILE: only such a one may get a (first) name.
pub const NEVER_NAMED: &[u8] = b"\x01";
/// OST index, FID, component -> `Destroy`: objects that an OST has not yet been told to forget.
pub const DESTROYS: Table = 6;
/// Operation -> `Prepare`: parts of another MDT's operation that wait for its decision.
pub const PREPARES: Table = 7;
/// Operation -> `Decision`: our operations that other MDTs have not yet executed.
pub const DECISIONS: Table = 8;

/// Participant, operation -> `Streamed`: parts that the participant has not executed durably yet, in the order of its stream.
pub const STREAMED: Table = 12;

/// FID -> the FID that the inode has now, on another MDT. It stays: a cache that has not heard may ask at any time.
pub const MOVED: Table = 13;

/// OST index, FID, component -> `Adopt`: objects of a file that has come from another MDT, which the OST has not yet been told
/// to adopt. Until there are none of a file, nobody gets to see it.
pub const ADOPTS: Table = 14;

/// Under `KNOWN_TARGETS_KEY`: what the last configuration said.
pub const STATE: Table = 9;
pub const KNOWN_TARGETS_KEY: &[u8] = b"targets";
/// `Vec<base::Pool>`, of the same configuration.
pub const POOLS_KEY: &[u8] = b"pools";
/// OSTs that get no new files (`obdfilter.*.no_create`), in order; none when it is not there.
pub const NO_CREATE_KEY: &[u8] = b"no_create";
/// The same of MDTs (`mdt.*.no_create`), which get no new directories.
pub const NO_CREATE_MDTS_KEY: &[u8] = b"no_create_mdts";
/// The epoch up to which the objects have to be compared with the inodes.
pub const STRAYS_KEY: &[u8] = b"strays";
/// With a client and its incarnation behind it -> `Evicted`: it was given up, and not every OST is known to have ended its session.
pub const EVICTED_PREFIX: &[u8] = b"evicted";
/// With the index of an MDT behind it -> `OperationId`: how far its stream was executed here.
pub const EXECUTED_PREFIX: &[u8] = b"executed";
/// With a sequence behind it -> index of the MDT that makes directories with its FIDs.
pub const GIVEN_PREFIX: &[u8] = b"given";
/// FID, component -> `data::Head`: data of files that this MDT has.
pub const DATA_HEADS: Table = 10;
/// FID, component, chunk -> bytes as they are.
pub const DATA: Table = 11;

/// The version of every other value in this file.
const ROW_VERSION: u8 = 1;

/// An inode without its names and xattrs.
#[derive(Clone, Debug, PartialEq)]
pub struct Inode {
    pub attr: Attr,
    pub layout: Option<Layout>,
    pub symlink_target: Option<Vec<u8>>,
    /// Directories: what new files in it get.
    pub default_layout: Option<LayoutHint>,
    /// Of all xattrs, so that listing them stays within what a system call can return.
    pub xattr_name_bytes: u32,
    pub xattr_count: u32,
    /// Of a striped directory: those that hold its names, itself the first. Each other one has a link to it without a name.
    pub stripes: Vec<Fid>,
    /// Directories: how new directories in it are striped.
    pub default_striping: Option<DirStriping>,
}

impl Inode {
    /// With attributes, and nothing else yet.
    pub fn new(attr: Attr) -> Inode {
        Inode {
            attr,
            layout: None,
            symlink_target: None,
            default_layout: None,
            xattr_name_bytes: 0,
            xattr_count: 0,
            stripes: Vec::new(),
            default_striping: None,
        }
    }
}

/// What few inodes have follows the rest, each behind its number.
const STRIPES: u8 = 1;
const DEFAULT_STRIPING: u8 = 2;

impl BorshSerialize for Inode {
    fn serialize<W: borsh::io::Write>(&self, writer: &mut W) -> borsh::io::Result<()> {
        (&self.attr, &self.layout, &self.symlink_target, &self.default_layout).serialize(writer)?;
        (self.xattr_name_bytes, self.xattr_count).serialize(writer)?;
        if !self.stripes.is_empty() {
            (STRIPES, &self.stripes).serialize(writer)?;
        }
        if let Some(striping) = &self.default_striping {
            (DEFAULT_STRIPING, striping).serialize(writer)?;
        }
        Ok(())
    }
}

impl BorshDeserialize for Inode {
    fn deserialize_reader<R: borsh::io::Read>(reader: &mut R) -> borsh::io::Result<Self> {
        let (attr, layout, symlink_target, default_layout) = <_>::deserialize_reader(reader)?;
        let (xattr_name_bytes, xattr_count) = <_>::deserialize_reader(reader)?;
        let mut inode = Inode {
            layout,
            symlink_target,
            default_layout,
            xattr_name_bytes,
            xattr_count,
            ..Inode::new(attr)
        };
        let mut number = [0];
        while reader.read(&mut number)? > 0 {
            match number {
                [STRIPES] => inode.stripes = Vec::deserialize_reader(reader)?,
                [DEFAULT_STRIPING] => inode.default_striping = Some(DirStriping::deserialize_reader(reader)?),
                _ => return Err(borsh::io::Error::from(borsh::io::ErrorKind::InvalidData)),
            }
        }
        Ok(inode)
    }
}

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Dentry {
    pub fid: Fid,
    pub file_type: FileType,
}

/// Stripes of one component on one OST.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Destroy {
    pub stripes: Vec<u32>,
}

/// Stripes of one component on one OST.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Adopt {
    /// The FID that the file had.
    pub from: Fid,
    pub stripes: Vec<u32>,
}

/// The targets of the file system, as far as operations depend on them: replays run before the configuration comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct KnownTargets {
    /// Active ones, in order.
    pub osts: Vec<u16>,
    pub mdt_count: u16,
}

/// Who asked for an operation, for the checks of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Asker {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct Prepare {
    pub parts: Vec<Part>,
    pub asker: Asker,
}

/// The MDTs that have yet to say that the operation is durable with them.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Decision {
    pub participants: Vec<u16>,
}

/// Parts for one participant.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct Streamed {
    /// The operation before it in the same stream.
    pub previous: OperationId,
    pub parts: Vec<Part>,
}

/// The value of a row.
pub fn encode<T: BorshSerialize>(row: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(160);
    bytes.push(ROW_VERSION);
    let result = row.serialize(&mut bytes);
    assert!(result.is_ok(), "a row is written to memory");
    bytes
}

/// # Errors
/// `Corrupt` for anything but a whole row of this version.
pub fn decode<T: BorshDeserialize>(bytes: &[u8]) -> Result<T, Status> {
    match bytes.split_first() {
        Some((&ROW_VERSION, body)) => T::try_from_slice(body).map_err(|_| Status::Corrupt),
        _ => Err(Status::Corrupt),
    }
}

pub fn dentry_key(parent: Fid, name: &[u8]) -> Vec<u8> {
    let mut key = position_key(parent, base::names::name_hash(name));
    key.extend_from_slice(name);
    key
}

/// Where the entries of a directory at this position begin.
pub fn position_key(parent: Fid, position: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(24 + 32);
    key.extend_from_slice(&parent.key());
    key.extend_from_slice(&position.to_be_bytes());
    key
}

/// Parent, position and name of a dentry's key.
pub fn split_dentry_key(key: &[u8]) -> Option<(Fid, u64, &[u8])> {
    let parent = Fid::from_key(key)?;
    let position = u64::from_be_bytes(key.get(16..24)?.try_into().ok()?);
    Some((parent, position, key.get(24..)?))
}

pub fn xattr_key(fid: Fid, name: &[u8]) -> Vec<u8> {
    [&fid.key(), name].concat()
}

pub fn link_key(fid: Fid, parent: Fid, name: &[u8]) -> Vec<u8> {
    [&fid.key()[..], &parent.key(), name].concat()
}

/// Parent and name of a link's key.
pub fn split_link_key(key: &[u8]) -> Option<(Fid, &[u8])> {
    Some((Fid::from_key(key.get(16..)?)?, key.get(32..)?))
}

pub fn destroy_key(ost: u16, fid: Fid, component: u32) -> Vec<u8> {
    [&ost.to_be_bytes()[..], &fid.key(), &component.to_be_bytes()].concat()
}

pub fn split_destroy_key(key: &[u8]) -> Option<(u16, Fid, u32)> {
    let ost = u16::from_be_bytes(key.get(..2)?.try_into().ok()?);
    let component = u32::from_be_bytes(key.get(18..22)?.try_into().ok()?);
    Some((ost, Fid::from_key(key.get(2..)?)?, component))
}

pub fn operation_key(id: OperationId) -> Vec<u8> {
    [&id.mdt_index.to_be_bytes()[..], &id.epoch.to_be_bytes(), &id.number.to_be_bytes()].concat()
}

pub fn split_operation_key(key: &[u8]) -> Option<OperationId> {
    Some(OperationId {
        mdt_index: u16::from_be_bytes(key.get(..2)?.try_into().ok()?),
        epoch: u64::from_be_bytes(key.get(2..10)?.try_into().ok()?),
        number: u64::from_be_bytes(key.get(10..18)?.try_into().ok()?),
    })
}

/// Key of a `Streamed` row.
pub fn streamed_key(participant: u16, id: OperationId) -> Vec<u8> {
    [&participant.to_be_bytes()[..], &operation_key(id)].concat()
}

pub fn split_streamed_key(key: &[u8]) -> Option<(u16, OperationId)> {
    let participant = u16::from_be_bytes(key.get(..2)?.try_into().ok()?);
    Some((participant, split_operation_key(key.get(2..)?)?))
}

pub fn executed_key(coordinator: u16) -> Vec<u8> {
    [EXECUTED_PREFIX, &coordinator.to_be_bytes()].concat()
}

pub fn given_key(sequence: u64) -> Vec<u8> {
    [GIVEN_PREFIX, &sequence.to_be_bytes()].concat()
}

/// The first key behind all that begin with `prefix`, which is no row of `0xff` only.
pub fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    vec![0xff; store::KEY_BYTES_MAX]
}

pub fn evicted_key(life: Life) -> Vec<u8> {
    [EVICTED_PREFIX, &life.client.0.to_be_bytes(), &life.incarnation.to_be_bytes()].concat()
}

/// What is known of somebody who was given up. Programs of before it was written have left nothing behind the key, and read nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, BorshSerialize, BorshDeserialize)]
pub struct Evicted {
    /// It had only not given a lock back, or an operator wanted it gone.
    pub may_live: bool,
}

/// # Errors
/// As `decode`.
pub fn decode_evicted(value: &[u8]) -> Result<Evicted, Status> {
    if value.is_empty() { Ok(Evicted::default()) } else { decode(value) }
}

/// Who a key is of; `None` when it is no such key.
pub fn split_evicted_key(key: &[u8]) -> Option<Life> {
    let (client, incarnation) = key.strip_prefix(EVICTED_PREFIX)?.split_first_chunk::<16>()?;
    let incarnation = u64::from_be_bytes(incarnation.try_into().ok()?);
    Some(Life { client: ClientId(u128::from_be_bytes(*client)), incarnation })
}

#[cfg(test)]
mod tests;
