//! Calls whose caller has got a signal.
//!
//! The kernel says once that there is one, and not which. A request that it has handed over is waited for even by who is
//! killed, so while a target does not answer somebody has to look: a caller who must die is let go, one who only has a signal to
//! handle goes on waiting, as on a local disk. Who has been signalled once is looked at again and again, since of the signal
//! that kills him nothing is heard.

use crate::call::Call;
use crate::ctx::{Ctx, Who};
use crate::executor::oneshot;
use crate::machine::Output;
use crate::ops;
use crate::state::State;
use base::{Duration, Status};

/// What a caller has got, as far as can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// Nothing, or what it catches, ignores or blocks.
    Harmless,
    /// It ends as soon as it is let go.
    Fatal,
    /// The caller cannot be looked at: it lives in a pid namespace that is not below ours.
    Unknown,
}

/// Which signal ends the wait of a call for a target that does not answer, with EINTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivesUp {
    /// It changes something, and the kernel has to hear what has become of that.
    Never,
    /// Only one that its caller dies of: POSIX knows no EINTR here, or no program reckons with it.
    WhenKilled,
    /// Any: whoever asked for a wait without end can end it.
    WhenSignalled,
}

/// How long a kill can go unseen whose caller had been signalled before. Each look reads one file of /proc.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// A caller that cannot be looked at may wait for so long after its signal: longer than a failover or a recovery mostly takes,
/// and no longer than somebody watches a process that he has killed.
const UNSEEN_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn on_interrupt(ctx: &Ctx, id: u64) -> Option<(base::Fid, u64, bool)> {
    let (is_first, who, waiting) = ctx.with(|state| {
        let call = state.calls.get_mut(&id)?;
        let is_first = !std::mem::replace(&mut call.is_interrupted, true);
        let who = Who { id, caller: call.caller };
        Some((is_first && call.gives_up != GivesUp::Never, who, call.waits_for_flock))
    })?;
    if is_first {
        let watching = ctx.clone();
        ctx.spawn(async move { watch(&watching, &who).await });
    }
    waiting
}

/// Until the call is answered, here or otherwise.
async fn watch(ctx: &Ctx, who: &Who) {
    let begun = ctx.now().time;
    while let Some((gives_up, is_connected)) = ctx.with(|state| state.unanswered(who.id)) {
        // A target that stands still keeps its connection.
        let is_late = ctx.now().time.since(begun) >= LOOK_INTERVAL;
        if !is_connected || is_late {
            let signals = match gives_up {
                GivesUp::WhenSignalled => Signals::Fatal,
                GivesUp::Never | GivesUp::WhenKilled => ask(ctx, who).await,
            };
            // Whoever is there may only be busy.
            let has_waited = !is_connected && ctx.now().time.since(begun) >= UNSEEN_PATIENCE;
            if signals == Signals::Fatal || signals == Signals::Unknown && has_waited {
                ctx.with(|state| state.give_up(who.id));
                return;
            }
        }
        let _ = ctx.sleep(LOOK_INTERVAL).await;
    }
}

async fn ask(ctx: &Ctx, who: &Who) -> Signals {
    let (sender, receiver) = oneshot();
    ctx.with(|state| {
        state.signal_waiters.insert(who.id, sender);
        state.out.push(Output::NeedSignals { id: who.id, pid: who.caller.pid });
    });
    receiver.await.unwrap_or(Signals::Harmless)
}

impl State {
    fn unanswered(&self, id: u64) -> Option<(GivesUp, bool)> {
        let call = self.calls.get(&id).filter(|call| !call.is_answered)?;
        Some((call.gives_up, self.is_everything_connected()))
    }

    pub(crate) fn is_unanswered(&self, id: u64) -> bool {
        self.unanswered(id).is_some()
    }

    /// The call itself goes on, for whatever it has begun.
    fn give_up(&mut self, id: u64) {
        if self.unanswered(id).is_some() {
            self.answer_call(id, Err(Status::Interrupted.errno()));
        }
    }

    pub(crate) fn on_signals(&mut self, id: u64, signals: Signals) {
        if let Some(sender) = self.signal_waiters.remove(&id) {
            sender.send(signals);
        }
    }

    pub(crate) fn gives_up(&self, call: &Call) -> GivesUp {
        match call {
            Call::Statfs { .. } if !self.options.is_statfs_lazy => GivesUp::WhenSignalled,
            _ if ops::describe(call).2 => GivesUp::WhenKilled,
            _ => GivesUp::Never,
        }
    }
}
