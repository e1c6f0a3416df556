//! What the clients of a target hold: a note of its locks and open handles that outlives the process, but not the machine.
//!
//! A target that was restarted has its rows, and asks its clients what they had locked and open. Who does not come back cannot say
//! it. So the target notes it beforehand in memory that the kernel keeps when the process dies. The note is no truth by itself: what
//! cannot be proved to be the whole of what the incarnation before had granted is not used, and then everybody is waited for.

use base::{ClientId, Epoch, Transno};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Words that describe one thing that a client holds; the server says what they mean.
pub const HOLDING_WORDS: usize = 6;

pub type Holding = [u64; HOLDING_WORDS];

/// What names a thing that a client holds. `kind` is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldingKey {
    pub client: ClientId,
    pub kind: u64,
    pub number: u64,
}

/// The note of the incarnation before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub epoch: Epoch,
    /// Everything up to here was handed to the kernel, and was perhaps answered.
    pub applied: Transno,
    pub held: Vec<(HoldingKey, Holding)>,
}

/// One target's note.
///
/// Who grants calls `put` before anybody can hear of it, and `remove` when what took it back can not be lost with the process any more.
pub trait Holdings: Send {
    /// What the incarnation before has left, if it is all of it. `begin` follows before anything else.
    fn take_left(&mut self) -> Option<Left>;

    /// The note of this incarnation, in place of the one before. Until it `is_whole` nothing can be left to the next.
    fn begin(&mut self, epoch: Epoch, held: &[(HoldingKey, Holding)], is_whole: bool);

    /// Notes something, or says it anew. One that has no room for it is not whole any more, whatever it is told later.
    fn put(&mut self, key: HoldingKey, holding: Holding);

    /// What is not there is no error.
    fn remove(&mut self, key: HoldingKey);

    /// Everything up to here is in the hands of the kernel.
    fn set_applied(&mut self, applied: Transno);

    /// Everything that was granted is noted from now on.
    fn set_whole(&mut self);
}

/// Nothing is noted: everybody is waited for.
#[derive(Debug, Default)]
pub struct Nothing;

impl Holdings for Nothing {
    fn take_left(&mut self) -> Option<Left> {
        None
    }

    fn begin(&mut self, _epoch: Epoch, _held: &[(HoldingKey, Holding)], _is_whole: bool) {}

    fn put(&mut self, _key: HoldingKey, _holding: Holding) {}

    fn remove(&mut self, _key: HoldingKey) {}

    fn set_applied(&mut self, _applied: Transno) {}

    fn set_whole(&mut self) {}
}

#[derive(Debug, Default)]
struct Noted {
    epoch: Epoch,
    applied: Transno,
    is_whole: bool,
    held: BTreeMap<HoldingKey, Holding>,
}

/// The model. Clones share one note: keep one for the faults, hand another to each incarnation.
#[derive(Clone, Debug, Default)]
pub struct MemoryHoldings {
    noted: Arc<Mutex<Noted>>,
    held_max: Option<usize>,
}

impl MemoryHoldings {
    pub fn new() -> MemoryHoldings {
        MemoryHoldings::default()
    }

    /// With room for so many things.
    pub fn with_room(held_max: usize) -> MemoryHoldings {
        MemoryHoldings { held_max: Some(held_max), ..MemoryHoldings::default() }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine ends, or another one begins.
    pub fn forget(&self) {
        *self.noted() = Noted::default();
    }

    /// What is noted now, for checkers.
    pub fn held(&self) -> BTreeMap<HoldingKey, Holding> {
        self.noted().held.clone()
    }

    pub fn is_whole(&self) -> bool {
        self.noted().is_whole
    }

    /// Whether this is what is noted now, in whatever order.
    pub fn is_exactly(&self, mut held: Vec<(HoldingKey, Holding)>) -> bool {
        held.sort_unstable_by_key(|(key, _)| *key);
        self.noted().held.iter().eq(held.iter().map(|(key, holding)| (key, holding)))
    }
}

impl Holdings for MemoryHoldings {
    fn take_left(&mut self) -> Option<Left> {
        let noted = self.noted();
        let held = noted.held.iter().map(|(key, holding)| (*key, *holding)).collect();
        noted.is_whole.then_some(Left { epoch: noted.epoch, applied: noted.applied, held })
    }

    fn begin(&mut self, epoch: Epoch, held: &[(HoldingKey, Holding)], is_whole: bool) {
        let held: BTreeMap<_, _> = held.iter().copied().collect();
        let is_enough = self.held_max.is_none_or(|max| held.len() <= max);
        *self.noted() = Noted { epoch, applied: Transno::ZERO, is_whole: is_whole && is_enough, held };
    }

    fn put(&mut self, key: HoldingKey, holding: Holding) {
        let held_max = self.held_max;
        let mut noted = self.noted();
        let is_full = held_max.is_some_and(|max| noted.held.len() >= max);
        if is_full && !noted.held.contains_key(&key) {
            // Of no incarnation: `set_whole` cannot bring it back.
            (noted.is_whole, noted.epoch) = (false, Epoch::ZERO);
            return;
        }
        noted.held.insert(key, holding);
    }

    fn remove(&mut self, key: HoldingKey) {
        self.noted().held.remove(&key);
    }

    fn set_applied(&mut self, applied: Transno) {
        self.noted().applied = applied;
    }

    fn set_whole(&mut self) {
        let mut noted = self.noted();
        noted.is_whole = noted.epoch != Epoch::ZERO;
    }
}
