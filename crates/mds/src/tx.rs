//! A transaction in the making: the store's rows, with the changes of one operation over them.
//!
//! It remembers what was read and what was changed. From the changes follow the locks that the operation must claim
//! before they may be applied, so that no operation can forget one; from the reads follows whether it looked at
//! something that another MDT's operation has frozen.

use crate::rows::{self, Dentry, Inode};
use base::{Fid, FileType, Status};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use store::{Batch, MetaStore, Table};
use wire::lock::bits;
use wire::{LockMode, LockPolicy, Resource};

/// Key and value.
pub type Row = (Vec<u8>, Vec<u8>);
/// A key, and its value if that was short enough.
pub type FittingRow = (Vec<u8>, Option<Vec<u8>>);

pub struct Tx<'a> {
    store: &'a dyn MetaStore,
    changes: BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>,
    read: RefCell<BTreeSet<Resource>>,
}

/// What an operation changed or looked at, ready to be compared with what is frozen or claimed.
pub type Resources = BTreeSet<Resource>;

impl<'a> Tx<'a> {
    pub fn new(store: &'a dyn MetaStore) -> Tx<'a> {
        Tx { store, changes: BTreeMap::new(), read: RefCell::default() }
    }

    /// The rows below, for what no lock of an inode or a name is about.
    pub fn store(&self) -> &'a dyn MetaStore {
        self.store
    }

    /// A row as this transaction leaves it.
    ///
    /// # Errors
    /// Those of the store.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Status> {
        self.note_read(table, key);
        match self.changes.get(&(table, key.to_vec())) {
            Some(changed) => Ok(changed.clone()),
            None => self.get_stored(table, key),
        }
    }

    fn get_stored(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Status> {
        self.store.get(table, key).map_err(|error| error.status())
    }

    fn note_read(&self, table: Table, key: &[u8]) {
        if let Some(resource) = resource_of(table, key) {
            self.read.borrow_mut().insert(resource);
        }
    }

    pub fn put(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.changes.insert((table, key), Some(value));
    }

    pub fn delete(&mut self, table: Table, key: Vec<u8>) {
        self.changes.insert((table, key), None);
    }

    /// Rows with `from <= key < to`, at most `limit` of them, as this transaction leaves them.
    ///
    /// # Errors
    /// Those of the store.
    pub fn scan(&self, table: Table, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Row>, Status> {
        self.scan_while(table, (from, to), limit, |_, value| Some(value.to_vec()))
    }

    /// The same, of what is stored until `take` returns nothing, with what it makes of the stored values.
    fn scan_while(
        &self,
        table: Table,
        (from, to): (&[u8], &[u8]),
        limit: usize,
        mut take: impl FnMut(&[u8], &[u8]) -> Option<Vec<u8>>,
    ) -> Result<Vec<Row>, Status> {
        if from >= to {
            return Ok(Vec::new());
        }
        let changed: Vec<_> = self
            .changes
            .range((table, from.to_vec())..(table, to.to_vec()))
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        let mut found = BTreeMap::new();
        // Deleted rows take up places in the limit.
        let limit_stored = limit.saturating_add(changed.len());
        self.store
            .scan(table, from, to, limit_stored, &mut |key, value| {
                let taken = take(key, value);
                let goes_on = taken.is_some();
                found.extend(taken.map(|value| (key.to_vec(), value)));
                goes_on
            })
            .map_err(|error| error.status())?;
        for (key, value) in changed {
            match value {
                Some(value) => found.insert(key, value),
                None => found.remove(&key),
            };
        }
        Ok(found.into_iter().take(limit).collect())
    }

    /// All rows whose key begins with `prefix`.
    ///
    /// # Errors
    /// Those of the store.
    pub fn scan_prefix(&self, table: Table, prefix: &[u8], limit: usize) -> Result<Vec<Row>, Status> {
        self.scan(table, prefix, &rows::end_of_prefix(prefix), limit)
    }

    /// The keys of these rows. Their values may be large, and are not kept.
    ///
    /// # Errors
    /// Those of the store.
    pub fn keys_of_prefix(&self, table: Table, prefix: &[u8]) -> Result<Vec<Vec<u8>>, Status> {
        let to = rows::end_of_prefix(prefix);
        let rows = self.scan_while(table, (prefix, &to), usize::MAX, |_, _| Some(Vec::new()))?;
        Ok(rows.into_iter().map(|(key, _)| key).collect())
    }

    /// All rows whose key begins with `prefix`, without the values that do not fit. Those are not kept for a moment.
    ///
    /// # Errors
    /// Those of the store.
    pub fn fitting_rows_of_prefix(
        &self,
        table: Table,
        prefix: &[u8],
        mut fits: impl FnMut(&[u8]) -> bool,
    ) -> Result<Vec<FittingRow>, Status> {
        let to = rows::end_of_prefix(prefix);
        let mut left_out = BTreeSet::new();
        let rows = self.scan_while(table, (prefix, &to), usize::MAX, |key, value| {
            if fits(value) {
                return Some(value.to_vec());
            }
            left_out.insert(key.to_vec());
            Some(Vec::new())
        })?;
        let with_value = |(key, value)| {
            let is_left_out = left_out.contains(&key);
            (key, (!is_left_out).then_some(value))
        };
        Ok(rows.into_iter().map(with_value).collect())
    }

    /// All rows whose key begins with `prefix`; `None` when those that are stored have more than so many bytes behind it. What is behind
    /// these is not read.
    ///
    /// # Errors
    /// Those of the store.
    pub fn short_rows_of_prefix(
        &self,
        table: Table,
        prefix: &[u8],
        byte_count_max: usize,
    ) -> Result<Option<Vec<Row>>, Status> {
        let mut left = Some(byte_count_max);
        let to = rows::end_of_prefix(prefix);
        let rows = self.scan_while(table, (prefix, &to), usize::MAX, |key, value| {
            let byte_count = (key.len() + value.len()).saturating_sub(prefix.len());
            left = left.and_then(|left| left.checked_sub(byte_count));
            left.map(|_| value.to_vec())
        })?;
        Ok(left.map(|_| rows))
    }

    /// # Errors
    /// Those of the store; `Corrupt` for a damaged row.
    pub fn inode(&self, fid: Fid) -> Result<Option<Inode>, Status> {
        self.get(rows::INODES, &fid.key())?.map(|bytes| rows::decode(&bytes)).transpose()
    }

    pub fn put_inode(&mut self, inode: &Inode) {
        self.put(rows::INODES, inode.attr.fid.key().to_vec(), rows::encode(inode));
    }

    /// # Errors
    /// As `inode`.
    pub fn dentry(&self, parent: Fid, name: &[u8]) -> Result<Option<Dentry>, Status> {
        self.get(rows::DENTRIES, &rows::dentry_key(parent, name))?
            .map(|bytes| rows::decode(&bytes))
            .transpose()
    }

    pub fn put_dentry(&mut self, parent: Fid, name: &[u8], dentry: Dentry) {
        self.put(rows::DENTRIES, rows::dentry_key(parent, name), rows::encode(&dentry));
    }

    pub fn delete_dentry(&mut self, parent: Fid, name: &[u8]) {
        self.delete(rows::DENTRIES, rows::dentry_key(parent, name));
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub fn into_batch(self) -> Batch {
        let mut batch = Batch::new();
        for ((table, key), value) in &self.changes {
            match value {
                Some(value) => batch.put(*table, key, value),
                None => batch.delete(*table, key),
            }
        }
        batch
    }

    /// Everything that was looked at or changed.
    pub fn touched(&self) -> Resources {
        let mut touched = self.read.borrow().clone();
        touched.extend(self.changes.keys().filter_map(|(table, key)| resource_of(*table, key)));
        touched
    }

    /// Everything that was changed.
    pub fn changed(&self) -> Resources {
        self.changes.keys().filter_map(|(table, key)| resource_of(*table, key)).collect()
    }

    /// Keys of a table that get a row.
    pub fn keys_put(&self, table: Table) -> Vec<Vec<u8>> {
        let is_put =
            |((of, _), value): &(&(Table, Vec<u8>), &Option<Vec<u8>>)| *of == table && value.is_some();
        self.changes.iter().filter(is_put).map(|((_, key), _)| key.clone()).collect()
    }

    /// What must be claimed before the changes are applied: names and inodes that others may know. An inode that this
    /// transaction creates is known to nobody.
    ///
    /// # Errors
    /// Those of the store.
    pub fn needs(&self) -> Result<Vec<ldlm::Need>, Status> {
        let mut bits_of: BTreeMap<Resource, u32> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for ((table, key), value) in &self.changes {
            let Some(resource) = resource_of(*table, key) else { continue };
            match *table {
                rows::DENTRIES => {
                    names.insert(resource);
                    if let Resource::Name { parent, .. } = resource {
                        *bits_of.entry(Resource::Inode(parent)).or_default() |= bits::CHILDREN;
                    }
                }
                rows::INODES => {
                    let Some(old) = self.get_stored(*table, key)? else { continue };
                    let old: Inode = rows::decode(&old)?;
                    let new: Option<Inode> = value.as_deref().map(rows::decode).transpose()?;
                    *bits_of.entry(resource).or_default() |= changed_bits(&old, new.as_ref());
                    if old.attr.file_type != FileType::Directory {
                        for parent in self.local_parents(old.attr.fid)? {
                            *bits_of.entry(Resource::Inode(parent)).or_default() |= bits::CHILDREN;
                        }
                    }
                }
                _ => *bits_of.entry(resource).or_default() |= bits::XATTR,
            }
        }
        let name_needs = names.into_iter().map(|resource| need(resource, LockPolicy::Plain));
        let inode_needs = bits_of.into_iter().map(|(resource, mask)| need(resource, LockPolicy::Bits(mask)));
        Ok(name_needs.chain(inode_needs).collect())
    }
}

impl Tx<'_> {
    /// Directories of this MDT in which an inode had a name before this transaction: whoever has listed one of them
    /// may rely on its attributes.
    fn local_parents(&self, fid: Fid) -> Result<BTreeSet<Fid>, Status> {
        let (from, mut parents) = (fid.key(), BTreeSet::new());
        self.store
            .scan(rows::LINKS, &from, &rows::end_of_prefix(&from), usize::MAX, &mut |key, _| {
                let parent = rows::split_link_key(key).map(|(parent, _)| parent);
                parents.extend(parent.filter(|parent| parent.mdt_index() == fid.mdt_index()));
                true
            })
            .map_err(|error| error.status())?;
        Ok(parents)
    }
}

fn need(resource: Resource, policy: LockPolicy) -> ldlm::Need {
    ldlm::Need { resource, mode: LockMode::Ex, policy }
}

/// What a row belongs to, as clients lock it. Lists of names are not cached by anybody.
fn resource_of(table: Table, key: &[u8]) -> Option<Resource> {
    match table {
        rows::DENTRIES => {
            let (parent, hash, _) = rows::split_dentry_key(key)?;
            Some(Resource::Name { parent, hash })
        }
        rows::INODES | rows::XATTRS => Some(Resource::Inode(Fid::from_key(key)?)),
        _ => None,
    }
}

fn changed_bits(old: &Inode, new: Option<&Inode>) -> u32 {
    let Some(new) = new else { return bits::ALL };
    let mut mask = bits::UPDATE;
    if (old.attr.permissions, old.attr.uid, old.attr.gid)
        != (new.attr.permissions, new.attr.uid, new.attr.gid)
    {
        mask |= bits::LOOKUP | bits::PERM;
    }
    let defaults = |inode: &Inode| (inode.default_layout.clone(), inode.default_striping.clone());
    if old.layout != new.layout || defaults(old) != defaults(new) {
        mask |= bits::LAYOUT;
    }
    if old.attr.has_xattrs != new.attr.has_xattrs {
        mask |= bits::XATTR;
    }
    if old.attr.write_epoch != new.attr.write_epoch {
        mask |= bits::OPEN;
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Transno;
    use store::MemoryMeta;

    fn store_with(values: &[(&[u8], &[u8])]) -> MemoryMeta {
        let store = MemoryMeta::new();
        let mut batch = Batch::new();
        for (key, value) in values {
            batch.put(rows::XATTRS, key, value);
        }
        store.apply(Transno(1), &batch).expect("in memory");
        store
    }

    #[test]
    fn keys_come_as_the_transaction_leaves_them() {
        let store = store_with(&[(b"f.a", &[1; 9000]), (b"f.b", b"2"), (b"g.a", b"3")]);
        let mut tx = Tx::new(&store);
        tx.delete(rows::XATTRS, b"f.b".to_vec());
        tx.put(rows::XATTRS, b"f.c".to_vec(), b"4".to_vec());
        let keys = tx.keys_of_prefix(rows::XATTRS, b"f").expect("in memory");
        assert_eq!(keys, [b"f.a".to_vec(), b"f.c".to_vec()]);
    }

    #[test]
    fn short_rows_come_whole_or_not_at_all() {
        let store = store_with(&[(b"f.a", &[1; 10]), (b"f.b", &[2; 10]), (b"g.a", b"3")]);
        let tx = Tx::new(&store);
        let short = |byte_count| tx.short_rows_of_prefix(rows::XATTRS, b"f", byte_count).expect("in memory");
        let all = vec![(b"f.a".to_vec(), vec![1; 10]), (b"f.b".to_vec(), vec![2; 10])];
        assert_eq!(short(24), Some(all), "with the rest of their keys");
        assert_eq!(short(23), None);
        assert_eq!(short(0), None);
        assert_eq!(tx.short_rows_of_prefix(rows::XATTRS, b"h", 0), Ok(Some(Vec::new())));
    }
}
