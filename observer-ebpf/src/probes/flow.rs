//! Runs and flows: who is followed, and the counts that no full ring can lose.
//!
//! A run is admitted when it is named on the command line, when a local
//! socket sends its first stamp, or when a local socket has received two of
//! its stamps in a row. It belongs to the process that sent it first (a named
//! run to the process named with it, or to any), and a flow, one stream of
//! it, to the process that sent that first: stamps from anyone else are
//! foreign, and a forger on this host changes no count of the run.

use core::mem::offset_of;

use aya_ebpf::helpers::{bpf_get_current_comm, generated::bpf_get_current_ancestor_cgroup_id};
use observer_ebpf::{
    abi::{
        Counter, FLOW_PROBES, FLOW_SLOTS, FlowRecord, FlowSlot, MAX_RUNS, MAX_RUNS_OF_PROCESS, RecordKind,
        RunSlot, flow_id, run_origin, slot_base,
    },
    stamp::Stamp,
};

use super::{
    atomic,
    count::count,
    kernel::{self, Object},
    maps::{CANDIDATE, FLOWS, REMOTE_OPEN, RUNS},
    packet::Headers,
    ring,
    settings::constant,
    thread,
};

/// The counters of a flow, by their place in its table entry.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum Count {
    Sent = offset_of!(FlowSlot, sent),
    DevQueued = offset_of!(FlowSlot, dev_queued),
    Delivered = offset_of!(FlowSlot, delivered),
    Duplicated = offset_of!(FlowSlot, duplicated),
    Dropped = offset_of!(FlowSlot, dropped),
    Evicted = offset_of!(FlowSlot, evicted),
    Unclaimed = offset_of!(FlowSlot, unclaimed),
    RingLost = offset_of!(FlowSlot, ring_lost),
    SendErrors = offset_of!(FlowSlot, send_errors),
    DeliveredBytes = offset_of!(FlowSlot, delivered_bytes),
}

/// Adds one to a counter of a flow.
#[inline(always)]
pub(super) fn add(flow: *mut FlowSlot, counter: Count) {
    add_n(flow, counter, 1);
}

/// Adds `n` to a counter of a flow.
#[inline(always)]
pub(super) fn add_n(flow: *mut FlowSlot, counter: Count, n: u64) {
    // SAFETY: `flow` is an element of the flow table and `counter` the offset
    // of one of its aligned u64s.
    unsafe { atomic::add(flow.cast::<u8>().add(counter as usize).cast(), n) };
}

/// Counts a datagram as sent, and its sequence as offered.
#[inline(always)]
pub(super) fn note_sent(flow: *mut FlowSlot, stamp: &Stamp) {
    add(flow, Count::Sent);
    note_offered(flow, stamp);
}

/// Remembers the highest sequence.
#[inline(always)]
pub(super) fn note_offered(flow: *mut FlowSlot, stamp: &Stamp) {
    // SAFETY: an element of the flow table; a stream has one sender at a time.
    unsafe {
        let offered = stamp.seq() + 1;
        if offered > (*flow).offered {
            (*flow).offered = offered;
        }
    }
}

/// The flow-table entry of a stream and its index, if it is followed.
#[inline(always)]
pub(super) fn find(run: u32, stream: u16) -> Option<(*mut FlowSlot, u32)> {
    let id = flow_id(run, stream);
    let base = slot_base(run, stream);
    let mut i = 0;
    while i < FLOW_PROBES {
        let index = base.wrapping_add(i) & (FLOW_SLOTS - 1);
        let flow = FLOWS.get_ptr_mut(index)?;
        // SAFETY: an element of the flow table.
        if unsafe { (*flow).id } == id {
            return Some((flow, index));
        }
        i += 1;
    }
    None
}

/// Index and entry of a run, if it is followed.
#[inline(always)]
pub(super) fn find_run(run: u32) -> Option<(u32, *mut RunSlot)> {
    let mut index = 0;
    while index < MAX_RUNS as u32 {
        let slot = RUNS.get_ptr_mut(index)?;
        // SAFETY: an element of the run table.
        if unsafe { (*slot).id } == u64::from(run) {
            return Some((index, slot));
        }
        index += 1;
    }
    None
}

/// Admits a run; `None`, counted, if the table is full.
#[inline(always)]
fn admit_run(run: u32, origin: u32, tgid: u32, now: u64) -> Option<(u32, *mut RunSlot)> {
    let mut index = 0;
    let mut of_process = 0;
    while index < MAX_RUNS as u32 {
        let slot = RUNS.get_ptr_mut(index)?;
        // SAFETY: an element of the run table; the id is claimed atomically
        // and the rest written by the one who claimed it.
        unsafe {
            of_process += u32::from(tgid != 0 && (*slot).tgid == tgid);
            if of_process >= MAX_RUNS_OF_PROCESS {
                break;
            }
            let id = &raw mut (*slot).id;
            if atomic::load(id) == 0 && atomic::compare_exchange(id, 0, u64::from(run)) {
                (*slot).tgid = tgid;
                (*slot).since_ns = now;
                (*slot).origin = origin;
                return Some((index, slot));
            }
            if atomic::load(id) == u64::from(run) {
                return Some((index, slot));
            }
        }
        index += 1;
    }
    count(Counter::RunTableFull);
    None
}

/// Takes a free entry of the flow table; `None`, counted, if there is none.
#[inline(always)]
fn insert(run: u32, stream: u16, run_index: u32) -> Option<(*mut FlowSlot, u32)> {
    let id = flow_id(run, stream);
    let base = slot_base(run, stream);
    let mut i = 0;
    while i < FLOW_PROBES {
        let index = base.wrapping_add(i) & (FLOW_SLOTS - 1);
        let flow = FLOWS.get_ptr_mut(index)?;
        // SAFETY: an element of the flow table, claimed by its id.
        unsafe {
            let slot = &raw mut (*flow).id;
            let seen = atomic::load(slot);
            if seen == id || (seen == 0 && atomic::compare_exchange(slot, 0, id)) {
                (*flow).run_index = run_index;
                return Some((flow, index));
            }
        }
        i += 1;
    }
    count(Counter::FlowTableFull);
    None
}

/// Where a datagram was seen leaving.
pub(super) struct Sender<'a> {
    /// Its socket.
    pub(super) sock: Object,
    /// Process of the current task.
    pub(super) tgid: u32,
    /// Thread of the current task.
    pub(super) tid: u32,
    /// The current task is inside a send call.
    pub(super) in_call: bool,
    /// The packet's headers, where it has any yet.
    pub(super) headers: Option<&'a Headers>,
    /// Interface of the first hop; 0 if not known yet.
    pub(super) ifindex: u32,
}

/// The flow that a datagram leaving through `sender` counts for, created if it
/// is the first. `None`, counted, if it is foreign.
#[inline(always)]
pub(super) fn of_sender(stamp: &Stamp, sender: &Sender<'_>, now: u64) -> Option<(*mut FlowSlot, u32)> {
    if let Some((flow, index)) = find(stamp.run, stamp.stream()) {
        // SAFETY: an element of the flow table; compared only.
        unsafe {
            if (*flow).tx_socket == sender.sock.address() {
                return Some((flow, index));
            }
            if sender.in_call && (*flow).tx_tgid == sender.tgid {
                (*flow).tx_socket = sender.sock.address();
                return Some((flow, index));
            }
        }
        count(Counter::ForeignSent);
        return None;
    }
    let (run_index, run) = match find_run(stamp.run) {
        Some(found) => found,
        None if constant!(SETTINGS.only_named_runs) != 0 => {
            count(Counter::ForeignSent);
            return None;
        }
        None => admit_run(stamp.run, run_origin::SENT, sender.tgid, now)?,
    };
    // SAFETY: an element of the run table.
    unsafe {
        let owner = (*run).tgid;
        if owner != 0 && owner != sender.tgid {
            count(Counter::ForeignSent);
            return None;
        }
        // Whatever the run was admitted for: now it is sent here, and stamps
        // of it that come in without having been sent are foreign.
        (*run).origin = run_origin::SENT;
    }
    let (flow, index) = insert(stamp.run, stamp.stream(), run_index)?;
    // SAFETY: an element of the flow table, just claimed by this program.
    unsafe {
        (*flow).tx_socket = sender.sock.address();
        (*flow).tx_tgid = sender.tgid;
        if sender_matches(sender) {
            (*flow).admitted = 1;
        }
    }
    describe_sender(stamp, sender, now);
    Some((flow, index))
}

/// A datagram that was held back shows its headers and its device at last:
/// if it is the flow's first, what filters could not see then they see now.
#[inline(always)]
pub(super) fn reconsider(stamp: &Stamp, sock: Object, headers: &Headers, ifindex: u32, now: u64) {
    let Some((flow, _)) = find(stamp.run, stamp.stream()) else {
        return;
    };
    add(flow, Count::DevQueued);
    // SAFETY: an element of the flow table.
    unsafe {
        if (*flow).dev_queued > 1 || sock.is_null() {
            return;
        }
        let sender =
            Sender { sock, tgid: (*flow).tx_tgid, tid: 0, in_call: false, headers: Some(headers), ifindex };
        if sender_matches(&sender) {
            (*flow).admitted = 1;
        }
        describe_sender(stamp, &sender, now);
    }
}

/// Whether the filters admit a datagram by its sending end.
#[inline(always)]
fn sender_matches(sender: &Sender<'_>) -> bool {
    let dev = constant!(SETTINGS.ifindex);
    if dev != 0 && dev != sender.ifindex {
        return false;
    }
    if !process_and_namespace_match(sender.sock, sender.tgid) {
        return false;
    }
    let port = constant!(SETTINGS.port);
    let version = constant!(SETTINGS.addr_version);
    if port == 0 && version == 0 {
        return true;
    }
    let Some(headers) = sender.headers else {
        return false;
    };
    let (sport, dport) = headers.ports();
    if port != 0 && port != u32::from(sport) && port != u32::from(dport) {
        return false;
    }
    if version != 0 {
        let (saddr, daddr) = headers.addresses();
        return version == u32::from(headers.version())
            && (is_filter_address(&saddr) || is_filter_address(&daddr));
    }
    true
}

/// Whether the filters admit a flow by the socket that receives it.
#[inline(always)]
pub(super) fn receiver_matches(sock: Object, tgid: u32) -> bool {
    if constant!(SETTINGS.ifindex) != 0 || constant!(SETTINGS.addr_version) != 0 {
        return false;
    }
    if !process_and_namespace_match(sock, tgid) {
        return false;
    }
    let port = constant!(SETTINGS.port);
    port == 0 || port == u32::from(sock.load::<u16>(constant!(OFFSETS.sk_num)))
}

#[inline(always)]
fn process_and_namespace_match(sock: Object, tgid: u32) -> bool {
    let (want_tgid, want_netns, want_cgroup) =
        (constant!(SETTINGS.tgid), constant!(SETTINGS.netns), constant!(SETTINGS.cgroup));
    if want_tgid != 0 && want_tgid != tgid {
        return false;
    }
    if want_netns != 0 && want_netns != kernel::netns_of(sock) {
        return false;
    }
    let level = constant!(SETTINGS.cgroup_level) as i32;
    // SAFETY: the helper has no preconditions.
    want_cgroup == 0 || want_cgroup == unsafe { bpf_get_current_ancestor_cgroup_id(level) }
}

#[inline(always)]
fn is_filter_address(addr: &[u32; 4]) -> bool {
    // SAFETY: sixteen plain bytes of a load-time constant.
    let want: [u32; 4] =
        unsafe { core::ptr::read_volatile((&raw const super::settings::SETTINGS.addr).cast()) };
    addr[0] == want[0] && addr[1] == want[1] && addr[2] == want[2] && addr[3] == want[3]
}

#[inline(always)]
fn describe_sender(stamp: &Stamp, sender: &Sender<'_>, now: u64) {
    let mut record = FlowRecord {
        kind: RecordKind::Flow as u8,
        // A held-back datagram leaves on whatever thread is current.
        side: if sender.tid == 0 { 3 } else { 1 },
        ip_version: 0,
        pad: 0,
        run: stamp.run,
        first_ns: now,
        stream: stamp.stream(),
        sport: sender.sock.load::<u16>(constant!(OFFSETS.sk_num)),
        dport: u16::from_be(sender.sock.load::<u16>(constant!(OFFSETS.sk_dport))),
        pad2: 0,
        tgid: sender.tgid,
        tid: sender.tid,
        netns: kernel::netns_of(sender.sock),
        buffer_bytes: sender.sock.load::<u32>(constant!(OFFSETS.sk_sndbuf)),
        saddr: [0; 16],
        daddr: [0; 16],
        comm: bpf_get_current_comm().unwrap_or([0; 16]),
    };
    if let Some(headers) = sender.headers {
        let (sport, dport) = headers.ports();
        let (saddr, daddr) = headers.addresses();
        record.ip_version = headers.version();
        record.sport = sport;
        record.dport = dport;
        record.saddr = bytes(saddr);
        record.daddr = bytes(daddr);
    }
    ring::emit_control(&record);
}

#[inline(always)]
fn bytes(words: [u32; 4]) -> [u8; 16] {
    // SAFETY: both are sixteen plain bytes.
    unsafe { core::mem::transmute(words) }
}

/// Notes that `sock` received a datagram of `flow`: describes the socket once,
/// and admits the flow if the filters match this end.
#[inline(always)]
pub(super) fn note_receiver(stamp: &Stamp, flow: *mut FlowSlot, sock: Object, now: u64) {
    // SAFETY: an element of the flow table.
    unsafe {
        if (*flow).rx_socket == sock.address() {
            return;
        }
        (*flow).rx_socket = sock.address();
        let (tid, tgid) = thread::current();
        if (*flow).admitted == 0 && receiver_matches(sock, tgid) {
            (*flow).admitted = 1;
        }
        ring::emit_control(&FlowRecord {
            kind: RecordKind::Flow as u8,
            side: 2,
            ip_version: 0,
            pad: 0,
            run: stamp.run,
            first_ns: now,
            stream: stamp.stream(),
            sport: u16::from_be(sock.load::<u16>(constant!(OFFSETS.sk_dport))),
            dport: sock.load::<u16>(constant!(OFFSETS.sk_num)),
            pad2: 0,
            tgid,
            tid,
            netns: kernel::netns_of(sock),
            buffer_bytes: sock.load::<u32>(constant!(OFFSETS.sk_rcvbuf)),
            saddr: [0; 16],
            daddr: [0; 16],
            comm: bpf_get_current_comm().unwrap_or([0; 16]),
        });
    }
}

/// Sequences a stream from elsewhere may skip at once. Its times cannot be
/// checked against this host's clock, so this is what keeps a random sequence
/// from passing for progress.
const MAX_SKIP: u64 = 1 << 24;

/// The flow of a datagram that arrived from elsewhere, if its run is followed
/// by name or by what was received before, and nobody on this host sends it.
#[inline(always)]
pub(super) fn of_remote(stamp: &Stamp) -> Option<(*mut FlowSlot, u32)> {
    let (run_index, run) = find_run(stamp.run)?;
    // SAFETY: an element of the run table.
    let origin = unsafe { (*run).origin };
    if origin == run_origin::SENT {
        return None;
    }
    if let Some((flow, index)) = find(stamp.run, stamp.stream()) {
        // SAFETY: an element of the flow table.
        let (sent_here, offered) = unsafe { ((*flow).tx_tgid != 0, (*flow).offered) };
        if sent_here {
            return None;
        }
        if stamp.seq() > offered + MAX_SKIP {
            count(Counter::Implausible);
            return None;
        }
        return Some((flow, index));
    }
    if !remote_open() || !comes_again(flow_id(stamp.run, stamp.stream())) || stamp.seq() > MAX_SKIP {
        return None;
    }
    insert(stamp.run, stamp.stream(), run_index)
}

/// A stamp was read that belongs to nothing followed. Admits its run when it
/// comes twice in a row at a socket that the filters let through.
#[inline(always)]
pub(super) fn consider_remote(stamp: &Stamp, sock: Object, now: u64) {
    let (_, tgid) = thread::current();
    if constant!(SETTINGS.only_named_runs) != 0
        || !remote_open()
        || find_run(stamp.run).is_some()
        || !receiver_matches(sock, tgid)
        || !comes_again(u64::from(stamp.run))
    {
        return;
    }
    admit_run(stamp.run, run_origin::RECEIVED, 0, now);
}

/// Whether a stream may be followed because it arrives. Not at first: of a run
/// that goes on while the programs are attached, arrivals are seen before the
/// sender on this host is, which must not pass for one on another.
#[inline(always)]
fn remote_open() -> bool {
    // SAFETY: the element of a one-entry array, written by userspace once.
    REMOTE_OPEN.get_ptr_mut(0).is_some_and(|open| unsafe { *open != 0 })
}

/// Whether `id` is what was asked about the last time, too. A race between
/// CPUs only delays an admission.
#[inline(always)]
fn comes_again(id: u64) -> bool {
    let Some(candidate) = CANDIDATE.get_ptr_mut(0) else {
        return false;
    };
    // SAFETY: the element of a one-entry array.
    unsafe {
        let again = *candidate == id;
        *candidate = id;
        again
    }
}
