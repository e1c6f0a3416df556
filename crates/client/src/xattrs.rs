//! Extended attributes of an inode in one piece: most that have any have one or two, with short values.

use crate::small_bytes::SmallBytes;
use crate::varint::{put_bytes, put_number, take_bytes, take_number};
use std::collections::BTreeMap;

/// By name: each name, and its value where that is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Xattrs(SmallBytes);

/// The same, where they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XattrList<'a>(&'a [u8]);

impl Xattrs {
    /// Of names that come twice the last counts.
    pub(crate) fn new<'a>(xattrs: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Xattrs {
        let by_name: BTreeMap<_, _> = xattrs.collect();
        let mut packed = Vec::new();
        for (name, value) in by_name {
            put_bytes(&mut packed, name);
            put_number(&mut packed, u64::from(value.is_some()));
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

    /// Remembers or forgets the value of a name. Nothing happens where there is no such name.
    pub(crate) fn set_value(&mut self, name: &[u8], value: Option<&[u8]>) {
        let new_value = |known: &[u8], old| if known == name { value } else { old };
        let packed = Xattrs::new(self.list().iter().map(|(known, old)| (known, new_value(known, old))));
        *self = packed;
    }
}

impl<'a> XattrList<'a> {
    pub(crate) const EMPTY: XattrList<'static> = XattrList(&[]);

    fn iter(self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let name = take_bytes(&mut rest)?;
            let has_value = take_number(&mut rest)? != 0;
            Some((name, if has_value { Some(take_bytes(&mut rest)?) } else { None }))
        })
    }

    /// The value of a name, if it is there, and if its value is known.
    pub(crate) fn get(self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(crate) fn names(self) -> impl Iterator<Item = &'a [u8]> {
        self.iter().map(|(name, _)| name)
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
        assert_eq!(xattrs.list().get(b""), Some(Some(&b""[..])));
        assert_eq!(xattrs.list().get(b"user.a"), Some(None));
        assert_eq!(xattrs.list().get(b"user.b"), Some(Some(&b"new"[..])));
        assert_eq!(xattrs.list().get(b"user.long"), Some(Some(&long[..])));
        assert_eq!(xattrs.list().get(b"user"), None);
        assert_eq!(xattrs.list().to_owned(), xattrs);

        xattrs.set_value(b"user.a", Some(b"known"));
        xattrs.set_value(b"user.long", None);
        xattrs.set_value(b"user", Some(b"none such"));
        assert!(xattrs.list().names().eq([&b""[..], b"user.a", b"user.b", b"user.long"]));
        assert_eq!(xattrs.list().get(b"user.a"), Some(Some(&b"known"[..])));
        assert_eq!(xattrs.list().get(b"user.b"), Some(Some(&b"new"[..])));
        assert_eq!(xattrs.list().get(b"user.long"), Some(None));
    }

    #[test]
    fn an_empty_list_has_no_names() {
        assert_eq!(XattrList::EMPTY.names().count(), 0);
        assert_eq!(XattrList::EMPTY.get(b""), None);
        assert_eq!(Xattrs::new(std::iter::empty()), XattrList::EMPTY.to_owned());
    }
}
