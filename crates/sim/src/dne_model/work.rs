//! Names, objects and calls, and what each call changes on which MDT.

use super::state::{Id, Row, Rows};
use super::stories::Story;

pub const MDT_COUNT: usize = 3;
/// Not within a directory that a call makes.
pub const NOWHERE: u8 = u8::MAX;
/// What a name leads to that is not there.
pub const NOTHING: Fid = Fid(u8::MAX - 1);

/// An object and how often it has been made: a FID is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fid(pub u8);

impl Fid {
    pub fn new(object: u8, attempt: u8) -> Fid {
        assert!(attempt < 8, "few calls are executed anew so often");
        Fid(object * 8 + attempt)
    }

    pub fn object(self) -> u8 {
        self.0 / 8
    }
}

/// A call. Names and objects are numbers in the tables of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mkdir { name: u8, object: u8 },
    Create { name: u8, object: u8 },
    Unlink { name: u8 },
    Rmdir { name: u8 },
    Rename { from: u8, to: u8 },
    Look { name: u8 },
}

/// A call with what it leads to: what is written down for it, sent to others, and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work {
    pub call: u8,
    pub fid: Fid,
    /// The file that a rename replaces.
    pub over: Option<Fid>,
    /// The directory of the name, if a call has made it.
    pub within: u8,
}

/// Why something cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Exists,
    Absent,
    NotEmpty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Put(Row),
    Delete(Row),
}

impl Story {
    pub fn kind(&self, call: u8) -> Kind {
        self.calls[usize::from(call)].kind
    }

    pub fn client(&self, call: u8) -> usize {
        self.calls[usize::from(call)].client
    }

    /// The MDT that a call goes to: that of its name, or of its new name.
    pub fn coordinator(&self, call: u8) -> usize {
        self.mdt_of_name(self.name_of(call))
    }

    pub fn mdt_of_name(&self, name: u8) -> usize {
        self.names[usize::from(name)].mdt
    }

    /// No MDT has `NOTHING`.
    pub fn home(&self, fid: Fid) -> usize {
        self.objects.get(usize::from(fid.object())).map_or(MDT_COUNT, |object| object.mdt)
    }

    /// The object that has to be the directory of the name.
    pub fn directory(&self, name: u8) -> Option<u8> {
        self.names[usize::from(name)].within
    }

    pub fn name_of(&self, call: u8) -> u8 {
        match self.kind(call) {
            Kind::Mkdir { name, .. }
            | Kind::Create { name, .. }
            | Kind::Unlink { name }
            | Kind::Rmdir { name }
            | Kind::Look { name }
            | Kind::Rename { to: name, .. } => name,
        }
    }

    /// What a call changes on an MDT.
    pub fn part(&self, mdt: usize, work: &Work) -> Vec<Change> {
        let mut changes = Vec::new();
        let (call, fid, within) = (work.call, work.fid, work.within);
        let mut at = |is_there: usize, change: Change| {
            if is_there == mdt {
                changes.push(change);
            }
        };
        match self.kind(call) {
            Kind::Mkdir { name, .. } | Kind::Create { name, .. } => {
                at(self.mdt_of_name(name), Change::Put(Row::Entry { name, within, fid }));
                at(self.home(fid), Change::Put(Row::Inode { fid, name }));
            }
            Kind::Unlink { name } | Kind::Rmdir { name } => {
                at(self.mdt_of_name(name), Change::Delete(Row::Entry { name, within, fid }));
                at(self.home(fid), Change::Delete(Row::Inode { fid, name }));
            }
            Kind::Rename { from, to } => {
                at(self.mdt_of_name(from), Change::Delete(Row::Entry { name: from, within: NOWHERE, fid }));
                if let Some(over) = work.over {
                    at(self.mdt_of_name(to), Change::Delete(Row::Entry { name: to, within, fid: over }));
                    at(self.home(over), Change::Delete(Row::Inode { fid: over, name: to }));
                }
                at(self.mdt_of_name(to), Change::Put(Row::Entry { name: to, within, fid }));
                at(self.home(fid), Change::Delete(Row::Inode { fid, name: from }));
                at(self.home(fid), Change::Put(Row::Inode { fid, name: to }));
            }
            Kind::Look { .. } => {}
        }
        changes
    }

    /// The other MDTs that have a part in it.
    pub fn participants(&self, work: &Work) -> impl Iterator<Item = usize> {
        let coordinator = self.coordinator(work.call);
        let has_part = |mdt: &usize| *mdt != coordinator && !self.part(*mdt, work).is_empty();
        (0..MDT_COUNT).filter(has_part).collect::<Vec<_>>().into_iter()
    }

    /// Names and objects on an MDT that a call changes, as a set of bits.
    pub fn changed(&self, mdt: usize, work: &Work) -> u32 {
        let bit = |change: &Change| match change {
            Change::Put(row) | Change::Delete(row) => match row {
                Row::Entry { name, .. } => 1 << *name,
                Row::Inode { fid, .. } => 1 << (16 + fid.object()),
                _ => 0,
            },
        };
        self.part(mdt, work).iter().map(bit).fold(0, |all, one: u32| all | one)
    }

    /// The same with what it only looks at.
    pub fn touched(&self, mdt: usize, work: &Work) -> u32 {
        let name = self.name_of(work.call);
        let mut touched = self.changed(mdt, work);
        if self.mdt_of_name(name) == mdt {
            touched |= 1 << name;
            touched |= self.directory(name).map_or(0, |object| 1 << (16 + object));
        }
        touched
    }

    /// Whether an MDT can do its part on these rows.
    pub fn can(&self, mdt: usize, rows: &Rows, work: &Work) -> Result<(), Why> {
        let part = self.part(mdt, work);
        for change in &part {
            match change {
                Change::Delete(row) if !rows.has(row) => return Err(Why::Absent),
                Change::Delete(_) => {}
                Change::Put(Row::Entry { name, within, .. }) => {
                    let found = rows.entry(*name, *within);
                    let goes = |fid: Fid| {
                        part.contains(&Change::Delete(Row::Entry { name: *name, within: *within, fid }))
                    };
                    if found.is_some_and(|fid| !goes(fid)) {
                        return Err(Why::Exists);
                    }
                }
                Change::Put(Row::Inode { fid, .. }) => {
                    let is_moved = matches!(self.kind(work.call), Kind::Rename { .. });
                    if rows.has_inode(*fid) && !is_moved {
                        return Err(Why::Exists);
                    }
                }
                Change::Put(_) => {}
            }
        }
        if self.mdt_of_name(self.name_of(work.call)) == mdt
            && work.within != NOWHERE
            && !rows.has_inode(Fid(work.within))
        {
            return Err(Why::Absent);
        }
        let is_removed = matches!(self.kind(work.call), Kind::Rmdir { .. }) && self.home(work.fid) == mdt;
        if is_removed && rows.has_names_in(work.fid) {
            return Err(Why::NotEmpty);
        }
        Ok(())
    }

    /// For people.
    pub fn describe(&self, call: u8) -> String {
        let name = |name: u8| self.names[usize::from(name)].text;
        let client = self.client(call);
        match self.kind(call) {
            Kind::Mkdir { name: of, object } => {
                let to = self.objects[usize::from(object)].mdt;
                format!("mkdir {} on MDT{to} by client {client}", name(of))
            }
            Kind::Create { name: of, .. } => format!("create {} by client {client}", name(of)),
            Kind::Unlink { name: of } => format!("unlink {} by client {client}", name(of)),
            Kind::Rmdir { name: of } => format!("rmdir {} by client {client}", name(of)),
            Kind::Look { name: of } => format!("lookup {} by client {client}", name(of)),
            Kind::Rename { from, to } => {
                format!("rename {} to {} by client {client}", name(from), name(to))
            }
        }
    }
}

/// What an MDT tells another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    Prepare { id: Id, work: Work, is_replay: bool },
    Decide { id: Id, is_commit: bool },
    Hold { epoch: u8, items: Vec<Item> },
    Release { epoch: u8, up_to: Id },
    Forget { epoch: u8 },
}

impl What {
    /// The operation, if it is about one that is prepared.
    pub fn prepared(&self) -> Option<Id> {
        match self {
            What::Prepare { id, .. } | What::Decide { id, .. } => Some(*id),
            What::Hold { .. } | What::Release { .. } | What::Forget { .. } => None,
        }
    }
}

/// A part in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    pub id: Id,
    pub previous: Id,
    pub work: Work,
}
