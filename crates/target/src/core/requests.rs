//! Requests of clients: each modifying one is executed once, whatever the network does.

use super::once::is_once;
use super::session::serial_of;
use super::{Core, CoreEvent, CoreOutput, Slot, SlotState, Token, Work};
use base::fault::{Fault, planted};
use base::{ClientId, Endpoint, Status, StatusClass, Transno, limits};
use bytes::Bytes;
use store::MetaStore;
use wire::mdt::{Access, FlockKind};
use wire::{Frame, LockRequest, MdtRequest, OstRequest, PeerRequest, Reply, Request, WireError, flags};

/// A longer answer to who has changed nothing is not kept for who asks again.
const READ_BYTES_KEPT_MAX: usize = 64 << 10;

impl<M: MetaStore> Core<M> {
    pub(super) fn on_request(&mut self, frame: Frame, out: &mut Vec<CoreOutput>) {
        let client = frame.src.client_id();
        let request = match Request::from_bytes(&frame.body) {
            Ok(Request::Connect(connect)) => return self.on_connect(&frame, connect, out),
            Ok(request) => Ok(request),
            Err(WireError::UnknownOpcode(opcode)) => Err(opcode),
            Err(_) => {
                let what = "a request cannot be read";
                out.push(CoreOutput::Event(CoreEvent::ProtocolError { client, what }));
                return self.answer_refusal(&frame, Status::ProtocolError, out);
            }
        };
        let now = self.now.time;
        let Some(export) = self.exports.get_mut(&client).filter(|export| export.session == frame.session)
        else {
            return self.answer_refusal(&frame, Status::NotConnected, out);
        };
        export.last_contact = now;
        if !std::mem::replace(&mut export.has_spoken, true) {
            self.unspoken.remove(&(serial_of(export.session), client));
        }
        export.has_checked_data = frame.flags & flags::UNCHECKED_DATA == 0;
        export.acked = export.acked.max(frame.acked);
        export.once.forget_up_to(export.acked);
        if frame.flags & flags::ASK != 0 {
            return self.on_question(&frame, out);
        }
        let request = match request {
            Ok(request) => request,
            Err(opcode) => {
                // The answer alone: whatever it is, it has changed nothing, and the session goes on.
                out.push(CoreOutput::Event(CoreEvent::UnknownRequest { client, opcode }));
                if frame.flags & flags::REPLAY != 0 && export.awaited.is_some() {
                    return self.on_replay(frame, Err(Status::NotSupported), out);
                }
                return self.answer_refusal(&frame, Status::NotSupported, out);
            }
        };
        let is_of_recovery = frame.flags & flags::REPLAY != 0 || matches!(request, Request::ReplayDone);
        let acked = export.acked;
        if !is_of_recovery && export.awaited.is_some() {
            // It never heard of its session before this incarnation, and has nothing to replay. (Or it is a target, which has said that
            // it is done.)
            self.end_awaiting(client, out);
            self.try_serve(out);
        }
        if let Request::Ping { accesses } = request {
            note_accesses(client, accesses, out);
            return self.answer_with_time(&frame, out);
        }
        if matches!(request, Request::ReplayDone) {
            return self.on_replay_done(frame, out);
        }
        if let Request::Manifest(manifest) = request {
            return self.on_manifest(&frame, manifest, out);
        }
        if frame.flags & flags::REPLAY != 0 {
            return self.on_replay(frame, Ok(request), out);
        }
        // Another target's questions may decide whether a replay can go on, here or there.
        let is_held =
            !self.is_serving() || self.recovery.is_some() && matches!(request, Request::Disconnect { .. });
        if is_held && !matches!(request, Request::Peer(_)) {
            return self.held_frames.push(frame);
        }
        if frame.xid <= acked && !planted(Fault::DuplicateExecuted) {
            return;
        }
        if let Request::Disconnect { accesses } = request {
            note_accesses(client, accesses, out);
            return self.on_disconnect(&frame, out);
        }
        if frame.slot == Frame::NO_SLOT {
            self.start_plain(&frame, request, None, out);
        } else {
            self.start_modifying(&frame, request, None, out);
        }
    }

    /// Runs a request that may be executed again, unless it runs already.
    pub(super) fn start_plain(
        &mut self,
        frame: &Frame,
        request: Request,
        replay: Option<Transno>,
        out: &mut Vec<CoreOutput>,
    ) {
        let client = frame.src.client_id();
        let Some(export) = self.exports.get_mut(&client) else { return };
        if export.begun.plain.contains(frame.xid) {
            return;
        }
        match export.once.answer_of(frame.xid).filter(|_| !planted(Fault::DuplicateExecuted)) {
            Some(Status::Ok) => return self.answer_done(frame, out),
            Some(refused) => return self.answer_refusal(frame, refused, out),
            None => {}
        }
        let byte_count = kept_bytes(frame, &request);
        let begun_count = export.begun.plain.len();
        let has_room = begun_count < limits::REQUESTS_PER_EXPORT_MAX
            && (replay.is_some() || export.begun.has_room(byte_count));
        if !has_room && !is_reserved(&request, byte_count, begun_count) {
            return self.answer_refusal(frame, Status::Again, out);
        }
        if is_once(&request) {
            export.once.begin(frame.xid);
        }
        export.begun.plain.insert(frame.xid, byte_count);
        self.request_counts.add(&request);
        out.push(execute(frame, request, replay));
    }

    /// Runs a request with a slot, or answers as it was answered.
    pub(super) fn start_modifying(
        &mut self,
        frame: &Frame,
        request: Request,
        replay: Option<Transno>,
        out: &mut Vec<CoreOutput>,
    ) {
        let client = frame.src.client_id();
        if frame.slot >= limits::SLOT_COUNT + limits::DATA_SLOT_COUNT {
            let what = "a request names a slot that does not exist";
            out.push(CoreOutput::Event(CoreEvent::ProtocolError { client, what }));
            return self.answer_refusal(frame, Status::ProtocolError, out);
        }
        let Some(export) = self.exports.get_mut(&client) else { return };
        if let Some(slot) = export.slots.get(&frame.slot)
            && !planted(Fault::DuplicateExecuted)
        {
            if frame.xid < slot.xid {
                return;
            }
            if frame.xid == slot.xid {
                match &slot.state {
                    SlotState::InProgress => return,
                    SlotState::Refused => {}
                    SlotState::Done { .. } => return self.answer_again(frame, out),
                }
            }
        }
        let byte_count = kept_bytes(frame, &request);
        let has_room = export.begun.in_slots.len() < limits::REQUESTS_PER_EXPORT_MAX
            && export.begun.has_room(byte_count);
        if replay.is_none() && !has_room {
            return self.answer_refusal(frame, Status::Again, out);
        }
        export.begun.in_slots.insert(frame.xid, byte_count);
        export.slots.insert(frame.slot, Slot { xid: frame.xid, state: SlotState::InProgress });
        self.request_counts.add(&request);
        out.push(execute(frame, request, replay));
    }

    /// A client that comes back asks what has become of a request that it has no answer to.
    fn on_question(&self, frame: &Frame, out: &mut Vec<CoreOutput>) {
        let export = self.exports.get(&frame.src.client_id());
        let slot = export.and_then(|export| export.slots.get(&frame.slot));
        match slot {
            Some(Slot { xid, state: SlotState::Done { .. } }) if *xid == frame.xid => {
                self.answer_again(frame, out);
            }
            _ => self.answer_refusal(frame, Status::Again, out),
        }
    }

    /// The request was executed before, and is answered as it was then.
    fn answer_again(&self, frame: &Frame, out: &mut Vec<CoreOutput>) {
        let client = frame.src.client_id();
        let slot = self.exports.get(&client).and_then(|export| export.slots.get(&frame.slot));
        let Some(SlotState::Done { status, transno, body, data }) = slot.map(|slot| &slot.state) else {
            return;
        };
        let mut reply = self.reply_frame(client, frame.session, frame.xid, frame.trace);
        reply.status = *status;
        reply.transno = *transno;
        reply.body = body.clone();
        reply.data = data.clone();
        out.push(CoreOutput::Send(reply));
    }

    /// Ends a piece of work: remembers the answer and sends it. Nothing happens when its session is gone.
    pub(super) fn finish(
        &mut self,
        token: Token,
        mut status: Status,
        transno: Transno,
        mut body: Bytes,
        mut data: Bytes,
        out: &mut Vec<CoreOutput>,
    ) {
        if body.len() > limits::FRAME_BODY_BYTES_MAX {
            // What changes something has its answer in a row, and those are shorter: nothing has happened.
            let (client, what) = (token.client, "the answer to a request is longer than a frame");
            out.push(CoreOutput::Event(CoreEvent::ProtocolError { client, what }));
            (status, body, data) = (Status::Overflow, Bytes::new(), Bytes::new());
        }
        let export = self.exports.get_mut(&token.client);
        let Some(export) = export.filter(|export| export.session == token.session) else { return };
        let is_refusal = status.class() == StatusClass::Retry;
        let is_new = token.replay.is_none() && matches!(token.client.endpoint(), Endpoint::Client(_));
        self.last_recovery.early_count += u64::from(self.recovery.is_some() && is_new && !is_refusal);
        if token.slot == Frame::NO_SLOT {
            export.begun.plain.remove(token.xid);
            export.once.end(token.xid, status);
        } else {
            export.begun.in_slots.remove(token.xid);
        }
        // What has only been read is read again, if that is asked again. (An open that found its file brings little.)
        let is_only_read = transno == Transno::ZERO && data.len() > READ_BYTES_KEPT_MAX;
        if let Some(slot) = export.slots.get_mut(&token.slot).filter(|slot| slot.xid == token.xid) {
            let is_forgotten = planted(Fault::ReplySlotForgotten);
            slot.state = if is_refusal || is_only_read || is_forgotten {
                SlotState::Refused
            } else {
                SlotState::Done { status, transno, body: body.clone(), data: data.clone() }
            };
        }
        let mut frame = self.reply_frame(token.client, token.session, token.xid, token.trace);
        frame.status = status;
        frame.transno = transno;
        frame.body = body;
        frame.data = data;
        out.push(CoreOutput::Send(frame));
        if token.replay.is_some() {
            self.on_replay_finished(token, status, out);
        }
    }

    pub(super) fn answer_done(&self, request: &Frame, out: &mut Vec<CoreOutput>) {
        self.answer_as(request, Reply::Done.to_bytes(), out);
    }

    /// The same, and what time it is.
    fn answer_with_time(&self, request: &Frame, out: &mut Vec<CoreOutput>) {
        self.answer_as(request, wire::clock::done_at(self.now.wall), out);
    }

    fn answer_as(&self, request: &Frame, body: Bytes, out: &mut Vec<CoreOutput>) {
        let mut frame =
            self.reply_frame(request.src.client_id(), request.session, request.xid, request.trace);
        frame.body = body;
        out.push(CoreOutput::Send(frame));
    }
}

/// What a close has that is begun although its client has no room: no data, and a short list of locks.
const RESERVED_CLOSE_BYTES_MAX: usize = 4 << 10;

/// So many requests of one MDT are begun together.
const RESERVED_PEER_REQUESTS_MAX: usize = 8 * limits::REQUESTS_PER_EXPORT_MAX;

/// Releases are never refused: what fills the export may wait for them. A close may wait itself, and keeps what it has brought.
///
/// Of what another MDT asks only those are refused who queue for the rename lock: who has it must get on with all that he asks before he
/// gives it back, and so must whoever has prepared something. These are few: of the calls that the other MDT has taken most wait for that
/// lock or for rows of its own. Somebody who sends them without end is refused all the same.
fn is_reserved(request: &Request, byte_count: usize, begun_count: usize) -> bool {
    match request {
        Request::Lock(LockRequest::Cancel { .. }) => true,
        Request::Mdt(MdtRequest::Close { .. }) => byte_count <= RESERVED_CLOSE_BYTES_MAX,
        Request::Mdt(MdtRequest::Closes { .. } | MdtRequest::FlockCancel { .. }) => true,
        Request::Mdt(MdtRequest::Flock { lock, .. }) => lock.kind == FlockKind::Unlock,
        Request::Peer(PeerRequest::LockRename { .. }) => false,
        Request::Peer(_) => begun_count < RESERVED_PEER_REQUESTS_MAX,
        _ => false,
    }
}

/// Whether the data of its frame are a part of a request. Those of others are not kept while it waits.
fn has_data(request: &Request) -> bool {
    matches!(
        request,
        Request::Ost(OstRequest::Write { .. }) | Request::Mdt(MdtRequest::Close { data: Some(_), .. })
    )
}

/// What a request keeps while it waits. (A write to an object never does: it is refused or done.) Bytes of a body that nobody understands
/// are not kept: counted, they would keep out others at no cost.
fn kept_bytes(frame: &Frame, request: &Request) -> usize {
    // As long as this it is not worth looking.
    const SHORT_BYTES: usize = 4 << 10;
    let body_bytes = match frame.body.len() {
        short @ ..=SHORT_BYTES => short,
        long => borsh::object_length(request).unwrap_or(long).min(long),
    };
    match request {
        Request::Ost(OstRequest::Write { .. }) => 0,
        _ if has_data(request) => body_bytes + frame.data.len(),
        _ => body_bytes,
    }
}

/// Data of a request that may wait are taken out of what was read together with them.
fn data_of(frame: &Frame, request: &Request) -> Bytes {
    match request {
        Request::Ost(OstRequest::Write { .. }) => frame.data.clone(),
        _ if has_data(request) => frame.detached().data,
        _ => Bytes::new(),
    }
}

fn execute(frame: &Frame, request: Request, replay: Option<Transno>) -> CoreOutput {
    let token = Token {
        client: frame.src.client_id(),
        session: frame.session,
        xid: frame.xid,
        slot: frame.slot,
        trace: frame.trace,
        replay,
        is_unawaited: frame.flags & flags::UNAWAITED != 0,
    };
    let data = data_of(frame, &request);
    CoreOutput::Execute(Box::new(Work { token, request, data }))
}

/// What a client has read lately, which waits for nothing and is answered by nothing.
fn note_accesses(client: ClientId, accesses: Vec<Access>, out: &mut Vec<CoreOutput>) {
    if !accesses.is_empty() {
        out.push(CoreOutput::Accessed { client, accesses });
    }
}
