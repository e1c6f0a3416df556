//! Short programs, each of which has something that can go wrong.

use super::explore::Bounds;
use super::rules::Rule;
use super::state::{Row, Rows};
use super::work::{Fid, Kind, MDT_COUNT, NOWHERE};

/// Where a name is, and in which directory, if a call makes that.
#[derive(Debug)]
pub struct Name {
    pub text: &'static str,
    pub mdt: usize,
    pub within: Option<u8>,
}

#[derive(Debug)]
pub struct Object {
    pub mdt: usize,
    /// The name under which it is there from the beginning.
    pub is_at: Option<u8>,
}

#[derive(Debug)]
pub struct Planned {
    pub client: usize,
    pub kind: Kind,
    /// Calls that have to be there if it is.
    pub needs: &'static [u8],
    /// Others may be in its way.
    pub may_fail: bool,
    /// It looks for what may never come.
    pub may_wait: bool,
}

const fn call(client: usize, kind: Kind, needs: &'static [u8]) -> Planned {
    Planned { client, kind, needs, may_fail: false, may_wait: false }
}

const fn contended(client: usize, kind: Kind, needs: &'static [u8]) -> Planned {
    Planned { client, kind, needs, may_fail: true, may_wait: false }
}

const fn look(client: usize, name: u8) -> Planned {
    Planned { client, kind: Kind::Look { name }, needs: &[], may_fail: true, may_wait: true }
}

const fn name(text: &'static str, mdt: usize) -> Name {
    Name { text, mdt, within: None }
}

const fn name_in(text: &'static str, mdt: usize, object: u8) -> Name {
    Name { text, mdt, within: Some(object) }
}

const fn made(mdt: usize) -> Object {
    Object { mdt, is_at: None }
}

const fn there(mdt: usize, name: u8) -> Object {
    Object { mdt, is_at: Some(name) }
}

#[derive(Debug)]
pub struct Story {
    pub name: &'static str,
    pub names: &'static [Name],
    pub objects: &'static [Object],
    /// Of each client in its order.
    pub calls: &'static [Planned],
}

impl Story {
    pub fn named(name: &str) -> Option<&'static Story> {
        STORIES.iter().find(|story| story.name == name)
    }

    pub fn client_count(&self) -> usize {
        self.calls.iter().map(|call| call.client + 1).max().unwrap_or(0)
    }

    pub fn program(&self, client: usize) -> impl Iterator<Item = u8> {
        let calls = self.calls.iter().enumerate().filter(move |(_, call)| call.client == client);
        calls.map(|(number, _)| number as u8)
    }

    pub fn rows_at_first(&self) -> [Rows; MDT_COUNT] {
        let mut rows: [Rows; MDT_COUNT] = Default::default();
        for (number, object) in self.objects.iter().enumerate() {
            let Some(name) = object.is_at else { continue };
            let fid = Fid::new(number as u8, 0);
            rows[self.mdt_of_name(name)].put(Row::Entry { name, within: NOWHERE, fid });
            rows[object.mdt].put(Row::Inode { fid, name });
        }
        rows
    }

    /// The MDT that makes an object on another one, in a stream.
    pub fn remote_maker(&self, fid: Fid) -> Option<usize> {
        let makes = |kind: &Kind| matches!(kind, Kind::Mkdir { object, .. } if *object == fid.object());
        let call = self.calls.iter().position(|call| makes(&call.kind))? as u8;
        let maker = self.coordinator(call);
        (maker != self.home(fid)).then_some(maker)
    }
}

pub const STORIES: &[Story] = &[
    Story {
        name: "mkdir-create",
        names: &[name("/d0/x", 0), name_in("x/f", 1, 0)],
        objects: &[made(1), made(1)],
        calls: &[
            call(0, Kind::Mkdir { name: 0, object: 0 }, &[]),
            call(0, Kind::Create { name: 1, object: 1 }, &[0]),
        ],
    },
    Story {
        name: "mkdir-mkdir",
        names: &[name("/d0/x", 0), name("/d0/y", 0)],
        objects: &[made(1), made(1)],
        calls: &[
            call(0, Kind::Mkdir { name: 0, object: 0 }, &[]),
            call(0, Kind::Mkdir { name: 1, object: 1 }, &[]),
        ],
    },
    Story {
        name: "mkdir-below",
        names: &[name("/d2/a", 2), name_in("a/x", 0, 0), name_in("x/f", 1, 1)],
        objects: &[made(0), made(1), made(1)],
        calls: &[
            call(0, Kind::Mkdir { name: 0, object: 0 }, &[]),
            call(0, Kind::Mkdir { name: 1, object: 1 }, &[0]),
            call(0, Kind::Create { name: 2, object: 2 }, &[1]),
        ],
    },
    Story {
        name: "mkdir-rmdir",
        names: &[name("/d0/x", 0), name_in("x/g", 1, 0)],
        objects: &[made(1), made(1)],
        calls: &[
            call(0, Kind::Mkdir { name: 0, object: 0 }, &[]),
            contended(0, Kind::Rmdir { name: 0 }, &[0]),
            look(1, 0),
            contended(1, Kind::Create { name: 1, object: 1 }, &[0]),
        ],
    },
    Story {
        name: "rmdir-create",
        names: &[name("/d0/x", 0), name_in("x/g", 1, 0)],
        objects: &[there(1, 0), made(1)],
        calls: &[
            contended(0, Kind::Rmdir { name: 0 }, &[]),
            look(1, 0),
            contended(1, Kind::Create { name: 1, object: 1 }, &[]),
        ],
    },
    Story {
        name: "unlink-mkdir",
        names: &[name("/d0/x", 0)],
        objects: &[there(0, 0), made(1)],
        calls: &[call(0, Kind::Unlink { name: 0 }, &[]), call(0, Kind::Mkdir { name: 0, object: 1 }, &[0])],
    },
    Story {
        name: "unlink-by-one-mkdir-by-other",
        names: &[name("/d0/x", 0)],
        objects: &[there(0, 0), made(1)],
        calls: &[
            call(0, Kind::Unlink { name: 0 }, &[]),
            contended(1, Kind::Mkdir { name: 0, object: 1 }, &[0]),
        ],
    },
    Story {
        name: "unlink-remote-mkdir",
        names: &[name("/d0/x", 0)],
        objects: &[there(1, 0), made(2)],
        calls: &[call(0, Kind::Unlink { name: 0 }, &[]), call(0, Kind::Mkdir { name: 0, object: 1 }, &[0])],
    },
    Story {
        name: "rename-two",
        names: &[name("/d1/o", 1), name("/d0/q", 0)],
        objects: &[there(1, 0)],
        calls: &[
            call(0, Kind::Rename { from: 0, to: 1 }, &[]),
            call(0, Kind::Rename { from: 1, to: 0 }, &[0]),
        ],
    },
    Story {
        name: "rename-three",
        names: &[name("/d1/o", 1), name("/d0/q", 0)],
        objects: &[there(2, 0)],
        calls: &[call(0, Kind::Rename { from: 0, to: 1 }, &[]), call(0, Kind::Unlink { name: 1 }, &[0])],
    },
    Story {
        name: "rename-over",
        names: &[name("/d1/o", 1), name("/d0/q", 0)],
        objects: &[there(1, 0), there(2, 1)],
        calls: &[call(0, Kind::Rename { from: 0, to: 1 }, &[]), call(0, Kind::Unlink { name: 1 }, &[0])],
    },
    Story {
        name: "mkdir-rename",
        names: &[name("/d0/x", 0), name("/d2/y", 2)],
        objects: &[made(1)],
        calls: &[
            call(0, Kind::Mkdir { name: 0, object: 0 }, &[]),
            call(0, Kind::Rename { from: 0, to: 1 }, &[0]),
        ],
    },
    Story {
        name: "rename-there-and-back",
        names: &[name("/d1/o", 1), name("/d0/q", 0)],
        objects: &[there(2, 0)],
        calls: &[
            contended(0, Kind::Rename { from: 0, to: 1 }, &[]),
            contended(1, Kind::Rename { from: 1, to: 0 }, &[]),
        ],
    },
    Story {
        name: "rename-create-unlink",
        names: &[name("/d0/f", 0), name("/d1/g", 1)],
        objects: &[there(0, 0), made(0)],
        calls: &[
            call(0, Kind::Rename { from: 0, to: 1 }, &[]),
            contended(1, Kind::Create { name: 0, object: 1 }, &[0]),
            contended(1, Kind::Unlink { name: 0 }, &[1]),
        ],
    },
    Story {
        name: "move-create-unlink",
        names: &[name("/d0/f", 0), name("/d0/g", 0)],
        objects: &[there(0, 0), made(0)],
        calls: &[
            call(0, Kind::Rename { from: 0, to: 1 }, &[]),
            contended(1, Kind::Create { name: 0, object: 1 }, &[0]),
            contended(1, Kind::Unlink { name: 0 }, &[1]),
        ],
    },
];

const fn within(crashes: u8, deaths: u8, checkpoints: u8) -> Bounds {
    Bounds { crashes, deaths, checkpoints, copies: 0, weak: Bounds::ALL_MDTS, state_count_max: 3_000_000 }
}

/// For each rule a story and how much has to happen in it until it is missed.
pub const SHOWN_BY: &[(Rule, &str, Bounds)] = &[
    (Rule::PartsLeaveDurable, "mkdir-create", within(1, 1, 0)),
    (Rule::DecisionsLeaveDurable, "rename-two", within(1, 1, 0)),
    (Rule::PreparesAnswerDurable, "rename-two", within(1, 0, 0)),
    (Rule::DecisionsAnswerDurable, "rename-two", within(1, 0, 0)),
    (Rule::ReleasesAnswerDurable, "mkdir-create", within(1, 0, 0)),
    (Rule::NoGaps, "mkdir-mkdir", within(1, 0, 0)),
    (Rule::PositionWithParts, "mkdir-create", within(1, 0, 0)),
    (Rule::VoidIsNotExecuted, "mkdir-mkdir", within(1, 0, 0)),
    (Rule::HeldUntilRecovered, "mkdir-create", within(2, 1, 0)),
    (Rule::VoidIsForgotten, "mkdir-create", within(1, 1, 0)),
    (Rule::ForgetLast, "mkdir-mkdir", Bounds { weak: 0b001, ..within(2, 1, 0) }),
    (Rule::Witness, "mkdir-create", within(1, 1, 0)),
    (Rule::WitnessBeforeEnd, "mkdir-create", within(1, 1, 0)),
    (Rule::AbsenceIsAsked, "mkdir-create", within(0, 0, 0)),
    (Rule::FrozenIsAwaited, "rmdir-create", within(0, 0, 0)),
    (Rule::PreparesAreLoaded, "rename-two", within(1, 0, 0)),
    (Rule::ReplacedAtOnce, "rmdir-create", within(2, 0, 0)),
    (Rule::UndecidedInRecovery, "rmdir-create", within(1, 0, 0)),
    (Rule::UnderWayIsNotVoid, "rename-two", within(0, 0, 0)),
    (Rule::DecidedIsRemembered, "rename-two", Bounds { copies: 1, ..within(0, 0, 0) }),
    (Rule::HeardFirst, "unlink-by-one-mkdir-by-other", within(1, 0, 0)),
    (Rule::ReplaysInOrder, "unlink-mkdir", within(1, 0, 0)),
    (Rule::MetIsNamed, "move-create-unlink", within(1, 1, 0)),
    (Rule::SlotWithRequest, "mkdir-create", within(1, 0, 0)),
    (Rule::KeptUntilDurable, "mkdir-create", within(1, 0, 0)),
    (Rule::LogKeptUntilCheckpoint, "mkdir-create", within(1, 0, 1)),
    (Rule::CheckpointsHaveAllRows, "mkdir-create", within(1, 0, 1)),
];
