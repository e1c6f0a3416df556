//! What clients say before they replay, and their replays as they come.
//!
//! One that names what its replays touch has them executed beside those of others (`order`). One that cannot has them executed in order
//! with all others, as if they touched everything.

use super::recovery::{Awaited, Queued};
use super::{Core, CoreOutput};
use base::{ClientId, Status, Transno, limits};
use store::MetaStore;
use wire::manifest::{ENTRIES_MAX, Replayed, TOUCHED_MAX, Touched};
use wire::session::features;
use wire::{Frame, Manifest, Request};

const SLOTS: u16 = limits::SLOT_COUNT + limits::DATA_SLOT_COUNT;

/// What a client retains at most: more goes on only to what was on its way when it stopped.
const LISTED_MAX: usize = limits::REPLAY_REQUESTS_MAX + SLOTS as usize;

fn is_sound(manifest: &Manifest) -> bool {
    let numbers = manifest.entries.iter().map(|replayed| replayed.transno);
    let is_rising = std::iter::once(manifest.after).chain(numbers).is_sorted_by(|a, b| a < b);
    let is_possible =
        |replayed: &Replayed| replayed.slot < SLOTS && replayed.touched.fids.len() <= TOUCHED_MAX;
    is_rising && manifest.entries.len() <= ENTRIES_MAX && manifest.entries.iter().all(is_possible)
}

impl<M: MetaStore> Core<M> {
    /// What this target offers. (Objects on OSTs are recovered in one order.)
    pub(super) fn features(&self) -> u64 {
        if self.options.has_external_data { features::ALL & !features::MANIFESTS } else { features::ALL }
    }

    pub(super) fn on_manifest(&mut self, frame: &Frame, manifest: Manifest, out: &mut Vec<CoreOutput>) {
        let client = frame.src.client_id();
        let Some(recovery) = &mut self.recovery else { return self.answer_done(frame, out) };
        if recovery.is_lossless && !manifest.entries.is_empty() {
            // It was told that all is committed.
            return self.answer_refusal(frame, Status::ProtocolError, out);
        }
        let awaited = self.exports.get_mut(&client).and_then(|export| export.awaited.as_mut());
        let Some(awaited) = awaited.filter(|awaited| !awaited.has_replayed()) else {
            return self.answer_done(frame, out);
        };
        if awaited.is_stood_in || manifest.after > awaited.listed_to {
            // Given up; or a part is missing, after which this one comes again.
            return;
        }
        let new_count = manifest.entries.iter().filter(|entry| entry.transno > awaited.listed_to).count();
        let is_too_late = awaited.is_listed && new_count > 0;
        let is_too_much = awaited.listed_count + new_count > LISTED_MAX;
        if !is_sound(&manifest) || is_too_late || is_too_much || !awaited.lists {
            return self.answer_refusal(frame, Status::ProtocolError, out);
        }
        let mut wrong = Vec::new();
        for Replayed { transno, slot, touched } in manifest.entries {
            if transno <= awaited.listed_to {
                continue;
            }
            awaited.listed_to = transno;
            awaited.listed_count += 1;
            recovery.order.list((transno, client), slot, &touched);
            match awaited.queue.get(&transno).map(|queued| queued.frame.slot) {
                Some(used) if used != slot => wrong.push(transno),
                Some(_) => recovery.order.note_come((transno, client)),
                None => {}
            }
        }
        if manifest.is_last {
            awaited.is_listed = true;
            let is_unlisted = |transno: &Transno| recovery.order.slot_of((*transno, client)).is_none();
            wrong.extend(awaited.queue.keys().copied().filter(is_unlisted));
        }
        let wrong: Vec<Queued> = wrong.iter().filter_map(|transno| awaited.queue.remove(transno)).collect();
        for queued in wrong {
            self.answer_refusal(&queued.frame, Status::ProtocolError, out);
        }
        self.answer_done(frame, out);
    }

    /// A replay of a client that lists them.
    pub(super) fn on_listed_replay(&mut self, frame: Frame, request: Request, out: &mut Vec<CoreOutput>) {
        let place = (frame.transno, frame.src.client_id());
        let Some(recovery) = &mut self.recovery else { return };
        let awaited = self.exports.get_mut(&place.1).and_then(|export| export.awaited.as_mut());
        let Some(awaited) = awaited else { return };
        if let Some(status) = awaited.executed.get(&frame.transno).copied() {
            return match status {
                Status::Ok => self.answer_done(&frame, out),
                refused => self.answer_refusal(&frame, refused, out),
            };
        }
        if recovery.order.has_started(place) {
            return;
        }
        match recovery.order.slot_of(place) {
            Some(slot) if slot == frame.slot => {
                awaited.queue.insert(frame.transno, Queued { frame, request });
                recovery.order.note_come(place);
            }
            // The manifest may come later.
            None if !awaited.is_listed && awaited.queue.len() < LISTED_MAX => {
                awaited.queue.insert(frame.transno, Queued { frame, request });
            }
            _ => self.answer_refusal(&frame, Status::ProtocolError, out),
        }
    }

    /// The next replay of a client that does not list them, if it has come, has its place among all.
    pub(super) fn list_next_of(&mut self, client: ClientId) {
        let Some(recovery) = &mut self.recovery else { return };
        let awaited = self.exports.get(&client).and_then(|export| export.awaited.as_ref());
        let Some(awaited) = awaited.filter(|awaited| !awaited.lists && !awaited.is_stood_in) else { return };
        if let Some((transno, queued)) = awaited.next() {
            let place = (transno, client);
            recovery.order.list(place, queued.frame.slot, &Touched::everything());
            recovery.order.note_come(place);
        }
    }

    /// What another target has kept of a client that is gone takes the place of what it would have replayed.
    pub(super) fn list_stood_in(&mut self, client: ClientId) {
        let Some(recovery) = &mut self.recovery else { return };
        recovery.order.forget_unstarted(client);
        let awaited = self.exports.get(&client).and_then(|export| export.awaited.as_ref());
        for (transno, queued) in awaited.iter().flat_map(|awaited| &awaited.queue) {
            let place = (*transno, client);
            recovery.order.list(place, queued.frame.slot, &Touched::by(&queued.request, false));
            recovery.order.note_come(place);
        }
    }

    /// A client does not replay what it has not replayed by now.
    pub(super) fn stop_listing(&mut self, client: ClientId) {
        if let Some(recovery) = &mut self.recovery {
            recovery.order.forget_missing(client);
        }
    }

    /// A client is waited for no longer.
    pub(super) fn forget_replays_of(&mut self, client: ClientId) {
        if let Some(recovery) = &mut self.recovery {
            recovery.order.forget(client);
        }
    }
}

impl Awaited {
    /// It has nothing more to replay but what it has open and locked.
    pub(super) fn has_replayed(&self) -> bool {
        self.is_replayed || self.done.is_some()
    }
}
