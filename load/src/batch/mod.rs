//! Datagrams in bulk: preallocated buffers and the system calls that move
//! them. All of the crate's shared-memory `unsafe` is in here.

mod recv;
mod send;

pub use recv::{Datagram, ReadCall, RecvBatch};
pub use send::{SendBatch, SendCall};

/// Most messages one sendmmsg or recvmmsg takes (UIO_MAXIOV).
pub const MAX_BATCH: usize = 1024;
