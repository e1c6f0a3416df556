//! `lfs migrate -m`: what a name leads to moves to another MDT.

use crate::call::Answer;
use crate::ctx::{Ctx, Outcome, Who};
use crate::ops::attr::entry_at;
use crate::ops::home_of;
use crate::ops::sync::sync_names;
use base::{Status, TargetId};
use bytes::Bytes;
use rpc::Kind;
use wire::mdt::Credentials;
use wire::session::features;
use wire::{MdtReply, MdtRequest, Reply, Request};

/// Nothing is remembered of it here: this client is called back as all others are, and looks the name up again.
pub(crate) async fn migrate(
    ctx: &Ctx,
    who: &Who,
    directory: u64,
    name: Vec<u8>,
    mdt_index: u16,
) -> Outcome<Answer> {
    base::names::check_name(&name)?;
    let parent = home_of(ctx, directory, &name)?;
    let target = TargetId::mdt(mdt_index);
    let known = ctx.with(|state| {
        let connection = state.connections.get(&target);
        connection.map(|connection| connection.import.features())
    });
    match known {
        None => return Err(Status::NoDevice),
        // Nothing is known of one that was never connected.
        Some(1..) if known.is_some_and(|known| known & features::MIGRATION == 0) => {
            return Err(Status::NotSupportedCall);
        }
        Some(_) => {}
    }
    let entry = entry_at(ctx, directory, name.clone()).await?;
    if entry.fid.mdt_index() == Some(mdt_index) {
        return Ok(Answer::Migrated { has_moved: false });
    }
    let creds = Credentials { uid: who.caller.uid, gid: who.caller.gid, groups: None };
    let request = Request::Mdt(MdtRequest::Migrate { parent, name, fid: entry.fid, creds });
    let answer = ctx.request(target, request, Bytes::new(), Kind::Modifying).await?;
    let Reply::Mdt(MdtReply::Entry(_)) = answer.reply else { return Err(Status::ProtocolError) };
    ctx.with(|state| state.note_change(target, parent, answer.transno));
    sync_names(ctx, who, &[parent]).await?;
    Ok(Answer::Migrated { has_moved: true })
}
