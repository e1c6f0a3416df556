//! Many seeds, on all cores; what failed is made small.

use crate::{Options, Outcome, Violation, Weather};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What survives when a machine panics.
#[derive(Default)]
pub struct Record {
    pub digest: u64,
    pub counts: BTreeMap<&'static str, u64>,
    pub violation: Option<Violation>,
    trace: VecDeque<String>,
}

impl Record {
    pub fn mix(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.digest = (self.digest ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
    }

    pub fn trace(&mut self, line: String, count_max: usize) {
        if self.trace.len() >= count_max {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }
}

pub type Shared = Rc<RefCell<Record>>;

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_GUARDED: RefCell<bool> = const { RefCell::new(false) };
}

/// A panic of a machine is a violation like any other.
pub(crate) fn guarded(run: impl FnOnce(Shared)) -> Outcome {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_GUARDED.with(|guarded| *guarded.borrow()) {
                PANIC.with(|panic| *panic.borrow_mut() = Some(info.to_string()));
            } else {
                previous(info);
            }
        }));
    });
    let shared = Shared::default();
    IS_GUARDED.with(|guarded| *guarded.borrow_mut() = true);
    let result = catch_unwind(AssertUnwindSafe(|| run(Rc::clone(&shared))));
    IS_GUARDED.with(|guarded| *guarded.borrow_mut() = false);
    let mut record = shared.borrow_mut();
    if result.is_err() {
        let what = PANIC.with(|panic| panic.borrow_mut().take()).unwrap_or_default();
        record.violation.get_or_insert(Violation { checker: "assertion", what, step: 0 });
    }
    Outcome {
        digest: record.digest,
        counts: std::mem::take(&mut record.counts),
        violation: record.violation.take(),
        trace: std::mem::take(&mut record.trace).into(),
    }
}

/// Seeds of a sweep, and what came of them.
#[derive(Debug, Default)]
pub struct Report {
    pub seed_count: u64,
    pub seconds: f64,
    pub counts: BTreeMap<&'static str, u64>,
    /// By seed, sorted.
    pub failures: Vec<(u64, Violation)>,
    /// Of all digests, in order of the seeds.
    pub digest: u64,
}

/// Runs seeds `from..to` on `thread_count` threads; stops early after `failure_count_max` failures.
/// `on_failure` hears of each at once.
pub fn sweep(
    from: u64,
    to: u64,
    run: &(dyn Fn(u64) -> Outcome + Sync),
    thread_count: usize,
    failure_count_max: usize,
    on_failure: &(dyn Fn(u64, &Violation) + Sync),
) -> Report {
    let next = AtomicU64::new(from);
    let results: Mutex<BTreeMap<u64, Outcome>> = Mutex::default();
    let failed = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..thread_count.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to || failed.load(Ordering::Relaxed) >= failure_count_max as u64 {
                        return;
                    }
                    let outcome = run(seed);
                    if let Some(violation) = &outcome.violation {
                        on_failure(seed, violation);
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(seed, outcome);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut report = Report { seconds: start.elapsed().as_secs_f64(), ..Report::default() };
    for (seed, outcome) in results {
        report.seed_count += 1;
        report.digest = (report.digest ^ outcome.digest).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (name, count) in outcome.counts {
            *report.counts.entry(name).or_default() += count;
        }
        if let Some(violation) = outcome.violation {
            report.failures.push((seed, violation));
        }
    }
    report
}

/// What must have happened at least once in a long sweep: otherwise it has shown nothing.
pub const EXPECTED: &[&str] = &[
    "create",
    "mkdir",
    "mkdir-on",
    "symlink",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "stat",
    "readlink",
    "list",
    "open",
    "file without a name made",
    "open file linked",
    "close",
    "write",
    "append",
    "read",
    "fstat",
    "truncate",
    "fsync",
    "fsync to be kept",
    "chmod",
    "setxattr",
    "getxattr",
    "removexattr",
    "sync",
    "statfs",
    "operation succeeded",
    "operation failed",
    "frame lost",
    "frame copied",
    "frame delayed",
    "frame cut",
    "power failure",
    "process killed",
    "OST's process killed unseen",
    "OST's recovery that others were served in",
    "partition, short",
    "partition, long",
    "link cut, short",
    "link cut, long",
    "blackout",
    "client died",
    "disks full",
    "disk of one OST full",
    "write was short",
    "write to a file without a name",
    "built on what others had moved",
    "migrated what others had moved",
    "renamed over what others had open",
    "recovery",
    "replayed",
    "eviction",
    "evicted by an operator",
    "written after others had removed it",
    "power lost behind a writer",
    "loss with an eviction",
    "writer long away",
    "writer back for a moment",
    "lease ended",
    "holder without a lease",
    "clock set",
    "connection broken",
    "notification",
    "rest",
    "storm",
];

impl Report {
    /// Names of what never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        EXPECTED.iter().copied().filter(|name| self.counts.get(name).copied().unwrap_or(0) == 0).collect()
    }
}

/// The fewest steps and the fairest weather under which a seed still fails, with its last events.
pub fn shrink(seed: u64, options: &Options, trace_count: usize) -> (Options, Outcome) {
    let mut best = options.clone();
    best.trace_count = 0;
    let fails = |options: &Options| crate::run(seed, options).violation.is_some();
    let fairer: [fn(&mut Weather); 6] = [
        |weather| weather.has_evictions = false,
        |weather| weather.has_deaths = false,
        |weather| weather.has_partitions = false,
        |weather| weather.has_full_disks = false,
        |weather| weather.has_crashes = false,
        |weather| weather.has_loss = false,
    ];
    for change in fairer {
        let mut candidate = best.clone();
        change(&mut candidate.weather);
        if fails(&candidate) {
            best = candidate;
        }
    }
    for part in [2, 4, 8, 16] {
        loop {
            let mut candidate = best.clone();
            candidate.steps -= (best.steps / part).max(1).min(best.steps - 1);
            if candidate.steps == best.steps || !fails(&candidate) {
                break;
            }
            best = candidate;
        }
    }
    while best.steps > 1 {
        let mut candidate = best.clone();
        candidate.steps -= 1;
        if !fails(&candidate) {
            break;
        }
        best = candidate;
    }
    best.trace_count = trace_count;
    let outcome = crate::run(seed, &best);
    (best, outcome)
}
