//! An OST does not answer for minutes. Calls that wait for it give back what others want of the locks that they have of other OSTs, which
//! would evict this mount for them.

use crate::world::{O_RDWR, TOP, World, append_call, write_call};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, Call, Event, Input, SetattrCall, Setting, TargetSetting};
use wire::{ComponentHint, LayoutHint};

const O_DIRECT: u32 = 0o40000;
const O_APPEND: u32 = 0o2000;
/// Of a stripe.
const UNIT: usize = 64 << 10;
const BOTH: usize = 2 * UNIT;
/// The one that answers, and has the first unit of the file.
const THERE: u16 = 0;
/// The one that does not.
const AWAY: TargetId = TargetId::ost(1);
/// Longer than an OST waits for a client that is heard (two minutes), shorter than one that hears nothing keeps its session.
const OUTAGE: Duration = Duration::from_secs(200);

/// Two mounts, and their handles of a file over both OSTs. It is full of ones, which the first mount has written last.
fn shared(first_flags: u32) -> (World, [(u64, u64); 2]) {
    let mut world = World::with_mounts(1, 2, 2, true);
    let stripes = ComponentHint {
        first_ost: Some(THERE),
        stripe_count: Some(2),
        stripe_size_bytes: Some(UNIT as u32),
        ..ComponentHint::default()
    };
    let layout = LayoutHint { components: vec![stripes] };
    assert_eq!(world.call(0, Call::Setstripe { node: TOP, layout }), Ok(Answer::Done));
    let first = world.create_with(0, TOP, "f", O_RDWR | first_flags);
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let second = (node, world.open(1, node, O_RDWR | O_DIRECT).0);
    assert_eq!(world.write(0, first, 0, &[1; BOTH]), Ok(BOTH as u64));
    world.pass(Duration::from_secs(15));
    assert_eq!(world.read(0, first, 0, BOTH as u32), [1; BOTH]);
    (world, [first, second])
}

fn read_call((node, fh): (u64, u64), offset_bytes: usize, byte_count: usize, is_direct: bool) -> Call {
    Call::Read { node, fh, offset_bytes: offset_bytes as u64, byte_count: byte_count as u32, is_direct }
}

fn assert_nobody_was_evicted(world: &World) {
    for mount in &world.mounts {
        assert!(!mount.events.iter().any(|event| matches!(event, Event::Evicted(_))), "{:?}", mount.events);
    }
}

/// The second mount does something with the unit on the OST that is there, while calls of the first one wait for the other OST; and
/// has its answer long before that is back.
fn while_away(world: &mut World, waiting: &[u64], call: Call) -> Answer {
    let wanting = world.begin(1, call);
    world.pass(Duration::from_secs(45));
    assert!(world.is_answered(1, wanting), "who is waited for has let go");
    let answer = world.finish(1, wanting).expect("it is possible");
    world.pass(OUTAGE);
    assert_nobody_was_evicted(world);
    assert!(waiting.iter().all(|call| !world.is_answered(0, *call)), "they need the OST that is away");
    world.mounts[0].unreachable = None;
    answer
}

fn bytes(answer: Answer) -> Vec<u8> {
    match answer {
        Answer::Bytes(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_read_gives_back_what_it_has_of_others_and_reads_what_is_there_then() {
    let (mut world, [first, second]) = shared(O_DIRECT);
    world.mounts[0].unreachable = Some(AWAY);
    let reading = world.begin(0, read_call(first, 0, BOTH, true));
    world.pass(Duration::from_secs(2));
    let written = while_away(&mut world, &[reading], write_call(second, 0, &[2; UNIT]));
    assert_eq!(written, Answer::Written(UNIT as u64));
    let read = world.finish(0, reading).map(bytes).expect("the OST is back");
    assert_eq!(read[..UNIT], [2; UNIT], "what was read before is not handed on");
    assert_eq!(read[UNIT..], [1; UNIT]);
    assert_nobody_was_evicted(&world);
}

/// The kernel drops no page before the READ is answered that it is locked for.
#[test]
fn a_read_that_fills_pages_does_so_too() {
    let (mut world, [first, second]) = shared(0);
    world.mounts[0].unreachable = Some(AWAY);
    let reading = world.begin(0, read_call(first, 0, BOTH, false));
    world.pass(Duration::from_secs(2));
    world.mounts[0].locked_page = Some((first.0, 0));
    let written = while_away(&mut world, &[reading], write_call(second, 0, &[2; UNIT]));
    assert_eq!(written, Answer::Written(UNIT as u64));
    let read = world.finish(0, reading).map(bytes).expect("the OST is back");
    assert_eq!((&read[..UNIT], &read[UNIT..]), (&[2; UNIT][..], &[1; UNIT][..]));
    world.unlock_page(0);
    assert_nobody_was_evicted(&world);
}

#[test]
fn a_write_gives_back_what_it_has_written_under() {
    let (mut world, [first, second]) = shared(O_DIRECT);
    world.mounts[0].unreachable = Some(AWAY);
    let writing = world.begin(0, write_call(first, 0, &[2; BOTH]));
    world.pass(Duration::from_secs(2));
    let read = while_away(&mut world, &[writing], read_call(second, 0, UNIT, true));
    assert_eq!(bytes(read), [2; UNIT]);
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(BOTH as u64)));
    assert_eq!(world.read(1, second, 0, BOTH as u32), [2; BOTH]);
    assert_nobody_was_evicted(&world);
}

/// The part that is not sent yet is sent under a lock, not under one that was given back.
#[test]
fn a_write_begins_anew_whose_later_parts_are_wanted() {
    let (mut world, [first, second]) = shared(O_DIRECT);
    world.mounts[0].unreachable = Some(AWAY);
    let both = [[3; UNIT], [4; UNIT]].concat();
    let writing = world.begin(0, write_call(first, UNIT as u64, &both));
    world.pass(Duration::from_secs(2));
    let written = while_away(&mut world, &[writing], write_call(second, BOTH as u64, &[2; UNIT]));
    assert_eq!(written, Answer::Written(UNIT as u64));
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(BOTH as u64)));
    assert_eq!(world.read(1, second, UNIT as u64, BOTH as u32), both);
    assert_nobody_was_evicted(&world);
}

/// Others have seen the part that was written, and have written there since.
#[test]
fn what_was_written_before_a_write_begins_anew_is_not_written_again() {
    let (mut world, [first, second]) = shared(O_DIRECT);
    world.mounts[0].unreachable = Some(AWAY);
    let writing = world.begin(0, write_call(first, 0, &[[3; UNIT], [4; UNIT], [5; UNIT]].concat()));
    world.pass(Duration::from_secs(2));
    let reading = world.begin(1, read_call(second, 0, UNIT, true));
    world.pass(Duration::from_secs(45));
    assert_eq!(world.finish(1, reading).map(bytes), Ok(vec![3; UNIT]));
    let written = while_away(&mut world, &[writing], write_call(second, 0, &[9; UNIT]));
    assert_eq!(written, Answer::Written(UNIT as u64));
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(3 * UNIT as u64)));
    let expected = [[9; UNIT], [4; UNIT], [5; UNIT]].concat();
    assert_eq!(world.read(1, second, 0, 3 * UNIT as u32), expected);
    assert_nobody_was_evicted(&world);
}

/// They wait for the write, as they must not see half of it, with the lock of the OST that is there.
#[test]
fn calls_behind_such_a_write_give_back_what_they_have() {
    let (mut world, [first, second]) = shared(O_DIRECT);
    world.mounts[0].unreachable = Some(AWAY);
    let writing = world.begin(0, write_call(first, UNIT as u64 / 2, &[2; UNIT]));
    let reading = world.begin(0, read_call(first, 0, UNIT, true));
    let overwriting = world.begin(0, write_call(first, UNIT as u64 - 4096, &[5; 4096]));
    world.pass(Duration::from_secs(2));
    let waiting = [writing, reading, overwriting];
    let written = while_away(&mut world, &waiting, write_call(second, 0, &[3; 4096]));
    assert_eq!(written, Answer::Written(4096));
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(UNIT as u64)));
    let read = world.finish(0, reading).map(bytes).expect("the OST is back");
    assert_eq!(read[..4096], [3; 4096]);
    assert_eq!(read[UNIT / 2..UNIT - 4096], [2; UNIT / 2 - 4096]);
    assert_eq!(world.finish(0, overwriting), Ok(Answer::Written(4096)));
    let all = world.read(1, second, 0, BOTH as u32);
    assert_eq!(all[UNIT - 4096..UNIT], [5; 4096], "written behind the one in front");
    assert_eq!(all[UNIT..UNIT * 3 / 2], [2; UNIT / 2]);
    assert_nobody_was_evicted(&world);
}

#[test]
fn a_truncate_gives_back_what_it_has_cut() {
    let (mut world, [first, second]) = shared(O_DIRECT);
    world.mounts[0].unreachable = Some(AWAY);
    let set = SetattrCall { fh: Some(first.1), size_bytes: Some(4096), ..SetattrCall::default() };
    let cutting = world.begin(0, Call::Setattr { node: first.0, set });
    world.pass(Duration::from_secs(2));
    let read = while_away(&mut world, &[cutting], read_call(second, 0, 4096, true));
    assert_eq!(bytes(read), [1; 4096]);
    assert!(world.finish(0, cutting).is_ok());
    assert_eq!(world.attr(1, second.0).size_bytes, 4096);
    assert_eq!(world.read(1, second, 0, BOTH as u32), [1; 4096]);
    assert_nobody_was_evicted(&world);
}

/// It asks both OSTs where the file ends, with all locks in hand.
#[test]
fn an_append_gives_back_what_it_has_and_appends_where_the_file_ends_then() {
    let (mut world, [first, second]) = shared(O_APPEND);
    world.mounts[0].unreachable = Some(AWAY);
    let appending = world.begin(0, append_call(first, &[2; 4096]));
    world.pass(Duration::from_secs(2));
    let written = while_away(&mut world, &[appending], write_call(second, BOTH as u64, &[3; 4096]));
    assert_eq!(written, Answer::Written(4096));
    assert_eq!(world.finish(0, appending), Ok(Answer::Written(4096)));
    assert_eq!(world.read(1, second, BOTH as u64, 8192), [[3; 4096], [2; 4096]].concat());
    assert_nobody_was_evicted(&world);
}

/// Of many pages what the other objects have goes with what is on its way back, and one of these may be locked for such a READ.
#[test]
fn a_read_of_the_ost_that_is_away_keeps_no_lock_of_another_one() {
    const UNITS: usize = 600;
    let (mut world, [first, second]) = shared(0);
    for unit in (2..UNITS).step_by(16) {
        let count = 16.min(UNITS - unit);
        assert_eq!(
            world.write(0, first, (unit * UNIT) as u64, &vec![1; count * UNIT]),
            Ok((count * UNIT) as u64)
        );
    }
    world.pass(Duration::from_secs(15));
    for unit in (0..UNITS).step_by(2) {
        assert_eq!(world.read(0, first, (unit * UNIT) as u64, BOTH as u32), vec![1; BOTH]);
    }
    world.mounts[0].unreachable = Some(AWAY);
    let away = (UNITS - 1) * UNIT;
    let reading = world.begin(0, read_call(first, away, 4096, false));
    world.pass(Duration::from_secs(5));
    world.mounts[0].locked_page = Some((first.0, away as u64));
    let written = while_away(&mut world, &[reading], write_call(second, 0, &[2; 4096]));
    assert_eq!(written, Answer::Written(4096));
    assert_eq!(world.finish(0, reading).map(bytes), Ok(vec![1; 4096]));
    world.unlock_page(0);
    assert_nobody_was_evicted(&world);
}

/// The first mount has the file alone, writes its first unit and the one after the next, and waits for room among what is kept back, which
/// comes only with the OST that is away. Its kernel has locked the last page for that, and drops it only when the write is answered.
fn waiting_for_room() -> (World, [(u64, u64); 2], u64) {
    let (mut world, [first, second]) = shared(0);
    world.release(1, second);
    world.pass(Duration::from_secs(15));
    let stripes =
        ComponentHint { first_ost: Some(AWAY.index), stripe_count: Some(1), ..ComponentHint::default() };
    let layout = LayoutHint { components: vec![stripes] };
    let call = Call::CreateStriped { parent: TOP, name: b"g".into(), mode: 0o644, umask: 0, layout };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    let node = world.lookup(0, TOP, "g").expect("it was made").node;
    let other = (node, world.open(0, node, O_RDWR).0);
    for file in [other, first] {
        for _ in 0..2 {
            assert_eq!(world.write(0, file, 0, &[1; BOTH + UNIT]), Ok((BOTH + UNIT) as u64));
            world.pass(Duration::from_secs(2));
        }
    }
    let setting = Setting::Target(AWAY, TargetSetting::DirtyBytes(BOTH as u64));
    world.input(0, Input::Set(setting));
    world.mounts[0].unreachable = Some(AWAY);
    assert_eq!(world.write(0, other, 0, &[2; BOTH]), Ok(BOTH as u64));
    let writing = world.begin(0, write_call(first, 0, &[2; BOTH + 100]));
    assert!(!world.is_answered(0, writing), "there is no room");
    world.mounts[0].locked_page = Some((first.0, BOTH as u64));
    (world, [first, second], writing)
}

#[test]
fn a_write_that_waits_for_room_keeps_no_lock_of_another_ost() {
    let (mut world, [first, second], writing) = waiting_for_room();
    let written_count = |world: &World| {
        let requests = world.requests(0, TargetKind::Ost);
        requests.iter().find(|(kind, _)| *kind == "ost_write").map_or(0, |(_, count)| *count)
    };
    let before = written_count(&world);
    let (fh, _) = world.open(1, second.0, O_RDWR | O_DIRECT);
    assert_eq!(written_count(&world), before + 1, "nothing more is kept back, so it needs no room");
    let read = while_away(&mut world, &[writing], read_call((second.0, fh), 0, UNIT, true));
    assert_eq!(bytes(read), [2; UNIT]);
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(BOTH as u64 + 100)));
    world.unlock_page(0);
    let all = world.read(1, (second.0, fh), 0, (BOTH + UNIT) as u32);
    assert!(all == [&[2; BOTH + 100][..], &[1; UNIT - 100][..]].concat());
    assert_eq!(world.attr(0, first.0).size_bytes, (BOTH + UNIT) as u64);
    assert_nobody_was_evicted(&world);
}

#[test]
fn who_has_pages_dropped_does_not_wait_for_a_write_that_waits_for_room() {
    let (mut world, [first, _], writing) = waiting_for_room();
    let reading = world.begin(0, read_call(first, BOTH, 4096, true));
    world.pass(Duration::from_secs(5));
    assert!(world.is_answered(0, reading));
    assert_eq!(world.finish(0, reading).map(bytes), Ok(vec![1; 4096]));
    world.mounts[0].unreachable = None;
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(BOTH as u64 + 100)));
    world.unlock_page(0);
    assert_nobody_was_evicted(&world);
}
