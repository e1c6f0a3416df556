//! The attributes of a mount's root while its MDT is silent.
//!
//! umount(8) asks for them before anything else, and a server that is gone must not hold that up. So a question that nobody answers is
//! answered from memory: with what the MDT said last, for this once (the kernel may not keep it), and of the root alone. An MDT that is
//! heard meanwhile is waited for, however slow it is.

use crate::call::{Answer, AttrAnswer};
use crate::ctx::{Ctx, First, Outcome, Race};
use crate::executor::{Receiver, Sender, oneshot};
use crate::ops::attr::current_attr;
use crate::state::State;
use base::{Attr, Duration, Fid, Time};
use rpc::Import;
use std::future::Future;

/// Whose answer has not come by then is asked for a sign of life, and is silent when he gives none for as long again. With the 6.5 s that
/// an unmount itself waits for servers, all of it is over in ten seconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// The directory that is mounted, and what is remembered of it.
pub(crate) struct Root {
    pub(crate) fid: Fid,
    /// What was last known to be true.
    known: Option<Attr>,
    /// Questions on their way whose callers were answered from memory. While there is one, nobody asks another one.
    question_count: usize,
    waiters: Vec<Sender<()>>,
}

impl Root {
    pub(crate) fn new(fid: Fid) -> Root {
        Root { fid, known: None, question_count: 0, waiters: Vec::new() }
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.question_count == 0 && self.waiters.is_empty()
    }
}

impl State {
    /// These attributes of an inode are true now.
    pub(crate) fn remember_root(&mut self, attr: &Attr) {
        if attr.fid == self.root.fid {
            self.root.known = Some(attr.clone());
        }
    }

    fn ask_root_for_sign(&mut self) {
        for stripe in self.nodes.stripes_of(self.root.fid) {
            self.with_import(State::mdt(stripe), Import::ask_for_sign);
        }
    }

    /// What is remembered of the root, if an MDT that keeps some of it has said nothing since then.
    fn remembered(&self, since: Time) -> Option<Answer> {
        let is_heard = |stripe: &Fid| {
            let connection = self.connections.get(&State::mdt(*stripe));
            let heard_at = connection.and_then(|connection| connection.import.heard_at());
            heard_at.is_some_and(|heard_at| heard_at >= since)
        };
        if self.nodes.stripes_of(self.root.fid).iter().all(is_heard) {
            return None;
        }
        let attr = self.root.known.clone()?;
        Some(Answer::Attr(AttrAnswer { attr, attr_valid: Duration::ZERO, is_remembered: true }))
    }

    /// The end of the question that is on its way without its caller.
    fn join_root_question(&mut self) -> Option<Receiver<()>> {
        if self.root.question_count == 0 {
            return None;
        }
        // Who has been answered from memory waits no more.
        self.root.waiters.retain(|waiter| !waiter.is_abandoned());
        let (sender, receiver) = oneshot();
        self.root.waiters.push(sender);
        Some(receiver)
    }

    fn end_root_question(&mut self) {
        self.root.question_count -= 1;
        if self.root.question_count == 0 {
            // Dropping them wakes who waits.
            self.root.waiters.clear();
        }
    }
}

pub(crate) async fn getattr(ctx: &Ctx) -> Outcome<Answer> {
    // Who is silent gets no second question.
    while let Some(mut end) = ctx.with(State::join_root_question) {
        if let Err(remembered) = or_memory(ctx, &mut end).await {
            return Ok(remembered);
        }
    }
    let asking = ctx.clone();
    let mut question = Box::pin(async move {
        let attr = current_attr(&asking, asking.with(|state| state.root.fid)).await?;
        Ok(Answer::Attr(asking.with(|state| state.attr_answer(attr))))
    });
    let remembered = match or_memory(ctx, &mut question).await {
        Ok(answer) => return answer,
        Err(remembered) => remembered,
    };
    // Its answer may bring locks, which must be taken in.
    ctx.with(|state| state.root.question_count += 1);
    let asking = ctx.clone();
    ctx.spawn(async move {
        drop(question.await);
        asking.with(State::end_root_question);
    });
    Ok(remembered)
}

/// What comes of it, unless the MDT turns out to be silent: then what is remembered.
async fn or_memory<F: Future + Unpin>(ctx: &Ctx, future: &mut F) -> Result<F::Output, Answer> {
    if let First::Left(output) = Race(&mut *future, ctx.sleep(PATIENCE)).await {
        return Ok(output);
    }
    loop {
        let since = ctx.now().time;
        ctx.with(State::ask_root_for_sign);
        if let First::Left(output) = Race(&mut *future, ctx.sleep(PATIENCE)).await {
            return Ok(output);
        }
        if let Some(remembered) = ctx.with(|state| state.remembered(since)) {
            return Err(remembered);
        }
    }
}

#[cfg(test)]
mod tests;
