//! Every state that the rules for operations over several MDTs can come to, for short programs.
//!
//! This is a model, written beside the machines (`mds::machine::{cross, streams}`) and not made of them: an MDT is a set of rows, a
//! log of which some prefix is durable, and what it keeps in memory; what it knows of time is that some things happen later. So few
//! parts have so few states that all of them are visited, with every crash at every place, and a second one during the recovery
//! from the first. Each rule can be left out, and then some state has to show what it was good for.

mod explore;
mod prepare;
mod print;
mod recovery;
mod rules;
mod state;
mod steps;
mod stories;
mod streams;
mod work;

pub use explore::{Bounds, explore};
pub use print::{Request, print};
pub use rules::{Rule, Rules};
pub use stories::{SHOWN_BY, STORIES, Story};
