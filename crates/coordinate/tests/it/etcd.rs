//! What only a keeper of several members has to stand: that some of them, or all, are away.

use crate::members::{Cluster, is_installed, wait_for};
use base::{Epoch, TargetId};
use coordinate::conformance::{self, MOMENT_MILLIS, World, server};
use coordinate::etcd::Etcd;
use coordinate::{Keeper, KeeperError, Members, Silence};
use std::time::Duration;
use wire::{Ownership, TargetOwner};

const FSNAME: &str = "a";
const OST: TargetId = TargetId::ost(1000);

struct Real(Members);

impl World for Real {
    fn keeper(&self, me: TargetOwner) -> Box<dyn Keeper + '_> {
        Box::new(Patient(Etcd::new(self.0.clone(), FSNAME, me).unwrap()))
    }

    fn wait(&self) {
        std::thread::sleep(Duration::from_millis(MOMENT_MILLIS));
    }
}

/// Asks again whoever was silent, as servers do: on a busy machine no member may answer in time, or they choose a leader.
struct Patient(Etcd);

fn insist<T>(mut ask: impl FnMut() -> Result<T, KeeperError>) -> Result<T, KeeperError> {
    wait_for("etcd answers", || match ask() {
        Err(KeeperError::EtcdSilent { .. }) => None,
        answer => Some(answer),
    })
}

impl Keeper for Patient {
    fn keep(&self, keeps: &[TargetId], asks: &[TargetId]) -> Result<Vec<Ownership>, KeeperError> {
        insist(|| self.0.keep(keeps, asks))
    }

    fn take(&self, target: TargetId, over: Epoch) -> Result<Epoch, KeeperError> {
        insist(|| self.0.take(target, over))
    }

    fn leave(&self, targets: &[TargetId]) -> Result<(), KeeperError> {
        insist(|| self.0.leave(targets))
    }

    fn give_back(&self, target: TargetId) -> Result<(), KeeperError> {
        insist(|| self.0.give_back(target))
    }

    fn identity(&self) -> Result<String, KeeperError> {
        insist(|| self.0.identity())
    }

    fn silence(&self) -> Silence {
        self.0.silence()
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

fn keeper(members: Members, number: u128) -> Etcd {
    Etcd::new(members, FSNAME, server(number)).unwrap()
}

fn wait_ready(cluster: &Cluster, keeper: &dyn Keeper) {
    let mut last = String::new();
    wait_for(&format!("etcd answers: {}", cluster.logs()), || match keeper.keep(&[], &[OST]) {
        Ok(_) => Some(()),
        Err(error) => {
            last = error.to_string();
            None
        }
    });
}

fn seen(keeper: &dyn Keeper) -> Result<Ownership, KeeperError> {
    keeper.keep(&[], &[OST]).map(|mut answer| answer.remove(0))
}

fn renewed(keeper: &dyn Keeper) -> Result<Ownership, KeeperError> {
    keeper.keep(&[OST], &[]).map(|mut answer| answer.remove(0))
}

/// The same rules as for the management server; then with a member dead, whichever it was that everybody had asked.
#[test]
fn three_members_conform_and_so_do_two() {
    if !is_installed() {
        return;
    }
    let mut cluster = Cluster::new();
    cluster.start_all();
    let (a, b) = (keeper(cluster.members_from(0), 1), keeper(cluster.members_from(0), 2));
    wait_ready(&cluster, &a);
    assert_eq!(conformance::run(&Real(cluster.members_from(0)), 0), 10);
    assert_eq!(insist(|| a.take(OST, Epoch(0))).unwrap(), Epoch(1));
    assert_eq!(insist(|| seen(&b)).unwrap().epoch, Epoch(1));
    cluster.kill(0);
    // Nobody loses anything by it: each answer that comes says the same.
    let mut answers = 0;
    wait_for("the two others answer both servers", || {
        for ownership in [renewed(&a), seen(&b)].into_iter().flatten() {
            assert_eq!((ownership.epoch, ownership.has_lapsed), (Epoch(1), false));
            answers += 1;
        }
        (answers > 80).then_some(())
    });
    assert!(matches!(insist(|| b.take(OST, Epoch(1))), Err(KeeperError::Denied { .. })));
    assert_eq!(conformance::run(&Real(cluster.members_from(0)), 100), 10);
    // It comes back, and another one goes.
    cluster.start(0);
    cluster.kill(1);
    wait_ready(&cluster, &keeper(cluster.members_from(0), 3));
    assert_eq!(conformance::run(&Real(cluster.members_from(1)), 200), 10);
}

/// Nothing is said, so nothing is taken; and the time counts against nobody.
#[test]
fn without_a_majority_nothing_is_known_and_nothing_is_lost() {
    if !is_installed() {
        return;
    }
    let mut cluster = Cluster::new();
    let (a, b) = (keeper(cluster.members_from(0), 1), keeper(cluster.members_from(1), 2));
    let silent = renewed(&a).unwrap_err().to_string();
    for member in cluster.members_from(0).iter() {
        assert!(silent.contains(member), "{silent}");
    }
    assert!(silent.contains("does not answer"), "{silent}");
    cluster.start_all();
    wait_ready(&cluster, &a);
    assert_eq!(insist(|| a.take(OST, Epoch(0))).unwrap(), Epoch(1));
    cluster.kill(0);
    cluster.kill(1);
    for _ in 0..5 {
        assert!(matches!(renewed(&a), Err(KeeperError::EtcdSilent { .. })));
        assert!(matches!(seen(&b), Err(KeeperError::EtcdSilent { .. })));
    }
    assert!(matches!(b.take(OST, Epoch(1)), Err(KeeperError::EtcdSilent { .. })));
    cluster.start(0);
    cluster.start(1);
    let again = wait_for("etcd answers again", || renewed(&a).ok());
    assert_eq!((again.epoch, again.has_lapsed), (Epoch(1), false), "it goes on under its epoch");
    assert_eq!(again.owner, Some(server(1)));
    assert!(matches!(insist(|| b.take(OST, Epoch(1))), Err(KeeperError::Denied { .. })));
}

#[test]
fn what_others_wrote_there_is_refused_by_its_key() {
    if !is_installed() {
        return;
    }
    let mut cluster = Cluster::new();
    cluster.start_all();
    let a = keeper(cluster.members_from(0), 1);
    wait_ready(&cluster, &a);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = etcd_client::Client::connect([cluster.client_url(0)], None).await.unwrap();
        client.put("/sheen/a/OST03e8/owner", "garbage", None).await.unwrap();
        // Of another file system, which is no matter here.
        client.put("/sheen/ab/OST03e8/owner", "garbage", None).await.unwrap();
    });
    let take = || a.take(OST, Epoch(0)).map(drop);
    for result in [insist(|| seen(&a)).map(drop), insist(take), insist(|| a.leave(&[OST]))] {
        let error = result.unwrap_err();
        assert!(matches!(error, KeeperError::EtcdDamaged { .. }), "{error}");
        assert!(error.to_string().contains("/sheen/a/OST03e8/owner"), "{error}");
    }
}
