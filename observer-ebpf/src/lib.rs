//! What the kernel side and the user side of observer share.
//!
//! - [`stamp`]: the 32 bytes an application writes at the start of a datagram
//!   so that the datagram can be followed through the kernel.
//! - [`abi`]: the records the eBPF programs write to the rings, the tables
//!   they keep, and the constants userspace hands them at load time.
//!
//! The library is `no_std` and free of dependencies: it is compiled for the
//! host and for the BPF target alike. The programs themselves live in this
//! package's binary, under `src/probes/`.
#![cfg_attr(not(test), no_std)]

pub mod abi;
pub mod stamp;
