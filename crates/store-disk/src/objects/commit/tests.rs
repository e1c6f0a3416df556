use super::*;
use base::Fid;

const HOUR: Duration = Duration::from_secs(3600);
const PART: Extent = Extent { start: 0, end: 4 << 20 };

fn object(n: u32) -> ObjectId {
    ObjectId { fid: Fid { oid: n, ..Fid::ROOT }, component: 0, stripe: 0 }
}

/// Where the device's queue is full each write-out waits, and the writers leave more behind meanwhile.
#[test]
fn who_waits_for_a_round_does_not_wait_for_writers_in_sequence() {
    let changes = Changes::new(HOUR, HOUR);
    for n in 1..=3 {
        changes.note(&object(n), None);
        changes.note_bytes(&object(n), PART);
    }
    let written_out = changes.wait_for_work();
    assert!(matches!(written_out, Some(Work::WriteOut(id, _)) if id == object(1)));
    changes.kick();
    let Some(Work::Round(round)) = changes.wait_for_work() else { panic!("no round") };
    assert_eq!((round.written, round.objects.len()), (3, 3));
    assert!(changes.state().left_behind.is_empty(), "the round writes all that was left behind");
}

/// A device may be full for hours. Others are not to be passed over for one, nor all of it read again and again.
#[test]
fn what_had_no_room_for_its_checksums_is_read_again_later_and_behind_others() {
    let changes = Changes::new(HOUR, HOUR);
    changes.note_believed(&object(1));
    changes.note_believed(&object(2));
    let next_is = |n| matches!(changes.wait_for_work(), Some(Work::ReadOn(id)) if id == object(n));
    assert!(next_is(1));
    changes.put_off_believed(&object(1));
    changes.kick();
    assert!(matches!(changes.wait_for_work(), Some(Work::Round(_))), "not at once");
    let end_pause = || {
        let mut state = changes.state();
        assert_eq!(state.read_on_pause, READ_ON_PAUSE);
        state.read_on_pause = Duration::ZERO;
    };
    end_pause();
    assert!(next_is(2));
    changes.forget_believed(&object(2));
    assert!(next_is(1));
}
