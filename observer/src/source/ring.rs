//! The live source: the rings and tables of the attached programs.
//!
//! One poll empties the journey rings first and the control ring after them.
//! A wait or a flow is written before any journey that it bears upon ends, so
//! whatever happened before a journey in this batch is in this batch too.

use std::{io, os::fd::OwnedFd, time::Duration};

use aya::maps::{MapData, RingBuf};
use aya::programs::Program;
use observer_ebpf::abi::{Detail, FlowSlot};
use rustix::event::{Timespec, epoll};

use super::{Batch, ChosenHook, HostSample, ProgramStats, Progress, Source, SourceError, SourceMeta, Tables};
use crate::{
    decode,
    host::{CpuTimes, StolenTime},
    kernel::{
        KernelError,
        attach::{Attached, RING_NAMES},
        hooks::HOOKS,
        tables::{KernelTables, program_stats},
    },
};

/// Journeys taken from one ring in one poll: keeps a poll short, and the
/// others from waiting.
const PER_RING: usize = 1 << 14;

/// Attached programs as a source.
pub struct RingSource {
    journeys: Vec<RingBuf<MapData>>,
    control: RingBuf<MapData>,
    tables: KernelTables,
    meta: SourceMeta,
    /// Edge-triggered: records are always waiting between two polls, and what
    /// is awaited is the programs' wake-up, not their presence.
    wake_ups: OwnedFd,
    cpu_at_start: Option<CpuTimes>,
    stolen: Option<StolenTime>,
    /// What the programs cost that are detached already.
    ended: Vec<ProgramStats>,
    /// From when on streams may be followed that are only seen arriving;
    /// `None` once they are.
    remote_from_ns: Option<u64>,
    attached: Attached,
}

/// Time for the senders of this host to show themselves: long enough for one
/// that sends twice a second. Whoever has not sent by then is elsewhere.
const LOCAL_FIRST_NS: u64 = 500_000_000;

/// The programs by which a datagram begins to be followed.
const CLAIMING: [&str; 2] = ["sock_send_length", "net_dev_queue"];

impl RingSource {
    fn open_to_remote(&mut self) -> Result<(), SourceError> {
        if self.remote_from_ns.is_some_and(|from| crate::host::monotonic_ns() >= from) {
            self.remote_from_ns = None;
            self.tables.open_to_remote().map_err(|e| SourceError::Kernel {
                what: "the programs' table of settings".to_owned(),
                source: io::Error::other(e),
            })?;
        }
        Ok(())
    }

    /// Takes rings and tables out of what is attached.
    ///
    /// # Errors
    ///
    /// [`KernelError::Table`] if one of them is missing or cannot be mapped.
    pub fn new(mut attached: Attached, detail: Detail) -> Result<Self, KernelError> {
        let mut journeys = Vec::with_capacity(RING_NAMES.len());
        for name in RING_NAMES {
            journeys.push(ring(&mut attached, name)?);
        }
        let control = ring(&mut attached, "CONTROL")?;
        let wake_ups = watch(&journeys).map_err(|e| KernelError::Table {
            table: "RING_0",
            reason: format!("cannot be waited for: {e}"),
        })?;
        let slots = attached.slot_mask as usize + 1;
        let tables = KernelTables::take(&mut attached.ebpf, slots)?;
        let meta = SourceMeta {
            origin: "ring".to_owned(),
            start_ns: crate::host::monotonic_ns(),
            clock: "CLOCK_MONOTONIC".to_owned(),
            kernel: attached.release.clone(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            detail,
            reasons: attached.drop_reasons.clone(),
            hooks: chosen_hooks(&attached),
        };
        Ok(Self {
            journeys,
            control,
            tables,
            meta,
            wake_ups,
            cpu_at_start: CpuTimes::now(),
            stolen: StolenTime::start(),
            ended: Vec::new(),
            remote_from_ns: Some(crate::host::monotonic_ns().saturating_add(LOCAL_FIRST_NS)),
            attached,
        })
    }

    /// The flow table now, cheaper than all tables.
    pub fn flows(&self) -> Vec<FlowSlot> {
        self.tables.flows()
    }

    /// Sleeps until `timeout` is over or a ring passes its fill mark.
    pub fn wait(&self, timeout: Duration) {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 8];
        // Interrupted or failed, it is an early return: the rings are looked
        // at either way.
        let _ = epoll::wait(&self.wake_ups, &mut events[..], Some(&timeout));
    }

    /// Follows nothing that is sent from now on: what is under way can then
    /// come to its end, also of a run that goes on.
    pub fn follow_no_more(&mut self) {
        let now = program_stats(&self.attached.ebpf, &self.attached.hooks);
        self.ended.extend(now.into_iter().filter(|p| CLAIMING.contains(&p.name.as_str())));
        CLAIMING.into_iter().for_each(|program| self.unload(program));
    }

    fn unload(&mut self, program: &str) {
        // One that was never loaded cannot be unloaded, and need not be.
        let _ = match self.attached.ebpf.program_mut(program) {
            Some(Program::BtfTracePoint(p)) => p.unload(),
            Some(Program::TracePoint(p)) => p.unload(),
            Some(Program::CgroupSkb(p)) => p.unload(),
            _ => Ok(()),
        };
    }

    /// Detaches everything, from the sender on to the receiver: of a run that
    /// goes on, tables read one after the other would otherwise contradict each
    /// other, and so would programs that go in any order.
    fn stop_counting(&mut self) {
        let in_order = CLAIMING.into_iter().chain(HOOKS.iter().map(|hook| hook.program));
        in_order.for_each(|program| self.unload(program));
        // Programs that were running end; none is longer than microseconds.
        std::thread::sleep(Duration::from_millis(5));
    }

    fn kernel_tables(&mut self, last: bool) -> Result<Tables, KernelError> {
        let mut programs = program_stats(&self.attached.ebpf, &self.attached.hooks);
        programs.extend(self.ended.iter().cloned());
        if last {
            self.stop_counting();
        }
        let runs = self.tables.runs()?;
        let flows = self.tables.flows();
        let unfinished = if last { self.tables.unfinished(&flows) } else { Vec::new() };
        let host = match (&self.cpu_at_start, CpuTimes::now()) {
            (Some(start), Some(now)) => HostSample {
                steal_ratio: now.steal_ratio_since(start),
                busy_ratio: now.busy_ratio_since(start),
                cpus: std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok()),
                stolen_ns: self.stolen.as_mut().map(StolenTime::read_ns),
            },
            _ => HostSample::default(),
        };
        Ok(Tables {
            at_ns: crate::host::monotonic_ns(),
            drops: self.tables.drops(&runs)?,
            counters: self.tables.counters()?,
            missed: programs.iter().map(|p| p.missed).sum(),
            flows,
            runs,
            unfinished,
            programs,
            host,
        })
    }
}

fn watch(rings: &[RingBuf<MapData>]) -> rustix::io::Result<OwnedFd> {
    let wake_ups = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for ring in rings {
        epoll::add(
            &wake_ups,
            ring,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
    }
    Ok(wake_ups)
}

fn ring(attached: &mut Attached, name: &'static str) -> Result<RingBuf<MapData>, KernelError> {
    let failed = |reason: String| KernelError::Table { table: name, reason };
    let map = attached.ebpf.take_map(name).ok_or_else(|| failed("not in the object".to_owned()))?;
    RingBuf::try_from(map).map_err(|e| failed(e.to_string()))
}

/// For each point, the hook that serves it, or why none does.
fn chosen_hooks(attached: &Attached) -> Vec<ChosenHook> {
    let mut chosen = vec![ChosenHook {
        point: "offer".to_owned(),
        hook: "stamp in the payload".to_owned(),
        kind: "payload".to_owned(),
    }];
    for hook in HOOKS {
        let problem =
            attached.hooks.iter().find(|h| h.hook.program == hook.program).and_then(|h| h.problem.as_deref());
        chosen.push(match problem {
            None => ChosenHook {
                point: hook.point.to_owned(),
                hook: hook.hook.to_owned(),
                kind: hook.kind.name().to_owned(),
            },
            Some(why) => ChosenHook {
                point: hook.point.to_owned(),
                hook: format!("{}: {why}; {}", hook.hook, hook.without),
                kind: "none".to_owned(),
            },
        });
    }
    chosen
}

impl Source for RingSource {
    fn poll(&mut self, batch: &mut Batch) -> Result<Progress, SourceError> {
        self.attached.flush_log();
        self.open_to_remote()?;
        let mut progress = Progress::Idle;
        for ring in &mut self.journeys {
            for taken in 0.. {
                if taken == PER_RING {
                    progress = Progress::More;
                    break;
                }
                let Some(item) = ring.next() else { break };
                decode::record(&item, batch);
            }
        }
        while let Some(item) = self.control.next() {
            decode::record(&item, batch);
        }
        Ok(progress)
    }

    fn tables(&mut self, last: bool) -> Result<Tables, SourceError> {
        self.kernel_tables(last).map_err(|e| SourceError::Kernel {
            what: "tables of the programs".to_owned(),
            source: io::Error::other(e),
        })
    }

    fn meta(&self) -> &SourceMeta {
        &self.meta
    }
}
