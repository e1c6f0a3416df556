use super::*;
use crate::model::ENOENT;

/// Each order of operations that need no explanation leads to the same state, which must not be kept once for each.
#[test]
fn operations_that_may_miss_do_not_multiply_the_states() {
    let mut model = Model::new();
    model.prepare(0);
    let path = vec!["f".to_string()];
    let told = |op| Done { client: 0, op, outcome: Some(Told::Error(ENOENT)) };
    let mut round = vec![told(Op::Unlink { path: path.clone() })];
    round.extend((0..7).map(|_| told(Op::Stat { path: path.clone() })));
    assert!(round[1].op.may_miss(&Told::Error(ENOENT)));
    let ops: Vec<&Done> = round.iter().collect();
    assert_eq!(explain(std::slice::from_ref(&model), &ops, 10), [model]);
}
