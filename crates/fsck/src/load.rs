//! Reads the rows of all targets, with the decoders of the servers that wrote them.

use crate::Target;
use crate::finding::{Finding, Findings, Kind, RESTORE, Repair, listed, shown};
use crate::image::{Image, Mdt, Ost, Sessions};
use crate::watch::{Doing, Ticker, Watch};
use base::{Fid, ObjectId, Status, TargetId, TargetKind};
use mds::data;
use mds::rows::{self as mdt_rows, Adopt, Decision, Destroy, Inode, Prepare, Streamed};
use oss::rows::{self as ost_rows, ObjectRow};
use std::collections::{BTreeMap, BTreeSet};
use store::{KEY_BYTES_MAX, MetaStore, ObjectStore, StoreError, Table, Whence};
use target::core::inspect::{self, SessionRow};
use wire::peer::{OperationId, Part};

/// Objects that are asked for together.
const LISTED_COUNT: usize = 1024;

/// Key and value; no value where the row is damaged.
type VisitRow<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>);

/// Rows of one table in order, those behind damaged ones too, for which the value is `None`.
///
/// # Errors
/// Those of the store but `CorruptRow`: what is behind cannot be read.
fn rows(store: &dyn MetaStore, table: Table, visit: VisitRow<'_>) -> Result<(), StoreError> {
    let end = [0xff; KEY_BYTES_MAX];
    let mut from = Vec::new();
    loop {
        let start = from.clone();
        let scanned = store.scan(table, &start, &end, usize::MAX, &mut |key, value| {
            visit(key, Some(value));
            from.clear();
            from.extend_from_slice(key);
            from.push(0);
            true
        });
        match scanned {
            Err(StoreError::CorruptRow { key, .. }) => {
                // A store may refuse a whole part for one row.
                store.scan(table, &from, &key, usize::MAX, &mut |key, value| {
                    visit(key, Some(value));
                    true
                })?;
                visit(&key, None);
                from = key;
                from.push(0);
            }
            scanned => return scanned,
        }
    }
}

/// `Corrupt` for a row that no server understands.
type Taken<T> = Result<T, Status>;

struct Loader<'a, 'b> {
    target: TargetId,
    store: &'a dyn MetaStore,
    out: &'a mut Findings,
    ticker: &'a mut Ticker<'b>,
    read: BTreeSet<Table>,
    /// Tables that could not be read to their end, by what the store says.
    unread: BTreeMap<String, BTreeSet<String>>,
}

impl Loader<'_, '_> {
    /// Hands each row of a table to `take`, which answers an error for what it does not understand. False when not all rows
    /// could be read.
    fn table(
        &mut self,
        table: Table,
        name: &'static str,
        mut take: impl FnMut(&[u8], Option<&[u8]>) -> Taken<()>,
    ) -> bool {
        self.read.insert(table);
        let (out, target, ticker) = (&mut *self.out, self.target, &mut *self.ticker);
        let read = rows(self.store, table, &mut |key, value| {
            ticker.item();
            if take(key, value).is_err() || value.is_none() {
                out.add(damaged_row(target, name, key, value.is_some()));
            }
        });
        match read {
            Ok(()) => true,
            Err(error) => {
                self.unread.entry(why(error)).or_default().insert(format!("{name}s"));
                false
            }
        }
    }

    /// What a newer version has left, which no server of this one takes either. False where there is such.
    fn is_known(&mut self, known: Result<(), StoreError>) -> bool {
        let Err(error @ StoreError::UnknownRow { table, .. }) = known else { return true };
        // Of a table that is read here all rows are looked at.
        if self.read.contains(&table) {
            return true;
        }
        let repair = Repair::Not("use a version that knows it");
        let subject = format!("table {table}");
        self.out.add(Finding::new(Kind::RowDamaged, self.target, subject, error.to_string(), repair));
        false
    }

    /// Says which tables could not be read, in one line for each reason.
    fn finish(self) {
        for (why, tables) in &self.unread {
            let what = format!("{why}: not all rows can be read");
            let subject = format!("tables of {}", listed(tables));
            self.out.add(Finding::new(Kind::IndexDamaged, self.target, subject, what, Repair::Not(RESTORE)));
        }
    }
}

fn why(error: StoreError) -> String {
    match error {
        StoreError::CorruptIndex { what } => what.to_string(),
        error => error.to_string(),
    }
}

fn damaged_row(target: TargetId, name: &str, key: &[u8], is_sound: bool) -> Finding {
    let what = match is_sound {
        true => "its bytes are sound, and no row of this version",
        false => "it fails its checksum",
    };
    let fid = Fid::from_key(key).filter(|fid| fid.mdt_index().is_some());
    let subject = match fid {
        Some(fid) => format!("{name} {fid} {}", shown(key.get(16..).unwrap_or_default())),
        None => format!("{name} {}", shown(key)),
    };
    Finding::new(Kind::RowDamaged, target, subject.trim_end(), what, Repair::Not(RESTORE))
}

fn decoded<T>(value: Option<&[u8]>, decode: impl Fn(&[u8]) -> Taken<T>) -> Taken<Option<T>> {
    value.map(decode).transpose()
}

impl Image {
    /// Reads all targets; what cannot be read is reported.
    pub fn load(targets: &[Target<'_>], fsname: &str, out: &mut Findings, watch: Watch<'_>) -> Image {
        let mut image = Image::default();
        let rows = Doing::of("reading rows", "rows", None);
        let mut ticker = Ticker::begin(watch, rows);
        for target in targets {
            let id = target.id;
            let Some(store) = target.meta else {
                match id.kind {
                    TargetKind::Mdt => drop(image.mdts.insert(id.index, Mdt::default())),
                    TargetKind::Ost => drop(image.osts.insert(id.index, Ost::default())),
                    TargetKind::Mgt => {}
                }
                continue;
            };
            ticker.step(rows);
            let unread = BTreeMap::new();
            let read = BTreeSet::new();
            let mut loader = Loader { target: id, store, out: &mut *out, ticker: &mut ticker, read, unread };
            match id.kind {
                TargetKind::Mgt => loader.load_mgt(&mut image, fsname),
                TargetKind::Mdt => {
                    let mdt = loader.load_mdt(&mut image);
                    image.mdts.insert(id.index, mdt);
                }
                TargetKind::Ost => {
                    let ost = loader.load_ost(target.objects);
                    image.osts.insert(id.index, ost);
                }
            }
            loader.finish();
        }
        image
    }
}

impl Loader<'_, '_> {
    fn load_mgt(&mut self, image: &mut Image, fsname: &str) {
        self.table(mgs::CONFIGS, "configuration", |key, value| {
            let Some(value) = value else { return Ok(()) };
            let config = mgs::decode(value).filter(|config| config.fsname.as_bytes() == key);
            let config = config.ok_or(Status::Corrupt)?;
            if config.fsname == fsname {
                image.config = Some(config);
            }
            Ok(())
        });
        self.load_sessions();
        self.is_known(mgs::check_known(self.store));
    }

    fn load_mdt(&mut self, image: &mut Image) -> Mdt {
        let mut mdt = Mdt { is_whole: true, ..Mdt::default() };
        let are_names_whole = self.load_names(&mut mdt);
        let is_rest_whole = self.load_attributes(&mut mdt);
        let are_operations_whole = self.load_operations(&mut mdt, image);
        let is_data_whole = self.load_data(&mut mdt);
        mdt.sessions = self.load_sessions();
        let is_known = self.is_known(mdt_rows::check_known(self.store));
        mdt.is_whole = are_names_whole
            && is_rest_whole
            && are_operations_whole
            && is_data_whole
            && mdt.sessions.is_whole
            && is_known;
        mdt
    }

    fn load_names(&mut self, mdt: &mut Mdt) -> bool {
        let dentries = self.table(mdt_rows::DENTRIES, "dentry", |key, value| {
            let (parent, position, name) = mdt_rows::split_dentry_key(key).ok_or(Status::Corrupt)?;
            let dentry = decoded(value, mdt_rows::decode);
            let is_sound = dentry.is_ok();
            mdt.dentries.insert((parent, position, name.to_vec()), dentry.unwrap_or_default());
            if is_sound { Ok(()) } else { Err(Status::Corrupt) }
        });
        let links = self.table(mdt_rows::LINKS, "link", |key, value| {
            let fid = Fid::from_key(key).ok_or(Status::Corrupt)?;
            let (parent, name) = mdt_rows::split_link_key(key).ok_or(Status::Corrupt)?;
            mdt.links.entry(fid).or_default().insert((parent, name.to_vec()));
            if value.is_none_or(<[u8]>::is_empty) { Ok(()) } else { Err(Status::Corrupt) }
        });
        dentries && links
    }

    fn load_attributes(&mut self, mdt: &mut Mdt) -> bool {
        let inodes = self.table(mdt_rows::INODES, "inode", |key, value| {
            let fid = Fid::from_key(key).filter(|_| key.len() == 16).ok_or(Status::Corrupt)?;
            match decoded(value, mdt_rows::decode::<Inode>) {
                Ok(Some(inode)) if inode.attr.fid == fid => drop(mdt.inodes.insert(fid, inode)),
                _ => {
                    mdt.unknown.insert(fid);
                    return Err(Status::Corrupt);
                }
            }
            Ok(())
        });
        let xattrs = self.table(mdt_rows::XATTRS, "xattr", |key, _| {
            let fid = Fid::from_key(key).ok_or(Status::Corrupt)?;
            let counted = mdt.xattrs.entry(fid).or_default();
            counted.count += 1;
            counted.name_bytes += (key.len() - 16) as u32 + 1;
            Ok(())
        });
        let orphans = self.table(mdt_rows::ORPHANS, "orphan", |key, value| {
            mdt.orphans.insert(Fid::from_key(key).ok_or(Status::Corrupt)?);
            let is_known = |value: &[u8]| value.is_empty() || value == mdt_rows::NEVER_NAMED;
            if value.is_none_or(is_known) { Ok(()) } else { Err(Status::Corrupt) }
        });
        inodes && xattrs && orphans
    }

    /// What is not done everywhere yet, and what the MDT has noted for itself. Of a row that cannot be read nobody knows what it
    /// is about, so that the MDT is not whole.
    fn load_operations(&mut self, mdt: &mut Mdt, image: &mut Image) -> bool {
        let mut is_known = true;
        let destroys = self.table(mdt_rows::DESTROYS, "destroy", |key, value| {
            let read = mdt_rows::split_destroy_key(key).ok_or(Status::Corrupt);
            let read = read.and_then(|place| Ok((place, decoded(value, mdt_rows::decode::<Destroy>)?)));
            match read {
                Ok((place, Some(destroy))) => drop(mdt.destroys.insert(place, destroy.stripes)),
                Ok((_, None)) => is_known = false,
                Err(status) => {
                    is_known = false;
                    return Err(status);
                }
            }
            Ok(())
        });
        let moved = self.table(mdt_rows::MOVED, "moved inode", |key, value| {
            let fid = Fid::from_key(key).filter(|_| key.len() == 16).ok_or(Status::Corrupt)?;
            let to = decoded(value, mdt_rows::decode::<Fid>);
            let is_sound = to.is_ok();
            mdt.moved.insert(fid, to.unwrap_or_default());
            if is_sound { Ok(()) } else { Err(Status::Corrupt) }
        });
        let adopts = self.table(mdt_rows::ADOPTS, "adoption", |key, value| {
            let read = mdt_rows::split_destroy_key(key).ok_or(Status::Corrupt);
            let read = read.and_then(|place| Ok((place, decoded(value, mdt_rows::decode::<Adopt>)?)));
            match read {
                Ok(((_, fid, _), Some(adopt))) => {
                    image.pending_count += 1;
                    image.moving.extend([fid, adopt.from]);
                }
                Ok((_, None)) => is_known = false,
                Err(status) => {
                    is_known = false;
                    return Err(status);
                }
            }
            Ok(())
        });
        let prepares = self.table(mdt_rows::PREPARES, "prepare", |key, value| {
            let read = mdt_rows::split_operation_key(key).ok_or(Status::Corrupt);
            let read = read.and_then(|_| decoded(value, mdt_rows::decode::<Prepare>));
            match &read {
                Ok(Some(prepare)) => {
                    image.pending_count += 1;
                    image.moving.extend(prepare.parts.iter().flat_map(fids_of));
                    image.moving.extend(prepare.parts.iter().flat_map(|part| fids_in(part, mdt)));
                }
                _ => is_known = false,
            }
            read.map(drop)
        });
        let decisions = self.table(mdt_rows::DECISIONS, "decision", |key, value| {
            mdt_rows::split_operation_key(key).ok_or(Status::Corrupt)?;
            decoded(value, mdt_rows::decode::<Decision>).map(drop)
        });
        let streamed = self.table(mdt_rows::STREAMED, "streamed part", |key, value| {
            let read = mdt_rows::split_streamed_key(key).ok_or(Status::Corrupt);
            let read = read.and_then(|at| Ok((at, decoded(value, mdt_rows::decode::<Streamed>)?)));
            match &read {
                Ok(((participant, _), Some(streamed))) => {
                    // In the order of the stream: the first one counts.
                    mdt.streamed_after.entry(*participant).or_insert(streamed.previous);
                    image.pending_count += 1;
                    image.moving.extend(streamed.parts.iter().flat_map(fids_of));
                }
                _ => is_known = false,
            }
            read.map(drop)
        });
        let state = self.table(mdt_rows::STATE, "state", |key, value| {
            match key {
                mdt_rows::KNOWN_TARGETS_KEY => {
                    mdt.known = decoded(value, mdt_rows::decode)?.unwrap_or_default()
                }
                mdt_rows::POOLS_KEY => drop(decoded(value, mdt_rows::decode::<Vec<base::Pool>>)?),
                mdt_rows::NO_CREATE_KEY | mdt_rows::NO_CREATE_MDTS_KEY => {
                    drop(decoded(value, mdt_rows::decode::<BTreeSet<u16>>)?)
                }
                mdt_rows::STRAYS_KEY => match decoded(value, mdt_rows::decode) {
                    Ok(Some(before)) => mdt.strays_before = Some(before),
                    _ => {
                        is_known = false;
                        return Err(Status::Corrupt);
                    }
                },
                key if key.starts_with(mdt_rows::EXECUTED_PREFIX) => {
                    if let Some(id) = decoded(value, mdt_rows::decode::<OperationId>)? {
                        mdt.executed.insert(id.mdt_index, id);
                    }
                }
                key if mdt_rows::split_evicted_key(key).is_some() => {
                    let _: Option<mdt_rows::Evicted> = decoded(value, mdt_rows::decode_evicted)?;
                }
                key if key.starts_with(mdt_rows::GIVEN_PREFIX) => {
                    let _: Option<u16> = decoded(value, mdt_rows::decode::<u16>)?;
                }
                _ => return Err(Status::Corrupt),
            }
            Ok(())
        });
        destroys && moved && adopts && prepares && decisions && streamed && state && is_known
    }

    fn load_data(&mut self, mdt: &mut Mdt) -> bool {
        let heads = self.table(mdt_rows::DATA_HEADS, "data head", |key, value| {
            let object = data::split_head_key(key).filter(|_| key.len() == 20).ok_or(Status::Corrupt)?;
            let head = decoded(value, mdt_rows::decode);
            let is_sound = head.is_ok();
            mdt.heads.insert(object, head.unwrap_or_default());
            if is_sound { Ok(()) } else { Err(Status::Corrupt) }
        });
        let mut are_chunks_sound = true;
        let chunks = self.table(mdt_rows::DATA, "data chunk", |key, value| {
            let (object, chunk) = data::split_chunk_key(key).ok_or(Status::Corrupt)?;
            are_chunks_sound &= value.is_some();
            let byte_count = value.map_or(0, |value| value.len() as u64);
            mdt.chunks.entry(object).or_default().insert(chunk, byte_count);
            Ok(())
        });
        heads && chunks && are_chunks_sound
    }

    fn load_ost(&mut self, objects: Option<&dyn ObjectStore>) -> Ost {
        let mut ost = Ost::default();
        let id_of = |key: &[u8]| ObjectId::from_key(key).filter(|_| key.len() == 24).ok_or(Status::Corrupt);
        let rows = self.table(ost_rows::OBJECTS, "object", |key, value| {
            id_of(key)?;
            decoded(value, ost_rows::decode::<ObjectRow>).map(drop)
        });
        let mut are_known = true;
        let tombstones = self.table(ost_rows::TOMBSTONES, "tombstone", |key, value| {
            // Damaged or not, the object is taken for destroyed.
            let object = id_of(key)?;
            ost.tombstones.insert(object);
            if let Some((_, true)) = decoded(value, ost_rows::decode_tombstone)? {
                ost.adopted.insert(object);
            }
            Ok(())
        });
        let born = self.table(ost_rows::BORN, "birth", |key, value| {
            let object = id_of(key)?;
            match decoded(value, ost_rows::decode_born) {
                Ok(Some(born)) => drop(ost.born.insert(object, born)),
                _ => {
                    are_known = false;
                    return Err(Status::Corrupt);
                }
            }
            Ok(())
        });
        ost.sessions = self.load_sessions();
        let is_known = self.is_known(ost_rows::check_known(self.store));
        let are_objects_whole = objects.is_some_and(|objects| self.load_objects(&mut ost, objects));
        ost.is_whole =
            rows && tombstones && born && are_known && ost.sessions.is_whole && are_objects_whole && is_known;
        ost
    }

    fn load_objects(&mut self, ost: &mut Ost, objects: &dyn ObjectStore) -> bool {
        self.ticker.step(Doing::of("looking at objects", "objects", None));
        let mut after = None;
        loop {
            let page = match objects.list(after.as_ref(), LISTED_COUNT) {
                Ok(page) => page,
                Err(error) => {
                    self.unreadable("the objects".to_string(), &error);
                    return false;
                }
            };
            let Some(last) = page.last().copied() else { return true };
            after = Some(last);
            for object in page {
                self.ticker.item();
                self.load_object(ost, objects, object);
            }
        }
    }

    fn load_object(&mut self, ost: &mut Ost, objects: &dyn ObjectStore, object: ObjectId) {
        match objects.stat(&object) {
            Ok(Some(stat)) => {
                ost.objects.insert(object, stat);
                // Opened to be changed, as in a repair, a file without a header would get one, and checksums of whatever is there.
                if !stat.has_begun {
                    return;
                }
            }
            // Not any more.
            Ok(None) => return,
            Err(error) => {
                ost.cut.insert(object, 0);
                return self.unreadable(object.to_string(), &error);
            }
        }
        // Opens it, and so finds out whether its file has the length that it had.
        match objects.seek(&object, 0, Whence::Data) {
            Ok(_) => {}
            Err(StoreError::CorruptObject { offset_bytes, .. }) => {
                ost.cut.insert(object, offset_bytes);
            }
            Err(error) => {
                ost.cut.insert(object, 0);
                self.unreadable(object.to_string(), &error);
            }
        }
    }

    fn unreadable(&mut self, subject: String, error: &StoreError) {
        let repair = Repair::Not("bring the storage back");
        let finding = Finding::new(Kind::ObjectUnreadable, self.target, subject, error.to_string(), repair);
        self.out.add(finding);
    }

    fn load_sessions(&mut self) -> Sessions {
        let mut sessions = Sessions { is_whole: true, applied: self.store.applied(), ..Sessions::default() };
        for table in inspect::TABLES {
            let mut is_known = true;
            let is_read = self.table(table, "session", |key, value| {
                let row = value.ok_or(Status::Corrupt);
                let row = row.and_then(|value| inspect::read(table, key, value).map_err(|_| Status::Corrupt));
                let Ok(row) = row else {
                    is_known = false;
                    return Err(Status::Corrupt);
                };
                match row {
                    SessionRow::Client { client, incarnation } => {
                        sessions.clients.insert(client, incarnation);
                    }
                    SessionRow::Slot(client) => {
                        sessions.slots.entry(client).or_default().push(key.to_vec());
                    }
                    SessionRow::State { epoch } => sessions.epoch = Some(epoch),
                    SessionRow::Mark(mark) => sessions.mark = mark,
                    SessionRow::LastMark { epoch, mark } => drop(sessions.last_marks.insert(epoch, mark)),
                    SessionRow::Start(start) => sessions.starts.push(start),
                    SessionRow::Caller(client, start) => drop(sessions.callers.insert(client, start)),
                }
                Ok(())
            });
            sessions.is_whole &= is_read && is_known;
        }
        sessions
    }
}

/// The targets that belong to a file system, as far as those that are given know: their configuration, and what MDTs have noted of it. The
/// first MDT is one of each: what OSTs alone have would all be without an inode.
pub fn expected(targets: &[Target<'_>], fsname: &str) -> BTreeSet<TargetId> {
    let mut expected = BTreeSet::new();
    for target in targets {
        if target.id.kind != TargetKind::Mgt {
            expected.insert(TargetId::mdt(0));
        }
        let Some(store) = target.meta else { continue };
        // What cannot be read is found by the check.
        match target.id.kind {
            TargetKind::Mgt => {
                let row = store.get(mgs::CONFIGS, fsname.as_bytes()).ok().flatten();
                let config = row.and_then(|row| mgs::decode(&row));
                expected.extend(config.into_iter().flat_map(|config| config.targets).map(|known| known.id));
            }
            TargetKind::Mdt => {
                let row = store.get(mdt_rows::STATE, mdt_rows::KNOWN_TARGETS_KEY).ok().flatten();
                let known = row.and_then(|row| mdt_rows::decode::<mdt_rows::KnownTargets>(&row).ok());
                let known = known.unwrap_or_default();
                expected.extend(known.osts.iter().map(|ost| TargetId::ost(*ost)));
                expected.extend((0..known.mdt_count).map(TargetId::mdt));
            }
            TargetKind::Ost => {}
        }
    }
    expected
}

/// What is in a directory that is about to leave: where it goes, the same names may be already.
fn fids_in(part: &Part, mdt: &Mdt) -> Vec<Fid> {
    let Part::GiveAway { fid: directory, .. } = part else { return Vec::new() };
    let names = mdt.dentries.range((*directory, 0, Vec::new())..);
    let inside = names.take_while(|((parent, ..), _)| parent == directory);
    inside.filter_map(|(_, dentry)| dentry.map(|dentry| dentry.fid)).collect()
}

/// Every inode and directory that a part of an operation is about.
fn fids_of(part: &Part) -> BTreeSet<Fid> {
    let mut fids = BTreeSet::new();
    match part {
        Part::MakeDirectory { attr, parent, .. } => fids.extend([attr.fid, *parent]),
        Part::MakeStripe { attr, parent, stripes, .. } => {
            fids.extend([attr.fid, *parent]);
            fids.extend(stripes);
        }
        Part::RemoveDirectory { fid, .. } | Part::Follow { fid, .. } => drop(fids.insert(*fid)),
        Part::DropLink { fid, parent, .. }
        | Part::AddLink { fid, parent, .. }
        | Part::RemoveName { fid, parent, .. } => fids.extend([*fid, *parent]),
        Part::PutName { parent, old, fid, .. } => {
            fids.extend([*fid, *parent]);
            fids.extend(old.map(|(fid, _)| fid));
        }
        Part::SetParent { fid, old_parent, parent, .. } | Part::SetStripe { fid, old_parent, parent, .. } => {
            fids.extend([*fid, *old_parent, *parent]);
        }
        Part::GiveAway { fid, to, .. } | Part::GiveFile { fid, to, .. } => fids.extend([*fid, *to]),
        Part::Redirect { parent, old, new, .. } => fids.extend([*parent, *old, *new]),
        Part::MoveLinks { old_parent, parent, links } => {
            fids.extend([*old_parent, *parent]);
            fids.extend(links.iter().map(|(fid, _)| *fid));
        }
    }
    fids
}
