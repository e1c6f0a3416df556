//! The crash table: an operation over several MDTs, one before it that it depends on and one after it that depends on it, broken off
//! behind each frame that arrives and each sync of a disk, with every set of machines gone at that moment.
//!
//! What must hold when everything that comes back has come back: of the operations there are the first few and no others, each
//! wholly; what was acknowledged is there while somebody lives who has its record ([`holders`]); what was synced is there; all
//! calls of a living client succeed; a client that comes new finds all of it; and `fsck` finds nothing in the rows and objects.
//!
//! One more thing decides what is lost: when disks sync ([`Syncs`]). A machine dies by power or as a process ([`Death`]).

mod case;
mod down;
mod print;
mod stories;
mod table;
pub(crate) mod tree;

use crate::model::Op;
pub use case::run;
pub use down::{Death, Down, Syncs};
#[cfg(feature = "planted-faults")]
pub use print::print_planted;
pub use print::{Request, print};
pub use stories::{STORIES, Story};
pub use table::{Filter, Plan, Row, plan, run_story};

/// One run: what is operated on what, and where it is broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub story: &'static Story,
    pub mdt_count: u16,
    pub syncs: Syncs,
    /// Frames that have arrived and syncs that have ended since the first of the operations began.
    pub at: u64,
    pub down: Down,
    pub death: Death,
}

impl std::fmt::Display for Case {
    /// The command that repeats it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Case { story, mdt_count, syncs, at, down, death } = self;
        write!(
            f,
            "sheen sim --scenario crash-table --mdts {mdt_count} --op {} --sync {syncs} --death {death} --at {at} --down {down}",
            story.name
        )
    }
}

/// Who has the record of an operation, and brings it back when others have lost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It replays what is not durable.
    Client,
    /// In its log.
    Coordinator,
    /// Another MDT that its coordinator has told of it, and that keeps in memory what is not durable there.
    Witness,
}

/// With any one of these alive, nothing acknowledged is lost.
pub fn holders(op: &Op) -> &'static [Holder] {
    match op {
        Op::Mkdir { mdt_index: Some(_), .. } | Op::Mkdir { stripe_count: 2.., .. } => {
            &[Holder::Client, Holder::Coordinator, Holder::Witness]
        }
        _ => &[Holder::Client, Holder::Coordinator],
    }
}
