use super::*;
use crate::model::ENOENT;

/// Each order of operations that need no explanation leads to the same state, which must not be kept once for each.
#[test]
fn operations_that_may_miss_do_not_multiply_the_states() {
    let mut model = Model::new();
    model.prepare(0);
    let path = vec!["f".to_string()];
    let told = |op| Done { client: 0, op, outcome: Some(Told::Error(ENOENT)), has_told_loss: false };
    let mut round = vec![told(Op::Unlink { path: path.clone() })];
    round.extend((0..7).map(|_| told(Op::Stat { path: path.clone() })));
    assert!(round[1].op.may_miss(&Told::Error(ENOENT)));
    let ops: Vec<&Done> = round.iter().collect();
    assert_eq!(explain(std::slice::from_ref(&model), &ops, &Room::default(), 10), [model]);
}

/// The directory into which it goes was found under another name, which it gave up for the name of what goes into it.
#[test]
fn a_rename_between_the_steps_of_another_may_put_a_directory_below_itself() {
    let mut model = Model::new();
    model.prepare(0);
    for (index, name) in ["a", "b"].into_iter().enumerate() {
        model.prepare(100 + index);
        let op = Op::Mkdir { path: vec![name.to_string()], mdt_index: None, stripe_count: 1 };
        assert!(model.explains(0, &op, &Told::Done));
    }
    model.prepare(0);
    let path = |text: &str| text.split('/').map(str::to_string).collect::<Path>();
    let rename = |from, to, flags| Op::Rename { from: path(from), to: path(to), flags };
    let below = Done {
        client: 0,
        op: rename("a", "b/c", 0),
        outcome: Some(Told::Error(EINVAL)),
        has_told_loss: false,
    };
    let exchange =
        Done { client: 1, op: rename("b", "a", 2), outcome: Some(Told::Done), has_told_loss: false };
    assert!(!explain(std::slice::from_ref(&model), &[&below, &exchange], &Room::default(), 10).is_empty());
    assert!(explain(&[model], &[&below], &Room::default(), 10).is_empty(), "alone it is wrong");
}

/// The objects of a file are cut one after the other; that of a file with one is cut or not.
#[test]
fn a_size_between_is_told_only_of_several_objects_that_change() {
    let path = |name: &str| vec![name.to_string()];
    let explained = |layout: usize, size: u64| {
        let mut model = Model::new();
        let slot = 0;
        let made = Op::Create { path: path("f"), is_exclusive: true, slot: Some(slot) };
        let written = Op::Write { slot, offset: 0, byte_count: 300, fill: 1 };
        assert!(model.explains(0, &Op::Setstripe { path: Path::new(), layout }, &Told::Done));
        model.prepare(7);
        assert!(model.explains(0, &made, &Told::Node(99)));
        assert!(model.explains(0, &written, &Told::Done));
        model.prepare(0);
        let Ok(Told::Stat(stat)) = model.clone().apply(0, &Op::Fstat { slot }) else { panic!("it is there") };
        let told = Told::Stat(Stat { size, node: 99, ..stat });
        let round = [
            Done {
                client: 1,
                op: Op::Truncate { path: path("f"), size: 100 },
                outcome: Some(Told::Done),
                has_told_loss: false,
            },
            Done { client: 0, op: Op::Fstat { slot }, outcome: Some(told), has_told_loss: false },
        ];
        !explain(&[model], &round.iter().collect::<Vec<_>>(), &Room::default(), 10).is_empty()
    };
    assert_eq!([100, 200, 300, 301, 99].map(|size| explained(1, size)), [true, true, true, false, false]);
    assert_eq!([100, 200, 300].map(|size| explained(0, size)), [true, false, true]);
}

/// OST0001 is full; the file has its units on both in turn.
#[test]
fn a_short_write_ends_where_the_next_byte_finds_no_room() {
    const UNIT: u64 = 65_536;
    let layout = Layout::plain(Fid::ROOT, 1, UNIT as u32, vec![0, 1]);
    let room = Room { full: BTreeSet::from([TargetId::ost(1)]), layouts: BTreeMap::from([(99, layout)]) };
    let explained = |room: &Room, op: &Op, told: Told, size_after: u64| {
        let mut model = Model::new();
        let made = Op::Create { path: vec!["f".into()], is_exclusive: true, slot: Some(0) };
        model.prepare(7);
        assert!(model.explains(0, &made, &Told::Node(99)));
        assert!(model.explains(0, &Op::Truncate { path: vec!["f".into()], size: 100 }, &Told::Done));
        model.prepare(0);
        let done = Done { client: 0, op: op.clone(), outcome: Some(told), has_told_loss: false };
        let after = explain(&[model], &[&done], room, 10);
        after.iter().any(|model| {
            model
                .clone()
                .apply(0, &Op::Fstat { slot: 0 })
                .is_ok_and(|told| matches!(told, Told::Stat(Stat { size, .. }) if size == size_after))
        })
    };
    let (none, slot, fill) = (Room::default(), 0, 1);
    let write = Op::Write { slot, offset: 10, byte_count: 3 * UNIT, fill };
    assert!(explained(&room, &write, Told::Written(UNIT - 10), UNIT));
    assert!(!explained(&none, &write, Told::Written(UNIT - 10), UNIT), "there was room");
    for count in [0, 1, UNIT - 11, UNIT, 2 * UNIT - 10, 3 * UNIT] {
        assert!(!explained(&room, &write, Told::Written(count), 10 + count), "{count}");
    }
    let error = || Told::Error(ENOSPC);
    assert!(!explained(&room, &write, error(), 100), "the first unit finds room");
    let behind = Op::Write { slot, offset: UNIT + 5, byte_count: UNIT, fill };
    assert!(explained(&room, &behind, error(), 100));
    assert!(!explained(&none, &behind, error(), 100));
    let append = Op::Append { slot, byte_count: UNIT, fill };
    assert!(explained(&room, &append, Told::Written(UNIT - 100), UNIT));
    assert!(!explained(&room, &append, Told::Written(UNIT - 10), UNIT));
}
