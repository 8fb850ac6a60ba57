//! Takes the DWARF out of a BPF object and leaves its BTF in.
//!
//! DWARF is most of such an object (140 of 152 KiB for a first probe), no
//! loader reads it, and it is where compilers put paths. What the kernel and
//! `observer` need, `.BTF` and `.BTF.ext`, line information for the
//! verifier's log included, stays.

use anyhow::{Context, Result};
use object::build::elf::{Builder, SectionData};
use object::elf;

/// The conventional name of the table of section names.
const SECTION_NAMES: &[u8] = b".shstrtab";

/// The object without its `.debug_*` sections and their relocations.
///
/// # Errors
///
/// If `elf` is not a well-formed ELF file.
pub(crate) fn strip(elf: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(elf).context("the linker's output is not a readable ELF file")?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        if name.starts_with(b".debug_") || name.starts_with(b".rel.debug_") {
            section.delete = true;
        }
    }
    // LLVM keeps symbol names and section names in one table; the writer wants
    // them apart.
    let one_table = !builder.sections.iter().any(|s| matches!(s.data, SectionData::SectionString));
    if one_table {
        let names = builder.sections.add();
        names.name = SECTION_NAMES.into();
        names.sh_type = elf::SHT_STRTAB;
        names.sh_addralign = 1;
        names.data = SectionData::SectionString;
    }
    let mut out = Vec::new();
    builder.write(&mut out).context("the object cannot be written without its debug sections")?;
    Ok(out)
}
