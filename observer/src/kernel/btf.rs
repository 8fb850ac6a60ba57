//! The running kernel's type information: where fields are, which tracepoints
//! exist, what drop reasons are called.
//!
//! Rust emits no CO-RE relocations, so offsets are looked up here and handed
//! to the programs as constants before they are loaded.

use std::{collections::BTreeMap, fs};

use btfparse::{Error as ParseError, ErrorKind, Offset, Readable, TypeInformation, TypeVariant};
use observer_ebpf::abi::{Offsets, Syscalls};

use super::KernelError;

/// Where every kernel with BTF exposes it (5.4).
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The parsed type information.
pub struct KernelTypes {
    types: TypeInformation,
    release: String,
}

struct Bytes(Vec<u8>);

impl Readable for Bytes {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> btfparse::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.0.get(start..start.checked_add(buffer.len())?))
            .ok_or_else(|| ParseError::new(ErrorKind::EOF, "read past the end"))?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

impl KernelTypes {
    /// Reads and parses [`VMLINUX`].
    ///
    /// # Errors
    ///
    /// [`KernelError::NoBtf`] or [`KernelError::BadBtf`].
    pub fn load() -> Result<Self, KernelError> {
        let bytes = fs::read(VMLINUX).map_err(|source| KernelError::NoBtf { path: VMLINUX, source })?;
        Self::parse(bytes)
    }

    /// Parses type information in its binary form.
    ///
    /// # Errors
    ///
    /// [`KernelError::BadBtf`].
    pub fn parse(bytes: Vec<u8>) -> Result<Self, KernelError> {
        let types = TypeInformation::new(&Bytes(bytes))
            .map_err(|e| KernelError::BadBtf { path: VMLINUX, reason: format!("{e:?}") })?;
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Ok(Self { types, release })
    }

    /// Kernel release, as `uname -r` prints it.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Whether BTF programs can attach to tracepoint `name`.
    pub fn has_tracepoint(&self, name: &str) -> bool {
        self.types.id_of(&format!("btf_trace_{name}")).is_some()
    }

    /// Number of arguments that tracepoint `name` passes, without the leading
    /// context pointer. `None` if there is no such tracepoint.
    pub fn tracepoint_args(&self, name: &str) -> Option<usize> {
        let mut id = self.types.id_of(&format!("btf_trace_{name}"))?;
        // typedef → pointer → prototype
        loop {
            match self.types.from_id(id)? {
                TypeVariant::Typedef(t) => id = *t.tid(),
                TypeVariant::Ptr(p) => id = *p.tid(),
                TypeVariant::FuncProto(f) => return f.parameter_list().len().checked_sub(1),
                _ => return None,
            }
        }
    }

    /// Whether the kernel has the newest helper function that every program
    /// of the object relies on.
    ///
    /// # Errors
    ///
    /// [`KernelError::TooOld`]. A kernel that does not list its helpers is
    /// given the benefit of the doubt: the verifier will say.
    pub fn check_helpers(&self) -> Result<(), KernelError> {
        const NEWEST: &str = "BPF_FUNC_task_pt_regs";
        match self.types.id_of("bpf_func_id").and_then(|id| self.types.from_id(id)) {
            Some(TypeVariant::Enum(helpers))
                if helpers.named_value_list().iter().all(|v| v.name != NEWEST) =>
            {
                Err(KernelError::TooOld { release: self.release.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Kernel names of the drop reasons by number, without their prefix
    /// (`SOCKET_RCVBUFF`). Empty before 5.17.
    pub fn drop_reasons(&self) -> BTreeMap<u32, String> {
        const PREFIX: &str = "SKB_DROP_REASON_";
        let Some(TypeVariant::Enum(reasons)) =
            self.types.id_of("skb_drop_reason").and_then(|id| self.types.from_id(id))
        else {
            return BTreeMap::new();
        };
        reasons
            .named_value_list()
            .iter()
            .filter_map(|v| {
                let number = match v.value {
                    btfparse::Integer32Value::Unsigned(n) => n,
                    btfparse::Integer32Value::Signed(n) => u32::try_from(n).ok()?,
                };
                let name = v.name.strip_prefix(PREFIX)?;
                // Bookkeeping, not reasons.
                (name != "MAX" && name != "SUBSYS_MASK").then(|| (number, name.to_owned()))
            })
            .collect()
    }

    /// Byte offset of `path` in `structure`, and the mask if it is a bit field.
    fn field(&self, structure: &'static str, path: &'static str) -> Result<(u32, u32), KernelError> {
        let missing = || KernelError::NoField { structure, field: path, release: self.release.clone() };
        let id = self.types.id_of(structure).ok_or_else(missing)?;
        match self.types.offset_of(id, path).map_err(|_| missing())?.1 {
            Offset::ByteOffset(bytes) => Ok((bytes, 0)),
            Offset::BitOffsetAndSize(bit, size) => {
                let mask = 1_u32.checked_shl(size).map_or(u32::MAX, |m| m - 1);
                Ok((bit / 8, mask << (bit % 8)))
            }
        }
    }

    /// First of several spellings that this kernel knows.
    fn any(&self, structure: &'static str, paths: &[&'static str]) -> Result<(u32, u32), KernelError> {
        let mut first = None;
        for path in paths {
            match self.field(structure, path) {
                Ok(found) => return Ok(found),
                Err(e) => first = first.or(Some(e)),
            }
        }
        Err(first.unwrap_or_else(|| KernelError::NoField {
            structure,
            field: "?",
            release: self.release.clone(),
        }))
    }

    /// Every offset the programs use.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoField`] names the first that this kernel lacks.
    pub fn offsets(&self) -> Result<Offsets, KernelError> {
        let skb = |path| self.field("sk_buff", path).map(|(offset, _)| offset);
        let sock = |path| self.field("sock", path).map(|(offset, _)| offset);
        let info = |path| self.field("skb_shared_info", path).map(|(offset, _)| offset);
        let (skb_cloned, skb_cloned_mask) = self.field("sk_buff", "cloned")?;
        let (skb_encap, skb_encap_mask) = self.any("sk_buff", &["encapsulation", "headers.encapsulation"])?;
        let header = |plain, grouped| self.any("sk_buff", &[plain, grouped]).map(|(offset, _)| offset);
        let regs = self.register_offsets()?;
        Ok(Offsets {
            skb_next: skb("next")?,
            skb_dev: skb("dev")?,
            skb_sk: skb("sk")?,
            skb_len: skb("len")?,
            skb_data_len: skb("data_len")?,
            skb_cloned,
            skb_cloned_mask,
            skb_encap,
            skb_encap_mask,
            skb_protocol: header("protocol", "headers.protocol")?,
            skb_network_header: header("network_header", "headers.network_header")?,
            skb_inner_network_header: header("inner_network_header", "headers.inner_network_header")?,
            skb_tail: skb("tail")?,
            skb_end: skb("end")?,
            skb_head: skb("head")?,
            skb_data: skb("data")?,
            shinfo_gso_size: info("gso_size")?,
            shinfo_gso_segs: info("gso_segs")?,
            shinfo_dataref: info("dataref")?,
            dev_ifindex: self.field("net_device", "ifindex")?.0,
            sk_family: sock("__sk_common.skc_family")?,
            sk_num: sock("__sk_common.skc_num")?,
            sk_dport: sock("__sk_common.skc_dport")?,
            sk_net: sock("__sk_common.skc_net")?,
            sk_protocol: sock("sk_protocol")?,
            sk_rcvbuf: sock("sk_rcvbuf")?,
            sk_sndbuf: sock("sk_sndbuf")?,
            net_inum: self.field("net", "ns.inum")?.0,
            task_pid: self.field("task_struct", "pid")?.0,
            task_tgid: self.field("task_struct", "tgid")?.0,
            // `state` until 5.13.
            task_state: self.any("task_struct", &["__state", "state"])?.0,
            regs_nr: regs.0,
            regs_arg1: regs.1,
            regs_arg2: regs.2,
        })
    }

    /// Where `pt_regs` keeps a system call's number, second and third argument.
    #[cfg(target_arch = "x86_64")]
    fn register_offsets(&self) -> Result<(u32, u32, u32), KernelError> {
        let regs = |path| self.field("pt_regs", path).map(|(offset, _)| offset);
        Ok((regs("orig_ax")?, regs("si")?, regs("dx")?))
    }

    /// Where `pt_regs` keeps a system call's number, second and third argument.
    #[cfg(target_arch = "aarch64")]
    fn register_offsets(&self) -> Result<(u32, u32, u32), KernelError> {
        // regs[31] leads the structure, 8 bytes each.
        Ok((self.field("pt_regs", "syscallno")?.0, 8, 16))
    }
}

/// System call numbers of this architecture.
pub fn syscalls() -> Syscalls {
    let n = |nr: libc::c_long| u32::try_from(nr).unwrap_or(u32::MAX);
    Syscalls {
        read: n(libc::SYS_read),
        write: n(libc::SYS_write),
        readv: n(libc::SYS_readv),
        writev: n(libc::SYS_writev),
        sendto: n(libc::SYS_sendto),
        recvfrom: n(libc::SYS_recvfrom),
        sendmsg: n(libc::SYS_sendmsg),
        recvmsg: n(libc::SYS_recvmsg),
        sendmmsg: n(libc::SYS_sendmmsg),
        recvmmsg: n(libc::SYS_recvmmsg),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_an_error_not_a_panic() {
        for bytes in [vec![], vec![0; 7], vec![0xff; 4096], b"\x9f\xeb\x01\x00\x18\0\0\0".to_vec()] {
            assert!(matches!(KernelTypes::parse(bytes), Err(KernelError::BadBtf { .. })));
        }
    }

    /// Needs no privilege: the file is world-readable.
    #[test]
    fn the_running_kernel_is_understood() {
        if fs::metadata(VMLINUX).is_err() {
            println!("SKIPPED: no {VMLINUX}");
            assert!(std::env::var_os("CI").is_none(), "CI must have BTF");
            return;
        }
        let types = KernelTypes::load().unwrap();
        let offsets = types.offsets().unwrap();
        // `next` leads sk_buff since the beginning, and the others follow it.
        assert_eq!(offsets.skb_next, 0);
        assert!(offsets.skb_head < offsets.skb_data && offsets.skb_tail < offsets.skb_end);
        assert_eq!(offsets.skb_cloned_mask.count_ones(), 1);
        assert_eq!(types.tracepoint_args("net_dev_start_xmit"), Some(2));
        assert_eq!(types.tracepoint_args("no_such_tracepoint"), None);
        let reasons = types.drop_reasons();
        if let Some((number, _)) = reasons.iter().find(|(_, name)| *name == "NOT_SPECIFIED") {
            assert_eq!(*number, 2);
            assert!(reasons.values().any(|n| n == "SOCKET_RCVBUFF"));
        }
    }
}
