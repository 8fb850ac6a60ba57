//! Finding a toolchain for BPF, or setting one up.
//!
//! Two things are needed: a compiler with a `core` for the BPF target, and
//! `bpf-linker` built against an LLVM no older than the compiler's.
//!
//! 1. Debian's `rustc-web` with `libstd-rust-web-dev-bpf` ships that `core`
//!    ready-made: no nightly, nothing but apt.
//! 2. A nightly of rustup with the `rust-src` component builds it.
//!
//! The first that is there is used; where neither is, the first is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::record::Tools;
use crate::{apt, run, workspace};

/// The target of the programs: little-endian, as every host observer runs on.
pub(crate) const TARGET: &str = "bpfel-unknown-none";

/// The linker's release the object is made with.
const LINKER_VERSION: &str = "0.13.0";
/// LLVM releases that release can be built against.
const LINKER_LLVMS: std::ops::RangeInclusive<u32> = 21..=23;
/// Oldest compiler that can build the probes (edition 2024 and the
/// workspace's `rust-version`).
const OLDEST_RUSTC: (u32, u32) = (1, 95);

/// Debian's compiler for its browsers, newer than its `rustc`, with the `core`
/// for BPF.
const PACKAGES: &[&str] = &["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"];

/// Opens the error where no route is open.
const NO_COMPILER: &str = "there is no Rust compiler with a core library for BPF here, and setting one up \
                           failed (`rustup toolchain install nightly --component rust-src` serves as well)";

/// Where `core` for the target comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Ready-made, from the distribution.
    Distribution,
    /// Built along (`-Z build-std`), from rustup's `rust-src`.
    Nightly,
}

/// A toolchain that can build the probes.
#[derive(Debug)]
pub(crate) struct Toolchain {
    /// Where `core` comes from.
    pub(crate) route: Route,
    /// The compiler.
    pub(crate) rustc: PathBuf,
    /// The cargo of the same release.
    pub(crate) cargo: PathBuf,
    /// The linker.
    pub(crate) linker: PathBuf,
    /// All versions.
    pub(crate) tools: Tools,
}

/// A compiler that was found, before its linker is.
struct Compiler {
    route: Route,
    rustc: PathBuf,
    cargo: PathBuf,
    version: Version,
}

/// What `rustc -vV` says that matters here.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    /// The first line, without the program's name.
    full: String,
    major_minor: (u32, u32),
    llvm: String,
    llvm_major: u32,
}

/// Finds a toolchain, setting up what is missing.
///
/// # Errors
///
/// If there is none and none can be installed.
pub(crate) fn set_up(root: &Path) -> Result<Toolchain> {
    let compiler = match find_compiler() {
        Some(compiler) => compiler,
        None => {
            apt::install(PACKAGES, "a Rust compiler with a core library for BPF").context(NO_COMPILER)?;
            find_compiler().context("what was installed brings none").context(NO_COMPILER)?
        }
    };
    let linker = find_linker(root, compiler.version.llvm_major);
    let (linker, linker_llvm) = match linker {
        Some(found) => found,
        None => {
            install_linker(root, compiler.version.llvm_major)?;
            find_linker(root, compiler.version.llvm_major)
                .context("bpf-linker was installed, but does not run")?
        }
    };
    let route = match compiler.route {
        Route::Distribution => "distribution",
        Route::Nightly => "nightly",
    };
    let tools = Tools {
        route: route.to_owned(),
        rustc: compiler.version.full,
        rustc_llvm: compiler.version.llvm,
        bpf_linker: LINKER_VERSION.to_owned(),
        linker_llvm,
    };
    let Compiler { route, rustc, cargo, .. } = compiler;
    Ok(Toolchain { route, rustc, cargo, linker, tools })
}

fn find_compiler() -> Option<Compiler> {
    distribution().or_else(nightly)
}

/// A compiler of the distribution with a ready-made `core`.
fn distribution() -> Option<Compiler> {
    let (rustc, cargo) = (PathBuf::from("/usr/bin/rustc"), PathBuf::from("/usr/bin/cargo"));
    let version = version_of(&rustc).filter(|v| cargo.is_file() && v.major_minor >= OLDEST_RUSTC)?;
    let libraries =
        run::output(run::outside_cargo(&rustc).args(["--print", "target-libdir", "--target", TARGET]))
            .ok()?;
    let has_core = std::fs::read_dir(libraries.trim())
        .ok()?
        .filter_map(Result::ok)
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"));
    has_core.then_some(Compiler { route: Route::Distribution, rustc, cargo, version })
}

/// A nightly of rustup with the sources of `core`.
fn nightly() -> Option<Compiler> {
    let ask = |program: &str| {
        let found =
            run::output(run::outside_cargo("rustup").args(["which", "--toolchain", "nightly", program]));
        found.ok().map(|path| PathBuf::from(path.trim()))
    };
    let (rustc, cargo) = (ask("rustc")?, ask("cargo")?);
    let version = version_of(&rustc).filter(|v| v.major_minor >= OLDEST_RUSTC)?;
    let sysroot = sysroot(&rustc)?;
    let has_sources = sysroot.join("lib/rustlib/src/rust/library/Cargo.lock").is_file();
    has_sources.then_some(Compiler { route: Route::Nightly, rustc, cargo, version })
}

/// Where `rustc` has its libraries and, if installed, their sources.
pub(crate) fn sysroot(rustc: &Path) -> Option<PathBuf> {
    let path = run::output(run::outside_cargo(rustc).args(["--print", "sysroot"])).ok()?;
    Some(PathBuf::from(path.trim()))
}

fn version_of(rustc: &Path) -> Option<Version> {
    parse_version(&run::output(run::outside_cargo(rustc).arg("-vV")).ok()?)
}

fn parse_version(text: &str) -> Option<Version> {
    let full = text.lines().next()?.strip_prefix("rustc ")?.trim().to_owned();
    let mut numbers = full.split(['.', '-', ' ']).map(str::parse::<u32>);
    let major_minor = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let llvm = text.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.trim().to_owned();
    let llvm_major = llvm.split('.').next()?.parse().ok()?;
    Some(Version { full, major_minor, llvm, llvm_major })
}

/// Where xtask installs its own linker: nothing outside the checkout changes.
fn tools_dir(root: &Path) -> PathBuf {
    root.join("target/bpf-tools")
}

/// A linker of the right release whose LLVM reads what the compiler writes,
/// and that LLVM's version.
fn find_linker(root: &Path, llvm_major: u32) -> Option<(PathBuf, String)> {
    let own = tools_dir(root).join("bin/bpf-linker");
    let cargos = workspace::cargo_home().map(|home| home.join("bin/bpf-linker"));
    std::iter::once(own).chain(cargos).chain(run::find("bpf-linker")).find_map(|linker| {
        let version = run::output(run::outside_cargo(&linker).arg("--version")).ok()?;
        if version.trim() != format!("bpf-linker {LINKER_VERSION}") {
            return None;
        }
        let llvm = linked_llvm(&linker)?;
        // One that carries its LLVM inside does not say which: the build will.
        let major = llvm.split('.').next().and_then(|major| major.parse::<u32>().ok());
        major.is_none_or(|major| major >= llvm_major).then_some((linker, llvm))
    })
}

/// Version of the LLVM a linker uses: the shared library's release, completed
/// by what that release's `llvm-config` says, since the library's name lacks
/// the last number. `built in` if there is no such library, `None` if that
/// cannot be found out or the library is missing.
fn linked_llvm(linker: &Path) -> Option<String> {
    let libraries = run::output(run::outside_cargo("ldd").arg(linker)).ok()?;
    if libraries.contains("not found") {
        return None;
    }
    let Some(short) = parse_llvm_library(&libraries) else { return Some("built in".to_owned()) };
    let major = short.split('.').next()?;
    let full = run::output(Command::new(llvm_prefix(major).join("bin/llvm-config")).arg("--version"));
    Some(full.map_or(short.clone(), |v| v.trim().to_owned()))
}

/// The `22.1` of `libLLVM.so.22.1 => …` in what ldd prints.
fn parse_llvm_library(ldd: &str) -> Option<String> {
    let name = ldd.split_whitespace().find(|word| word.starts_with("libLLVM"))?;
    let rest = name.trim_start_matches("libLLVM");
    let rest = rest.strip_prefix(".so.").or_else(|| rest.strip_prefix('-'))?;
    let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
    let version = rest[..end].trim_end_matches('.');
    (!version.is_empty()).then(|| version.to_owned())
}

fn llvm_prefix(major: impl std::fmt::Display) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{major}"))
}

/// Builds bpf-linker against the distribution's LLVM.
fn install_linker(root: &Path, llvm_major: u32) -> Result<()> {
    if !LINKER_LLVMS.contains(&llvm_major) {
        bail!(
            "the compiler's LLVM is {llvm_major}, and bpf-linker {LINKER_VERSION} can be built against {} to \
             {}: use a compiler with one of these",
            LINKER_LLVMS.start(),
            LINKER_LLVMS.end()
        );
    }
    let prefix = llvm_prefix(llvm_major);
    if !prefix.join("bin/llvm-config").is_file() || !prefix.join("include/llvm-c").is_dir() {
        apt::install(&[&format!("llvm-{llvm_major}-dev")], "building bpf-linker against LLVM")?;
    }
    // LLVM is C++: linking with it takes the C++ compiler's library.
    apt::ensure(&[apt::Need { program: "c++", package: "g++", purpose: "linking bpf-linker with LLVM" }])?;
    eprintln!("building bpf-linker {LINKER_VERSION} against LLVM {llvm_major} (some minutes, once)");
    run::succeed(
        Command::new(workspace::cargo())
            .args(["install", "--quiet", "--locked", "--force", "bpf-linker", "--version", LINKER_VERSION])
            .args(["--no-default-features", "--features", &format!("llvm-{llvm_major}"), "--root"])
            .arg(tools_dir(root))
            .env("LLVM_PREFIX", &prefix)
            .env_remove("CARGO_TARGET_DIR"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_rustc_says() {
        let text = "rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)\nbinary: rustc\n\
                    release: 1.96.0\nLLVM version: 22.1.8\n";
        let version = parse_version(text).unwrap();
        assert_eq!(version.full, "1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)");
        assert_eq!((version.major_minor, version.llvm_major), ((1, 96), 22));
        let nightly = "rustc 1.97.0-nightly (0000000 2026-01-01)\nLLVM version: 22.1.4\n";
        assert_eq!(parse_version(nightly).unwrap().major_minor, (1, 97));
        assert_eq!(parse_version("rustc 1.96.0\n"), None);
        assert_eq!(parse_version("clang 22\nLLVM version: 22.1.4\n"), None);
        assert_eq!(parse_version(""), None);
    }

    #[test]
    fn llvm_is_read_from_either_way_distributions_name_its_library() {
        let of = |ldd| parse_llvm_library(ldd);
        assert_eq!(of("\tlibLLVM.so.22.1 => /usr/lib/x (0x7f)\n").as_deref(), Some("22.1"));
        assert_eq!(of("\tlibLLVM-17.so.1 => /usr/lib/x (0x7f)\n").as_deref(), Some("17"));
        assert_eq!(of("\tlibc.so.6 => /lib/x (0x7f)\n"), None);
        assert_eq!(of("\tlibLLVMfoo => /lib/x\n"), None);
    }
}
