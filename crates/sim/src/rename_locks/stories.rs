//! Which two renames meet, in which tree.

use super::rules::Rule;
use super::steps::Bounds;

pub(super) const MDT_COUNT: usize = 3;
pub(super) const DIRECTORY_COUNT_MAX: usize = 7;

/// By its place in the story; the first is the root.
pub(super) type Directory = u8;
/// Names in directories and inodes of directories, as a set of bits.
pub(super) type Resources = u16;

pub(super) const fn names_in(directory: Directory) -> Resources {
    1 << (2 * directory)
}

pub(super) const fn inode_of(directory: Directory) -> Resources {
    2 << (2 * directory)
}

/// What is moved, out of which directory and into which. Its coordinator is the MDT of the latter.
#[derive(Debug)]
pub(super) struct Move {
    pub what: Directory,
    pub from: Directory,
    pub to: Directory,
}

#[derive(Debug)]
pub struct Story {
    pub name: &'static str,
    /// By directory: its MDT and its parent.
    pub(super) directories: &'static [(usize, Directory)],
    /// One of each client.
    pub(super) moves: [Move; 2],
    /// Files need no rename lock.
    pub(super) is_of_directories: bool,
    /// What each client has a lock on when it begins.
    pub(super) locks: [Resources; 2],
}

const fn moved(what: Directory, from: Directory, to: Directory) -> Move {
    Move { what, from, to }
}

const SWAP: &[(usize, Directory)] = &[(0, 0), (1, 0), (2, 0), (1, 1), (2, 2)];

pub const STORIES: &[Story] = &[
    Story {
        name: "swap",
        directories: SWAP,
        moves: [moved(3, 1, 2), moved(4, 2, 1)],
        is_of_directories: true,
        locks: [names_in(1), names_in(2)],
    },
    Story {
        name: "swap-files",
        directories: SWAP,
        moves: [moved(3, 1, 2), moved(4, 2, 1)],
        is_of_directories: false,
        locks: [names_in(1), names_in(2)],
    },
    Story {
        name: "there-and-back",
        directories: &[(0, 0), (1, 0), (2, 0), (0, 1)],
        moves: [moved(3, 1, 2), moved(3, 2, 1)],
        is_of_directories: true,
        locks: [inode_of(3), names_in(2)],
    },
    Story {
        name: "one-source",
        directories: &[(0, 0), (1, 0), (2, 0), (1, 1), (0, 0)],
        moves: [moved(3, 1, 2), moved(3, 1, 4)],
        is_of_directories: true,
        locks: [names_in(4), inode_of(3)],
    },
    Story {
        name: "into-each-other",
        directories: &[(0, 0), (1, 0), (2, 0)],
        moves: [moved(1, 0, 2), moved(2, 0, 1)],
        is_of_directories: true,
        locks: [names_in(1), inode_of(1)],
    },
    // No claim of one is in the way of the other.
    Story {
        name: "into-subtrees",
        directories: &[(0, 0), (1, 0), (2, 0), (2, 1), (1, 2), (2, 3), (1, 4)],
        moves: [moved(3, 1, 6), moved(4, 2, 5)],
        is_of_directories: true,
        locks: [0, names_in(6)],
    },
    Story {
        name: "into-one",
        directories: &[(0, 0), (1, 0), (0, 0), (2, 0), (0, 2), (2, 3)],
        moves: [moved(4, 2, 1), moved(5, 3, 1)],
        is_of_directories: true,
        locks: [0, names_in(1)],
    },
    // One of them on the MDT that has the rename lock.
    Story {
        name: "beside-the-lock",
        directories: &[(0, 0), (0, 0), (1, 0), (1, 2), (0, 1)],
        moves: [moved(3, 2, 1), moved(4, 1, 2)],
        is_of_directories: true,
        locks: [names_in(2), names_in(1)],
    },
];

impl Story {
    pub fn named(name: &str) -> Option<&'static Story> {
        STORIES.iter().find(|story| story.name == name)
    }

    pub(super) fn home(&self, directory: Directory) -> usize {
        self.directories.get(directory as usize).map_or(0, |(mdt, _)| *mdt)
    }

    pub(super) fn coordinator(&self, op: usize) -> usize {
        self.home(self.moves[op].to)
    }

    /// What a rename changes on an MDT.
    pub(super) fn resources(&self, op: usize, mdt: usize) -> Resources {
        let Move { what, from, to } = self.moves[op];
        let is_here = |directory: Directory| self.home(directory) == mdt;
        let if_here = |directory, resources| if is_here(directory) { resources } else { 0 };
        if_here(from, names_in(from)) | if_here(to, names_in(to)) | if_here(what, inode_of(what))
    }

    /// The other MDTs that a rename changes something on.
    pub(super) fn participants(&self, op: usize) -> impl Iterator<Item = usize> {
        let coordinator = self.coordinator(op);
        (0..MDT_COUNT).filter(move |mdt| *mdt != coordinator && self.resources(op, *mdt) != 0)
    }

    /// The MDT that has the lock of a client.
    pub(super) fn home_of_lock(&self, client: usize) -> usize {
        let resources = self.locks[client];
        let has = |at: &usize| resources & (names_in(*at as u8) | inode_of(*at as u8)) != 0;
        let directory = (0..self.directories.len()).find(has).unwrap_or(0);
        self.home(directory as Directory)
    }

    pub(super) fn describe(&self, op: usize) -> String {
        let Move { what, from, to } = self.moves[op];
        format!("rename {op} ({what} from {from} to {to})")
    }
}

const NOTHING: Bounds = Bounds::nothing(200_000);
const RESTART: Bounds = Bounds { restarts: 1, ..NOTHING };
const SILENCE: Bounds = Bounds { silences: 1, ..NOTHING };
const DEPARTURE: Bounds = Bounds { departures: 1, ..NOTHING };
const RESTART_AND_DEPARTURE: Bounds = Bounds { restarts: 1, departures: 1, ..NOTHING };
const COPY: Bounds = Bounds { copies: 1, ..NOTHING };
const GRANT: Bounds = Bounds { grants: 1, ..NOTHING };

/// With which story, and how much that may happen, each rule is missed.
pub const SHOWN_BY: &[(Rule, &str, Bounds)] = &[
    (Rule::RenameLock, "into-each-other", NOTHING),
    (Rule::LockBeforeClaims, "into-one", NOTHING),
    (Rule::HeldUntilApplied, "into-each-other", NOTHING),
    (Rule::PreparesGiveWay, "swap-files", NOTHING),
    (Rule::BackOffReleases, "swap-files", NOTHING),
    (Rule::BackOffUnlocks, "swap", NOTHING),
    (Rule::WalkAwaitsFrozen, "into-each-other", NOTHING),
    (Rule::PreparedIsFrozen, "one-source", RESTART),
    (Rule::PreparesCheck, "one-source", NOTHING),
    (Rule::UnlockedIsRemembered, "swap", COPY),
    (Rule::UnwantedGoesBack, "swap", RESTART_AND_DEPARTURE),
    (Rule::UnlockAnswersWaiter, "swap", DEPARTURE),
    (Rule::LostLockStartsAnew, "into-subtrees", RESTART),
    (Rule::HeardBeforeGranting, "into-subtrees", RESTART),
    (Rule::RestartFreesLock, "swap", RESTART),
    (Rule::SilentHolderStops, "into-each-other", SILENCE),
    (Rule::GoneGivesBack, "swap", DEPARTURE),
    (Rule::UndecidedIsAsked, "swap", DEPARTURE),
    (Rule::UnderWayIsNotVoid, "swap", NOTHING),
    (Rule::DecisionsAreKept, "swap-files", RESTART),
    (Rule::PreparesAreKept, "swap-files", RESTART),
    (Rule::LocksAreCalledBack, "swap", NOTHING),
    (Rule::NoGrantBesideClaims, "swap", GRANT),
    (Rule::CancelsWhileWaiting, "swap", NOTHING),
    (Rule::GoneHolderIsEvicted, "swap", DEPARTURE),
];
