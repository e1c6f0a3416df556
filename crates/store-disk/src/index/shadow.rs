//! The file of a base that is only read: what redb writes when it opens one, or puts one in order, stays in memory.

use super::backend::{BLOCK_BYTES, ChecksummedFile};
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

type Block = [u8; BLOCK_BYTES as usize];

struct State {
    length_bytes: u64,
    /// Up to here blocks that were not written are those of the file; behind it they are zeros.
    stored_bytes: u64,
    written: BTreeMap<u64, Box<Block>>,
}

pub(super) struct Shadow {
    file: Arc<ChecksummedFile>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shadow({:?})", self.file)
    }
}

/// The blocks that an extent touches, and which bytes of each.
fn blocks(offset_bytes: u64, byte_count: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let end = offset_bytes + byte_count as u64;
    (offset_bytes / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).map(move |block| {
        let start = block * BLOCK_BYTES;
        let from = offset_bytes.max(start) - start;
        let to = end.min(start + BLOCK_BYTES) - start;
        (block, from as usize..to as usize)
    })
}

impl Shadow {
    pub fn new(file: Arc<ChecksummedFile>) -> io::Result<Shadow> {
        let length_bytes = file.len()?;
        let state = State { length_bytes, stored_bytes: length_bytes, written: BTreeMap::new() };
        Ok(Shadow { file, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn block(&self, state: &State, block: u64) -> io::Result<Box<Block>> {
        if let Some(written) = state.written.get(&block) {
            return Ok(written.clone());
        }
        let mut bytes = Box::new([0; BLOCK_BYTES as usize]);
        let start = block * BLOCK_BYTES;
        let stored = state.stored_bytes.saturating_sub(start).min(BLOCK_BYTES) as usize;
        if let Some(part) = bytes.get_mut(..stored).filter(|part| !part.is_empty()) {
            self.file.read(start, part)?;
        }
        Ok(bytes)
    }
}

impl StorageBackend for Shadow {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().length_bytes)
    }

    fn read(&self, offset_bytes: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let end = offset_bytes.saturating_add(out.len() as u64);
        if end > state.length_bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let touched = offset_bytes / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        if end <= state.stored_bytes && state.written.range(touched).next().is_none() {
            return self.file.read(offset_bytes, out);
        }
        let mut rest = out;
        for (block, within) in blocks(offset_bytes, rest.len()) {
            let bytes = self.block(&state, block)?;
            let (part, tail) = rest.split_at_mut(within.len());
            part.copy_from_slice(bytes.get(within).unwrap_or_default());
            rest = tail;
        }
        Ok(())
    }

    fn set_len(&self, length_bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        state.length_bytes = length_bytes;
        state.stored_bytes = state.stored_bytes.min(length_bytes);
        state.written.split_off(&length_bytes.div_ceil(BLOCK_BYTES));
        // What is behind the end is zeros when the file grows again.
        if let Some(last) = state.written.get_mut(&(length_bytes / BLOCK_BYTES)) {
            last.iter_mut().skip((length_bytes % BLOCK_BYTES) as usize).for_each(|byte| *byte = 0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let mut rest = data;
        for (block, within) in blocks(offset_bytes, data.len()) {
            let is_whole = within.len() as u64 == BLOCK_BYTES;
            let mut bytes =
                if is_whole { Box::new([0; BLOCK_BYTES as usize]) } else { self.block(&state, block)? };
            let (part, tail) = rest.split_at(within.len());
            if let Some(own) = bytes.get_mut(within) {
                own.copy_from_slice(part);
            }
            state.written.insert(block, bytes);
            rest = tail;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
