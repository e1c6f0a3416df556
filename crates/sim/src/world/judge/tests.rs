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

/// The directory into which it goes was found under another name, which it gave up for the name of what goes into it.
#[test]
fn a_rename_between_the_steps_of_another_may_put_a_directory_below_itself() {
    let mut model = Model::new();
    model.prepare(0);
    for (index, name) in ["a", "b"].into_iter().enumerate() {
        model.prepare(100 + index);
        let op = Op::Mkdir { path: vec![name.to_string()], mdt_index: None };
        assert!(model.explains(0, &op, &Told::Done));
    }
    model.prepare(0);
    let path = |text: &str| text.split('/').map(str::to_string).collect::<Path>();
    let rename = |from, to, flags| Op::Rename { from: path(from), to: path(to), flags };
    let below = Done { client: 0, op: rename("a", "b/c", 0), outcome: Some(Told::Error(EINVAL)) };
    let exchange = Done { client: 1, op: rename("b", "a", 2), outcome: Some(Told::Done) };
    assert!(!explain(std::slice::from_ref(&model), &[&below, &exchange], 10).is_empty());
    assert!(explain(&[model], &[&below], 10).is_empty(), "alone it is wrong");
}
