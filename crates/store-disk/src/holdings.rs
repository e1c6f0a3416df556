//! `store::Holdings` in a file that is mapped into memory: the kernel keeps what was written there when the process dies.
//!
//! Nothing is ever synced. So the file says of which run of the machine it is, and is believed in no other.
//!
//! A header of one page, then records. A record's first word is written last and cleared first, so a process that dies in between leaves a
//! place that is free; every record has a checksum all the same, and one that does not agree makes the whole file worthless. So does
//! another length, or a record less than there should be. Where a mapped file has been cut, the kernel has no page to store into: what
//! is stored goes into memory of the process instead (`device::SharedWords`), and the note ends.

use crate::device::{self, SharedWords};
use base::{ClientId, Epoch, Transno};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use store::holdings::HOLDING_WORDS;
use store::{Holding, HoldingKey, Holdings, Left};

/// "sheenhld", and the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"sheenhld");
const VERSION: u64 = 2;

/// Words of the header, by what they say.
mod head {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    /// Two words each.
    pub const BOOT: usize = 2;
    pub const UUID: usize = 4;
    pub const EPOCH: usize = 6;
    pub const APPLIED: usize = 7;
    /// `WHOLE`, or anything else.
    pub const IS_WHOLE: usize = 8;
    /// Of the file. One of another length has lost its end, or some of its records.
    pub const BYTE_COUNT: usize = 9;
    /// Records there are, or one less for a moment: a file that was cut and made as long again has lost some.
    pub const RECORD_COUNT: usize = 10;
}
const WHOLE: u64 = 0x5748_4f4c_455f_4e4f;

const HEAD_BYTES: usize = 4096;
/// Beside the kind in the first word of a record: no bit of it makes the place a free one.
const TAKEN: u64 = 0x4845_4c44 << 32;
/// Kind, client, number, what it is, and the checksum of these.
const RECORD_WORDS: usize = 5 + HOLDING_WORDS;
const WORD_BYTES: usize = 8;
const RECORD_BYTES: usize = RECORD_WORDS * WORD_BYTES;

/// The file begins with room for some thousand locks, and doubles. 64 MiB hold 760,000: more is not noted, and everybody is waited for.
const FILE_BYTES_MIN: usize = 1 << 20;
const FILE_BYTES_MAX: usize = 64 << 20;

const fn record_count(file_bytes: usize) -> usize {
    (file_bytes - HEAD_BYTES) / RECORD_BYTES
}

/// The note of one target.
pub struct HoldingsFile {
    path: PathBuf,
    uuid: u128,
    noting: Option<Noting>,
}

/// A file in use.
struct Noting {
    file: File,
    words: SharedWords,
    places: BTreeMap<HoldingKey, usize>,
    free: Vec<usize>,
    /// Places from here on were never used.
    used_count: usize,
    has_lost: bool,
}

impl HoldingsFile {
    /// The note in a file in the run directory of this machine; it need not be there.
    pub fn new(path: PathBuf, uuid: u128) -> HoldingsFile {
        HoldingsFile { path, uuid, noting: None }
    }

    fn read_left(&self) -> io::Result<Option<Left>> {
        let bytes = read(&self.path)?;
        Ok(parse(&bytes, boot()?, self.uuid))
    }

    fn start(&self, epoch: Epoch, held: &[(HoldingKey, Holding)], is_whole: bool) -> io::Result<Noting> {
        let aside = self.path.with_extension("new");
        let _ = device::remove(&aside);
        let file = device::create(&aside)?;
        let words = SharedWords::map(&file, FILE_BYTES_MIN)?;
        let mut noting =
            Noting { file, words, places: BTreeMap::new(), free: Vec::new(), used_count: 0, has_lost: false };
        for (key, holding) in held {
            noting.put(*key, holding);
        }
        let boot = boot()?;
        noting.set(head::BYTE_COUNT, noting.words.byte_count() as u64);
        noting.set(head::VERSION, VERSION);
        noting.set_pair(head::BOOT, boot);
        noting.set_pair(head::UUID, self.uuid);
        noting.set(head::EPOCH, epoch.0);
        noting.set(head::IS_WHOLE, if is_whole && !noting.has_lost { WHOLE } else { 0 });
        noting.set(head::MAGIC, MAGIC);
        device::rename(&aside, &self.path)?;
        Ok(noting)
    }
}

impl HoldingsFile {
    /// Somebody has cut the file: what is noted from then on goes nowhere, and what is left of it is believed by nobody.
    fn end_if_gone(&mut self) {
        if self.noting.as_ref().is_some_and(|noting| noting.words.is_gone()) {
            tracing::warn!(path = %self.path.display(), "somebody has cut the note of what clients hold: a restart will wait for all of them");
            self.noting = None;
            let _ = device::remove(&self.path);
        }
    }
}

impl Noting {
    fn set(&self, index: usize, word: u64) {
        if let Some(place) = self.words.get(index) {
            place.store(word, Ordering::Release);
        }
    }

    fn set_pair(&self, index: usize, pair: u128) {
        self.set(index, pair as u64);
        self.set(index + 1, (pair >> 64) as u64);
    }

    fn put(&mut self, key: HoldingKey, holding: &Holding) {
        if self.has_lost {
            return;
        }
        let known = self.places.get(&key).copied();
        let Some(place) = known.or_else(|| self.free_place()) else { return self.lose() };
        let record = record_of(key, holding);
        let first = first_word(place);
        for (offset, word) in record.iter().enumerate().skip(1) {
            self.set(first + offset, *word);
        }
        self.set(first, record[0]);
        self.places.insert(key, place);
        self.set(head::RECORD_COUNT, self.places.len() as u64);
    }

    fn remove(&mut self, key: HoldingKey) {
        let Some(place) = self.places.remove(&key) else { return };
        // First, so that there are never less than it says.
        self.set(head::RECORD_COUNT, self.places.len() as u64);
        self.set(first_word(place), 0);
        self.free.push(place);
    }

    /// Somebody holds something that is not noted: nobody may believe this file.
    fn lose(&mut self) {
        self.has_lost = true;
        self.set(head::IS_WHOLE, 0);
        self.places.clear();
        tracing::info!("more is locked and open here than is noted: a restart will wait for every client");
    }

    fn free_place(&mut self) -> Option<usize> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let byte_count = self.words.byte_count();
        if self.used_count == record_count(byte_count) {
            if byte_count >= FILE_BYTES_MAX {
                return None;
            }
            self.words = SharedWords::map(&self.file, byte_count * 2).ok()?;
            self.set(head::BYTE_COUNT, self.words.byte_count() as u64);
        }
        self.used_count += 1;
        Some(self.used_count - 1)
    }
}

impl Holdings for HoldingsFile {
    fn take_left(&mut self) -> Option<Left> {
        match self.read_left() {
            Ok(left) => left,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::info!(path = %self.path.display(), %error, "what clients held is not known");
                }
                None
            }
        }
    }

    fn begin(&mut self, epoch: Epoch, held: &[(HoldingKey, Holding)], is_whole: bool) {
        match self.start(epoch, held, is_whole) {
            Ok(noting) => self.noting = Some(noting),
            Err(error) => {
                tracing::info!(path = %self.path.display(), %error, "what clients hold is not noted: a restart will wait for all of them");
                let _ = device::remove(&self.path);
            }
        }
    }

    fn put(&mut self, key: HoldingKey, holding: Holding) {
        if let Some(noting) = &mut self.noting {
            noting.put(key, &holding);
            self.end_if_gone();
        }
    }

    fn remove(&mut self, key: HoldingKey) {
        if let Some(noting) = &mut self.noting {
            noting.remove(key);
            self.end_if_gone();
        }
    }

    fn set_applied(&mut self, applied: Transno) {
        if let Some(noting) = &self.noting {
            noting.set(head::APPLIED, applied.0);
        }
    }

    fn set_whole(&mut self) {
        if let Some(noting) = self.noting.as_ref().filter(|noting| !noting.has_lost) {
            noting.set(head::IS_WHOLE, WHOLE);
        }
    }
}

fn first_word(place: usize) -> usize {
    HEAD_BYTES / WORD_BYTES + place * RECORD_WORDS
}

fn record_of(key: HoldingKey, holding: &Holding) -> [u64; RECORD_WORDS] {
    let mut record = [0; RECORD_WORDS];
    (record[0], record[3]) = (TAKEN | key.kind, key.number);
    (record[1], record[2]) = (key.client.0 as u64, (key.client.0 >> 64) as u64);
    record[4..4 + HOLDING_WORDS].copy_from_slice(holding);
    record[RECORD_WORDS - 1] = checksum(&record);
    record
}

/// Of all but the last word, and never 0.
fn checksum(record: &[u64; RECORD_WORDS]) -> u64 {
    let mut crc = 0;
    for word in record.iter().take(RECORD_WORDS - 1) {
        crc = crc32c::crc32c_append(crc, &word.to_le_bytes());
    }
    1 << 32 | u64::from(crc)
}

/// What a file says, if it is of this run of the machine and of this target, and nothing is missing.
pub(crate) fn parse(bytes: &[u8], boot: u128, uuid: u128) -> Option<Left> {
    let word = |index: usize| {
        let at = index.checked_mul(WORD_BYTES)?;
        Some(u64::from_le_bytes(bytes.get(at..at + WORD_BYTES)?.try_into().ok()?))
    };
    let pair = |index| Some(u128::from(word(index)?) | u128::from(word(index + 1)?) << 64);
    let is_ours = word(head::MAGIC)? == MAGIC
        && word(head::VERSION)? == VERSION
        && word(head::IS_WHOLE)? == WHOLE
        && pair(head::BOOT)? == boot
        && pair(head::UUID)? == uuid
        && word(head::BYTE_COUNT)? == bytes.len() as u64;
    if !is_ours || bytes.len() < HEAD_BYTES {
        return None;
    }
    let mut left =
        Left { epoch: Epoch(word(head::EPOCH)?), applied: Transno(word(head::APPLIED)?), held: Vec::new() };
    for place in 0..record_count(bytes.len()) {
        let mut record = [0; RECORD_WORDS];
        for (offset, part) in record.iter_mut().enumerate() {
            *part = word(first_word(place) + offset)?;
        }
        if record[0] == 0 {
            continue;
        }
        if record[RECORD_WORDS - 1] != checksum(&record) || record[0] & TAKEN != TAKEN {
            return None;
        }
        let client = ClientId(u128::from(record[1]) | u128::from(record[2]) << 64);
        let key = HoldingKey { client, kind: record[0] ^ TAKEN, number: record[3] };
        let mut holding = [0; HOLDING_WORDS];
        holding.copy_from_slice(&record[4..4 + HOLDING_WORDS]);
        left.held.push((key, holding));
    }
    let missing_count = word(head::RECORD_COUNT)?.wrapping_sub(left.held.len() as u64);
    // One more is there when the process died before it said so.
    (missing_count == 0 || missing_count == u64::MAX).then_some(left)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = device::open_to_read(path)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Which run of this machine it is.
fn boot() -> io::Result<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests;
