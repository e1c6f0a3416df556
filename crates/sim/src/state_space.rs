//! Breadth first through all states of a model, so that what is found is found in the fewest steps.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A state that must not be, and the events that lead there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub what: &'static str,
    pub events: Vec<String>,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exploration {
    pub state_count: usize,
    pub event_count: usize,
    /// States in which nothing goes on.
    pub rest_count: usize,
    /// Events to the farthest state.
    pub depth: usize,
    /// There is no other state within the bounds.
    pub is_complete: bool,
    pub failure: Option<Failure>,
}

/// States are known by a digest of 128 bits: of ten million, two have the same with a chance of one in 10^24.
type Digest = u128;
/// Nothing depends on its order.
type Seen = HashMap<Digest, u32, BuildHasherDefault<DefaultHasher>>;

fn digest(state: &impl Hash) -> Digest {
    let mut mix = Mix { low: 0x243f_6a88_85a3_08d3, high: 0x1319_8a2e_0370_7344 };
    state.hash(&mut mix);
    (u128::from(mix.finish()) << 64) | u128::from(mix.low ^ mix.high.rotate_left(17))
}

/// Two products side by side: a state is many numbers of a byte, for which a hash of long texts takes several times as long.
struct Mix {
    low: u64,
    high: u64,
}

impl Mix {
    fn mix(&mut self, word: u64) {
        self.low = (self.low ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        self.high = (self.high.rotate_left(23) ^ self.low ^ word).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        let folded = (self.high ^ (self.low >> 31)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        folded ^ (folded >> 33)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.mix(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(u64::from(number));
    }

    fn write_u16(&mut self, number: u16) {
        self.mix(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.mix(number as u64);
    }
}

/// Where a state was come to first.
#[derive(Clone, Copy)]
struct Origin {
    parent: u32,
    /// The place of the event among those that could happen there.
    place: u32,
    depth: u32,
}

struct Graph {
    origins: Vec<Origin>,
    /// States that each can go on to without anything evil, as pairs.
    ways: Vec<(u32, u32)>,
    at_rest: Vec<u32>,
}

/// What has states: one to begin with, and from each the ones that can come next.
pub trait Model {
    type State: Hash;
    type Event;

    fn begin(&self) -> Self::State;

    /// In an order that is the same each time.
    fn next(&self, state: &Self::State) -> Vec<(Self::Event, Self::State)>;

    /// Whether nobody may count on it: without such events there must be a way to rest from everywhere.
    fn is_evil(&self, event: &Self::Event) -> bool;

    /// What is wrong with any state like this.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;

    /// What is wrong with it if nothing goes on any more.
    fn judge(&self, state: &Self::State) -> Option<&'static str>;

    /// For people.
    fn describe(&self, state: &Self::State, event: Self::Event) -> String;
}

/// Goes through all states, of which there are so many at most.
pub fn explore<M: Model>(model: &M, state_count_max: usize) -> Exploration {
    let begin = model.begin();
    let mut seen: Seen = HashMap::default();
    seen.insert(digest(&begin), 0);
    let origins = vec![Origin { parent: 0, place: 0, depth: 0 }];
    let mut graph = Graph { origins, ways: Vec::new(), at_rest: Vec::new() };
    let mut result = Exploration { is_complete: true, ..Exploration::default() };
    let mut queue = VecDeque::from([begin]);
    let mut number = 0;
    while let Some(state) = queue.pop_front() {
        let next = model.next(&state);
        let is_at_rest = next.iter().all(|(event, _)| model.is_evil(event));
        let wrong = model.broken(&state).or_else(|| model.judge(&state).filter(|_| is_at_rest));
        result.depth = graph.origins[number as usize].depth as usize;
        if let Some(what) = wrong {
            result.failure = Some(Failure { what, events: trace(model, &graph, number) });
            break;
        }
        if is_at_rest {
            graph.at_rest.push(number);
        }
        for (place, (event, after)) in next.into_iter().enumerate() {
            result.event_count += 1;
            let new = graph.origins.len() as u32;
            let to = match seen.entry(digest(&after)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(free) if graph.origins.len() < state_count_max => {
                    let depth = graph.origins[number as usize].depth + 1;
                    graph.origins.push(Origin { parent: number, place: place as u32, depth });
                    queue.push_back(after);
                    *free.insert(new)
                }
                Entry::Vacant(_) => {
                    result.is_complete = false;
                    continue;
                }
            };
            if !model.is_evil(&event) {
                graph.ways.push((number, to));
            }
        }
        number += 1;
    }
    (result.state_count, result.rest_count) = (graph.origins.len(), graph.at_rest.len());
    result.is_complete &= result.failure.is_none();
    if result.is_complete
        && let Some(stuck) = graph.first_without_rest()
    {
        let what = "there is no way to rest from here";
        result.failure = Some(Failure { what, events: trace(model, &graph, stuck) });
    }
    result
}

impl Graph {
    /// The first state from which no state at rest can be come to.
    fn first_without_rest(&self) -> Option<u32> {
        let count = self.origins.len();
        // Ways back, in order of where they begin: `starts` has the place of the first of each state.
        let mut starts = vec![0_u32; count + 1];
        for (_, to) in &self.ways {
            starts[*to as usize + 1] += 1;
        }
        for state in 0..count {
            starts[state + 1] += starts[state];
        }
        let (mut back, mut filled) = (vec![0_u32; self.ways.len()], starts.clone());
        for (from, to) in &self.ways {
            back[filled[*to as usize] as usize] = *from;
            filled[*to as usize] += 1;
        }
        let mut has_rest = vec![false; count];
        let mut queue = self.at_rest.clone();
        for state in &queue {
            has_rest[*state as usize] = true;
        }
        while let Some(state) = queue.pop() {
            let range = starts[state as usize] as usize..starts[state as usize + 1] as usize;
            for from in &back[range] {
                if !std::mem::replace(&mut has_rest[*from as usize], true) {
                    queue.push(*from);
                }
            }
        }
        has_rest.iter().position(|has_rest| !has_rest).map(|state| state as u32)
    }
}

/// The events from the beginning to a state.
fn trace<M: Model>(model: &M, graph: &Graph, to: u32) -> Vec<String> {
    let mut places = Vec::new();
    let mut at = to;
    while at != 0 {
        places.push(graph.origins[at as usize].place as usize);
        at = graph.origins[at as usize].parent;
    }
    let mut state = model.begin();
    let mut lines = Vec::new();
    for place in places.into_iter().rev() {
        let Some((event, after)) = model.next(&state).into_iter().nth(place) else { break };
        lines.push(model.describe(&state, event));
        state = after;
    }
    lines
}

impl Exploration {
    /// Heads of the columns of `to_row`.
    pub fn heads() -> String {
        format!("{:>10} {:>10} {:>8} {:>6} {:>9}", "states", "events", "at rest", "depth", "complete")
    }

    /// A line that begins with `what`, and how a state that must not be came about.
    pub fn to_row(&self, what: &str) -> String {
        let Exploration { state_count, event_count, rest_count, depth, .. } = self;
        let complete = if self.is_complete { "yes" } else { "no" };
        let told = self.failure.as_ref().map(tell).unwrap_or_default();
        format!("{what} {state_count:>10} {event_count:>10} {rest_count:>8} {depth:>6} {complete:>9}\n{told}")
    }

    /// Heads of the columns of `to_row_without`.
    pub fn heads_without() -> String {
        format!("{:>10} {:>6}  what is found", "states", "events")
    }

    /// The same where a rule was left out, which is to lead to such a state; how it came about only if `is_told`.
    pub fn to_row_without(&self, what: &str, is_told: bool) -> String {
        let (found, event_count) =
            self.failure.as_ref().map_or(("NOTHING", 0), |failure| (failure.what, failure.events.len()));
        let told = self.failure.as_ref().filter(|_| is_told).map(tell).unwrap_or_default();
        format!("{what} {:>10} {event_count:>6}  {found}\n{told}", self.state_count)
    }
}

/// For people, line by line.
fn tell(failure: &Failure) -> String {
    let lines = failure.events.iter().enumerate().map(|(at, line)| format!("  {:>3} {line}\n", at + 1));
    lines.chain([format!("      {}\n", failure.what)]).collect()
}

/// Explorations side by side. True when all were well. Lines come in the order of the jobs.
pub fn in_parallel<J: Sync>(
    jobs: &[J],
    thread_count: usize,
    run: impl Fn(&J) -> (bool, String) + Sync,
) -> bool {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { break };
                    let (is_well, text) = run(job);
                    let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    done.push((at, is_well, text));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_unstable_by_key(|(at, ..)| *at);
    done.iter().for_each(|(_, _, text)| print!("{text}"));
    done.iter().all(|(_, is_well, _)| *is_well)
}
