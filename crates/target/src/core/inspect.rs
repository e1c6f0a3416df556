//! The rows of sessions, for who looks at a target that nobody serves.

use super::rows::{self, CALLERS, CLIENTS, LAST_MARKS, SLOTS, STARTS, STATE, StateRow};
use base::{ClientId, Epoch, Start, Transno};
use store::{StoreError, Table};

/// The tables of this module's rows.
pub const TABLES: [Table; 6] = [LAST_MARKS, CLIENTS, SLOTS, STATE, STARTS, CALLERS];

/// Where the rows of `SessionRow::Slot` are.
pub const SLOT_TABLE: Table = SLOTS;

/// What one row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRow {
    /// Somebody who has a session. A mount may come back and say again what it has no answer to.
    Client {
        client: ClientId,
        incarnation: u64,
    },
    Slot(ClientId),
    /// The last incarnation of the target.
    State {
        epoch: Epoch,
    },
    /// Of an OST: everything up to here was durable, bytes included.
    Mark(Transno),
    /// The same of incarnations before this one, as it found it.
    LastMark {
        epoch: Epoch,
        mark: Transno,
    },
    /// A start of the target.
    Start(Start),
    /// The last start that is known of another target.
    Caller(ClientId, Start),
}

/// Reads a row of one of `TABLES`.
///
/// # Errors
/// `CorruptRow`.
pub fn read(table: Table, key: &[u8], value: &[u8]) -> Result<SessionRow, StoreError> {
    let damaged = || StoreError::CorruptRow { table, key: key.to_vec() };
    match table {
        CLIENTS => {
            let row: rows::ClientRow = rows::decode(table, key, value)?;
            Ok(SessionRow::Client { client: rows::client_of(table, key)?, incarnation: row.incarnation })
        }
        SLOTS if key.len() == rows::SLOT_KEY_BYTES => {
            rows::decode::<rows::SlotRow>(table, key, value)?;
            Ok(SessionRow::Slot(rows::client_of(table, key)?))
        }
        STATE if key == rows::STATE_KEY => {
            let row: StateRow = rows::decode(table, key, value)?;
            Ok(SessionRow::State { epoch: row.epoch })
        }
        STATE if key == rows::MARK_KEY => Ok(SessionRow::Mark(rows::decode(table, key, value)?)),
        LAST_MARKS => {
            let epoch = Epoch(u64::from_be_bytes(key.try_into().map_err(|_| damaged())?));
            Ok(SessionRow::LastMark { epoch, mark: rows::decode(table, key, value)? })
        }
        STARTS => Ok(SessionRow::Start(rows::decode(table, key, value)?)),
        CALLERS => Ok(SessionRow::Caller(rows::client_of(table, key)?, rows::decode(table, key, value)?)),
        _ => Err(damaged()),
    }
}

/// Table and key of the row that `SessionRow::State` is of.
pub fn state_key() -> (Table, Vec<u8>) {
    (STATE, rows::STATE_KEY.to_vec())
}

/// That row with another epoch.
///
/// # Errors
/// `CorruptRow`.
pub fn with_epoch(value: &[u8], epoch: Epoch) -> Result<Vec<u8>, StoreError> {
    let row: StateRow = rows::decode(STATE, rows::STATE_KEY, value)?;
    Ok(rows::encode(&StateRow { epoch, ..row }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rows_are_told_by_their_tables_and_damaged_ones_refused() {
        let state = rows::encode(&StateRow { epoch: Epoch(4), next_serial: 7, ..StateRow::default() });
        assert_eq!(read(STATE, rows::STATE_KEY, &state), Ok(SessionRow::State { epoch: Epoch(4) }));
        let raised = with_epoch(&state, Epoch(9)).unwrap();
        assert_eq!(read(STATE, rows::STATE_KEY, &raised), Ok(SessionRow::State { epoch: Epoch(9) }));
        assert_eq!(raised[9..], state[9..], "nothing else is changed");
        let mark = rows::encode(&Transno(5));
        let last = SessionRow::LastMark { epoch: Epoch(3), mark: Transno(5) };
        assert_eq!(read(LAST_MARKS, &3_u64.to_be_bytes(), &mark), Ok(last));
        for (table, key) in [(STATE, &b"other"[..]), (LAST_MARKS, b"short"), (SLOTS, &[0; 17]), (7, b"x")] {
            assert!(matches!(read(table, key, &mark), Err(StoreError::CorruptRow { .. })));
        }
        assert!(with_epoch(&mark, Epoch(1)).is_err());
    }
}
