//! observer: where the tail latency of UDP datagrams hides.

pub mod host;
pub mod kernel;
pub mod source;
