//! Reading the log back: exactly a prefix of what was applied, with all that was ever durable, or an error.
//!
//! Each batch names the one before it. Where that chain breaks, the log ends: a torn tail, which is cut off. Unless
//! a sound header anywhere behind the break says that more than the prefix had been durable: then the break is
//! damage, and the log is refused rather than losing what was promised. A record that only a newer version knows is
//! refused wherever it stands: whether it had to be replayed, or how much had been durable by then, it alone says.

use super::Segment;
use super::format::{ALIGN_BYTES, HEADER_BYTES, Header, Kind, Unknown, decode_group, find_headers};
use crate::device::{self, Syncing};
use base::{Epoch, Transno};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Batch, BatchDecodeError};

/// No segment is larger; a bigger file in the directory is not ours.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("cannot read the log segment {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "cannot write what the log segment {path} was left with, so nobody knows whether its device has it"
    )]
    WriteBack { path: PathBuf, source: io::Error },
    #[error("the device failed to keep where the log segment {path} ends")]
    Unkept { path: PathBuf, source: io::Error },
    #[error("{path} is {byte_count} bytes long, which no log segment is")]
    NotASegment { path: PathBuf, byte_count: u64 },
    #[error(
        "the log is damaged behind transaction {last}, where it breaks off at byte {offset_bytes} of {path}, although it \
         had been durable up to {durable}: restore this target from its mirror or backup"
    )]
    Damaged { last: Transno, durable: Transno, path: PathBuf, offset_bytes: u64 },
    #[error(
        "{path} is damaged: nobody knows how far the log of this target reached; restore it from its mirror or backup"
    )]
    NoteDamaged { path: PathBuf },
    #[error(
        "{path} has a record of kind {kind} and version {version} at byte {offset_bytes}, which this version does not know: \
         start this target with the version that wrote it"
    )]
    UnknownRecord { path: PathBuf, offset_bytes: usize, kind: u16, version: u16 },
    #[error("transaction {transno} in the log is sound but not readable by this version: {source}")]
    Unreadable { transno: Transno, source: BatchDecodeError },
}

/// Where the base ends, and the log begins to matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Covered {
    pub applied: Transno,
    pub segment: u64,
    pub epoch: Epoch,
    pub seed: u32,
}

/// What replay found.
pub(crate) struct Replayed {
    pub last: Transno,
    /// The highest epoch and segment number seen anywhere.
    pub epoch: Epoch,
    pub segment: u64,
    /// Segments with batches that the base does not have, in order.
    pub live: Vec<Segment>,
    /// The others.
    pub free: Vec<Segment>,
    /// Something was cut off.
    pub torn: bool,
}

/// Hands every batch that the base does not have to `visit`, in order, and leaves the log so that a second replay
/// finds the same. Everything up to `reached` is known to have been durable. A damaged log is left as it is.
///
/// What is not known to have been durable is written once more. It may be in the kernel's memory only, and be taken there for written:
/// a write-back that fails leaves pages that no later sync touches, and of the failure may have been told who has died since.
///
/// # Errors
/// See [`ReplayError`].
pub(crate) fn replay(
    directory: &Path,
    covered: Covered,
    reached: Transno,
    syncing: Syncing,
    visit: &mut dyn FnMut(Transno, &Batch),
) -> Result<Replayed, ReplayError> {
    let open = |path: &Path| device::open(path, false);
    let (found, ends) = walk(directory, covered, reached, &open, visit)?;
    for (segment, end) in ends.undurable {
        write_back(&segment, end as usize, covered.seed, ends.durable)?;
    }
    for (segment, offset_bytes) in ends.to_erase {
        erase(&segment, offset_bytes, syncing)?;
    }
    Ok(found)
}

/// The same for who only looks: a torn tail stays where it is.
///
/// # Errors
/// See [`ReplayError`].
pub(crate) fn look(
    directory: &Path,
    covered: Covered,
    reached: Transno,
    visit: &mut dyn FnMut(Transno, &Batch),
) -> Result<Replayed, ReplayError> {
    walk(directory, covered, reached, &device::open_to_read, visit).map(|(found, _)| found)
}

/// Where the log ends in its segments.
struct Ends {
    /// Segments, and from which offset on each has nothing that belongs to the log.
    to_erase: Vec<(Segment, u64)>,
    /// Segments that may not be durable up to where they end.
    undurable: Vec<(Segment, u64)>,
    /// Everything up to here is known to be.
    durable: Transno,
}

type OpenSegment<'a> = &'a dyn Fn(&Path) -> io::Result<File>;

fn walk(
    directory: &Path,
    covered: Covered,
    reached: Transno,
    open: OpenSegment<'_>,
    visit: &mut dyn FnMut(Transno, &Batch),
) -> Result<(Replayed, Ends), ReplayError> {
    let mut found = Replayed {
        last: covered.applied,
        epoch: covered.epoch,
        segment: covered.segment,
        live: Vec::new(),
        free: Vec::new(),
        torn: false,
    };
    let mut evidence = reached;
    let mut ends =
        Ends { to_erase: Vec::new(), undurable: Vec::new(), durable: reached.max(covered.applied) };
    let mut last_in = Vec::new();
    let (candidates, unread) = candidates(directory, covered, open, &mut found, &mut evidence)?;
    let mut walked_epoch = Epoch(0);
    let mut broken_off = None;
    for segment in candidates {
        let number = segment.number;
        let bytes = read_all(&segment)?;
        let mut end = 0;
        while let Some((header, body)) = decode_group(covered.seed, bytes.get(end..).unwrap_or_default()) {
            if header.segment != number || header.previous != found.last || header.epoch < walked_epoch {
                break;
            }
            if header.kind == Kind::Batch {
                if header.transno <= found.last {
                    break;
                }
                let batch = Batch::decode(body)
                    .map_err(|source| ReplayError::Unreadable { transno: header.transno, source })?;
                visit(header.transno, &batch);
                found.last = header.transno;
            }
            walked_epoch = header.epoch;
            ends.durable = ends.durable.max(header.durable);
            end += header.group_bytes();
        }
        for (at, header) in find_headers(covered.seed, bytes.get(end..).unwrap_or_default()) {
            match header {
                Ok(header) if header.segment == number => {
                    found.torn = true;
                    note(&mut found, &mut evidence, &header);
                }
                Err(unknown) if unknown.segment == number => {
                    return Err(unknown_record(&segment.path, end + at, unknown));
                }
                // An earlier use of the segment left it.
                Ok(_) | Err(_) => {}
            }
        }
        if end == 0 {
            broken_off.get_or_insert_with(|| (segment.path.clone(), 0));
            // Not part of the chain. Emptied, so that the next replay does not meet it.
            ends.to_erase.push((segment.clone(), 0));
            found.free.push(Segment { number: 0, ..segment });
        } else {
            if end + HEADER_BYTES <= bytes.len() {
                ends.to_erase.push((segment.clone(), end as u64));
            }
            broken_off = Some((segment.path.clone(), end as u64));
            last_in.push((segment.clone(), end as u64, found.last));
            found.live.push(segment);
        }
    }
    if evidence > found.last {
        let begins = || (unread.unwrap_or_else(|| directory.to_path_buf()), 0);
        let (path, offset_bytes) = broken_off.unwrap_or_else(begins);
        return Err(ReplayError::Damaged { last: found.last, durable: evidence, path, offset_bytes });
    }
    // Only now is it known how far the log was durable: a group says it of those before it.
    let undurable = last_in.into_iter().filter(|(_, _, last)| *last > ends.durable);
    ends.undurable = undurable.map(|(segment, end, _)| (segment, end)).collect();
    Ok((found, ends))
}

fn unknown_record(path: &Path, offset_bytes: usize, record: Unknown) -> ReplayError {
    let Unknown { kind, version, .. } = record;
    ReplayError::UnknownRecord { path: path.to_path_buf(), offset_bytes, kind, version }
}

fn note(found: &mut Replayed, evidence: &mut Transno, header: &Header) {
    found.epoch = found.epoch.max(header.epoch);
    found.segment = found.segment.max(header.segment);
    *evidence = (*evidence).max(header.durable);
}

/// The segments that may hold what the base does not have, in their order; and a used one whose first group cannot be read.
fn candidates(
    directory: &Path,
    covered: Covered,
    open: OpenSegment<'_>,
    found: &mut Replayed,
    evidence: &mut Transno,
) -> Result<(Vec<Segment>, Option<PathBuf>), ReplayError> {
    let mut candidates = Vec::new();
    let mut unread = None;
    for path in segment_paths(directory)? {
        let read = |source| ReplayError::Read { path: path.clone(), source };
        let file = open(&path).map_err(read)?;
        let byte_count = file.metadata().map_err(read)?.len();
        if byte_count > SEGMENT_BYTES_MAX {
            return Err(ReplayError::NotASegment { path, byte_count });
        }
        let segment = Segment { file: Arc::new(file), path: path.clone(), number: 0 };
        match read_first(&segment.file, covered.seed).map_err(read)? {
            Some(Ok(header)) if header.segment <= covered.segment => {
                found.epoch = found.epoch.max(header.epoch);
                found.free.push(segment);
            }
            Some(Ok(header)) => {
                found.epoch = found.epoch.max(header.epoch);
                found.segment = found.segment.max(header.segment);
                candidates.push(Segment { number: header.segment, ..segment });
            }
            Some(Err(unknown)) if unknown.segment > covered.segment => {
                return Err(unknown_record(&path, 0, unknown));
            }
            Some(Err(_)) => found.free.push(segment),
            None => {
                // Never used, or its first group is torn or damaged: only what it proves matters.
                let bytes = read_all(&segment)?;
                if bytes.iter().any(|byte| *byte != 0) {
                    unread.get_or_insert_with(|| path.clone());
                }
                for (at, header) in find_headers(covered.seed, &bytes) {
                    match header {
                        Ok(header) if header.segment > covered.segment => note(found, evidence, &header),
                        Err(unknown) if unknown.segment > covered.segment => {
                            return Err(unknown_record(&path, at, unknown));
                        }
                        Ok(_) | Err(_) => {}
                    }
                }
                found.free.push(segment);
            }
        }
    }
    candidates.sort_by_key(|segment| segment.number);
    Ok((candidates, unread))
}

fn segment_paths(directory: &Path) -> Result<Vec<PathBuf>, ReplayError> {
    let read = |source| ReplayError::Read { path: directory.to_path_buf(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_all(segment: &Segment) -> Result<Vec<u8>, ReplayError> {
    let read = |source| ReplayError::Read { path: segment.path.clone(), source };
    let byte_count = segment.file.metadata().map_err(read)?.len().min(SEGMENT_BYTES_MAX);
    // Preallocated and never written: nothing to read, however large.
    if device::seek(&segment.file, 0, libc::SEEK_DATA).map_err(read)?.is_none() {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; byte_count as usize];
    let read_count = device::read_full(&segment.file, &mut bytes, 0).map_err(read)?;
    bytes.truncate(read_count / ALIGN_BYTES * ALIGN_BYTES);
    Ok(bytes)
}

fn read_first(file: &File, seed: u32) -> io::Result<Option<Result<Header, Unknown>>> {
    let mut bytes = [0; HEADER_BYTES];
    device::read_full(file, &mut bytes, 0)?;
    Ok(Header::decode(seed, &bytes))
}

/// Makes sure that no group begins here, durably: behind a cut, an old group must never look like a continuation.
fn erase(segment: &Segment, offset_bytes: u64, syncing: Syncing) -> Result<(), ReplayError> {
    let path = || segment.path.clone();
    device::write_all(&segment.file, &[0; HEADER_BYTES], offset_bytes)
        .map_err(|(_, source)| ReplayError::WriteBack { path: path(), source })?;
    syncing.sync_data(&segment.file).map_err(|source| ReplayError::Unkept { path: path(), source })
}

/// Writes the groups behind transaction `durable` as they are, up to `end`, so that the sync that follows has the device write them.
fn write_back(segment: &Segment, end: usize, seed: u32, durable: Transno) -> Result<(), ReplayError> {
    let bytes = read_all(segment)?;
    write_back_bytes(segment, bytes.get(..end).unwrap_or_default(), seed, durable)
}

/// The same of a segment that has these bytes up to its end.
fn write_back_bytes(segment: &Segment, bytes: &[u8], seed: u32, durable: Transno) -> Result<(), ReplayError> {
    let mut start = 0;
    while let Some((header, _)) = decode_group(seed, bytes.get(start..).unwrap_or_default())
        && header.transno <= durable
    {
        start += header.group_bytes();
    }
    device::write_all(&segment.file, bytes.get(start..).unwrap_or_default(), start as u64)
        .map_err(|(_, source)| ReplayError::WriteBack { path: segment.path.clone(), source })
}

#[cfg(test)]
mod tests;
