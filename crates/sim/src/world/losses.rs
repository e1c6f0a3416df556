//! What is told of losses: fsync(2), close(2) and a sync of a mount fail with EIO where something is lost that the mount had heard as done, once,
//! and nowhere else.
//!
//! It looks at frames, and at what targets have when they lose power. What a mount's machine keeps is not asked. With an eviction three things
//! may be told or not: what the mount had kept back, what an OST's rows say and its mark does not, and what was answered before a
//! recovery in which the eviction was (docs/recovery.md).

use super::*;
use crate::model::EIO;
use crate::servers::Progress;
use base::{Epoch, Transno, Xid};
use wire::mdt::{CreateRequest, Met};
use wire::{FrameKind, MdtRequest, OstRequest, Reply, Request, flags};

type Link = (ClientId, TargetId);
type Found = Result<(), String>;

/// A target lost power, or its process died.
struct Death {
    had: Progress,
    /// Up to where that is there.
    there: Transno,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    There,
    Unsure,
    Lost,
}

/// A change that a mount has heard as done.
struct Heard {
    /// Of the inodes that it has changed.
    nodes: Vec<u64>,
    /// Its mount was evicted since.
    is_left: bool,
    /// Its mount had begun to bring it back when it was evicted.
    is_unsure: bool,
}

/// The incarnation of a target that a mount knows, and the one before.
#[derive(Clone, Copy, Default)]
struct Known {
    before: Epoch,
    now: Epoch,
}

struct Owed {
    is_certain: bool,
    /// Descriptors that were open when the mount heard of it.
    open: BTreeSet<u64>,
    /// Calls that were opening some then, and descriptors that came of them: the mount may have had those already.
    opening: BTreeSet<u64>,
    perhaps_open: BTreeSet<u64>,
    /// Those that a close has told it. Nobody may have heard of that.
    closed: BTreeSet<u64>,
    is_untold: bool,
}

/// A mount, and what it is to tell.
#[derive(Default)]
struct Teller {
    calls: BTreeMap<u64, Call>,
    /// Node of each descriptor.
    open: BTreeMap<u64, u64>,
    written: BTreeSet<u64>,
    files: BTreeMap<u64, Owed>,
    /// Of the mount as a whole: whether it is certain.
    all: Option<bool>,
}

#[derive(Default)]
pub(super) struct Losses {
    asked: BTreeMap<(Link, Xid), (Request, Transno)>,
    sessions: BTreeMap<Link, u64>,
    known: BTreeMap<Link, Known>,
    heard: BTreeMap<(Link, Transno), Heard>,
    deaths: BTreeMap<TargetId, Vec<Death>>,
    tellers: BTreeMap<ClientId, Teller>,
    /// The reply that a mount is handling.
    reply: Option<(Link, Xid)>,
}

/// The inodes that a request changes so that fsync(2) of them, or of the directories whose names it changes, promises something.
fn promised(request: &Request) -> Option<Vec<Fid>> {
    let of_names = |met: &Met| met.replaced.into_iter().chain([met.fid]).collect();
    Some(match request {
        Request::Ost(OstRequest::Write { object, .. } | OstRequest::Change { object, .. }) => {
            vec![object.fid]
        }
        Request::Mdt(request) => match request {
            MdtRequest::Setattr { fid, .. }
            | MdtRequest::Setxattr { fid, .. }
            | MdtRequest::Removexattr { fid, .. }
            | MdtRequest::SetLayout { fid, .. }
            | MdtRequest::SetDefaultStriping { fid, .. }
            | MdtRequest::Close { fid, data: Some(_), .. }
            | MdtRequest::Link { fid, .. } => vec![*fid],
            MdtRequest::Create(create) | MdtRequest::MakeStriped { create, .. } => {
                let CreateRequest { fid, .. } = create;
                fid.iter().copied().collect()
            }
            MdtRequest::Unlink { .. } | MdtRequest::Rmdir { .. } | MdtRequest::Rename { .. } => Vec::new(),
            MdtRequest::RemoveAgain { met, .. } | MdtRequest::RenameAgain { met, .. } => of_names(met),
            _ => return None,
        },
        _ => return None,
    })
}

impl Losses {
    /// A mount asks a target for something.
    pub fn see(&mut self, frame: &Frame) {
        let (Endpoint::Client(client), Endpoint::Target(target)) = (frame.src, frame.dst) else { return };
        if frame.kind != FrameKind::Request || target.kind == TargetKind::Mgt {
            return;
        }
        let link = (client, target);
        if frame.session != 0 {
            self.sessions.insert(link, frame.session);
        }
        let replayed = if frame.flags & flags::REPLAY == 0 { Transno::ZERO } else { frame.transno };
        if let Ok(request) = Request::from_bytes(&frame.body)
            && !matches!(request, Request::Connect(_) | Request::Ping { .. })
        {
            self.asked.insert((link, frame.xid), (request, replayed));
        }
    }

    /// A mount is about to hear something.
    pub fn hear(&mut self, frame: &Frame) {
        let (Endpoint::Target(target), Endpoint::Client(client)) = (frame.src, frame.dst) else { return };
        if frame.kind != FrameKind::Reply {
            return;
        }
        let link = (client, target);
        self.reply = Some((link, frame.xid));
        if let Ok(Reply::Connected(reply)) = Reply::from_bytes(&frame.body) {
            let known = self.known.entry(link).or_default();
            if reply.target_epoch >= known.now {
                *known = Known { before: known.now, now: reply.target_epoch };
            }
            return;
        }
        let is_of_session = self.sessions.get(&link) == Some(&frame.session);
        if !is_of_session || frame.status != base::Status::Ok || frame.transno == Transno::ZERO {
            return;
        }
        let Some((request, replayed)) = self.asked.get(&(link, frame.xid)) else { return };
        if *replayed != Transno::ZERO {
            if let Some(heard) = self.heard.get_mut(&(link, *replayed)) {
                heard.is_unsure = true;
            }
            return;
        }
        let mut request = request.clone();
        if let Ok(reply) = Reply::from_bytes(&frame.body) {
            rpc::import::fill_for_replay(&mut request, &reply);
        }
        if let Some(fids) = promised(&request) {
            let nodes = fids.into_iter().map(Fid::inode_number).collect();
            let heard = Heard { nodes, is_left: false, is_unsure: false };
            self.heard.entry((link, frame.transno)).or_insert(heard);
        }
    }

    pub fn note_death(&mut self, id: TargetId, had: Progress, there: Transno) {
        self.deaths.entry(id).or_default().push(Death { had, there });
    }

    /// As far as a mount can know by now.
    fn fate(&self, (link, transno): (Link, Transno), heard: &Heard) -> Fate {
        let known = self.known.get(&link).copied().unwrap_or_default();
        let deaths = self.deaths.get(&link.1).map_or(&[][..], Vec::as_slice);
        let of_death = |death: &Death| {
            let is_of_ost = link.1.kind == TargetKind::Ost;
            match transno <= death.had.executed {
                true if transno > death.there => Fate::Lost,
                true if is_of_ost && transno > death.had.committed => Fate::Unsure,
                _ => Fate::There,
            }
        };
        let fate = deaths.iter().filter(|death| death.had.epoch < known.now).map(of_death).max();
        let fate = fate.unwrap_or(Fate::There);
        if heard.is_unsure { Fate::Unsure } else { fate }
    }

    fn teller(&mut self, client: ClientId) -> &mut Teller {
        self.tellers.entry(client).or_default()
    }

    /// `hear` has seen with which answer. What the mount had kept back is perhaps lost.
    pub fn on_evicted(&mut self, client: ClientId, target: TargetId) {
        let link = (client, target);
        let before = self.known.get(&link).map_or(Epoch::ZERO, |known| known.before);
        self.sessions.remove(&link);
        let of_link = (link, Transno::ZERO)..=(link, Transno(u64::MAX));
        for ((_, transno), heard) in self.heard.range_mut(of_link).filter(|(_, heard)| !heard.is_left) {
            heard.is_left = true;
            heard.is_unsure |= transno.epoch() < before;
        }
        let teller = self.teller(client);
        for node in teller.written.clone() {
            teller.owe(node, false);
        }
        teller.all.get_or_insert(false);
    }

    /// A mount says that so many requests are lost.
    ///
    /// # Errors
    /// They are not.
    pub fn on_lost(&mut self, client: ClientId, target: TargetId, request_count: usize) -> Found {
        let link = (client, target);
        let fates = self.left_by(link);
        let count = |fate: Fate| fates.iter().filter(|(_, of)| *of == fate).count();
        let (lost_count, unsure_count) = (count(Fate::Lost), count(Fate::Unsure));
        for (transno, fate) in fates.into_iter().filter(|(_, fate)| *fate != Fate::There) {
            let is_certain = fate == Fate::Lost;
            // Of those that may be lost nobody says which ones are.
            let nodes = match self.heard.get_mut(&(link, transno)) {
                Some(heard) if !is_certain && request_count < lost_count + unsure_count => {
                    heard.is_unsure = true;
                    heard.nodes.clone()
                }
                _ => self.heard.remove(&(link, transno)).map_or_else(Vec::new, |heard| heard.nodes),
            };
            let teller = self.teller(client);
            nodes.into_iter().for_each(|node| teller.owe(node, is_certain));
            teller.all = Some(teller.all == Some(true) || is_certain);
        }
        if (lost_count..=lost_count + unsure_count).contains(&request_count) {
            return Ok(());
        }
        Err(format!(
            "{client} believes that {target} has lost {request_count} of what it had done: {lost_count}, and perhaps {unsure_count}"
        ))
    }

    /// What a mount has left at a target that has evicted it.
    fn left_by(&self, link: Link) -> Vec<(Transno, Fate)> {
        let of_link = self.heard.range((link, Transno::ZERO)..=(link, Transno(u64::MAX)));
        let left = of_link.filter(|(_, heard)| heard.is_left);
        left.map(|(key, heard)| (key.1, self.fate(*key, heard))).collect()
    }

    /// A restarted target has refused what a mount had heard as done.
    pub fn on_refused(&mut self, client: ClientId) {
        let Some((link, xid)) = self.reply else { return };
        let Some((request, replayed)) = self.asked.get(&(link, xid)).cloned() else { return };
        self.heard.remove(&(link, replayed));
        let nodes = match &request {
            Request::Mdt(
                MdtRequest::Open { fid, .. }
                | MdtRequest::Reopen { fid, .. }
                | MdtRequest::ReplayFlocks { fid, .. },
            ) => vec![*fid],
            request => promised(request).unwrap_or_default(),
        };
        let teller = self.teller(client);
        nodes.into_iter().for_each(|fid| teller.owe(fid.inode_number(), true));
        teller.all = Some(true);
    }

    /// A mount has a session again, and has told all that it has to tell.
    ///
    /// # Errors
    /// It has lost more.
    pub fn check_told(&mut self, client: ClientId, target: TargetId) -> Found {
        let lost = self.left_by((client, target)).into_iter().find(|(_, fate)| *fate == Fate::Lost);
        match lost {
            None => Ok(()),
            Some((transno, _)) => {
                Err(format!("{client} does not know that {target} has lost {transno}, which it had done"))
            }
        }
    }

    /// Everything that was answered before is durable.
    pub fn on_recovered(&mut self, client: ClientId, target: TargetId) {
        let link = (client, target);
        let now = self.known.get(&link).map_or(Epoch::ZERO, |known| known.now);
        self.heard.retain(|(of, transno), heard| *of != link || heard.is_left || transno.epoch() >= now);
    }

    pub fn on_call(&mut self, client: ClientId, id: u64, call: &Call) {
        let teller = self.teller(client);
        match call {
            Call::Write { node, .. } => _ = teller.written.insert(*node),
            Call::Setattr { node, set } if set.size_bytes.is_some() => _ = teller.written.insert(*node),
            Call::Open { .. }
            | Call::Create { .. }
            | Call::Tmpfile { .. }
            | Call::Flush { .. }
            | Call::Release { .. }
            | Call::Fsync { .. }
            | Call::SyncAll => _ = teller.calls.insert(id, call.clone()),
            _ => {}
        }
    }

    /// What a call has told.
    ///
    /// # Errors
    /// It should have told something else.
    pub fn on_answer(&mut self, client: ClientId, id: u64, result: &Result<Answer, i32>) -> Found {
        let teller = self.teller(client);
        let Some(call) = teller.calls.remove(&id) else { return Ok(()) };
        let told = result.as_ref().map_or_else(|errno| *errno, |_| 0);
        let is_right = match (&call, result) {
            (Call::Open { node, .. }, Ok(Answer::Opened { fh, .. })) => {
                teller.note_open(id, *fh, *node);
                true
            }
            (Call::Create { .. } | Call::Tmpfile { .. }, Ok(Answer::Created { entry, fh, .. })) => {
                teller.note_open(id, *fh, entry.node);
                true
            }
            (Call::Fsync { node, fh, .. }, _) => teller.is_right(*node, *fh, told, true),
            (Call::Flush { node, fh, .. }, _) => teller.is_right(*node, *fh, told, false),
            (Call::Release { node, fh, .. }, _) => {
                teller.open.remove(fh);
                if let Some(owed) = teller.files.get_mut(node) {
                    owed.open.remove(fh);
                }
                true
            }
            (Call::SyncAll, _) => match told {
                0 => teller.all.take() != Some(true),
                EIO => teller.all.take().is_some(),
                _ => {
                    teller.all.get_or_insert(false);
                    true
                }
            },
            _ => true,
        };
        match is_right {
            true => Ok(()),
            false if told == EIO => {
                Err(format!("{client}: {call:?} tells of a loss where none was, or again"))
            }
            false => Err(format!("{client}: {call:?} says nothing of what is lost")),
        }
    }
}

impl Teller {
    fn note_open(&mut self, call: u64, fh: u64, node: u64) {
        self.open.insert(fh, node);
        if let Some(owed) = self.files.get_mut(&node)
            && owed.opening.remove(&call)
        {
            owed.perhaps_open.insert(fh);
        }
    }

    /// Something of this inode is lost.
    fn owe(&mut self, node: u64, is_certain: bool) {
        let open: BTreeSet<u64> =
            self.open.iter().filter(|(_, of)| **of == node).map(|(fh, _)| *fh).collect();
        let is_opening =
            |call: &Call| matches!(call, Call::Open { .. } | Call::Create { .. } | Call::Tmpfile { .. });
        let opening = self.calls.iter().filter(|(_, call)| is_opening(call)).map(|(id, _)| *id);
        let opening: BTreeSet<u64> = opening.collect();
        match self.files.get_mut(&node) {
            Some(owed) if !is_certain && owed.is_certain => {
                // Not all that is open now was then.
                owed.open.extend(open);
                owed.opening.extend(opening);
                owed.closed.clear();
                owed.is_certain = false;
            }
            _ => {
                let owed = Owed {
                    is_certain,
                    open,
                    opening,
                    perhaps_open: BTreeSet::new(),
                    closed: BTreeSet::new(),
                    is_untold: true,
                };
                self.files.insert(node, owed);
            }
        }
    }

    fn is_right(&mut self, node: u64, fh: u64, told: i32, is_fsync: bool) -> bool {
        let Some(owed) = self.files.get_mut(&node) else { return told != EIO };
        let is_owed = owed.open.contains(&fh) || is_fsync && owed.is_untold;
        let may_tell = is_owed || owed.perhaps_open.contains(&fh);
        match told {
            0 if is_fsync => {
                owed.open.remove(&fh);
                let is_right = !(owed.is_certain && is_owed);
                owed.is_untold = false;
                is_right
            }
            EIO if is_fsync => {
                owed.open.remove(&fh);
                owed.perhaps_open.remove(&fh);
                owed.is_untold = false;
                may_tell
            }
            EIO => may_tell && owed.closed.insert(fh),
            0 => true,
            // It says something that is worse, or newer.
            _ => {
                owed.is_certain = false;
                true
            }
        }
    }
}
