use super::*;

fn journal(names: &[(&str, Node)]) -> Journal {
    let mut journal = Journal::new(PathBuf::new(), 0, PathBuf::new());
    journal.names = names.iter().map(|(name, node)| ((*name).to_owned(), *node)).collect();
    journal
}

fn keys(names: Option<Names>) -> Option<Vec<String>> {
    names.map(|names| names.into_keys().collect())
}

#[test]
fn what_is_refused_is_not_called() {
    let journal =
        journal(&[("m0/d0.0", Node::PLAIN), ("m0/d0.0/f1", Node::File(1)), ("m1/d1.0", Node::PLAIN)]);
    let name = |text: &str| text.to_owned();
    assert!(journal.after(&Step::Rmdir(name("m0/d0.0"))).is_none(), "it is not empty");
    assert!(journal.after(&Step::Mkdir(name("m0/d0.0"))).is_none());
    assert!(journal.after(&Step::Rename(name("m1/d1.0"), name("m0/d0.0"))).is_none(), "it is not empty");
    assert!(journal.after(&Step::Link(name("m0/f9.0"), name("m0/f1.0"))).is_none());
    let moved = journal.after(&Step::Rename(name("m0/d0.0"), name("m1/d1.0")));
    assert_eq!(keys(moved), Some(vec![name("m1/d1.0"), name("m1/d1.0/f1")]));
}

#[test]
fn half_of_a_rename_is_neither_before_it_nor_after_it() {
    let before = journal(&[("m0/f0.0", Node::File(3)), ("m1/f1.0", Node::File(4))]);
    let after = before.after(&Step::Rename("m0/f0.0".to_owned(), "m1/f1.0".to_owned())).expect("is possible");
    let found = |names: &[(&str, u64, u64)]| {
        let entry =
            |(name, ino, link_count): &(&str, u64, u64)| ((*name).to_owned(), seen(*ino, false, *link_count));
        names.iter().map(entry).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(difference(&found(&[("m0/f0.0", 70, 1), ("m1/f1.0", 80, 1)]), &before.names), None);
    assert_eq!(difference(&found(&[("m1/f1.0", 70, 1)]), &after), None);
    for half in [&[("m0/f0.0", 70, 1), ("m1/f1.0", 70, 1)][..], &[("m0/f0.0", 70, 1)], &[("m1/f1.0", 70, 2)]]
    {
        let half = found(half);
        assert!(
            difference(&half, &before.names).is_some() && difference(&half, &after).is_some(),
            "{half:?}"
        );
    }
}

fn seen(ino: u64, is_directory: bool, link_count: u64) -> Seen {
    Seen { ino, is_directory, link_count, mode: 0o755 }
}

#[test]
fn a_directory_with_a_wrong_link_count_or_mode_is_noticed() {
    let striped = Node::Directory { is_striped: true, mode: Some(0o755) };
    let journal =
        journal(&[("m0/d0.0", striped), ("m0/d0.0/d1", Node::PLAIN), ("m0/d0.0/f1", Node::File(1))]);
    let found = |link_count, mode| {
        let above = Seen { mode, ..seen(7, true, link_count) };
        let entries =
            [("m0/d0.0", above), ("m0/d0.0/d1", seen(8, true, 2)), ("m0/d0.0/f1", seen(9, false, 1))];
        entries.map(|(name, seen)| (name.to_owned(), seen)).into_iter().collect::<Found>()
    };
    assert_eq!(difference(&found(3, 0o755), &journal.names), None);
    assert!(difference(&found(2, 0o755), &journal.names).is_some());
    assert!(difference(&found(3, 0o700), &journal.names).is_some());
}

#[test]
fn every_kind_is_drawn_and_is_what_it_was_drawn_as() {
    let striped = Node::Directory { is_striped: true, mode: None };
    let mut journal = journal(&[
        ("m0/d0.0", Node::PLAIN),
        ("m0/d1.0", striped),
        ("m1/d2.0", Node::PLAIN),
        ("m0/f0.0", Node::File(1)),
        ("m1/f1.0", Node::File(2)),
    ]);
    let mut random = Random::new(1);
    let mut drawn = BTreeSet::new();
    for _ in 0..10 * Kind::ALL.len() {
        if let Some((kind, step)) = journal.draw(&mut random) {
            assert_eq!(journal.kind_of(&step), kind, "{step:?}");
            assert!(journal.after(&step).is_some(), "{step:?}");
            drawn.insert(kind);
        }
    }
    assert_eq!(drawn, BTreeSet::from(Kind::ALL));
}
