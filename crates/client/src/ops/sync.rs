//! Making things durable: fsync, SyncAll, and the end of the mount.

use crate::accesses;
use crate::call::Answer;
use crate::closes::close_all;
use crate::ctx::{Ctx, First, Outcome, Race, Who, join_all, mdt_of};
use crate::dirty::{write_out_all, write_out_file};
use crate::executor::oneshot;
use crate::locks::forget_kernel_attr;
use crate::machine::Notify;
use crate::operator::SyncRule;
use crate::ops::io::File;
use crate::ops::open::{
    check_still_there, release, sync_objects, take_error_of_file, take_error_of_handle, uncommitted_data,
};
use crate::state::State;
use base::{Duration, Epoch, Fid, Status, TargetId, TargetKind, Transno, Version};
use bytes::Bytes;
use rpc::{ImportState, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use wire::{MdtRequest, OstRequest, Request};

/// How long the end of a mount waits for the goodbyes of its targets.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(2);

/// Makes the data durable that this client has written.
pub(crate) async fn sync_data(ctx: &Ctx, fid: Fid) -> Outcome<()> {
    let layout = ctx.with(|state| state.nodes.by_fid(fid).and_then(|node| node.layout().cloned()));
    match layout {
        Some(layout) => {
            let targets = uncommitted_data(ctx, fid).into_keys();
            sync_objects(ctx, &File::new(fid, layout), targets).await
        }
        None => Ok(()),
    }
}

/// Makes all data of a file durable, whoever has written them: fsync(2) promises that of the file.
async fn sync_whole(ctx: &Ctx, fid: Fid) -> Outcome<()> {
    let layout = ctx.with(|state| state.nodes.by_fid(fid).and_then(|node| node.layout().cloned()));
    let Some(layout) = layout else { return Ok(()) };
    let file = File::new(fid, layout);
    let targets: BTreeSet<TargetId> =
        file.layout.stripes().map(|stripe| file.target(stripe)).collect::<Result<_, _>>()?;
    sync_objects(ctx, &file, targets).await
}

impl State {
    /// MDTs that can still lose a change of this client's to an inode.
    fn uncommitted_mdts(&self, fid: Fid) -> BTreeSet<TargetId> {
        let Some(node) = self.nodes.by_fid(fid) else { return BTreeSet::new() };
        let is_open = |target: &TargetId, transno| {
            target.kind == TargetKind::Mdt
                && self.connections.get(target).is_some_and(|connection| connection.committed < transno)
        };
        node.changes
            .newest
            .iter()
            .filter(|(target, transno)| is_open(target, **transno))
            .map(|(target, _)| *target)
            .collect()
    }

    /// Who has changed these inodes or their data for this client, and when last.
    fn changes_of(&self, fids: &[Fid]) -> BTreeMap<TargetId, Transno> {
        let mut newest = BTreeMap::<TargetId, Transno>::new();
        let nodes = fids.iter().filter_map(|fid| self.nodes.by_fid(*fid));
        for (target, transno) in nodes.flat_map(|node| &node.changes.newest) {
            let known = newest.entry(*target).or_default();
            *known = (*known).max(*transno);
        }
        newest
    }

    /// How far the attributes of an inode are known here: in an incarnation of its MDT, as later ones may begin again below.
    fn seen_version(&self, fid: Fid) -> Option<(Epoch, Version)> {
        let connection = self.connections.get(&State::mdt(fid))?;
        let node = self.nodes.by_fid(fid).filter(|node| !node.is_attr_stale)?;
        Some((connection.import.target_epoch(), node.attr()?.version))
    }
}

/// Makes durable what leads to the data of a file: the changes of this client's, and others' as far as they are seen here. Its MDT is not
/// asked again for what it has said to be durable, so that who writes to one file all the time does not wait for changes of others.
async fn sync_file_inode(ctx: &Ctx, fid: Fid) -> Outcome<()> {
    let seen = ctx.with(|state| state.seen_version(fid));
    let is_durable = |node: &crate::nodes::Node| seen.is_some() && node.changes.durable_version == seen;
    let is_known = ctx.with(|state| state.nodes.by_fid(fid).is_some_and(is_durable));
    sync_inode(ctx, fid, !is_known).await?;
    ctx.with(|state| {
        if let Some(node) = state.nodes.by_fid_mut(fid) {
            node.changes.durable_version = seen;
        }
    });
    Ok(())
}

/// Makes the changes of an inode durable that this client knows of, and those of others on its own MDT if that is to be asked.
async fn sync_inode(ctx: &Ctx, fid: Fid, is_own_asked: bool) -> Outcome<()> {
    let mut targets = ctx.with(|state| state.uncommitted_mdts(fid));
    if is_own_asked {
        targets.insert(mdt_of(fid)?);
    }
    sync_mdts(ctx, targets).await
}

async fn sync_mdts(ctx: &Ctx, targets: BTreeSet<TargetId>) -> Outcome<()> {
    let requests = targets
        .into_iter()
        .map(|target| ctx.request(target, Request::Mdt(MdtRequest::Sync), Bytes::new(), Kind::Plain))
        .collect();
    for result in join_all(requests).await {
        result?;
    }
    Ok(())
}

/// Names in these directories have changed. Whoever asks for that on this mount (`SyncRule`) has it durable before anybody hears of it.
///
/// # Errors
/// It may be lost: the kernel then looks up again what it knows of names.
pub(crate) async fn sync_names(ctx: &Ctx, who: &Who, directories: &[Fid]) -> Outcome<()> {
    if ctx.with(|state| state.sync_rule < SyncRule::Names) {
        return Ok(());
    }
    let own = || directories.iter().filter_map(|directory| mdt_of(*directory).ok());
    let targets = ctx.with(|state| {
        let of_changes = directories.iter().flat_map(|directory| state.uncommitted_mdts(*directory));
        of_changes.chain(own()).collect::<BTreeSet<_>>()
    });
    // One that has evicted counts as durable.
    let mut changed = ctx.with(|state| state.changes_of(directories));
    for target in own() {
        changed.entry(target).or_default();
    }
    let synced = unless_evicted(ctx, who, changed, sync_mdts(ctx, targets)).await;
    if synced.is_err() && ctx.with(|state| state.options.has_inc_epoch) {
        // Inside a call no notification is waited for that needs a directory's lock.
        ctx.notify(Notify::IncEpoch).await;
    }
    synced
}

/// The same of an inode whose attributes, xattrs or data have changed.
///
/// # Errors
/// It may be lost: the kernel then asks again for what it knows of the inode.
pub(crate) async fn sync_inode_change(ctx: &Ctx, who: &Who, fid: Fid) -> Outcome<()> {
    if ctx.with(|state| state.sync_rule < SyncRule::All) {
        return Ok(());
    }
    let changed = ctx.with(|state| state.changes_of(&[fid]));
    let syncing = async {
        let parts: Vec<Pin<Box<dyn Future<Output = Outcome<()>> + Send>>> =
            vec![Box::pin(sync_data(ctx, fid)), Box::pin(sync_inode(ctx, fid, true))];
        join_all(parts).await.into_iter().collect()
    };
    let synced = unless_evicted(ctx, who, changed, syncing).await;
    if synced.is_err() {
        forget_kernel_attr(ctx, fid).await;
    }
    synced
}

/// After an eviction, at any time since the call began, a target answers that everything is durable, and may have lost in a restart what this
/// client would have sent again. What was done in the session after it is as durable as that.
async fn unless_evicted(
    ctx: &Ctx,
    who: &Who,
    changed: BTreeMap<TargetId, Transno>,
    syncing: impl Future<Output = Outcome<()>>,
) -> Outcome<()> {
    let before = ctx.with(|state| {
        let call = state.calls.get(&who.id);
        call.map_or(state.last_eviction, |call| call.last_eviction)
    });
    syncing.await?;
    let is_in_doubt = ctx.with(|state| {
        changed.iter().any(|(target, transno)| {
            state.connections.get(target).is_some_and(|connection| {
                connection.last_eviction > before && *transno <= connection.last_change_before_eviction
            })
        })
    });
    if is_in_doubt { Err(Status::Evicted) } else { Ok(()) }
}

pub(crate) async fn fsync(ctx: &Ctx, who: &Who, node: u64, fh: u64) -> Outcome<Answer> {
    let fid = super::inode_of(ctx, node)?;
    write_out_file(ctx, fid).await;
    let parts: Vec<Pin<Box<dyn Future<Output = Outcome<()>> + Send>>> =
        vec![Box::pin(sync_whole(ctx, fid)), Box::pin(sync_file_inode(ctx, fid))];
    let synced: Outcome<()> = join_all(parts).await.into_iter().collect();
    // By now it is known if the MDT has evicted this client.
    check_still_there(ctx, fh).await?;
    // Who was killed while he waited hears of no error; another process may have the descriptor.
    if ctx.with(|state| state.is_unanswered(who.id)) {
        take_error_of_file(ctx, fid, fh)?;
    }
    synced.map(|()| Answer::Done)
}

/// What was written with O_DSYNC, or RWF_DSYNC, past the kernel's pages: it asks for no fsync(2) after it.
pub(crate) async fn sync_written(ctx: &Ctx, node: u64, fh: u64) -> Outcome<()> {
    let fid = super::inode_of(ctx, node)?;
    let parts: Vec<Pin<Box<dyn Future<Output = Outcome<()>> + Send>>> =
        vec![Box::pin(sync_data(ctx, fid)), Box::pin(sync_file_inode(ctx, fid))];
    let synced: Outcome<()> = join_all(parts).await.into_iter().collect();
    take_error_of_handle(ctx, fid, fh)?;
    synced
}

/// A directory: what was made and removed in it.
pub(crate) async fn fsync_directory(ctx: &Ctx, who: &Who, node: u64, fh: u64) -> Outcome<Answer> {
    let fid = super::fid_of(ctx, node)?;
    let stripes = ctx.with(|state| state.nodes.stripes_of(fid));
    // Others may have changed it too, and their changes are asked for with it.
    let parts = stripes.iter().map(|stripe| sync_inode(ctx, *stripe, true)).collect();
    let synced: Outcome<()> = join_all(parts).await.into_iter().collect();
    // By now it is known if an MDT has evicted this client. Who was killed while he waited hears of no error.
    if ctx.with(|state| state.is_unanswered(who.id)) {
        let of_whole = take_error_of_file(ctx, fid, fh);
        // What was lost of a stripe while the whole was not known.
        let lost =
            ctx.with(|state| stripes.into_iter().filter_map(|stripe| state.untold.take(stripe)).last());
        of_whole?;
        lost.map_or(Ok(()), Err)?;
    }
    synced.map(|()| Answer::Done)
}

/// sync(1) of the mount: makes everything durable, and tells once that something was lost.
pub(crate) async fn sync(ctx: &Ctx, who: &Who) -> Outcome<Answer> {
    let synced = sync_all(ctx).await;
    let is_asking = ctx.with(|state| state.is_unanswered(who.id));
    let lost = if is_asking { ctx.with(|state| state.untold.take_of_mount()) } else { None };
    lost.map_or(synced, Err)
}

/// Everything that this mount has changed, on every target that it has talked to.
async fn sync_all(ctx: &Ctx) -> Outcome<Answer> {
    write_out_all(ctx).await;
    let targets: Vec<TargetId> = ctx.with(|state| {
        let is_used = |connection: &crate::state::Connection| {
            connection.is_active && connection.import.state() != ImportState::Idle
        };
        state
            .connections
            .iter()
            .filter(|(_, connection)| is_used(connection))
            .map(|(target, _)| *target)
            .collect()
    });
    let requests = targets
        .into_iter()
        .map(|target| {
            let request = match target.kind {
                TargetKind::Mdt => Request::Mdt(MdtRequest::Sync),
                _ => Request::Ost(OstRequest::Sync { objects: Vec::new() }),
            };
            ctx.request(target, request, Bytes::new(), Kind::Plain)
        })
        .collect();
    for result in join_all(requests).await {
        result?;
    }
    Ok(Answer::Done)
}

/// Unmount: everything durable, every file closed, every session ended; bounded when targets do not answer.
pub(crate) async fn drain(ctx: Ctx, patience: Duration) {
    let patient = Box::pin(drain_patiently(ctx.clone()));
    if let First::Right(_) = Race(patient, ctx.sleep(patience)).await {
        // Whatever is left is replayed by nobody; the servers evict this client in their own time.
    }
    let targets: Vec<TargetId> = ctx.with(|state| {
        let now = state.now;
        let mut targets = Vec::new();
        for (target, connection) in &mut state.connections {
            if !matches!(connection.import.state(), ImportState::Idle | ImportState::Disconnected) {
                let mut outputs = Vec::new();
                let accesses = accesses::take(&mut state.accesses, *target, accesses::WAITING_MAX);
                connection.import.take_along(accesses);
                connection.import.disconnect(now, &mut outputs);
                state.import_outputs.extend(outputs.into_iter().map(|output| (*target, output)));
                targets.push(*target);
            }
        }
        targets
    });
    let deadline = ctx.now().time.after(GOODBYE_PATIENCE.min(patience));
    while ctx.now().time < deadline {
        let is_done = ctx.with(|state| {
            targets.iter().all(|target| {
                state
                    .connections
                    .get(target)
                    .is_none_or(|connection| connection.import.state() == ImportState::Disconnected)
            })
        });
        if is_done {
            break;
        }
        ctx.sleep(Duration::from_millis(20)).await;
    }
    ctx.with(|state| state.out.push(crate::Output::Drained));
}

async fn drain_patiently(ctx: Ctx) {
    // A target that fails here shows in the log by its own events.
    let _ = sync_all(&ctx).await;
    let handles: Vec<u64> = ctx.with(|state| state.handles.keys().copied().collect());
    for fh in handles {
        let _ = release(&ctx, fh, None).await;
    }
    close_all(&ctx).await;
    let _ = sync_all(&ctx).await;
    while ctx.with(|state| !state.closing.is_empty()) {
        let receiver = ctx.with(|state| {
            let (sender, receiver) = oneshot();
            state.closing_waiters.push(sender);
            receiver
        });
        receiver.await;
    }
    let _ = sync_all(&ctx).await;
}
