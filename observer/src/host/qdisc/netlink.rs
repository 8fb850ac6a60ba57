//! The conversation: one rtnetlink socket, a dump of the qdiscs, then one of
//! each device's classes.
//!
//! A dump that the kernel marks as interrupted (something changed meanwhile)
//! is read anew, a few times at most.

use std::{collections::BTreeMap, fs, io};

use netlink_packet_core::{
    Emitable, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::{
    Qdisc, QdiscError,
    decode::{self, Tick},
};

const GET_QDISC: u16 = 38;
const GET_CLASS: u16 = 42;
const DONE: u16 = 3;
const ERROR: u16 = 2;
/// Of a request: netlink header and `struct tcmsg`.
const REQUEST: usize = 36;
/// Larger than any part of a dump, which the kernel keeps to 32 KiB.
const PART: usize = 64 * 1024;
const ATTEMPTS: usize = 5;
/// Kinds whose classes tell something the qdisc does not.
const CLASSFUL: &str = "htb";

/// All qdiscs of this thread's namespace, each device's htb classes behind.
pub(super) fn read() -> Result<Vec<Qdisc>, QdiscError> {
    let failed = |doing| move |source| QdiscError::Netlink { doing, source };
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed("opening a socket"))?;
    socket.bind_auto().map_err(failed("binding the socket"))?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(failed("connecting the socket"))?;
    let tick = fs::read_to_string("/proc/net/psched").ok().and_then(|t| Tick::parse(&t));
    let mut conversation = Conversation { socket, sequence: 0, tick: tick.unwrap_or(Tick::USUAL) };

    let qdiscs = conversation.dump(GET_QDISC, 0)?;
    let mut devices: Vec<u32> = qdiscs.iter().filter(|q| q.kind == CLASSFUL).map(|q| q.ifindex).collect();
    devices.dedup();
    let mut all = BTreeMap::<u32, Vec<Qdisc>>::new();
    for qdisc in qdiscs {
        all.entry(qdisc.ifindex).or_default().push(qdisc);
    }
    for ifindex in devices {
        let classes = conversation.dump(GET_CLASS, ifindex)?;
        let classes = classes.into_iter().filter(|c| c.kind == CLASSFUL && c.ifindex == ifindex);
        all.entry(ifindex).or_default().extend(classes);
    }
    Ok(all.into_iter().flat_map(|(ifindex, entries)| named(ifindex, entries)).collect())
}

fn named(ifindex: u32, mut entries: Vec<Qdisc>) -> Vec<Qdisc> {
    use rustix::net::{AddressFamily, SocketType, netdevice::index_to_name, socket};
    let name = socket(AddressFamily::INET, SocketType::DGRAM, None).and_then(|s| index_to_name(s, ifindex));
    let name = name.unwrap_or_else(|_| format!("if{ifindex}"));
    for entry in &mut entries {
        entry.device.clone_from(&name);
    }
    entries
}

struct Conversation {
    socket: Socket,
    sequence: u32,
    tick: Tick,
}

impl Conversation {
    fn dump(&mut self, request: u16, ifindex: u32) -> Result<Vec<Qdisc>, QdiscError> {
        for _ in 0..ATTEMPTS {
            self.sequence = self.sequence.wrapping_add(1);
            let asked = ask(request, self.sequence, ifindex);
            self.socket
                .send(&asked, 0)
                .map_err(|source| QdiscError::Netlink { doing: "asking for a dump", source })?;
            if let Some(entries) = self.answer()? {
                return Ok(entries);
            }
        }
        Err(QdiscError::Unsteady)
    }

    /// The whole answer; `None` if it was interrupted.
    fn answer(&self) -> Result<Option<Vec<Qdisc>>, QdiscError> {
        let mut answer = Answer::default();
        let mut part = Vec::with_capacity(PART);
        while !answer.complete {
            part.clear();
            let failed = |source| QdiscError::Netlink { doing: "receiving a dump", source };
            let length = match self.socket.recv(&mut part, libc::MSG_TRUNC) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                received => received.map_err(failed)?,
            };
            if length == 0 || length > part.len() {
                return Err(failed(io::Error::other("a part of the dump was cut off")));
            }
            answer.take(&part, self.sequence, self.tick).map_err(failed)?;
        }
        Ok((!answer.interrupted).then_some(answer.entries))
    }
}

/// A dump request, as it travels.
pub(super) fn ask(request: u16, sequence: u32, ifindex: u32) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    let mut header = NetlinkHeader::default();
    header.length = 36;
    header.message_type = request;
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    header.sequence_number = sequence;
    header.emit(&mut bytes);
    bytes[20..24].copy_from_slice(&ifindex.to_ne_bytes());
    bytes
}

/// What has been received of an answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) entries: Vec<Qdisc>,
    pub(super) interrupted: bool,
    pub(super) complete: bool,
}

impl Answer {
    /// Takes in one datagram of messages. Messages of other requests are
    /// passed over.
    pub(super) fn take(&mut self, mut part: &[u8], sequence: u32, tick: Tick) -> io::Result<()> {
        while !part.is_empty() && !self.complete {
            let buffer = NetlinkBuffer::new_checked(part).map_err(io::Error::other)?;
            let length = usize::try_from(buffer.length()).map_err(io::Error::other)?;
            if buffer.sequence_number() == sequence {
                self.interrupted |= buffer.flags() & NLM_F_DUMP_INTR != 0;
                match buffer.message_type() {
                    DONE => {
                        result(buffer.payload())?;
                        self.complete = true;
                    }
                    ERROR => {
                        result(buffer.payload())?;
                        return Err(io::Error::other("an acknowledgement in place of a dump"));
                    }
                    kind => self.entries.extend(decode::message(kind, buffer.payload(), tick)),
                }
            }
            // Messages begin at multiples of four.
            part = part.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }
}

/// The number at the start of an end or an error: 0, or a negative errno.
fn result(payload: &[u8]) -> io::Result<()> {
    match payload.first_chunk().map(|b| i32::from_ne_bytes(*b)) {
        Some(0) | None => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno.saturating_abs())),
    }
}
