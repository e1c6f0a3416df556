//! How far a log is known to have been durable, noted beside it: so that a segment that is gone, or empty, is missed.
//!
//! Written at each opening and at an end in order. It is a lower bound, and stays true whatever follows.

use super::replay::ReplayError;
use crate::device::{self, Syncing};
use base::Transno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "reached";
const MAGIC: &[u8; 8] = b"SHEENLG1";
/// Magic, transno, CRC32C of both.
const BYTES: usize = 20;

pub(crate) fn encode(transno: Transno) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&transno.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..16]);
    bytes[16..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// What a note says, if it is one.
pub(crate) fn decode(bytes: &[u8]) -> Option<Transno> {
    let transno = Transno(u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?));
    (bytes == encode(transno)).then_some(transno)
}

/// Zero when nothing was noted yet.
///
/// # Errors
/// The note is there and cannot be read.
pub(crate) fn read(directory: &Path) -> Result<Transno, ReplayError> {
    let path = directory.join(NAME);
    let read = |source| ReplayError::Read { path: path.clone(), source };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Transno::ZERO),
        Err(error) => return Err(read(error)),
    };
    let mut bytes = [0; BYTES + 1];
    let byte_count = device::read_full(&file, &mut bytes, 0).map_err(read)?;
    let note = decode(bytes.get(..byte_count).unwrap_or_default());
    note.ok_or_else(|| ReplayError::NoteDamaged { path: path.clone() })
}

/// Everything up to `transno` is durable.
///
/// # Errors
/// The device refuses; an older note stays.
pub(crate) fn write(directory: &Path, transno: Transno, syncing: Syncing) -> io::Result<()> {
    // Without syncs nothing is known to be durable.
    if syncing == Syncing::Skipped {
        return Ok(());
    }
    let path: PathBuf = directory.join(NAME);
    let aside = path.with_extension("new");
    let file = device::open(&aside, true)?;
    device::set_length(&file, 0)?;
    device::write_all(&file, &encode(transno), 0).map_err(|(_, error)| error)?;
    syncing.sync_all(&file)?;
    device::rename(&aside, &path)?;
    syncing.sync_directory(directory)
}
