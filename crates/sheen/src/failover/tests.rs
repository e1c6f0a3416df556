use super::confirmed::Confirmed;
use super::takeovers::Takeovers;
use super::{HELD_MAX, is_held_for_long};
use super::{KEEP_INTERVAL, LEASE, SILENT_INTERVAL, View, is_lost, is_of_host, lease_end, pause_after};
use base::{Epoch, TargetId, Time};
use coordinate::Silence;
use std::time::Duration;
use wire::{Ownership, TargetOwner};

#[test]
fn who_must_not_outlive_its_leases_writes_until_they_end() {
    let confirmed = Time(5_000_000_000);
    assert_eq!(lease_end(Silence::HoldsBack, confirmed), Some(confirmed.after(LEASE)));
    assert_eq!(lease_end(Silence::ServesOn, confirmed), None, "a dead management server ends nobody");
    assert_eq!(lease_end(Silence::HoldsBack, Time::default()), None, "nothing was owned yet");
}

#[test]
fn who_must_not_outlive_its_leases_asks_a_silent_keeper_again_sooner() {
    assert_eq!(pause_after(false, Silence::HoldsBack), SILENT_INTERVAL);
    assert_eq!(pause_after(true, Silence::HoldsBack), KEEP_INTERVAL);
    assert_eq!(pause_after(false, Silence::ServesOn), KEEP_INTERVAL, "nothing is held back for it");
    assert!(SILENT_INTERVAL < KEEP_INTERVAL);
}

/// It was asked before this process knew that it owns the target, so it renewed nothing: its lease ends 3 s after it was taken.
#[test]
fn a_question_that_was_asked_during_a_takeover_renews_nothing_of_it() {
    let (mgt, ost) = (TargetId::MGT, TargetId::ost(3));
    let mut confirmed = Confirmed::default();
    confirmed.on_kept(Time(1), []);
    assert_eq!((confirmed.all(), confirmed.of(mgt)), (Time(1), None));
    confirmed.on_taken(mgt, Epoch(4), Time(10));
    confirmed.on_kept(Time(15), []);
    assert_eq!((confirmed.all(), confirmed.of(mgt)), (Time(10), Some(Time(10))));
    confirmed.on_kept(Time(16), [(mgt, Epoch(3))]);
    assert_eq!(confirmed.of(mgt), Some(Time(10)), "nor what was owned before");
    confirmed.on_kept(Time(20), [(mgt, Epoch(4))]);
    assert_eq!(confirmed.all(), Time(20));
    // Its answer overtook the one before.
    confirmed.on_kept(Time(18), [(mgt, Epoch(4))]);
    assert_eq!(confirmed.all(), Time(20));
    // The stores of a process write while the leases of all that it owns hold.
    confirmed.on_taken(ost, Epoch(1), Time(21));
    confirmed.on_kept(Time(30), [(mgt, Epoch(4))]);
    assert_eq!((confirmed.all(), confirmed.of(mgt)), (Time(21), Some(Time(30))));
    confirmed.on_left(ost);
    assert_eq!(confirmed.all(), Time(30));
    confirmed.on_left(mgt);
    confirmed.on_kept(Time(31), []);
    assert_eq!((confirmed.all(), confirmed.of(mgt)), (Time(31), None));
}

fn owner(server: u128) -> TargetOwner {
    TargetOwner { server, nid: "h:1".to_owned(), host: "h".to_owned(), pid: 7 }
}

/// Its keeper may be away for hours, and a moment without its word ends nobody.
#[test]
fn a_process_that_is_to_end_waits_for_its_keeper_and_not_for_ever() {
    let (mut since, start) = (None, Time(5));
    assert!(!is_held_for_long(&mut since, true, start));
    assert!(!is_held_for_long(&mut since, false, start.after(HELD_MAX)), "it has been heard");
    let start = start.after(HELD_MAX);
    assert!(!is_held_for_long(&mut since, true, start));
    assert!(!is_held_for_long(&mut since, true, start.after(HELD_MAX - Duration::from_nanos(1))));
    assert!(is_held_for_long(&mut since, true, start.after(HELD_MAX)));
}

/// Machines of one image are all called `localhost`; a process that is looked for on the wrong one is not found, and not fenced.
#[test]
fn an_owner_is_of_this_host_by_its_name_and_its_address() {
    let at = |host: &str, nid: &str| TargetOwner { nid: nid.to_owned(), host: host.to_owned(), ..owner(2) };
    let me = at("localhost", "10.0.0.1:7988");
    for (host, nid, wanted) in [
        ("localhost", "10.0.0.1:7988", true),
        ("localhost", "10.0.0.1:7989", true),
        ("localhost", "10.0.0.2:7988", false),
        ("localhost", "10.0.0.11:7988", false),
        ("a", "10.0.0.1:7988", false),
        ("a", "10.0.0.2:7988", false),
    ] {
        assert_eq!(is_of_host(&at(host, nid), &me), wanted, "{host} {nid}");
    }
    assert!(is_of_host(&at("h", "[fd00::1]:1"), &at("h", "[fd00::1]:2")));
}

fn answer(epoch: Epoch, owner: Option<TargetOwner>) -> Ownership {
    Ownership { target: TargetId::ost(3), epoch, owner, has_lapsed: false }
}

/// An operator had this process take a target again that it could not open, while an earlier question was still on its way.
#[test]
fn a_newer_epoch_of_its_own_ends_no_process() {
    let owned = Epoch(5);
    let is_lost = |answer| is_lost(owned, &answer, &owner(1), Some(owned));
    assert!(!is_lost(answer(Epoch(5), Some(owner(1)))));
    assert!(!is_lost(answer(Epoch(6), Some(owner(1)))));
    assert!(is_lost(answer(Epoch(6), Some(owner(2)))));
    assert!(is_lost(answer(Epoch(5), None)));
}

/// What it had taken could not be opened, and went back, while a question from before was on its way: its other targets are served on.
#[test]
fn what_was_given_back_meanwhile_ends_no_process() {
    for answer in [answer(Epoch(5), None), answer(Epoch(6), Some(owner(2)))] {
        assert!(!is_lost(Epoch(5), &answer, &owner(1), None));
        assert!(!is_lost(Epoch(5), &answer, &owner(1), Some(Epoch(7))), "taken once more");
    }
}

/// What a device failed to keep may be written later by the kernel that still has it.
#[test]
fn what_a_device_failed_to_keep_is_not_given_up() {
    let owned = || View { owned: Some(Epoch(5)), may_be_owned: true, ..View::default() };
    let mut view = owned();
    assert!(!view.give_up(true));
    assert_eq!(view.owned, Some(Epoch(5)), "it is this process's until somebody has fenced it");
    assert!(view.give_up(false), "what was kept is given up");
    assert_eq!((view.owned, view.may_be_owned), (None, false));
    assert!(!view.give_up(false), "once");
    assert!(View { may_be_owned: true, ..View::default() }.give_up(false), "the keeper may have given it");
    assert!(!View { is_opening: true, ..owned() }.give_up(false));
    assert!(
        !View { is_unkept: true, owned: None, ..owned() }.give_up(false),
        "nor what it failed to keep at the opening"
    );
}

#[test]
fn whoever_ends_waits_for_takeovers_and_none_begins_any_more() {
    let takeovers = Takeovers::default();
    let [first, second] = [takeovers.begin(), takeovers.begin()];
    drop(first);
    assert!(!takeovers.end(Duration::ZERO), "the second one is under way");
    assert!(takeovers.begin().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| drop(second));
        assert!(takeovers.end(Duration::from_secs(60)));
    });
    assert!(takeovers.are_over());
}
