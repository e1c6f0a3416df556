use super::*;

fn at(milliseconds: u64) -> Time {
    Time::ZERO.after(Duration::from_millis(100_000 + milliseconds))
}

/// Told at once what it asks.
fn told(size: &mut KernelSize, size_bytes: u64, milliseconds: u64) {
    size.on_told(size_bytes, (at(milliseconds), at(milliseconds)), false);
}

#[test]
fn the_first_size_is_sure_with_the_inode() {
    let mut size = KernelSize::new();
    assert!(!size.reaches(0, at(0)), "it has none");
    told(&mut size, 100, 0);
    assert!(size.reaches(100, at(0)));
    assert!(!size.reaches(101, at(0)));
    size.on_version(at(1));
    assert!(size.reaches(100, at(1)), "an inode is made with it");
}

/// The kernel may know millions of inodes, of each of which it is told again and again what it knows.
#[test]
fn a_size_that_stays_what_it_was_takes_no_memory_of_its_own() {
    assert!(size_of::<KernelSize>() <= 24, "{} bytes", size_of::<KernelSize>());
    let mut size = KernelSize::new();
    size.on_version(at(0));
    for milliseconds in 1..5 {
        told(&mut size, 100, milliseconds * 1_000);
        size.on_version(at(milliseconds * 1_000 + 1));
        size.on_short_read(100, at(milliseconds * 1_000 + 2));
        size.on_written(99);
        assert!(size.is_in_place(), "{size:?}");
        assert_eq!(size.possible(), [100]);
    }
    size.on_written(101);
    assert_eq!(size.possible(), [101]);
}

/// What was put off is not lost: the first size is in doubt from when it was told last, or a notification came.
#[test]
fn another_size_is_not_sure_when_it_was_asked_for_just_after_the_first() {
    for is_told_again in [true, false] {
        let mut size = KernelSize::new();
        told(&mut size, 100, 0);
        match is_told_again {
            true => told(&mut size, 100, 5_000),
            false => size.on_version(at(5_000)),
        }
        size.on_told(200, (at(5_900), at(6_100)), false);
        assert!(!size.reaches(150, at(20_000)));
        assert_eq!(size.possible(), [100, 200]);
        size.on_told(200, (at(6_100), at(6_200)), false);
        assert!(size.reaches(200, at(20_000)));
    }
}

#[test]
fn of_two_first_sizes_none_is_sure() {
    let mut size = KernelSize::new();
    told(&mut size, 100, 0);
    size.on_told(200, (at(0), at(1)), false);
    assert!(!size.reaches(100, at(5_000)), "it took in whichever came first");
    told(&mut size, 200, 5_000);
    assert!(!size.reaches(200, at(5_999)), "it may not have taken it in yet");
    assert!(size.reaches(200, at(6_000)));
}

#[test]
fn another_size_is_sure_when_it_was_asked_for_after_the_former_was_taken_in() {
    let mut size = KernelSize::new();
    told(&mut size, 100, 0);
    size.on_told(200, (at(900), at(1_500)), false);
    assert!(!size.reaches(200, at(9_000)));
    size.on_told(200, (at(1_000), at(9_000)), false);
    assert!(size.reaches(200, at(10_000)), "asked for when the former had been there for a second");
    told(&mut size, 300, 12_000);
    assert!(!size.reaches(200, at(12_000)), "the file may be shorter now");
    assert!(size.reaches(300, at(13_000)));
}

#[test]
fn an_answer_that_a_notification_overtakes_is_not_relied_on() {
    let mut size = KernelSize::new();
    told(&mut size, 100, 0);
    size.on_told(200, (at(2_000), at(2_000)), true);
    assert!(!size.reaches(200, at(9_000)), "one is on its way");

    told(&mut size, 200, 9_000);
    size.on_version(at(9_900));
    assert!(!size.reaches(200, at(20_000)), "before the kernel has surely taken it in");
    told(&mut size, 200, 10_800);
    assert!(!size.reaches(200, at(20_000)), "asked for just then");
    told(&mut size, 200, 21_000);
    size.on_version(at(22_000));
    assert!(size.reaches(200, at(22_000)), "a version of what is there changes no size");
    size.on_told(300, (at(22_900), at(23_000)), false);
    assert!(!size.reaches(300, at(30_000)));
}

#[test]
fn what_the_kernel_makes_itself_is_not_known() {
    let mut size = KernelSize::new();
    told(&mut size, 100, 0);
    size.on_own(at(2_000));
    assert!(!size.reaches(1, at(2_000)));
    told(&mut size, 100, 2_500);
    assert!(!size.reaches(1, at(9_000)), "asked for beside it");
    told(&mut size, 100, 9_000);
    assert!(size.reaches(100, at(10_000)));
}

#[test]
fn a_short_read_makes_a_file_shorter_or_is_its_end() {
    let mut size = KernelSize::new();
    told(&mut size, 100, 0);
    size.on_short_read(100, at(2_000));
    assert!(size.reaches(100, at(2_000)));
    size.on_short_read(60, at(3_000));
    assert!(!size.reaches(60, at(9_000)));
}
