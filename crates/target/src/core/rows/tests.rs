#![allow(clippy::unwrap_used)]
use super::*;

/// The golden bytes of these rows: what is on disks.
#[test]
fn rows_are_a_version_byte_and_borsh() {
    let state = StateRow { epoch: Epoch(3), is_recovering: true, base: Transno(5), next_serial: 2 };
    let bytes = encode(&state);
    assert_eq!(bytes[..1], [VERSION]);
    assert_eq!(bytes[1..], [3, 0, 0, 0, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let read: StateRow = decode(STATE, STATE_KEY, &bytes).unwrap();
    assert_eq!(
        (read.epoch, read.is_recovering, read.base, read.next_serial),
        (Epoch(3), true, Transno(5), 2)
    );
}

#[test]
fn a_row_of_a_newer_version_is_refused_by_name_and_not_called_damaged() {
    let mut bytes = encode(&Transno(7));
    bytes[0] = VERSION + 1;
    let error = decode::<Transno>(STATE, MARK_KEY, &bytes).unwrap_err();
    let wanted =
        StoreError::UnknownRow { kind: "state", table: STATE, key: MARK_KEY.to_vec(), version: VERSION + 1 };
    assert_eq!(error, wanted);
    assert!(
        error.to_string().contains("of table 255, version 2) is sound and of a kind or version"),
        "{error}"
    );
    let cut = decode::<Transno>(STATE, MARK_KEY, &encode(&Transno(7))[..5]);
    assert_eq!(cut, Err(StoreError::CorruptRow { table: STATE, key: MARK_KEY.to_vec() }));
    assert_eq!(
        decode::<Transno>(STATE, MARK_KEY, &[]),
        Err(StoreError::CorruptRow { table: STATE, key: MARK_KEY.to_vec() })
    );
}
