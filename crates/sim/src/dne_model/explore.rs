//! The states of a story, and what leads from one to the next in words.

use super::rules::Rules;
use super::state::State;
use super::steps::{Event, Machine};
use super::stories::Story;
use crate::state_space::{self, Exploration, Model};

/// How much may happen, and how many states there may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub crashes: u8,
    pub deaths: u8,
    pub checkpoints: u8,
    /// Of prepares and of what is decided about them.
    pub copies: u8,
    /// MDTs that can lose power, as a set of bits.
    pub weak: u8,
    pub state_count_max: usize,
}

impl Bounds {
    pub const ALL_MDTS: u8 = 0b111;
}

struct Bounded<'a> {
    machine: Machine<'a>,
    bounds: Bounds,
}

impl Model for Bounded<'_> {
    type State = State;
    type Event = Event;

    fn begin(&self) -> State {
        self.machine.begin(&self.bounds)
    }

    fn next(&self, state: &State) -> Vec<(Event, State)> {
        self.machine.next(state)
    }

    fn is_evil(&self, event: &Event) -> bool {
        event.is_evil()
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        state.broken
    }

    fn judge(&self, state: &State) -> Option<&'static str> {
        self.machine.judge(state)
    }

    fn describe(&self, state: &State, event: Event) -> String {
        self.machine.describe(state, event)
    }
}

/// Goes through all states of a story.
pub fn explore(story: &Story, rules: Rules, bounds: Bounds) -> Exploration {
    let machine = Machine { story, rules, weak: bounds.weak };
    state_space::explore(&Bounded { machine, bounds }, bounds.state_count_max)
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
            Event::Copy { from, to, place } => {
                let what = self.describe_message(&state.calls[from][to][place].what);
                format!("COPIED on its way from MDT{from} to MDT{to}: {what}")
            }
            Event::CopyArrives { place } => {
                let (from, to, what) = &state.copies[place];
                format!("MDT{to} gets a COPY from MDT{from}: {}", self.describe_message(what))
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
