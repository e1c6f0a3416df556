//! What a state is made of.

use super::work::{Change, Fid, Item, MDT_COUNT, What, Work};
use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};
use std::rc::Rc;

/// Numbers below are of streams.
const FIRST_PREPARE: u8 = 100;

/// Of a coordinator: its incarnation and a number. Of equal coordinators the later is the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub mdt: u8,
    pub epoch: u8,
    pub number: u8,
}

impl Id {
    pub fn before_all(mdt: usize) -> Id {
        Id { mdt: mdt as u8, epoch: 0, number: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Row {
    Entry {
        name: u8,
        within: u8,
        fid: Fid,
    },
    /// With the name that leads to it.
    Inode {
        fid: Fid,
        name: u8,
    },
    /// The last call of a client that was executed here.
    Slot {
        client: u8,
        call: u8,
    },
    Streamed {
        to: u8,
        id: Id,
        previous: Id,
        work: Work,
    },
    Executed {
        from: u8,
        id: Id,
    },
    Prepare {
        id: Id,
        work: Work,
    },
    Decision {
        id: Id,
        work: Work,
    },
    /// No row of an MDT: how the judge knows what was executed. It goes with the transaction, and never away.
    Applied(Work),
}

impl Row {
    fn is_under_way(&self) -> bool {
        use Row::{Decision, Executed, Prepare, Streamed};
        matches!(self, Streamed { .. } | Executed { .. } | Prepare { .. } | Decision { .. })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rows(Vec<Row>);

impl Rows {
    pub fn iter(&self) -> std::slice::Iter<'_, Row> {
        self.0.iter()
    }

    pub fn has(&self, row: &Row) -> bool {
        self.0.binary_search(row).is_ok()
    }

    pub fn put(&mut self, row: Row) {
        if let Err(at) = self.0.binary_search(&row) {
            self.0.insert(at, row);
        }
    }

    pub fn delete(&mut self, row: &Row) {
        if let Ok(at) = self.0.binary_search(row) {
            self.0.remove(at);
        }
    }

    pub fn without_work_under_way(&mut self) {
        self.0.retain(|row| !row.is_under_way());
    }

    pub fn entry(&self, name: u8, within: u8) -> Option<Fid> {
        self.0.iter().find_map(|row| match row {
            Row::Entry { name: found, within: directory, fid } if (*found, *directory) == (name, within) => {
                Some(*fid)
            }
            _ => None,
        })
    }

    pub fn has_inode(&self, wanted: Fid) -> bool {
        self.0.iter().any(|row| matches!(row, Row::Inode { fid, .. } if *fid == wanted))
    }

    pub fn has_names_in(&self, directory: Fid) -> bool {
        self.0.iter().any(|row| matches!(row, Row::Entry { within, .. } if *within == directory.0))
    }

    pub fn applied(&self, call: u8) -> Option<Work> {
        self.all_applied().find(|work| work.call == call)
    }

    pub fn all_applied(&self) -> impl Iterator<Item = Work> {
        self.0.iter().filter_map(|row| if let Row::Applied(work) = row { Some(*work) } else { None })
    }

    pub fn prepares(&self) -> impl Iterator<Item = (Id, Work)> {
        self.0.iter().filter_map(|row| match row {
            Row::Prepare { id, work } => Some((*id, *work)),
            _ => None,
        })
    }

    pub fn decisions(&self) -> impl Iterator<Item = (Id, Work)> {
        self.0.iter().filter_map(|row| match row {
            Row::Decision { id, work } => Some((*id, *work)),
            _ => None,
        })
    }

    /// What is on its way to a participant, in order.
    pub fn streamed(&self, to_mdt: usize) -> impl Iterator<Item = Item> {
        self.0.iter().filter_map(move |row| match row {
            Row::Streamed { to, id, previous, work } if usize::from(*to) == to_mdt => {
                Some(Item { id: *id, previous: *previous, work: *work })
            }
            _ => None,
        })
    }

    pub fn executed(&self, from_mdt: usize) -> Id {
        let found = self.0.iter().find_map(|row| match row {
            Row::Executed { from, id } if usize::from(*from) == from_mdt => Some(*id),
            _ => None,
        });
        found.unwrap_or(Id::before_all(from_mdt))
    }
}

/// A transaction.
pub type Batch = Vec<Change>;

fn apply(rows: &mut Rows, batch: &Batch) {
    for change in batch {
        match change {
            Change::Put(row) => rows.put(*row),
            Change::Delete(row) => rows.delete(row),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Down,
    Recovering,
    Serving,
}

/// What a participant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    pub item: Item,
    /// The incarnation that has sent it.
    pub sender: u8,
}

/// A call that is prepared elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    pub id: Id,
    pub work: Work,
    pub is_replay: bool,
    /// MDTs that have not answered, as a set of bits.
    pub waiting: u8,
    pub refused: Option<Refusal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    GiveWay,
    ForGood,
}

/// How far a stream has been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outgoing {
    pub last: Id,
    pub sent_to: Id,
    pub released_to: Id,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mdt {
    pub phase: Phase,
    pub epoch: u8,
    /// What the last checkpoint has.
    pub checkpoint: Rows,
    /// A checkpoint that is being made.
    pub marked: Option<Rows>,
    /// That, and all of the log that is durable.
    pub durable: Rows,
    /// The rest of the log.
    pub log: Vec<Batch>,
    /// All of it: what it works with.
    pub rows: Rows,
    pub held: Vec<Held>,
    pub released_to: [Id; MDT_COUNT],
    pub outgoing: [Outgoing; MDT_COUNT],
    pub flows: Vec<Flow>,
    /// Participants that have executed a decision, as a set of bits.
    pub decided: Vec<(Id, u8)>,
    /// What was prepared by this incarnation or found again: whoever looks at it waits.
    pub frozen: Vec<Id>,
    /// What was prepared here and is decided, as far as a copy of it can still come.
    pub decided_here: Vec<Id>,
    /// Given back by participants.
    pub kept: Vec<Work>,
    /// MDTs that were asked for that.
    pub asked: u8,
    pub is_taken_back: bool,
    /// Replays that have failed, as a set of bits.
    pub refused: u16,
    /// MDTs that know that this one has recovered.
    pub told_recovered: u8,
    /// The order of calls as they were executed first: their transaction numbers.
    pub order: Vec<u8>,
}

impl Mdt {
    pub fn new(index: usize, rows: Rows) -> Mdt {
        Mdt {
            phase: Phase::Serving,
            epoch: 1,
            checkpoint: rows.clone(),
            marked: None,
            durable: rows.clone(),
            log: Vec::new(),
            rows,
            held: Vec::new(),
            released_to: std::array::from_fn(Id::before_all),
            outgoing: [Outgoing::new(index); MDT_COUNT],
            flows: Vec::new(),
            decided: Vec::new(),
            frozen: Vec::new(),
            decided_here: Vec::new(),
            kept: Vec::new(),
            asked: 0,
            is_taken_back: true,
            refused: 0,
            told_recovered: (1 << MDT_COUNT) - 1,
            order: Vec::new(),
        }
    }

    pub fn is_up(&self) -> bool {
        self.phase != Phase::Down
    }

    pub fn commit(&mut self, batch: Batch) {
        apply(&mut self.rows, &batch);
        self.log.push(batch);
    }

    pub fn sync(&mut self) {
        for batch in std::mem::take(&mut self.log) {
            apply(&mut self.durable, &batch);
        }
    }

    /// Of what is not durable so much is kept.
    pub fn lose(&mut self, kept: usize) {
        self.log.truncate(kept);
        self.sync();
        self.rows = self.durable.clone();
    }
}

impl Outgoing {
    pub fn new(index: usize) -> Outgoing {
        let none = Id::before_all(index);
        Outgoing { last: none, sent_to: none, released_to: none }
    }

    /// The participant may have lost what it held.
    pub fn start_over(&mut self) {
        let none = Id { epoch: 0, number: 0, ..self.last };
        (self.sent_to, self.released_to) = (none, none);
    }
}

/// A message between two MDTs that is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub what: What,
    pub answer: Option<Answer>,
    /// The answer waits until everything is durable that was applied before it.
    pub waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Done,
    Behind,
    Refused(Refusal),
}

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Told {
    pub call: u8,
    /// `None`: it has failed.
    pub work: Option<Work>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    pub is_alive: bool,
    /// In the order of its program; what comes next has been sent.
    pub told: Vec<Told>,
    /// On its way to it.
    pub reply: Option<Told>,
}

/// All of them. Most events change one, so states share the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mdts([Rc<Mdt>; MDT_COUNT]);

impl Mdts {
    pub fn new(make: impl Fn(usize) -> Mdt) -> Mdts {
        Mdts(std::array::from_fn(|mdt| Rc::new(make(mdt))))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Mdt> {
        self.0.iter().map(|mdt| &**mdt)
    }
}

impl Index<usize> for Mdts {
    type Output = Mdt;

    fn index(&self, mdt: usize) -> &Mdt {
        &self.0[mdt]
    }
}

impl IndexMut<usize> for Mdts {
    fn index_mut(&mut self, mdt: usize) -> &mut Mdt {
        Rc::make_mut(&mut self.0[mdt])
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub mdts: Mdts,
    /// From one to the other.
    pub calls: [[Vec<Call>; MDT_COUNT]; MDT_COUNT],
    pub clients: Vec<Client>,
    /// How often each object was made.
    pub attempts: Vec<u8>,
    pub crashes_left: u8,
    pub deaths_left: u8,
    pub checkpoints_left: u8,
    pub copies_left: u8,
    /// Of messages from the one to the other, which may arrive at any time.
    pub copies: Vec<(u8, u8, What)>,
    /// Calls of which their client can have been told that they are durable.
    pub synced: u16,
    /// Calls that a living client was told of and that were then refused, since others have taken with them what they were built on.
    pub refused: u16,
    /// For each call the MDTs that have been told of it and have run since.
    pub knowing: Vec<u8>,
    /// What is wrong. Nothing comes after that.
    pub broken: Option<&'static str>,
}

impl State {
    pub fn break_at(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }

    /// Numbers name what is referred to somewhere, so one to which nothing refers any more is free again: however often calls
    /// give way to each other, there are no more states.
    fn numbers_in_use(&self, mdt: usize) -> BTreeSet<u8> {
        let epoch = self.mdts[mdt].epoch;
        let mut numbers = BTreeSet::new();
        let mut see = |id: &Id| {
            if (usize::from(id.mdt), id.epoch) == (mdt, epoch) {
                numbers.insert(id.number);
            }
        };
        let mut see_row = |row: &Row| match row {
            Row::Streamed { id, previous, .. } => {
                see(id);
                see(previous);
            }
            Row::Executed { id, .. } | Row::Prepare { id, .. } | Row::Decision { id, .. } => see(id),
            _ => {}
        };
        for of in self.mdts.iter() {
            of.rows.iter().chain(of.durable.iter()).for_each(&mut see_row);
            for change in of.log.iter().flatten() {
                match change {
                    Change::Put(row) | Change::Delete(row) => see_row(row),
                }
            }
        }
        for of in self.mdts.iter() {
            of.held.iter().for_each(|held| see(&held.item.id));
            of.released_to.iter().for_each(&mut see);
            of.flows.iter().for_each(|flow| see(&flow.id));
            of.outgoing.iter().for_each(|outgoing| see(&outgoing.last));
        }
        let calls = self.calls.iter().flatten().flatten().map(|call| &call.what);
        for what in calls.chain(self.copies.iter().map(|(_, _, what)| what)) {
            match what {
                What::Prepare { id, .. } | What::Decide { id, .. } | What::Release { up_to: id, .. } => {
                    see(id)
                }
                What::Hold { items, .. } => items.iter().for_each(|item| see(&item.id)),
                What::Forget { .. } => {}
            }
        }
        numbers
    }

    /// Of something that is prepared. These have no order.
    pub fn new_prepare_id(&self, mdt: usize) -> Id {
        let used = self.numbers_in_use(mdt);
        let number = (FIRST_PREPARE..=u8::MAX).find(|number| !used.contains(number)).unwrap_or(u8::MAX);
        Id { mdt: mdt as u8, epoch: self.mdts[mdt].epoch, number }
    }

    /// Of something in a stream, behind all others.
    pub fn new_stream_id(&self, mdt: usize) -> Id {
        let used = self.numbers_in_use(mdt);
        let number = used.range(..FIRST_PREPARE).last().map_or(1, |number| number + 1);
        assert!(number < FIRST_PREPARE, "a program makes few directories");
        Id { mdt: mdt as u8, epoch: self.mdts[mdt].epoch, number }
    }

    /// Whether a copy of its prepare is on its way to this MDT, or may be made.
    pub fn can_be_copied(&self, mdt: usize, id: Id) -> bool {
        let is_its = |what: &What| matches!(what, What::Prepare { id: of, .. } if *of == id);
        let mut copies = self.copies.iter().filter(|(_, to, _)| usize::from(*to) == mdt);
        let mut calls = self.calls.iter().flat_map(|to| &to[mdt]);
        copies.any(|(_, _, what)| is_its(what))
            || self.copies_left > 0 && calls.any(|call| is_its(&call.what))
    }

    pub fn send(&mut self, from: usize, to: usize, what: What) {
        self.calls[from][to].push(Call { what, answer: None, waits: false });
    }
}
