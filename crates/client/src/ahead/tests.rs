use super::*;

const MIB: u64 = 1 << 20;
const ANY: u64 = u64::MAX;

fn after(millis: u64) -> Time {
    Time(0).after(Duration::from_millis(millis))
}

/// A file of which so many MiB were read in each of two 100 ms, windows taking `delay` of them.
fn read_at(mib_per_tenth: u64, delay: Duration) -> FileWindows {
    let mut file = FileWindows::default();
    file.note_delay(after(0), delay);
    for tenth in 1..=2 {
        file.note_served(after(tenth * 100), mib_per_tenth * MIB);
    }
    file
}

#[test]
fn a_window_is_twice_what_is_read_while_it_is_on_its_way() {
    let file = read_at(100, Duration::from_millis(50));
    assert_eq!(file.ahead_bytes(ANY), 100 * MIB);
    let file = read_at(100, Duration::from_millis(20));
    assert_eq!(file.ahead_bytes(ANY), 40 * MIB);
    let file = read_at(200, Duration::from_millis(20));
    assert_eq!(file.ahead_bytes(ANY), 80 * MIB);
}

#[test]
fn a_window_is_neither_too_small_nor_beyond_the_bounds_of_its_file() {
    assert_eq!(FileWindows::default().ahead_bytes(ANY), AHEAD_BYTES_MIN, "nothing is known");
    assert_eq!(read_at(100, Duration::from_millis(1)).ahead_bytes(ANY), AHEAD_BYTES_MIN);
    assert_eq!(read_at(100, Duration::from_millis(50)).ahead_bytes(4 * MIB), 4 * MIB);
}

#[test]
fn one_window_that_took_long_changes_nothing_and_many_do() {
    let mut file = read_at(100, Duration::from_millis(20));
    file.note_delay(after(300), Duration::from_millis(80));
    assert!(file.ahead_bytes(ANY) < 42 * MIB);
    for _ in 0..200 {
        file.note_delay(after(300), Duration::from_millis(80));
    }
    assert_eq!(file.ahead_bytes(ANY), 160 * MIB);
}

fn object(number: u32) -> ObjectId {
    ObjectId { fid: Fid { seq: 1, oid: number, ver: 0 }, component: 0, stripe: 0 }
}

fn ahead(mib: u64, file_mib: u64) -> Ahead {
    let bounds = ReadAheadBounds {
        byte_count: mib * MIB,
        file_byte_count: file_mib * MIB,
        ..ReadAheadBounds::default()
    };
    Ahead { bounds, ..Ahead::default() }
}

/// Asks for the next window of a MiB of a file, which comes at once.
fn read_next(ahead: &mut Ahead, number: u32) -> bool {
    let object = object(number);
    ahead.files.entry(object.fid).or_default();
    let has_room = ahead.make_room(object.fid, MIB, &|_, _| false);
    if has_room {
        let next = ahead.last_number + 1;
        let window = Window {
            // No two are at the same place.
            extent: Extent::at(next * MIB, MIB),
            number: next,
            lock: LockId(1),
            data_changed_at: 0,
            body: Body::Here(Bytes::from_static(&[0; MIB as usize])),
            served_byte_count: 0,
            is_for_push: false,
            is_being_pushed: false,
        };
        ahead.insert_window(object, window);
    }
    ahead.check();
    has_room
}

fn mib_of(ahead: &Ahead, number: u32) -> u64 {
    ahead.files.get(&object(number).fid).map_or(0, |file| file.byte_count / MIB)
}

#[test]
fn a_file_that_comes_later_gets_its_share_of_one_that_rests() {
    let mut ahead = ahead(8, 8);
    (0..8).for_each(|_| assert!(read_next(&mut ahead, 1)));
    (0..4).for_each(|_| assert!(read_next(&mut ahead, 2)));
    assert_eq!((mib_of(&ahead, 1), mib_of(&ahead, 2)), (4, 4));
    let first = ahead.files[&object(1).fid].windows.keys().next().copied();
    assert_eq!(first, Some((object(1), 5 * MIB)), "the oldest have gone");
    // From now on each makes room for itself.
    (0..9).for_each(|_| assert!(read_next(&mut ahead, 2)));
    assert_eq!((mib_of(&ahead, 1), mib_of(&ahead, 2)), (4, 4));
}

#[test]
fn a_file_stays_within_its_own_bound_when_it_is_alone() {
    let mut ahead = ahead(64, 4);
    (0..9).for_each(|_| assert!(read_next(&mut ahead, 1)));
    assert_eq!(mib_of(&ahead, 1), 4);
}

/// `max_read_ahead_mb=1024` beside the default: a file that is alone is bound by what one file may have.
#[test]
fn a_larger_pool_is_the_same_to_one_file() {
    let in_pool = |mib: Option<u64>| {
        let usual = ReadAheadBounds::default();
        let byte_count = mib.map_or(usual.byte_count, |mib| mib * MIB);
        let bounds = ReadAheadBounds { byte_count, ..usual };
        let mut ahead = Ahead { bounds, ..Ahead::default() };
        let before = ahead.file_byte_count_max(object(1).fid);
        (0..200).for_each(|_| assert!(read_next(&mut ahead, 1)));
        let after = ahead.file_byte_count_max(object(1).fid);
        let in_force = [bounds.file_bytes_in_force(), bounds.whole_bytes_in_force()];
        (in_force, before, after, mib_of(&ahead, 1))
    };
    assert_eq!(in_pool(None), in_pool(Some(1024)));
    assert_eq!(in_pool(None).3, 64);
    assert_ne!(in_pool(None), in_pool(Some(32)), "a smaller one is not");
}

#[test]
fn many_files_that_rest_leave_two_windows_to_one_that_is_read() {
    let mut ahead = ahead(16, 8);
    (1..=100).for_each(|number| assert!(read_next(&mut ahead, number)));
    assert_eq!(ahead.byte_count, 16 * MIB);
    (0..9).for_each(|_| assert!(read_next(&mut ahead, 101)));
    assert_eq!((mib_of(&ahead, 101), ahead.byte_count), (2, 16 * MIB));
}

#[test]
fn files_that_have_no_windows_take_no_share() {
    let mut ahead = ahead(8, 8);
    for number in 1..=100 {
        ahead.files.entry(object(number).fid).or_default();
    }
    (0..9).for_each(|_| assert!(read_next(&mut ahead, 7)));
    assert_eq!(mib_of(&ahead, 7), 8);
}

/// A mount that has very many files open, each with a window, and reads one after the other.
#[test]
fn room_in_a_full_pool_is_made_without_looking_at_all_files() {
    const COUNT: u32 = 400;
    let mut ahead = ahead(u64::from(COUNT), 8);
    (1..=COUNT).for_each(|number| assert!(read_next(&mut ahead, number)));
    assert_eq!((ahead.byte_count, ahead.looked_at_count.take()), (u64::from(COUNT) * MIB, 0));
    // Each is read on, twice, for which the oldest window of all makes room.
    for number in (1..=COUNT).chain(1..=COUNT) {
        assert!(read_next(&mut ahead, number));
    }
    assert_eq!(ahead.byte_count, u64::from(COUNT) * MIB);
    assert!(ahead.looked_at_count.get() <= 4 * u64::from(COUNT), "{}", ahead.looked_at_count.get());
}

/// What a read is about to need is passed over, and windows on their way and such as are being pushed.
#[test]
fn the_oldest_window_that_may_go_makes_room() {
    let mut ahead = ahead(4, 4);
    for number in [1, 2, 2, 3] {
        assert!(read_next(&mut ahead, number));
    }
    // Numbers and places in MiB are 1 to 4.
    let starts = |ahead: &Ahead| {
        let windows = ahead.files.values().flat_map(|file| file.windows.keys());
        let mut starts: Vec<u64> = windows.map(|(_, start)| start / MIB).collect();
        starts.sort_unstable();
        starts
    };
    ahead.note_push(object(1), MIB, Extent::at(MIB, MIB));
    ahead.check();
    let first_of_2 = |of: ObjectId, extent: Extent| of == object(2) && extent.start == 2 * MIB;
    assert!(ahead.make_room(object(2).fid, MIB, &first_of_2) && !starts(&ahead).contains(&3));
    assert_eq!(
        starts(&ahead),
        [1, 2, 4],
        "the first is being pushed, the second is kept, the third is its own"
    );
    // The kernel has not taken it: it is the oldest again.
    ahead.end_push(after(1), (object(1), MIB, 1), Extent::at(MIB, MIB), None);
    ahead.check();
    assert!(read_next(&mut ahead, 3) && read_next(&mut ahead, 4));
    assert_eq!(starts(&ahead), [2, 4, 5, 6]);
    ahead.forget(object(3).fid);
    ahead.check();
    assert_eq!(starts(&ahead), [2, 6]);
}
