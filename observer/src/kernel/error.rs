//! What can go wrong between here and the kernel.

use std::io;

/// A failure at the kernel boundary, with what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The process lacks a privilege.
    #[error(
        "not allowed to load eBPF programs: {missing} missing; run as root (sudo observer …) or grant them"
    )]
    Permission {
        /// The capabilities.
        missing: String,
    },
    /// The kernel exposes no type information.
    #[error(
        "cannot read the kernel's type information {path}: {source}; observer needs a kernel built with \
         CONFIG_DEBUG_INFO_BTF=y (every current distribution's)"
    )]
    NoBtf {
        /// Where it was looked for.
        path: &'static str,
        /// Why it could not be read.
        source: io::Error,
    },
    /// The type information could not be understood.
    #[error("cannot parse the kernel's type information {path}: {reason}")]
    BadBtf {
        /// Where it came from.
        path: &'static str,
        /// What was wrong.
        reason: String,
    },
    /// The kernel lacks a helper function that all programs need.
    #[error("observer needs Linux 5.15 or newer (for bpf_task_pt_regs); this is {release}")]
    TooOld {
        /// Kernel release.
        release: String,
    },
    /// The kernel's structures lack something the programs need.
    #[error("this kernel has no field {field} in struct {structure}; observer does not know it ({release})")]
    NoField {
        /// The structure.
        structure: &'static str,
        /// The field, as a path.
        field: &'static str,
        /// Kernel release.
        release: String,
    },
    /// The object that holds the programs cannot be used.
    #[error("cannot load the eBPF object{path}: {reason}")]
    Object {
        /// Its path, or nothing for the built-in one.
        path: String,
        /// What was wrong.
        reason: String,
    },
    /// A required program was refused.
    #[error("the kernel refused program {program} ({hook}): {reason}")]
    Program {
        /// Program name in the object.
        program: &'static str,
        /// The hook it serves.
        hook: &'static str,
        /// The kernel's words.
        reason: String,
    },
    /// A hook without which nothing can be measured does not exist here.
    #[error("this kernel has no {hook}, without which {point} cannot be seen (needs Linux {since})")]
    NoHook {
        /// The hook.
        hook: &'static str,
        /// The point it stands for.
        point: &'static str,
        /// First kernel version that has it.
        since: &'static str,
    },
    /// A table could not be read.
    #[error("cannot read the programs' table {table}: {reason}")]
    Table {
        /// Map name in the object.
        table: &'static str,
        /// What was wrong.
        reason: String,
    },
}
