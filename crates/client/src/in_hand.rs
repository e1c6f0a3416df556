//! Locks that a call has in hand while it waits for something else than an answer of their own target: the lock of another object, an answer of another
//! OST, an earlier write of this mount. That has no bound, as an OST may be away for long, and meanwhile others may want what is in hand: its target
//! would evict this client, which lives (`ldlm::LockSpace`). So what was called back is let go after a while. The call takes all its locks anew then,
//! or goes on without those that it needs no more.

use crate::ctx::{Ctx, First, Outcome, Race};
use crate::executor::{Receiver, Sender, oneshot};
use crate::locks::{LockUse, Pin};
use crate::pages::PageCallId;
use crate::state::State;
use base::limits::CALLBACK_DEADLINE;
use base::{Duration, Time};
use std::collections::BTreeMap;
use std::future::ready;

/// How long a call that waits keeps what others want, if it can begin anew. Long against what calls wait for each other, short against the
/// patience of servers.
pub(crate) const HOLD_PATIENCE: Duration = Duration::from_millis(3000);
/// The same of a call that has sent changes to some of its objects: others see these without the rest then. A server waits four times as long for a client
/// that is heard.
pub(crate) const CHANGE_PATIENCE: Duration = CALLBACK_DEADLINE;
/// Between two looks at who holds what, as long as somebody does.
const LOOK_INTERVAL: Duration = Duration::from_millis(1000);

/// How long a call keeps what is called back, and for what it has its locks.
#[derive(Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) patience: Duration,
    pub(crate) lock_use: LockUse,
}

impl Hold {
    /// Of a read, or of a change of which nothing was sent yet, that has let go so often. One that always takes longer than others leave it
    /// comes to its end, too.
    pub(crate) fn of_nothing_sent(lock_use: LockUse, let_go_count: u32) -> Hold {
        let patience = HOLD_PATIENCE.saturating_mul(1 << let_go_count.min(8));
        Hold { patience: patience.min(CHANGE_PATIENCE), lock_use }
    }

    /// Of a change that is on its way.
    pub(crate) fn of_change(lock_use: LockUse) -> Hold {
        Hold { patience: CHANGE_PATIENCE, lock_use }
    }

    fn call(self) -> Option<PageCallId> {
        match self.lock_use {
            LockUse::Pages(call) => Some(call),
            LockUse::NoPages | LockUse::WriteBack => None,
        }
    }
}

/// What a call that waits has in hand.
struct Hand {
    pins: Vec<Pin>,
    hold: Hold,
    since: Time,
    /// When the first of its locks was seen to be called back.
    wanted_since: Option<Time>,
    /// Dropped when it is to let go.
    wake: Sender<()>,
}

/// Calls that wait with locks in hand.
#[derive(Default)]
pub(crate) struct Hands {
    by_number: BTreeMap<u64, Hand>,
    last_number: u64,
    is_watched: bool,
}

impl State {
    fn take_in_hand(&mut self, pins: &BTreeMap<u32, Pin>, hold: Hold) -> (u64, Receiver<()>) {
        let (wake, wanted) = oneshot();
        self.hands.last_number += 1;
        let number = self.hands.last_number;
        let pins = pins.values().copied().collect();
        let hand = Hand { pins, hold, since: self.now.time, wanted_since: None, wake };
        self.hands.by_number.insert(number, hand);
        (number, wanted)
    }

    /// Wakes who has kept too long what others want. Pages of a call that waits for so long are not waited for (`pages`), whoever wants them
    /// dropped: it may not be this call's lock that goes back. False when nobody waits any more.
    fn look_at_hands(&mut self) -> bool {
        let now = self.now.time;
        let mut hands = std::mem::take(&mut self.hands.by_number);
        hands.retain(|_, hand| {
            if now.since(hand.since) >= HOLD_PATIENCE
                && let Some(call) = hand.hold.call()
            {
                self.page_call_stalls(call);
            }
            let is_wanted = hand.pins.iter().any(|pin| self.is_called_back(*pin));
            let since = hand.wanted_since.unwrap_or(now);
            hand.wanted_since = is_wanted.then_some(since);
            let is_over = is_wanted && now.since(since) >= hand.hold.patience;
            !is_over && !hand.wake.is_abandoned()
        });
        self.hands.by_number = hands;
        self.hands.is_watched = !self.hands.by_number.is_empty();
        self.hands.is_watched
    }

    fn is_called_back(&self, pin: Pin) -> bool {
        self.connections.get(&pin.target).is_some_and(|connection| connection.locks.is_dying(pin.lock))
    }
}

async fn watch(ctx: Ctx) {
    loop {
        ctx.sleep(LOOK_INTERVAL).await;
        if !ctx.with(State::look_at_hands) {
            return;
        }
    }
}

/// Waits for something, and lets go of what is called back meanwhile if that takes long; it is not in `pins` then.
pub(crate) async fn holding<T>(
    ctx: &Ctx,
    hold: Hold,
    pins: &mut BTreeMap<u32, Pin>,
    waiting: impl Future<Output = T>,
) -> T {
    let mut waiting = std::pin::pin!(waiting);
    if let First::Left(done) = Race(waiting.as_mut(), ready(())).await {
        return done;
    }
    while !pins.is_empty() {
        let (number, wanted, is_watched) = ctx.with(|state| {
            let (number, wanted) = state.take_in_hand(pins, hold);
            (number, wanted, std::mem::replace(&mut state.hands.is_watched, true))
        });
        if !is_watched {
            ctx.spawn(watch(ctx.clone()));
        }
        match Race(waiting.as_mut(), wanted).await {
            First::Left(done) => {
                ctx.with(|state| {
                    state.hands.by_number.remove(&number);
                    if let Some(call) = hold.call() {
                        state.page_call_goes_on(call);
                    }
                });
                return done;
            }
            First::Right(_) => let_go_of_called_back(ctx, pins),
        }
    }
    waiting.await
}

/// Waits for a lock with those of others in hand.
pub(crate) async fn with_others_in_hand(
    ctx: &Ctx,
    asking: impl Future<Output = Outcome<Pin>>,
    pins: &mut BTreeMap<u32, Pin>,
) -> Outcome<Pin> {
    let mut asking = std::pin::pin!(asking);
    // Most locks are here already, and need no timer.
    if let First::Left(pin) = Race(asking.as_mut(), ready(())).await {
        return pin;
    }
    while !pins.is_empty() {
        match Race(asking.as_mut(), ctx.sleep(HOLD_PATIENCE)).await {
            First::Left(pin) => return pin,
            First::Right(_) => let_go_of_called_back(ctx, pins),
        }
    }
    asking.await
}

/// Unpins those that others want.
fn let_go_of_called_back(ctx: &Ctx, pins: &mut BTreeMap<u32, Pin>) {
    ctx.with(|state| {
        pins.retain(|_, pin| {
            let is_kept = !state.is_called_back(*pin);
            if !is_kept {
                state.unpin(*pin);
            }
            is_kept
        });
    });
}

pub(crate) fn unpin_all(ctx: &Ctx, pins: BTreeMap<u32, Pin>) {
    ctx.with(|state| {
        for pin in pins.into_values() {
            state.unpin(pin);
        }
    });
}
