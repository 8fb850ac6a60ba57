//! Building the BPF object so that its bytes depend on the sources and the
//! tools, and on nothing else: not on where the checkout, cargo's home or the
//! registry's copies lie, nor on the caller's flags and profile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::toolchain::{Route, Toolchain};
use super::{strip, toolchain};
use crate::{run, workspace};

/// Builds the object; the bytes as they are checked in.
///
/// # Errors
///
/// If the build fails, or its result names a path of this machine.
pub(crate) fn build(root: &Path, with: &Toolchain) -> Result<Vec<u8>> {
    let target_dir = root.join("target/ebpf");
    let cargo = || {
        let mut cargo = run::outside_cargo(&with.cargo);
        cargo.current_dir(root).env("RUSTC", &with.rustc);
        // Both routes use what only a nightly would allow: a target without
        // a std, and build-std.
        cargo.env("RUSTC_BOOTSTRAP", "1");
        cargo
    };
    // The registry's copies must be there before their paths can be mapped.
    run::succeed(cargo().args(["fetch", "--quiet", "--locked"]))?;
    let mapped = mapped_paths(root, with)?;
    let mut build = cargo();
    build
        .args(["build", "--locked", "--release", "--target", toolchain::TARGET])
        .args(["--package", workspace::PROBES, "--bin", workspace::PROBES, "--target-dir"])
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", encoded_flags(&with.linker, &mapped))
        // Cargo.toml's release profile is for the host.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3")
        .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "false");
    if with.route == Route::Nightly {
        build.args(["-Z", "build-std=core"]);
    }
    run::succeed(&mut build)?;
    let file = target_dir.join(toolchain::TARGET).join("release").join(workspace::PROBES);
    let linked = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let object = strip::strip(&linked)?;
    let private: Vec<&Path> = mapped.iter().map(|(from, _)| from.as_path()).collect();
    refuse_paths(&object, &private)?;
    Ok(object)
}

/// Directories of this machine, and what the object calls them.
fn mapped_paths(root: &Path, with: &Toolchain) -> Result<Vec<(PathBuf, &'static str)>> {
    // rustc lets the last match win, so the more special ones come later.
    let mut mapped = Vec::new();
    if let Some(home) = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.parent().is_some()) {
        mapped.push((home, "/home"));
    }
    mapped.push((root.to_path_buf(), "/observer"));
    let home = workspace::cargo_home().context("neither CARGO_HOME nor HOME is set: set one")?;
    let registries = home.join("registry/src");
    let entries = std::fs::read_dir(&registries);
    // Absent where the dependencies are vendored.
    for entry in entries.into_iter().flatten() {
        let entry = entry.with_context(|| format!("cannot list {}", registries.display()))?;
        mapped.push((entry.path(), "/cargo"));
    }
    if with.route == Route::Nightly {
        let sysroot = toolchain::sysroot(&with.rustc).context("the compiler does not tell its sysroot")?;
        mapped.push((sysroot.join("lib/rustlib/src/rust"), "/rustc"));
    }
    Ok(mapped)
}

/// The compiler's flags, in the form that allows blanks in paths.
fn encoded_flags(linker: &Path, mapped: &[(PathBuf, &str)]) -> OsString {
    let mut linker_flag = OsString::from("-Clinker=");
    linker_flag.push(linker);
    let mut flags = vec![
        linker_flag,
        // Type and line information in the kernel's own format; it is made
        // from DWARF, which is stripped afterwards.
        "-Clink-arg=--btf".into(),
        "-Cdebuginfo=2".into(),
        // 32-bit ALU and all jumps: kernel 5.1.
        "-Ctarget-cpu=v3".into(),
    ];
    for (from, to) in mapped {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(from);
        flag.push("=");
        flag.push(to);
        flags.push(flag);
    }
    flags.join(&OsString::from("\u{1f}"))
}

/// Refuses an object that names one of `private`.
fn refuse_paths(object: &[u8], private: &[&Path]) -> Result<()> {
    for path in private {
        let needle = path.as_os_str().as_encoded_bytes();
        if object.windows(needle.len()).any(|window| window == needle) {
            bail!("the object names {}: map that path in xtask/src/ebpf/build.rs", path.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_survive_blanks_and_keep_their_order() {
        let mapped = [(PathBuf::from("/a b"), "/x"), (PathBuf::from("/a b/c"), "/y")];
        let flags = encoded_flags(Path::new("/t/bpf-linker"), &mapped).into_string().unwrap();
        let flags: Vec<&str> = flags.split('\u{1f}').collect();
        assert_eq!(flags[0], "-Clinker=/t/bpf-linker");
        assert_eq!(flags[4..], ["--remap-path-prefix=/a b=/x", "--remap-path-prefix=/a b/c=/y"]);
    }

    #[test]
    fn an_object_that_names_a_private_path_is_refused() {
        let private = [Path::new("/nobody/here")];
        refuse_paths(b"\0/observer/src/main.rs\0", &private).unwrap();
        refuse_paths(b"", &private).unwrap();
        let error = refuse_paths(b"\0/nobody/here/x.rs\0", &private).unwrap_err().to_string();
        assert!(error.contains("/nobody/here"), "{error}");
    }
}
