//! The target machine with in-memory stores and real client sessions (`rpc::Import`), frames delivered in order.

mod adopt;
mod early;
mod fetches;
mod harness;
mod locks;
mod operations;
mod restart;
