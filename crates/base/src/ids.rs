//! Identifiers. Numbers that mean different things are different types, without arithmetic of their own.

use borsh::{BorshDeserialize, BorshSerialize};
use std::fmt;
use std::str::FromStr;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
        pub struct $name(pub u64);

        impl $name {
            pub const ZERO: $name = $name(0);

            /// The number after this one. Panics at the end of 64 bits, which no run reaches.
            #[must_use]
            pub fn next(self) -> $name {
                $name(self.0.checked_add(1).expect("64-bit numbers do not run out"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number!(
    /// Transaction number of a target: dense order of everything that it executed. The upper 24 bits are the
    /// incarnation (epoch) of the target, so that no number is issued twice (hazard 1.6).
    Transno
);
number!(
    /// Request number of one client towards one target; rises strictly.
    Xid
);
number!(
    /// Version of a name slot or of an inode attribute group: the transno that last changed it.
    Version
);
number!(
    /// Incarnation of a target: raised by one, durably, before it serves anything.
    Epoch
);
number!(
    /// Lock handle, chosen by the client and unique within it; with the client's id it names the lock.
    LockId
);
number!(
    /// Open file handle, chosen by the client and unique within it, so that a replayed open keeps its handle.
    OpenHandle
);

impl Epoch {
    /// The highest of which a transno has room. No target has had a higher one, whoever says so.
    pub const MAX: Epoch = Epoch((1 << (u64::BITS - Transno::EPOCH_SHIFT)) - 1);
    /// The highest that counts when somebody says it of a target, which may have to begin after it. As many starts are left then, also for an
    /// MDT, which has FIDs for 65,536 (`mds::fids`).
    pub const BELIEVED_MAX: Epoch = Epoch(1 << 15);
}

impl Transno {
    const EPOCH_SHIFT: u32 = 40;

    /// The first number of an incarnation.
    pub fn first_of(epoch: Epoch) -> Transno {
        Transno(epoch.0 << Self::EPOCH_SHIFT)
    }

    pub fn epoch(self) -> Epoch {
        Epoch(self.0 >> Self::EPOCH_SHIFT)
    }
}

/// File identifier, unique in the file system for ever: sequence, object in the sequence, version (always 0).
/// Written `[0x200000401:0x1:0x0]` as in Lustre.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize,
)]
pub struct Fid {
    pub seq: u64,
    pub oid: u32,
    pub ver: u32,
}

impl Fid {
    /// First sequence for ordinary files; each MDT owns `SEQ_PER_MDT` sequences from here.
    pub const SEQ_NORMAL: u64 = 0x2_0000_0400;
    pub const SEQ_PER_MDT: u64 = 0x4000_0000;
    /// Objects in one sequence; small enough for `inode_number` to be exact.
    pub const OIDS_PER_SEQ: u32 = 1 << 20;
    /// The root directory, on MDT0000.
    pub const ROOT: Fid = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };

    /// Index of the MDT that owns this file's inode; `None` for a sequence that no MDT can own.
    pub fn mdt_index(self) -> Option<u16> {
        if self == Fid::ROOT {
            return Some(0);
        }
        let from_first = self.seq.checked_sub(Self::SEQ_NORMAL)?;
        u16::try_from(from_first / Self::SEQ_PER_MDT).ok()
    }

    /// The n-th sequence of an MDT.
    pub fn sequence(mdt_index: u16, nth: u64) -> u64 {
        assert!(nth < Self::SEQ_PER_MDT, "an MDT has used all of its FID sequences");
        Self::SEQ_NORMAL + u64::from(mdt_index) * Self::SEQ_PER_MDT + nth
    }

    /// A stable inode number: injective for FIDs that this system issues. The root is 1, as FUSE demands.
    pub fn inode_number(self) -> u64 {
        if self == Fid::ROOT {
            return 1;
        }
        (self.seq.wrapping_sub(0x2_0000_0000) << 20) | u64::from(self.oid & (Self::OIDS_PER_SEQ - 1))
    }

    /// The FID that an inode number stands for; `None` if no MDT can have given it.
    pub fn from_inode_number(number: u64) -> Option<Fid> {
        if number == Fid::ROOT.inode_number() {
            return Some(Fid::ROOT);
        }
        let oid = (number & u64::from(Self::OIDS_PER_SEQ - 1)) as u32;
        let fid = Fid { seq: (number >> 20) + 0x2_0000_0000, oid, ver: 0 };
        (fid.mdt_index().is_some() && oid > 0).then_some(fid)
    }

    /// Big-endian key: FIDs sort by sequence, then object.
    pub fn key(self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.seq.to_be_bytes());
        key[8..12].copy_from_slice(&self.oid.to_be_bytes());
        key[12..].copy_from_slice(&self.ver.to_be_bytes());
        key
    }

    pub fn from_key(key: &[u8]) -> Option<Fid> {
        let seq = u64::from_be_bytes(key.get(..8)?.try_into().ok()?);
        let oid = u32::from_be_bytes(key.get(8..12)?.try_into().ok()?);
        let ver = u32::from_be_bytes(key.get(12..16)?.try_into().ok()?);
        Some(Fid { seq, oid, ver })
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}:{:#x}]", self.seq, self.oid, self.ver)
    }
}

impl FromStr for Fid {
    type Err = ();

    /// Reads `[0x1:0x2:0x3]`, brackets optional.
    fn from_str(text: &str) -> Result<Fid, ()> {
        let mut parts = text.trim().trim_start_matches('[').trim_end_matches(']').split(':');
        let mut number = || u64::from_str_radix(parts.next()?.trim_start_matches("0x"), 16).ok();
        let (seq, oid, ver) = (number().ok_or(())?, number().ok_or(())?, number().ok_or(())?);
        if parts.next().is_some() {
            return Err(());
        }
        Ok(Fid { seq, oid: u32::try_from(oid).map_err(|_| ())?, ver: u32::try_from(ver).map_err(|_| ())? })
    }
}

/// Name of a data object on an OST, computed from its owner: nothing has to be looked up or precreated.
/// A component id is never reused within its file (hazard 5.4).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize,
)]
pub struct ObjectId {
    pub fid: Fid,
    pub component: u32,
    pub stripe: u32,
}

impl ObjectId {
    pub fn key(self) -> [u8; 24] {
        let mut key = [0; 24];
        key[..16].copy_from_slice(&self.fid.key());
        key[16..20].copy_from_slice(&self.component.to_be_bytes());
        key[20..].copy_from_slice(&self.stripe.to_be_bytes());
        key
    }

    pub fn from_key(key: &[u8]) -> Option<ObjectId> {
        let fid = Fid::from_key(key.get(..16)?)?;
        let component = u32::from_be_bytes(key.get(16..20)?.try_into().ok()?);
        let stripe = u32::from_be_bytes(key.get(20..24)?.try_into().ok()?);
        Some(ObjectId { fid, component, stripe })
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.fid, self.component, self.stripe)
    }
}

/// Identity of a client (a mount, or a target that calls another one): random, made at its start.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize,
)]
pub struct ClientId(pub u128);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            (v >> 96) as u32,
            (v >> 80) as u16,
            (v >> 64) as u16,
            (v >> 48) as u16,
            v & 0xffff_ffff_ffff
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum TargetKind {
    Mgt = 1,
    Mdt = 2,
    Ost = 3,
}

/// One target of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct TargetId {
    pub kind: TargetKind,
    pub index: u16,
}

impl TargetId {
    pub const MGT: TargetId = TargetId { kind: TargetKind::Mgt, index: 0 };

    pub const fn mdt(index: u16) -> TargetId {
        TargetId { kind: TargetKind::Mdt, index }
    }

    pub const fn ost(index: u16) -> TargetId {
        TargetId { kind: TargetKind::Ost, index }
    }
}

impl fmt::Display for TargetId {
    /// `MGS`, `MDT0000`, `OST000a`: the index in hexadecimal, as in Lustre.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TargetKind::Mgt => write!(f, "MGS"),
            TargetKind::Mdt => write!(f, "MDT{:04x}", self.index),
            TargetKind::Ost => write!(f, "OST{:04x}", self.index),
        }
    }
}

impl FromStr for TargetId {
    type Err = ();

    fn from_str(text: &str) -> Result<TargetId, ()> {
        if text == "MGS" {
            return Ok(TargetId::MGT);
        }
        let index = |digits: &str| u16::from_str_radix(digits, 16).map_err(|_| ());
        match (text.strip_prefix("MDT"), text.strip_prefix("OST")) {
            (Some(digits), _) => Ok(TargetId::mdt(index(digits)?)),
            (_, Some(digits)) => Ok(TargetId::ost(index(digits)?)),
            _ => Err(()),
        }
    }
}

/// Who a frame comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub enum Endpoint {
    Target(TargetId),
    Client(ClientId),
}

impl Endpoint {
    /// The client id under which this end calls targets. A target that calls another one has a fixed id, so that it
    /// is recognised after its restart (its incarnation has risen then).
    pub fn client_id(self) -> ClientId {
        match self {
            Endpoint::Client(client) => client,
            Endpoint::Target(target) => ClientId(
                ClientId::TARGET_MARK | u128::from(target.kind as u8) << 16 | u128::from(target.index),
            ),
        }
    }
}

impl ClientId {
    /// Upper 64 bits of the ids of targets; no random id has them.
    const TARGET_MARK: u128 = 0x5348_4e54_0000_0001 << 64;

    /// Where frames to this client go: the inverse of `Endpoint::client_id`.
    pub fn endpoint(self) -> Endpoint {
        if self.0 >> 64 != Self::TARGET_MARK >> 64 {
            return Endpoint::Client(self);
        }
        let index = (self.0 & 0xffff) as u16;
        match (self.0 >> 16) as u64 & 0xffff_ffff_ffff {
            1 => Endpoint::Target(TargetId { kind: TargetKind::Mgt, index }),
            2 => Endpoint::Target(TargetId { kind: TargetKind::Mdt, index }),
            3 => Endpoint::Target(TargetId { kind: TargetKind::Ost, index }),
            _ => Endpoint::Client(self),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Target(target) => target.fmt(f),
            Endpoint::Client(client) => client.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_number_leads_back_to_its_fid() {
        let fid = |mdt, nth, oid| Fid { seq: Fid::sequence(mdt, nth), oid, ver: 0 };
        let last = Fid::OIDS_PER_SEQ - 1;
        for fid in
            [Fid::ROOT, fid(0, 0, 1), fid(0, 7, last), fid(3, Fid::SEQ_PER_MDT - 1, last), fid(255, 1, 2)]
        {
            assert_eq!(Fid::from_inode_number(fid.inode_number()), Some(fid));
        }
        for number in [0, 2, Fid { oid: 0, ..fid(1, 1, 0) }.inode_number()] {
            assert_eq!(Fid::from_inode_number(number), None, "{number}");
        }
    }
}
