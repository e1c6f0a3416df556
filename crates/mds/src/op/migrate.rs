//! MIGRATE: an inode moves to another MDT, where it gets a new FID. Executed on the MDT that is to have it.
//!
//! A directory moves with all its names, so that everybody sees all of them under the old FID or all of them under the new
//! one; what they lead to stays where it is, and moves by operations of its own. In the place of the inode its old MDT keeps
//! a row: who comes with the old FID is told to look the name up again.
//!
//! What moves is known to be closed: nobody opens symlinks and devices here, and who has a directory open finds it by its name
//! again. A regular file that somebody has open stays. What its MDT has of its data moves with it; the objects on OSTs, which bear
//! its FID, are adopted under the new one when the move is durable, and before anybody sees it (`machine::adoptions`). FIFOs and
//! sockets stay: kernels know them by inode.

use super::{Cx, Stop, create, entry_reply, part, stripes, stripes_on_osts};
use crate::access;
use crate::data::{self, CHUNK_BYTES, Head};
use crate::rows::{self, Adopt, Dentry, Inode};
use crate::tx::{Row, Tx};
use base::names::check_name;
use base::{Attr, Fid, FileType, Layout, ObjectId, Status, Transno};
use std::collections::BTreeMap;
use wire::MdtReply;
use wire::mdt::Credentials;
use wire::peer::{FileData, Part, Whole, WholeFile};

/// What one transaction takes, on the old MDT or on the new one.
const BYTES_MAX: usize = store::BATCH_BYTES_MAX - (64 << 10);
/// An upper bound of what a name takes of that, beside three times its length: it goes, and its inode gets another link.
const NAME_BYTES: usize = 200;
/// Links in one part: it is the value of a row.
const LINK_BYTES_MAX: usize = store::VALUE_BYTES_MAX / 2;
/// Of a link, beside its name.
const LINK_BYTES: usize = 24;
/// Of a stripe of a file, in its layout and in what is to be adopted.
const STRIPE_BYTES: usize = 64;

/// # Errors
/// `NotPermitted` for all but the superuser, `Stale` when the name does not lead to the inode; `NotSupported` for what cannot move,
/// `TooManyLinks` for a file with several names, `TextBusy` for one that is open, `TooBig` for a directory with too many entries; `Invalid` while
/// this MDT is drained.
pub fn run(cx: &mut Cx, parent: Fid, name: &[u8], fid: Fid, creds: &Credentials) -> Result<MdtReply, Stop> {
    check_name(name)?;
    if !access::is_superuser(creds) {
        return Err(Status::NotPermitted.into());
    }
    if cx.is_local(fid) {
        let inode = cx.inode(fid)?;
        return Ok(entry_reply(cx.entry(&inode)));
    }
    if cx.drained_mdts.contains(&cx.mdt_index) && !cx.is_replay {
        return Err(Status::Invalid.into());
    }
    let dentry = dentry(cx, parent, name)?.filter(|dentry| dentry.fid == fid).ok_or(Status::Stale)?;
    if dentry.file_type == FileType::Regular {
        return run_file(cx, (parent, name), fid, creds);
    }
    let remote = cx.remote;
    let whole = remote.wholes.get(&fid).ok_or(Stop::PeekWhole { fid })?;
    check_whole(whole, dentry)?;
    let here = cx.mdt_index;
    let to = remote.fids.get(&here).copied().ok_or(Stop::NewFid { mdt: here })?;
    let inode = take_over(cx, whole, to)?;
    cx.put_link(to, parent, name);
    for part in links_elsewhere(cx, whole, to)? {
        cx.parts.push(part);
    }
    let file_type = dentry.file_type;
    let redirect = Part::Redirect { parent, name: name.to_vec(), old: fid, new: to, file_type };
    part::execute(cx, redirect, creds)?;
    cx.remote_part(fid, Part::GiveAway { fid, to, attr: Box::new(whole.attr.clone()) })?;
    Ok(entry_reply(cx.entry(&inode)))
}

fn run_file(cx: &mut Cx, place: (Fid, &[u8]), fid: Fid, creds: &Credentials) -> Result<MdtReply, Stop> {
    let remote = cx.remote;
    let file = remote.files.get(&fid).ok_or(Stop::PeekFile { fid })?;
    if file.is_open {
        return Err(Status::TextBusy.into());
    }
    check_whole_file(file, fid)?;
    let here = cx.mdt_index;
    let to = remote.fids.get(&here).copied().ok_or(Stop::NewFid { mdt: here })?;
    let inode = take_file_over(cx, file, to)?;
    let (parent, name) = (place.0, place.1.to_vec());
    cx.put_link(to, parent, &name);
    let redirect = Part::Redirect { parent, name, old: fid, new: to, file_type: FileType::Regular };
    part::execute(cx, redirect, creds)?;
    let data = file.data.as_ref().map(|data| data.transno);
    cx.remote_part(fid, Part::GiveFile { fid, to, attr: Box::new(file.attr.clone()), data })?;
    Ok(entry_reply(cx.entry(&inode)))
}

fn dentry(cx: &Cx, parent: Fid, name: &[u8]) -> Result<Option<Dentry>, Stop> {
    if cx.is_local(parent) {
        cx.directory_of(parent, name)?;
        return Ok(cx.tx.dentry(parent, name)?);
    }
    let key = (parent, name.to_vec());
    let peeked = cx.remote.peeked.get(&key).ok_or(Stop::Peek { parent: key.0, name: key.1 })?;
    Ok(peeked.entry.map(|(fid, file_type)| Dentry { fid, file_type }))
}

/// What another MDT says of its inode.
fn check_whole(whole: &Whole, dentry: Dentry) -> Result<(), Status> {
    let is_directory = dentry.file_type == FileType::Directory;
    let are_names = whole.entries.iter().all(|(name, ..)| check_name(name).is_ok());
    let is_sound = whole.attr.file_type == dentry.file_type && are_names;
    if !is_sound || (!is_directory && !whole.entries.is_empty()) || byte_count(whole) > BYTES_MAX {
        return Err(Status::ProtocolError);
    }
    Ok(())
}

fn byte_count(whole: &Whole) -> usize {
    let names = whole.entries.iter().map(|(name, ..)| NAME_BYTES + 3 * name.len());
    let xattrs = whole.xattrs.iter().map(|(name, value)| NAME_BYTES + name.len() + value.len());
    names.chain(xattrs).sum()
}

/// The same of a regular file.
fn check_whole_file(file: &WholeFile, fid: Fid) -> Result<(), Status> {
    let is_sound = |layout: &Layout| layout.is_valid() && layout.fid == fid;
    let is_on_mdt = file.layout.as_ref().is_some_and(Layout::is_on_mdt);
    let chunk_count = Layout::ON_MDT_BYTES_MAX.div_ceil(CHUNK_BYTES);
    let is_chunk = |(number, bytes): &(u32, Vec<u8>)| {
        u64::from(*number) < chunk_count && !bytes.is_empty() && bytes.len() as u64 <= CHUNK_BYTES
    };
    let are_data_sound = file.data.as_ref().is_none_or(|data| {
        is_on_mdt
            && data.size_bytes <= Layout::ON_MDT_BYTES_MAX
            && data.chunks.iter().all(is_chunk)
            && data.chunks.is_sorted_by(|a, b| a.0 < b.0)
    });
    let is_file = file.attr.file_type == FileType::Regular && file.attr.link_count == 1;
    if !is_file
        || !file.layout.as_ref().is_none_or(is_sound)
        || !are_data_sound
        || file_byte_count(file) > BYTES_MAX
    {
        return Err(Status::ProtocolError);
    }
    Ok(())
}

fn file_byte_count(file: &WholeFile) -> usize {
    let xattrs = file.xattrs.iter().map(|(name, value)| NAME_BYTES + name.len() + value.len());
    let chunks = file.data.iter().flat_map(|data| &data.chunks).map(|(_, bytes)| NAME_BYTES + bytes.len());
    // Its layout, and the rows that say what is to be adopted.
    let stripes = file.layout.as_ref().map_or(0, |layout| layout.stripe_count() as usize * STRIPE_BYTES);
    xattrs.chain(chunks).sum::<usize>() + stripes
}

/// The file as this MDT has it from now on; nobody sees it before its objects have been adopted.
fn take_file_over(cx: &mut Cx, file: &WholeFile, to: Fid) -> Result<Inode, Status> {
    if cx.tx.inode(to)?.is_some() {
        return Err(Status::VersionConflict);
    }
    let from = file.attr.fid;
    let layout = file.layout.clone().map(|layout| Layout { fid: to, ..layout });
    let mut attr = Attr { fid: to, version: cx.version, ..file.attr.clone() };
    if file.is_size_doubtful {
        // What was measured before says nothing.
        attr.is_size_known = false;
        attr.write_epoch = attr.write_epoch.saturating_add(1);
    }
    for ((ost, component), stripes) in layout.as_ref().map(stripes_on_osts).unwrap_or_default() {
        let row = rows::encode(&Adopt { from, stripes });
        cx.tx.put(rows::ADOPTS, rows::destroy_key(ost, to, component), row);
    }
    if let (Some(data), Some(layout)) = (&file.data, &layout) {
        put_data(cx, data, layout.object(0));
    }
    let mut inode = Inode { layout, ..Inode::new(attr) };
    create::put_new(cx, &mut inode, &file.xattrs);
    Ok(inode)
}

fn put_data(cx: &mut Cx, data: &FileData, object: ObjectId) {
    let stored = data.chunks.iter().map(|(_, bytes)| bytes.len() as u64);
    let head = Head {
        size_bytes: data.size_bytes,
        stored_bytes: stored.sum(),
        stamp: data.stamp,
        transno: Transno(cx.version.0),
    };
    cx.tx.put(rows::DATA_HEADS, data::head_key(&object), rows::encode(&head));
    for (number, bytes) in &data.chunks {
        cx.tx.put(rows::DATA, data::chunk_key(&object, u64::from(*number)), bytes.clone());
    }
}

/// The inode as this MDT has it from now on, and its names.
fn take_over(cx: &mut Cx, whole: &Whole, to: Fid) -> Result<Inode, Status> {
    if cx.tx.inode(to)?.is_some() {
        return Err(Status::VersionConflict);
    }
    let mut inode = Inode {
        symlink_target: whole.symlink_target.clone(),
        default_layout: whole.default_layout.clone(),
        default_striping: whole.default_striping.clone(),
        ..Inode::new(Attr { fid: to, version: cx.version, ..whole.attr.clone() })
    };
    create::put_new(cx, &mut inode, &whole.xattrs);
    for (name, fid, file_type) in &whole.entries {
        cx.tx.put_dentry(to, name, Dentry { fid: *fid, file_type: *file_type });
        if cx.is_local(*fid) {
            move_link(cx, *fid, (whole.attr.fid, to), name)?;
        }
    }
    Ok(inode)
}

/// What other MDTs than the old and the new one have to know of the names.
fn links_elsewhere(cx: &Cx, whole: &Whole, to: Fid) -> Result<Vec<(u16, Part)>, Status> {
    let old_parent = whole.attr.fid;
    let mut links_of: BTreeMap<u16, Vec<(Fid, Vec<u8>)>> = BTreeMap::new();
    for (name, fid, _) in &whole.entries {
        let mdt = fid.mdt_index().ok_or(Status::Corrupt)?;
        if mdt != cx.mdt_index && Some(mdt) != old_parent.mdt_index() {
            links_of.entry(mdt).or_default().push((*fid, name.clone()));
        }
    }
    let byte_count = |links: &Vec<(Fid, Vec<u8>)>| -> usize {
        links.iter().map(|(_, name)| LINK_BYTES + name.len()).sum()
    };
    if links_of.values().any(|links| byte_count(links) > LINK_BYTES_MAX) {
        return Err(Status::TooBig);
    }
    let part = |(mdt, links)| (mdt, Part::MoveLinks { old_parent, parent: to, links });
    Ok(links_of.into_iter().map(part).collect())
}

/// All of an inode of this MDT that is to move.
///
/// # Errors
/// `Stale`, `Moved`; as `run` for what stays.
pub fn whole(cx: &Cx, fid: Fid) -> Result<Whole, Status> {
    let inode = cx.inode(fid)?;
    check_is_no_file(&inode)?;
    check_may_move(cx, &inode)?;
    let xattrs = xattrs_of(cx, fid)?;
    let mut entries = Vec::new();
    // One more than can move.
    for (key, value) in cx.tx.scan_prefix(rows::DENTRIES, &fid.key(), 1 + BYTES_MAX / NAME_BYTES)? {
        let (_, _, name) = rows::split_dentry_key(&key).ok_or(Status::Corrupt)?;
        let dentry: Dentry = rows::decode(&value)?;
        entries.push((name.to_vec(), dentry.fid, dentry.file_type));
    }
    let Inode { attr, symlink_target, default_layout, default_striping, .. } = inode;
    let whole = Whole { attr, symlink_target, xattrs, default_layout, default_striping, entries };
    if byte_count(&whole) > BYTES_MAX { Err(Status::TooBig) } else { Ok(whole) }
}

/// Who asks so for a regular file knows nothing of its data.
fn check_is_no_file(inode: &Inode) -> Result<(), Status> {
    if inode.attr.file_type == FileType::Regular { Err(Status::NotSupported) } else { Ok(()) }
}

fn xattrs_of(cx: &Cx, fid: Fid) -> Result<Vec<Row>, Status> {
    let rows = cx.tx.short_rows_of_prefix(rows::XATTRS, &fid.key(), BYTES_MAX)?.ok_or(Status::TooBig)?;
    let named = rows.into_iter().map(|(key, value)| Some((key.get(16..)?.to_vec(), value)));
    named.collect::<Option<_>>().ok_or(Status::Corrupt)
}

/// All of a regular file of this MDT that is to move.
///
/// # Errors
/// As `whole`.
pub fn whole_file(cx: &Cx, fid: Fid) -> Result<WholeFile, Status> {
    let inode = cx.inode(fid)?;
    if inode.attr.file_type != FileType::Regular {
        return Err(part::GIVE_WAY);
    }
    check_may_move(cx, &inode)?;
    let file = WholeFile {
        data: data_of(cx, &inode)?,
        attr: inode.attr,
        xattrs: xattrs_of(cx, fid)?,
        layout: inode.layout,
        is_open: cx.opens.is_in_use(fid),
        is_size_doubtful: cx.are_sizes_doubtful,
    };
    if file_byte_count(&file) > BYTES_MAX { Err(Status::TooBig) } else { Ok(file) }
}

fn head_of(cx: &Cx, inode: &Inode) -> Result<Option<(ObjectId, Head)>, Status> {
    let Some(layout) = inode.layout.as_ref().filter(|layout| layout.is_on_mdt()) else { return Ok(None) };
    let object = layout.object(0);
    let Some(head) = cx.tx.get(rows::DATA_HEADS, &data::head_key(&object))? else { return Ok(None) };
    Ok(Some((object, rows::decode(&head)?)))
}

fn data_of(cx: &Cx, inode: &Inode) -> Result<Option<FileData>, Status> {
    let Some((object, head)) = head_of(cx, inode)? else { return Ok(None) };
    let Head { size_bytes, stamp, transno, .. } = head;
    let mut chunks = Vec::new();
    for (key, bytes) in cx.tx.scan_prefix(rows::DATA, &data::head_key(&object), usize::MAX)? {
        let (_, number) = data::split_chunk_key(&key).ok_or(Status::Corrupt)?;
        chunks.push((u32::try_from(number).map_err(|_| Status::Corrupt)?, bytes));
    }
    Ok(Some(FileData { size_bytes, stamp, transno, chunks }))
}

/// A regular file goes from here. Its objects are the other MDT's, as they are.
///
/// # Errors
/// `GIVE_WAY` when it is not as it was told; as `whole`.
pub fn give_file(cx: &mut Cx, fid: Fid, to: Fid, attr: &Attr, data: Option<Transno>) -> Result<(), Status> {
    let inode = cx.tx.inode(fid)?.filter(|inode| inode.attr == *attr).ok_or(part::GIVE_WAY)?;
    let is_same = head_of(cx, &inode)?.map(|(_, head)| head.transno) == data;
    if !is_same || inode.attr.file_type != FileType::Regular {
        return Err(part::GIVE_WAY);
    }
    check_may_move(cx, &inode)?;
    if let Some(layout) = &inode.layout {
        data::destroy(&mut cx.tx, layout)?;
    }
    cx.destroy(&Inode { layout: None, ..inode })?;
    cx.tx.put(rows::MOVED, fid.key().to_vec(), rows::encode(&to));
    Ok(())
}

fn check_may_move(cx: &Cx, inode: &Inode) -> Result<(), Status> {
    let fid = inode.attr.fid;
    match inode.attr.file_type {
        FileType::Directory if stripes::master_of(cx, fid)?.is_some() || fid == Fid::ROOT => {
            Err(Status::NotSupported)
        }
        FileType::Directory => Ok(()),
        FileType::Regular if inode.layout.as_ref().is_some_and(|layout| layout.fid != fid) => {
            Err(Status::NotSupported)
        }
        FileType::Regular | FileType::Symlink | FileType::CharDevice | FileType::BlockDevice => {
            if inode.attr.link_count == 1 { Ok(()) } else { Err(Status::TooManyLinks) }
        }
        FileType::Fifo | FileType::Socket => Err(Status::NotSupported),
    }
}

/// The inode goes from here, with its names; what these lead to, and is here, stays under its new directory.
///
/// # Errors
/// `GIVE_WAY` when it is not as it was told; as `whole`.
pub fn give_away(cx: &mut Cx, fid: Fid, to: Fid, attr: &Attr) -> Result<(), Status> {
    let inode = cx.tx.inode(fid)?.filter(|inode| inode.attr == *attr).ok_or(part::GIVE_WAY)?;
    check_is_no_file(&inode)?;
    check_may_move(cx, &inode)?;
    for (key, value) in cx.tx.scan_prefix(rows::DENTRIES, &fid.key(), usize::MAX)? {
        let (_, _, name) = rows::split_dentry_key(&key).ok_or(Status::Corrupt)?;
        let dentry: Dentry = rows::decode(&value)?;
        if cx.is_local(dentry.fid) {
            move_link(cx, dentry.fid, (fid, to), name)?;
        }
        cx.tx.delete(rows::DENTRIES, key);
    }
    cx.destroy(&inode)?;
    cx.tx.put(rows::MOVED, fid.key().to_vec(), rows::encode(&to));
    Ok(())
}

/// The directory stays as it is, but for its version: an MDT that was told all of it, to take it over, has been told what is not so any more.
///
/// # Errors
/// `GIVE_WAY` when the name does not lead to `old`; `NotFound`, `NotDirectory`.
pub fn redirect(
    cx: &mut Cx,
    parent: Fid,
    name: &[u8],
    (old, new): (Fid, Fid),
    file_type: FileType,
) -> Result<(), Status> {
    let mut directory = cx.directory_of(parent, name)?;
    if cx.tx.dentry(parent, name)? != Some(Dentry { fid: old, file_type }) {
        return Err(part::GIVE_WAY);
    }
    cx.tx.put_dentry(parent, name, Dentry { fid: new, file_type });
    directory.attr.version = cx.version;
    cx.tx.put_inode(&directory);
    Ok(())
}

/// The directory in which an inode of this MDT has this name is another one's now.
///
/// # Errors
/// `GIVE_WAY` when the inode does not know that it has the name: it has just got it, or lost it.
pub fn move_link(cx: &mut Cx, fid: Fid, (from, to): (Fid, Fid), name: &[u8]) -> Result<(), Status> {
    if !has_link(&cx.tx, fid, from, name)? {
        return Err(part::GIVE_WAY);
    }
    cx.delete_link(fid, from, name);
    cx.put_link(fid, to, name);
    Ok(())
}

/// Whether an inode of this MDT is there and knows that it has a name.
///
/// # Errors
/// Those of the store.
pub fn has_link(tx: &Tx, fid: Fid, parent: Fid, name: &[u8]) -> Result<bool, Status> {
    // What another operation holds shows in the inode.
    let is_there = tx.inode(fid)?.is_some();
    Ok(is_there && tx.get(rows::LINKS, &rows::link_key(fid, parent, name))?.is_some())
}
