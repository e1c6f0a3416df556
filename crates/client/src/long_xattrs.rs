//! Values of extended attributes that are too long for a list, kept with their inodes up to a bound.

use crate::nodes::Nodes;
use base::Fid;
use std::collections::VecDeque;

/// Of all of them. Who reads one asks twice, for its length and for its bytes, and few files have any.
const BYTES_MAX: usize = 4 << 20;

/// Which inodes have such values, the one that came last at the end.
#[derive(Debug, Default)]
pub(crate) struct LongXattrs {
    kept: VecDeque<Kept>,
    byte_count: usize,
}

#[derive(Debug)]
struct Kept {
    fid: Fid,
    name: Vec<u8>,
    byte_count: usize,
}

impl LongXattrs {
    /// Keeps a value with its inode, if that has a list with this name and without a value. Those that have been kept longest make room.
    pub(crate) fn keep(&mut self, nodes: &mut Nodes, fid: Fid, name: &[u8], value: &[u8]) {
        let xattrs = nodes.by_fid_mut(fid).and_then(|node| node.xattrs.as_mut());
        let Some(xattrs) = xattrs.filter(|xattrs| xattrs.list().get(name) == Some(None)) else { return };
        xattrs.set_value(name, Some(value));
        // A value that is gone since counts until its place is used again.
        if let Some(before) = self.kept.iter().position(|kept| kept.fid == fid && kept.name == name)
            && let Some(before) = self.kept.remove(before)
        {
            self.byte_count -= before.byte_count;
        }
        let byte_count = value.len() + name.len();
        self.byte_count += byte_count;
        self.kept.push_back(Kept { fid, name: name.to_vec(), byte_count });
        while self.byte_count > BYTES_MAX
            && let Some(oldest) = self.kept.pop_front()
        {
            self.byte_count -= oldest.byte_count;
            // The list may be gone with its value since, or another one: its value is asked for again then.
            let xattrs = nodes.by_fid_mut(oldest.fid).and_then(|node| node.xattrs.as_mut());
            if let Some(xattrs) = xattrs {
                xattrs.set_value(&oldest.name, None);
            }
        }
    }
}
