//! What must be true of a state.

use super::state::{Outcome, Phase, State};
use super::steps::Machine;
use super::stories::{Directory, Move};

impl Machine<'_> {
    /// What is wrong where nothing goes on any more.
    pub(super) fn judge_rest(&self, state: &State) -> Option<&'static str> {
        if state.ops.iter().any(|op| !op.has_ended()) {
            return Some("a rename waits for ever");
        }
        if !state.messages.is_empty() || !state.calls.is_empty() {
            return Some("a message is never answered");
        }
        if !state.rename.claims.is_empty() {
            return Some("nobody gives back the rename lock");
        }
        let has_left = |mdt: &super::state::Mdt| {
            !mdt.claims.is_empty() || !mdt.prepared.is_empty() || !mdt.decisions.is_empty()
        };
        if state.mdts.iter().any(has_left) {
            return Some("something stays claimed, prepared or decided");
        }
        if !self.names_are_parents(state) {
            return Some("a name and the parent of what it leads to differ");
        }
        if !self.is_explained(state) {
            return Some("no order of the renames explains the tree");
        }
        None
    }

    fn names_are_parents(&self, state: &State) -> bool {
        let count = self.story.directories.len();
        (1..count).all(|child| {
            (0..count).all(|parent| {
                let has_name = state.names[parent] >> child & 1 == 1;
                has_name == (state.parents[child] as usize == parent)
            })
        })
    }

    /// Whether some order of the renames has these outcomes and ends with this tree.
    fn is_explained(&self, state: &State) -> bool {
        [[0, 1], [1, 0]].into_iter().any(|order| {
            let mut parents = self.first_parents();
            let agrees = order.into_iter().all(|op| {
                let Move { what, from, to } = self.story.moves[op];
                let is_possible = parents[what as usize] == from && !is_below(&parents, to, what);
                match state.ops[op].phase {
                    Phase::Ended(Outcome::Done) => {
                        parents[what as usize] = to;
                        is_possible
                    }
                    Phase::Ended(Outcome::Refused) => !is_possible,
                    _ => true,
                }
            });
            agrees && parents == state.parents
        })
    }
}

/// Whether the way up from a directory leads over another one, or is that one.
fn is_below(parents: &[Directory], directory: Directory, above: Directory) -> bool {
    let mut at = directory;
    for _ in 0..parents.len() {
        if at == above {
            return true;
        }
        at = parents[at as usize];
    }
    false
}
