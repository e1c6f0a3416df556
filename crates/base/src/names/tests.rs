use super::{POSITION_FIRST, check_name, name_hash, stripe_of};
use crate::Status;

#[test]
fn positions_are_fixed_for_ever_and_positive() {
    assert_eq!(name_hash(b"hello"), xxhash_rust::xxh3::xxh3_64(b"hello") >> 1);
    for n in 0..1000u32 {
        let position = name_hash(&n.to_le_bytes());
        assert!(position >= POSITION_FIRST);
        assert!(i64::try_from(position).is_ok());
    }
}

#[test]
fn a_name_belongs_to_the_stripe_of_its_position_for_ever() {
    assert_eq!(stripe_of::<u16>(&[], b"hello"), None);
    for n in 0..1000u32 {
        let name = n.to_le_bytes();
        assert_eq!(stripe_of(&[0, 1, 2], &name), Some(name_hash(&name) % 3));
    }
}

#[test]
fn names_that_no_system_call_lets_through_are_refused() {
    assert_eq!(check_name(&[b'a'; 255]), Ok(()));
    assert_eq!(check_name(&[b'a'; 256]), Err(Status::NameTooLong));
    for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        assert_eq!(check_name(bad), Err(Status::Invalid));
    }
}
