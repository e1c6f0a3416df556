#![allow(clippy::unwrap_used)]

use super::*;

fn path(text: &str) -> Path {
    text.split('/').map(str::to_string).collect()
}

#[test]
fn rename_replaces_and_counts_links() {
    let mut model = Model::new();
    for name in ["d", "e"] {
        model.apply(0, &Op::Mkdir { path: path(name), mdt_index: None, stripe_count: 1 }).unwrap();
    }
    model.apply(0, &Op::Mkdir { path: path("d/x"), mdt_index: None, stripe_count: 1 }).unwrap();
    assert_eq!(model.inode(ROOT).link_count, 4);
    let rename = |from: &str, to: &str, flags| Op::Rename { from: path(from), to: path(to), flags };
    assert_eq!(model.apply(0, &rename("d", "d/x/y", 0)), Err(EINVAL));
    assert_eq!(model.apply(0, &rename("e", "d", 0)), Err(ENOTEMPTY));
    model.apply(0, &rename("d", "e", 0)).unwrap();
    assert_eq!(model.inode(ROOT).link_count, 3);
    assert_eq!(model.find(&path("e/x")).map(|_| ()), Ok(()));
    assert_eq!(model.find(&path("d")), Err(ENOENT));
}

#[test]
fn an_open_file_outlives_its_name() {
    let mut model = Model::new();
    model.apply(0, &Op::Create { path: path("f"), is_exclusive: true, slot: Some(1) }).unwrap();
    model.apply(0, &Op::Write { slot: 1, offset: 3, byte_count: 2, fill: 7 }).unwrap();
    model.apply(1, &Op::Unlink { path: path("f") }).unwrap();
    let read = model.apply(0, &Op::Read { slot: 1, offset: 0, byte_count: 100 });
    assert_eq!(read, Ok(Outcome::Bytes(vec![0, 0, 0, 7, 7])));
    model.apply(0, &Op::Close { slot: 1 }).unwrap();
    assert_eq!(model.inodes.len(), 1);
}
