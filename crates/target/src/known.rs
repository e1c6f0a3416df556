//! Rows that a program understands: what it does not know is found before anything is changed, and not in the middle of serving.
//!
//! A newer version may leave rows of kinds or versions that this one does not know. Kinds, and the rows of those that a start reads
//! anyway, are looked at one by one; of tables that grow with the file system the first row is: a start is not to read a namespace. A newer version
//! that changes rows of such a table marks that with a row under a key of its own in one of the small ones, or raises the version of the directory.

use crate::core::inspect;
use store::{KEY_BYTES_MAX, MetaStore, StoreError, Table};

/// What is known of the rows of one table.
#[derive(Clone, Copy)]
pub struct Kind {
    pub table: Table,
    /// What its rows are, in one word or two.
    pub name: &'static str,
    pub look: Look,
}

/// Which rows are looked at, and whether one is understood, by its key and its value.
#[derive(Clone, Copy)]
pub enum Look {
    /// They are bytes as they are.
    Nowhere,
    First(fn(&[u8], &[u8]) -> bool),
    All(fn(&[u8], &[u8]) -> bool),
}

/// Whether a value begins with this version.
pub fn is_version(value: &[u8], version: u8) -> bool {
    value.first() == Some(&version)
}

/// Tables of `Core`. The rest of their rows is read before anything is changed.
const OF_CORE: [Kind; 6] = [
    Kind { table: inspect::TABLES[0], name: "mark", look: Look::Nowhere },
    Kind { table: inspect::TABLES[1], name: "client", look: Look::Nowhere },
    Kind { table: inspect::TABLES[2], name: "answer", look: Look::Nowhere },
    Kind {
        table: inspect::TABLES[3],
        name: "state",
        look: Look::All(|key, value| inspect::read(inspect::TABLES[3], key, value).is_ok()),
    },
    Kind { table: inspect::TABLES[4], name: "start", look: Look::Nowhere },
    Kind { table: inspect::TABLES[5], name: "start", look: Look::Nowhere },
];

/// Looks at the rows of a target with these tables beside those of `Core`. Nothing is changed.
///
/// # Errors
/// `UnknownRow`. What cannot be read is no error here: it is found by who needs it.
pub fn check(store: &dyn MetaStore, kinds: &[Kind]) -> Result<(), StoreError> {
    for table in 0..=Table::MAX {
        let kind = kinds.iter().chain(&OF_CORE).find(|kind| kind.table == table);
        let (name, look) =
            kind.map_or(("nameless", Look::First(|_, _| false)), |kind| (kind.name, kind.look));
        let (limit, is_known) = match look {
            Look::Nowhere => continue,
            Look::First(is_known) => (1, is_known),
            Look::All(is_known) => (usize::MAX, is_known),
        };
        let mut unknown = None;
        let end = [0xff; KEY_BYTES_MAX];
        // What is damaged, or cannot be read, is found by whoever needs it.
        let _ = store.scan(table, &[], &end, limit, &mut |key, value| {
            if !is_known(key, value) {
                let version = value.first().copied().unwrap_or(0);
                unknown = Some(StoreError::UnknownRow { kind: name, table, key: key.to_vec(), version });
            }
            unknown.is_none()
        });
        if let Some(unknown) = unknown {
            return Err(unknown);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base::Transno;
    use store::{Batch, MemoryMeta};

    const KINDS: [Kind; 2] = [
        Kind { table: 1, name: "large", look: Look::First(|_, value| is_version(value, 1)) },
        Kind { table: 2, name: "small", look: Look::All(|_, value| is_version(value, 1)) },
    ];

    fn check_with(rows: &[(Table, &[u8], &[u8])]) -> Result<(), StoreError> {
        let store = MemoryMeta::new();
        let mut batch = Batch::new();
        rows.iter().for_each(|(table, key, value)| batch.put(*table, key, value));
        store.apply(Transno(1), &batch).unwrap();
        check(&store, &KINDS)
    }

    #[test]
    fn rows_that_are_not_known_are_named() {
        check_with(&[(1, b"a", b"\x01x"), (2, b"a", b"\x01"), (2, b"b", b"\x01")]).unwrap();
        let unknown = |kind, table, key: &[u8], version| {
            Err(StoreError::UnknownRow { kind, table, key: key.to_vec(), version })
        };
        assert_eq!(check_with(&[(1, b"a", b"\x02x")]), unknown("large", 1, b"a", 2));
        assert_eq!(check_with(&[(2, b"a", b"\x01"), (2, b"b", b"\x03")]), unknown("small", 2, b"b", 3));
        assert_eq!(check_with(&[(77, b"key", b"")]), unknown("nameless", 77, b"key", 0));
        let (state, _) = inspect::state_key();
        assert_eq!(check_with(&[(state, b"needs", b"\x01")]), unknown("state", state, b"needs", 1));
        let error = check_with(&[(77, b"key", b"\x05")]).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            error.contains("table 77") && error.contains("version 5") && error.contains("newer"),
            "{error}"
        );
    }
}
