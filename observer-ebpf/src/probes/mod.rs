//! The probes.
