//! etcd as keeper. Of each target two keys below `/sheen/FSNAME/TARGET/`: `owner`, a row that stays, with the epoch; and `lease`, which
//! etcd removes when the owner has not renewed it for 3 s. An owner without that key has lapsed.
//!
//! Changes are transactions of etcd over the revision of the row that was read, so of several servers one wins. What is read is read
//! through a majority, so a member that is cut off answers nothing. When etcd chooses a new leader it gives all leases their whole time
//! again, as it does after it did not run: that time counts against nobody.
//!
//! One member is asked, and the next one when it does not answer: each question may therefore be executed twice, and is made for that.

mod row;
pub mod rows;
mod service;

use crate::members::Members;
use crate::{Keeper, KeeperError, Silence};
use base::limits::LEASE;
use base::{Epoch, TargetId};
use etcd_client::{
    Client, Compare, CompareOp, Error, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse,
};
use row::Row;
use service::{CHANGE_ROUNDS, Failed, Service, key_text, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use wire::{Ownership, TargetOwner};

/// A number that the first server has drawn who asked, for as long as this etcd keeps what it is told. No file system is called so.
const IDENTITY_KEY: &str = "/sheen/.identity";
const LEASE_SECONDS: i64 = (LEASE.as_millis() / 1000) as i64;

// etcd keeps leases by the second, and none shorter than its election takes.
const _: () = assert!(LEASE_SECONDS as u128 * 1000 == LEASE.as_millis() && LEASE_SECONDS >= 2);

/// Keeper of one server's targets of one file system.
pub struct Etcd {
    service: Service,
    fsname: String,
    me: TargetOwner,
    name: String,
    /// The leases of what this server has taken, by target.
    leases: Mutex<BTreeMap<TargetId, i64>>,
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
        let name = format!("etcd at {members}");
        let service = Service::new(members)?;
        Ok(Etcd { service, fsname: fsname.to_owned(), me, name, leases: Mutex::default() })
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
        let mut renewed = BTreeSet::new();
        for target in keeps {
            let Some(lease) = lock(&self.leases).get(target).copied() else { continue };
            match client.lease_keep_alive(lease).await {
                Ok(_) => drop(renewed.insert(*target)),
                // It has ended.
                Err(Error::LeaseKeepAliveError(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut known = self.read(client, None).await?;
        for target in keeps {
            // A key may hang on a lease whose number was lost with an answer, and which nobody renews.
            let is_held = |known: &Known| known.has_lease && renewed.contains(target);
            let is_lapsed = |known: &&Known| known.is_owned_by(self.me.server) && !is_held(known);
            if let Some(lapsed) = known.get(target).filter(is_lapsed) {
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

    async fn try_identity(&self, client: &mut Client) -> Result<String, Failed> {
        let drawn = format!("{:032x}", self.me.server);
        let get = || TxnOp::get(IDENTITY_KEY, None);
        let txn = Txn::new()
            .when([Compare::version(IDENTITY_KEY, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(IDENTITY_KEY, drawn, None), get()])
            .or_else([get()]);
        let answer = client.txn(txn).await?;
        let known = answer.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(found) => found.kvs().first().map(|pair| pair.value().to_vec()),
            _ => None,
        });
        let is_number = |text: &String| u128::from_str_radix(text, 16).is_ok();
        let number = known.and_then(|value| String::from_utf8(value).ok()).filter(is_number);
        match number {
            Some(number) => Ok(format!("etcd {number}")),
            None => Err(Failed::Certain(KeeperError::EtcdDamaged { key: IDENTITY_KEY.to_owned() })),
        }
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

fn describe(target: TargetId, known: Option<&Known>) -> Ownership {
    let Some(known) = known else {
        return Ownership { target, epoch: Epoch::default(), owner: None, has_lapsed: false };
    };
    let has_lapsed = known.row.owner.is_some() && !known.has_lease;
    Ownership { target, epoch: known.row.epoch, owner: known.row.owner.clone(), has_lapsed }
}

impl Keeper for Etcd {
    fn keep(&self, keeps: &[TargetId], asks: &[TargetId]) -> Result<Vec<Ownership>, KeeperError> {
        self.service.ask(1, async |mut client| self.try_keep(&mut client, keeps, asks).await)
    }

    fn take(&self, target: TargetId, over: Epoch) -> Result<Epoch, KeeperError> {
        self.service.ask(CHANGE_ROUNDS, async |mut client| self.try_take(&mut client, target, over).await)
    }

    fn leave(&self, targets: &[TargetId]) -> Result<(), KeeperError> {
        self.service.ask(CHANGE_ROUNDS, async |mut client| self.try_leave(&mut client, targets).await)
    }

    fn give_back(&self, target: TargetId) -> Result<(), KeeperError> {
        self.leave(&[target])
    }

    fn identity(&self) -> Result<String, KeeperError> {
        self.service.ask(1, async |mut client| self.try_identity(&mut client).await)
    }

    fn silence(&self) -> Silence {
        Silence::HoldsBack
    }

    fn name(&self) -> &str {
        &self.name
    }
}
