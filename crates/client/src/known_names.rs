//! Names under which the kernel may know an inode. Nearly all have one.

use crate::small_bytes::SmallBytes;
use crate::varint::{put_bytes, put_number, take_bytes, take_number};
use base::Fid;

/// More names than these are not remembered one by one.
const NAMES_MAX: usize = 8;

/// In one piece: FID of the parent and name of each, the latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownNames(SmallBytes);

impl KnownNames {
    /// Parents with names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Fid, &[u8])> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || take_name(&mut rest))
    }

    pub(crate) fn last(&self) -> Option<(Fid, &[u8])> {
        self.iter().last()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there may have been more.
    pub(crate) fn is_full(&self) -> bool {
        self.iter().count() >= NAMES_MAX
    }

    pub(crate) fn contains(&self, parent: Fid, name: &[u8]) -> bool {
        self.iter().any(|known| known == (parent, name))
    }

    #[cfg(test)]
    pub(crate) fn apart_byte_count(&self) -> usize {
        self.0.apart_byte_count()
    }

    /// Adds a name as the latest; the oldest makes room. -> That one.
    pub(crate) fn note(&mut self, parent: Fid, name: &[u8]) -> Option<(Fid, Vec<u8>)> {
        if self.last() == Some((parent, name)) {
            return None;
        }
        let mut names: Vec<_> = self.iter().filter(|known| *known != (parent, name)).collect();
        names.push((parent, name));
        let first = names.len().saturating_sub(NAMES_MAX);
        let oldest = names.first().filter(|_| first > 0).map(|(parent, name)| (*parent, name.to_vec()));
        let packed = pack(names.into_iter().skip(first));
        self.0 = packed;
        oldest
    }

    /// -> whether it was there.
    pub(crate) fn remove(&mut self, parent: Fid, name: &[u8]) -> bool {
        let was_there = self.contains(parent, name);
        if was_there {
            let packed = pack(self.iter().filter(|known| *known != (parent, name)));
            self.0 = packed;
        }
        was_there
    }
}

fn pack<'a>(names: impl Iterator<Item = (Fid, &'a [u8])>) -> SmallBytes {
    let mut packed = Vec::new();
    for (parent, name) in names {
        put_number(&mut packed, parent.seq);
        put_number(&mut packed, parent.oid.into());
        put_number(&mut packed, parent.ver.into());
        put_bytes(&mut packed, name);
    }
    SmallBytes::from(packed.as_slice())
}

fn take_name<'a>(from: &mut &'a [u8]) -> Option<(Fid, &'a [u8])> {
    let (seq, oid, ver) = (take_number(from)?, take_number(from)?, take_number(from)?);
    Some((Fid { seq, oid: oid as u32, ver: ver as u32 }, take_bytes(from)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(number: u32) -> Fid {
        Fid { seq: u64::MAX - u64::from(number), oid: u32::MAX, ver: number }
    }

    #[test]
    fn the_latest_names_are_remembered_each_once() {
        let mut names = KnownNames::default();
        assert!(names.is_empty() && names.last().is_none());
        names.note(parent(0), b"a");
        names.note(parent(1), b"a");
        names.note(parent(0), &[b'n'; 255]);
        names.note(parent(0), b"a");
        let all: Vec<_> = names.iter().collect();
        assert_eq!(all, [(parent(1), &b"a"[..]), (parent(0), &[b'n'; 255]), (parent(0), b"a")]);
        assert_eq!(names.last(), Some((parent(0), &b"a"[..])));
        assert!(!names.is_full());

        let mut left_out = Vec::new();
        for number in 0..NAMES_MAX as u32 {
            left_out.extend(names.note(parent(2), &number.to_le_bytes()));
        }
        assert_eq!(
            left_out,
            [(parent(1), b"a".to_vec()), (parent(0), vec![b'n'; 255]), (parent(0), b"a".to_vec())]
        );
        assert!(names.is_full() && !names.contains(parent(0), b"a"), "it was the oldest");
        assert!(
            names.iter().eq((0..NAMES_MAX as u32)
                .map(|number| number.to_le_bytes())
                .collect::<Vec<_>>()
                .iter()
                .map(|name| (parent(2), &name[..])))
        );
    }

    #[test]
    fn a_name_is_removed_from_its_own_parent() {
        let mut names = KnownNames::default();
        names.note(parent(0), b"a");
        names.note(parent(1), b"b");
        assert!(!names.remove(parent(0), b"b") && !names.remove(parent(1), b"a"));
        assert!(names.remove(parent(0), b"a"));
        assert!(names.iter().eq([(parent(1), &b"b"[..])]));
        assert!(names.remove(parent(1), b"b") && names.is_empty());
        assert_eq!(names, KnownNames::default());
    }
}
