#![allow(clippy::unwrap_used)]

use super::*;
use base::{ClientId, ClusterConfig, Machine, Now, TargetConfig, WallTime};
use client::{Call, Caller, ClientOptions, Input};
use std::cell::Cell;

fn at(time: Duration) -> Now {
    let nanos = u64::try_from(time.as_nanos()).unwrap();
    Now { time: Time(nanos), wall: WallTime(1_700_000_000_000_000_000) }
}

/// A client that has asked an MDT, from which nothing ever comes.
fn unheard_client() -> Client {
    let options = ClientOptions {
        client: ClientId(7),
        incarnation: 1,
        fsname: "fs".to_owned(),
        nid: "0@lo".to_owned(),
        has_inc_epoch: true,
        has_versioned_setattr: true,
        is_mmap_relaxed: false,
        has_kill_privileges: true,
        is_write_back_early: false,
        is_statfs_lazy: true,
        access_times: client::AccessTimes::default(),
    };
    let mdt = TargetConfig { id: TargetId::mdt(0), uuid: 1, nids: vec!["h:1".to_owned()], is_active: true };
    let config =
        ClusterConfig { fsname: "fs".to_owned(), version: 1, targets: vec![mdt], ..ClusterConfig::default() };
    let mut client = Client::new(at(Duration::ZERO), options);
    let call = Call::Getattr { node: client::ROOT_NODE, fh: None };
    for input in [Input::Config(config), Input::Call { id: 1, call, caller: Caller::default() }] {
        client.handle(at(Duration::ZERO), input, &mut Vec::new());
    }
    client
}

/// An unmount is promised in ten seconds. A sync that fails shortly before its server is given up may not begin that anew.
#[test]
fn who_is_silent_is_waited_for_once_however_often_a_sync_fails() {
    let (client, now, tries) = (unheard_client(), Cell::new(Duration::ZERO), Cell::new(0));
    let mut watch = Watch::new(LEAVING, at(now.get()).time);
    let fails_at = HEARD_WITHIN.saturating_sub(Duration::from_millis(100));
    let done = once_more(
        &mut watch,
        || false,
        &|_| (),
        |watch| {
            tries.set(tries.get() + 1);
            loop {
                now.set(now.get() + Duration::from_millis(100));
                let targets = watch.given_up(&client, at(now.get()).time);
                if !targets.is_empty() {
                    return Err(Silence { targets, mount: "/mnt".to_owned() }.into());
                }
                if tries.get() == 1 && now.get() >= fails_at {
                    anyhow::bail!("Input/output error");
                }
            }
        },
    );
    assert_eq!(done.unwrap_err().downcast::<Silence>().unwrap().targets, ["MDT0000"]);
    assert_eq!((tries.get(), now.get()), (2, HEARD_WITHIN));
}
