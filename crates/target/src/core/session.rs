//! Connect, disconnect, eviction.
//!
//! A session number is the epoch and a serial: the serial names the session for as long as the target knows the
//! client, over restarts; the whole number tells replies of one incarnation from those of another.

use super::begun::Begun;
use super::lineage::Met;
use super::once::Once;
use super::rows::{self, ClientRow, StateRow};
use super::{Core, CoreEvent, CoreOutput, During, EvictReason, Export, Gone, Held};
use base::fault::{Fault, planted};
use base::{ClientId, Endpoint, Epoch, Start, Status, Transno, Xid, limits};
use std::collections::BTreeMap;
use store::{Batch, MetaStore};
use wire::session::{SessionState, features};
use wire::{Callback, ConnectReply, ConnectRequest, Frame, FrameKind, Life, Reply, flags};

const SERIAL_BITS: u32 = 40;

/// Bytes of what operators call a client: a host name and a little.
const NID_BYTES_MAX: usize = 300;

pub(super) fn session_number(epoch: Epoch, serial: u64) -> u64 {
    (epoch.0 << SERIAL_BITS) | serial
}

pub(super) fn serial_of(session: u64) -> u64 {
    session & ((1 << SERIAL_BITS) - 1)
}

/// What is heard of starts is remembered, some of it for good.
fn is_believable(request: &ConnectRequest) -> bool {
    let mut epochs = request.starts.of_caller.iter().map(|start| start.epoch).chain([request.target_epoch]);
    epochs.all(|epoch| epoch <= Epoch::MAX)
}

impl<M: MetaStore> Core<M> {
    pub(super) fn state_row(&self) -> StateRow {
        StateRow {
            epoch: self.epoch,
            // After a lossless one nothing is replayed that was not executed by an incarnation since.
            is_recovering: self
                .recovery
                .as_ref()
                .is_some_and(|recovery| recovery.is_needed && !recovery.is_lossless),
            base: self.committed,
            next_serial: self.next_serial,
        }
    }

    pub(super) fn on_connect(&mut self, frame: &Frame, request: ConnectRequest, out: &mut Vec<CoreOutput>) {
        let refusal = if request.version < wire::VERSION_OLDEST || request.version_oldest > wire::VERSION {
            Some(Status::VersionMismatch)
        } else if (!self.options.fsname.is_empty() && request.fsname != self.options.fsname)
            || (request.target_uuid != 0 && request.target_uuid != self.options.uuid)
        {
            Some(Status::WrongTarget)
        } else if request.client != frame.src.client_id() || !is_believable(&request) {
            Some(Status::ProtocolError)
        } else {
            None
        };
        if let Some(status) = refusal {
            return self.answer_refusal(frame, status, out);
        }
        let Some(met) = self.compare_starts(frame, &request, out) else { return };
        if self.is_stood_in(request.client) {
            // It was given up, and comes after all; it asks again when what stands in for it is done.
            return;
        }
        let known = self.exports.get(&request.client);
        match known.map(|export| (export.session, export.incarnation)) {
            None => self.connect_new(frame, &request, out),
            Some((_, incarnation)) if request.incarnation < incarnation => {}
            Some((_, incarnation)) if request.incarnation > incarnation => {
                self.give_up(request.client, EvictReason::Restarted, out);
                // Else it waits until what stands in for the former one is done.
                if !self.exports.contains_key(&request.client) {
                    self.connect_new(frame, &request, out);
                }
            }
            // It has not heard of the session that we made for it, and so did nothing in it: the disk takes longer than it waits for an
            // answer, and who gave it another session each time would never be done. (A delayed copy of its connect looks the
            // same; its answer is ignored.)
            Some((session, _)) if request.session == 0 || self.is_replaced(&request) => {
                self.send_connected(frame, &request, session, SessionState::New, Transno::ZERO, out);
            }
            Some((session, _))
                if met == Met::AnotherCopy || serial_of(request.session) != serial_of(session) =>
            {
                self.drop_client(request.client, EvictReason::Restarted, out);
                self.connect_new(frame, &request, out);
            }
            Some((session, _)) => {
                let is_awaited =
                    self.exports.get(&request.client).is_some_and(|export| export.awaited.is_some());
                if is_awaited && self.is_drained() {
                    return self.held_frames.push(frame.clone());
                }
                if is_awaited && !self.restart_awaiting(request.client, frame.xid) {
                    return;
                }
                let state = if is_awaited { SessionState::Replay } else { SessionState::Resumed };
                self.send_connected(frame, &request, session, state, Transno::ZERO, out);
            }
        }
    }

    /// The client believes in the session before the one that it has.
    fn is_replaced(&self, request: &ConnectRequest) -> bool {
        let serial = serial_of(request.session);
        self.exports.get(&request.client).is_some_and(|export| serial != 0 && export.replaced == serial)
    }

    fn connect_new(&mut self, frame: &Frame, request: &ConnectRequest, out: &mut Vec<CoreOutput>) {
        let serial = self.next_serial;
        assert!(serial < 1 << SERIAL_BITS);
        self.next_serial += 1;
        let mut batch = Batch::new();
        let nid = shortened(&request.nid).to_owned();
        let row = ClientRow { incarnation: request.incarnation, serial, nid: nid.clone() };
        rows::put_client(&mut batch, request.client, &row);
        self.remembered.note_caller(request, &mut batch);
        rows::put_state(&mut batch, &self.state_row());
        let transno = match self.apply_internal(batch) {
            Ok(transno) => transno,
            Err(error) => return self.answer_refusal(frame, connect_status(error.status()), out),
        };
        let session = session_number(self.epoch, serial);
        let export = Export {
            session,
            replaced: serial_of(request.session),
            incarnation: request.incarnation,
            nid: nid.clone(),
            acked: Xid::ZERO,
            slots: BTreeMap::new(),
            begun: Begun::counted_in(&self.begun_bytes),
            once: Once::default(),
            last_contact: self.now.time,
            has_spoken: false,
            features: 0,
            has_checked_data: true,
            awaited: None,
            is_connect_held: false,
        };
        if let Some(before) = self.exports.insert(request.client, export) {
            self.unspoken.remove(&(serial_of(before.session), request.client));
        }
        self.unspoken.insert((serial, request.client));
        out.push(CoreOutput::Event(CoreEvent::Connected { client: request.client, nid }));
        self.send_connected(frame, request, session, SessionState::New, transno, out);
        self.drop_unspoken(out);
    }

    /// Of sessions that nobody has used yet the last ones stay, so that who asks for very many keeps nobody out.
    fn drop_unspoken(&mut self, out: &mut Vec<CoreOutput>) {
        while self.unspoken.len() > limits::UNSPOKEN_SESSIONS_MAX
            && let Some((_, client)) = self.unspoken.pop_first()
        {
            self.drop_client(client, EvictReason::Silent, out);
        }
    }

    /// Answers when the row of the client is durable: otherwise a restart could forget a client that has been told
    /// that it is known. Names what both ends can do: the lower version, and the features of both.
    fn send_connected(
        &mut self,
        request_frame: &Frame,
        request: &ConnectRequest,
        session: u64,
        state: SessionState,
        after: Transno,
        out: &mut Vec<CoreOutput>,
    ) {
        let client = request.client;
        let offered = self.features();
        self.note_change(client);
        let Some(export) = self.exports.get_mut(&client) else { return };
        export.last_contact = self.now.time;
        export.features = offered & request.features;
        if let Some(awaited) = &mut export.awaited {
            awaited.lists = features::has_manifests(export.features);
        }
        if export.is_connect_held {
            return;
        }
        let is_held = after > self.store.durable();
        export.is_connect_held = is_held;
        let reply = Reply::Connected(ConnectReply {
            version: wire::VERSION.min(request.version),
            features: export.features,
            session,
            state,
            target_epoch: self.epoch,
            target_uuid: self.options.uuid,
            slot_count: limits::SLOT_COUNT,
            server_time_ns: self.now.wall.0,
            lease_ms: limits::SESSION_LEASE.as_millis() as u32,
            software: wire::SOFTWARE.to_owned(),
            started_at: self.remembered.own.last().at,
        });
        let mut frame = self.reply_frame(client, session, request_frame.xid, request_frame.trace);
        let known = Start { epoch: request.target_epoch, at: request.starts.target_at };
        if self.remembered.is_own(known) {
            frame.transno = self.survived(known.epoch);
        }
        if is_held {
            let held = self.held(client, frame, reply);
            self.held_for_rows.entry(after).or_default().push(held);
            self.kick();
        } else {
            frame.body = reply.to_bytes();
            out.push(CoreOutput::Send(frame));
        }
    }

    pub(super) fn on_disconnect(&mut self, frame: &Frame, out: &mut Vec<CoreOutput>) {
        let client = frame.src.client_id();
        let Some(export) = self.exports.get(&client) else { return };
        let reply = self.reply_frame(client, export.session, frame.xid, frame.trace);
        let Some(transno) = self.forget_client(client, None, out) else { return };
        out.push(CoreOutput::Event(CoreEvent::Disconnected { client }));
        let held = self.held(client, reply, Reply::Done);
        self.held_for_all.entry(transno).or_default().push(held);
        self.kick();
    }

    fn held(&self, client: ClientId, frame: Frame, reply: Reply) -> Held {
        Held::Session { client, since: self.now.time, frame: Box::new(frame), reply: Box::new(reply) }
    }

    /// Ends a session against the client's will and tells it.
    pub(super) fn drop_client(&mut self, client: ClientId, why: EvictReason, out: &mut Vec<CoreOutput>) {
        let Some(export) = self.exports.get(&client) else { return };
        let session = export.session;
        let mut frame = Frame::new(FrameKind::Callback, Endpoint::Target(self.options.id), client.endpoint());
        frame.session = session;
        frame.body = Callback::Evicted { session }.to_bytes();
        if self.forget_client(client, Some(why), out).is_some() {
            out.push(CoreOutput::Send(frame));
            out.push(CoreOutput::Event(CoreEvent::Evicted { client, why }));
        }
    }

    /// Takes out the rows first; `None` when the store takes nothing, and then the client stays.
    fn forget_client(
        &mut self,
        client: ClientId,
        why: Option<EvictReason>,
        out: &mut Vec<CoreOutput>,
    ) -> Option<Transno> {
        let export = self.exports.get(&client)?;
        let life = Life { client, incarnation: export.incarnation };
        let during = match (self.is_recovering(), self.is_lossless()) {
            (false, _) => During::Service,
            (true, true) => During::LosslessRecovery,
            (true, false) => During::Recovery,
        };
        let gone = Gone { life, why, during, epoch: self.epoch, heard_at: export.last_contact };
        let mut batch = Batch::new();
        let slots = export.slots.keys().copied().filter(|_| !planted(Fault::AnswersKept));
        rows::delete_client(&mut batch, client, slots);
        (self.options.owed)(&gone, &mut batch);
        let transno = self.apply_internal(batch).ok()?;
        if let Some(export) = self.exports.remove(&client) {
            self.unspoken.remove(&(serial_of(export.session), client));
        }
        self.note_change(client);
        self.forget_replays_of(client);
        out.push(CoreOutput::Evicted(gone));
        Some(transno)
    }

    pub(super) fn evict_silent(&mut self, out: &mut Vec<CoreOutput>) {
        if self.now.time < self.next_silence_check {
            return;
        }
        self.next_silence_check = self.now.time.after(self.silent_max / 8);
        let is_silent = |export: &Export| {
            export.awaited.is_none() && self.now.time.since(export.last_contact) >= self.silent_max
        };
        let silent = self.exports.iter().filter(|(_, export)| is_silent(export));
        let silent: Vec<ClientId> = silent.map(|(client, _)| *client).collect();
        for client in silent {
            self.drop_client(client, EvictReason::Silent, out);
        }
    }

    /// A reply frame with the header filled in.
    pub(super) fn reply_frame(&self, client: ClientId, session: u64, xid: Xid, trace: u64) -> Frame {
        let mut frame = Frame::new(FrameKind::Reply, Endpoint::Target(self.options.id), client.endpoint());
        frame.session = session;
        frame.xid = xid;
        frame.trace = trace;
        frame.last_committed = self.committed;
        if self.recovery.is_some() {
            frame.flags |= flags::RECOVERING;
        }
        if self.exports.get(&client).is_some_and(|export| !export.has_checked_data) {
            frame.flags |= flags::UNCHECKED_DATA;
        }
        frame
    }

    /// An answer without a session: refused, or not known.
    pub(super) fn answer_refusal(&self, request: &Frame, status: Status, out: &mut Vec<CoreOutput>) {
        let mut frame =
            self.reply_frame(request.src.client_id(), request.session, request.xid, request.trace);
        frame.last_committed = Transno::ZERO;
        frame.status = status;
        out.push(CoreOutput::Send(frame));
    }
}

fn shortened(nid: &str) -> &str {
    let end = (0..=NID_BYTES_MAX).rev().find(|end| nid.is_char_boundary(*end));
    if nid.len() <= NID_BYTES_MAX { nid } else { end.and_then(|end| nid.get(..end)).unwrap_or_default() }
}

/// A store that takes no row now may take it later: the client goes on asking.
fn connect_status(status: Status) -> Status {
    match status {
        Status::NoSpace | Status::Io => Status::Again,
        other => other,
    }
}
