//! Memory for file data, used again.
//!
//! A MiB of fresh memory costs 256 page faults, a good part of what a write of it costs (docs/performance.md). So buffers of
//! large pieces of data go back here when their last user lets go, and stay up to a bound.

use bytes::Bytes;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Smaller pieces are left to the allocator, which keeps memory of such sizes anyway.
const POOLED_BYTES_MIN: usize = 64 << 10;
/// Sizes of buffers: powers of two from `POOLED_BYTES_MIN` to the largest bulk, each with a margin for the rest of a frame or
/// for whole blocks around the data.
const CLASS_COUNT: usize = 7;
const MARGIN_BYTES: usize = 8 << 10;
/// Bytes that wait here for their next use at most, over all sizes. What one commit of a streaming writer lets go.
const FREE_BYTES_MAX: usize = 64 << 20;

const _: () = assert!(POOLED_BYTES_MIN << (CLASS_COUNT - 1) == crate::limits::BULK_BYTES_MAX);

static POOL: Mutex<Pool> = Mutex::new(Pool::new(FREE_BYTES_MAX));

struct Pool {
    /// Empty ones, by the class of their capacity.
    free: [Vec<Vec<u8>>; CLASS_COUNT],
    free_bytes: usize,
    free_bytes_max: usize,
}

impl Pool {
    const fn new(free_bytes_max: usize) -> Pool {
        Pool { free: [const { Vec::new() }; CLASS_COUNT], free_bytes: 0, free_bytes_max }
    }

    fn take(&mut self, class: usize) -> Option<Vec<u8>> {
        let bytes = self.free.get_mut(class)?.pop()?;
        self.free_bytes -= bytes.capacity();
        Some(bytes)
    }

    /// Gives the buffer back to the caller when there is no room for it.
    fn put(&mut self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let capacity = bytes.capacity();
        let class = class_of(capacity).filter(|class| length_of(*class) <= capacity);
        let Some(free) = class.and_then(|class| self.free.get_mut(class)) else {
            return Some(bytes);
        };
        if self.free_bytes + capacity > self.free_bytes_max {
            return Some(bytes);
        }
        bytes.clear();
        self.free_bytes += capacity;
        free.push(bytes);
        None
    }
}

/// `None` for pieces that are not pooled.
fn class_of(byte_count: usize) -> Option<usize> {
    if byte_count < POOLED_BYTES_MIN {
        return None;
    }
    let units = byte_count.saturating_sub(MARGIN_BYTES).div_ceil(POOLED_BYTES_MIN);
    let class = units.next_power_of_two().trailing_zeros() as usize;
    (class < CLASS_COUNT).then_some(class)
}

fn length_of(class: usize) -> usize {
    (POOLED_BYTES_MIN << class) + MARGIN_BYTES
}

/// A vector whose memory goes back to the pool. Nothing of it is touched before it is filled: a peer who announces MiB and
/// sends none of them costs none.
#[derive(Debug)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// An empty one with room for at least `byte_count` bytes.
    pub fn with_capacity(byte_count: usize) -> Buffer {
        let class = class_of(byte_count);
        let pooled = class.and_then(|class| lock().take(class));
        Buffer(pooled.unwrap_or_else(|| Vec::with_capacity(class.map_or(byte_count, length_of))))
    }

    /// What was filled.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        if class_of(bytes.capacity()).is_some() {
            // What does not fit is freed here, after the lock.
            let left = lock().put(bytes);
            drop(left);
        }
    }
}

/// A copy in a buffer of the pool.
pub fn copy(data: &[u8]) -> Bytes {
    if class_of(data.len()).is_none() {
        return Bytes::copy_from_slice(data);
    }
    let mut buffer = Buffer::with_capacity(data.len());
    buffer.extend_from_slice(data);
    buffer.freeze()
}

fn lock() -> std::sync::MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_size_that_was_asked_for_whatever_the_buffer_has() {
        for byte_count in [0, 1, 4096, POOLED_BYTES_MIN, POOLED_BYTES_MIN + 1, 3 << 20, 40 << 20] {
            let data: Vec<u8> = (0..byte_count).map(|at| at as u8).collect();
            assert_eq!(copy(&data), data);
            let mut buffer = Buffer::with_capacity(byte_count);
            assert!(buffer.is_empty() && buffer.capacity() >= byte_count, "whatever its last user left");
            buffer.extend_from_slice(&data[..byte_count / 2]);
            assert_eq!(buffer.freeze(), data[..byte_count / 2]);
        }
    }

    #[test]
    fn a_class_holds_what_is_not_larger_and_more_than_half() {
        assert_eq!(class_of(POOLED_BYTES_MIN - 1), None);
        assert_eq!(class_of(crate::limits::BULK_BYTES_MAX).map(|class| class < CLASS_COUNT), Some(true));
        for byte_count in [POOLED_BYTES_MIN, POOLED_BYTES_MIN + 1, 1 << 20, (1 << 20) + 4096] {
            let class = class_of(byte_count).expect("it is pooled");
            let length = length_of(class);
            assert!(byte_count <= length && length < 2 * byte_count, "{byte_count} in {length}");
            assert_eq!(class_of(length), Some(class), "it goes back where it came from");
        }
    }

    #[test]
    fn what_comes_back_is_used_again_up_to_the_bound() {
        let class = class_of(1 << 20).expect("it is pooled");
        let mut pool = Pool::new(2 * length_of(class));
        let give = || Vec::with_capacity(length_of(class));
        assert_eq!(pool.put(give()), None);
        assert_eq!(pool.put(give()), None);
        assert!(pool.put(give()).is_some(), "no more than the bound");
        assert!(pool.put(vec![0; 100]).is_some(), "nothing small");
        assert!(
            pool.put(Vec::with_capacity(length_of(class) - 1)).is_some(),
            "nothing that its class could not rely on"
        );
        assert_eq!(pool.take(class).map(|bytes| bytes.capacity()), Some(length_of(class)));
        assert!(pool.take(class - 1).is_none(), "nothing of another size");
        assert_eq!(pool.put(vec![7; length_of(class)]), None, "there is room again");
        assert_eq!(pool.free[class].last(), Some(&Vec::new()), "nothing of what it held");
        assert_eq!(pool.free_bytes, 2 * length_of(class));
    }
}
