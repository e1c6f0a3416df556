#![allow(clippy::unwrap_used)]

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Place {
    #[serde(with = "super")]
    dir: PathBuf,
    #[serde(default, with = "super::option")]
    other: Option<PathBuf>,
}

#[test]
fn any_path_comes_back() {
    let bytes = PathBuf::from(OsString::from_vec(b"/mnt/\xff\"x".to_vec()));
    for (dir, other) in [("/a b".into(), None), (bytes.clone(), Some(bytes)), ("".into(), Some("/c".into()))]
    {
        let place = Place { dir, other };
        let text = serde_json::to_string(&place).unwrap();
        assert_eq!(serde_json::from_str::<Place>(&text).unwrap(), place, "{text}");
    }
}

#[test]
fn text_stays_text() {
    let place = Place { dir: "/a".into(), other: None };
    assert_eq!(serde_json::to_string(&place).unwrap(), r#"{"dir":"/a","other":null}"#);
    assert_eq!(serde_json::from_str::<Place>(r#"{"dir":"/a"}"#).unwrap(), place);
}
