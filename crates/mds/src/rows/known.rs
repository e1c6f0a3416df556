//! Rows of an MDT that this version understands, as far as a start looks at them.

use super::*;
use std::collections::BTreeSet;
use target::known::{Kind, Look, is_version};

const fn kind(table: Table, name: &'static str, look: Look) -> Kind {
    Kind { table, name, look }
}

/// Rows of a table that grows with the file system, or with what is to be done.
const OF_THIS_VERSION: Look = Look::First(|_, value| is_version(value, ROW_VERSION));

const KINDS: [Kind; 14] = [
    kind(DENTRIES, "dentry", OF_THIS_VERSION),
    kind(INODES, "inode", OF_THIS_VERSION),
    kind(XATTRS, "xattr", Look::Nowhere),
    kind(LINKS, "link", Look::First(|_, value| value.is_empty())),
    kind(ORPHANS, "orphan", Look::First(|_, value| value.is_empty() || value == NEVER_NAMED)),
    kind(DESTROYS, "destroy", OF_THIS_VERSION),
    kind(MOVED, "moved inode", OF_THIS_VERSION),
    kind(ADOPTS, "adoption", OF_THIS_VERSION),
    kind(DATA_HEADS, "data head", OF_THIS_VERSION),
    kind(DATA, "data chunk", Look::Nowhere),
    // Operations of several MDTs: their parts are as many kinds of rows again.
    kind(PREPARES, "prepare", Look::All(|_, value| decode::<Prepare>(value).is_ok())),
    kind(DECISIONS, "decision", Look::All(|_, value| decode::<Decision>(value).is_ok())),
    kind(STREAMED, "streamed part", Look::All(|_, value| decode::<Streamed>(value).is_ok())),
    kind(STATE, "state", Look::All(is_state)),
];

/// Whether this version understands the rows of an MDT, as a start looks at them.
///
/// # Errors
/// `UnknownRow`.
pub fn check_known(store: &dyn store::MetaStore) -> Result<(), store::StoreError> {
    target::known::check(store, &KINDS)
}

fn is_state(key: &[u8], value: &[u8]) -> bool {
    match key {
        KNOWN_TARGETS_KEY => decode::<KnownTargets>(value).is_ok(),
        POOLS_KEY => decode::<Vec<base::Pool>>(value).is_ok(),
        NO_CREATE_KEY | NO_CREATE_MDTS_KEY => decode::<BTreeSet<u16>>(value).is_ok(),
        STRAYS_KEY => decode::<base::Epoch>(value).is_ok(),
        key if key.starts_with(EXECUTED_PREFIX) => decode::<OperationId>(value).is_ok(),
        key if split_evicted_key(key).is_some() => decode_evicted(value).is_ok(),
        key if key.starts_with(GIVEN_PREFIX) => decode::<u16>(value).is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Mds, MdsOptions, OpenError};
    use base::limits::RECOVERY_WINDOW;
    use base::{Now, Status, TargetId, Time, Transno, WallTime};
    use std::sync::Arc;
    use store::{Batch, MemoryMeta, MetaStore, StoreError};

    fn open(store: &Arc<MemoryMeta>) -> Result<(), OpenError> {
        let options = MdsOptions {
            index: 0,
            uuid: 1,
            fsname: "fs".into(),
            nid: "here".into(),
            now: Now { time: Time::ZERO, wall: WallTime(1_000_000_000) },
            device: 1,
            recovery_window: RECOVERY_WINDOW,
            root_owner: (0, 0),
        };
        Mds::open(Arc::clone(store), options).map(drop)
    }

    /// What a newer version has left: it is refused before anything is changed, not where somebody first meets it.
    #[test]
    fn rows_of_a_newer_version_are_refused_at_the_start_and_nothing_is_changed() {
        let newer = [2, 7, 7];
        let executed = executed_key(3);
        let cases: [(Table, &[u8], &str); 7] = [
            (STATE, b"something new", "state"),
            (STATE, &executed, "state"),
            (PREPARES, &[0; 18], "prepare"),
            (STREAMED, &[0; 20], "streamed part"),
            (DENTRIES, &[0; 24], "dentry"),
            (DATA_HEADS, &[0; 20], "data head"),
            (99, b"any", "nameless"),
        ];
        for (table, key, name) in cases {
            let store = Arc::new(MemoryMeta::new());
            open(&store).unwrap();
            let mut batch = Batch::new();
            batch.put(table, key, &newer);
            let transno = Transno(store.applied().0 + 1);
            store.apply(transno, &batch).unwrap();
            let before = store.rows();
            let error = open(&store).unwrap_err();
            let is_named = matches!(
                &error,
                OpenError::Store { target, source: StoreError::UnknownRow { kind, version: 2, .. } } if *kind == name && *target == TargetId::mdt(0)
            );
            assert!(is_named, "{name}: {error}");
            assert_eq!(store.applied(), transno, "{name}");
            assert!(before == store.rows(), "{name}: something was changed");
            // As it is when the newer program has taken it away.
            let mut batch = Batch::new();
            batch.delete(table, key);
            store.apply(transno.next(), &batch).unwrap();
            open(&store).unwrap();
        }
        assert_eq!(decode::<Dentry>(&newer), Err(Status::Corrupt));
    }
}
