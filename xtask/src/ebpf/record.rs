//! The record beside the checked-in object: what it was made from, and with
//! what.
//!
//! The same sources and the same tools make the same bytes, wherever the
//! checkout lies. So the record tells whether identity can be demanded (the
//! tools are equal), and, without any toolchain, whether the sources moved on
//! since (their digest is not).

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::workspace;

/// Everything that is written beside the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// SHA-256 of the object, in hexadecimal.
    pub(crate) object_sha256: String,
    /// SHA-256 over the sources of the probes, see [`sources_digest`].
    pub(crate) sources_sha256: String,
    /// Versions of the tools.
    pub(crate) tools: Tools,
}

/// The tools whose versions decide what the object's bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tools {
    /// Where `core` came from: `distribution` or `nightly`.
    pub(crate) route: String,
    /// The compiler.
    pub(crate) rustc: String,
    /// LLVM inside the compiler.
    pub(crate) rustc_llvm: String,
    /// The linker.
    pub(crate) bpf_linker: String,
    /// LLVM the linker uses.
    pub(crate) linker_llvm: String,
}

impl std::fmt::Display for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "rustc {} ({}, LLVM {}), bpf-linker {} (LLVM {})",
            self.rustc, self.route, self.rustc_llvm, self.bpf_linker, self.linker_llvm
        )
    }
}

const HEAD: &str = "# How observer.bpf.o was made. Written by `cargo xtask ebpf`, compared by\n\
                    # `cargo xtask ebpf --check`. Do not edit.\n\n";

impl Record {
    /// Reads the record of the checked-in object.
    ///
    /// # Errors
    ///
    /// If it is missing or not as [`Record::write`] writes it.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let file = root.join(workspace::RECORD);
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}: make it with `cargo xtask ebpf`", file.display()))?;
        toml::from_str(&text)
            .with_context(|| format!("{} is damaged: make it anew with `cargo xtask ebpf`", file.display()))
    }

    /// Writes it to `file`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let text =
            HEAD.to_owned() + &toml::to_string(self).context("the record cannot be written as TOML")?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// SHA-256 of `bytes`, in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// SHA-256 over the Rust sources of the probes, in the order of their paths:
/// each path, NUL, the length, and the content.
///
/// # Errors
///
/// If a source cannot be read.
pub(crate) fn sources_digest(root: &Path) -> Result<String> {
    let package = root.join(workspace::PROBES);
    let mut files = Vec::new();
    collect(&package.join("src"), &mut files)?;
    files.sort();
    let mut sum = Sha256::new();
    for file in files {
        let content = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(&package).unwrap_or(&file).to_string_lossy().into_owned();
        sum.update(name.as_bytes());
        sum.update([0]);
        sum.update((content.len() as u64).to_le_bytes());
        sum.update(&content);
    }
    Ok(hexadecimal(&sum.finalize()))
}

fn collect(dir: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", dir.display()))?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_sha256() {
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let tools = Tools {
            route: "distribution".into(),
            rustc: "1.96.0 (\"quoted\")".into(),
            rustc_llvm: "22.1.8".into(),
            bpf_linker: "0.13.0".into(),
            linker_llvm: "22.1.8".into(),
        };
        let record = Record { object_sha256: digest(b"object"), sources_sha256: digest(b"sources"), tools };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(workspace::RECORD);
        assert!(Record::read(dir.path()).is_err());
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        record.write(&file).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), record);
    }

    #[test]
    fn the_sources_digest_follows_names_and_contents_of_sources_only() {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join(workspace::PROBES);
        std::fs::create_dir_all(package.join("src/probes")).unwrap();
        std::fs::write(package.join("src/probes/a.rs"), "a").unwrap();
        let of = || sources_digest(dir.path()).unwrap();
        let first = of();
        std::fs::write(package.join("src/notes.txt"), "no source").unwrap();
        assert_eq!(of(), first);
        std::fs::write(package.join("src/probes/a.rs"), "b").unwrap();
        let second = of();
        assert_ne!(second, first);
        std::fs::rename(package.join("src/probes/a.rs"), package.join("src/probes/b.rs")).unwrap();
        assert_ne!(of(), second);
    }
}
