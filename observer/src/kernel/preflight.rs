//! Whether this process may do what it is about to do, asked before anything
//! is touched, so that the answer is one clear line.

use std::fs;

use super::KernelError;

/// Capabilities that loading and attaching need, by bit (`linux/capability.h`).
const NEEDED: [(u32, &str); 3] = [(39, "CAP_BPF"), (38, "CAP_PERFMON"), (CAP_NET_ADMIN, "CAP_NET_ADMIN")];
const CAP_NET_ADMIN: u32 = 12;
/// Stands for the first two on its own (and before 5.8).
const CAP_SYS_ADMIN: u32 = 21;

/// Checks privileges.
///
/// # Errors
///
/// [`KernelError::Permission`] names what is missing.
pub fn check() -> Result<(), KernelError> {
    check_status(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn check_status(status: &str) -> Result<(), KernelError> {
    let effective = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| effective & (1 << bit) != 0;
    let granted = |bit: u32| has(bit) || (bit != CAP_NET_ADMIN && has(CAP_SYS_ADMIN));
    let missing: Vec<_> = NEEDED.iter().filter(|(bit, _)| !granted(*bit)).map(|(_, name)| *name).collect();
    if missing.is_empty() { Ok(()) } else { Err(KernelError::Permission { missing: missing.join(", ") }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(effective: u64) -> Option<String> {
        match check_status(&format!("Name:\tx\nCapEff:\t{effective:016x}\n")) {
            Ok(()) => None,
            Err(KernelError::Permission { missing }) => Some(missing),
            Err(e) => panic!("{e}"),
        }
    }

    #[test]
    fn names_what_is_missing() {
        assert_eq!(missing(0).as_deref(), Some("CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN"));
        assert_eq!(missing(u64::MAX), None);
        assert_eq!(missing(1 << 39 | 1 << 38 | 1 << 12), None);
        assert_eq!(missing(1 << 39 | 1 << 12).as_deref(), Some("CAP_PERFMON"));
        assert_eq!(missing(1 << 21).as_deref(), Some("CAP_NET_ADMIN"));
        assert_eq!(missing(1 << 21 | 1 << 12), None);
        assert!(check_status("nonsense").is_err());
    }
}
