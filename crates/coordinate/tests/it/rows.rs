//! The rows of a management server in etcd: what every store does, and what only one of many owners has to stand.

use crate::members::{Cluster, is_installed, wait_for};
use base::{Epoch, TargetId, Transno};
use coordinate::conformance::server;
use coordinate::etcd::Etcd;
use coordinate::etcd::rows::{Rows, RowsOptions, Told};
use coordinate::{Keeper, KeeperError, Members};
use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use store::conformance::meta::{self, MetaHarness};
use store::{Batch, MetaStore, StoreError};

const TABLE: u8 = 3;

/// A management server of its own, which one owner after the other serves.
struct Owned {
    members: Members,
    name: String,
    epoch: Epoch,
    lost_count: Arc<AtomicUsize>,
    /// Why nothing is written, and `None` when it is again.
    refused: Arc<Mutex<Vec<Option<String>>>>,
}

impl Owned {
    fn new(members: Members, name: &str) -> Owned {
        let (lost_count, refused) = (Arc::default(), Arc::default());
        Owned { members, name: name.to_owned(), epoch: Epoch(0), lost_count, refused }
    }

    /// The next owner. Whoever was it before is told nothing.
    fn open(&mut self, uuid: u128) -> Result<Rows, KeeperError> {
        let keeper = Etcd::new(self.members.clone(), &self.name, server(1)).unwrap();
        self.epoch = wait_for("the ownership", || keeper.take(TargetId::MGT, self.epoch).ok());
        self.open_as(self.epoch, uuid)
    }

    fn open_as(&self, epoch: Epoch, uuid: u128) -> Result<Rows, KeeperError> {
        let (members, name, lost) = (self.members.clone(), self.name.clone(), Arc::clone(&self.lost_count));
        let options = RowsOptions { members, name, me: server(1), epoch, uuid };
        let on_lost = move || {
            lost.fetch_add(1, Ordering::SeqCst);
        };
        let refused = Arc::clone(&self.refused);
        let on_refused = move |why: Option<&KeeperError>| {
            refused.lock().unwrap().push(why.map(ToString::to_string));
        };
        let told = Told {
            on_durable: Arc::new(|| ()),
            on_lost: Box::new(on_lost),
            on_refused: Box::new(on_refused),
        };
        Rows::open(options, told)
    }

    fn lost_count(&self) -> usize {
        self.lost_count.load(Ordering::SeqCst)
    }
}

fn settle(store: &dyn MetaStore) {
    store.kick();
    wait_for("all of it is durable", || (store.durable() == store.applied()).then_some(()));
}

fn put(store: &dyn MetaStore, transno: u64, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    batch.put(TABLE, key, value);
    store.apply(Transno(transno), &batch)
}

fn rows(store: &dyn MetaStore) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let end = [0xff; store::KEY_BYTES_MAX];
    store
        .scan(TABLE, &[], &end, usize::MAX, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
    found
}

fn started() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.start_all();
    let keeper = Etcd::new(cluster.members_from(0), "ready", server(9)).unwrap();
    wait_for(&format!("etcd answers: {}", cluster.logs()), || keeper.identity().ok());
    cluster
}

/// A crash is a takeover: the one before goes on writing for as long as it likes.
struct Harness<'a> {
    cluster: &'a Cluster,
    count: usize,
    owned: Owned,
    before: Vec<Arc<dyn MetaStore>>,
}

impl MetaHarness for Harness<'_> {
    fn create(&mut self) -> Arc<dyn MetaStore> {
        self.count += 1;
        self.owned = Owned::new(self.cluster.members_from(0), &format!(".store{}", self.count));
        Arc::new(self.owned.open(7).unwrap())
    }

    fn settle(&mut self, store: &Arc<dyn MetaStore>) {
        settle(&**store);
    }

    fn crash(&mut self, store: Arc<dyn MetaStore>) -> Arc<dyn MetaStore> {
        self.before.push(store);
        Arc::new(self.owned.open(7).unwrap())
    }
}

#[test]
fn rows_in_etcd_conform_as_a_store() {
    if !is_installed() {
        return;
    }
    let cluster = started();
    let owned = Owned::new(cluster.members_from(0), "");
    let mut harness = Harness { cluster: &cluster, count: 0, owned, before: Vec::new() };
    meta::run(&mut harness);
    assert!(harness.count > 5 && harness.before.len() > 5);
}

#[test]
fn what_the_owner_before_writes_reaches_nothing() {
    if !is_installed() {
        return;
    }
    let cluster = started();
    let mut owned = Owned::new(cluster.members_from(0), ".a");
    let first = owned.open(7).unwrap();
    assert_eq!(first.applied(), Transno::ZERO);
    put(&first, 1, b"a", b"first").unwrap();
    settle(&first);
    let second = owned.open(8).unwrap();
    assert_eq!(
        (second.uuid(), second.applied() > Transno::ZERO),
        (7, true),
        "it is the same management server"
    );
    assert_eq!(second.applied(), Transno(1));
    put(&second, 2, b"b", b"second").unwrap();
    settle(&second);
    put(&first, 2, b"a", b"too late").unwrap();
    first.kick();
    wait_for("the first one is told", || (owned.lost_count() == 1).then_some(()));
    assert!(first.pressure().poisoned);
    assert_eq!(first.durable(), Transno(1), "nothing of it was kept");
    assert!(put(&first, 3, b"c", b"x").unwrap_err().is_fence());
    first.close();
    let denied = owned.open_as(Epoch(1), 7).map(drop).unwrap_err();
    assert!(matches!(denied, KeeperError::Denied { .. }), "nor opened again: {denied}");
    second.close();
    assert_eq!(put(&second, 3, b"c", b"x"), Err(StoreError::Ended));
    let third = owned.open(9).unwrap();
    let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    assert_eq!(rows(&third), [row(b"a", b"first"), row(b"b", b"second")]);
    assert_eq!(third.applied(), Transno(2));
    assert_eq!(owned.lost_count(), 1);
}

/// More rows, and more bytes, than a transaction of etcd takes.
#[test]
fn a_long_batch_is_there_or_not() {
    const LAST_ROUND: u64 = 19;
    if !is_installed() {
        return;
    }
    let cluster = started();
    let mut owned = Owned::new(cluster.members_from(0), ".a");
    let mut store = owned.open(7).unwrap();
    let long = |round: u64, key_count: u16, value_bytes: usize| {
        let mut batch = Batch::new();
        for key in 0..key_count {
            let mut value = vec![0; value_bytes];
            value[..8].copy_from_slice(&round.to_le_bytes());
            batch.put(TABLE, &key.to_be_bytes(), &value);
        }
        batch
    };
    store.apply(Transno(1), &long(1, 900, 8)).unwrap();
    store.apply(Transno(2), &long(2, 14, 64 << 10)).unwrap();
    settle(&store);
    let before = rows(&store);
    assert_eq!(before.len(), 900);
    let mut whole_count = 0;
    let mut old = Vec::new();
    for round in 3..=LAST_ROUND {
        let transno = store.applied().next();
        store.apply(transno, &long(round, 900, 8)).unwrap();
        let whole = rows(&store);
        store.kick();
        // Each time a little later in the middle of it; the last one is there, however slow the disks are.
        if round == LAST_ROUND {
            settle(&store);
        }
        for _ in 3..round {
            assert!(store.durable() <= transno);
            std::thread::yield_now();
            let _ = store.get(TABLE, b"x");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let left = {
            let next = owned.open(7).unwrap();
            let found = rows(&next);
            let is_whole = next.applied() == transno;
            if is_whole {
                assert_eq!(found, whole);
                whole_count += 1;
            }
            // Nothing of it is there otherwise: the last round that is whole is.
            let value_of = |row: &(Vec<u8>, Vec<u8>)| row.1[..8].to_vec();
            assert!(found[20..].iter().all(|row| value_of(row) == value_of(&found[20])), "half of a batch");
            next
        };
        old.push(std::mem::replace(&mut store, left));
    }
    assert!(whole_count > 0, "none was ever there");
    settle(&store);
    let last = rows(&store);
    assert_eq!(rows(&owned.open(7).unwrap()), last, "what was begun is ended by the next owner");
}

#[test]
fn a_member_that_dies_takes_nothing_with_it() {
    if !is_installed() {
        return;
    }
    let mut cluster = started();
    let mut owned = Owned::new(cluster.members_from(0), ".a");
    let store = owned.open(7).unwrap();
    let mut transno = 0;
    // Whichever it asks first is dead at some time.
    for member in 0..3 {
        for number in 0..60_u8 {
            transno += 1;
            put(&store, transno, &[number % 7], &[member as u8, number]).unwrap();
            store.kick();
            if number == 20 {
                cluster.kill(member);
            }
        }
        settle(&store);
        cluster.start(member);
    }
    let again = wait_for("another owner", || owned.open(7).ok());
    assert_eq!((again.applied(), rows(&again)), (Transno(180), rows(&store)));
    assert_eq!(owned.lost_count(), 0, "what was asked twice was executed once");
}

#[test]
fn what_others_wrote_among_the_rows_is_refused_by_its_key() {
    if !is_installed() {
        return;
    }
    let cluster = started();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, key) in [(".a", "head"), (".b", "long"), (".c", "zz/x"), (".d", "else")] {
        let mut owned = Owned::new(cluster.members_from(0), name);
        let key = format!("/sheen/{name}-rows/{key}");
        runtime.block_on(async {
            let mut client = Client::connect([cluster.client_url(0)], None).await.unwrap();
            client.put(key.clone(), "garbage", None).await.unwrap();
        });
        let error = owned.open(7).map(drop).unwrap_err();
        assert!(matches!(error, KeeperError::EtcdDamaged { .. }), "{error}");
        assert!(error.to_string().contains(&key), "{error}");
    }
}

/// As an etcd that is full: leases are renewed, what is asked is answered, and nothing is written.
fn set_full(cluster: &Cluster, action: AlarmAction) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::connect([cluster.client_url(0)], None).await.unwrap();
        let member = client.status().await.unwrap().header().unwrap().member_id();
        let mut options = AlarmOptions::new();
        options.with_member(member);
        client.alarm(action, AlarmType::Nospace, Some(options)).await.unwrap();
    });
}

/// Nobody else could write it either: it is said once, so that somebody makes room, and written then.
#[test]
fn what_etcd_refuses_is_said_once_and_written_in_the_end() {
    if !is_installed() {
        return;
    }
    let cluster = started();
    let mut owned = Owned::new(cluster.members_from(0), ".a");
    let store = owned.open(7).unwrap();
    put(&store, 1, b"a", b"first").unwrap();
    settle(&store);
    set_full(&cluster, AlarmAction::Activate);
    put(&store, 2, b"b", b"second").unwrap();
    store.kick();
    let refused = Arc::clone(&owned.refused);
    wait_for("it is said", || (!refused.lock().unwrap().is_empty()).then_some(()));
    let error = owned.open_as(owned.epoch, 7).map(drop).unwrap_err();
    assert!(
        matches!(error, KeeperError::EtcdRefuses { .. }),
        "who opens it is told, and waits for nothing: {error}"
    );
    assert!(error.to_string().contains("space"), "{error}");
    assert_eq!(store.durable(), Transno(1));
    set_full(&cluster, AlarmAction::Deactivate);
    settle(&store);
    let said = refused.lock().unwrap().clone();
    // Which member has said it last, and whether another one was silent, is another thing.
    let is_it = |why: &String| why.contains("answers that it does not do this") && why.contains("space");
    assert!(matches!(&said[..], [Some(why), None] if is_it(why)), "once each: {said:?}");
    assert_eq!(rows(&owned.open(7).unwrap()).len(), 2);
    assert_eq!(owned.lost_count(), 0);
}
