//! Two imports and one target over a network that loses, repeats and reorders, and a target that dies at any moment.

#![allow(clippy::unwrap_used)]

mod bounds;
mod lineage;
mod lossless;
mod manifests;
mod network;
mod reconnects;
mod sessions;
mod versions;
