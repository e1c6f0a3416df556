#![allow(clippy::unwrap_used)]
use super::{Denied, Owners};
use base::limits::LEASE;
use base::{Duration, Epoch, TargetId, Time};
use store::MemoryMeta;
use wire::TargetOwner;

const FSNAME: &str = "a";
const OST: TargetId = TargetId::ost(3);

fn at(millis: u64) -> Time {
    Time(millis * 1_000_000)
}

fn server(server: u128) -> TargetOwner {
    TargetOwner { server, nid: format!("127.0.0.1:{server}"), host: "host".into(), pid: 7 }
}

fn take(owners: &mut Owners, now: Time, over: u64, by: u128) -> Result<(), Denied> {
    owners.take(now, at(0), (FSNAME, OST), true, Epoch(over), server(by)).map(drop)
}

fn after_lease(now: Time) -> Time {
    now.after(LEASE).after(Duration::from_millis(1))
}

#[test]
fn a_target_is_taken_from_nobody_whose_lease_holds() {
    let (mut owners, start) = (Owners::default(), at(10_000));
    assert_eq!(take(&mut owners, start, 0, 1), Ok(()));
    assert_eq!(take(&mut owners, start, 1, 2), Err(Denied::Owned));
    owners.renew(at(12_000), FSNAME, 1, &[OST]);
    // Not by him who does not own it.
    owners.renew(at(14_000), FSNAME, 2, &[OST]);
    assert_eq!(take(&mut owners, after_lease(start), 1, 2), Err(Denied::Owned));
    let ended = after_lease(at(12_000));
    assert!(owners.describe(ended, at(0), FSNAME, OST).has_lapsed);
    assert_eq!(take(&mut owners, ended, 0, 2), Err(Denied::Owned), "that is not what it has seen");
    assert_eq!(take(&mut owners, ended, 1, 2), Ok(()));
    assert_eq!(take(&mut owners, ended, 1, 3), Err(Denied::Owned), "another was faster");
    let now = owners.describe(ended, at(0), FSNAME, OST);
    assert_eq!((now.epoch, now.owner.unwrap().server, now.has_lapsed), (Epoch(2), 2, false));
}

#[test]
fn an_owner_that_wakes_before_anybody_took_its_target_goes_on() {
    let (mut owners, start) = (Owners::default(), at(10_000));
    take(&mut owners, start, 0, 1).unwrap();
    let ended = after_lease(start);
    assert!(owners.describe(ended, at(0), FSNAME, OST).has_lapsed);
    owners.renew(ended, FSNAME, 1, &[OST]);
    assert!(!owners.describe(ended, at(0), FSNAME, OST).has_lapsed);
    assert_eq!(take(&mut owners, ended, 1, 2), Err(Denied::Owned));
}

#[test]
fn who_has_left_is_followed_at_once() {
    let mut owners = Owners::default();
    take(&mut owners, at(10_000), 0, 1).unwrap();
    assert!(owners.leave(FSNAME, 2, &[OST]).is_empty(), "it is not his");
    assert!(!owners.leave(FSNAME, 1, &[OST]).is_empty());
    assert_eq!(take(&mut owners, at(10_001), 1, 2), Ok(()));
    assert!(owners.leave(FSNAME, 1, &[OST]).is_empty(), "not any more");
}

#[test]
fn time_in_which_nobody_could_renew_counts_against_nobody() {
    let mut owners = Owners::default();
    take(&mut owners, at(10_000), 0, 1).unwrap();
    let since = at(60_000);
    assert!(!owners.describe(since, since, FSNAME, OST).has_lapsed);
    let denied = owners.take(at(61_000), since, (FSNAME, OST), true, Epoch(1), server(2)).map(drop);
    assert_eq!(denied, Err(Denied::Owned));
    assert!(owners.describe(after_lease(since), since, FSNAME, OST).has_lapsed);
}

/// Who is heard first after that would have fenced all others.
#[test]
fn time_in_which_no_server_was_heard_counts_against_nobody_whose_lease_held() {
    let (mut owners, grace) = (Owners::default(), Duration::from_secs(12));
    let has_lapsed = |owners: &Owners, now| owners.describe(now, at(0), FSNAME, OST).has_lapsed;
    owners.on_heard(at(10_000), grace);
    take(&mut owners, at(10_000), 0, 1).unwrap();
    owners.on_heard(at(15_000), grace);
    assert!(!has_lapsed(&owners, at(26_999)));
    assert_eq!(take(&mut owners, at(26_999), 1, 2), Err(Denied::Owned));
    // Others are heard all the time, so this one could be.
    for now in (16_000..=27_000).step_by(1000) {
        owners.on_heard(at(now), grace);
    }
    assert!(has_lapsed(&owners, at(27_000)));
    owners.on_heard(at(60_000), grace);
    assert!(has_lapsed(&owners, at(60_000)), "it had ended before");

    // Who is silent now and then spares nobody for ever.
    take(&mut owners, at(100_000), 1, 1).unwrap();
    let spared = (102_000..=200_000).step_by(2000).filter(|now| {
        owners.on_heard(at(*now), grace);
        !has_lapsed(&owners, at(*now))
    });
    assert_eq!(spared.last(), Some(114_000), "by the silence in which its lease ended, and by no later one");
}

#[test]
fn ownership_is_kept_over_a_restart_and_damage_is_noticed() {
    let store = MemoryMeta::new();
    let mut owners = Owners::read(&store, at(0), LEASE).unwrap();
    let batch = owners.take(at(10_000), at(0), (FSNAME, OST), true, Epoch(0), server(1)).unwrap();
    store::MetaStore::apply(&store, base::Transno(1), &batch).unwrap();
    let restarted = at(20_000);
    let again = Owners::read(&store, restarted, LEASE).unwrap();
    let found = again.describe(restarted, restarted, FSNAME, OST);
    assert_eq!((found.epoch, found.owner), (Epoch(1), Some(server(1))));
    assert!(!found.has_lapsed, "unknown is not dead");
    assert!(store.rot(super::OWNERS, b"a\0OST0003"));
    assert!(Owners::read(&store, restarted, LEASE).is_err());
}
