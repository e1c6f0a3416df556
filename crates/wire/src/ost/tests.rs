use super::*;

/// Bytes that an object may have here.
const MAX: u64 = 1000;

#[test]
fn a_truncate_decides_about_all_behind_the_new_size() {
    let cut = |to| ExtentOp::Truncate.covered(Extent::new(to, to), MAX);
    assert_eq!(cut(0), Ok(Extent::WHOLE));
    assert_eq!(cut(MAX), Ok(Extent::new(MAX, Extent::EOF)));
    assert_eq!(cut(MAX + 1), Err(Status::TooBig));
}

#[test]
fn what_ends_with_the_object_makes_it_no_longer() {
    let zero = ExtentOp::Zero { keep_size: false };
    let allocate = ExtentOp::Allocate { keep_size: true };
    for op in [ExtentOp::Punch, zero, allocate] {
        assert_eq!(op.covered(Extent::new(5, MAX), MAX), Ok(Extent::new(5, MAX)), "{op:?}");
        assert_eq!(op.covered(Extent::new(5, MAX + 1), MAX), Err(Status::TooBig), "{op:?}");
        assert_eq!(op.covered(Extent::new(5, 5), MAX), Err(Status::Invalid), "{op:?}");
    }
    let open = Extent::new(5, Extent::EOF);
    assert_eq!([ExtentOp::Punch, zero].map(|op| op.covered(open, MAX)), [Ok(open); 2]);
    assert_eq!(allocate.covered(open, MAX), Err(Status::TooBig), "nobody can have so much");
    assert_eq!(zero.covered(Extent::new(MAX + 1, Extent::EOF), MAX), Err(Status::TooBig));
}
