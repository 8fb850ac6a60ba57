use observer_ebpf::stamp::Stamp;
use rustix::time::{ClockId, clock_gettime};

fn now_ns() -> i64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Writes the stamp into the first 32 bytes of a payload; false if it has fewer.
#[must_use]
fn write_stamp(payload: &mut [u8], run: u32, stream: u16, sequence: u64, intended_ns: i64) -> bool {
    Stamp::new(run, stream, sequence, intended_ns, now_ns()).write(payload)
}
