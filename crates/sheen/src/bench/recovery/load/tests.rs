#![allow(clippy::unwrap_used)]
use super::*;

const OST_COUNT: u16 = 2;

fn load(dir: &Path) -> Arc<Shared> {
    for name in [SHARED.to_owned(), DATA.to_owned(), own_dir(3)] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    Arc::new(Shared::new(Task { dir: dir.to_owned(), index: 3, osts: OST_COUNT, pause_ms: 0 }))
}

#[test]
fn what_was_synced_is_there_and_what_began_after_a_time_is_progress() {
    let dir = tempfile::tempdir().unwrap();
    let shared = load(dir.path());
    let start = |work: fn(&Shared)| {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || work(&shared))
    };
    let threads = [work_on_names, work_on_own_names, work_on_data, work_on_own_data].map(start);
    assert!(shared.wait(|thread| thread.done_count.load(Ordering::SeqCst) > KEPT_COUNT as u64));
    let after_ns = now_ns();
    let progress = shared.progress_after(after_ns).unwrap();
    assert!(after_ns <= progress.first_ns);
    assert!((progress.first_ns..=progress.last_ns).contains(&progress.own_ns));
    let report = shared.stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!((report.failed_count, report.error), (0, None));
    assert_eq!(report.synced.len(), KEPT_COUNT);
    for number in &report.synced {
        let found = fs::read(dir.path().join(DATA).join(file_name(3, *number))).unwrap();
        assert_eq!(found, contents(3, *number, OST_COUNT));
        assert_eq!(found.len(), STRIPE_BYTES * usize::from(OST_COUNT));
    }
    assert_eq!(fs::read_dir(dir.path().join(DATA)).unwrap().count(), KEPT_COUNT, "older ones are gone");
    assert!(report.operation_count > 2 * KEPT_COUNT as u64);
}

#[test]
fn a_load_that_fails_ends_and_says_at_what() {
    let dir = tempfile::tempdir().unwrap();
    let shared = load(dir.path());
    fs::remove_dir(dir.path().join(DATA)).unwrap();
    work_on_data(&shared);
    for thread in [&shared.names, &shared.own, &shared.own_data] {
        thread.has_ended.store(true, Ordering::SeqCst);
    }
    assert_eq!(shared.progress_after(0), None);
    let report = shared.stop();
    assert_eq!((report.failed_count, report.operation_count), (1, 0));
    assert!(report.error.unwrap().starts_with("cannot write and sync "), "it says what failed");
}

#[test]
fn an_operation_from_before_the_time_is_a_pause_and_no_progress() {
    let thread = Thread::default();
    thread.note(10, 20, u64::MAX);
    thread.note(30, 90, 50);
    assert_eq!(thread.longest_ns.load(Ordering::SeqCst), 60);
    assert_eq!(thread.later_count.load(Ordering::SeqCst), 0);
    thread.note(95, 97, 50);
    thread.note(98, 99, 50);
    assert_eq!(thread.progress_ns.load(Ordering::SeqCst), 97);
    assert_eq!((thread.later_count.load(Ordering::SeqCst), thread.done_count.load(Ordering::SeqCst)), (2, 4));
}

#[test]
fn no_two_files_are_alike() {
    let all = [contents(1, 2, 1), contents(1, 3, 1), contents(2, 1, 1), contents(2, 2, 1)];
    for (at, one) in all.iter().enumerate() {
        assert!(all.iter().skip(at + 1).all(|other| other != one));
    }
}
