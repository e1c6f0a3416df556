//! etcd as keeper, against real members on loopback ports. Without the feature `etcd`, or without the program, there is nothing to test.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used)]

mod etcd;
mod members;
mod rows;
