//! Entries of a directory in few bytes: what one has of its own, beside what its neighbours have, too.
//!
//! A file that was made beside others differs from them in its name, its object in the sequence, and its times. Numbers are told as
//! differences to those of the first entry of a page, where there is one, and times to each other, in as many bytes as they need: some
//! 35 with a name of ten, where a `Node` with its name takes 400.

use crate::varint::{put_bytes, put_number, take_bytes, take_number};
use base::names::name_hash;
use base::{Attr, Fid, FileType, Version, WallTime};
use wire::mdt::DirEntry;

/// FID and type.
const NUMBER_COUNT: usize = 4;
/// What attributes are beside them.
const ATTR_NUMBER_COUNT: usize = 14;

type Numbers = [u64; NUMBER_COUNT + ATTR_NUMBER_COUNT];
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

const HAS_ATTR: u8 = 1 << 0;
const IS_SIZE_KNOWN: u8 = 1 << 1;
/// Of the attributes.
const HAS_XATTRS: u8 = 1 << 2;
const WITH_TARGET: u8 = 1 << 3;
const WITH_XATTRS: u8 = 1 << 4;
/// Those of the first entry.
const WITH_SAME_XATTRS: u8 = 1 << 5;

/// Entries that stand one after the other. Each is its byte count, and then: flags, the name with its length, which numbers are
/// others than those of the first one, these, a link target and xattrs as far as it has them.
#[derive(Debug)]
pub(super) struct Page {
    first: Numbers,
    first_xattrs: Option<Xattrs>,
    bytes: Vec<u8>,
}

impl Page {
    pub(super) fn new(entry: &DirEntry) -> Page {
        let mut page =
            Page { first: numbers_of(entry), first_xattrs: entry.xattrs.clone(), bytes: Vec::new() };
        page.push(entry);
        page
    }

    pub(super) fn push(&mut self, entry: &DirEntry) {
        let mut own = Vec::with_capacity(64 + entry.name.len());
        self.pack(entry, &mut own);
        put_number(&mut self.bytes, own.len() as u64);
        self.bytes.extend_from_slice(&own);
    }

    fn pack(&self, entry: &DirEntry, out: &mut Vec<u8>) {
        let has_same_xattrs = entry.xattrs.is_some() && entry.xattrs == self.first_xattrs;
        let mut flags = 0;
        let mut set = |flag, is_set| flags |= if is_set { flag } else { 0 };
        set(HAS_ATTR, entry.attr.is_some());
        set(IS_SIZE_KNOWN, entry.attr.as_ref().is_some_and(|attr| attr.is_size_known));
        set(HAS_XATTRS, entry.attr.as_ref().is_some_and(|attr| attr.has_xattrs));
        set(WITH_TARGET, entry.symlink_target.is_some());
        set(WITH_XATTRS, entry.xattrs.is_some() && !has_same_xattrs);
        set(WITH_SAME_XATTRS, has_same_xattrs);
        out.push(flags);
        put_bytes(out, &entry.name);
        let count = if entry.attr.is_some() { NUMBER_COUNT + ATTR_NUMBER_COUNT } else { NUMBER_COUNT };
        let pairs = numbers_of(entry).into_iter().zip(self.first).take(count);
        let differences: Vec<u64> = pairs.map(|(number, first)| number.wrapping_sub(first)).collect();
        let is_other = differences.iter().rev().fold(0, |bits, number| (bits << 1) | u64::from(*number != 0));
        put_number(out, is_other);
        for number in differences.into_iter().filter(|number| *number != 0) {
            put_number(out, to_unsigned(number as i64));
        }
        entry.symlink_target.iter().for_each(|target| put_bytes(out, target));
        if let Some(xattrs) = entry.xattrs.as_ref().filter(|_| !has_same_xattrs) {
            put_number(out, xattrs.len() as u64);
            for (name, value) in xattrs {
                put_bytes(out, name);
                put_bytes(out, value);
            }
        }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<DirEntry> {
        let (_, own) = self.find(name)?;
        self.unpack(own)
    }

    /// -> whether it was there.
    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        let Some((range, _)) = self.find(name) else { return false };
        self.bytes.drain(range);
        true
    }

    /// Where an entry is, with its byte count; and its bytes.
    fn find(&self, name: &[u8]) -> Option<(std::ops::Range<usize>, &[u8])> {
        let mut rest = self.bytes.as_slice();
        loop {
            let from = self.bytes.len() - rest.len();
            let own = take_bytes(&mut rest)?;
            let mut of_name = own.get(1..)?;
            if take_bytes(&mut of_name)? == name {
                return Some((from..self.bytes.len() - rest.len(), own));
            }
        }
    }

    fn unpack(&self, mut own: &[u8]) -> Option<DirEntry> {
        let (&flags, rest) = own.split_first()?;
        own = rest;
        let name = take_bytes(&mut own)?.to_vec();
        let has = |flag: u8| flags & flag != 0;
        let count = if has(HAS_ATTR) { NUMBER_COUNT + ATTR_NUMBER_COUNT } else { NUMBER_COUNT };
        let mut numbers = self.first;
        let is_other = take_number(&mut own)?;
        for (bit, number) in numbers.iter_mut().enumerate().take(count) {
            if (is_other >> bit) & 1 != 0 {
                *number = number.wrapping_add(to_signed(take_number(&mut own)?) as u64);
            }
        }
        let [seq, oid, ver, file_type, rest @ ..] = numbers;
        let fid = Fid { seq, oid: oid as u32, ver: ver as u32 };
        let file_type = FileType::from_mode((file_type as u32) << 12)?;
        let attr = has(HAS_ATTR).then(|| Attr {
            is_size_known: has(IS_SIZE_KNOWN),
            has_xattrs: has(HAS_XATTRS),
            ..attr_of(fid, file_type, rest)
        });
        let symlink_target = if has(WITH_TARGET) { Some(take_bytes(&mut own)?.to_vec()) } else { None };
        let xattrs = match (has(WITH_XATTRS), has(WITH_SAME_XATTRS)) {
            (true, _) => Some(take_xattrs(&mut own)?),
            (false, true) => self.first_xattrs.clone(),
            (false, false) => None,
        };
        let position = name_hash(&name);
        Some(DirEntry { name, fid, file_type, position, attr, symlink_target, xattrs })
    }

    /// Of the entries; more than they need while there may come others.
    pub(super) fn byte_count(&self) -> usize {
        let xattrs = self.first_xattrs.iter().flatten();
        let xattrs = xattrs.map(|(name, value)| size_of::<(Vec<u8>, Vec<u8>)>() + name.len() + value.len());
        self.bytes.capacity() + xattrs.sum::<usize>()
    }

    /// Into a piece of its own: an allocator may keep bytes that have become fewer where they are, as long as they fill half of the piece.
    pub(super) fn shrink(&mut self) {
        self.bytes = self.bytes.as_slice().to_vec();
    }
}

fn numbers_of(entry: &DirEntry) -> Numbers {
    let Fid { seq, oid, ver } = entry.fid;
    let mut numbers = [0; NUMBER_COUNT + ATTR_NUMBER_COUNT];
    let (own, of_attr) = numbers.split_at_mut(NUMBER_COUNT);
    own.copy_from_slice(&[seq, oid.into(), ver.into(), entry.file_type.dirent_type().into()]);
    if let Some(attr) = &entry.attr {
        of_attr.copy_from_slice(&numbers_of_attr(attr));
    }
    numbers
}

/// Most inodes are made, changed and read within a moment: each time is told from another one.
fn numbers_of_attr(attr: &Attr) -> [u64; ATTR_NUMBER_COUNT] {
    let after = |time: WallTime, other: WallTime| time.0.wrapping_sub(other.0) as u64;
    [
        attr.permissions.into(),
        attr.uid.into(),
        attr.gid.into(),
        attr.link_count.into(),
        attr.rdev.into(),
        attr.size_bytes,
        attr.block_count,
        attr.btime.0 as u64,
        after(attr.mtime, attr.btime),
        after(attr.ctime, attr.mtime),
        after(attr.atime, attr.btime),
        after(attr.mtime_stamp, attr.mtime),
        attr.version.0,
        attr.write_epoch,
    ]
}

fn attr_of(fid: Fid, file_type: FileType, numbers: [u64; ATTR_NUMBER_COUNT]) -> Attr {
    let [permissions, uid, gid, link_count, rdev, size_bytes, block_count, times @ .., version, write_epoch] =
        numbers;
    let [btime, mtime, ctime, atime, mtime_stamp] = times;
    let after = |other: WallTime, time: u64| WallTime(other.0.wrapping_add(time as i64));
    let btime = WallTime(btime as i64);
    let mtime = after(btime, mtime);
    Attr {
        fid,
        file_type,
        permissions: permissions as u32,
        uid: uid as u32,
        gid: gid as u32,
        link_count: link_count as u32,
        rdev: rdev as u32,
        size_bytes,
        block_count,
        atime: after(btime, atime),
        mtime,
        ctime: after(mtime, ctime),
        btime,
        mtime_stamp: after(mtime, mtime_stamp),
        version: Version(version),
        is_size_known: true,
        write_epoch,
        has_xattrs: false,
    }
}

/// Small differences of either sign in small numbers.
fn to_unsigned(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn to_signed(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn take_xattrs(from: &mut &[u8]) -> Option<Xattrs> {
    let count = take_number(from)?;
    (0..count).map(|_| Some((take_bytes(from)?.to_vec(), take_bytes(from)?.to_vec()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    fn entry(rng: &mut Rng, number: u64) -> DirEntry {
        let name = format!("file{number:06}").into_bytes();
        let fid = Fid { seq: Fid::SEQ_NORMAL, oid: number as u32, ver: 0 };
        let btime = WallTime(1_800_000_000_000_000_000 + (number * 100_000) as i64);
        let time = |rng: &mut Rng| WallTime(btime.0 + (rng.next_u64() % 1_000_000) as i64);
        let attr = Attr {
            fid,
            file_type: FileType::Regular,
            permissions: 0o644,
            uid: 1000,
            gid: 1000,
            link_count: 1,
            rdev: 0,
            size_bytes: rng.next_u64() % 100_000,
            block_count: rng.next_u64() % 200,
            atime: time(rng),
            mtime: time(rng),
            ctime: time(rng),
            btime,
            mtime_stamp: time(rng),
            version: Version(number * 3),
            is_size_known: true,
            write_epoch: 1,
            has_xattrs: number.is_multiple_of(3),
        };
        let position = name_hash(&name);
        let (symlink_target, xattrs) = (None, None);
        DirEntry {
            name,
            fid,
            file_type: FileType::Regular,
            position,
            attr: Some(attr),
            symlink_target,
            xattrs,
        }
    }

    /// Of each kind: what comes out is what went in, whatever its numbers are and whichever was the first.
    #[test]
    fn an_entry_comes_out_as_it_went_in() {
        let mut rng = Rng::new(1);
        let mut entries: Vec<DirEntry> = (0..60).map(|number| entry(&mut rng, number)).collect();
        for (number, entry) in entries.iter_mut().enumerate() {
            match number % 6 {
                0 => entry.attr = None,
                1 => entry.xattrs = Some(vec![(b"user.a".to_vec(), b"same".to_vec())]),
                2 => {
                    entry.xattrs =
                        Some(vec![(b"user.a".to_vec(), vec![number as u8; 300]), (vec![1], vec![])])
                }
                3 => {
                    entry.symlink_target = Some(vec![b'x'; 4095]);
                    entry.file_type = FileType::Symlink;
                }
                _ => entry.fid = Fid { seq: u64::MAX, oid: u32::MAX, ver: u32::MAX },
            }
            let (fid, file_type) = (entry.fid, entry.file_type);
            if let Some(attr) = &mut entry.attr {
                (attr.fid, attr.file_type) = (fid, file_type);
                if number % 6 == 5 {
                    (attr.atime, attr.mtime) = (WallTime(i64::MIN), WallTime(i64::MAX));
                    (attr.ctime, attr.btime) = (WallTime(-1), WallTime(i64::MAX));
                    (attr.size_bytes, attr.uid, attr.version) = (u64::MAX, u32::MAX, Version(u64::MAX));
                    attr.is_size_known = false;
                }
            }
        }
        for first in 0..6 {
            entries.rotate_left(first);
            let mut page = Page::new(&entries[0]);
            entries.iter().skip(1).for_each(|entry| page.push(entry));
            for entry in &entries {
                assert_eq!(page.get(&entry.name).as_ref(), Some(entry));
            }
            assert_eq!(page.get(b"another"), None);
            assert!(page.remove(&entries[7].name) && !page.remove(&entries[7].name));
            let is_there: Vec<bool> = entries.iter().map(|entry| page.get(&entry.name).is_some()).collect();
            assert_eq!(is_there.iter().filter(|is_there| !**is_there).count(), 1);
            assert!(!is_there[7]);
        }
    }

    /// A hundred thousand of them are to have room beside everything else that a listing needs.
    #[test]
    fn an_entry_of_a_plain_file_is_small() {
        let mut rng = Rng::new(1);
        let entries: Vec<DirEntry> = (0..64).map(|number| entry(&mut rng, number * 1000 % 777)).collect();
        let mut page = Page::new(&entries[0]);
        entries.iter().skip(1).for_each(|entry| page.push(entry));
        page.shrink();
        assert!(page.byte_count() <= 64 * 56, "{} bytes", page.byte_count() / 64);
    }
}
