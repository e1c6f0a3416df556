//! Paths in JSON: text where they are text, otherwise a list of bytes. Names of files are bytes, and JSON has only text.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Words {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for Words {
    fn from(path: &Path) -> Words {
        match path.to_str() {
            Some(text) => Words::Text(text.to_owned()),
            None => Words::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<Words> for PathBuf {
    fn from(words: Words) -> PathBuf {
        match words {
            Words::Text(text) => text.into(),
            Words::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// For `#[serde(with)]`.
pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    Words::from(path).serialize(to)
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    Ok(Words::deserialize(from)?.into())
}

/// The same for a path that may be missing.
pub mod option {
    use super::{Deserialize, Deserializer, PathBuf, Serialize, Serializer, Words};

    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Words::from).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Words>::deserialize(from)?.map(PathBuf::from))
    }
}

#[cfg(test)]
mod tests;
