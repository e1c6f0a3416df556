//! OSTs to which stripes are dealt out: all of them, or those of a pool.

use super::ALL_OSTS;
use super::rooms::Rooms;
use crate::spaces::Owed;
use base::Status;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Group {
    pub osts: Vec<u16>,
    /// Those of them that get none, for they are full or away and others are not.
    closed: BTreeSet<u16>,
    /// Of the others, in the same order, when their rooms differ much; `None`: they take turns.
    shares: Option<Vec<(u16, i64)>>,
    turn: Turn,
    /// What comes next if what is dealt out just now is kept.
    turn_if_kept: Option<Turn>,
}

/// Who is next.
#[derive(Clone, Debug, Default)]
struct Turn {
    /// Place in `osts`.
    next: usize,
    owed: Owed,
}

impl Group {
    /// The same turns among other OSTs.
    pub fn over(self, osts: Vec<u16>) -> Group {
        Group { osts, turn: self.turn, ..Group::default() }
    }

    pub fn regard(&mut self, rooms: &Rooms) {
        let (open, shares) = rooms.open(&self.osts);
        let open: BTreeSet<u16> = open.into_iter().collect();
        self.closed = self.osts.iter().copied().filter(|ost| !open.contains(ost)).collect();
        self.shares = shares;
    }

    /// Different OSTs for so many stripes, or for as many as there are OSTs that are not closed. The one that is named is the first, also
    /// when it is closed; the others follow it in order.
    ///
    /// # Errors
    /// `Invalid` if the one that is named is not among them.
    pub fn deal(&mut self, first: Option<u16>, stripe_count: usize) -> Result<Vec<u16>, Status> {
        let first = match first {
            None | Some(ALL_OSTS) => None,
            Some(index) => Some(self.osts.iter().position(|ost| *ost == index).ok_or(Status::Invalid)?),
        };
        let mut turn = self.turn_if_kept.take().unwrap_or_else(|| self.turn.clone());
        let dealt = match (&self.shares, first) {
            (Some(shares), None) => turn.owed.next(shares, stripe_count),
            _ => self.deal_in_order(&mut turn, first, stripe_count),
        };
        self.turn_if_kept = Some(turn);
        Ok(dealt)
    }

    fn deal_in_order(&self, turn: &mut Turn, first: Option<usize>, stripe_count: usize) -> Vec<u16> {
        let from = first.unwrap_or(turn.next);
        let round = self.osts.iter().copied().enumerate().cycle().skip(from).take(self.osts.len());
        let is_dealt = |(place, ost): &(usize, u16)| Some(*place) == first || !self.closed.contains(ost);
        let dealt: Vec<(usize, u16)> = round.filter(is_dealt).take(stripe_count).collect();
        if let Some((last, _)) = dealt.last() {
            turn.next = (last + 1) % self.osts.len();
        }
        dealt.into_iter().map(|(_, ost)| ost).collect()
    }

    /// Whether anything was dealt out.
    pub fn settle(&mut self, is_kept: bool) -> bool {
        let turn = self.turn_if_kept.take();
        let was_dealt = turn.is_some();
        if let Some(turn) = turn.filter(|_| is_kept) {
            self.turn = turn;
        }
        was_dealt
    }
}
