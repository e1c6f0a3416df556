//! One sparse object in memory: blocks that exist, the others read as zeros.

use super::objects::Mutation;
use base::Extent;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const BLOCK_BYTES: u64 = 4096;

/// A block is shared between the image that readers see and the device image until one of them changes it.
type Block = Arc<[u8; BLOCK_BYTES as usize]>;

#[derive(Clone, Default)]
pub(super) struct Blocks {
    pub size_bytes: u64,
    /// `None` is allocated and never written: a hole to `seek`, zeros to `read`.
    blocks: BTreeMap<u64, Option<Block>>,
}

impl Blocks {
    pub fn allocated_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    /// Blocks of the extent that are not allocated yet.
    pub fn missing_bytes(&self, extent: Extent) -> u64 {
        if extent.is_empty() {
            return 0;
        }
        let (first, end) = (extent.start / BLOCK_BYTES, extent.end.div_ceil(BLOCK_BYTES));
        let there = self.blocks.range(first..end).count() as u64;
        (end - first - there) * BLOCK_BYTES
    }

    pub fn read(&self, offset_bytes: u64, byte_count: usize) -> Vec<u8> {
        let end = self.size_bytes.min(offset_bytes.saturating_add(byte_count as u64));
        if offset_bytes >= end {
            return Vec::new();
        }
        let mut bytes = vec![0; (end - offset_bytes) as usize];
        for (index, block) in self.blocks.range(offset_bytes / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)) {
            let Some(block) = block else { continue };
            let start = index * BLOCK_BYTES;
            let overlap = Extent::at(start, BLOCK_BYTES).intersection(Extent::new(offset_bytes, end));
            if overlap.is_empty() {
                continue;
            }
            let from = (overlap.start - start) as usize..(overlap.end - start) as usize;
            let to = (overlap.start - offset_bytes) as usize..(overlap.end - offset_bytes) as usize;
            bytes[to].copy_from_slice(&block[from]);
        }
        bytes
    }

    pub fn apply(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::Write { offset_bytes, data } => self.write(*offset_bytes, data),
            Mutation::Truncate { size_bytes } => {
                self.clear(Extent::new(*size_bytes, Extent::EOF), false);
                self.size_bytes = *size_bytes;
            }
            Mutation::Punch { extent } => self.clear(*extent, false),
            Mutation::Zero { extent, keep_size } => {
                self.clear(*extent, true);
                self.allocate(*extent, *keep_size);
            }
            Mutation::Allocate { extent, keep_size } => self.allocate(*extent, *keep_size),
            Mutation::Destroy => *self = Blocks::default(),
            // Its bytes stay.
            Mutation::Adopt { .. } => {}
        }
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) {
        let mut offset = offset_bytes;
        let mut rest = data;
        while !rest.is_empty() {
            let within = (offset % BLOCK_BYTES) as usize;
            let count = rest.len().min(BLOCK_BYTES as usize - within);
            let (part, tail) = rest.split_at(count);
            let block = self.blocks.entry(offset / BLOCK_BYTES).or_default();
            let block = block.get_or_insert_with(|| Arc::new([0; BLOCK_BYTES as usize]));
            Arc::make_mut(block)[within..within + count].copy_from_slice(part);
            offset += count as u64;
            rest = tail;
        }
        if !data.is_empty() {
            self.size_bytes = self.size_bytes.max(offset);
        }
    }

    fn allocate(&mut self, extent: Extent, keep_size: bool) {
        for index in extent.start / BLOCK_BYTES..extent.end.div_ceil(BLOCK_BYTES) {
            self.blocks.entry(index).or_default();
        }
        if !keep_size {
            self.size_bytes = self.size_bytes.max(extent.end);
        }
    }

    /// Zeros: whole blocks become holes, or stay allocated without data.
    fn clear(&mut self, extent: Extent, stay_allocated: bool) {
        let touched: Vec<u64> =
            self.blocks.range(extent.start / BLOCK_BYTES..).map(|(index, _)| *index).collect();
        for index in touched {
            let block_extent = Extent::at(index * BLOCK_BYTES, BLOCK_BYTES);
            let overlap = block_extent.intersection(extent);
            if overlap.is_empty() {
                continue;
            }
            if overlap != block_extent {
                if let Some(Some(block)) = self.blocks.get_mut(&index) {
                    let range = (overlap.start - block_extent.start) as usize
                        ..(overlap.end - block_extent.start) as usize;
                    Arc::make_mut(block)[range].fill(0);
                }
            } else if stay_allocated {
                self.blocks.insert(index, None);
            } else {
                self.blocks.remove(&index);
            }
        }
    }

    /// First written block at or after the offset, cut at the size.
    pub fn seek_data(&self, offset_bytes: u64) -> Option<u64> {
        let (index, _) =
            self.blocks.range(offset_bytes / BLOCK_BYTES..).find(|(_, block)| block.is_some())?;
        let found = offset_bytes.max(index * BLOCK_BYTES);
        (found < self.size_bytes).then_some(found)
    }

    pub fn seek_hole(&self, offset_bytes: u64) -> Option<u64> {
        if offset_bytes >= self.size_bytes {
            return None;
        }
        let mut index = offset_bytes / BLOCK_BYTES;
        while matches!(self.blocks.get(&index), Some(Some(_))) {
            index += 1;
        }
        Some(offset_bytes.max(index * BLOCK_BYTES).min(self.size_bytes))
    }
}
