//! Engine `direct`: each publisher owns a socket and calls the kernel itself,
//! with as many datagrams as are due by then.

use std::thread;

use observer_ebpf::stamp::Stamp;

use super::config::{SendConfig, SendError};
use super::join;
use super::outlet::{Outlet, SendTally};
use super::publish::{Published, Publisher, Taker};
use crate::batch::SendBatch;
use crate::progress::Progress;
use crate::socket::TxSocket;
use crate::stop::Stop;

struct Direct<'a> {
    outlet: Outlet<'a>,
    progress: &'a Progress,
}

impl Direct<'_> {
    fn flush(&mut self) {
        self.progress.add_offered(crate::num::count(self.outlet.batch.len()));
        self.outlet.flush();
    }
}

impl Taker for Direct<'_> {
    #[inline]
    fn take(&mut self, stamp: &Stamp) -> bool {
        // There is room: a full batch was flushed when it became so.
        let taken = self.outlet.batch.push(stamp);
        if self.outlet.batch.is_full() {
            self.flush();
        }
        taken
    }

    fn settle(&mut self) {
        if !self.outlet.batch.is_empty() {
            self.flush();
        }
    }
}

/// Runs the publishers to their end. A stream that cannot start sets `stop`
/// for the others.
pub(crate) fn run(
    config: &SendConfig,
    sockets: Vec<TxSocket>,
    publishers: Vec<Publisher>,
    stop: &Stop,
    progress: &Progress,
) -> Result<Vec<(Published, SendTally)>, SendError> {
    let messages = config.messages_per_call();
    thread::scope(|scope| {
        let mut running = Vec::with_capacity(publishers.len());
        for (i, (socket, publisher)) in sockets.into_iter().zip(publishers).enumerate() {
            let body = move || -> Result<_, SendError> {
                config.settle_thread(i).inspect_err(|_| stop.set())?;
                let target = (!config.connect).then_some(config.target);
                let batch = SendBatch::new(messages, config.segments, config.size, target);
                let outlet = Outlet::new(socket, batch, config.call, config.size, stop, progress);
                let mut direct = Direct { outlet, progress };
                let published = publisher.run(&mut direct, stop);
                Ok((published, direct.outlet.tally))
            };
            match thread::Builder::new().name(format!("load-pub-{i}")).spawn_scoped(scope, body) {
                Ok(handle) => running.push(handle),
                Err(e) => {
                    stop.set();
                    return Err(SendError::Thread(e));
                }
            }
        }
        running.into_iter().map(join).collect()
    })
}
