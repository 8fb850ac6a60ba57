//! `cargo xtask ebpf`: from the sources in `observer-ebpf` to the object that
//! is checked in and built into `observer`, and the proof that the two agree.
//!
//! - [`toolchain`] finds or sets up the compiler and the linker;
//! - [`build`] makes the object, byte for byte the same wherever it is run;
//! - [`strip`] takes out the debug information no loader reads;
//! - [`record`] says beside the object what made it.

mod build;
pub(crate) mod record;
mod strip;
mod toolchain;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::{test, workspace};
use record::Record;

/// Tells the tests of `observer` to load this object in place of the one
/// that is built in.
const OBJECT_VARIABLE: &str = "OBSERVER_BPF_OBJECT";

/// Sets up the toolchain and says what it is.
///
/// # Errors
///
/// If it cannot be set up.
pub(crate) fn set_up() -> Result<ExitCode> {
    let toolchain = toolchain::set_up(&workspace::root())?;
    println!("{}", toolchain.tools);
    Ok(ExitCode::SUCCESS)
}

/// Builds the object and puts it, with its record, where it is checked in.
///
/// # Errors
///
/// If the toolchain, the build or a file fails.
pub(crate) fn build() -> Result<ExitCode> {
    let root = workspace::root();
    let (object, record) = make(&root)?;
    let file = root.join(workspace::OBJECT);
    let before = std::fs::read(&file).ok();
    write(&file, &object)?;
    record.write(&root.join(workspace::RECORD))?;
    let news = if before.as_deref() == Some(&object) { "unchanged" } else { "written" };
    println!("{} {news}: {} bytes, made by {}", workspace::OBJECT, object.len(), record.tools);
    Ok(ExitCode::SUCCESS)
}

/// Builds the object aside and compares it with the one that is checked in.
///
/// With the tools of the record the bytes must be equal. With others they
/// cannot be; then the tests of `observer` run on the fresh object, as proof
/// that the sources, too, load and work.
///
/// # Errors
///
/// If it cannot be built, or differs where it must not.
pub(crate) fn check() -> Result<ExitCode> {
    let root = workspace::root();
    let file = root.join(workspace::OBJECT);
    let recorded = Record::read(&root)?;
    let checked_in = std::fs::read(&file)
        .with_context(|| format!("cannot read {}: make it with `cargo xtask ebpf`", file.display()))?;
    if record::digest(&checked_in) != recorded.object_sha256 {
        bail!("{} is not the object of {}: run `cargo xtask ebpf`", workspace::OBJECT, workspace::RECORD);
    }
    let (object, record) = make(&root)?;
    let sources = if record.sources_sha256 == recorded.sources_sha256 {
        "the sources are the recorded ones"
    } else {
        "the sources changed since it was made"
    };
    if object == checked_in {
        // Same bytes from other sources (a comment behind the last line of
        // code) are the same object; the record still has to be renewed.
        if record.sources_sha256 != recorded.sources_sha256 {
            bail!("{} is out of date ({sources}): run `cargo xtask ebpf`", workspace::RECORD);
        }
        println!("{} is what its sources make, byte for byte ({})", workspace::OBJECT, record.tools);
        return Ok(ExitCode::SUCCESS);
    }
    let fresh = root.join("target/ebpf/fresh/observer.bpf.o");
    write(&fresh, &object)?;
    if record.tools == recorded.tools {
        bail!(
            "{} ({} bytes) is not what its sources make with the same tools ({} bytes, in {}); {sources}: run \
             `cargo xtask ebpf`",
            workspace::OBJECT,
            checked_in.len(),
            object.len(),
            fresh.display()
        );
    }
    if record.sources_sha256 != recorded.sources_sha256 {
        bail!("{} is out of date ({sources}): run `cargo xtask ebpf`", workspace::OBJECT);
    }
    println!("{} cannot be compared, the tools differ:", workspace::OBJECT);
    println!("  made by  {}", recorded.tools);
    println!("  here are {}", record.tools);
    println!("running observer's tests on the object made here");
    let outcome =
        test::execute(&["--package".into(), "observer".into()], &[(OBJECT_VARIABLE, fresh.as_os_str())])?;
    println!("on the object made here: {}", outcome.counts);
    if !outcome.success || outcome.counts.ran() == 0 {
        bail!("the object made here, {}, did not pass observer's tests", fresh.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the object and what would be recorded of it.
fn make(root: &Path) -> Result<(Vec<u8>, Record)> {
    let toolchain = toolchain::set_up(root)?;
    // Before the build: sources edited while it runs must look changed.
    let sources_sha256 = record::sources_digest(root)?;
    let object = build::build(root, &toolchain)?;
    let record = Record { object_sha256: record::digest(&object), sources_sha256, tools: toolchain.tools };
    Ok((object, record))
}

fn write(file: &Path, content: &[u8]) -> Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    std::fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}
