//! Snapshots in, updates out: looks at sockets and queues in a thread of its
//! own, ten times a second, and gives each snapshot the latest of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{QueueReader, Side, Socket, Surroundings, Update, sockets};
use crate::snapshot::Snapshot;

/// Time between two looks: a full buffer of 208 KiB at 100 Mbit/s drains in
/// 17 ms, so peaks are missed now and then, and fill is a sample, not a sum.
const LOOK: Duration = Duration::from_millis(100);

/// Starts the thread; it ends when the snapshots do, or when nobody wants
/// updates any more. `None` until the first snapshot.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn start(
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    queues: Box<dyn QueueReader>,
) -> std::io::Result<watch::Receiver<Option<Update>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (publish, updates) = watch::channel(None);
    std::thread::Builder::new()
        .name("observer-around".to_owned())
        .spawn(move || runtime.block_on(run(snapshots, queues, &publish)))?;
    Ok(updates)
}

async fn run(
    mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    mut queues: Box<dyn QueueReader>,
    publish: &watch::Sender<Option<Update>>,
) {
    let mut current: Option<Arc<Snapshot>> = None;
    let mut peaks = Peaks::default();
    while !publish.is_closed() {
        match tokio::time::timeout(LOOK, snapshots.changed()).await {
            // The session is over; its last snapshot is its owner's to show.
            Ok(Err(_)) => return,
            Ok(Ok(())) => {
                current.clone_from(&snapshots.borrow_and_update());
                let Some(snapshot) = current.clone() else { continue };
                let sockets = peaks.take(sockets::read(&snapshot.total.flows));
                let queues = queues.read(&snapshot);
                let surroundings = Some(Arc::new(Surroundings { sockets, queues }));
                publish.send_replace(Some(Update { snapshot, surroundings }));
            }
            Err(_) => {
                if let Some(snapshot) = &current {
                    peaks.look(sockets::read(&snapshot.total.flows).as_deref().unwrap_or_default());
                }
            }
        }
    }
}

/// The highest fill of each socket since the last update.
#[derive(Debug, Default)]
struct Peaks(BTreeMap<(Side, u64), u64>);

impl Peaks {
    fn look(&mut self, sockets: &[Socket]) {
        for s in sockets {
            let peak = self.0.entry((s.side, s.inode)).or_default();
            *peak = s.queued_bytes.max(*peak);
        }
    }

    /// Puts the peaks into `sockets` and begins anew.
    fn take(&mut self, mut sockets: Option<Vec<Socket>>) -> Option<Vec<Socket>> {
        for s in sockets.iter_mut().flatten() {
            s.peak_bytes = self.0.get(&(s.side, s.inode)).map_or(s.queued_bytes, |p| s.queued_bytes.max(*p));
        }
        self.0.clear();
        sockets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;
    use crate::source::synthetic::{Plan, Synthetic};
    use crate::surroundings::{NoQueues, Queue};

    fn socket(inode: u64, queued_bytes: u64) -> Socket {
        Socket {
            side: Side::Receiver,
            local: String::new(),
            pid: None,
            comm: String::new(),
            netns: 0,
            queued_bytes,
            peak_bytes: queued_bytes,
            buffer_bytes: 0,
            drops: 0,
            inode,
        }
    }

    #[test]
    fn a_peak_between_two_updates_is_kept_for_one() {
        let mut peaks = Peaks::default();
        peaks.look(&[socket(1, 500), socket(2, 10)]);
        peaks.look(&[socket(1, 90)]);
        let told = peaks.take(Some(vec![socket(1, 100), socket(2, 20)])).unwrap();
        assert_eq!(told.iter().map(|s| s.peak_bytes).collect::<Vec<_>>(), [500, 20]);
        assert_eq!(peaks.take(Some(vec![socket(1, 100)])).unwrap()[0].peak_bytes, 100);
        assert_eq!(peaks.take(None), None);
    }

    struct One;
    impl QueueReader for One {
        fn read(&mut self, _: &Snapshot) -> Option<Vec<Queue>> {
            Some(vec![Queue::default()])
        }
    }

    #[test]
    fn every_snapshot_gets_its_surroundings_and_the_end_is_passed_on() {
        let snapshot = Pipeline::run(&mut Synthetic::new(Plan { datagrams: 10, ..Plan::default() })).unwrap();
        for (reader, known) in [(Box::new(One) as Box<dyn QueueReader>, true), (Box::new(NoQueues), false)] {
            let (publish, snapshots) = watch::channel(None);
            let mut updates = start(snapshots, reader).unwrap();
            publish.send_replace(Some(Arc::clone(&snapshot)));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                updates.changed().await.unwrap();
                let update = updates.borrow_and_update().clone().unwrap();
                assert_eq!(update.snapshot.number, snapshot.number);
                assert_eq!(update.surroundings.unwrap().queues.is_some(), known);
                drop(publish);
                assert!(updates.changed().await.is_err());
            });
        }
    }
}
