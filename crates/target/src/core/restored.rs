//! A target that was put back from an older copy, because there is no newer one.

use super::rows::{self, CLIENTS, SLOTS, STARTS};
use base::Epoch;
use store::{Batch, MetaStore, StoreError};

/// More starts than such a copy misses, as far as can be expected. If it misses more, others say so again, and how many.
const EPOCHS_SKIPPED: u64 = 64;
/// More sessions than anybody has made since the copy.
const SERIALS_SKIPPED: u64 = 1 << 24;

/// What makes an older copy the newest, before it is started: it begins as an incarnation that nobody knows, gives out nothing that its later
/// self has given out, and knows none of the clients, who have done other things since. They are told that their sessions are gone.
///
/// It begins after the incarnation `over` too, of which others know.
///
/// # Errors
/// Those of the store.
pub fn as_newest<M: MetaStore>(store: &M, over: Epoch) -> Result<Batch, StoreError> {
    let mut state = rows::read_state(store)?;
    let mut batch = Batch::new();
    for table in [CLIENTS, SLOTS, STARTS] {
        for (key, _) in rows::read_all(store, table)? {
            batch.delete(table, &key);
        }
    }
    state.epoch = Epoch(state.epoch.0 + EPOCHS_SKIPPED).max(over);
    state.next_serial += SERIALS_SKIPPED;
    (state.is_recovering, state.base) = (false, store.applied());
    rows::put_state(&mut batch, &state);
    Ok(batch)
}
