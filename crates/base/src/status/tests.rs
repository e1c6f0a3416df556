#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn codes_survive_the_round_trip() {
    for status in Status::ALL {
        assert_eq!(Status::from_code(status.code()), Some(*status));
        let bytes = borsh::to_vec(status).unwrap();
        assert_eq!(borsh::from_slice::<Status>(&bytes).unwrap(), *status);
    }
}

#[test]
fn unknown_codes_are_protocol_errors() {
    assert_eq!(Status::from_code(60_000), None);
    assert_eq!(borsh::from_slice::<Status>(&60_000u16.to_le_bytes()).unwrap(), Status::ProtocolError);
}
