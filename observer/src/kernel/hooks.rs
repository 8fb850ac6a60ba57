//! Which program serves which point, on which hook, since which kernel, and
//! what is lost without it.

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A BTF tracepoint: typed arguments, direct loads.
    BtfTracepoint,
    /// A classic tracepoint, by name under tracefs.
    Tracepoint {
        /// `syscalls`
        category: &'static str,
        /// Its events.
        names: &'static [&'static str],
    },
    /// cgroup_skb/ingress on the root of the cgroup2 tree.
    CgroupIngress,
}

impl Kind {
    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BtfTracepoint => "tp_btf",
            Self::Tracepoint { .. } => "tracepoint",
            Self::CgroupIngress => "cgroup_skb",
        }
    }
}

/// One program and what it is for.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Program name in the object; for BTF tracepoints also the tracepoint's.
    pub program: &'static str,
    /// Point of the journey that it notes (see ARCHITECTURE.md).
    pub point: &'static str,
    /// The hook as the kernel's documentation spells it.
    pub hook: &'static str,
    /// How it is attached.
    pub kind: Kind,
    /// First kernel that has it.
    pub since: &'static str,
    /// Nothing can be measured without it.
    pub required: bool,
    /// What is missing from the report without it.
    pub without: &'static str,
    /// The program it stands in for: used only where the kernel lacks that
    /// one's hook.
    pub instead_of: Option<&'static str>,
}

const fn btf(
    program: &'static str,
    point: &'static str,
    hook: &'static str,
    since: &'static str,
    required: bool,
    without: &'static str,
) -> Hook {
    Hook { program, point, hook, kind: Kind::BtfTracepoint, since, required, without, instead_of: None }
}

/// All of them, in the order in which a datagram passes them.
pub const HOOKS: &[Hook] = &[
    Hook {
        program: "sys_enter_send",
        point: "syscall",
        hook: "syscalls:sys_enter_{send*,write*}",
        kind: Kind::Tracepoint {
            category: "syscalls",
            names: &[
                "sys_enter_sendmmsg",
                "sys_enter_sendmsg",
                "sys_enter_sendto",
                "sys_enter_write",
                "sys_enter_writev",
            ],
        },
        since: "4.7",
        required: false,
        without: "the sender queue has no parts",
        instead_of: None,
    },
    btf(
        "sock_send_length",
        "sent",
        "sock:sock_send_length",
        "6.3",
        false,
        "datagrams held back or dropped before the first device are not counted as sent",
    ),
    btf("net_dev_queue", "dev_queue", "net:net_dev_queue", "5.5", true, "nothing can be followed"),
    btf(
        "qdisc_dequeue",
        "dequeue",
        "qdisc:qdisc_dequeue",
        "5.5",
        false,
        "the shaper's share of the qdisc is unknown",
    ),
    btf("net_dev_start_xmit", "xmit", "net:net_dev_start_xmit", "5.5", true, "nothing can be followed"),
    btf(
        "napi_gro_receive_entry",
        "rx",
        "net:napi_gro_receive_entry",
        "5.5",
        false,
        "reception is noted behind GRO",
    ),
    btf(
        "netif_rx",
        "rx",
        "net:netif_rx",
        "5.5",
        false,
        "reception over veth and lo is noted behind the backlog",
    ),
    btf("netif_receive_skb", "rx", "net:netif_receive_skb", "5.5", true, "reception cannot be seen"),
    Hook {
        program: "sock_enqueue",
        point: "sock_enqueue",
        hook: "cgroup_skb/ingress, cgroup2 root",
        kind: Kind::CgroupIngress,
        since: "4.10",
        required: false,
        without: "the receiver has no parts",
        instead_of: None,
    },
    Hook {
        program: "sys_enter_recvmmsg",
        point: "app_dequeue",
        hook: "syscalls:sys_enter_recvmmsg",
        kind: Kind::Tracepoint { category: "syscalls", names: &["sys_enter_recvmmsg"] },
        since: "4.7",
        required: false,
        without: "datagrams read with recvmmsg are not seen to arrive",
        instead_of: None,
    },
    btf(
        "sock_recv_length",
        "app_dequeue",
        "sock:sock_recv_length",
        "6.3",
        false,
        "the read is noted at skb:consume_skb, which knows neither the reading socket nor foreign or unstamped reads",
    ),
    Hook {
        instead_of: Some("sock_recv_length"),
        ..btf(
            "consume_skb",
            "app_dequeue",
            "skb:consume_skb",
            "5.5",
            false,
            "no receiver component and no total: the journey ends at the socket's queue",
        )
    },
    btf("kfree_skb", "drop", "skb:kfree_skb", "5.5", false, "drops are not seen"),
    btf(
        "sched_waking",
        "run_queue",
        "sched:sched_waking",
        "5.5",
        false,
        "a busy host cannot be told from a queue",
    ),
    btf(
        "sched_switch",
        "run_queue",
        "sched:sched_switch",
        "5.5",
        false,
        "a busy host cannot be told from a queue",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_named_once() {
        for (i, hook) in HOOKS.iter().enumerate() {
            assert!(HOOKS[..i].iter().all(|h| h.program != hook.program), "{}", hook.program);
            assert!(hook.program.len() < 64 && !hook.without.is_empty());
            assert!(hook.hook.len() <= 33, "{} does not fit the report's column", hook.hook);
        }
    }
}
