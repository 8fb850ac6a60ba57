//! Where a batch leaves for the kernel, shared by both engines: sends what is
//! filled, deals with partial sends and errors, and counts.

use std::collections::BTreeMap;

use rustix::io::Errno;
use serde::Serialize;

use crate::batch::{SendBatch, SendCall};
use crate::clock;
use crate::num::count;
use crate::progress::Progress;
use crate::socket::TxSocket;
use crate::stop::Stop;

/// When a send call returned and how many datagrams had been sent by then;
/// what the drain rate D is estimated from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DrainMark {
    /// ns of CLOCK_MONOTONIC.
    pub at_ns: i64,
    /// Datagrams sent so far.
    pub sent: u64,
}

/// Marks kept; when there are more, every second one is let go.
const MARKS: usize = 1 << 14;

/// Answers to earlier datagrams taken in a row before the error counts as the
/// present one's own (a route that is gone says so every time).
const MAX_ANSWERS: u32 = 8;

/// What became of the datagrams handed to the kernel.
#[derive(Debug)]
pub(crate) struct SendTally {
    pub(crate) sent: u64,
    pub(crate) bytes: u64,
    pub(crate) calls: u64,
    /// Datagrams not sent because the kernel refused them, by errno.
    pub(crate) refused: BTreeMap<i32, u64>,
    /// Errors that belong to datagrams sent earlier (ICMP answers), by errno.
    pub(crate) reported: BTreeMap<i32, u64>,
    /// Calls that gave up waiting for room in the send buffer, and were repeated.
    pub(crate) blocked: u64,
    /// Datagrams left over when the run was stopped.
    pub(crate) discarded: u64,
    pub(crate) first_ns: Option<i64>,
    pub(crate) last_ns: Option<i64>,
    pub(crate) marks: Vec<DrainMark>,
    keep_every: u64,
}

impl SendTally {
    pub(crate) fn new() -> Self {
        Self {
            sent: 0,
            bytes: 0,
            calls: 0,
            refused: BTreeMap::new(),
            reported: BTreeMap::new(),
            blocked: 0,
            discarded: 0,
            first_ns: None,
            last_ns: None,
            marks: Vec::with_capacity(MARKS),
            keep_every: 1,
        }
    }

    fn mark(&mut self, before: i64, after: i64) {
        self.first_ns.get_or_insert(before);
        self.last_ns = Some(after);
        if !self.calls.is_multiple_of(self.keep_every) {
            return;
        }
        if self.marks.len() == MARKS {
            let mut odd = false;
            self.marks.retain(|_| {
                odd = !odd;
                odd
            });
            self.keep_every *= 2;
        }
        self.marks.push(DrainMark { at_ns: after, sent: self.sent });
    }
}

/// A socket and the batch that leaves through it.
pub(crate) struct Outlet<'a> {
    socket: TxSocket,
    pub(crate) batch: SendBatch,
    call: SendCall,
    size: u64,
    stop: &'a Stop,
    progress: &'a Progress,
    pub(crate) tally: SendTally,
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(
        socket: TxSocket,
        batch: SendBatch,
        call: SendCall,
        size: usize,
        stop: &'a Stop,
        progress: &'a Progress,
    ) -> Self {
        Self { socket, batch, call, size: count(size), stop, progress, tally: SendTally::new() }
    }

    /// Sends everything in the batch and empties it.
    pub(crate) fn flush(&mut self) {
        let messages = self.batch.messages();
        let sent_before = self.tally.sent;
        let (mut done, mut answers) = (0, 0);
        while done < messages {
            let before = clock::now_ns();
            match self.batch.send(&self.socket.fd, self.call, done) {
                Ok(n) => {
                    let datagrams: u64 = (done..done + n).map(|i| count(self.batch.datagrams_in(i))).sum();
                    self.tally.sent += datagrams;
                    self.tally.bytes += datagrams * self.size;
                    self.tally.calls += 1;
                    self.tally.mark(before, clock::now_ns());
                    done += n.max(1);
                    answers = 0;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // SO_SNDTIMEO is over and the send buffer still full.
                    self.tally.blocked += 1;
                    if self.stop.is_set() {
                        self.tally.discarded +=
                            (done..messages).map(|i| count(self.batch.datagrams_in(i))).sum::<u64>();
                        break;
                    }
                }
                Err(e @ (Errno::CONNREFUSED | Errno::HOSTUNREACH)) if answers < MAX_ANSWERS => {
                    // The answer to a datagram sent earlier; this one was not tried.
                    *self.tally.reported.entry(e.raw_os_error()).or_default() += 1;
                    answers += 1;
                }
                Err(e) => {
                    let n = count(self.batch.datagrams_in(done));
                    *self.tally.refused.entry(e.raw_os_error()).or_default() += n;
                    done += 1;
                    answers = 0;
                }
            }
        }
        self.progress.add_sent(self.tally.sent - sent_before);
        self.batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stay_bounded_and_span_the_run() {
        let mut tally = SendTally::new();
        for i in 0..200_000 {
            tally.calls += 1;
            tally.sent += 3;
            tally.mark(i, i + 1);
        }
        assert!(tally.marks.len() <= MARKS && tally.marks.len() > MARKS / 4);
        assert!(tally.marks.windows(2).all(|w| w[0].at_ns < w[1].at_ns));
        let (first, last) = (tally.marks[0], tally.marks[tally.marks.len() - 1]);
        assert!(first.at_ns <= 2 && last.at_ns > 199_900, "{first:?} {last:?}");
        assert_eq!((tally.first_ns, tally.last_ns), (Some(0), Some(200_000)));
    }
}
