//! Values of extended attributes that are too long for a list, kept up to a bound.
//!
//! Whether one is believed is said by the list of its inode (`Value::Apart`): with the list goes all that it says, and a new one says nothing
//! of what is here. Such a value counts until its place is used again, or those that came later take the room.

use crate::nodes::Nodes;
use crate::xattrs::Value;
use base::Fid;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Of all of them. Who reads one asks twice, for its length and for its bytes, and few files have any.
const BYTES_MAX: usize = 4 << 20;
/// Of an entry beside its value and its name, which is there twice: its places in two trees.
const PLACE_BYTES: usize = 256;

/// An inode and a name.
type Place = (Fid, Vec<u8>);

#[derive(Debug, Default)]
pub(crate) struct LongXattrs {
    values: BTreeMap<Place, Kept>,
    /// Which came when.
    order: BTreeMap<u64, Place>,
    last_number: u64,
    byte_count: usize,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    value: Bytes,
}

impl LongXattrs {
    /// Keeps a value, if its inode has a list with this name and without a value. Those that have been kept longest make room.
    pub(crate) fn keep(&mut self, nodes: &mut Nodes, fid: Fid, name: &[u8], value: &Bytes) {
        let xattrs = nodes.by_fid_mut(fid).and_then(|node| node.xattrs.as_mut());
        let is_open = |value: Option<Value>| matches!(value, Some(Value::Unknown | Value::Apart));
        let Some(xattrs) = xattrs.filter(|xattrs| is_open(xattrs.list().get(name))) else { return };
        xattrs.note_apart(name, true);
        let place = (fid, name.to_vec());
        self.remove(&place);
        self.byte_count += byte_count(&place, value);
        self.last_number += 1;
        self.order.insert(self.last_number, place.clone());
        self.values.insert(place, Kept { number: self.last_number, value: value.clone() });
        while self.byte_count > BYTES_MAX
            && let Some(oldest) = self.order.first_key_value().map(|(_, place)| place.clone())
        {
            self.remove(&oldest);
            // The list may be gone since, or another one.
            let xattrs = nodes.by_fid_mut(oldest.0).and_then(|node| node.xattrs.as_mut());
            if let Some(xattrs) = xattrs {
                xattrs.note_apart(&oldest.1, false);
            }
        }
    }

    fn remove(&mut self, place: &Place) {
        if let Some(kept) = self.values.remove(place) {
            self.order.remove(&kept.number);
            self.byte_count -= byte_count(place, &kept.value);
        }
    }

    /// A value of which a list says that it is here; `None`: it was, when the list was looked at.
    pub(crate) fn get(&self, fid: Fid, name: &[u8]) -> Option<Bytes> {
        self.values.get(&(fid, name.to_vec())).map(|kept| kept.value.clone())
    }

    /// No list names any of them any more.
    pub(crate) fn clear(&mut self) {
        *self = LongXattrs { last_number: self.last_number, ..LongXattrs::default() };
    }

    /// Asserts that the sums are those of the values, and that what a list says to be here is. Lists are not looked at while nothing is.
    pub(crate) fn check(&self, nodes: &Nodes) {
        let order: BTreeMap<_, _> = self.values.iter().map(|(place, kept)| (kept.number, place)).collect();
        assert!(order.into_iter().eq(self.order.iter().map(|(number, place)| (*number, place))));
        let is_given = self.order.last_key_value().is_none_or(|(number, _)| *number <= self.last_number);
        assert!(is_given, "numbers are given once");
        let sum: usize = self.values.iter().map(|(place, kept)| byte_count(place, &kept.value)).sum();
        assert_eq!(self.byte_count, sum, "values are counted as they come and go");
        assert!(self.byte_count <= BYTES_MAX);
        if self.values.is_empty() {
            return;
        }
        for (_, node) in nodes.iter() {
            let Some(xattrs) = &node.xattrs else { continue };
            for name in xattrs.list().apart() {
                let is_kept = self.values.contains_key(&(node.fid(), name.to_vec()));
                assert!(is_kept, "{} has a list that says so", node.fid());
            }
        }
    }
}

fn byte_count(place: &Place, value: &Bytes) -> usize {
    PLACE_BYTES + 2 * place.1.len() + value.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xattrs::Xattrs;

    const FID: Fid = Fid { seq: Fid::SEQ_NORMAL, oid: 1, ver: 0 };

    fn name(number: usize) -> Vec<u8> {
        format!("user.{number:04}").into_bytes()
    }

    fn list_of(count: usize) -> Xattrs {
        let names: Vec<Vec<u8>> = (0..count).map(name).collect();
        Xattrs::new(names.iter().map(|name| (name.as_slice(), None)))
    }

    fn known(nodes: &Nodes, number: usize) -> Option<Value<'_>> {
        nodes.by_fid(FID)?.xattrs.as_ref()?.list().get(&name(number))
    }

    /// A file may have very many of them: each costs itself, and not the others too.
    #[test]
    fn a_value_is_kept_beside_a_list_that_stays_where_it_is() {
        const COUNT: usize = 200;
        let (mut nodes, mut long) = (Nodes::new(), LongXattrs::default());
        nodes.get_or_new(FID).xattrs = Some(list_of(COUNT));
        let list = |nodes: &Nodes| {
            let xattrs = nodes.by_fid(FID).and_then(|node| node.xattrs.as_ref()).expect("it was listed");
            (xattrs.list().names().next().map(<[u8]>::as_ptr), xattrs.apart_byte_count())
        };
        let before = list(&nodes);
        for number in 0..COUNT {
            long.keep(&mut nodes, FID, &name(number), &Bytes::from(vec![number as u8; 5000]));
            assert_eq!(known(&nodes, number), Some(Value::Apart));
            assert_eq!(list(&nodes), before, "nothing was packed anew for {number}");
            long.check(&nodes);
        }
        for number in 0..COUNT {
            assert_eq!(long.get(FID, &name(number)), Some(Bytes::from(vec![number as u8; 5000])));
        }
    }

    #[test]
    fn those_that_came_first_make_room_and_are_not_known_then() {
        const VALUE_BYTES: usize = 64 << 10;
        let of_one = PLACE_BYTES + 2 * name(0).len() + VALUE_BYTES;
        let fitting = BYTES_MAX / of_one;
        let (mut nodes, mut long) = (Nodes::new(), LongXattrs::default());
        nodes.get_or_new(FID).xattrs = Some(list_of(fitting + 2));
        let value = Bytes::from(vec![7; VALUE_BYTES]);
        (0..fitting).for_each(|number| long.keep(&mut nodes, FID, &name(number), &value));
        // What is read again is among the latest.
        long.keep(&mut nodes, FID, &name(0), &value);
        (fitting..fitting + 2).for_each(|number| long.keep(&mut nodes, FID, &name(number), &value));
        for (number, is_known) in [(0, true), (1, false), (2, false), (3, true), (fitting + 1, true)] {
            let expected = if is_known { Value::Apart } else { Value::Unknown };
            assert_eq!(known(&nodes, number), Some(expected), "{number}");
            assert_eq!(long.get(FID, &name(number)).is_some(), is_known, "{number}");
        }
        long.check(&nodes);
        assert_eq!((long.values.len(), long.order.len()), (fitting, fitting));
        assert_eq!(long.byte_count, fitting * of_one);
    }

    #[test]
    fn a_new_list_does_not_say_what_is_kept_from_before() {
        let (mut nodes, mut long) = (Nodes::new(), LongXattrs::default());
        nodes.get_or_new(FID).xattrs = Some(list_of(2));
        long.keep(&mut nodes, FID, &name(0), &Bytes::from_static(b"old"));
        nodes.get_or_new(FID).xattrs = Some(list_of(2));
        assert_eq!(known(&nodes, 0), Some(Value::Unknown));
        long.keep(&mut nodes, FID, &name(0), &Bytes::from_static(b"new"));
        assert_eq!(known(&nodes, 0), Some(Value::Apart));
        assert_eq!(long.get(FID, &name(0)), Some(Bytes::from_static(b"new")));
        nodes.get_or_new(FID).xattrs = None;
        long.keep(&mut nodes, FID, &name(1), &Bytes::from_static(b"nobody asks for it"));
        assert_eq!(long.get(FID, &name(1)), None);
        long.check(&nodes);
    }
}
