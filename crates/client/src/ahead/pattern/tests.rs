use super::*;
use std::collections::{BTreeMap, BTreeSet};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const WINDOW: u64 = 64 * KIB;

fn scope() -> Scope {
    Scope {
        kernel_window_bytes: WINDOW,
        window_bytes: MIB,
        ahead_bytes: 4 * MIB,
        size_bytes: 4096 * MIB,
        whole_bytes_max: 4 * MIB,
        pushed: Extent::default(),
    }
}

fn fetch(now: Extent, ahead: Option<Extent>) -> Verdict {
    Verdict::Fetch { now, ahead: ahead.into_iter().collect() }
}

/// A kernel that faults on pages, and asks for what is around each that it does not have; at the first touch of what it marked,
/// for the next ones.
struct Faulting {
    pattern: Pattern,
    pages: BTreeMap<u64, bool>,
    /// Touched for the first time, the kernel reads ahead from there.
    marks: BTreeMap<u64, u64>,
    /// Pages that were fetched or asked for.
    fetched: BTreeSet<u64>,
    read_count: u64,
}

impl Faulting {
    const WINDOW_PAGES: u64 = WINDOW / PAGE_BYTES;

    fn new() -> Faulting {
        Faulting {
            pattern: Pattern::default(),
            pages: BTreeMap::new(),
            marks: BTreeMap::new(),
            fetched: BTreeSet::new(),
            read_count: 0,
        }
    }

    fn ask(&mut self, extent: Extent) -> bool {
        self.read_count += 1;
        let parts = match self.pattern.on_read(extent, scope()) {
            Verdict::Refuse => return false,
            Verdict::Plain => vec![extent],
            Verdict::Fetch { now, mut ahead } => {
                ahead.extend([now, extent]);
                ahead
            }
        };
        let pages = |part: &Extent| part.start / PAGE_BYTES..part.end.div_ceil(PAGE_BYTES);
        self.fetched.extend(parts.iter().flat_map(pages));
        true
    }

    fn ask_for_missing(&mut self, first: u64) {
        let all = first..first + Self::WINDOW_PAGES;
        let missing: Vec<u64> = all.filter(|page| !self.pages.contains_key(page)).collect();
        for run in missing.chunk_by(|a, b| a + 1 == *b) {
            let is_here = self.ask(Extent::at(run[0] * PAGE_BYTES, run.len() as u64 * PAGE_BYTES));
            self.pages.extend(run.iter().map(|page| (*page, is_here)));
        }
    }

    fn touch(&mut self, page: u64) {
        if !self.pages.contains_key(&page) {
            let first = page.saturating_sub(Self::WINDOW_PAGES / 2);
            self.ask_for_missing(first);
            self.marks.insert(first + Self::WINDOW_PAGES * 3 / 4, first + Self::WINDOW_PAGES);
        }
        if let Some(next) = self.marks.remove(&page) {
            self.ask_for_missing(next);
            self.marks.insert(next, next + Self::WINDOW_PAGES);
        }
        if self.pages.get(&page) != Some(&true) {
            assert!(self.ask(Extent::at(page * PAGE_BYTES, PAGE_BYTES)), "one page is never refused");
            self.pages.insert(page, true);
        }
    }
}

#[test]
fn a_stream_is_fetched_in_whole_windows_and_ahead() {
    let mut pattern = Pattern::default();
    assert_eq!(pattern.on_read(Extent::at(0, WINDOW), scope()), fetch(Extent::at(0, MIB), None));
    let mut on_mib = |number: u64| {
        let windows = number * MIB / WINDOW..(number + 1) * MIB / WINDOW;
        let verdicts = windows.map(|window| pattern.on_read(Extent::at(window * WINDOW, WINDOW), scope()));
        verdicts.last().expect("a MiB has windows")
    };
    // Up to twice what the stream has come to.
    assert_eq!(on_mib(0), fetch(Extent::at(0, MIB), Some(Extent::new(MIB, 3 * MIB))));
    assert_eq!(on_mib(1), fetch(Extent::at(MIB, MIB), Some(Extent::new(2 * MIB, 6 * MIB))));
    assert_eq!(on_mib(2), fetch(Extent::at(2 * MIB, MIB), Some(Extent::new(3 * MIB, 7 * MIB))));
}

/// It may be a chunk of a stride that was not known for one.
#[test]
fn a_stream_within_a_file_fetches_as_much_as_it_has_read_until_that_is_much() {
    let mut pattern = Pattern { plain_reads_left: 100, ..Pattern::default() };
    let start = 10 * MIB + 128 * KIB;
    let mut fetched = |at: u64| match pattern.on_read(Extent::at(start + at, WINDOW), scope()) {
        Verdict::Fetch { now, ahead } => {
            let from = ahead.iter().fold(now.start, |start, part| start.min(part.start));
            let to = ahead.iter().fold(now.end, |end, part| end.max(part.end));
            Some(Extent::new(from, to))
        }
        Verdict::Plain => None,
        Verdict::Refuse => panic!("somebody reads what he names"),
    };
    assert_eq!(fetched(0), None);
    let behind = |from: u64, to: u64| Some(Extent::new(start + from, start + to));
    assert_eq!(fetched(64 * KIB), behind(0, 384 * KIB));
    for at in (128..MIB / KIB).step_by(64) {
        let read = (at + 64) * KIB;
        let to = fetched(at * KIB).expect("it goes on").end - start;
        assert!((2 * read..=5 * read).contains(&to), "{at} KiB: {to}");
    }
    // From here on in whole windows, as a stream that began with its file.
    let far = fetched(MIB).expect("it goes on");
    assert!(far.start.is_multiple_of(MIB) && far.end.is_multiple_of(MIB), "{far:?}");
}

#[test]
fn a_stream_ends_where_the_file_does() {
    let mut pattern = Pattern::default();
    let scope = Scope { size_bytes: 5 * MIB + 1, ..scope() };
    let windows = (0..5 * MIB / WINDOW).map(|number| Extent::at(number * WINDOW, WINDOW));
    let last = windows.map(|window| pattern.on_read(window, scope)).last().expect("there are some");
    assert_eq!(last, fetch(Extent::new(4 * MIB, 5 * MIB), Some(Extent::new(5 * MIB, 6 * MIB))));
}

#[test]
fn small_files_come_whole_with_their_first_read() {
    let mut pattern = Pattern::default();
    let scope = Scope { size_bytes: 2 * MIB + 5, ..scope() };
    let first = pattern.on_read(Extent::at(MIB, 16 * KIB), scope);
    assert_eq!(first, fetch(Extent::at(MIB, MIB), Some(Extent::new(0, 3 * MIB))));
    let scope = Scope { size_bytes: 4000, ..scope };
    assert_eq!(
        Pattern::default().on_read(Extent::at(0, 4096), scope),
        Verdict::Plain,
        "it asks for all itself"
    );
}

#[test]
fn many_readers_of_one_file_are_one_stream() {
    let mut pattern = Pattern::default();
    pattern.on_read(Extent::at(0, WINDOW), scope());
    pattern.on_read(Extent::at(WINDOW, WINDOW), scope());
    // Another process faults in the middle of what the first one has asked for.
    let fragment = Extent::at(2 * WINDOW + 20 * KIB, 44 * KIB);
    assert!(
        matches!(pattern.on_read(fragment, scope()), Verdict::Fetch { now, .. } if now == Extent::at(0, MIB))
    );
}

#[test]
fn what_is_around_pages_at_random_is_not_read() {
    let mut kernel = Faulting::new();
    let mut rng = base::Rng::new(7);
    let pages: Vec<u64> = (0..4000).map(|_| rng.below(1 << 18)).collect();
    pages.iter().for_each(|page| kernel.touch(*page));
    let count = pages.len() as u64;
    let fetched = kernel.fetched.len() as u64;
    assert!(fetched < count + count / 4, "{fetched} pages were read for {count}");
}

#[test]
fn a_stride_over_a_mapping_is_read_without_its_gaps() {
    let mut kernel = Faulting::new();
    let pages = |chunk: u64| (chunk * 256..chunk * 256 + 64).collect::<Vec<u64>>();
    for page in (0..400).flat_map(pages) {
        kernel.touch(page);
    }
    let (fetched, touched) = (kernel.fetched.len(), 400 * 64);
    assert!(fetched * 10 < touched * 12, "{fetched} pages were read for {touched}");
    assert!(kernel.pattern.stride.is_some_and(|stride| stride.distance == MIB && stride.count > 100));
}

/// Of what is around the first page of a chunk another process has had a part asked for, and the kernel asks for the rest.
#[test]
fn a_stride_outlives_a_window_that_comes_in_parts() {
    for parts in [[-8, -7, 3, 8], [-8, -2, -1, 8], [-8, 2, 5, 8]] {
        let mut kernel = Faulting::new();
        let mut fetched_before = 0;
        for chunk in 0..400_i64 {
            if chunk == 200 {
                fetched_before = kernel.fetched.len();
                for part in parts.windows(2) {
                    let pages = (chunk * 256 + part[0]) as u64..(chunk * 256 + part[1]) as u64;
                    assert!(kernel.ask(Extent::new(pages.start * PAGE_BYTES, pages.end * PAGE_BYTES)));
                    kernel.pages.extend(pages.map(|page| (page, true)));
                }
            }
            (chunk as u64 * 256..chunk as u64 * 256 + 64).for_each(|page| kernel.touch(page));
        }
        let fetched = kernel.fetched.len() - fetched_before;
        assert!(fetched * 100 < 200 * 64 * 114, "{parts:?}: {fetched} pages were read for {}", 200 * 64);
    }
}

/// Somebody else comes to a page here and there, where the others have been long ago or are not yet.
#[test]
fn a_stride_outlives_single_reads_elsewhere() {
    let mut kernel = Faulting::new();
    for chunk in 0..400 {
        (chunk * 256..chunk * 256 + 64).for_each(|page| kernel.touch(page));
        if chunk % 10 == 9 {
            kernel.touch((chunk - 9) * 256 + 128);
            kernel.touch((chunk + 500) * 256 + 77);
        }
    }
    let (fetched, touched) = (kernel.fetched.len(), 400 * 64 + 80);
    assert!(fetched * 10 < touched * 12, "{fetched} pages were read for {touched}");
    assert!(kernel.pattern.stride.is_some_and(|stride| stride.distance == MIB && stride.count > 100));
    // It ends where it does not go on.
    (1 << 20..(1 << 20) + 4096).for_each(|page| kernel.touch(page));
    assert!(kernel.pattern.stride.is_none_or(|stride| !stride.is_known()));
}

#[test]
fn a_sequential_walk_over_a_mapping_is_never_refused() {
    let mut kernel = Faulting::new();
    (0..4096).for_each(|page| kernel.touch(page));
    assert!(kernel.pattern.refused.is_empty());
    assert!(
        kernel.read_count <= 4096 / Faulting::WINDOW_PAGES + 2,
        "one request for each window of the kernel"
    );
}

#[test]
fn large_reads_at_random_are_refused_once() {
    let mut pattern = Pattern::default();
    let mut refused_count = 0;
    for number in 0..100_u64 {
        let at = (number * 7919 % 4000 + 1) * MIB;
        if pattern.on_read(Extent::at(at, WINDOW), scope()) == Verdict::Refuse {
            refused_count += 1;
            for page in 0..WINDOW / PAGE_BYTES {
                let verdict = pattern.on_read(Extent::at(at + page * PAGE_BYTES, PAGE_BYTES), scope());
                assert_ne!(verdict, Verdict::Refuse);
            }
        }
    }
    assert_eq!(refused_count, 1);
}

#[test]
fn reads_at_random_of_a_file_that_was_mapped_are_refused_a_few_times() {
    let mut kernel = Faulting::new();
    let mut rng = base::Rng::new(3);
    (0..200).for_each(|_| kernel.touch(rng.below(1 << 18)));
    let mut refused_count = 0;
    for _ in 0..500 {
        // Behind what was touched.
        let at = 2048 * MIB + rng.below(1 << 16) * 5 * PAGE_BYTES;
        if kernel.pattern.on_read(Extent::at(at, 4 * PAGE_BYTES), scope()) == Verdict::Refuse {
            refused_count += 1;
            for page in 0..4 {
                let page = Extent::at(at + page * PAGE_BYTES, PAGE_BYTES);
                assert_ne!(kernel.pattern.on_read(page, scope()), Verdict::Refuse);
            }
        }
    }
    assert!((1..=FIRST_PAGE_COUNT_MIN).contains(&refused_count), "{refused_count}");
}

#[test]
fn nothing_is_refused_while_the_kernels_window_is_not_known() {
    let mut pattern = Pattern::default();
    let scope = Scope { kernel_window_bytes: 0, ..scope() };
    for number in 1..100_u64 {
        assert_ne!(pattern.on_read(Extent::at(number * 37 * MIB, WINDOW), scope), Verdict::Refuse);
    }
}

#[test]
fn what_was_refused_is_answered_when_it_comes_again() {
    let mut pattern = Pattern::default();
    let extent = Extent::at(77 * MIB, WINDOW);
    assert_eq!(pattern.on_read(extent, scope()), Verdict::Refuse);
    assert_eq!(pattern.on_read(extent, scope()), Verdict::Plain);
}

/// Several processes fault on the first pages of a file, and what the kernel asks for does not come in its order.
#[test]
fn requests_that_have_passed_each_other_are_no_pages_at_random() {
    let mut pattern = Pattern::default();
    pattern.on_read(Extent::at(0, WINDOW), scope());
    for window in [2, 1, 3] {
        let verdict = pattern.on_read(Extent::at(window * WINDOW, WINDOW), scope());
        assert!(matches!(verdict, Verdict::Fetch { .. }), "window {window}: {verdict:?}");
    }
}

#[test]
fn a_refused_window_that_others_have_reached_since_says_nothing() {
    let mut pattern = Pattern::default();
    let mut read = |at: u64, byte_count: u64| pattern.on_read(Extent::at(at, byte_count), scope());
    read(0, WINDOW);
    let beyond = 5 * WINDOW;
    assert_eq!(read(beyond, WINDOW), Verdict::Refuse, "nobody has come there yet");
    (1..5).for_each(|window| assert_ne!(read(window * WINDOW, WINDOW), Verdict::Refuse));
    assert_ne!(read(beyond, PAGE_BYTES), Verdict::Refuse);
    // It is no read(2) that asks for what it needs: what is around a fault is refused on.
    assert_eq!(read(100 * MIB, WINDOW), Verdict::Refuse);
}

/// Several processes that read one mapping side by side: the kernel's requests are long, and pass each other.
#[test]
fn long_requests_of_a_stream_that_pass_each_other_are_its_own() {
    for window in [64 * KIB, 256 * KIB, MIB] {
        let scope = Scope { kernel_window_bytes: window, ..scope() };
        let mut pattern = Pattern::default();
        let extent = |number: u64| Extent::at(number * window, window);
        for number in [0, 1, 2, 3] {
            pattern.on_read(extent(number), scope);
        }
        for number in [5, 4, 6, 8, 7, 9] {
            let verdict = pattern.on_read(extent(number), scope);
            assert!(matches!(verdict, Verdict::Fetch { .. }), "{window}: {number}: {verdict:?}");
        }
    }
}
