//! The machine with fake clients, over the in-memory store: single MDT, restarts, two MDTs back to back.
#![allow(clippy::unwrap_used)]

mod accesses;
mod advisory;
mod attributes;
mod by_space;
mod copies;
mod cross;
mod cross_random;
mod early;
mod fences;
mod harness;
mod hostile;
mod leaving;
mod locks;
mod migrate;
mod names;
mod rename_lock;
mod restart;
mod rooms;
mod sizes;
mod streams;
mod striped;
mod versions;
mod waits;
