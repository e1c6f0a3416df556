//! Space: statfs(2) and `lfs df`; and what `lfs` asks besides.

use crate::call::{Answer, Caller, TargetSpace};
use crate::ctx::{Ctx, First, Outcome, Race, Who, join_all, mdt_of};
use crate::executor::oneshot;
use crate::ops::attr::{ask_inode, current_attr, entry_at};
use crate::ops::inode_of;
use crate::state::Connection;
use base::limits::RECOVERY_HARD;
use base::{Duration, Fid, FileType, Status, TargetId, TargetKind};
use bytes::Bytes;
use rpc::{ImportState, Kind};
use std::collections::BTreeSet;
use wire::lock::LockWant;
use wire::mdt::{Entry, LayoutHint, Statfs};
use wire::{MdtReply, MdtRequest, OstReply, OstRequest, Reply, Request};

/// A target that does not answer for so long is left out.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same where it is known what it said last: whoever asks has to wait once only.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// Who waits for all targets waits so long: one that comes back is through with its recovery by then.
const WAIT_MAX: Duration = RECOVERY_HARD;

/// MDTs that a path leads over and over again, at most.
const PATH_PART_COUNT_MAX: usize = 256;

/// What is done about a target that does not answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Silent {
    /// It is waited for, and without it there is no answer.
    Wait,
    /// What it said last is taken: at once when its connection is down or it owes an answer to such a question already, else after `SHORT_PATIENCE`.
    Remember,
    /// It is shown as missing: at once when it owes an answer already, else after `PATIENCE`.
    LeaveOut,
}

/// # Errors
/// `Io` for a target that was waited for in vain.
async fn spaces(ctx: &Ctx, silent: Silent) -> Outcome<Vec<TargetSpace>> {
    let targets: Vec<TargetId> = ctx.with(|state| {
        state
            .connections
            .iter()
            .filter(|(_, connection)| connection.is_active)
            .map(|(target, _)| *target)
            .collect()
    });
    let mut asked = Vec::with_capacity(targets.len());
    for target in targets {
        let ctx = ctx.clone();
        asked.push(async move {
            let space = space(&ctx, target, silent).await?;
            let is_drained =
                ctx.with(|state| state.connections.get(&target).is_some_and(|known| known.is_drained));
            Ok(TargetSpace { target, space, is_active: true, is_drained })
        });
    }
    join_all(asked).await.into_iter().collect()
}

async fn space(ctx: &Ctx, target: TargetId, silent: Silent) -> Outcome<Option<Statfs>> {
    if silent == Silent::Wait {
        return match Race(Box::pin(ask_space(ctx, target)), ctx.sleep(WAIT_MAX)).await {
            First::Left(space) => Ok(space),
            First::Right(_) => Err(Status::Io),
        };
    }
    let (known, is_down, is_late) = ctx.with(|state| {
        let connection = state.connections.get(&target);
        let known = connection.and_then(|connection| connection.known_space);
        let is_down = connection.is_some_and(|connection| connection.import.state() != ImportState::Active);
        (known, is_down, connection.is_some_and(|connection| connection.is_space_late))
    });
    let known = known.filter(|_| silent == Silent::Remember);
    // Who owes an answer is not asked for another one: that would wait here too, for as long as the target is away.
    if is_late || known.is_some() && is_down {
        return Ok(known);
    }
    // It goes on when nobody waits for it any more, so that a target which answers again is asked again.
    let (sender, answer) = oneshot();
    let asking = ctx.clone();
    ctx.spawn(async move {
        let space = ask_space(&asking, target).await;
        asking.set_space_late(target, false);
        sender.send(space);
    });
    match Race(answer, ctx.sleep(if known.is_some() { SHORT_PATIENCE } else { PATIENCE })).await {
        First::Left(space) => Ok(space.flatten().or(known)),
        First::Right(_) => {
            ctx.set_space_late(target, true);
            Ok(known)
        }
    }
}

async fn ask_space(ctx: &Ctx, target: TargetId) -> Option<Statfs> {
    let request = match target.kind {
        TargetKind::Mdt => Request::Mdt(MdtRequest::Statfs),
        _ => Request::Ost(OstRequest::Statfs),
    };
    match ctx.request(target, request, Bytes::new(), Kind::Plain).await {
        Ok(rpc::Answer { reply: Reply::Mdt(MdtReply::Statfs(space)), .. })
        | Ok(rpc::Answer { reply: Reply::Ost(OstReply::Statfs(space)), .. }) => {
            ctx.with(|state| {
                if let Some(connection) = state.connections.get_mut(&target) {
                    connection.known_space = Some(space);
                }
            });
            Some(space)
        }
        _ => None,
    }
}

impl Ctx {
    fn set_space_late(&self, target: TargetId, is_late: bool) {
        self.with(|state| {
            if let Some(connection) = state.connections.get_mut(&target) {
                connection.is_space_late = is_late;
            }
        });
    }
}

/// Bytes are those of the OSTs, inodes those of the MDTs; targets on one device count once.
pub(crate) async fn statfs(ctx: &Ctx) -> Outcome<Answer> {
    let (mut sum, mut objects) = (Statfs::default(), Statfs::default());
    let mut devices = BTreeSet::new();
    let silent = ctx.with(|state| if state.options.is_statfs_lazy { Silent::Remember } else { Silent::Wait });
    for TargetSpace { target, space, .. } in spaces(ctx, silent).await? {
        let Some(space) = space else { continue };
        if !devices.insert((target.kind, space.device)) {
            continue;
        }
        match target.kind {
            TargetKind::Mdt => {
                sum.inodes_total = sum.inodes_total.saturating_add(space.inodes_total);
                sum.inodes_free = sum.inodes_free.saturating_add(space.inodes_free);
            }
            _ => {
                sum.bytes_total = sum.bytes_total.saturating_add(space.bytes_total);
                sum.bytes_free = sum.bytes_free.saturating_add(space.bytes_free);
                sum.bytes_available = sum.bytes_available.saturating_add(space.bytes_available);
                objects.inodes_total = objects.inodes_total.saturating_add(space.inodes_total);
                objects.inodes_free = objects.inodes_free.saturating_add(space.inodes_free);
            }
        }
    }
    (sum.inodes_total, sum.inodes_free) = Statfs::inodes_of(&sum, &objects);
    Ok(Answer::Statfs(sum))
}

pub(crate) async fn df_targets(ctx: &Ctx) -> Outcome<Answer> {
    let mut targets = spaces(ctx, Silent::LeaveOut).await?;
    ctx.with(|state| {
        let is_serving =
            |target: &TargetId| state.connections.get(target).is_some_and(Connection::is_serving);
        targets.retain(|space| is_serving(&space.target));
        let off = state.connections.iter().filter(|(_, connection)| !connection.is_serving());
        let off = off.map(|(target, connection)| TargetSpace {
            target: *target,
            space: None,
            is_active: false,
            is_drained: connection.is_drained,
        });
        targets.extend(off);
    });
    targets.sort_unstable_by_key(|space| space.target);
    Ok(Answer::Targets(targets))
}

/// Those of the last configuration.
pub(crate) fn pools(ctx: &Ctx) -> Outcome<Answer> {
    Ok(Answer::Pools(ctx.with(|state| state.config.iter().flat_map(|config| config.pools.clone()).collect())))
}

pub(crate) async fn getstripe(ctx: &Ctx, node: u64) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    let entry = ask_inode(ctx, fid).await?;
    stripe_of(ctx, entry).await
}

/// What it leads to may be a node of nobody here, so no lock on it is asked for.
pub(crate) async fn getstripe_of(ctx: &Ctx, who: &Who, parent: u64, name: Vec<u8>) -> Outcome<Answer> {
    check_search(ctx, who, parent).await?;
    let fid = entry_at(ctx, parent, name).await?.fid;
    let getattr = MdtRequest::Getattr { fid, want: LockWant::default() };
    let entry = ctx.mdt_entry(fid, getattr, Kind::Plain).await?;
    stripe_of(ctx, entry).await
}

/// The kernel passes an ioctl on from who may list a directory and not search it. An ACL is not judged here: it counts as a refusal for all but
/// the owner, of whom it says nothing.
async fn check_search(ctx: &Ctx, who: &Who, node: u64) -> Outcome<()> {
    let Caller { uid, gid, .. } = who.caller;
    if uid == 0 {
        return Ok(());
    }
    let fid = inode_of(ctx, node)?;
    let attr = current_attr(ctx, fid).await?;
    let has = |permissions: u32| permissions & 1 != 0;
    let [of_owner, of_group, of_others] =
        [attr.permissions >> 6, attr.permissions >> 3, attr.permissions].map(has);
    let is_allowed = if uid == attr.uid {
        of_owner
    } else if super::xattr::has_access_acl(ctx, fid).await? {
        false
    } else if gid == attr.gid || of_group == of_others {
        of_group
    } else {
        let groups = ctx.groups(who).await;
        groups.is_some_and(|groups| if groups.contains(&attr.gid) { of_group } else { of_others })
    };
    if is_allowed { Ok(()) } else { Err(Status::AccessDenied) }
}

async fn stripe_of(ctx: &Ctx, entry: Entry) -> Outcome<Answer> {
    let fid = entry.fid;
    if entry.file_type != FileType::Directory {
        return Ok(Answer::Stripe { fid, layout: entry.layout });
    }
    match ctx.mdt(fid, MdtRequest::GetDefaultLayout { fid }, Kind::Plain).await? {
        MdtReply::DefaultLayout(layout) => Ok(Answer::DefaultStripe { fid, layout }),
        _ => Err(Status::ProtocolError),
    }
}

pub(crate) async fn setstripe(ctx: &Ctx, who: &Who, node: u64, layout: LayoutHint) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    let make = |creds| MdtRequest::SetLayout { fid, layout: layout.clone(), creds };
    let MdtReply::Entry(entry) = ctx.mdt_as(who, fid, Kind::Modifying, make).await? else {
        return Err(Status::ProtocolError);
    };
    ctx.with(|state| state.see_entry(&entry));
    super::sync::sync_inode_change(ctx, who, fid).await?;
    crate::locks::forget_kernel_attr(ctx, fid).await;
    Ok(Answer::Done)
}

/// Paths lead through directories that the caller may not look into.
///
/// # Errors
/// `NotPermitted` for all but the superuser; `CrossDevice` of what is outside of the directory that is mounted.
pub(crate) async fn fid_to_path(ctx: &Ctx, who: &Who, fid: Fid) -> Outcome<Answer> {
    if who.caller.uid != 0 {
        return Err(Status::NotPermitted);
    }
    let mut paths = paths_of(ctx, fid).await?;
    for path in &mut paths {
        complete(ctx, path).await;
    }
    let root = ctx.with(|state| state.root.fid);
    if root == Fid::ROOT {
        return Ok(Answer::Paths(paths));
    }
    let mut shown = paths_of(ctx, root).await?.into_iter().next().ok_or(Status::Stale)?;
    complete(ctx, &mut shown).await;
    let below: Vec<Vec<u8>> = paths.iter().filter_map(|path| below(path, &shown)).collect();
    if below.is_empty() && !paths.is_empty() { Err(Status::CrossDevice) } else { Ok(Answer::Paths(below)) }
}

/// A path as it is below a directory, if it is there.
fn below(path: &[u8], directory: &[u8]) -> Option<Vec<u8>> {
    match path.strip_prefix(directory)? {
        [] => Some(Vec::new()),
        [b'/', rest @ ..] => Some(rest.to_vec()),
        _ => None,
    }
}

/// As far as the MDT of the inode knows them.
async fn paths_of(ctx: &Ctx, fid: Fid) -> Outcome<Vec<Vec<u8>>> {
    mdt_of(fid)?;
    match ctx.mdt(fid, MdtRequest::FidToPath { fid }, Kind::Plain).await? {
        MdtReply::Paths(paths) => Ok(paths),
        _ => Err(Status::ProtocolError),
    }
}

/// Puts the path of the directory in the place of its FID, where that lies on another MDT. What is no FID, or of no directory any
/// more, stays.
async fn complete(ctx: &Ctx, path: &mut Vec<u8>) {
    for _ in 0..PATH_PART_COUNT_MAX {
        let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
        let first = path.get(..end).and_then(|first| std::str::from_utf8(first).ok()).unwrap_or_default();
        let Some(above) = first.starts_with('[').then(|| first.parse::<Fid>().ok()).flatten() else { return };
        let Ok(found) = paths_of(ctx, above).await else { return };
        // A directory has one name.
        match found.into_iter().next() {
            Some(found) if found.is_empty() => drop(path.drain(..(end + 1).min(path.len()))),
            Some(found) if !found.starts_with(first.as_bytes()) => drop(path.splice(..end, found)),
            _ => return,
        }
    }
}
