//! The kernel boundary: finding out what the running kernel offers, loading
//! and attaching the programs, and reading their tables.
//!
//! ```text
//! preflight ─ may we?            btf ─ where are the fields?
//!        └────────── attach ──────────┘
//!                      │ links (gone with the process), maps
//!              tables, source::ring
//! ```
//!
//! Nothing is pinned and no sysctl is written: everything attached is held by
//! file descriptors and goes when the process does, however it ends.

pub mod attach;
pub mod btf;
mod error;
pub mod hooks;
mod mapped;
pub mod preflight;
pub(crate) mod tables;
mod tracefs;

pub use error::KernelError;
