//! OPEN, CLOSE, REPORTSIZE, REPORTSIZES and REOPEN: who has a file open, and when its size is known (hazards 4.1 to 4.5).

use super::{Cx, Effect, Stop, entry_reply};
use crate::access::{self, EXECUTE, READ, WRITE};
use crate::data::Object;
use crate::rows::{self, Inode};
use base::fault::{Fault, planted};
use base::{Duration, Extent, Fid, FileType, Layout, OpenHandle, Status, Transno, WallTime};
use wire::MdtReply;
use wire::lock::LockWant;
use wire::mdt::{ClosingData, Credentials, Entry, OpenArgs, REPORTS_MAX, SizeReport};
use wire::session::features;

/// # Errors
/// As open(2) of something that exists.
pub fn open(
    cx: &mut Cx,
    fid: Fid,
    args: OpenArgs,
    creds: &Credentials,
    want: LockWant,
) -> Result<MdtReply, Stop> {
    let inode = cx.inode(fid)?;
    let entry = open_inode(cx, inode, args, creds, want)?;
    Ok(entry_reply(entry))
}

/// Checks permissions and marks the size as unknown when the file may be written from now on.
///
/// # Errors
/// As open(2).
pub fn open_inode(
    cx: &mut Cx,
    mut inode: Inode,
    args: OpenArgs,
    creds: &Credentials,
    want: LockWant,
) -> Result<Entry, Status> {
    let fid = inode.attr.fid;
    if inode.attr.file_type == FileType::Directory && args.write {
        return Err(Status::IsDirectory);
    }
    if inode.attr.file_type == FileType::Symlink {
        return Err(Status::TooManySymlinks);
    }
    // Who may run a program need not be allowed to read it.
    let is_read = args.read && !args.execute;
    let wanted = [(is_read, READ), (args.write, WRITE), (args.execute, EXECUTE)];
    let wanted = wanted.iter().filter(|(is_wanted, _)| *is_wanted).fold(0, |all, (_, bit)| all | bit);
    access::check_access(&cx.tx, &inode, creds, wanted)?;
    let is_busy = args.write && cx.opens.is_executed_by_others(fid, cx.client)
        || args.execute && cx.opens.is_written_by_others(fid, cx.client);
    if is_busy && !cx.is_replay {
        return Err(Status::TextBusy);
    }
    // The same handle again is the same open again.
    let is_again = cx.opens.get(cx.client, args.handle) == Some((fid, args));
    let mut was_size_known = false;
    if args.write && inode.attr.file_type == FileType::Regular && !is_again {
        was_size_known = inode.attr.is_size_known && !cx.are_sizes_doubtful;
        inode.attr.is_size_known = false;
        inode.attr.write_epoch = inode.attr.write_epoch.saturating_add(1);
        inode.attr.version = cx.version;
        cx.tx.put_inode(&inode);
    }
    cx.effect(Effect::Opened { fid, open: args });
    cx.outcome.unsettled.push(fid);
    cx.want_inode(want, &inode);
    if args.write {
        cx.want_write_back(want, &inode);
    }
    cx.want_data(want, &inode, args);
    Ok(Entry { was_size_known, ..cx.entry(&inode) })
}

/// After a restart, or after an eviction before what was written through the handle has arrived: it was open before, so nothing is checked,
/// also not whether others have begun to execute the file since.
///
/// # Errors
/// `Stale` when the file is gone.
pub fn reopen(cx: &mut Cx, fid: Fid, args: OpenArgs) -> Result<MdtReply, Stop> {
    let mut inode = cx.inode(fid)?;
    let is_named_in_recovery = cx.is_recovering && !cx.is_replay;
    let is_again = cx.opens.get(cx.client, args.handle) == Some((fid, args));
    // Otherwise the file had a while without this writer, in which others may have measured it.
    let is_counted_all_along = is_named_in_recovery || is_again;
    if !is_named_in_recovery {
        cx.outcome.unsettled.push(fid);
    }
    // One that leaves was closed: who names it has not heard yet that he has closed it.
    if args.write
        && !cx.is_leaving
        && inode.attr.file_type == FileType::Regular
        && (inode.attr.is_size_known || !is_counted_all_along)
    {
        inode.attr.is_size_known = false;
        inode.attr.write_epoch = inode.attr.write_epoch.saturating_add(1);
        inode.attr.version = cx.version;
        cx.tx.put_inode(&inode);
    }
    cx.effect(Effect::Reopened { fid, open: args });
    Ok(entry_reply(cx.entry(&inode)))
}

/// How a handle is closed.
pub struct Closing {
    pub handle: OpenHandle,
    pub atime: Option<WallTime>,
    pub unchanged_since: Option<u64>,
    pub data: Option<ClosingData>,
}

/// # Errors
/// Those of the store: a handle that is not known is closed already. `Stale` and `TooBig` for data that cannot be here.
pub fn close(cx: &mut Cx, fid: Fid, closing: Closing) -> Result<MdtReply, Stop> {
    let Closing { handle, atime, unchanged_since, data } = closing;
    let Some((open_fid, args)) = cx.opens.get(cx.client, handle).filter(|(open, _)| *open == fid) else {
        // A replay comes before its client names what it had open.
        if let (Some(data), Some(inode)) = (data, cx.tx.inode(fid)?) {
            write_closing(cx, &inode, data)?;
        }
        return Ok(MdtReply::Closed { wants_size: None, attr: None });
    };
    cx.effect(Effect::Closed { handle });
    let Some(mut inode) = cx.tx.inode(open_fid)? else {
        return Ok(MdtReply::Closed { wants_size: None, attr: None });
    };
    let is_last = !cx.opens.is_open_besides(fid, cx.client, handle);
    if let Some(data) = data.filter(|_| cx.goes_at_once) {
        // Without a name it goes when nobody has had it open for a moment.
        write_closing(cx, &inode, data)?;
        let wants_size = args.write && !cx.opens.is_written_besides(fid, cx.client, handle);
        let wants_size = wants_size && !inode.attr.is_size_known;
        return Ok(MdtReply::Closed { wants_size: wants_size.then_some(inode.attr.write_epoch), attr: None });
    }
    if inode.attr.link_count == 0 && is_last && !cx.is_recovering {
        cx.destroy(&inode)?;
        return Ok(MdtReply::Closed { wants_size: None, attr: None });
    }
    let written = match data {
        Some(data) => Some(write_closing(cx, &inode, data)?),
        None => None,
    };
    if let Some(atime) = atime.filter(|atime| *atime > inode.attr.atime) {
        inode.attr.atime = atime;
        inode.attr.version = cx.version;
        cx.tx.put_inode(&inode);
    }
    let is_last_writer = args.write && !cx.opens.is_written_besides(fid, cx.client, handle);
    // No handle of another incarnation: then others may have had the file open and be lost, and their opens with them.
    let is_unchanged = unchanged_since == Some(inode.attr.write_epoch)
        && !cx.are_sizes_doubtful
        && !cx.opens.is_restored(cx.client, handle);
    if is_last_writer && is_unchanged && !inode.attr.is_size_known {
        inode.attr.is_size_known = true;
        if let Some(written) = written {
            inode.attr.size_bytes = inode.attr.size_bytes.max(written.end_bytes);
            inode.attr.block_count =
                inode.attr.block_count.saturating_add(written.blocks).saturating_sub(written.former_blocks);
            take_stamp(cx.now, &mut inode, written.stamp, written.stamp);
        }
        inode.attr.version = cx.version;
        cx.tx.put_inode(&inode);
    }
    let wants_size = (is_last_writer && !inode.attr.is_size_known).then_some(inode.attr.write_epoch);
    let is_told = args.write && (wants_size.is_none() || cx.features & features::CLOSED_ATTR != 0);
    Ok(MdtReply::Closed { wants_size, attr: is_told.then_some(inode.attr) })
}

/// What data that came with a close have changed.
struct Written {
    end_bytes: u64,
    former_blocks: u64,
    blocks: u64,
    stamp: WallTime,
}

fn write_closing(cx: &mut Cx, inode: &Inode, data: ClosingData) -> Result<Written, Status> {
    let layout = inode.layout.as_ref().filter(|layout| layout.is_on_mdt());
    if layout.and_then(|layout| layout.stripe_of(data.object)) != Some(0) {
        return Err(Status::Stale);
    }
    let extent = Extent::at(data.offset_bytes, cx.data.len() as u64);
    if extent.is_empty() {
        return Err(Status::Invalid);
    }
    if extent.end > Layout::ON_MDT_BYTES_MAX || extent.byte_count() != cx.data.len() as u64 {
        return Err(Status::TooBig);
    }
    let mut object = Object::open(cx.tx.store(), data.object)?;
    let former_blocks = object.head().stored_bytes.div_ceil(512);
    object.write(extent.start, &cx.data)?;
    let head = object.put_with(data.stamp, Transno(cx.version.0), &mut cx.tx);
    let blocks = head.stored_bytes.div_ceil(512);
    Ok(Written { end_bytes: extent.end, former_blocks, blocks, stamp: head.stamp })
}

/// Stamps of clients may be ahead by so much: they rise, also where no time passes.
const AHEAD_MAX: Duration = Duration::from_secs(1);

/// Data were changed at `stamp`. A time that this MDT's clock does not reach for long is not believed: the clock was set back since the
/// client has learnt the time here.
fn take_stamp(now: WallTime, inode: &mut Inode, mtime: WallTime, stamp: WallTime) {
    let latest = WallTime(now.0.saturating_add(AHEAD_MAX.as_nanos() as i64));
    let believed = |time: WallTime| if time > latest { now } else { time };
    if stamp > inode.attr.mtime_stamp {
        inode.attr.mtime = believed(mtime);
        inode.attr.mtime_stamp = stamp;
    }
    inode.attr.ctime = inode.attr.ctime.max(believed(stamp));
}

/// Takes the size unless somebody has opened the file for writing or cut it since.
///
/// # Errors
/// `Stale` when the file is gone.
pub fn report_size(cx: &mut Cx, report: &SizeReport) -> Result<MdtReply, Stop> {
    let mut inode = cx.inode(report.fid)?;
    take_report(cx, &mut inode, report);
    Ok(entry_reply(cx.entry(&inode)))
}

/// The same for several files. One that is gone keeps no other from its size.
///
/// # Errors
/// `ProtocolError` for too many; those of the store.
pub fn report_sizes(cx: &mut Cx, reports: &[SizeReport]) -> Result<MdtReply, Stop> {
    if reports.len() > REPORTS_MAX {
        return Err(Stop::Status(Status::ProtocolError));
    }
    let mut sizes = Vec::new();
    for report in reports {
        let mut inode = cx.tx.inode(report.fid)?;
        if let Some(inode) = &mut inode {
            take_report(cx, inode, report);
        }
        // Of a file without a known size nobody is told before its data have left who keeps them back: that one is asked for by itself.
        sizes.push(inode.map(|inode| inode.attr).filter(|attr| attr.is_size_known));
    }
    Ok(MdtReply::Sizes(sizes))
}

fn take_report(cx: &mut Cx, inode: &mut Inode, report: &SizeReport) {
    let is_stale_taken = planted(Fault::StaleSizeTaken) && !inode.attr.is_size_known;
    let is_current = is_stale_taken
        || report.write_epoch == inode.attr.write_epoch
            && !inode.attr.is_size_known
            && !cx.opens.is_written(report.fid)
            && cx.are_opens_known;
    if is_current {
        inode.attr.size_bytes = report.size_bytes;
        inode.attr.block_count = report.block_count;
        inode.attr.is_size_known = true;
        take_stamp(cx.now, inode, report.mtime, report.stamp);
        inode.attr.version = cx.version;
        cx.tx.put_inode(inode);
    }
}

/// Removes the inodes without a name that nobody has open.
///
/// # Errors
/// Those of the store.
pub fn sweep_orphans(cx: &mut Cx, candidates: &[Fid]) -> Result<(), Status> {
    for fid in candidates {
        if cx.opens.is_open(*fid) || cx.tx.get(rows::ORPHANS, &fid.key())?.is_none() {
            continue;
        }
        match cx.tx.inode(*fid)? {
            Some(inode) if inode.attr.link_count == 0 => cx.destroy(&inode)?,
            _ => cx.tx.delete(rows::ORPHANS, fid.key().to_vec()),
        }
    }
    Ok(())
}
