//! Every state that two renames over three MDTs can come to by their locks, wherever a message overtakes another one, a client or an
//! MDT is lost, or a session is given up.
//!
//! A model like `dne_model`, written beside the machines (`mds::machine::cross`, its participant's side, and `ldlm`), with what that
//! one leaves out: claims and locks of clients, the one rename lock on MDT0000, and the walk up from the new parent. What is durable it
//! leaves to that one: here each write is at once. Messages arrive in any order. Each rule can be left out, and then some state has to
//! show what it was good for: nobody goes on any more, or the tree is not what an order of the calls makes.

mod check;
mod deliver;
mod loss;
mod print;
mod rules;
mod state;
mod steps;
mod stories;

pub use print::{Request, print};
pub use rules::{Rule, Rules};
pub use steps::{Bounds, explore};
pub use stories::{SHOWN_BY, STORIES, Story};
