//! What clients say before they replay, and their replays as they come.
//!
//! One that names what its replays touch has them executed beside those of others (`order`). One that cannot has them executed in order
//! with all others, as if they touched everything; and so has one for whose list there is no room beside those of the others.
//!
//! A replay is compared with what its client had said of it. By the time it comes, what it did not name may have been changed by later
//! ones, so it cannot be given another place: it is refused.

use super::order::{Order, Place};
use super::queue::Queued;
use super::recovery::Awaited;
use super::{Core, CoreEvent, CoreOutput};
use base::{ClientId, Status, Transno, limits};
use store::MetaStore;
use wire::manifest::{ENTRIES_MAX, Replayed, TOUCHED_MAX, Touched};
use wire::session::features;
use wire::{Frame, Manifest};

pub(super) const SLOTS: u16 = limits::SLOT_COUNT + limits::DATA_SLOT_COUNT;

/// What a client retains at most: more goes on only to what was on its way when it stopped.
pub(super) const LISTED_MAX: usize = limits::REPLAY_REQUESTS_MAX + SLOTS as usize;

/// Each replay names its FIDs, its slot and whether it moves something, and counts itself. Whatever the first client says has room.
const _: () = assert!(LISTED_MAX * (TOUCHED_MAX + 3) <= limits::LISTED_OBJECTS_MAX);

fn is_sound(manifest: &Manifest) -> bool {
    let numbers = manifest.entries.iter().map(|replayed| replayed.transno);
    let is_rising = std::iter::once(manifest.after).chain(numbers).is_sorted_by(|a, b| a < b);
    let is_possible =
        |replayed: &Replayed| replayed.slot < SLOTS && replayed.touched.fids.len() <= TOUCHED_MAX;
    is_rising && manifest.entries.len() <= ENTRIES_MAX && manifest.entries.iter().all(is_possible)
}

/// Whether a replay is what its manifest said. Only its client knows whether the first answer described what was taken away: that is
/// believed.
fn is_as_listed(order: &Order, place: Place, replay: &Queued) -> bool {
    let touched = replay.request.as_ref().map(|request| Touched::by(request, true));
    // One that is not known here changes nothing.
    order.covers(place, replay.frame.slot, &touched.unwrap_or_default())
}

impl<M: MetaStore> Core<M> {
    /// What this target offers.
    pub(super) fn features(&self) -> u64 {
        let of_others =
            if self.options.has_external_data { features::MANIFESTS } else { features::OBJECT_MANIFESTS };
        features::ALL & !of_others
    }

    pub(super) fn on_manifest(&mut self, frame: &Frame, manifest: Manifest, out: &mut Vec<CoreOutput>) {
        let client = frame.src.client_id();
        self.note_change(client);
        let Some(recovery) = &mut self.recovery else { return self.answer_done(frame, out) };
        if recovery.is_lossless && !manifest.entries.is_empty() {
            // It was told that all is committed.
            return self.answer_refusal(frame, Status::ProtocolError, out);
        }
        let awaited = self.exports.get_mut(&client).and_then(|export| export.awaited.as_mut());
        let Some(awaited) = awaited.filter(|awaited| !awaited.has_replayed()) else {
            return self.answer_done(frame, out);
        };
        if awaited.has_no_room {
            return self.answer_done(frame, out);
        }
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
        let new = manifest.entries.into_iter().filter(|entry| entry.transno > awaited.listed_to);
        let new: Vec<Replayed> = new.collect();
        let taken: usize = new.iter().map(|entry| Order::count_of(&entry.touched)).sum();
        // What was listed before has its room, however often it is said: it may have begun to be executed.
        if taken > 0 && recovery.order.object_count() + taken > limits::LISTED_OBJECTS_MAX {
            self.forget_list(client, out);
            return self.answer_done(frame, out);
        }
        let mut wrong = Vec::new();
        for Replayed { transno, slot, touched } in new {
            awaited.listed_to = transno;
            awaited.listed_count += 1;
            let place = (transno, client);
            recovery.order.list(place, slot, &touched);
            match awaited.queue.get(transno).map(|queued| is_as_listed(&recovery.order, place, queued)) {
                Some(true) => recovery.order.note_come(place),
                Some(false) => wrong.push(transno),
                None => {}
            }
        }
        if manifest.is_last {
            awaited.is_listed = true;
            let is_unlisted = |transno: &Transno| !recovery.order.is_listed((*transno, client));
            wrong.extend(awaited.queue.iter().map(|(transno, _)| transno).filter(is_unlisted));
        }
        let wrong: Vec<Queued> = wrong.iter().filter_map(|transno| awaited.queue.remove(*transno)).collect();
        for queued in wrong {
            self.refuse_replay(&queued.frame, out);
        }
        self.answer_done(frame, out);
    }

    /// There is no room for what this client replays. It goes on as one that does not say it: nothing has been executed yet, since it
    /// was not known of this client what it replays, and of what is next nothing behind it is.
    fn forget_list(&mut self, client: ClientId, out: &mut Vec<CoreOutput>) {
        let awaited = self.exports.get_mut(&client).and_then(|export| export.awaited.as_mut());
        let (Some(awaited), Some(recovery)) = (awaited, &mut self.recovery) else { return };
        awaited.has_no_room = true;
        recovery.order.forget_unstarted(client);
        self.last_recovery.unlisted_count += 1;
        out.push(CoreOutput::Event(CoreEvent::ManifestForgotten { client }));
        self.list_next_of(client);
    }

    /// A replay that is not what its client had said, or that it had not named. It is told the same if it asks again, and nothing waits
    /// for it.
    fn refuse_replay(&mut self, frame: &Frame, out: &mut Vec<CoreOutput>) {
        let (transno, client) = (frame.transno, frame.src.client_id());
        self.note_change(client);
        let awaited = self.exports.get_mut(&client).and_then(|export| export.awaited.as_mut());
        if let (Some(awaited), Some(recovery)) = (awaited, &mut self.recovery)
            && recovery.order.is_listed((transno, client))
        {
            awaited.executed.insert(transno, Status::ProtocolError);
            recovery.order.remove((transno, client));
        }
        self.last_recovery.refused_count += 1;
        let status = Status::ProtocolError;
        out.push(CoreOutput::Event(CoreEvent::ReplayRefused { client, transno, status }));
        let what = "a replay is not what its manifest says";
        out.push(CoreOutput::Event(CoreEvent::ProtocolError { client, what }));
        self.answer_refusal(frame, status, out);
    }

    /// A replay of a client that lists them.
    pub(super) fn on_listed_replay(&mut self, replay: Queued, out: &mut Vec<CoreOutput>) {
        let place = (replay.frame.transno, replay.frame.src.client_id());
        let Some(recovery) = &mut self.recovery else { return };
        let awaited = self.exports.get_mut(&place.1).and_then(|export| export.awaited.as_mut());
        let Some(awaited) = awaited else { return };
        // The manifest may come later.
        let is_early = !awaited.is_listed && !recovery.order.is_listed(place) && replay.frame.slot < SLOTS;
        if is_early {
            awaited.queue.insert(replay);
        } else if is_as_listed(&recovery.order, place, &replay) {
            awaited.queue.insert(replay);
            recovery.order.note_come(place);
        } else {
            return self.refuse_replay(&replay.frame, out);
        }
        self.drop_excess(place.1);
    }

    /// Replays for which there is no room come again.
    pub(super) fn drop_excess(&mut self, client: ClientId) {
        let awaited = self.exports.get_mut(&client).and_then(|export| export.awaited.as_mut());
        let (Some(awaited), Some(recovery)) = (awaited, &mut self.recovery) else { return };
        while let Some(last) = awaited.queue.pop_excess() {
            recovery.order.take_back((last.frame.transno, client));
        }
    }

    /// The next replay of a client that has no list here, if it has come, with its slot.
    pub(super) fn next_of(&self, client: ClientId) -> Option<(Place, u16)> {
        let awaited = self.exports.get(&client)?.awaited.as_ref()?;
        let (transno, queued) = awaited.next().filter(|_| !awaited.has_list() && !awaited.is_stood_in)?;
        Some(((transno, client), queued.frame.slot))
    }

    /// That has its place among all.
    pub(super) fn list_next_of(&mut self, client: ClientId) {
        let next = self.next_of(client);
        if let (Some(next), Some(recovery)) = (next, &mut self.recovery) {
            recovery.order.list_next(next);
        }
    }

    /// What another target has kept of a client that is gone takes the place of what it would have replayed.
    pub(super) fn list_stood_in(&mut self, client: ClientId) {
        let Some(recovery) = &mut self.recovery else { return };
        recovery.order.forget_unstarted(client);
        let awaited = self.exports.get(&client).and_then(|export| export.awaited.as_ref());
        for (transno, queued) in awaited.iter().flat_map(|awaited| awaited.queue.iter()) {
            let place = (transno, client);
            let touched = queued.request.as_ref().map(|request| Touched::by(request, false));
            recovery.order.list(place, queued.frame.slot, &touched.unwrap_or_default());
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
