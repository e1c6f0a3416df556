use super::Settings;

#[test]
fn settings_are_checked_before_anything_is_measured() {
    let text = "llite.*.statahead_max=0,llite.*.xattr_cache=1";
    assert_eq!(Settings::parse(text).map(|settings| settings.each.len()).ok(), Some(2));
    for wrong in ["llite.*.statahead_max", "llite.*.statahead_max=many", "llite.*.no_such_thing=1", ""] {
        assert!(Settings::parse(wrong).is_err(), "{wrong}");
    }
}
