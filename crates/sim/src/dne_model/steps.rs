//! What can happen next in a state.

use super::explore::Bounds;
use super::rules::{Rule, Rules};
use super::state::{Batch, Client, Flow, Held, Id, Mdt, Mdts, Phase, Row, State, Told};
use super::stories::Story;
use super::work::{Change, Fid, Kind, MDT_COUNT, NOTHING, NOWHERE, What, Work};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The request arrives; it is executed, fails, or is prepared elsewhere first.
    Take {
        client: usize,
    },
    /// The answer arrives.
    Hear {
        client: usize,
    },
    /// The first message that `to` has not seen arrives.
    Arrive {
        from: usize,
        to: usize,
    },
    /// The answer to a message arrives.
    Answer {
        from: usize,
        to: usize,
        place: usize,
    },
    /// Parts have been gathered long enough.
    Gathered {
        from: usize,
        to: usize,
    },
    Sync {
        mdt: usize,
    },
    /// A participant asks what has become of what it has prepared, and is answered.
    Ask {
        mdt: usize,
        id: Id,
    },
    Restart {
        mdt: usize,
    },
    TakeBack {
        mdt: usize,
        from: usize,
    },
    /// Who is down is asked no longer.
    TakenBack {
        mdt: usize,
    },
    Replay {
        mdt: usize,
        call: u8,
    },
    Recovered {
        mdt: usize,
    },
    /// What a client that is gone has under way is given up.
    GiveUp {
        mdt: usize,
        call: u8,
    },
    BeginCheckpoint {
        mdt: usize,
    },
    EndCheckpoint {
        mdt: usize,
    },
    /// Power fails; of the records that are not durable so many are.
    Crash {
        mdt: usize,
        kept: usize,
    },
    /// A message that is about a prepare is copied on its way.
    Copy {
        from: usize,
        to: usize,
        place: usize,
    },
    /// Its answer is heard by nobody.
    CopyArrives {
        place: usize,
    },
    Die {
        client: usize,
    },
}

impl Event {
    /// Nobody may count on it, or be helped by it.
    pub fn is_evil(self) -> bool {
        use Event::{BeginCheckpoint, Copy, CopyArrives, Crash, Die};
        matches!(self, Crash { .. } | Die { .. } | BeginCheckpoint { .. } | Copy { .. } | CopyArrives { .. })
    }
}

/// What can be done with a call now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Something that it looks at is not settled.
    Waits,
    Fails,
    Goes(Work),
}

/// A program and the rules.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    pub story: &'a Story,
    pub rules: Rules,
    /// MDTs that can lose power, as a set of bits.
    pub weak: u8,
}

impl Machine<'_> {
    pub fn begin(&self, bounds: &Bounds) -> State {
        let rows = self.story.rows_at_first();
        let told = Client { is_alive: true, told: Vec::new(), reply: None };
        State {
            mdts: Mdts::new(|mdt| Mdt::new(mdt, rows[mdt].clone())),
            calls: Default::default(),
            clients: vec![told; self.story.client_count()],
            attempts: vec![0; self.story.objects.len()],
            crashes_left: bounds.crashes,
            deaths_left: bounds.deaths,
            checkpoints_left: bounds.checkpoints,
            copies_left: bounds.copies,
            copies: Vec::new(),
            synced: 0,
            refused: 0,
            knowing: vec![0; self.story.calls.len()],
            broken: None,
        }
    }

    /// Everything that can happen next, and what it leads to.
    pub fn next(&self, state: &State) -> Vec<(Event, State)> {
        let mut next = Vec::new();
        if state.broken.is_some() {
            return next;
        }
        for event in self.events(state) {
            let mut after = state.clone();
            if self.happen(&mut after, event) {
                self.settle(&mut after);
                next.push((event, after));
            }
        }
        next
    }

    fn events(&self, state: &State) -> Vec<Event> {
        let mut events = Vec::new();
        for (client, of) in state.clients.iter().enumerate().filter(|(_, of)| of.is_alive) {
            match of.reply {
                Some(_) => events.push(Event::Hear { client }),
                None => events.push(Event::Take { client }),
            }
        }
        for mdt in 0..MDT_COUNT {
            self.events_between(state, mdt, &mut events);
            self.events_of(state, mdt, &mut events);
        }
        let arriving =
            state.copies.iter().enumerate().filter(|(_, (_, to, _))| state.mdts[usize::from(*to)].is_up());
        events.extend(arriving.map(|(place, _)| Event::CopyArrives { place }));
        if state.deaths_left > 0 {
            let living = state.clients.iter().enumerate().filter(|(_, of)| of.is_alive);
            events.extend(living.map(|(client, _)| Event::Die { client }));
        }
        events
    }

    fn events_between(&self, state: &State, from: usize, events: &mut Vec<Event>) {
        for to in (0..MDT_COUNT).filter(|to| *to != from) {
            let calls = &state.calls[from][to];
            let is_up = state.mdts[from].is_up() && state.mdts[to].is_up();
            if is_up && calls.iter().any(|call| call.answer.is_none()) {
                events.push(Event::Arrive { from, to });
            }
            let answered = calls.iter().enumerate().filter(|(_, call)| call.answer.is_some() && !call.waits);
            if is_up {
                events.extend(answered.map(|(place, _)| Event::Answer { from, to, place }));
                if self.has_gathered(state, from, to) {
                    events.push(Event::Gathered { from, to });
                }
            }
            if state.copies_left > 0 {
                let copied = calls.iter().enumerate().filter(|(_, call)| call.what.prepared().is_some());
                events.extend(copied.map(|(place, _)| Event::Copy { from, to, place }));
            }
        }
    }

    fn events_of(&self, state: &State, mdt: usize, events: &mut Vec<Event>) {
        let of = &state.mdts[mdt];
        if of.phase == Phase::Down {
            return events.push(Event::Restart { mdt });
        }
        if !of.log.is_empty() {
            events.push(Event::Sync { mdt });
        }
        events.extend(of.rows.prepares().map(|(id, _)| Event::Ask { mdt, id }));
        if of.phase == Phase::Recovering {
            if !of.is_taken_back {
                let others = (0..MDT_COUNT).filter(|from| *from != mdt);
                events.extend(others.map(|from| Event::TakeBack { mdt, from }));
                events.push(Event::TakenBack { mdt });
            }
            events.extend(self.lost(state, mdt).map(|(call, _)| Event::Replay { mdt, call }));
            events.push(Event::Recovered { mdt });
        }
        let given_up = of
            .flows
            .iter()
            .filter(|flow| !flow.is_replay && !state.clients[self.story.client(flow.work.call)].is_alive);
        events.extend(given_up.map(|flow| Event::GiveUp { mdt, call: flow.work.call }));
        if of.marked.is_some() {
            events.push(Event::EndCheckpoint { mdt });
        } else if state.checkpoints_left > 0 {
            events.push(Event::BeginCheckpoint { mdt });
        }
        if state.crashes_left > 0 && self.weak & (1 << mdt) != 0 {
            events.extend((0..=of.log.len()).map(|kept| Event::Crash { mdt, kept }));
        }
    }

    /// False: that does not happen now.
    fn happen(&self, state: &mut State, event: Event) -> bool {
        match event {
            Event::Take { client } => self.take(state, client),
            Event::Hear { client } => {
                self.hear(state, client);
                true
            }
            Event::Arrive { from, to } => self.arrive(state, from, to),
            Event::Answer { from, to, place } => {
                self.answered(state, from, to, place);
                true
            }
            Event::Gathered { from, to } => self.hold(state, from, to),
            Event::Sync { mdt } => {
                self.sync(state, mdt);
                true
            }
            Event::Ask { mdt, id } => self.ask(state, mdt, id),
            Event::Restart { mdt } => {
                self.restart(state, mdt);
                true
            }
            Event::TakeBack { mdt, from } => self.take_back(state, mdt, from),
            Event::TakenBack { mdt } => self.stop_taking_back(state, mdt),
            Event::Replay { mdt, call } => self.replay(state, mdt, call),
            Event::Recovered { mdt } => self.recovered(state, mdt),
            Event::GiveUp { mdt, call } => {
                self.drop_flow(state, mdt, call);
                true
            }
            Event::BeginCheckpoint { mdt } => {
                self.begin_checkpoint(state, mdt);
                true
            }
            Event::EndCheckpoint { mdt } => {
                self.end_checkpoint(state, mdt);
                true
            }
            Event::Crash { mdt, kept } => {
                self.crash(state, mdt, kept);
                true
            }
            Event::Copy { from, to, place } => {
                state.copies_left -= 1;
                let what = state.calls[from][to][place].what.clone();
                state.copies.push((from as u8, to as u8, what));
                true
            }
            Event::CopyArrives { place } => self.copy_arrives(state, place),
            Event::Die { client } => {
                state.deaths_left -= 1;
                state.clients[client].is_alive = false;
                state.clients[client].reply = None;
                true
            }
        }
    }

    /// The tail of every event: what can be sent at once is.
    fn settle(&self, state: &mut State) {
        for mdt in 0..MDT_COUNT {
            if state.mdts[mdt].is_up() {
                self.send_decisions(state, mdt);
                self.send_streams(state, mdt);
            }
            if !state.mdts[mdt].decided_here.is_empty() {
                let mut decided = std::mem::take(&mut state.mdts[mdt].decided_here);
                decided.retain(|id| state.can_be_copied(mdt, *id));
                decided.sort_unstable();
                decided.dedup();
                state.mdts[mdt].decided_here = decided;
            }
        }
    }

    /// The call of a client that has been sent and not answered.
    fn current(&self, state: &State, client: usize) -> Option<u8> {
        let told = &state.clients[client].told;
        if told.last().is_some_and(|told| told.work.is_none()) {
            return None;
        }
        self.story.program(client).nth(told.len())
    }

    fn take(&self, state: &mut State, client: usize) -> bool {
        let Some(call) = self.current(state, client) else { return false };
        let mdt = self.story.coordinator(call);
        let of = &state.mdts[mdt];
        if !of.is_up() || of.flows.iter().any(|flow| flow.work.call == call) {
            return false;
        }
        if of.rows.has(&Row::Slot { client: client as u8, call }) {
            // It came again.
            let work = of.rows.applied(call);
            state.clients[client].reply = Some(Told { call, work });
            return true;
        }
        if of.phase != Phase::Serving {
            return false;
        }
        let work = match self.look(state, mdt, call, None) {
            Way::Waits => return false,
            Way::Fails => {
                state.clients[client].reply = Some(Told { call, work: None });
                return true;
            }
            Way::Goes(work) => work,
        };
        if let Kind::Mkdir { object, .. } | Kind::Create { object, .. } = self.story.kind(call) {
            state.attempts[usize::from(object)] += 1;
        }
        self.go(state, mdt, work, false)
    }

    fn hear(&self, state: &mut State, client: usize) {
        let of = &mut state.clients[client];
        let Some(told) = of.reply.take() else { return };
        if told.work.is_none() && !self.story.calls[usize::from(told.call)].may_fail {
            state.broken.get_or_insert("a call has failed that had to succeed");
        }
        state.clients[client].told.push(told);
    }

    /// What a client knows of an object: it has made it, or looked it up.
    fn known(&self, state: &State, client: usize, object: u8) -> Option<Fid> {
        let works = state.clients[client].told.iter().filter_map(|told| told.work);
        works.map(|work| work.fid).rfind(|fid| fid.object() == object)
    }

    /// Looks at everything that a call needs here. `replayed`: what it had led to.
    pub fn look(&self, state: &State, mdt: usize, call: u8, replayed: Option<Work>) -> Way {
        let (story, of, client) = (self.story, &state.mdts[mdt], self.story.client(call));
        let name = story.name_of(call);
        let within = match (replayed, story.directory(name)) {
            (Some(work), _) => work.within,
            (None, None) => NOWHERE,
            (None, Some(object)) => match self.known(state, client, object) {
                Some(fid) => fid.0,
                None => return Way::Fails,
            },
        };
        let found = match story.kind(call) {
            Kind::Mkdir { object, .. } | Kind::Create { object, .. } => {
                Ok(Fid::new(object, state.attempts[usize::from(object)]))
            }
            Kind::Unlink { name } | Kind::Rmdir { name } | Kind::Look { name } => {
                of.rows.entry(name, within).ok_or(Way::Fails)
            }
            Kind::Rename { from, .. } => self.peek(state, mdt, from, call, replayed.is_some()),
        };
        let over = match story.kind(call) {
            Kind::Rename { to, .. } => of.rows.entry(to, within),
            _ => None,
        };
        let fid = match (found, replayed) {
            (Err(Way::Waits), _) => return Way::Waits,
            (found, Some(work)) => match found {
                // Whatever the name leads to now.
                Ok(fid) if !self.rules.has(Rule::MetIsNamed) && !self.is_making(call) => fid,
                _ => work.fid,
            },
            (Ok(fid), None) => fid,
            (Err(_), None) => NOTHING,
        };
        let over =
            if self.rules.has(Rule::MetIsNamed) { replayed.map_or(over, |work| work.over) } else { over };
        let work = Work { call, fid, over, within };
        if self.waits(state, mdt, &work, replayed.is_some()) {
            return Way::Waits;
        }
        if found.is_err() && replayed.is_none() || story.can(mdt, &of.rows, &work).is_err() {
            return Way::Fails;
        }
        match story.kind(call) {
            Kind::Look { .. } => Way::Goes(work),
            _ if self.is_behind(state, mdt, &work) => Way::Waits,
            _ => Way::Goes(work),
        }
    }

    fn is_making(&self, call: u8) -> bool {
        matches!(self.story.kind(call), Kind::Mkdir { .. } | Kind::Create { .. })
    }

    /// What a name leads to that another MDT may have.
    fn peek(&self, state: &State, mdt: usize, name: u8, call: u8, is_replay: bool) -> Result<Fid, Way> {
        let at = self.story.mdt_of_name(name);
        let of = &state.mdts[at];
        if at != mdt && (of.phase == Phase::Down || of.phase == Phase::Recovering && !is_replay) {
            return Err(Way::Waits);
        }
        let asker = (mdt as u8, state.mdts[mdt].epoch);
        let is_void = |id: &Id| id.mdt == asker.0 && id.epoch < asker.1;
        let is_changed = |work: &Work| self.story.changed(at, work) & (1 << name) != 0;
        let frozen = of.rows.prepares().filter(|(id, work)| of.frozen.contains(id) && is_changed(work));
        let mut frozen = frozen.filter(|(id, _)| !is_void(id));
        if self.rules.has(Rule::FrozenIsAwaited) && frozen.next().is_some() {
            return Err(Way::Waits);
        }
        let client = self.story.client(call);
        if !is_replay && of.phase == Phase::Serving && self.is_unheard(state, at, 1 << name, client) {
            return Err(Way::Waits);
        }
        of.rows.entry(name, NOWHERE).ok_or(Way::Fails)
    }

    /// Whether something that a call looks at here is not settled.
    fn waits(&self, state: &State, mdt: usize, work: &Work, is_replay: bool) -> bool {
        let (story, of) = (self.story, &state.mdts[mdt]);
        let (touched, changed) = (story.touched(mdt, work), story.changed(mdt, work));
        if self.is_frozen(state, mdt, touched, None) {
            return true;
        }
        let is_in_the_way = |flow: &Flow| {
            let (its, looked_at) = (story.changed(mdt, &flow.work), story.touched(mdt, &flow.work));
            its & touched != 0 || looked_at & changed != 0
        };
        if !is_replay && of.flows.iter().filter(|flow| flow.work.call != work.call).any(is_in_the_way) {
            return true;
        }
        if self.is_on_its_way(state, mdt, work, None, is_replay) {
            return true;
        }
        !is_replay && self.is_unheard(state, mdt, touched, story.client(work.call))
    }

    /// `but`: what was prepared for former incarnations of this coordinator does not count.
    pub fn is_frozen(&self, state: &State, mdt: usize, touched: u32, but: Option<(u8, u8)>) -> bool {
        let of = &state.mdts[mdt];
        let is_void = |id: &Id| but.is_some_and(|(mdt, epoch)| id.mdt == mdt && id.epoch < epoch);
        let mut prepares = of.rows.prepares().filter(|(id, _)| of.frozen.contains(id) && !is_void(id));
        self.rules.has(Rule::FrozenIsAwaited)
            && prepares.any(|(_, work)| self.story.changed(mdt, &work) & touched != 0)
    }

    /// Whether a directory that is looked for here is held, or may come.
    pub fn is_on_its_way(
        &self,
        state: &State,
        mdt: usize,
        work: &Work,
        asker: Option<(u8, u8)>,
        is_replay: bool,
    ) -> bool {
        let of = &state.mdts[mdt];
        let looked_for = self.looked_for(mdt, work);
        for fid in looked_for.into_iter().filter(|fid| !of.rows.has_inode(*fid)) {
            let is_void = |held: &Held| {
                asker.is_some_and(|(mdt, epoch)| held.item.id.mdt == mdt && held.sender < epoch)
            };
            let mut held = of.held.iter().filter(|held| held.item.work.fid == fid && !is_void(held));
            if held.next().is_some() {
                return true;
            }
            let Some(maker) = self.story.remote_maker(fid) else { continue };
            if !self.rules.has(Rule::AbsenceIsAsked) || maker == mdt {
                continue;
            }
            let maker = &state.mdts[maker];
            let is_coming = maker
                .rows
                .streamed(mdt)
                .any(|item| item.work.fid == fid && item.id > of.rows.executed(usize::from(item.id.mdt)));
            let is_unknown = maker.phase == Phase::Recovering && !is_replay;
            if maker.phase == Phase::Down || is_coming || is_unknown {
                return true;
            }
        }
        false
    }

    /// Objects that have to be on this MDT for a call.
    fn looked_for(&self, mdt: usize, work: &Work) -> Vec<Fid> {
        let mut fids = Vec::new();
        if work.within != NOWHERE && self.story.mdt_of_name(self.story.name_of(work.call)) == mdt {
            fids.push(Fid(work.within));
        }
        let is_there_before =
            !self.is_making(work.call) && !matches!(self.story.kind(work.call), Kind::Look { .. });
        if is_there_before && self.story.home(work.fid) == mdt {
            fids.push(work.fid);
        }
        fids
    }

    /// Whether another client's change is among what is touched, of which that client may not have heard and which is not durable.
    pub fn is_unheard(&self, state: &State, mdt: usize, touched: u32, client: usize) -> bool {
        if !self.rules.has(Rule::HeardFirst) {
            return false;
        }
        let of = &state.mdts[mdt];
        let mut young = of.rows.all_applied().filter(|work| {
            let of_other = self.story.client(work.call) != client && self.story.coordinator(work.call) == mdt;
            of_other && !of.durable.has(&Row::Applied(*work))
        });
        young.any(|work| {
            let told = &state.clients[self.story.client(work.call)].told;
            let is_heard = told.iter().any(|told| told.call == work.call);
            !is_heard && self.story.changed(mdt, &work) & touched != 0
        })
    }

    /// Goes on with a call that nothing stands in the way of.
    pub fn go(&self, state: &mut State, mdt: usize, work: Work, is_replay: bool) -> bool {
        if let Kind::Look { .. } = self.story.kind(work.call) {
            let client = self.story.client(work.call);
            state.clients[client].reply = Some(Told { call: work.call, work: Some(work) });
            return true;
        }
        let participants: Vec<usize> = self.story.participants(&work).collect();
        let is_streamed = matches!(self.story.kind(work.call), Kind::Mkdir { .. });
        if participants.is_empty() || is_streamed {
            self.execute(state, mdt, work, None, is_replay);
            return true;
        }
        self.prepare(state, mdt, work, &participants, is_replay)
    }

    /// The coordinator's transaction.
    pub fn execute(&self, state: &mut State, mdt: usize, work: Work, decided: Option<Id>, is_replay: bool) {
        let (call, client) = (work.call, self.story.client(work.call));
        let mut batch = self.own_part(state, mdt, &work);
        let participants: Vec<usize> = self.story.participants(&work).collect();
        if self.rules.has(Rule::SlotWithRequest) {
            let slots = state.mdts[mdt]
                .rows
                .iter()
                .filter(|row| matches!(row, Row::Slot { client: of, .. } if usize::from(*of) == client));
            batch.extend(slots.map(|row| Change::Delete(*row)));
            batch.push(Change::Put(Row::Slot { client: client as u8, call }));
        }
        match decided {
            Some(id) => batch.push(Change::Put(Row::Decision { id, work })),
            None if !participants.is_empty() => {
                let id = state.new_stream_id(mdt);
                for to in participants {
                    let outgoing = &mut state.mdts[mdt].outgoing[to];
                    let previous = std::mem::replace(&mut outgoing.last, id);
                    batch.push(Change::Put(Row::Streamed { to: to as u8, id, previous, work }));
                }
            }
            None => {}
        }
        state.mdts[mdt].commit(batch);
        if !is_replay {
            state.mdts[mdt].order.retain(|before| *before != call);
            state.mdts[mdt].order.push(call);
            if state.clients[client].is_alive {
                state.clients[client].reply = Some(Told { call, work: Some(work) });
            }
        }
    }

    /// The rows of a part, which has to be possible.
    pub fn own_part(&self, state: &mut State, mdt: usize, work: &Work) -> Batch {
        if self.story.can(mdt, &state.mdts[mdt].rows, work).is_err() {
            state.break_at("what was decided is not possible");
        }
        if state.mdts[mdt].rows.applied(work.call).is_some() {
            state.break_at("a call was executed twice");
        }
        let mut batch = self.story.part(mdt, work);
        batch.push(Change::Put(Row::Applied(*work)));
        batch
    }

    fn sync(&self, state: &mut State, mdt: usize) {
        state.mdts[mdt].sync();
        let works: Vec<Work> = state.mdts[mdt].durable.all_applied().collect();
        for work in works.iter().filter(|work| self.story.coordinator(work.call) == mdt) {
            state.synced |= 1 << work.call;
        }
        for call in state.calls.iter_mut().flat_map(|from| &mut from[mdt]) {
            call.waits = false;
        }
    }

    fn arrive(&self, state: &mut State, from: usize, to: usize) -> bool {
        let Some(place) = state.calls[from][to].iter().position(|call| call.answer.is_none()) else {
            return false;
        };
        let what = state.calls[from][to][place].what.clone();
        let log_len = state.mdts[to].log.len();
        let answer = match &what {
            What::Prepare { id, work, is_replay } => self.on_prepare(state, to, *id, *work, *is_replay),
            What::Decide { id, is_commit } => self.on_decide(state, to, *id, *is_commit),
            What::Hold { epoch, items } => self.on_hold(state, from, to, *epoch, items),
            What::Release { epoch, up_to } => self.on_release(state, from, to, *epoch, *up_to),
            What::Forget { epoch } => self.on_forget(state, from, to, *epoch),
        };
        let Some((answer, waits)) = answer else { return false };
        let is_heard_at_once =
            matches!(what, What::Hold { .. } | What::Forget { .. } | What::Decide { is_commit: false, .. });
        if is_heard_at_once {
            state.calls[from][to].remove(place);
        } else {
            let has_unsynced = !state.mdts[to].log.is_empty() || state.mdts[to].log.len() > log_len;
            let call = &mut state.calls[from][to][place];
            (call.answer, call.waits) = (Some(answer), waits && has_unsynced);
        }
        true
    }

    fn copy_arrives(&self, state: &mut State, place: usize) -> bool {
        let (_, to, what) = state.copies.remove(place);
        let answer = match what {
            What::Prepare { id, work, is_replay } => {
                self.on_prepare(state, usize::from(to), id, work, is_replay)
            }
            What::Decide { id, is_commit } => self.on_decide(state, usize::from(to), id, is_commit),
            _ => None,
        };
        answer.is_some()
    }

    fn answered(&self, state: &mut State, from: usize, to: usize, place: usize) {
        let call = state.calls[from][to].remove(place);
        let Some(answer) = call.answer else { return };
        match call.what {
            What::Prepare { id, .. } => self.on_prepared(state, from, to, id, answer),
            What::Decide { id, .. } => self.on_decided(state, from, to, id),
            What::Release { up_to, .. } => self.on_released(state, from, to, up_to, answer),
            What::Hold { .. } | What::Forget { .. } => {}
        }
    }

    /// At rest: nothing more happens by itself. What has to be true then.
    pub fn judge(&self, state: &State) -> Option<&'static str> {
        for of in state.mdts.iter() {
            if of.phase != Phase::Serving {
                return Some("an MDT does not come back");
            }
            if of.rows.prepares().next().is_some() || of.rows.decisions().next().is_some() {
                return Some("a decision is never told");
            }
            if (0..MDT_COUNT).any(|to| of.rows.streamed(to).next().is_some()) || !of.held.is_empty() {
                return Some("a stream does not go on");
            }
        }
        for (client, of) in state.clients.iter().enumerate().filter(|(_, of)| of.is_alive) {
            let is_over = match self.current(state, client) {
                None => true,
                Some(call) => self.story.calls[usize::from(call)].may_wait,
            };
            if !is_over {
                return Some("a call is never answered");
            }
            for told in &of.told {
                let Some(work) = told.work else { continue };
                let is_look = matches!(self.story.kind(told.call), Kind::Look { .. });
                let of = &state.mdts[self.story.coordinator(told.call)];
                let is_refused = state.refused & (1 << told.call) != 0;
                if !is_look && !is_refused && !of.rows.has(&Row::Applied(work)) {
                    return Some("what a living client was told is not there");
                }
            }
        }
        self.judge_calls(state).or_else(|| self.judge_tree(state))
    }

    fn judge_calls(&self, state: &State) -> Option<&'static str> {
        for call in 0..self.story.calls.len() as u8 {
            let coordinator = self.story.coordinator(call);
            let of = |mdt: usize| state.mdts[mdt].rows.applied(call);
            let Some(work) = of(coordinator) else {
                if (0..MDT_COUNT).any(|mdt| of(mdt).is_some()) {
                    return Some("a call is there without its coordinator");
                }
                continue;
            };
            let participants: Vec<usize> = self.story.participants(&work).collect();
            for mdt in (0..MDT_COUNT).filter(|mdt| *mdt != coordinator) {
                if participants.contains(&mdt) != of(mdt).is_some() {
                    return Some("a call is not there on all its MDTs");
                }
                if of(mdt).is_some_and(|its| its != work) {
                    return Some("two MDTs have executed different things");
                }
            }
            for before in self.story.calls[usize::from(call)].needs {
                let is_there = state.mdts[self.story.coordinator(*before)].rows.applied(*before).is_some();
                if !is_there && self.is_built_on(&work, *before) {
                    return Some("a call is there without one that it depends on");
                }
            }
        }
        None
    }

    /// Another object can have come under a name.
    fn is_built_on(&self, work: &Work, before: u8) -> bool {
        match self.story.kind(before) {
            Kind::Mkdir { object, .. } | Kind::Create { object, .. } => {
                [work.fid, Fid(work.within)].iter().any(|fid| fid.object() == object)
            }
            _ => true,
        }
    }

    fn judge_tree(&self, state: &State) -> Option<&'static str> {
        let rows = || state.mdts.iter().flat_map(|of| of.rows.iter());
        for row in rows() {
            match row {
                Row::Entry { name, within, fid } => {
                    let home = &state.mdts[self.story.home(*fid)].rows;
                    if !home.has(&Row::Inode { fid: *fid, name: *name }) {
                        return Some("a name leads nowhere");
                    }
                    if *within != NOWHERE
                        && !state.mdts[self.story.mdt_of_name(*name)].rows.has_inode(Fid(*within))
                    {
                        return Some("a name is in no directory");
                    }
                }
                Row::Inode { fid, name } => {
                    let leads_there = |row: &Row| matches!(row, Row::Entry { name: of, fid: to, .. } if (of, to) == (name, fid));
                    if !rows().any(leads_there) {
                        return Some("nothing leads to an inode");
                    }
                }
                _ => {}
            }
        }
        None
    }
}
