//! Extended attributes of an inode in one piece: most that have any have one or two, with short values.

use crate::small_bytes::SmallBytes;
use crate::varint::{put_bytes, put_number, take_bytes, take_number};
use std::collections::BTreeMap;

/// What is behind a name, as one number.
const UNKNOWN: u64 = 0;
const HERE: u64 = 1;
const APART: u64 = 2;

/// By name: each name, and its value where that is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Xattrs(SmallBytes);

/// The same, where they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XattrList<'a>(&'a [u8]);

/// What is known of the value of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Unknown,
    Here(&'a [u8]),
    /// It is among `LongXattrs`.
    Apart,
}

impl Xattrs {
    /// Of names that come twice the last counts.
    pub(crate) fn new<'a>(xattrs: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Xattrs {
        let by_name: BTreeMap<_, _> = xattrs.collect();
        let mut packed = Vec::new();
        for (name, value) in by_name {
            put_bytes(&mut packed, name);
            put_number(&mut packed, if value.is_some() { HERE } else { UNKNOWN });
            value.iter().for_each(|value| put_bytes(&mut packed, value));
        }
        Xattrs(SmallBytes::from(packed.as_slice()))
    }

    #[cfg(test)]
    pub(crate) fn apart_byte_count(&self) -> usize {
        self.0.apart_byte_count()
    }

    pub(crate) fn list(&self) -> XattrList<'_> {
        XattrList(&self.0)
    }

    /// The value of a name that had none is apart from now on, or is not any more. Nothing happens where there is no such name.
    pub(crate) fn note_apart(&mut self, name: &[u8], is_apart: bool) {
        let mut rest = &*self.0;
        while let Some(known) = take_bytes(&mut rest) {
            let place = self.0.len() - rest.len();
            let Some(kind) = take_number(&mut rest) else { return };
            if kind == HERE && take_bytes(&mut rest).is_none() {
                return;
            }
            if known == name {
                // Each of these numbers is one byte.
                if let Some(byte) = self.0.get_mut(place).filter(|_| kind != HERE) {
                    *byte = if is_apart { APART as u8 } else { UNKNOWN as u8 };
                }
                return;
            }
        }
    }
}

impl<'a> XattrList<'a> {
    pub(crate) const EMPTY: XattrList<'static> = XattrList(&[]);

    fn iter(self) -> impl Iterator<Item = (&'a [u8], Value<'a>)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let name = take_bytes(&mut rest)?;
            let value = match take_number(&mut rest)? {
                HERE => Value::Here(take_bytes(&mut rest)?),
                APART => Value::Apart,
                _ => Value::Unknown,
            };
            Some((name, value))
        })
    }

    /// What is known of the value of a name, if that is there.
    pub(crate) fn get(self, name: &[u8]) -> Option<Value<'a>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(crate) fn names(self) -> impl Iterator<Item = &'a [u8]> {
        self.iter().map(|(name, _)| name)
    }

    /// Names whose values are apart.
    pub(crate) fn apart(self) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(|(_, value)| *value == Value::Apart).map(|(name, _)| name)
    }

    pub(crate) fn to_owned(self) -> Xattrs {
        Xattrs(SmallBytes::from(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_order_with_values_where_they_are_known() {
        let long = vec![7; 70_000];
        let all: [(&[u8], Option<&[u8]>); 5] = [
            (b"user.b", Some(b"old")),
            (b"user.a", None),
            (b"", Some(b"")),
            (b"user.long", Some(&long)),
            (b"user.b", Some(b"new")),
        ];
        let mut xattrs = Xattrs::new(all.into_iter());
        assert!(xattrs.list().names().eq([&b""[..], b"user.a", b"user.b", b"user.long"]));
        assert_eq!(xattrs.list().get(b""), Some(Value::Here(b"")));
        assert_eq!(xattrs.list().get(b"user.a"), Some(Value::Unknown));
        assert_eq!(xattrs.list().get(b"user.b"), Some(Value::Here(b"new")));
        assert_eq!(xattrs.list().get(b"user.long"), Some(Value::Here(&long)));
        assert_eq!(xattrs.list().get(b"user"), None);
        assert_eq!(xattrs.list().to_owned(), xattrs);

        for name in [&b"user.a"[..], b"user.b", b"user"] {
            xattrs.note_apart(name, true);
        }
        assert!(xattrs.list().names().eq([&b""[..], b"user.a", b"user.b", b"user.long"]));
        assert_eq!(xattrs.list().get(b"user.a"), Some(Value::Apart));
        assert_eq!(xattrs.list().get(b"user.b"), Some(Value::Here(b"new")));
        assert_eq!(xattrs.list().get(b"user.long"), Some(Value::Here(&long)));
        xattrs.note_apart(b"user.a", false);
        assert_eq!(xattrs.list().get(b"user.a"), Some(Value::Unknown));
    }

    #[test]
    fn an_empty_list_has_no_names() {
        assert_eq!(XattrList::EMPTY.names().count(), 0);
        assert_eq!(XattrList::EMPTY.get(b""), None);
        assert_eq!(Xattrs::new(std::iter::empty()), XattrList::EMPTY.to_owned());
    }
}
