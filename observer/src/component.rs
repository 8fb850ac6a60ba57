//! The vocabulary of latency: four components that sum to the total, and the
//! parts each is made of. The names here are the ones of the report, of
//! expectations, queries and labels: `<component>_<quantile>`.

use std::fmt;

/// A share of the way from offer to app_dequeue. The four sum to the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// dev_queue − offer: before the protocol stack let go of it.
    SenderQueue,
    /// Σ over the hops of (xmit − dev_queue): in qdiscs.
    Shaper,
    /// What is left between dev_queue and rx.
    Wire,
    /// app_dequeue − rx: softirq, socket queue, the reader itself.
    Receiver,
}

impl Component {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// All of them, in the order a datagram passes them.
    pub const ALL: [Self; Self::COUNT] = [Self::SenderQueue, Self::Shaper, Self::Wire, Self::Receiver];

    /// Its name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SenderQueue => "sender_queue",
            Self::Shaper => "shaper",
            Self::Wire => "wire",
            Self::Receiver => "receiver",
        }
    }

    /// Its name in a sentence.
    pub const fn title(self) -> &'static str {
        match self {
            Self::SenderQueue => "sender queue",
            Self::Shaper => "shaper",
            Self::Wire => "wire",
            Self::Receiver => "receiver",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.title())
    }
}

/// What a component is made of. Parts say more about a component; they need
/// not sum to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Sender queue: from the offer to the send call.
    BeforeSyscall,
    /// Sender queue: from entering the send call to leaving the stack. With
    /// the one before, it sums to the sender queue.
    InCall,
    /// Sender queue: of that, asleep because the socket's send buffer was
    /// full. The fault of what drains it, not of the sender.
    SndbufBlocked,
    /// Sender queue: of that, the sending thread was runnable and had no CPU.
    SenderRunQueue,
    /// Shaper: on the slowest hop.
    SlowestHop,
    /// Shaper: in the qdisc of the slowest hop.
    SlowestQdisc,
    /// Wire: the sending thread, which carries the datagram into the receiving
    /// stack where no qdisc decouples them, had no CPU.
    WireRunQueue,
    /// Receiver: from entering the stack to the socket's queue.
    Softirq,
    /// Receiver: on the socket's queue. With the one before, it sums to the
    /// receiver.
    SocketQueue,
    /// Receiver: of that, the reading thread was runnable and had no CPU.
    ReceiverRunQueue,
}

impl Part {
    /// How many there are.
    pub const COUNT: usize = 10;

    /// All of them, in the order a datagram passes them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::BeforeSyscall,
        Self::InCall,
        Self::SndbufBlocked,
        Self::SenderRunQueue,
        Self::SlowestHop,
        Self::SlowestQdisc,
        Self::WireRunQueue,
        Self::Softirq,
        Self::SocketQueue,
        Self::ReceiverRunQueue,
    ];

    /// The parts during which a thread of the flow was runnable without a CPU.
    pub const RUN_QUEUE: [Self; 3] = [Self::SenderRunQueue, Self::WireRunQueue, Self::ReceiverRunQueue];

    /// The component it belongs to.
    pub const fn component(self) -> Component {
        match self {
            Self::BeforeSyscall | Self::InCall | Self::SndbufBlocked | Self::SenderRunQueue => {
                Component::SenderQueue
            }
            Self::SlowestHop | Self::SlowestQdisc => Component::Shaper,
            Self::WireRunQueue => Component::Wire,
            Self::Softirq | Self::SocketQueue | Self::ReceiverRunQueue => Component::Receiver,
        }
    }

    /// Its name in the report, within its component.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeSyscall => "before_syscall",
            Self::InCall => "in_call",
            Self::SndbufBlocked => "sndbuf_blocked",
            Self::SenderRunQueue | Self::WireRunQueue | Self::ReceiverRunQueue => "run_queue",
            Self::SlowestHop => "slowest_hop",
            Self::SlowestQdisc => "slowest_qdisc",
            Self::Softirq => "softirq",
            Self::SocketQueue => "socket_queue",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_listed_once_and_in_order() {
        for (i, c) in Component::ALL.into_iter().enumerate() {
            assert_eq!(c as usize, i);
        }
        for (i, p) in Part::ALL.into_iter().enumerate() {
            assert_eq!(p as usize, i);
        }
    }

    #[test]
    fn a_part_is_named_once_within_its_component() {
        let mut names: Vec<_> = Part::ALL.iter().map(|p| (p.component(), p.name())).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Part::COUNT);
    }
}
