use super::*;

#[test]
fn a_module_names_what_it_needs() {
    let module = b"\x7fELF...\0license=GPL\0depends=fscache,9pnet\0retpoline=Y\0";
    assert_eq!(depends(module), ["fscache", "9pnet"]);
    assert_eq!(depends(b"\0depends=\0name=fuse\0"), Vec::<String>::new());
    assert_eq!(depends(b"no module"), Vec::<String>::new());
}

#[test]
fn needed_modules_come_first() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, needs) in [("top.ko", "mid-dle"), ("mid-dle.ko", "base"), ("base.ko", ""), ("other.ko", "")] {
        let text = format!("\0depends={needs}\0");
        fs::write(directory.path().join(name), text).expect("a module");
    }
    let mut known = BTreeMap::new();
    find_modules(directory.path(), &mut known).expect("modules");
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    add("top", &known, &mut seen, &mut order).expect("all are there");
    let names: Vec<_> = order.iter().map(|path| path.file_stem().unwrap_or_default().to_owned()).collect();
    assert_eq!(names, ["base", "mid-dle", "top"]);
    assert!(add("missing", &known, &mut seen, &mut order).is_err());
}

#[test]
fn entries_of_the_archive_are_padded() {
    let mut archive = Archive::default();
    archive.file("a", 0o644, b"12345");
    let bytes = archive.finish();
    assert!(bytes.starts_with(b"07070100000001000081a4"));
    // 110 bytes of header, name with its end: 112; five bytes of contents: eight.
    assert_eq!(bytes.get(112..120), Some(&b"12345\0\0\0"[..]));
    assert_eq!(bytes.get(120..126), Some(&b"070701"[..]));
    assert_eq!(bytes.len() % 4, 0);
}
