//! What operations share, and how they reach it: only inside a closure, so that nothing is held across an await and
//! no expression enters it twice.

use crate::executor::{Receiver, oneshot};
use crate::machine::{Notify, NotifyResult, Output};
use crate::state::State;
use base::limits::DIRECTORY_STRIPES_MAX;
use base::{Duration, Fid, Now, Status, TargetId, Transno};
use bytes::Bytes;
use rpc::{Answer, Kind};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use wire::lock::LockWant;
use wire::mdt::{Credentials, Entry, OpenArgs};
use wire::{MdtReply, MdtRequest, OstReply, OstRequest, Reply, Request};

/// What an OST answered: reply, data, transaction number.
pub(crate) type OstAnswer = (Option<OstReply>, Bytes, Transno);

/// What every fallible step of an operation returns.
pub(crate) type Outcome<T> = Result<T, Status>;

#[derive(Clone)]
pub(crate) struct Ctx(Arc<Mutex<State>>);

impl Ctx {
    pub(crate) fn new(state: State) -> Ctx {
        Ctx(Arc::new(Mutex::new(state)))
    }

    /// Enters the state. Never from inside another `with`.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.0.try_lock().expect("the state has one owner, who enters it once at a time");
        f(&mut state)
    }

    pub(crate) fn now(&self) -> Now {
        self.with(|state| state.now)
    }

    /// Runs something beside the caller.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.with(|state| state.spawned.push(Box::pin(task)));
    }

    /// Hands a request to the session with a target, at once; the future is its result.
    pub(crate) fn request(
        &self,
        target: TargetId,
        request: Request,
        data: Bytes,
        kind: Kind,
    ) -> impl Future<Output = Outcome<rpc::Answer>> + Send + use<> {
        let (sender, receiver) = oneshot();
        let refused = self.with(|state| state.submit(target, request, data, kind, sender)).err();
        async move {
            match refused {
                Some(status) => Err(status),
                // The sender goes without a value only with the machine itself.
                None => receiver.await.unwrap_or(Err(Status::NotConnected)),
            }
        }
    }

    /// A metadata request to the MDT of `fid`.
    pub(crate) async fn mdt(&self, fid: Fid, request: MdtRequest, kind: Kind) -> Outcome<MdtReply> {
        self.mdt_with(fid, request, Bytes::new(), kind).await
    }

    /// The same, with data.
    pub(crate) async fn mdt_with(
        &self,
        fid: Fid,
        request: MdtRequest,
        data: Bytes,
        kind: Kind,
    ) -> Outcome<MdtReply> {
        let target = mdt_of(fid)?;
        let is_modifying = kind.is_modifying();
        let opened = opened_by(&request);
        let changes_before = self.with(|state| state.data_change_count);
        let mut answer = self.request(target, Request::Mdt(request), data, kind).await?;
        if let Reply::Mdt(reply) = answer.reply {
            answer.reply = Reply::Mdt(reply.without_met());
        }
        if is_modifying {
            self.with(|state| {
                state.note_change(target, fid, answer.transno);
                std::iter::once(fid)
                    .chain(changed_by(&answer.reply))
                    .for_each(|fid| state.note_changed_here(fid));
            });
        }
        answer.reply = self.take_opened_data(target, answer.reply, answer.data);
        if let (Some(open), Reply::Mdt(MdtReply::Entry(entry))) = (opened, &answer.reply) {
            self.take_open(target, entry, open, answer.transno, changes_before).await;
        }
        match answer.reply {
            Reply::Mdt(MdtReply::Striped { entry, stripes }) => striped(*entry, stripes),
            Reply::Mdt(reply) => Ok(reply),
            Reply::Done => Ok(MdtReply::Closed { wants_size: None, attr: None }),
            _ => Err(Status::ProtocolError),
        }
    }

    /// The entry of a file that was opened, with what came of its data.
    fn take_opened_data(&self, target: TargetId, reply: Reply, data: Bytes) -> Reply {
        let (mut entry, grant_bytes, has_bytes) = match reply {
            Reply::Mdt(MdtReply::WithData { entry, grant_bytes, has_bytes }) => {
                (entry, grant_bytes, has_bytes)
            }
            reply => return reply,
        };
        self.with(|state| {
            if let Some(connection) = state.connections.get_mut(&target) {
                connection.grant_bytes = grant_bytes;
            }
        });
        entry.data = has_bytes.then_some(data);
        Reply::Mdt(MdtReply::Entry(entry))
    }

    /// The answer to an open. A request that was executed before a restart of its MDT is answered after it from the row of its
    /// slot. The open itself was in the memory that is gone: it is named in the recovery, which the answer has reached in
    /// time (`State::reopening`), and once more after it.
    ///
    /// A size that the answer tells holds only when this client has changed nothing since it asked, and keeps nothing back: data may
    /// still be here or on their way that were written through a handle which the MDT had forgotten.
    async fn take_open(
        &self,
        target: TargetId,
        entry: &Entry,
        open: OpenArgs,
        transno: Transno,
        changes_before: u64,
    ) {
        let is_lost = self.with(|state| {
            let epoch = state.connections.get(&target).map(|connection| connection.import.target_epoch());
            transno != Transno::ZERO && epoch.is_some_and(|epoch| transno.epoch() < epoch)
        });
        // Without attributes the inode is on another MDT, and was not opened.
        let Some(attr) = &entry.attr else { return };
        if open.write && !is_lost {
            self.with(|state| {
                let is_all_sent = !state.dirty.has_some_of(entry.fid);
                let node = state.nodes.get_or_new(entry.fid);
                if is_all_sent && node.data.changed_at <= changes_before {
                    node.data.note_write_open(attr.write_epoch, entry.was_size_known);
                }
            });
        }
        if is_lost {
            let fid = entry.fid;
            self.with(|state| state.reopening.insert(open.handle, (fid, open)));
            let request = Request::Mdt(MdtRequest::Reopen { fid, open });
            // An eviction in between takes it away again, and finds no handle yet that it could mark as lost. A file that is gone meanwhile
            // shows at its next use.
            while matches!(
                self.request(target, request.clone(), Bytes::new(), Kind::Modifying).await,
                Err(Status::Evicted)
            ) {}
            self.with(|state| state.reopening.remove(&open.handle));
        }
    }

    /// The same, whose answer describes an inode.
    pub(crate) async fn mdt_entry(&self, fid: Fid, request: MdtRequest, kind: Kind) -> Outcome<Entry> {
        match self.mdt(fid, request, kind).await? {
            MdtReply::Entry(entry) => Ok(*entry),
            _ => Err(Status::ProtocolError),
        }
    }

    /// A request in the name of a caller: sent without supplementary groups first, and again with them when they
    /// may matter.
    pub(crate) async fn mdt_as(
        &self,
        who: &Who,
        fid: Fid,
        kind: Kind,
        make: impl Fn(Credentials) -> MdtRequest,
    ) -> Outcome<MdtReply> {
        let creds = Credentials { uid: who.caller.uid, gid: who.caller.gid, groups: None };
        let first = self.mdt(fid, make(creds), kind).await;
        match first {
            Err(Status::AccessDenied | Status::NotPermitted) if who.caller.uid != 0 => {}
            _ => return first,
        }
        self.mdt_as_member(who, fid, kind, make).await
    }

    /// The same with supplementary groups at once, where the first answer would ask for them.
    ///
    /// Where they cannot be seen, the kernel's judgment counts: who came through to us by a group is in that of an inode of the call, and who did
    /// not came as one of all others.
    pub(crate) async fn mdt_as_member(
        &self,
        who: &Who,
        fid: Fid,
        kind: Kind,
        make: impl Fn(Credentials) -> MdtRequest,
    ) -> Outcome<MdtReply> {
        let (uid, gid) = (who.caller.uid, who.caller.gid);
        let ask = |groups| self.mdt(fid, make(Credentials { uid, gid, groups: Some(groups) }), kind);
        if let Some(groups) = self.groups(who).await {
            return ask(groups).await;
        }
        let judged = self.judged_groups(who).await;
        if !judged.is_empty() {
            match ask(judged).await {
                Err(Status::AccessDenied | Status::NotPermitted) => {}
                answer => return answer,
            }
        }
        ask(Vec::new()).await
    }

    /// The caller's supplementary groups, from the process around the machine; `None` where they cannot be seen.
    pub(crate) async fn groups(&self, who: &Who) -> Option<Vec<u32>> {
        let (sender, receiver) = oneshot();
        self.with(|state| {
            state.group_waiters.insert(who.id, sender);
            state.out.push(Output::NeedGroups { id: who.id, caller: who.caller });
        });
        receiver.await.unwrap_or_default()
    }

    /// Groups of the inodes that a call is about, and that it names. None of a call that it has not judged.
    pub(crate) async fn judged_groups(&self, who: &Who) -> Vec<u32> {
        let judged = self.with(|state| {
            let call = state.calls.get(&who.id).filter(|call| call.is_judged)?;
            let of_node = |node: &u64| {
                let node = state.nodes.get(*node)?;
                Some((node.fid(), node.attr().map(|attr| attr.gid)))
            };
            Some((call.holds.iter().filter_map(of_node).collect::<Vec<_>>(), call.named_gid))
        });
        let Some((inodes, named)) = judged else { return Vec::new() };
        let mut groups = Vec::new();
        for (fid, known) in inodes {
            groups.extend(match known {
                Some(gid) => Some(gid),
                // Forgotten while the call waited for its MDT.
                None => self.ask_gid(fid).await,
            });
        }
        groups.extend(named);
        groups
    }

    async fn ask_gid(&self, fid: Fid) -> Option<u32> {
        let request = MdtRequest::Getattr { fid, want: LockWant::default() };
        let entry = self.mdt_entry(fid, request, Kind::Plain).await.ok()?;
        entry.attr.map(|attr| attr.gid)
    }

    pub(crate) async fn ost(
        &self,
        target: TargetId,
        request: OstRequest,
        data: Bytes,
        kind: Kind,
    ) -> Outcome<OstAnswer> {
        if let Some(fid) = request.written_file() {
            self.with(|state| {
                let node = state.nodes.by_fid_mut(fid);
                if let Some(data) = node.and_then(|node| node.data.known_mut()) {
                    data.kept_since = None;
                }
            });
        }
        // What brings something that was kept back is looked after there.
        let changed = request.written_file().filter(|_| !request.is_of_kept());
        let is_write = matches!(request, OstRequest::Write { .. });
        self.with(|state| changed.iter().for_each(|fid| state.note_objects_change(*fid)));
        let answer = self.request(target, Request::Ost(request), data, kind).await;
        self.with(|state| changed.iter().for_each(|fid| state.note_objects_change(*fid)));
        let grant_bytes = match &answer {
            Ok(Answer { reply: Reply::Ost(OstReply::Written { grant_bytes, .. }), .. }) => Some(*grant_bytes),
            // What it has granted before is not there: from now on who writes is told.
            Err(Status::NoSpace) if is_write => Some(0),
            _ => None,
        };
        if let Some(grant_bytes) = grant_bytes {
            self.with(|state| {
                if let Some(connection) = state.connections.get_mut(&target) {
                    connection.grant_bytes = grant_bytes;
                }
            });
        }
        let answer = answer?;
        match answer.reply {
            Reply::Ost(reply) => Ok((Some(reply), answer.data, answer.transno)),
            Reply::Done => Ok((None, answer.data, answer.transno)),
            _ => Err(Status::ProtocolError),
        }
    }

    /// Tells the kernel to forget something; the future is what came of it.
    pub(crate) fn notify(&self, notify: Notify) -> Receiver<NotifyResult> {
        let (sender, receiver) = oneshot();
        self.with(|state| {
            let id = state.send_notify(notify);
            state.notify_waiters.insert(id, sender);
        });
        receiver
    }

    /// Waits until everything up to `transno` survives a crash of the target; `Evicted` when it is lost.
    pub(crate) async fn committed(&self, target: TargetId, transno: Transno) -> Outcome<()> {
        let receiver = self.with(|state| {
            let connection = state.connections.get_mut(&target)?;
            if connection.committed >= transno {
                return None;
            }
            let (sender, receiver) = oneshot();
            connection.commit_waiters.entry(transno).or_default().push(sender);
            Some(receiver)
        });
        match receiver {
            None => Ok(()),
            Some(receiver) => receiver.await.unwrap_or(Err(Status::Evicted)),
        }
    }

    pub(crate) fn sleep(&self, wait: Duration) -> Receiver<()> {
        self.with(|state| {
            let (sender, receiver) = oneshot();
            let time = state.now.time.after(wait);
            state.last_timer += 1;
            state.timers.insert((time, state.last_timer), sender);
            receiver
        })
    }
}

/// A striped directory, as an entry like any other.
fn striped(entry: Entry, stripes: Vec<Fid>) -> Outcome<MdtReply> {
    let is_each_other = stripes.iter().collect::<BTreeSet<_>>().len() == stripes.len();
    let has_mdts = stripes.iter().all(|stripe| stripe.mdt_index().is_some());
    let is_possible = is_each_other && has_mdts && stripes.len() <= DIRECTORY_STRIPES_MAX;
    if !is_possible || stripes.first() != Some(&entry.fid) {
        return Err(Status::ProtocolError);
    }
    Ok(MdtReply::Entry(Box::new(Entry { stripes, ..entry })))
}

/// The inodes that the answer to a change tells of.
fn changed_by(reply: &Reply) -> Vec<Fid> {
    match reply {
        Reply::Mdt(MdtReply::Entry(entry)) => vec![entry.fid],
        Reply::Mdt(MdtReply::Removed { child, replaced, .. }) => {
            child.iter().chain(replaced).map(|entry| entry.fid).collect()
        }
        _ => Vec::new(),
    }
}

/// What the request opens.
fn opened_by(request: &MdtRequest) -> Option<OpenArgs> {
    match request {
        MdtRequest::Open { open, .. } => Some(*open),
        MdtRequest::Create(create) => create.open,
        _ => None,
    }
}

/// A caller and its call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) id: u64,
    pub(crate) caller: crate::Caller,
}

pub(crate) fn mdt_of(fid: Fid) -> Outcome<TargetId> {
    fid.mdt_index().map(TargetId::mdt).ok_or(Status::Stale)
}

/// Whichever is ready first.
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Waits for the first of two; the other is dropped.
pub(crate) struct Race<A, B>(pub(crate) A, pub(crate) B);

impl<A: Future + Unpin, B: Future + Unpin> Future for Race<A, B> {
    type Output = First<A::Output, B::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(value) = Pin::new(&mut self.0).poll(context) {
            return Poll::Ready(First::Left(value));
        }
        if let Poll::Ready(value) = Pin::new(&mut self.1).poll(context) {
            return Poll::Ready(First::Right(value));
        }
        Poll::Pending
    }
}

/// Runs futures side by side; their results in their order.
pub(crate) async fn join_all<F: Future + Send>(futures: Vec<F>) -> Vec<F::Output> {
    type Slot<F> = (Pin<Box<F>>, Option<<F as Future>::Output>);
    let mut slots: Vec<Slot<F>> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(move |context| {
        let mut is_ready = true;
        for (future, value) in &mut slots {
            if value.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(done) => *value = Some(done),
                    Poll::Pending => is_ready = false,
                }
            }
        }
        if is_ready {
            Poll::Ready(slots.iter_mut().filter_map(|(_, value)| value.take()).collect())
        } else {
            Poll::Pending
        }
    })
    .await
}
