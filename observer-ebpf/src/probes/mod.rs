//! The eBPF programs: one small program per hook, all of them doing the same
//! three steps. Find the stamp ([`packet`], or the user's buffer in
//! [`user`]), find the datagram's slot ([`journey`]), note the time.
//!
//! | file | hooks |
//! |---|---|
//! | [`send`] | `syscalls:sys_enter_*` of the send family, `sock:sock_send_length` |
//! | [`transmit`] | `net:net_dev_queue`, `qdisc:qdisc_dequeue`, `net:net_dev_start_xmit` |
//! | [`receive`] | `net:napi_gro_receive_entry`, `net:netif_rx`, `net:netif_receive_skb`, cgroup_skb/ingress |
//! | [`read`] | `syscalls:sys_enter_recvmmsg`, `sock:sock_recv_length`, `skb:consume_skb` |
//! | [`drop`] | `skb:kfree_skb` |
//! | [`sched`] | `sched:sched_waking`, `sched:sched_switch` |
//!
//! What is expected of the kernel: BTF tracepoints (5.5), ring buffer (5.8),
//! `bpf_get_current_task_btf` (5.11), atomics (5.12), `bpf_task_pt_regs`
//! (5.15). The reading side is best served by `sock:sock_recv_length` (6.3).
//!
//! Nothing here sleeps, loops without a bound, allocates, or dereferences a
//! pointer that came from the network.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "register-width arithmetic; the programs have no panics to fall back on"
)]

mod atomic;
mod count;
mod drop;
mod flow;
mod journey;
mod kernel;
mod maps;
mod packet;
mod read;
mod receive;
mod ring;
mod sched;
mod send;
mod settings;
mod thread;
mod transmit;
mod user;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: the programs contain no reachable panic; the verifier would
    // refuse the endless loop this stands for if one were left in.
    unsafe { core::hint::unreachable_unchecked() }
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
