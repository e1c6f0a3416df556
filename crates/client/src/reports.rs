//! Sizes of closed files on their way to their MDTs: what can be reported now goes together.
//!
//! A commit of an OST makes the data of many closed files durable, and lets all their closes go on. Each leaves its report here, and what
//! is here is sent when all of them have had their turn: nobody waits for more to come. An MDT that cannot take them together changes
//! nothing, and each report goes by itself then, as the only one of its kind does: who is in the way of one is waited for by that one.

use crate::ctx::{Ctx, Outcome, join_all};
use crate::executor::{Sender, oneshot};
use crate::ops::attr::ToldEpoch;
use crate::state::State;
use base::{Attr, Status, TargetId};
use bytes::Bytes;
use rpc::Kind;
use wire::mdt::{REPORTS_MAX, SizeReport};
use wire::session::features;
use wire::{MdtReply, MdtRequest, Reply, Request};

/// A report that is about to go.
pub(crate) struct Waiting {
    report: SizeReport,
    told: ToldEpoch,
    /// Of who reports; dropped without a word when he is to do it alone.
    sender: Sender<Outcome<Attr>>,
}

/// Reports a size with those of others that go to the same MDT now. -> What the file is then; nothing if there is no other, or they
/// could not go together.
///
/// # Errors
/// `Stale` if the size is still not known there, or the file is gone.
pub(crate) async fn report_with_others(
    ctx: &Ctx,
    told: ToldEpoch,
    report: SizeReport,
) -> Option<Outcome<Attr>> {
    let target = State::mdt(report.fid);
    let (sender, receiver) = oneshot();
    let is_first = ctx.with(|state| {
        let waiting = state.reports.entry(target).or_default();
        waiting.push(Waiting { report, told, sender });
        waiting.len() == 1
    });
    if is_first {
        // It begins when all have gone on that can.
        ctx.spawn(send_waiting(ctx.clone(), target));
    }
    receiver.await
}

async fn send_waiting(ctx: Ctx, target: TargetId) {
    let mut waiting = ctx.with(|state| state.take_reports(target));
    let mut requests = Vec::new();
    // The last one alone is as well off without the others.
    while waiting.len() > 1 {
        let rest = waiting.split_off(waiting.len().min(REPORTS_MAX));
        requests.push(send_together(&ctx, target, std::mem::replace(&mut waiting, rest)));
    }
    drop(waiting);
    join_all(requests).await;
}

async fn send_together(ctx: &Ctx, target: TargetId, waiting: Vec<Waiting>) {
    let reports: Vec<SizeReport> = waiting.iter().map(|waiting| waiting.report).collect();
    let request = Request::Mdt(MdtRequest::ReportSizes { reports });
    let Ok(answer) = ctx.request(target, request, Bytes::new(), Kind::Modifying).await else { return };
    let Reply::Mdt(MdtReply::Sizes(attrs)) = answer.reply else { return };
    if attrs.len() != waiting.len() {
        return;
    }
    for (Waiting { report, sender, .. }, attr) in waiting.into_iter().zip(attrs) {
        let attr = attr.filter(|attr| attr.fid == report.fid);
        ctx.with(|state| {
            state.note_change(target, report.fid, answer.transno);
            state.note_changed_here(report.fid);
        });
        sender.send(attr.ok_or(Status::Stale));
    }
}

impl State {
    /// Those that may go together. One whose MDT has died since it told the epoch may not go at all: who reports it finds that out.
    fn take_reports(&mut self, target: TargetId) -> Vec<Waiting> {
        let mut waiting = self.reports.remove(&target).unwrap_or_default();
        let connection = self.connections.get(&target);
        let is_understood =
            connection.is_some_and(|connection| connection.import.features() & features::REPORTS != 0);
        waiting.retain(|waiting| is_understood && self.is_still_told(&waiting.told));
        waiting
    }
}
