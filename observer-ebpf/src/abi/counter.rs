//! Counters: what was seen and not followed, by cause.

/// Events counted on each CPU. What is in here was seen, and not followed or
/// not fully followed; nothing disappears without a count.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// UDP datagrams without a stamp that left the stack.
    UnstampedSent = 0,
    /// Datagrams without a stamp read by an application.
    UnstampedReceived,
    /// Stamps of runs that are not followed, or from a socket or process that
    /// does not own them.
    ForeignSent,
    /// Stamps read by an application that match no followed datagram.
    ForeignReceived,
    /// Stamps whose offer time lies in the future or too far in the past.
    Implausible,
    /// Runs refused because [`MAX_RUNS`] were followed already.
    RunTableFull,
    /// Flows refused because the flow table was full there.
    FlowTableFull,
    /// A slot was being claimed by another CPU.
    SlotBusy,
    /// A journey record did not fit its ring.
    RingFull,
    /// A control record (flow, wait) did not fit its ring.
    ControlRingFull,
    /// Packets whose stamp lies in page fragments, out of reach.
    Paged,
    /// A packet's header could not be read.
    KernelReadFailed,
    /// The application's buffer could not be read (page not present).
    UserReadFailed,
    /// A read whose buffer is unknown (io_uring, an unknown system call).
    NoUserBuffer,
    /// A read too short to hold the stamp of a datagram.
    ShortRead,
    /// Two threads shared a thread-table entry.
    ThreadConflict,
    /// A drop of a clone: another holder still has the datagram.
    CloneDropped,
    /// A point was passed by a datagram already finished.
    LatePoint,
    /// A stamp was seen coming in for which there is no slot.
    UnmatchedReceive,
}

impl Counter {
    /// How many there are.
    pub const COUNT: usize = 19;

    /// All of them, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::UnstampedSent,
        Self::UnstampedReceived,
        Self::ForeignSent,
        Self::ForeignReceived,
        Self::Implausible,
        Self::RunTableFull,
        Self::FlowTableFull,
        Self::SlotBusy,
        Self::RingFull,
        Self::ControlRingFull,
        Self::Paged,
        Self::KernelReadFailed,
        Self::UserReadFailed,
        Self::NoUserBuffer,
        Self::ShortRead,
        Self::ThreadConflict,
        Self::CloneDropped,
        Self::LatePoint,
        Self::UnmatchedReceive,
    ];
}
