//! One of several management servers over the same rows: it answers as long as its lease holds.

use super::{Input, Output, World, world};
use crate::{LEASES, Mgs, MgsOptions, POLL_WAIT};
use base::limits::{LEASE, RECOVERY_WINDOW};
use base::{ClientId, Duration, Epoch, Machine, Status, TargetConfig, TargetId, Time};
use bytes::Bytes;
use rpc::{ImportOutput, Kind};
use std::sync::Arc;
use store::{Batch, MemoryMeta, MetaStore};
use wire::{Life, MgsReply, MgsRequest, Request, TargetOwner};

const LIFE: Life = Life { client: ClientId(77), incarnation: 1 };

impl World {
    /// Another one opens the rows, and owns them until then.
    fn take_over(&mut self, until: Time) {
        let options = MgsOptions {
            uuid: 9,
            now: self.now,
            recovery_window: RECOVERY_WINDOW,
            active_until: Some(until),
        };
        self.mgs = Mgs::open(Arc::clone(&self.store), options).unwrap();
    }

    fn hold(&mut self, until: Time) {
        self.mgs.handle(self.now, Input::ActiveUntil(until), &mut Vec::new());
    }

    fn renew(&mut self) {
        let ticket = self.submit(MgsRequest::Renew { clients: vec![LIFE] }, Kind::Plain);
        let done = self.done.iter().find(|(done, _)| *done == ticket);
        assert!(done.is_some_and(|(_, result)| result.is_ok()));
    }

    fn lapsed(&mut self) -> Vec<Life> {
        match self.ask(MgsRequest::AskLapsed { clients: vec![LIFE] }, Kind::Plain) {
            Ok(MgsReply::Lapsed(lapsed)) => lapsed,
            other => panic!("{other:?}"),
        }
    }

    /// The same, asked of one that has just begun.
    fn first_lapsed(&mut self) -> Vec<Life> {
        // The session of whoever asks comes back by itself.
        let first = self.submit(MgsRequest::AskLapsed { clients: vec![LIFE] }, Kind::Plain);
        while self.result(first).is_none() {
            self.pass(Duration::from_millis(50));
        }
        match self.result(first) {
            Some(Ok(MgsReply::Lapsed(lapsed))) => lapsed,
            // The session began anew.
            Some(Err(Status::Evicted)) => self.lapsed(),
            other => panic!("{other:?}"),
        }
    }

    /// Hands a request over, and looks whether it is answered though nothing becomes durable.
    fn is_answered_undurably(&mut self, request: MgsRequest) -> bool {
        let (mut outputs, mut sent) = (Vec::new(), Vec::new());
        self.import.submit(self.now, Request::Mgs(request), Bytes::new(), Kind::Plain, 0, &mut outputs);
        for output in outputs {
            if let ImportOutput::Send(frame) = output {
                self.mgs.handle(self.now, Input::Frame(frame), &mut sent);
            }
        }
        self.mgs.check();
        sent.iter().any(|output| matches!(output, Output::Send(_)))
    }

    /// Somebody speaks all the time, a server that stands by for targets.
    fn pass_heard(&mut self, wait: Duration) {
        self.pass(wait);
        let (keeps, asks) = (Vec::new(), Vec::new());
        self.submit(MgsRequest::KeepOwned { fsname: "a".into(), server: 9, keeps, asks }, Kind::Plain);
    }

    /// Until a session works.
    fn settle(&mut self) {
        for _ in 0..40 {
            self.pass_heard(Duration::from_millis(250));
        }
    }
}

#[test]
fn who_has_no_lease_answers_nobody_and_changes_nothing() {
    let mut world = world();
    world.register("a", TargetId::ost(0), 1).unwrap();
    world.take_over(world.now.time.after(Duration::from_secs(60)));
    world.settle();
    let set = |value: &str| MgsRequest::SetParam {
        fsname: "a".into(),
        path: "llite.*.stats".into(),
        value: Some(value.to_owned()),
    };
    world.ask(set("1"), Kind::Modifying).unwrap();
    world.now.time = world.now.time.after(Duration::from_secs(60));
    let before = world.store.rows();
    let changing = world.submit(set("2"), Kind::Modifying);
    let asking = world.submit(MgsRequest::ListFilesystems, Kind::Plain);
    world.settle();
    assert_eq!((world.result(changing), world.result(asking)), (None, None));
    assert_eq!(world.store.rows(), before);
    // Its lease was renewed after all: whoever still asks is answered.
    world.hold(world.now.time.after(Duration::from_secs(60)));
    world.settle();
    assert!(matches!(world.result(changing), Some(Ok(MgsReply::Config(_)))));
    assert_eq!(world.result(asking), Some(Ok(MgsReply::Filesystems(vec!["a".into()]))));
    assert_eq!(world.mgs.config("a").unwrap().params, [("llite.*.stats".into(), "2".into())]);
}

#[test]
fn an_older_word_of_the_lease_shortens_nothing() {
    let mut world = world();
    let until = world.now.time.after(Duration::from_secs(60));
    world.take_over(until);
    world.hold(world.now.time.after(Duration::from_secs(1)));
    world.settle();
    assert!(world.now.time < until);
    assert!(world.ask(MgsRequest::ListFilesystems, Kind::Plain).is_ok());
}

/// Unknown is not dead: whoever renewed at the one before has had no time to do so here.
#[test]
fn who_takes_over_counts_nobody_as_gone_for_a_whole_lease() {
    let mut world = world();
    world.renew();
    assert_eq!(world.lapsed(), []);
    world.now.time = world.now.time.after(LEASE);
    let begun = world.now.time;
    world.take_over(begun.after(Duration::from_secs(60)));
    assert_eq!(world.first_lapsed(), []);
    assert!(world.now.time < begun.after(LEASE), "it was asked in time");
    while world.now.time < begun.after(LEASE) {
        assert_eq!(world.lapsed(), [], "{:?} after it took over", world.now.time.since(begun));
        world.pass(Duration::from_millis(50));
    }
    world.settle();
    assert_eq!(world.lapsed(), [LIFE], "it has not renewed");
}

/// Servers that only serve find out after 8 s that the one before is gone.
#[test]
fn who_takes_over_gives_owners_of_targets_time_to_find_it() {
    let mut world = world();
    let target = TargetId::ost(0);
    let me = TargetOwner { server: 1, nid: "a:1".into(), host: "a".into(), pid: 1 };
    let taken = MgsRequest::TakeOwned { fsname: "a".into(), target, over: Epoch(0), by: me };
    world.ask(taken, Kind::Modifying).unwrap();
    world.take_over(world.now.time.after(Duration::from_secs(60)));
    let has_lapsed = |world: &mut World| {
        let asks =
            MgsRequest::KeepOwned { fsname: "a".into(), server: 2, keeps: Vec::new(), asks: vec![target] };
        match world.ask(asks, Kind::Plain) {
            Ok(MgsReply::Ownerships(owned)) => owned[0].has_lapsed,
            other => panic!("{other:?}"),
        }
    };
    // Ten seconds.
    world.settle();
    assert!(!has_lapsed(&mut world));
    world.settle();
    assert!(has_lapsed(&mut world));
}

/// Nor does one whose lease was away: nobody could renew while it was silent.
#[test]
fn who_was_without_a_lease_counts_nobody_as_gone_for_a_whole_one() {
    let mut world = world();
    world.take_over(world.now.time.after(Duration::from_secs(30)));
    world.settle();
    world.renew();
    world.now.time = world.now.time.after(Duration::from_secs(30));
    world.settle();
    world.hold(world.now.time.after(Duration::from_secs(60)));
    assert_eq!(world.lapsed(), []);
    world.settle();
    assert_eq!(world.lapsed(), [LIFE]);
}

#[test]
fn nobody_is_told_of_a_configuration_that_could_be_lost() {
    let mut world = world();
    world.register("a", TargetId::ost(0), 1).unwrap();
    let poll = world.submit(MgsRequest::GetConfig { fsname: "a".into(), known_version: 1 }, Kind::Plain);
    let target = TargetConfig { id: TargetId::ost(1), uuid: 2, nids: vec!["n:1".into()], is_active: true };
    let request =
        Request::Mgs(MgsRequest::Register { fsname: "a".into(), target, claim: wire::Claim::default() });
    let (mut outputs, mut sent) = (Vec::new(), Vec::new());
    world.import.submit(world.now, request, Bytes::new(), Kind::Modifying, 0, &mut outputs);
    for output in outputs {
        if let ImportOutput::Send(frame) = output {
            world.mgs.handle(world.now, Input::Frame(frame), &mut sent);
        }
    }
    let frames = |sent: &[Output]| sent.iter().filter(|output| matches!(output, Output::Send(_))).count();
    assert_eq!(world.mgs.config("a").unwrap().version, 2);
    assert_eq!(frames(&sent), 0, "neither who asked for it nor who waits for it");
    world.store.sync();
    world.mgs.handle(world.now, Input::Durable, &mut sent);
    assert_eq!(frames(&sent), 2);
    assert_eq!(world.result(poll), None, "it is on its way");
    world.pass(POLL_WAIT);
}

/// Active for a long time, and knows that the lease of a client has ended.
fn with_somebody_gone() -> World {
    let mut world = world();
    world.take_over(world.now.time.after(Duration::from_secs(1000)));
    world.settle();
    world.renew();
    for _ in 0..10 {
        world.pass_heard(Duration::from_millis(500));
    }
    assert_eq!((world.lapsed(), world.mgs.ended_lease_count()), (vec![LIFE], 1));
    world
}

#[test]
fn whose_lease_had_ended_at_the_one_before_is_gone_at_once() {
    let mut world = with_somebody_gone();
    for _ in 0..2 {
        let begun = world.now.time;
        world.take_over(begun.after(Duration::from_secs(1000)));
        assert_eq!(world.first_lapsed(), [LIFE]);
        assert!(world.now.time < begun.after(LEASE), "nobody was waited for");
        let other = Life { client: ClientId(78), incarnation: 1 };
        let newer = Life { incarnation: 2, ..LIFE };
        let asked = world.ask(MgsRequest::AskLapsed { clients: vec![other, newer] }, Kind::Plain);
        assert_eq!(asked, Ok(MgsReply::Lapsed(Vec::new())), "of them nothing is known");
        // It dies at once, too.
    }
}

#[test]
fn who_comes_back_at_the_next_one_lives_there_and_at_the_one_after() {
    let mut world = with_somebody_gone();
    world.take_over(world.now.time.after(Duration::from_secs(1000)));
    assert_eq!(world.first_lapsed(), [LIFE]);
    world.renew();
    assert_eq!(world.lapsed(), []);
    let begun = world.now.time;
    world.take_over(begun.after(Duration::from_secs(1000)));
    assert_eq!(world.first_lapsed(), []);
    assert!(world.now.time < begun.after(LEASE));
}

/// One that has never said of itself who is gone, as those of an earlier version do, may have renewed the lease.
#[test]
fn what_one_before_the_last_has_known_counts_for_nothing() {
    let mut world = with_somebody_gone();
    let begun = world.now.time;
    let leases = |world: &World| {
        let rows = world.store.rows().into_iter();
        rows.filter(|((table, _), _)| *table == LEASES).collect::<Vec<_>>()
    };
    let known = leases(&world);
    world.take_over(begun.after(Duration::from_secs(1000)));
    // What it has said of itself is not there.
    assert_ne!(leases(&world), known);
    let mut batch = Batch::new();
    known.iter().for_each(|((_, key), value)| batch.put(LEASES, key, value));
    world.store.apply(world.store.applied().next(), &batch).unwrap();
    world.take_over(begun.after(Duration::from_secs(1000)));
    assert_eq!(world.first_lapsed(), []);
    assert!(world.now.time < begun.after(LEASE));
}

/// A copy of the directory, or a snapshot of etcd, of when it was gone: it has come back at the one that was lost.
#[test]
fn an_older_copy_takes_nobody_for_gone_when_it_meets_who_knew_a_later_one() {
    let mut world = with_somebody_gone();
    let (applied, copy) = (world.store.applied(), world.store.rows());
    let mut batch = Batch::new();
    copy.iter().for_each(|((table, key), value)| batch.put(*table, key, value));
    for _ in 0..2 {
        world.take_over(world.now.time.after(Duration::from_secs(1000)));
        world.settle();
        world.renew();
    }
    world.store = Arc::new(MemoryMeta::new());
    world.store.apply(applied, &batch).unwrap();
    for _ in 0..2 {
        let begun = world.now.time;
        world.take_over(begun.after(Duration::from_secs(1000)));
        assert_eq!(world.first_lapsed(), []);
        assert!(world.now.time < begun.after(LEASE), "that was not for want of time");
        // The first one dies soon. The next one finds nothing that it would believe.
        world.pass_heard(Duration::from_millis(1100));
    }
    world.settle();
    assert_eq!(world.lapsed(), [LIFE]);
}

/// Else it would rely on a lease that the next one takes for an ended one.
#[test]
fn who_comes_back_hears_of_its_lease_when_the_next_one_would_know() {
    let mut world = with_somebody_gone();
    let renew = || MgsRequest::Renew { clients: vec![LIFE] };
    let others = MgsRequest::Renew { clients: vec![Life { client: ClientId(78), incarnation: 1 }] };
    assert!(!world.is_answered_undurably(renew()));
    assert!(!world.is_answered_undurably(renew()), "nor when it asks again");
    assert!(world.is_answered_undurably(others), "nobody else waits for that");
    let mut sent = Vec::new();
    world.store.sync();
    world.mgs.handle(world.now, Input::Durable, &mut sent);
    assert_eq!(sent.iter().filter(|output| matches!(output, Output::Send(_))).count(), 2);
    let begun = world.now.time;
    world.store.crash(0);
    world.take_over(begun.after(Duration::from_secs(1000)));
    assert_eq!(world.mgs.ended_lease_count(), 0);
}

/// The management server dies with it, so nobody could renew: only the next one can know, after a whole lease, and says so.
#[test]
fn who_died_with_the_one_before_is_gone_at_once_at_the_one_after_the_next() {
    let mut world = world();
    world.take_over(world.now.time.after(Duration::from_secs(1000)));
    world.settle();
    world.renew();
    world.pass_heard(Duration::from_millis(1100));
    assert_eq!((world.lapsed(), world.mgs.ended_lease_count()), (Vec::new(), 0));
    let begun = world.now.time;
    world.take_over(begun.after(Duration::from_secs(1000)));
    assert_eq!((world.first_lapsed(), world.mgs.lease_count(world.now.time)), (Vec::new(), 0));
    while world.now.time < begun.after(LEASE) {
        assert_eq!((world.lapsed(), world.mgs.ended_lease_count()), (Vec::new(), 0), "it may come");
        world.pass_heard(Duration::from_millis(100));
    }
    // Nobody asks.
    world.settle();
    assert_eq!(world.mgs.ended_lease_count(), 1);
    let begun = world.now.time;
    world.take_over(begun.after(Duration::from_secs(1000)));
    assert_eq!(world.first_lapsed(), [LIFE]);
    assert!(world.now.time < begun.after(LEASE), "nobody was waited for");
}

/// It has had all the time that others have.
#[test]
fn who_had_a_lease_at_the_one_before_and_renews_is_not_gone_at_any_time() {
    let mut world = world();
    world.take_over(world.now.time.after(Duration::from_secs(1000)));
    world.settle();
    world.renew();
    world.pass_heard(Duration::from_millis(1100));
    for _ in 0..3 {
        let begun = world.now.time;
        world.take_over(begun.after(Duration::from_secs(1000)));
        assert_eq!(world.first_lapsed(), []);
        while world.now.time < begun.after(Duration::from_millis(2900)) {
            assert_eq!(world.lapsed(), []);
            world.pass_heard(Duration::from_millis(50));
        }
        world.renew();
        for _ in 0..20 {
            assert_eq!((world.lapsed(), world.mgs.ended_lease_count()), (Vec::new(), 0));
            world.pass_heard(Duration::from_millis(100));
        }
        world.renew();
    }
}

/// A disk or an etcd that takes nothing: only whose lease had ended would be taken for dead by the next one.
#[test]
fn a_store_that_is_full_keeps_nobody_from_renewing_but_who_comes_back() {
    let mut world = with_somebody_gone();
    world.store.refuse(u32::MAX);
    let renew =
        |client| MgsRequest::Renew { clients: vec![Life { client: ClientId(client), incarnation: 1 }] };
    let result = |world: &mut World, client| {
        let ticket = world.submit(renew(client), Kind::Plain);
        let done = world.done.iter().find(|(done, _)| *done == ticket);
        done.map(|(_, result)| result.as_ref().map(|_| ()).map_err(|status| *status))
    };
    assert_eq!(result(&mut world, LIFE.client.0), Some(Err(Status::NoSpace)));
    assert_eq!(result(&mut world, 78), Some(Ok(())), "a new one");
    for _ in 0..5 {
        world.pass_heard(Duration::from_secs(1));
        assert_eq!(result(&mut world, 78), Some(Ok(())));
    }
    world.store.refuse(0);
    assert_eq!(result(&mut world, LIFE.client.0), Some(Ok(())));
    assert_eq!(world.lapsed(), []);
}
