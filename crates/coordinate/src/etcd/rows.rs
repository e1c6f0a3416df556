//! The rows of a management server in etcd: a `MetaStore` for whoever owns the management server, as the keeper says.
//!
//! All rows are in memory, and are written behind: `apply` is visible at once, and durable when etcd has it. Whatever ends the process
//! before that takes what is not durable with it, as a power failure does with a disk. (Nobody is told of it before it is durable.)
//!
//! Every write is a transaction over two conditions. The row of the ownership is still the one under which this process was given it: who
//! comes next changes that row, so nothing of the one before him reaches etcd afterwards, however long it was on its way. And `head`,
//! which counts the writes, is where this process left it: a question that was asked of a second member is executed once.
//!
//! A batch with more rows than a transaction of etcd takes is first put down whole (`long`), then row by row, then taken away; who finds
//! it there at the start does the rest.

use super::row::Row;
use super::service::{CHANGE_ROUNDS, Failed, Service, key_text, lock};
use crate::KeeperError;
use crate::members::Members;
use base::{Epoch, TargetId, Transno};
use borsh::{BorshDeserialize, BorshSerialize};
use etcd_client::{Client, Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::{Batch, MetaStore, OnDurable, Pressure, Reserve, Space, StoreError, Table};
use wire::TargetOwner;

/// Rows of one transaction: etcd takes 128 operations unless it is told otherwise, and the head is one.
const ROWS_PER_WRITE_MAX: usize = 100;
/// Bytes of one transaction: etcd takes 1.5 MiB unless it is told otherwise. A row over it may still come.
const BYTES_PER_WRITE_MAX: usize = 512 << 10;
/// Rows of one answer: with the longest values less than the 4 MiB that an answer may have.
const ROWS_PER_READ: i64 = 32;
/// Above it nothing is accepted until etcd has taken some: it is away, and memory is bounded.
const UNSYNCED_BYTES_MAX: u64 = 64 << 20;
/// What etcd keeps at most unless it is told otherwise.
const QUOTA_BYTES: u64 = 2 << 30;
/// The last write is waited for so long; an etcd that is away must not keep a process from ending.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// An etcd that refuses is waited for longer: somebody has to do something about it.
const REFUSED_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Stale: what another one owns.
const LOST_ERRNO: i32 = 116;
const VERSION: u8 = 1;

const _: () = assert!(ROWS_PER_WRITE_MAX < 127);
const _: () = assert!(BYTES_PER_WRITE_MAX + store::VALUE_BYTES_MAX < (3 << 20) / 2);
const _: () = assert!(store::BATCH_BYTES_MAX + (64 << 10) < (3 << 20) / 2);
const _: () = assert!(ROWS_PER_READ as usize * (store::VALUE_BYTES_MAX + store::KEY_BYTES_MAX) < 4 << 20);

type RowKey = (Table, Vec<u8>);

type OnLost = Box<dyn Fn() + Send + Sync>;
type OnRefused = Box<dyn Fn(Option<&KeeperError>) + Send + Sync>;

/// Who is told.
pub struct Told {
    /// More is durable.
    pub on_durable: OnDurable,
    /// Once, when somebody else owns the rows: nothing more of this process reaches them.
    pub on_lost: OnLost,
    /// etcd answers, and does not take what is written: why, once; and `None` when it takes it again. Nobody else could write it either,
    /// so it is asked until it does. (Of an etcd that is not heard the keeper says it.)
    pub on_refused: OnRefused,
}

/// How rows are opened.
pub struct RowsOptions {
    pub members: Members,
    /// As the keeper was made for it that has given the ownership of `TargetId::MGT`.
    pub name: String,
    pub me: TargetOwner,
    pub epoch: Epoch,
    /// The number of the management server, if it has none yet.
    pub uuid: u128,
}

/// The first row: what all other rows add up to.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
struct Head {
    uuid: u128,
    transno: u64,
    /// Writes so far.
    count: u64,
}

/// A management server's rows.
pub struct Rows {
    shared: Arc<Shared>,
    uuid: u128,
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
}

struct Shared {
    service: Service,
    prefix: String,
    /// The row of our ownership.
    owner: (String, Vec<u8>),
    state: Mutex<State>,
    changed: Condvar,
    told: Told,
    /// Since the rows were read.
    is_open: AtomicBool,
    is_refused: AtomicBool,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<RowKey, Vec<u8>>,
    row_bytes: u64,
    pending: VecDeque<(Transno, Batch)>,
    unsynced_bytes: u64,
    applied: Transno,
    durable: Transno,
    /// Somebody wants everything up to here to be durable.
    wanted: Transno,
    is_lost: bool,
    /// Nothing more is applied.
    is_closed: bool,
    /// Nobody waits for the writer any more.
    is_abandoned: bool,
}

/// What etcd has.
struct Found {
    head: Option<Head>,
    long: Option<Batch>,
    rows: BTreeMap<RowKey, Vec<u8>>,
}

/// Why a write ends without being done.
enum Stop {
    /// Somebody else owns the rows.
    Lost,
    Abandoned,
    /// Nothing depends on it yet.
    NotOpened(KeeperError),
}

/// Part of what is pending.
struct Work {
    changes: BTreeMap<RowKey, Option<Vec<u8>>>,
    up_to: Transno,
    batch_count: usize,
    /// The only batch of a work with more rows than one transaction takes.
    long: Option<Batch>,
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        let result = self.serialize(&mut value);
        assert!(result.is_ok(), "a row is written to memory");
        value
    }

    fn decode(value: &[u8]) -> Option<Head> {
        match value.split_first() {
            Some((&VERSION, body)) => Head::try_from_slice(body).ok().filter(|head| head.count > 0),
            _ => None,
        }
    }
}

impl Rows {
    /// Reads what etcd has. The caller owns the management server of this name; whoever owned it before writes nothing any more.
    ///
    /// # Errors
    /// etcd does not answer, does not take what is written, or holds something else there; `Denied`: somebody else owns it by now.
    pub fn open(options: RowsOptions, told: Told) -> Result<Rows, KeeperError> {
        let RowsOptions { members, name, me, epoch, uuid } = options;
        let owner_key = format!("/sheen/{name}/{}/owner", TargetId::MGT);
        let owner = (owner_key, Row { epoch, owner: Some(me) }.encode());
        let shared = Shared {
            service: Service::new(members)?,
            prefix: format!("/sheen/{name}-rows/"),
            owner,
            state: Mutex::default(),
            changed: Condvar::new(),
            told,
            is_open: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
        };
        let found =
            shared.service.ask(CHANGE_ROUNDS, async |mut client| shared.try_read(&mut client).await)?;
        let head = shared.begin(&found, uuid).map_err(|stop| match stop {
            Stop::NotOpened(error) => error,
            Stop::Lost | Stop::Abandoned => KeeperError::Denied { target: TargetId::MGT, over: epoch },
        })?;
        shared.is_open.store(true, Ordering::Release);
        let mut rows = found.rows;
        let row_bytes = rows.iter().map(|(key, value)| bytes_of(key, value)).sum();
        let row_bytes = found.long.iter().fold(row_bytes, |bytes, batch| write_rows(&mut rows, batch, bytes));
        let transno = Transno(head.transno);
        *lock(&shared.state) = State {
            rows,
            row_bytes,
            applied: transno,
            durable: transno,
            wanted: transno,
            ..State::default()
        };
        let (shared, uuid) = (Arc::new(shared), head.uuid);
        let writing = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("etcd-rows".into())
            .spawn(move || writing.write_behind(head))
            .map_err(KeeperError::NoRuntime)?;
        Ok(Rows { shared, uuid, writer: Mutex::new(Some(writer)) })
    }

    /// The number of the management server whose rows these are, whoever serves it.
    pub fn uuid(&self) -> u128 {
        self.uuid
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn head_key(&self) -> String {
        format!("{}head", self.prefix)
    }

    fn long_key(&self) -> String {
        format!("{}long", self.prefix)
    }

    fn row_key(&self, (table, key): &RowKey) -> Vec<u8> {
        [format!("{}{table:02x}/", self.prefix).as_bytes(), key].concat()
    }

    async fn try_read(&self, client: &mut Client) -> Result<Found, Failed> {
        let mut found = Found { head: None, long: None, rows: BTreeMap::new() };
        let end = prefix_end(self.prefix.as_bytes());
        let mut from = self.prefix.clone().into_bytes();
        loop {
            // Nobody else writes, so the pages belong together.
            let page = GetOptions::new().with_range(end.clone()).with_limit(ROWS_PER_READ);
            let answer = client.get(from, Some(page)).await?;
            for pair in answer.kvs() {
                self.sort_in(pair, &mut found)
                    .ok_or_else(|| Failed::Certain(KeeperError::EtcdDamaged { key: key_text(pair) }))?;
            }
            match answer.kvs().last().filter(|_| answer.more()) {
                Some(last) => from = [last.key(), &[0]].concat(),
                None => return Ok(found),
            }
        }
    }

    /// `None`: it is nothing that belongs here.
    fn sort_in(&self, pair: &KeyValue, found: &mut Found) -> Option<()> {
        let key = pair.key().strip_prefix(self.prefix.as_bytes())?;
        match key {
            b"head" => found.head = Some(Head::decode(pair.value())?),
            b"long" => found.long = Some(Batch::decode(pair.value()).ok()?),
            [high, low, b'/', key @ ..] => {
                let table = std::str::from_utf8(&[*high, *low])
                    .ok()
                    .and_then(|digits| Table::from_str_radix(digits, 16).ok())?;
                if key.len() > store::KEY_BYTES_MAX || pair.value().len() > store::VALUE_BYTES_MAX {
                    return None;
                }
                found.rows.insert((table, key.to_vec()), pair.value().to_vec());
            }
            _ => return None,
        }
        Some(())
    }

    /// Makes the head if there is none, and ends what the one before has begun.
    fn begin(&self, found: &Found, uuid: u128) -> Result<Head, Stop> {
        let mut head = found.head.clone();
        if let Some(known) = &mut head {
            if let Some(long) = &found.long {
                self.finish_long(known, long)?;
            } else {
                // So that nothing is served that is not ours.
                self.write(known, known.transno, Vec::new())?;
            }
        }
        match head {
            Some(head) => Ok(head),
            None => self.write_first(uuid),
        }
    }

    fn write_first(&self, uuid: u128) -> Result<Head, Stop> {
        let head = Head { uuid, transno: 0, count: 1 };
        let is_none = Compare::version(self.head_key(), CompareOp::Equal, 0);
        self.write_if(is_none, &head, &[])?;
        Ok(head)
    }

    /// The next write, over the last one. Goes on asking until it is done, or is not ours to do.
    fn write(&self, head: &mut Head, transno: u64, operations: Vec<TxnOp>) -> Result<(), Stop> {
        assert!(transno >= head.transno);
        let next = Head { uuid: head.uuid, transno, count: head.count + 1 };
        let is_last = Compare::value(self.head_key(), CompareOp::Equal, head.encode());
        self.write_if(is_last, &next, &operations)?;
        *head = next;
        Ok(())
    }

    fn write_if(&self, before: Compare, next: &Head, operations: &[TxnOp]) -> Result<(), Stop> {
        let (owner_key, owner) = &self.owner;
        let value = next.encode();
        let put = TxnOp::put(self.head_key(), value.clone(), None);
        let is_mine = Compare::value(owner_key.clone(), CompareOp::Equal, owner.clone());
        let get = |key: &str| TxnOp::get(key, None);
        let txn = Txn::new()
            .when([is_mine, before])
            .and_then([operations, &[put]].concat())
            .or_else([get(owner_key), get(&self.head_key())]);
        loop {
            let asked = self.service.ask(CHANGE_ROUNDS, async |mut client| {
                let answer = client.txn(txn.clone()).await?;
                if answer.succeeded() {
                    return Ok(true);
                }
                let found: Vec<Option<Vec<u8>>> = answer
                    .op_responses()
                    .into_iter()
                    .map(|response| match response {
                        TxnOpResponse::Get(found) => found.kvs().first().map(|pair| pair.value().to_vec()),
                        _ => None,
                    })
                    .collect();
                // Ours already, when the answer to an earlier attempt was lost.
                Ok(found == [Some(owner.clone()), Some(value.clone())])
            });
            match asked {
                Ok(true) => {
                    if self.is_refused.swap(false, Ordering::AcqRel) {
                        (self.told.on_refused)(None);
                    }
                    return Ok(());
                }
                Ok(false) => return Err(Stop::Lost),
                // The one who opens it says so, and tries again later.
                Err(error) if !self.is_open.load(Ordering::Acquire) => return Err(Stop::NotOpened(error)),
                Err(_) if self.state().is_abandoned => return Err(Stop::Abandoned),
                Err(error) => {
                    let is_refusal = matches!(error, KeeperError::EtcdRefuses { .. });
                    if is_refusal && !self.is_refused.swap(true, Ordering::AcqRel) {
                        (self.told.on_refused)(Some(&error));
                    }
                    std::thread::sleep(if is_refusal { REFUSED_AGAIN_AFTER } else { AGAIN_AFTER });
                }
            }
        }
    }

    fn finish_long(&self, head: &mut Head, batch: &Batch) -> Result<(), Stop> {
        let changes: Vec<_> = coalesce([batch]).into_iter().collect();
        let transno = head.transno;
        for part in changes.chunks(ROWS_PER_WRITE_MAX / 2) {
            let mut operations = Vec::new();
            let mut byte_count = 0;
            for (key, value) in part {
                let length = key.1.len() + value.as_ref().map_or(0, Vec::len);
                if byte_count + length > BYTES_PER_WRITE_MAX {
                    self.write(head, transno, std::mem::take(&mut operations))?;
                    byte_count = 0;
                }
                byte_count += length;
                operations.push(self.operation(key, value.as_deref()));
            }
            self.write(head, transno, operations)?;
        }
        self.write(head, transno, vec![TxnOp::delete(self.long_key(), None)])
    }

    fn operation(&self, key: &RowKey, value: Option<&[u8]>) -> TxnOp {
        match value {
            Some(value) => TxnOp::put(self.row_key(key), value, None),
            None => TxnOp::delete(self.row_key(key), None),
        }
    }

    /// Body of the writer's thread.
    fn write_behind(&self, mut head: Head) {
        while let Some(work) = self.next_work() {
            let (transno, written) = (work.up_to.0, &work.changes);
            let result = match &work.long {
                Some(batch) => {
                    let put = TxnOp::put(self.long_key(), batch.encoded(), None);
                    self.write(&mut head, transno, vec![put])
                        .and_then(|()| self.finish_long(&mut head, batch))
                }
                None => {
                    let operations = written.iter().map(|(key, value)| self.operation(key, value.as_deref()));
                    self.write(&mut head, transno, operations.collect())
                }
            };
            match result {
                Ok(()) => self.on_written(&work),
                Err(Stop::Abandoned | Stop::NotOpened(_)) => return,
                Err(Stop::Lost) => {
                    self.state().is_lost = true;
                    self.changed.notify_all();
                    (self.told.on_durable)();
                    return (self.told.on_lost)();
                }
            }
        }
    }

    /// Waits for something that somebody wants to be durable. `None`: nothing comes any more.
    fn next_work(&self) -> Option<Work> {
        let state = self.state();
        let is_idle = |state: &mut State| state.durable >= state.wanted && !state.is_abandoned;
        let state = self.changed.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
        if state.is_abandoned {
            return None;
        }
        let mut work = Work { changes: BTreeMap::new(), up_to: state.durable, batch_count: 0, long: None };
        let mut byte_count = 0;
        for (transno, batch) in &state.pending {
            let changes = coalesce([batch]);
            byte_count += batch.encoded().len();
            let is_first = work.batch_count == 0;
            let is_full =
                work.changes.len() + changes.len() > ROWS_PER_WRITE_MAX || byte_count > BYTES_PER_WRITE_MAX;
            if is_full && !is_first {
                break;
            }
            work.changes.extend(changes);
            (work.up_to, work.batch_count) = (*transno, work.batch_count + 1);
            if is_full {
                work.long = Some(batch.clone());
                break;
            }
        }
        assert!(work.batch_count > 0, "what is wanted and not durable is pending");
        Some(work)
    }

    fn on_written(&self, work: &Work) {
        let mut state = self.state();
        assert!(work.up_to > state.durable);
        for _ in 0..work.batch_count {
            let done = state.pending.pop_front();
            state.unsynced_bytes -= done.map_or(0, |(_, batch)| batch.encoded().len() as u64);
        }
        state.durable = work.up_to;
        drop(state);
        self.changed.notify_all();
        (self.told.on_durable)();
    }
}

/// The last change of each row.
fn coalesce<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> BTreeMap<RowKey, Option<Vec<u8>>> {
    let mut changes = BTreeMap::new();
    for change in batches.into_iter().flat_map(Batch::changes) {
        changes.insert((change.table, change.key.to_vec()), change.value.map(<[u8]>::to_vec));
    }
    changes
}

/// Bytes of one row, as `row_bytes` counts them.
fn bytes_of((_, key): &RowKey, value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

/// -> The bytes of all rows, which were so many before.
fn write_rows(rows: &mut BTreeMap<RowKey, Vec<u8>>, batch: &Batch, mut row_bytes: u64) -> u64 {
    for (key, value) in coalesce([batch]) {
        row_bytes += value.as_ref().map_or(0, |value| bytes_of(&key, value));
        let before = match value {
            Some(value) => rows.insert(key.clone(), value),
            None => rows.remove(&key),
        };
        row_bytes -= before.map_or(0, |before| bytes_of(&key, &before));
    }
    row_bytes
}

/// The first key behind all that begin so.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        assert!(*last < u8::MAX, "a prefix is text");
        *last += 1;
    }
    end
}

fn lost() -> StoreError {
    StoreError::Poisoned { operation: "write to etcd what another server owns now", errno: LOST_ERRNO }
}

impl MetaStore for Rows {
    fn apply(&self, t: Transno, batch: &Batch) -> Result<(), StoreError> {
        let mut guard = self.shared.state();
        let state = &mut *guard;
        if state.is_lost {
            return Err(lost());
        }
        if state.is_closed {
            return Err(StoreError::Ended);
        }
        batch.check()?;
        let byte_count = batch.encoded().len() as u64;
        if state.unsynced_bytes + byte_count > UNSYNCED_BYTES_MAX {
            return Err(StoreError::NoSpace);
        }
        assert!(t > state.applied, "transnos rise: {t} after {}", state.applied);
        state.row_bytes = write_rows(&mut state.rows, batch, state.row_bytes);
        state.unsynced_bytes += byte_count;
        state.pending.push_back((t, batch.clone()));
        state.applied = t;
        Ok(())
    }

    fn applied(&self) -> Transno {
        self.shared.state().applied
    }

    fn durable(&self) -> Transno {
        self.shared.state().durable
    }

    fn kick(&self) {
        let mut state = self.shared.state();
        state.wanted = state.applied;
        drop(state);
        self.shared.changed.notify_all();
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.shared.state().rows.get(&(table, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to_exclusive: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        if from >= to_exclusive {
            return Ok(());
        }
        let range = (table, from.to_vec())..(table, to_exclusive.to_vec());
        let found: Vec<(Vec<u8>, Vec<u8>)> = {
            let state = self.shared.state();
            let rows = state.rows.range(range).take(limit);
            rows.map(|((_, key), value)| (key.clone(), value.clone())).collect()
        };
        for (key, value) in found {
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn pressure(&self) -> Pressure {
        let state = self.shared.state();
        Pressure {
            unsynced_bytes: state.unsynced_bytes,
            overlay_bytes: 0,
            reserve: Reserve::Ample,
            is_log_short: false,
            is_log_ending: false,
            poisoned: state.is_lost,
        }
    }

    /// That of an etcd that nobody else uses.
    fn space(&self) -> Space {
        let free_bytes = QUOTA_BYTES.saturating_sub(self.shared.state().row_bytes);
        Space { total_bytes: QUOTA_BYTES, free_bytes, avail_bytes: free_bytes, ..Space::default() }
    }

    fn close(&self) {
        let begun = Instant::now();
        let mut state = self.shared.state();
        (state.is_closed, state.wanted) = (true, state.applied);
        self.shared.changed.notify_all();
        while state.durable < state.applied && !state.is_lost && begun.elapsed() < CLOSE_TIMEOUT {
            let waited = self.shared.changed.wait_timeout(state, AGAIN_AFTER);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        self.abandon();
    }
}

impl Rows {
    /// The writer ends: after this nothing more reaches etcd.
    fn abandon(&self) {
        self.shared.state().is_abandoned = true;
        self.shared.changed.notify_all();
        if let Some(writer) = lock(&self.writer).take() {
            assert!(writer.join().is_ok(), "the writer of rows has panicked");
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.abandon();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_head_is_read_back_and_nothing_else_is() {
        let head = Head { uuid: 7, transno: 5, count: 3 };
        let value = head.encode();
        assert_eq!(Head::decode(&value).unwrap(), head);
        assert_eq!(value.len(), 1 + 16 + 8 + 8);
        for cut in 0..value.len() {
            assert_eq!(Head::decode(&value[..cut]), None);
        }
        assert_eq!(Head::decode(&[2; 33]), None, "another version");
        assert_eq!(Head::decode(&Head { count: 0, ..head }.encode()), None, "never written");
        assert_eq!(Head::decode(&[value, vec![0]].concat()), None, "something behind it");
    }

    /// They once only grew: after enough renewals etcd seemed to be full.
    #[test]
    fn rows_that_are_written_again_or_removed_are_counted_once_or_not() {
        let (mut rows, mut row_bytes) = (BTreeMap::new(), 0);
        let mut write = |key: &[u8], value: Option<&[u8]>| {
            let mut batch = Batch::new();
            match value {
                Some(value) => batch.put(1, key, value),
                None => batch.delete(1, key),
            }
            row_bytes = write_rows(&mut rows, &batch, row_bytes);
            row_bytes
        };
        assert_eq!(write(b"a", Some(b"123")), 4);
        assert_eq!(write(b"a", Some(b"12345")), 6);
        assert_eq!(write(b"bc", Some(b"1")), 9);
        assert_eq!(write(b"a", Some(b"")), 4);
        assert_eq!(write(b"a", None), 3);
        assert_eq!(write(b"never", None), 3);
    }

    #[test]
    fn the_end_of_a_prefix_is_behind_all_that_begin_so() {
        let (prefix, end) = (b"/sheen/.mgs-rows/".to_vec(), prefix_end(b"/sheen/.mgs-rows/"));
        assert!([&prefix[..], &[0xff; 9]].concat() < end);
        assert!(end > prefix && !end.starts_with(&prefix));
    }
}
