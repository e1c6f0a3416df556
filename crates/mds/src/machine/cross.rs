//! Operations over several MDTs: the coordinator's and the participant's side.
//!
//! The coordinator claims what it needs itself, then has the others prepare; its own transaction, with a decision row,
//! is the only commit point. Decisions leave when that is durable. A participant keeps a durable row of what it
//! prepared and holds the claims; whoever looks at what is frozen waits. Locks are never waited for in a circle: a
//! prepare that cannot have its locks soon answers `GIVE_WAY`, and the coordinator gives back everything and starts anew.
//!
//! Renames of directories between parents take the one rename lock of the file system first, while they hold nothing
//! else, and then walk up from the new parent.

mod asking;
mod participant;
mod past;
mod rename_lock;

use super::flow::{Flow, Run, Stage, Step};
use super::peers::Call;
use super::{Mds, MdsEvent, Output};
use crate::access;
use crate::op::{Cx, Remote, Stop, migrate, part, path, stripes};
use crate::rows::{self, Asker, Decision, Prepare};
use crate::tx::Resources;
use base::fault::{Fault, planted};
use base::{ClientId, Duration, Endpoint, Fid, Now, Status, TargetId, TargetKind, Time, Transno};
use ldlm::{Need, OpId};
use past::Past;
use rename_lock::RenameClaim;
pub(super) use rename_lock::{RenameHold, Walk};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Batch, MetaStore};
use target::Token;
use wire::lock::bits;
use wire::mdt::Credentials;
use wire::peer::{OperationId, Part};
use wire::{LockMode, LockPolicy, MdtRequest, PeerReply, PeerRequest, Reply, Request, Resource};

/// A participant asks about an operation that has been undecided for so long.
const ASK_AFTER: Duration = Duration::from_millis(1000);
/// A decision that another MDT could not take is told again after this.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Parts of one attempt, on their way.
#[derive(Debug)]
pub(super) struct Settling {
    id: OperationId,
    parts: Vec<(u16, Part)>,
    /// MDTs that have not answered.
    unanswered: BTreeSet<u16>,
    refusal: Option<Status>,
}

/// An operation that was decided here and has to be told.
#[derive(Debug)]
struct Pending {
    transno: Transno,
    participants: BTreeSet<u16>,
    /// `None` while answers are on their way.
    send_at: Option<Time>,
}

/// Parts that were prepared for another MDT.
#[derive(Debug)]
struct Prepared {
    /// Holds the claims, if it was prepared by this incarnation.
    op: OpId,
    transno: Transno,
    /// In which the coordinator asked for it; `None` if that was another incarnation of this MDT.
    session: Option<u64>,
    /// What changes, and inodes whose names get another directory.
    frozen: Resources,
    /// Regular files that go to the other MDT.
    leaving: BTreeSet<Fid>,
    ask_at: Time,
    is_asked: bool,
}

#[derive(Debug, Default)]
pub(super) struct Cross {
    next_number: u64,
    decisions: BTreeMap<OperationId, Pending>,
    prepared: BTreeMap<OperationId, Prepared>,
    frozen: BTreeMap<Resource, OperationId>,
    rename_claims: BTreeMap<OperationId, RenameClaim>,
    /// Claims of the rename lock by flows of this MDT.
    rename_flows: BTreeMap<OpId, OpId>,
    /// Rename locks that have been given back.
    released: Past,
    /// What other MDTs had prepared here, or wanted to, and is decided.
    decided: Past,
    /// What was found prepared at the start, and was void or cannot be executed: why, what it is about, and how that is told.
    failed_at_load: Vec<(&'static str, Fid, Status)>,
    /// Rename locks on MDT0000 to be given back.
    to_unlock: Vec<OperationId>,
    /// The last transaction that has given a directory another parent.
    moved_at: Transno,
}

impl Cross {
    pub fn is_empty(&self) -> bool {
        self.decisions.is_empty() && self.prepared.is_empty()
    }

    pub fn is_frozen(&self, touched: &Resources) -> bool {
        !self.frozen.is_empty() && touched.iter().any(|resource| self.frozen.contains_key(resource))
    }

    pub fn frozen_among<'a>(
        &'a self,
        touched: &'a Resources,
    ) -> impl Iterator<Item = (Resource, OperationId)> + 'a {
        touched.iter().filter_map(|resource| Some((*resource, *self.frozen.get(resource)?)))
    }

    pub fn next_deadline(&self) -> Option<Time> {
        let asks =
            self.prepared.values().filter(|prepared| !prepared.is_asked).map(|prepared| prepared.ask_at);
        let sends =
            self.decisions.values().filter_map(|pending| pending.send_at).filter(|at| *at > Time::ZERO);
        asks.chain(sends).min()
    }

    /// One line for each operation that is not settled everywhere.
    pub fn under_way(&self) -> impl Iterator<Item = String> {
        let prepared = self.prepared.iter().map(|(id, prepared)| format!("prepared {id:?}: {prepared:?}"));
        let decided = self.decisions.iter().map(|(id, pending)| format!("decided {id:?}: {pending:?}"));
        let rename = self.rename_claims.iter().map(|(id, held)| format!("rename lock {id:?}: {held:?}"));
        prepared.chain(decided).chain(rename)
    }

    /// Nobody looks at an inode until `thaw_inode`.
    pub fn freeze_inode(&mut self, fid: Fid, id: OperationId) {
        self.frozen.insert(Resource::Inode(fid), id);
    }

    pub fn thaw_inode(&mut self, fid: Fid) {
        self.frozen.remove(&Resource::Inode(fid));
    }

    /// Whether another MDT is about to take a regular file over.
    pub fn is_leaving(&self, fid: Fid) -> bool {
        self.prepared.values().any(|prepared| prepared.leaving.contains(&fid))
    }

    /// What was prepared for a former incarnation of a coordinator, which prepares something anew, among what that looks at.
    fn void_among(&self, new: OperationId, touched: &Resources) -> BTreeSet<OperationId> {
        let in_the_way = self.frozen_among(touched).map(|(_, old)| old);
        in_the_way.filter(|old| old.mdt_index == new.mdt_index && old.epoch < new.epoch).collect()
    }

    /// Whether that is all that is frozen there.
    pub fn is_only_void(&self, new: OperationId, touched: &Resources) -> bool {
        let void = self.void_among(new, touched);
        touched.iter().filter_map(|resource| self.frozen.get(resource)).all(|old| void.contains(old))
    }

    /// Whether a coordinator waits until its decision is durable here: one that was restarted asks for nothing before that (`is_behind`).
    /// Another one only keeps the row, and a sync for each decision would keep the next prepare waiting behind it.
    fn is_decision_awaited(&self, id: OperationId, token: &Token) -> bool {
        self.prepared.get(&id).is_none_or(|prepared| prepared.session != Some(token.session))
    }

    /// Whether another MDT's operation holds an inode.
    pub fn is_inode_frozen(&self, fid: Fid) -> bool {
        self.frozen.contains_key(&Resource::Inode(fid))
    }

    /// A directory that is here has another parent.
    pub fn note_move(&mut self, transno: Transno) {
        self.moved_at = transno;
    }

    /// What has to be durable before another MDT hears of a parent. The rename lock goes back when a move is applied; a later one that relies
    /// on it is in another MDT's log and could outlive it, and the directories of both would be below themselves.
    pub fn moved_at(&self) -> Transno {
        self.moved_at
    }

    pub fn decide(&mut self, id: OperationId, transno: Transno, participants: BTreeSet<u16>) {
        self.decisions.insert(id, Pending { transno, participants, send_at: Some(Time::ZERO) });
    }
}

/// Runs what another MDT asks for: the parts of a prepare, or a look at a name.
///
/// # Errors
/// Those of the parts.
pub(super) fn run_peer(cx: &mut Cx, request: &PeerRequest) -> Result<PeerReply, Stop> {
    match request {
        PeerRequest::Prepare { parts, uid, gid, groups, .. } => {
            let asker = Asker { uid: *uid, gid: *gid, groups: groups.clone() };
            let mut parts = parts.clone();
            let is_used = |part: &Part| match part {
                Part::GiveFile { fid, .. } => cx.opens.is_in_use(*fid),
                _ => false,
            };
            if parts.iter().any(is_used) {
                return Err(Stop::Status(part::GIVE_WAY));
            }
            let (fid, attrs) = run_parts(cx, &mut parts, &asker)?;
            Ok(PeerReply::Prepared { fid, attrs })
        }
        PeerRequest::PeekName { parent, name, .. } => {
            let parent_attr = cx.directory_of(*parent, name)?.attr;
            let entry = cx.tx.dentry(*parent, name)?.map(|dentry| (dentry.fid, dentry.file_type));
            Ok(PeerReply::Name { entry, parent_attr })
        }
        PeerRequest::PeekParent { fid, .. } => {
            cx.directory(*fid)?;
            Ok(PeerReply::Parent { fid: path::parent_of(cx, *fid)?.map(|(parent, _)| parent) })
        }
        PeerRequest::PeekDirectory { fid, .. } => {
            let stripes = cx.tx.inode(*fid)?.map_or_else(Vec::new, |inode| inode.stripes);
            Ok(PeerReply::Directory { stripes, master: stripes::master_of(cx, *fid)? })
        }
        PeerRequest::PeekFile { fid, .. } => {
            if cx.opens.is_in_use(*fid) {
                // Who has only not said yet that he has closed it says so.
                cx.outcome.awaited = Some(Need {
                    resource: Resource::Inode(*fid),
                    mode: LockMode::Ex,
                    policy: LockPolicy::Bits(bits::OPEN),
                });
            }
            Ok(PeerReply::File(Box::new(migrate::whole_file(cx, *fid)?)))
        }
        PeerRequest::PeekWhole { fid, .. } => Ok(PeerReply::Whole(Box::new(migrate::whole(cx, *fid)?))),
        _ => Err(Stop::Status(Status::ProtocolError)),
    }
}

/// The directory that was made, and the inodes of the parts as they are afterwards.
fn run_parts(
    cx: &mut Cx,
    parts: &mut [Part],
    asker: &Asker,
) -> Result<(Option<Fid>, Vec<base::Attr>), Status> {
    let creds = Credentials { uid: asker.uid, gid: asker.gid, groups: Some(asker.groups.clone()) };
    let mut made = None;
    let mut attrs = Vec::new();
    for part in parts {
        part::run(cx, part, &creds)?;
        if let Part::MakeDirectory { attr, .. } = part {
            made = Some(attr.fid);
        }
        if let Some(fid) = part::owner_of(part)
            && let Some(inode) = cx.tx.inode(fid)?
        {
            attrs.push(inode.attr);
        }
    }
    Ok((made, attrs))
}

/// In whose name, where that matters on other MDTs.
fn creds_of(request: &Request) -> Option<&Credentials> {
    match request {
        Request::Mdt(MdtRequest::Create(create) | MdtRequest::MakeStriped { create, .. }) => {
            Some(&create.creds)
        }
        Request::Mdt(
            MdtRequest::Unlink { creds, .. }
            | MdtRequest::Rmdir { creds, .. }
            | MdtRequest::Rename { creds, .. }
            | MdtRequest::Migrate { creds, .. }
            | MdtRequest::Link { creds, .. },
        ) => Some(creds),
        _ => None,
    }
}

/// Whether groups could decide about parts, and are not known: a prepare says all of them.
fn lacks_groups(request: &Request, parts: &[(u16, Part)]) -> bool {
    let is_unknown = |creds: &Credentials| creds.groups.is_none() && !access::is_superuser(creds);
    creds_of(request).is_some_and(is_unknown) && parts.iter().any(|(_, part)| part::checks_access(part))
}

/// Who asks, for parts on other MDTs.
fn asker_of(request: &Request) -> Asker {
    let creds = creds_of(request).cloned().unwrap_or_default();
    Asker { uid: creds.uid, gid: creds.gid, groups: creds.groups.unwrap_or_default() }
}

/// The coordinator's side.
impl<M: MetaStore> Mds<M> {
    pub(super) fn new_operation(&mut self) -> OperationId {
        self.cross.next_number += 1;
        OperationId {
            mdt_index: self.options.index,
            epoch: self.core.epoch().0,
            number: self.cross.next_number,
        }
    }

    pub(super) fn is_settled(&self, flow: &Flow, parts: &[(u16, Part)]) -> bool {
        flow.settling.as_ref().is_some_and(|settling| {
            settling.unanswered.is_empty()
                && settling.refusal.is_none()
                && settling.parts.len() == parts.len()
                && settling.parts.iter().zip(parts).all(|(a, b)| a.0 == b.0 && part::is_same(&a.1, &b.1))
        })
    }

    /// An MDT takes the word of a new incarnation as a sign that what older ones had prepared and not decided is void.
    /// So it must have heard of what they had decided before anything else is asked of it.
    fn is_behind(&self, mdt: u16) -> bool {
        let epoch = self.core.epoch().0;
        let mut decisions = self.cross.decisions.iter();
        decisions.any(|(id, pending)| id.epoch < epoch && pending.participants.contains(&mdt))
    }

    /// Has the other MDTs prepare their parts.
    pub(super) fn settle_parts(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        parts: Vec<(u16, Part)>,
        out: &mut Vec<Output>,
    ) -> Step {
        // What is replayed was allowed when it was executed first.
        if flow.token.replay.is_none() && lacks_groups(&flow.request, &parts) {
            return self.fail(now, op, flow, Status::AccessDenied, out);
        }
        let mdts: BTreeSet<u16> = parts.iter().map(|(mdt, _)| *mdt).collect();
        flow.wait_for(mdts.iter().copied().map(TargetId::mdt));
        if flow.settling.is_some() || mdts.iter().any(|mdt| self.is_behind(*mdt)) {
            return self.back_off(now, op, flow, out);
        }
        let id = self.new_operation();
        let asker = asker_of(&flow.request);
        flow.settling = Some(Settling { id, parts: parts.clone(), unanswered: mdts.clone(), refusal: None });
        for mdt in mdts {
            let of_mdt = parts.iter().filter(|(index, _)| *index == mdt).map(|(_, part)| part.clone());
            let request = Request::Peer(PeerRequest::Prepare {
                id,
                parts: of_mdt.collect(),
                uid: asker.uid,
                gid: asker.gid,
                groups: asker.groups.clone(),
                is_replay: flow.token.replay.is_some(),
            });
            if !self.call(now, TargetId::mdt(mdt), request, Call::Prepare { op, id, mdt }, out) {
                return self.fail(now, op, flow, Status::NoDevice, out);
            }
        }
        self.ask(now, op, flow)
    }

    /// Tells everybody who was asked to prepare that nothing comes of it.
    pub(super) fn abort_parts(&mut self, now: Now, flow: &mut Flow, out: &mut Vec<Output>) {
        let Some(settling) = flow.settling.take() else { return };
        let mdts: BTreeSet<u16> = settling.parts.iter().map(|(mdt, _)| *mdt).collect();
        for mdt in mdts {
            let request = Request::Peer(PeerRequest::Decide { id: settling.id, is_commit: false });
            self.call(now, TargetId::mdt(mdt), request, Call::Tell, out);
        }
    }

    /// The row that makes the operation's transaction the commit point.
    pub(super) fn put_decision(
        &self,
        flow: &Flow,
        batch: &mut Batch,
    ) -> Option<(OperationId, BTreeSet<u16>)> {
        let settling = flow.settling.as_ref()?;
        let participants: BTreeSet<u16> = settling.parts.iter().map(|(mdt, _)| *mdt).collect();
        let row = Decision { participants: participants.iter().copied().collect() };
        batch.put(rows::DECISIONS, &rows::operation_key(settling.id), &rows::encode(&row));
        Some((settling.id, participants))
    }

    pub(super) fn send_decisions(&mut self, now: Now, out: &mut Vec<Output>) {
        let durable = self.core.durable();
        let mut to_send = Vec::new();
        for (id, pending) in &mut self.cross.decisions {
            if pending.transno > durable || pending.send_at.is_none_or(|at| at > now.time) {
                continue;
            }
            pending.send_at = None;
            to_send.extend(pending.participants.iter().map(|mdt| (*id, *mdt)));
        }
        for (id, mdt) in to_send {
            self.send_decision(now, id, mdt, out);
        }
    }

    fn send_decision(&mut self, now: Now, id: OperationId, mdt: u16, out: &mut Vec<Output>) {
        let request = Request::Peer(PeerRequest::Decide { id, is_commit: true });
        if !self.call(now, TargetId::mdt(mdt), request, Call::Decide { id, mdt }, out)
            && let Some(pending) = self.cross.decisions.get_mut(&id)
        {
            // The configuration has not come yet.
            pending.send_at = Some(now.time.after(SEND_AGAIN_AFTER));
        }
    }

    fn on_decided(&mut self, id: OperationId, mdt: u16, out: &mut Vec<Output>) {
        let Some(pending) = self.cross.decisions.get_mut(&id) else { return };
        pending.participants.remove(&mdt);
        if !pending.participants.is_empty() {
            return;
        }
        self.cross.decisions.remove(&id);
        let mut batch = Batch::new();
        batch.delete(rows::DECISIONS, &rows::operation_key(id));
        if let Err(error) = self.core.apply_internal(batch) {
            let (what, status) = ("a decision was not forgotten", error.status());
            out.push(Output::Event(MdsEvent::Failed { what, fid: Fid::default(), status }));
        }
    }

    /// An answer of another MDT.
    pub(super) fn on_mdt_answer(
        &mut self,
        now: Now,
        target: TargetId,
        call: Call,
        result: Result<Reply, Status>,
        out: &mut Vec<Output>,
    ) {
        match call {
            Call::Prepare { op, id, mdt } => self.on_prepared(op, id, mdt, result),
            Call::Decide { id, mdt } => match result {
                Ok(_) => self.on_decided(id, mdt, out),
                Err(_) => {
                    if let Some(pending) = self.cross.decisions.get_mut(&id) {
                        pending.send_at = Some(now.time.after(SEND_AGAIN_AFTER));
                    }
                }
            },
            Call::Ask { id } => self.on_asked(now, id, result, out),
            Call::FlockWaits { wait } => self.on_flock_waits_told(now, target, wait, result, out),
            Call::LockRename { op, id } if !self.wants_rename_lock(op, id) => {
                // Nobody who was given it while nobody waited for it any more would give it back.
                if result.is_ok() {
                    self.cross.to_unlock.push(id);
                }
            }
            Call::Peek { op }
            | Call::PeekParent { op }
            | Call::LockRename { op, .. }
            | Call::NewFid { op, .. }
            | Call::PeekWhole { op, .. }
            | Call::PeekFile { op, .. }
            | Call::PeekDirectory { op, .. } => {
                self.on_flow_answer(now, op, &call, result, out);
            }
            Call::TakeBack { mdt, is_whole } => self.on_taken_back(now, (mdt, is_whole), result, out),
            Call::Hold { mdt } => self.on_held(now, mdt, result, out),
            Call::Release { mdt, up_to } => self.on_released(now, mdt, up_to, result, out),
            Call::NewFids { mdt } => self.on_fids_given(now, mdt, result, out),
            Call::IsComing { op, fid } => self.on_coming(now, op, fid, result, out),
            Call::Destroy { .. }
            | Call::Adopt { .. }
            | Call::List { .. }
            | Call::Fence { .. }
            | Call::Space
            | Call::Tell => {
                assert!(target.kind == TargetKind::Mdt, "OSTs are answered elsewhere");
            }
        }
    }

    fn on_prepared(&mut self, op: OpId, id: OperationId, mdt: u16, result: Result<Reply, Status>) {
        let Some(flow) = self.flows.get_mut(&op) else { return };
        let Some(settling) = flow.settling.as_mut().filter(|settling| settling.id == id) else { return };
        if !settling.unanswered.remove(&mdt) {
            return;
        }
        match result {
            Ok(Reply::Peer(PeerReply::Prepared { attrs, fid: _ })) => {
                flow.remote.types.extend(attrs.iter().map(|attr| (attr.fid, attr.file_type)));
            }
            Ok(_) => settling.refusal = Some(Status::ProtocolError),
            // A real reason counts for more than that.
            Err(status) if settling.refusal.is_none_or(|former| former == part::GIVE_WAY) => {
                settling.refusal = Some(status);
            }
            Err(_) => {}
        }
        if settling.unanswered.is_empty() {
            self.wake_answered(op);
        }
    }

    fn wake_answered(&mut self, op: OpId) {
        if self.flows.get(&op).is_some_and(|flow| flow.stage == Stage::Asking) {
            self.wake(op);
        }
    }

    /// What the other MDTs said to an attempt, if not all of them agreed.
    pub(super) fn refusal(flow: &Flow) -> Option<Status> {
        flow.settling.as_ref().filter(|settling| settling.unanswered.is_empty())?.refusal
    }
}

/// What must not wait for the end of a recovery: the recovery may wait for it, here or there. Other operations would see
/// names that are not replayed yet, and take locks away that clients have not named yet.
fn passes_recovery(request: &PeerRequest) -> bool {
    match request {
        PeerRequest::Prepare { is_replay, .. }
        | PeerRequest::PeekName { is_replay, .. }
        | PeerRequest::PeekParent { is_replay, .. }
        | PeerRequest::PeekDirectory { is_replay, .. }
        | PeerRequest::LockRename { is_replay, .. } => *is_replay,
        PeerRequest::Decide { .. }
        | PeerRequest::Ask { .. }
        | PeerRequest::UnlockRename { .. }
        | PeerRequest::RefuseFlock { .. } => true,
        // Who waited before the restart asks again, and searches then.
        PeerRequest::FlockWaits { .. } => false,
        // A replay names its FIDs.
        PeerRequest::NewFid | PeerRequest::NewFids { .. } => false,
        // Nobody replays what moves an inode.
        PeerRequest::PeekWhole { .. } | PeerRequest::PeekFile { .. } => false,
        // Streams are only about what is in rows.
        PeerRequest::Hold { .. }
        | PeerRequest::Release { .. }
        | PeerRequest::TakeBack { .. }
        | PeerRequest::TakeBackPart { .. }
        | PeerRequest::Forget { .. }
        | PeerRequest::IsComing { .. } => true,
    }
}
