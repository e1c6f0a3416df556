//! Breadth first through all states, so that what is found is found in the fewest steps.

use super::rules::Rules;
use super::state::State;
use super::steps::{Event, Machine};
use super::stories::Story;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

/// How much may happen, and how many states there may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub crashes: u8,
    pub deaths: u8,
    pub checkpoints: u8,
    /// MDTs that can lose power, as a set of bits.
    pub weak: u8,
    pub state_count_max: usize,
}

impl Bounds {
    pub const ALL_MDTS: u8 = 0b111;
}

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

fn digest(state: &State) -> Digest {
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

/// Goes through all states of a story.
pub fn explore(story: &Story, rules: Rules, bounds: Bounds) -> Exploration {
    let machine = Machine { story, rules, weak: bounds.weak };
    let begin = machine.begin(bounds.crashes, bounds.deaths, bounds.checkpoints);
    let mut seen: Seen = HashMap::default();
    seen.insert(digest(&begin), 0);
    let origins = vec![Origin { parent: 0, place: 0, depth: 0 }];
    let mut graph = Graph { origins, ways: Vec::new(), at_rest: Vec::new() };
    let mut result = Exploration { is_complete: true, ..Exploration::default() };
    let mut queue = VecDeque::from([begin]);
    let mut number = 0;
    while let Some(state) = queue.pop_front() {
        let next = machine.next(&state);
        let is_at_rest = next.iter().all(|(event, _)| event.is_evil());
        let wrong = state.broken.or_else(|| machine.judge(&state).filter(|_| is_at_rest));
        result.depth = graph.origins[number as usize].depth as usize;
        if let Some(what) = wrong {
            result.failure = Some(Failure { what, events: trace(&machine, bounds, &graph, number) });
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
                Entry::Vacant(free) if graph.origins.len() < bounds.state_count_max => {
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
            if !event.is_evil() {
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
        result.failure = Some(Failure { what, events: trace(&machine, bounds, &graph, stuck) });
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
fn trace(machine: &Machine, bounds: Bounds, graph: &Graph, to: u32) -> Vec<String> {
    let mut places = Vec::new();
    let mut at = to;
    while at != 0 {
        places.push(graph.origins[at as usize].place as usize);
        at = graph.origins[at as usize].parent;
    }
    let mut state = machine.begin(bounds.crashes, bounds.deaths, bounds.checkpoints);
    let mut lines = Vec::new();
    for place in places.into_iter().rev() {
        let Some((event, after)) = machine.next(&state).into_iter().nth(place) else { break };
        lines.push(machine.describe(&state, event));
        state = after;
    }
    lines
}

impl Machine<'_> {
    /// For people.
    fn describe(&self, state: &State, event: Event) -> String {
        let current = |client: usize| {
            let told = state.clients[client].told.len();
            self.story.program(client).nth(told).map_or_else(String::new, |call| self.story.describe(call))
        };
        match event {
            Event::Take { client } => {
                let call = self.story.program(client).nth(state.clients[client].told.len());
                let mdt = call.map_or(0, |call| self.story.coordinator(call));
                format!("MDT{mdt} gets: {}", current(client))
            }
            Event::Hear { client } => {
                let has_failed = state.clients[client].reply.is_some_and(|told| told.work.is_none());
                let end = if has_failed { "has failed" } else { "is done" };
                format!("client {client} hears that it {end}: {}", current(client))
            }
            Event::Arrive { from, to } => {
                let call = state.calls[from][to].iter().find(|call| call.answer.is_none());
                let what = call.map_or_else(String::new, |call| self.describe_message(&call.what));
                format!("MDT{to} gets from MDT{from}: {what}")
            }
            Event::Answer { from, to, place } => {
                let call = &state.calls[from][to][place];
                let answer = call.answer.map_or_else(String::new, |answer| format!("{answer:?}"));
                format!("MDT{from} hears from MDT{to}: {answer}, to: {}", self.describe_message(&call.what))
            }
            Event::Gathered { from, to } => format!("MDT{from} sends parts to MDT{to}, to be held"),
            Event::Sync { mdt } => format!("MDT{mdt} syncs"),
            Event::Ask { mdt, id } => {
                format!("MDT{mdt} asks MDT{} what has become of {}, and hears it", id.mdt, tell_id(id))
            }
            Event::Restart { mdt } => format!("MDT{mdt} starts again"),
            Event::TakeBack { mdt, from } => format!("MDT{from} gives back to MDT{mdt} what it holds"),
            Event::TakenBack { mdt } => format!("MDT{mdt} waits for nobody who is down"),
            Event::Replay { mdt, call } => {
                format!("MDT{mdt} gets as a replay: {}", self.story.describe(call))
            }
            Event::Recovered { mdt } => format!("MDT{mdt} has recovered"),
            Event::GiveUp { mdt, call } => format!("MDT{mdt} gives up: {}", self.story.describe(call)),
            Event::BeginCheckpoint { mdt } => format!("MDT{mdt} begins a checkpoint"),
            Event::EndCheckpoint { mdt } => format!("MDT{mdt} ends its checkpoint"),
            Event::Crash { mdt, kept } => {
                let lost = state.mdts[mdt].log.len() - kept;
                format!("MDT{mdt} LOSES POWER, and {lost} records with it")
            }
            Event::Die { client } => format!("client {client} IS GONE"),
        }
    }

    fn describe_message(&self, what: &super::work::What) -> String {
        use super::work::What;
        match what {
            What::Prepare { id, work, is_replay } => {
                let replay = if *is_replay { " (a replay)" } else { "" };
                format!("prepare {} {}{replay}", tell_id(*id), self.story.describe(work.call))
            }
            What::Decide { id, is_commit: true } => format!("{} is decided", tell_id(*id)),
            What::Decide { id, is_commit: false } => format!("{} is void", tell_id(*id)),
            What::Hold { items, .. } => {
                let items: Vec<String> = items
                    .iter()
                    .map(|item| format!("{} {}", tell_id(item.id), self.story.describe(item.work.call)))
                    .collect();
                format!("hold {}", items.join(", "))
            }
            What::Release { up_to, .. } => format!("execute up to {}", tell_id(*up_to)),
            What::Forget { .. } => "forget what was not sent again".to_string(),
        }
    }
}

fn tell_id(id: super::state::Id) -> String {
    format!("#{}.{}.{}", id.mdt, id.epoch, id.number)
}
