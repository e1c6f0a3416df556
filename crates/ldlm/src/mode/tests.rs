use super::*;
use LockMode::{Cr, Cw, Ex, Group, Nl, Pr, Pw};

const ALL: [LockMode; 7] = [Ex, Pw, Pr, Cw, Cr, Nl, Group];

#[test]
fn the_table_is_symmetric() {
    for a in ALL {
        for b in ALL {
            assert_eq!(is_compatible(a, b), is_compatible(b, a), "{a:?} {b:?}");
        }
    }
}

#[test]
fn readers_share_and_writers_do_not() {
    assert!(is_compatible(Pr, Pr));
    assert!(is_compatible(Cw, Cw));
    assert!(is_compatible(Cr, Pw));
    assert!(is_compatible(Group, Group));
    for other in [Ex, Pw, Pr, Cw, Cr, Group] {
        assert!(!is_compatible(Ex, other));
    }
    assert!(!is_compatible(Pw, Pr));
    assert!(!is_compatible(Pr, Cw));
    assert!(!is_compatible(Group, Pr));
}

#[test]
fn a_mode_that_covers_another_conflicts_with_all_that_the_other_conflicts_with() {
    for held in ALL {
        for wanted in ALL.into_iter().filter(|wanted| mode_covers(held, *wanted)) {
            for third in ALL {
                assert!(
                    is_compatible(wanted, third) || !is_compatible(held, third),
                    "{held:?} {wanted:?} {third:?}"
                );
            }
        }
    }
}

#[test]
fn disjoint_bits_and_extents_do_not_meet() {
    let extent = |start, end| LockPolicy::Extent(base::Extent::new(start, end));
    assert!(!policies_overlap(LockPolicy::Bits(bits::LOOKUP), LockPolicy::Bits(bits::UPDATE)));
    assert!(!policies_overlap(extent(0, 10), extent(10, 20)));
    assert!(policies_overlap(extent(0, 11), extent(10, 20)));
    assert!(policy_covers(extent(0, 20), extent(10, 20)));
    assert!(!policy_covers(LockPolicy::Bits(3), LockPolicy::Bits(4)));
}
