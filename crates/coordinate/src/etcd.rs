//! etcd as keeper. Of each target two keys below `/sheen/FSNAME/TARGET/`: `owner`, a row that stays, with the epoch; and `lease`, which
//! etcd removes when the owner has not renewed it for 3 s. An owner without that key has lapsed.
//!
//! Changes are transactions of etcd over the revision of the row that was read, so of several servers one wins. What is read is read
//! through a majority, so a member that is cut off answers nothing. When etcd chooses a new leader it gives all leases their whole time
//! again, as it does after it did not run: that time counts against nobody.
//!
//! One member is asked, and the next one when it does not answer: each question may therefore be executed twice, and is made for that.

mod row;

use crate::members::Members;
use crate::{Keeper, KeeperError, Silence};
use base::limits::LEASE;
use base::{Epoch, TargetId};
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, KeyValue, PutOptions, Txn, TxnOp,
};
use row::Row;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use wire::{Ownership, TargetOwner};

/// A member that answers later is as good as dead: the next one is asked. It leaves an owner with three members the time to ask them all.
const MEMBER_TIMEOUT: Duration = Duration::from_millis(800);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// A change waits for the choice of a new leader: all members are asked so often.
const CHANGE_ROUNDS: usize = 4;
const LEASE_SECONDS: i64 = (LEASE.as_millis() / 1000) as i64;

// etcd keeps leases by the second, and none shorter than its election takes.
const _: () = assert!(LEASE_SECONDS as u128 * 1000 == LEASE.as_millis() && LEASE_SECONDS >= 2);

/// Keeper of one server's targets of one file system.
pub struct Etcd {
    runtime: Runtime,
    members: Members,
    fsname: String,
    me: TargetOwner,
    name: String,
    reached: Mutex<Reached>,
    /// The leases of what this server has taken, by target.
    leases: Mutex<BTreeMap<TargetId, i64>>,
}

/// The member that answers.
#[derive(Default)]
struct Reached {
    index: usize,
    client: Option<Client>,
}

/// Why a question to a member ends without a result.
enum Failed {
    /// Another member may know better.
    Member(String),
    Certain(KeeperError),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Member(error.to_string())
    }
}

/// What etcd holds of a target.
struct Known {
    row: Row,
    /// Of the row; 0 when there is none.
    revision: i64,
    has_lease: bool,
}

impl Known {
    fn is_owned_by(&self, server: u128) -> bool {
        self.row.owner.as_ref().is_some_and(|owner| owner.server == server)
    }
}

impl Etcd {
    /// Reaches nobody yet: whoever asks first is told.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(members: Members, fsname: &str, me: TargetOwner) -> Result<Etcd, KeeperError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .map_err(KeeperError::NoRuntime)?;
        let name = format!("etcd at {members}");
        let (reached, leases) = (Mutex::default(), Mutex::default());
        Ok(Etcd { runtime, members, fsname: fsname.to_owned(), me, name, reached, leases })
    }

    fn prefix(&self) -> String {
        format!("/sheen/{}/", self.fsname)
    }

    fn owner_key(&self, target: TargetId) -> String {
        format!("{}{target}/owner", self.prefix())
    }

    fn lease_key(&self, target: TargetId) -> String {
        format!("{}{target}/lease", self.prefix())
    }

    /// Asks one member after the other, so many times each, until one answers.
    fn ask<T>(
        &self,
        rounds: usize,
        question: impl AsyncFn(Client) -> Result<T, Failed>,
    ) -> Result<T, KeeperError> {
        let members: Vec<&str> = self.members.iter().collect();
        let mut last = String::new();
        for _ in 0..rounds * members.len() {
            let (index, client) = {
                let reached = lock(&self.reached);
                (reached.index % members.len(), reached.client.clone())
            };
            let member = members.get(index).copied().unwrap_or_default();
            let asked = self.runtime.block_on(async {
                tokio::time::timeout(MEMBER_TIMEOUT, async {
                    let client = match client {
                        Some(client) => client,
                        None => connect(member).await?,
                    };
                    let answer = question(client.clone()).await?;
                    Ok::<_, Failed>((answer, client))
                })
                .await
            });
            match asked {
                Ok(Ok((answer, client))) => {
                    *lock(&self.reached) = Reached { index, client: Some(client) };
                    return Ok(answer);
                }
                Ok(Err(Failed::Certain(error))) => return Err(error),
                Ok(Err(Failed::Member(why))) => last = format!("{member}: {why}"),
                Err(_) => last = format!("{member}: no answer in {} ms", MEMBER_TIMEOUT.as_millis()),
            }
            let mut reached = lock(&self.reached);
            // Another thread may have gone on to the next one already.
            if reached.index % members.len() == index {
                *reached = Reached { index: index + 1, client: None };
            }
        }
        Err(KeeperError::EtcdSilent { members: self.members.to_string(), last })
    }

    /// What is known of one target, or of all of the file system.
    async fn read(
        &self,
        client: &mut Client,
        of: Option<TargetId>,
    ) -> Result<BTreeMap<TargetId, Known>, Failed> {
        let prefix = match of {
            Some(target) => format!("{}{target}/", self.prefix()),
            None => self.prefix(),
        };
        let answer = client.get(prefix, Some(GetOptions::new().with_prefix())).await?;
        let mut known: BTreeMap<TargetId, Known> = BTreeMap::new();
        for pair in answer.kvs() {
            self.sort_in(pair, &mut known)
                .ok_or_else(|| Failed::Certain(KeeperError::EtcdDamaged { key: key_text(pair) }))?;
        }
        // A lease without a row is of nobody.
        known.retain(|_, known| known.revision > 0);
        Ok(known)
    }

    /// `None`: it is nothing that belongs here.
    fn sort_in(&self, pair: &KeyValue, known: &mut BTreeMap<TargetId, Known>) -> Option<()> {
        let key = std::str::from_utf8(pair.key()).ok()?;
        let (target, part) = key.strip_prefix(&self.prefix())?.split_once('/')?;
        let target = target.parse().ok()?;
        let entry =
            known.entry(target).or_insert(Known { row: Row::default(), revision: 0, has_lease: false });
        match part {
            "owner" => {
                entry.row = Row::decode(pair.value())?;
                entry.revision = pair.mod_revision();
            }
            "lease" => entry.has_lease = true,
            _ => return None,
        }
        Some(())
    }

    async fn try_keep(
        &self,
        client: &mut Client,
        keeps: &[TargetId],
        asks: &[TargetId],
    ) -> Result<Vec<Ownership>, Failed> {
        for target in keeps {
            let Some(lease) = lock(&self.leases).get(target).copied() else { continue };
            match client.lease_keep_alive(lease).await {
                // One that has ended is seen by its key.
                Ok(_) | Err(Error::LeaseKeepAliveError(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut known = self.read(client, None).await?;
        for target in keeps {
            let has_lapsed = |known: &&Known| known.is_owned_by(self.me.server) && !known.has_lease;
            if let Some(lapsed) = known.get(target).filter(has_lapsed) {
                self.lease_anew(client, *target, lapsed.revision).await?;
                known.extend(self.read(client, Some(*target)).await?);
            }
        }
        let describe = |target: &TargetId| describe(*target, known.get(target));
        Ok(keeps.iter().chain(asks).map(describe).collect())
    }

    /// A new lease of what this server owns: that has ended, or its number was lost with an answer. Unless somebody has taken the target.
    async fn lease_anew(&self, client: &mut Client, target: TargetId, revision: i64) -> Result<(), Failed> {
        let lease = client.lease_grant(LEASE_SECONDS, None).await?.id();
        let is_unchanged = Compare::mod_revision(self.owner_key(target), CompareOp::Equal, revision);
        let txn = Txn::new().when([is_unchanged]).and_then([self.put_lease(target, lease)]);
        if client.txn(txn).await?.succeeded() {
            lock(&self.leases).insert(target, lease);
        }
        Ok(())
    }

    fn put_lease(&self, target: TargetId, lease: i64) -> TxnOp {
        let value = format!("{:032x}", self.me.server);
        TxnOp::put(self.lease_key(target), value, Some(PutOptions::new().with_lease(lease)))
    }

    async fn try_take(&self, client: &mut Client, target: TargetId, over: Epoch) -> Result<Epoch, Failed> {
        let denied = || Failed::Certain(KeeperError::Denied { target, over });
        let known = self.read(client, Some(target)).await?.remove(&target);
        let epoch = known.as_ref().map_or(Epoch::default(), |known| known.row.epoch);
        let (is_mine, has_lease, revision) = known.as_ref().map_or((false, false, 0), |known| {
            (known.is_owned_by(self.me.server), known.has_lease, known.revision)
        });
        let is_owned = known.as_ref().is_some_and(|known| known.row.owner.is_some());
        if is_mine && epoch == Epoch(over.0 + 1) {
            // This very question, asked before of a member whose answer was lost.
            if !has_lease || !lock(&self.leases).contains_key(&target) {
                self.lease_anew(client, target, revision).await?;
            }
            return Ok(epoch);
        }
        if epoch != over || (is_owned && !is_mine && has_lease) {
            return Err(denied());
        }
        let lease = client.lease_grant(LEASE_SECONDS, None).await?.id();
        let row = Row { epoch: Epoch(over.0 + 1), owner: Some(self.me.clone()) };
        assert!(row.epoch > epoch, "an ownership has a higher epoch than the one before it");
        let mut compares = vec![Compare::mod_revision(self.owner_key(target), CompareOp::Equal, revision)];
        if is_owned && !is_mine {
            // Its owner may have woken since.
            compares.push(Compare::version(self.lease_key(target), CompareOp::Equal, 0));
        }
        let puts = [TxnOp::put(self.owner_key(target), row.encode(), None), self.put_lease(target, lease)];
        if !client.txn(Txn::new().when(compares).and_then(puts)).await?.succeeded() {
            // Nobody hangs on it; it ends by itself too.
            let _ = client.lease_revoke(lease).await;
            return Err(denied());
        }
        lock(&self.leases).insert(target, lease);
        Ok(row.epoch)
    }

    async fn try_leave(&self, client: &mut Client, targets: &[TargetId]) -> Result<(), Failed> {
        for target in targets {
            let Some(known) = self.read(client, Some(*target)).await?.remove(target) else { continue };
            if !known.is_owned_by(self.me.server) {
                continue;
            }
            let row = Row { epoch: known.row.epoch, owner: None };
            let txn = Txn::new()
                .when([Compare::mod_revision(self.owner_key(*target), CompareOp::Equal, known.revision)])
                .and_then([
                    TxnOp::put(self.owner_key(*target), row.encode(), None),
                    TxnOp::delete(self.lease_key(*target), None),
                ]);
            // Otherwise somebody has taken it meanwhile, which is as well.
            client.txn(txn).await?;
            lock(&self.leases).remove(target);
        }
        Ok(())
    }
}

async fn connect(member: &str) -> Result<Client, Error> {
    let options = ConnectOptions::new().with_connect_timeout(CONNECT_TIMEOUT);
    Client::connect([format!("http://{member}")], Some(options)).await
}

fn describe(target: TargetId, known: Option<&Known>) -> Ownership {
    let Some(known) = known else {
        return Ownership { target, epoch: Epoch::default(), owner: None, has_lapsed: false };
    };
    let has_lapsed = known.row.owner.is_some() && !known.has_lease;
    Ownership { target, epoch: known.row.epoch, owner: known.row.owner.clone(), has_lapsed }
}

fn key_text(pair: &KeyValue) -> String {
    String::from_utf8_lossy(pair.key()).escape_default().to_string()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper for Etcd {
    fn keep(&self, keeps: &[TargetId], asks: &[TargetId]) -> Result<Vec<Ownership>, KeeperError> {
        self.ask(1, async |mut client| self.try_keep(&mut client, keeps, asks).await)
    }

    fn take(&self, target: TargetId, over: Epoch) -> Result<Epoch, KeeperError> {
        self.ask(CHANGE_ROUNDS, async |mut client| self.try_take(&mut client, target, over).await)
    }

    fn leave(&self, targets: &[TargetId]) -> Result<(), KeeperError> {
        self.ask(CHANGE_ROUNDS, async |mut client| self.try_leave(&mut client, targets).await)
    }

    fn silence(&self) -> Silence {
        Silence::HoldsBack
    }

    fn name(&self) -> &str {
        &self.name
    }
}
