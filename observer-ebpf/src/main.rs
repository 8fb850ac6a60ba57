//! The eBPF programs. Built for the BPF target they become the object that
//! `observer` loads; built for the host this is a stub, so that the whole
//! workspace can be checked, linted and tested with one command.
#![cfg_attr(
    target_arch = "bpf",
    no_std,
    no_main,
    feature(core_intrinsics),
    expect(internal_features, reason = "atomics: see probes/atomic.rs")
)]

#[cfg(target_arch = "bpf")]
mod probes;

#[cfg(not(target_arch = "bpf"))]
fn main() {
    eprintln!("observer-ebpf holds the kernel side: build it with `cargo xtask ebpf`");
    std::process::exit(3);
}
