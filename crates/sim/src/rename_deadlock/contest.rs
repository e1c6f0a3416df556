//! Which renames meet, and one run of them.

use crate::clockwork::{Channel, Clockwork};
use crate::crash_table::tree::{self, Tree};
use crate::damage::find_damage;
use crate::model::{Model, Op, Outcome as Told, Path};
use crate::sweep::Shared;
use base::Duration;

const MDT_COUNT: u16 = 3;
const OST_COUNT: u16 = 1;
const CALL_MAX: Duration = Duration::from_secs(10);
/// Far more than calls take that give way to each other a few times, and far less than until somebody is thrown out.
const ANSWERED_MAX: Duration = Duration::from_secs(20);
/// Frames until all calls are answered: so many retries are taken for one that never ends.
const FRAME_COUNT_MAX: u64 = 1000;

/// One call of each of some clients, at the same time. Directories `m0`, `m1` and `m2` are there, each on the MDT of its number.
#[derive(Debug)]
pub struct Contest {
    pub name: &'static str,
    /// Made before: files, and directories where the name ends in a slash.
    there: &'static [&'static str],
    calls: &'static [(&'static str, &'static str)],
}

/// Each is a way in which two or three renames could wait for each other, or come to nothing together.
pub const CONTESTS: &[Contest] = &[
    Contest { name: "there-and-back", there: &["m1/x"], calls: &[("m1/x", "m2/y"), ("m2/y", "m1/x")] },
    Contest { name: "swap", there: &["m1/x", "m2/y"], calls: &[("m1/x", "m2/y"), ("m2/y", "m1/x")] },
    Contest {
        name: "swap-directories",
        there: &["m1/x/", "m2/y/"],
        calls: &[("m1/x", "m2/y"), ("m2/y", "m1/x")],
    },
    Contest { name: "parents", there: &["m1/d/", "m2/e/"], calls: &[("m1/d", "m2/d"), ("m2/e", "m1/e")] },
    Contest {
        name: "into-each-other",
        there: &["m1/a/", "m2/b/"],
        calls: &[("m1/a", "m2/b/a"), ("m2/b", "m1/a/b")],
    },
    Contest {
        name: "over-existing",
        there: &["m1/x", "m1/y", "m2/x", "m2/y"],
        calls: &[("m1/x", "m2/x"), ("m2/y", "m1/y")],
    },
    Contest {
        name: "one-target",
        there: &["m0/z", "m1/x", "m2/y"],
        calls: &[("m1/x", "m0/z"), ("m2/y", "m0/z")],
    },
    Contest {
        name: "ring",
        there: &["m0/x", "m1/x", "m2/x"],
        calls: &[("m0/x", "m1/x"), ("m1/x", "m2/x"), ("m2/x", "m0/x")],
    },
    Contest {
        name: "ring-of-directories",
        there: &["m0/d/", "m1/d/", "m2/d/"],
        calls: &[("m0/d", "m1/d"), ("m1/d", "m2/d"), ("m2/d", "m0/d")],
    },
];

impl Contest {
    pub fn named(name: &str) -> Option<&'static Contest> {
        CONTESTS.iter().find(|contest| contest.name == name)
    }

    fn setup(&self) -> Vec<Op> {
        let homes = (0..MDT_COUNT).map(|index| mkdir(&format!("m{index}"), Some(index)));
        let made = self.there.iter().map(|name| match name.strip_suffix('/') {
            Some(directory) => mkdir(directory, None),
            None => Op::Create { path: path(name), is_exclusive: true, slot: None },
        });
        homes.chain(made).collect()
    }

    fn calls(&self) -> Vec<Op> {
        let rename = |(from, to): &(&str, &str)| Op::Rename { from: path(from), to: path(to), flags: 0 };
        self.calls.iter().map(rename).collect()
    }

    /// All states that some order of the calls leads to, with what each call is told.
    fn explained(&self, told: &[Told]) -> Vec<Tree> {
        let mut before = Model::new();
        for op in self.setup() {
            if let Err(errno) = before.apply(0, &op) {
                panic!("{op:?} is not possible: errno {errno}");
            }
        }
        let calls = self.calls();
        let explains = |order: Vec<usize>| {
            let mut model = before.clone();
            order.iter().all(|call| model.explains(*call, &calls[*call], &told[*call])).then_some(model)
        };
        let models = orders(calls.len()).into_iter().filter_map(explains);
        models.map(|model| tree::of_model(&model)).collect()
    }
}

fn path(text: &str) -> Path {
    text.split('/').map(str::to_string).collect()
}

fn mkdir(at: &str, mdt_index: Option<u16>) -> Op {
    Op::Mkdir { path: path(at), mdt_index, stripe_count: 1 }
}

/// All orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for next in 0..count {
        let put = |order: &Vec<usize>| {
            let order = order.clone();
            (0..=next).map(move |at| {
                let mut order = order.clone();
                order.insert(at, next);
                order
            })
        };
        orders = orders.iter().flat_map(put).collect();
    }
    orders
}

/// How a run ended.
pub(super) enum Ended {
    /// And so many frames had arrived when all calls were answered.
    Answered(u64),
    /// Nobody wanted to see the rest.
    Left,
    Broken,
}

/// Runs a contest. Of the frames that could arrive next, `choose` takes one, by its place in the list, or leaves.
pub(super) fn run(
    contest: &Contest,
    shared: Shared,
    trace_count: usize,
    choose: &mut dyn FnMut(&[Channel]) -> Option<usize>,
) -> Ended {
    let mut clockwork = Clockwork::new(MDT_COUNT, OST_COUNT, shared, trace_count);
    let calls = contest.calls();
    for _ in &calls {
        clockwork.mount();
    }
    if !set_up(contest, &mut clockwork, &calls) {
        return Ended::Broken;
    }
    for (seat, call) in calls.into_iter().enumerate() {
        clockwork.launch(seat, call);
    }
    let until = clockwork.now.time.after(ANSWERED_MAX);
    let mut frame_count = 0;
    while clockwork.seats.iter().any(|seat| seat.told.is_none()) {
        if clockwork.is_broken() {
            return Ended::Broken;
        }
        if clockwork.settle_next() {
            continue;
        }
        let arrivals = clockwork.arrivals();
        if arrivals.is_empty() {
            if !clockwork.step(until) {
                let what = format!("calls are not answered: {}", clockwork.under_way());
                clockwork.violate("deadlock", what);
            }
            continue;
        }
        let channels: Vec<Channel> = arrivals.iter().map(|arrival| arrival.channel).collect();
        let Some(arrival) = choose(&channels).and_then(|chosen| arrivals.get(chosen)) else {
            return Ended::Left;
        };
        clockwork.take(arrival.key);
        frame_count += 1;
        if frame_count > FRAME_COUNT_MAX {
            let what = format!("{frame_count} frames, and no end: {}", clockwork.under_way());
            clockwork.violate("livelock", what);
        }
    }
    check(contest, &mut clockwork);
    if clockwork.is_broken() { Ended::Broken } else { Ended::Answered(frame_count) }
}

fn set_up(contest: &Contest, clockwork: &mut Clockwork, calls: &[Op]) -> bool {
    let mut ops: Vec<(usize, Op)> = contest.setup().into_iter().map(|op| (0, op)).collect();
    // Everybody has looked at everything, and has the locks of that.
    for seat in 0..calls.len() {
        let paths = contest.there.iter().map(|name| path(name.trim_end_matches('/')));
        ops.extend(paths.map(|path| (seat, Op::Stat { path })));
    }
    ops.push((0, Op::SyncAll));
    for (seat, op) in ops {
        if matches!(clockwork.call(seat, op.clone(), CALL_MAX), None | Some(Told::Error(_))) {
            clockwork.violate("setup", format!("{op:?} has failed"));
            return false;
        }
    }
    clockwork.run_until(CALL_MAX, Clockwork::is_at_rest)
}

fn check(contest: &Contest, clockwork: &mut Clockwork) {
    let told: Vec<Told> = clockwork.seats.iter().filter_map(|seat| seat.told.clone()).collect();
    let explained = contest.explained(&told);
    if explained.is_empty() {
        return clockwork.violate("model", format!("no order explains {told:?}"));
    }
    if !clockwork.run_until(ANSWERED_MAX, Clockwork::is_at_rest) {
        return clockwork.violate("progress", format!("no rest: {}", clockwork.under_way()));
    }
    let observer = clockwork.mount();
    match tree::walk(clockwork, observer) {
        Ok(found) if explained.contains(&found) => {}
        Ok(found) => {
            let differences = explained.iter().map(|tree| tree::difference(&found, tree));
            let what = differences.min_by_key(String::len).unwrap_or_default();
            return clockwork.violate("model", what);
        }
        Err(what) => return clockwork.violate("tree", what),
    }
    clockwork.run_until(ANSWERED_MAX, Clockwork::is_at_rest);
    if let Some(what) = find_damage(clockwork.servers.values()) {
        clockwork.violate("fsck", what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_there_once() {
        let three = orders(3);
        let distinct: std::collections::BTreeSet<&Vec<usize>> = three.iter().collect();
        assert_eq!((three.len(), distinct.len()), (6, 6));
    }

    #[test]
    fn what_cannot_be_told_is_explained_by_no_order() {
        let contest = Contest::named("into-each-other").expect("is a contest");
        assert!(contest.explained(&[Told::Done, Told::Done]).is_empty(), "one has swallowed the other");
        let refused = Told::Error(crate::model::ENOENT);
        assert_eq!(contest.explained(&[Told::Done, refused.clone()]).len(), 1);
        assert_eq!(contest.explained(&[refused, Told::Done]).len(), 1);
    }
}
