//! Where the rows of a management server are: on its disk, or in etcd, where another management server stands by.

use crate::target_dir::TargetDir;
#[cfg(feature = "etcd")]
use anyhow::Context as _;
use anyhow::Result;
#[cfg(any(feature = "etcd", test))]
use base::TargetConfig;
use base::{Epoch, Time, Transno};
use coordinate::Members;
#[cfg(feature = "etcd")]
use std::sync::PoisonError;
use std::sync::{Arc, Mutex};
use store::{Batch, MetaStore, OnDurable, Pressure, Space, StoreError, Table};
use store_disk::MetaDisk;
use wire::TargetOwner;

/// The ownership under which a management server keeps its rows in etcd.
pub struct InEtcd {
    pub members: Members,
    pub me: TargetOwner,
    pub epoch: Epoch,
    /// Its lease holds until then, unless it is renewed.
    pub active_until: Time,
}

/// What an operator should do something about, in a sentence.
pub type Trouble = Arc<Mutex<Option<String>>>;

pub enum MgsRows {
    Disk(Arc<MetaDisk>),
    #[cfg(feature = "etcd")]
    Etcd(Box<coordinate::etcd::rows::Rows>),
}

impl MgsRows {
    /// # Errors
    /// The rows cannot be read, or somebody else owns them by now.
    pub fn open(
        dir: &TargetDir,
        in_etcd: Option<InEtcd>,
        open_disk: impl FnOnce() -> Result<MetaDisk>,
        on_durable: OnDurable,
        trouble: &Trouble,
    ) -> Result<MgsRows> {
        match in_etcd {
            None => Ok(MgsRows::Disk(Arc::new(open_disk()?))),
            Some(in_etcd) => open_in_etcd(dir, in_etcd, open_disk, on_durable, trouble),
        }
    }

    /// That of the management server whose rows these are, if that is not said by a directory.
    pub fn uuid(&self) -> Option<u128> {
        match self {
            MgsRows::Disk(_) => None,
            #[cfg(feature = "etcd")]
            MgsRows::Etcd(rows) => Some(rows.uuid()),
        }
    }

    pub fn disk(&self) -> Option<&Arc<MetaDisk>> {
        match self {
            MgsRows::Disk(disk) => Some(disk),
            #[cfg(feature = "etcd")]
            MgsRows::Etcd(_) => None,
        }
    }

    fn store(&self) -> &dyn MetaStore {
        match self {
            MgsRows::Disk(disk) => &**disk,
            #[cfg(feature = "etcd")]
            MgsRows::Etcd(rows) => &**rows,
        }
    }
}

#[cfg(feature = "etcd")]
fn open_in_etcd(
    dir: &TargetDir,
    in_etcd: InEtcd,
    open_disk: impl FnOnce() -> Result<MetaDisk>,
    on_durable: OnDurable,
    trouble: &Trouble,
) -> Result<MgsRows> {
    use coordinate::etcd::rows::{Rows, RowsOptions, Told};
    let InEtcd { members, me, epoch, .. } = in_etcd;
    let options = RowsOptions { members, name: coordinate::MGS_NAME.to_owned(), me, epoch, uuid: dir.uuid };
    let on_lost = move || {
        tracing::error!(
            epoch = epoch.0,
            "another management server has taken over, or what etcd holds was changed by somebody else: this process ends at once"
        );
        crate::sys::die();
    };
    let trouble = Arc::clone(trouble);
    let on_refused = move |why: Option<&coordinate::KeeperError>| {
        match why {
            Some(why) => tracing::error!(
                "{why}; no change of the configuration is answered before that, and no other management server could do it"
            ),
            None => tracing::info!("etcd takes what the management server writes again"),
        }
        *trouble.lock().unwrap_or_else(PoisonError::into_inner) = why.map(ToString::to_string);
    };
    let told = Told { on_durable, on_lost: Box::new(on_lost), on_refused: Box::new(on_refused) };
    let rows = Rows::open(options, told)?;
    if !dir.meta_path().exists() {
        return Ok(MgsRows::Etcd(Box::new(rows)));
    }
    if has_configuration(&rows)? {
        warn_of_others(dir, &rows, open_disk);
    } else {
        adopt(&rows, open_disk).with_context(|| {
            format!("the configuration in {} cannot be moved to etcd", dir.path.display())
        })?;
    }
    Ok(MgsRows::Etcd(Box::new(rows)))
}

#[cfg(not(feature = "etcd"))]
fn open_in_etcd(
    _: &TargetDir,
    in_etcd: InEtcd,
    _: impl FnOnce() -> Result<MetaDisk>,
    _: OnDurable,
    _: &Trouble,
) -> Result<MgsRows> {
    let InEtcd { members, me, epoch, .. } = in_etcd;
    anyhow::bail!(
        "process {} owns it under epoch {}, but was built without etcd and cannot read its rows at {members}",
        me.pid,
        epoch.0
    )
}

/// What a management server has kept on its disk until now goes on in etcd: all of it or nothing. Its sessions begin anew.
#[cfg(any(feature = "etcd", test))]
fn adopt(rows: &impl MetaStore, open_disk: impl FnOnce() -> Result<MetaDisk>) -> Result<()> {
    let disk = open_disk()?;
    let mut batch = Batch::new();
    for table in [mgs::CONFIGS, mgs::OWNERS, mgs::STARTS] {
        let end = vec![0xff; store::KEY_BYTES_MAX];
        disk.scan(table, &[], &end, usize::MAX, &mut |key, value| {
            batch.put(table, key, value);
            true
        })?;
    }
    disk.close();
    if batch.is_empty() {
        return Ok(());
    }
    tracing::info!(rows = batch.change_count(), "the configuration of this directory goes on in etcd");
    Ok(rows.apply(rows.applied().next(), &batch)?)
}

/// Etcd's configuration is served, whatever is in the directory. That is said where it is another one.
#[cfg(feature = "etcd")]
fn warn_of_others(dir: &TargetDir, rows: &impl MetaStore, open_disk: impl FnOnce() -> Result<MetaDisk>) {
    let dir = dir.path.display();
    match others(rows, open_disk) {
        Ok(names) if names.is_empty() => {}
        Ok(names) => tracing::warn!(
            "etcd has another configuration than {dir} of {}: that of etcd is served, and that of the directory is not used",
            names.join(", ")
        ),
        Err(error) => tracing::warn!(
            "the configuration that {dir} had before etcd was used cannot be read, nor compared with that of etcd, which is served: {error:#}"
        ),
    }
}

/// File systems of the directory that etcd does not know, or with other targets, or in an older version. One that was adopted goes on
/// in etcd with the targets that it had.
#[cfg(any(feature = "etcd", test))]
fn others(rows: &impl MetaStore, open_disk: impl FnOnce() -> Result<MetaDisk>) -> Result<Vec<String>> {
    let disk = open_disk()?;
    let mut names = Vec::new();
    let end = vec![0xff; store::KEY_BYTES_MAX];
    let mut found = Vec::new();
    disk.scan(mgs::CONFIGS, &[], &end, usize::MAX, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        true
    })?;
    disk.close();
    for (key, value) in found {
        let before = mgs::decode(&value);
        let now = rows.get(mgs::CONFIGS, &key)?.and_then(|value| mgs::decode(&value));
        let goes_on = before.zip(now).is_some_and(|(before, now)| {
            let is_there = |target: &TargetConfig| {
                now.targets.iter().any(|known| known.id == target.id && known.uuid == target.uuid)
            };
            before.version <= now.version && before.targets.iter().all(is_there)
        });
        if !goes_on {
            names.push(String::from_utf8_lossy(&key).escape_default().to_string());
        }
    }
    Ok(names)
}

/// Sessions alone are none: a management server that had nothing may have been the first here.
#[cfg(any(feature = "etcd", test))]
fn has_configuration(rows: &impl MetaStore) -> Result<bool> {
    let mut is_found = false;
    for table in [mgs::CONFIGS, mgs::OWNERS] {
        let end = vec![0xff; store::KEY_BYTES_MAX];
        rows.scan(table, &[], &end, 1, &mut |_, _| {
            is_found = true;
            false
        })?;
    }
    Ok(is_found)
}

impl MetaStore for MgsRows {
    fn apply(&self, t: Transno, batch: &Batch) -> Result<(), StoreError> {
        self.store().apply(t, batch)
    }

    fn applied(&self) -> Transno {
        self.store().applied()
    }

    fn durable(&self) -> Transno {
        self.store().durable()
    }

    fn kick(&self) {
        self.store().kick();
    }

    fn kick_unawaited(&self) {
        self.store().kick_unawaited();
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.store().get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to_exclusive: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.store().scan(table, from, to_exclusive, limit, visit)
    }

    fn pressure(&self) -> Pressure {
        self.store().pressure()
    }

    fn space(&self) -> Space {
        self.store().space()
    }

    fn close(&self) {
        self.store().close();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base::{ClusterConfig, TargetId};
    use std::path::Path;
    use store::MemoryMeta;
    use store_disk::Options;

    fn open(path: &Path) -> Result<MetaDisk> {
        Ok(MetaDisk::open_or_create(path, &Options::default(), Arc::new(|| ()))?)
    }

    /// Configurations and owners go on, sessions do not; what is on the disk stays as it was.
    #[test]
    fn what_was_on_the_disk_is_adopted_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path()).unwrap();
        let mut batch = Batch::new();
        batch.put(mgs::CONFIGS, b"a", b"config");
        batch.put(mgs::OWNERS, b"a\0OST0000", b"owner");
        // By which an older copy of a target is told that registers only then.
        batch.put(mgs::STARTS, b"a\0OST0000", b"start");
        batch.put(200, b"session", b"x");
        disk.apply(Transno(9), &batch).unwrap();
        disk.close();
        drop(disk);
        let rows = MemoryMeta::new();
        adopt(&rows, || open(dir.path())).unwrap();
        assert_eq!(rows.applied(), Transno(1));
        let found: Vec<_> = rows.rows().into_iter().collect();
        let row = |table, key: &[u8], value: &[u8]| ((table, key.to_vec()), value.to_vec());
        let expected = [
            row(mgs::CONFIGS, b"a", b"config"),
            row(mgs::OWNERS, b"a\0OST0000", b"owner"),
            row(mgs::STARTS, b"a\0OST0000", b"start"),
        ];
        assert_eq!(found, expected);
        assert_eq!(open(dir.path()).unwrap().get(200, b"session").unwrap().unwrap(), b"x");
    }

    /// Another management server, whose directory was empty, was the first to have sessions there.
    #[test]
    fn it_is_adopted_beside_sessions_and_not_over_another_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path()).unwrap();
        let mut batch = Batch::new();
        batch.put(mgs::CONFIGS, b"a", b"config");
        disk.apply(Transno(9), &batch).unwrap();
        disk.close();
        drop(disk);
        let rows = MemoryMeta::new();
        let mut batch = Batch::new();
        batch.put(200, b"session", b"x");
        rows.apply(Transno(5), &batch).unwrap();
        assert!(!has_configuration(&rows).unwrap());
        adopt(&rows, || open(dir.path())).unwrap();
        assert_eq!(
            (rows.applied(), rows.get(mgs::CONFIGS, b"a").unwrap()),
            (Transno(6), Some(b"config".to_vec()))
        );
        assert!(has_configuration(&rows).unwrap());
    }

    #[test]
    fn a_directory_with_another_configuration_is_named_and_one_that_was_adopted_is_not() {
        let target = |uuid| TargetConfig { id: TargetId::ost(0), uuid, nids: Vec::new(), is_active: true };
        let config = |fsname: &str, version, uuids: &[u128]| ClusterConfig {
            fsname: fsname.to_owned(),
            version,
            targets: uuids.iter().map(|uuid| target(*uuid)).collect(),
            ..ClusterConfig::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path()).unwrap();
        let mut batch = Batch::new();
        for config in [config("a", 3, &[7]), config("b", 3, &[7])] {
            batch.put(mgs::CONFIGS, config.fsname.as_bytes(), &mgs::encode(&config));
        }
        disk.apply(Transno(9), &batch).unwrap();
        disk.close();
        drop(disk);
        let rows = MemoryMeta::new();
        adopt(&rows, || open(dir.path())).unwrap();
        let seen = |config: &ClusterConfig| {
            let mut batch = Batch::new();
            batch.put(mgs::CONFIGS, config.fsname.as_bytes(), &mgs::encode(config));
            rows.apply(rows.applied().next(), &batch).unwrap();
            others(&rows, || open(dir.path())).unwrap()
        };
        assert_eq!(others(&rows, || open(dir.path())).unwrap(), [] as [&str; 0]);
        assert_eq!(seen(&config("a", 5, &[7])), [] as [&str; 0], "it has gone on");
        assert_eq!(seen(&config("a", 2, &[7])), ["a"], "the directory was served without etcd since");
        assert_eq!(seen(&config("a", 3, &[8])), ["a"], "another target has that index");
        assert_eq!(seen(&config("a", 3, &[])), ["a"]);
        let none = MemoryMeta::new();
        assert_eq!(others(&none, || open(dir.path())).unwrap(), ["a", "b"]);
    }

    #[test]
    fn nothing_is_adopted_from_an_empty_disk() {
        let dir = tempfile::tempdir().unwrap();
        let rows = MemoryMeta::new();
        adopt(&rows, || open(dir.path())).unwrap();
        assert_eq!(rows.applied(), Transno::ZERO);
    }
}
