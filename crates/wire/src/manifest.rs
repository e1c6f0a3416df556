//! What a client that comes back after a restart is going to replay, said before it does: so the target knows which replays have
//! anything to do with each other, and in which order those have to be executed.

use crate::mdt::{CreateRequest, MdtReply, MdtRequest};
use crate::{Reply, Request};
use base::{Fid, Transno, limits};
use borsh::{BorshDeserialize, BorshSerialize};

/// FIDs that one replay names; one that touches more touches everything.
pub const TOUCHED_MAX: usize = 32;
/// Replays in one message.
pub const ENTRIES_MAX: usize = 1024;

/// At most, by the sizes below: transno, slot, two flags, and the count of FIDs with 16 bytes each.
const _: () = assert!(ENTRIES_MAX * (16 + TOUCHED_MAX * 16) + 16 <= limits::FRAME_BODY_BYTES_MAX);

/// A part of what one client replays, in order of transaction numbers. The next part is sent when this one is answered.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Manifest {
    /// The last number of the part before this one; zero in the first.
    pub after: Transno,
    pub entries: Vec<Replayed>,
    pub is_last: bool,
}

/// One request that will be replayed.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Replayed {
    /// Under which it was executed.
    pub transno: Transno,
    pub slot: u16,
    pub touched: Touched,
}

/// What a request looks at or changes. Two that have nothing of it in common may be executed in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Touched {
    /// The directories of its names, and the inodes.
    pub fids: Vec<Fid>,
    /// It moves something to another directory. Whether that would be below itself depends on all who have moved directories before.
    pub is_move: bool,
    /// Nobody can say what: it keeps its place among all.
    pub is_everything: bool,
}

impl Touched {
    pub fn everything() -> Touched {
        Touched { is_everything: true, ..Touched::default() }
    }

    fn of(fids: Vec<Fid>) -> Touched {
        match fids.len() {
            1..=TOUCHED_MAX => Touched { fids, ..Touched::default() },
            _ => Touched::everything(),
        }
    }

    /// Of a request as it is replayed. `is_whole`: `is_described` of its first answer.
    pub fn by(request: &Request, is_whole: bool) -> Touched {
        match request {
            Request::Mdt(request) => by_mdt_request(request, is_whole),
            Request::Ost(request) => {
                request.written_file().map_or_else(Touched::everything, |fid| Touched::of(vec![fid]))
            }
            _ => Touched::everything(),
        }
    }
}

/// Whether an answer describes what was taken away: then that is no directory with stripes, which have FIDs of their own and had to be
/// empty too.
pub fn is_described(reply: &Reply) -> bool {
    match reply {
        Reply::Mdt(
            MdtReply::Removed { child, replaced, met: Some(met), .. }
            | MdtReply::RemovedMet { child, replaced, met, .. },
        ) => {
            if met.replaced.is_some() {
                replaced.is_some()
            } else {
                child.is_some()
            }
        }
        _ => false,
    }
}

fn by_mdt_request(request: &MdtRequest, is_whole: bool) -> Touched {
    match request {
        MdtRequest::Setattr { fid, .. }
        | MdtRequest::Close { fid, .. }
        | MdtRequest::ReportSize { fid, .. }
        | MdtRequest::Setxattr { fid, .. }
        | MdtRequest::Removexattr { fid, .. }
        | MdtRequest::SetLayout { fid, .. }
        | MdtRequest::SetDefaultStriping { fid, .. } => Touched::of(vec![*fid]),
        MdtRequest::Open { fid, closes, .. } => {
            Touched::of([*fid].into_iter().chain(closes.iter().map(|(fid, _)| *fid)).collect())
        }
        MdtRequest::ReportSizes { reports } => Touched::of(reports.iter().map(|report| report.fid).collect()),
        MdtRequest::Create(create) => of_create(create, &[]),
        MdtRequest::MakeStriped { create, stripes, .. } => of_create(create, stripes),
        MdtRequest::Link { fid, parent, .. } => Touched::of(vec![*fid, *parent]),
        MdtRequest::RemoveAgain { is_directory: true, .. } if !is_whole => Touched::everything(),
        MdtRequest::RemoveAgain { parent, met, .. } => Touched::of(vec![*parent, met.fid]),
        MdtRequest::RenameAgain { met, .. } if met.replaced.is_some() && !is_whole => Touched::everything(),
        MdtRequest::RenameAgain { parent, new_parent, met, .. } => {
            let fids = [*parent, *new_parent, met.fid].into_iter().chain(met.replaced).collect();
            Touched { is_move: parent != new_parent, ..Touched::of(fids) }
        }
        // Without what it had met it is not known what it would take away; others are not replayed.
        _ => Touched::everything(),
    }
}

fn of_create(create: &CreateRequest, stripes: &[Fid]) -> Touched {
    let Some(made) = create.fid else { return Touched::everything() };
    Touched::of([create.parent, made].into_iter().chain(stripes.iter().copied()).collect())
}

#[cfg(test)]
mod tests;
