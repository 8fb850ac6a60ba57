//! Where things are in this checkout.

use std::path::{Path, PathBuf};

/// The BPF object that is checked in and built into `observer`.
pub(crate) const OBJECT: &str = "observer/bpf/observer.bpf.o";
/// The record of how [`OBJECT`] was made.
pub(crate) const RECORD: &str = "observer/bpf/TOOLS.toml";
/// The package the object is built from.
pub(crate) const PROBES: &str = "observer-ebpf";

/// The top of the checkout.
pub(crate) fn root() -> PathBuf {
    // `cargo run` sets it, so that a checkout that was moved is found too.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// Cargo's own directory: `CARGO_HOME`, or `.cargo` in the home directory.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// Where this workspace's build results go.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}
