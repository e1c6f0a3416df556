use super::*;

#[test]
fn only_living_mounts_count() {
    let at = |counts: &[(&str, u64)], beyond_killed| Evictions {
        of_mounts: counts.iter().map(|(path, count)| (PathBuf::from(path), *count)).collect(),
        beyond_killed,
    };
    let before = at(&[("a", 1), ("b", 0), ("gone", 4)], 0);
    assert_eq!(at(&[("a", 1), ("b", 0)], 0).since(&before), 0);
    assert_eq!(at(&[("a", 2), ("b", 1)], 0).since(&before), 2);
    assert_eq!(at(&[("a", 1), ("b", 0)], 3).since(&before), 3, "targets know of more than have died");
    assert_eq!(number_behind("evictions:", "import:\n    state: FULL\n       evictions: 7\n"), 7);
    assert_eq!(number_behind("evictions:", "nothing"), 0);
}
