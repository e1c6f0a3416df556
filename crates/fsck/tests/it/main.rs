//! The checker over small file systems: sound ones, undone ones, and one for each kind of damage.

#![allow(clippy::unwrap_used)]

mod damage;
mod disks;
mod legal;
mod world;
