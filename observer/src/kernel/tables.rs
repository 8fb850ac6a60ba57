//! Reading what the programs count.

use std::{collections::HashSet, fs, os::fd::AsFd, os::fd::AsRawFd};

use aya::{
    Ebpf,
    maps::{Array, Map, MapData, PerCpuArray},
};
use observer_ebpf::abi::{
    Counter, FLOW_SLOTS, FlowSlot, JourneyRecord, JourneySlot, MAX_RUNS, REASON_SLOTS, RunSlot, flow_id,
    slot_state, value_of,
};

use super::{KernelError, attach::HookStatus, mapped::Mapped};
use crate::source::ProgramStats;

/// The programs' tables.
pub(crate) struct KernelTables {
    journeys: Mapped<JourneySlot>,
    flows: Mapped<FlowSlot>,
    runs: Array<MapData, [u8; size_of::<RunSlot>()]>,
    counters: PerCpuArray<MapData, u64>,
    drops: PerCpuArray<MapData, u64>,
    remote_open: Array<MapData, u64>,
}

fn failed(table: &'static str, reason: impl ToString) -> KernelError {
    KernelError::Table { table, reason: reason.to_string() }
}

fn take(ebpf: &mut Ebpf, table: &'static str) -> Result<Map, KernelError> {
    ebpf.take_map(table).ok_or_else(|| failed(table, "not in the object"))
}

fn map_array<T: observer_ebpf::abi::Plain>(
    ebpf: &mut Ebpf,
    table: &'static str,
    entries: usize,
) -> Result<Mapped<T>, KernelError> {
    match ebpf.map(table) {
        Some(Map::Array(data)) => Mapped::new(data.fd().as_fd(), entries).map_err(|e| failed(table, e)),
        Some(_) => Err(failed(table, "not an array")),
        None => Err(failed(table, "not in the object")),
    }
}

impl KernelTables {
    /// Takes the tables out of a loaded object.
    pub(crate) fn take(ebpf: &mut Ebpf, slots: usize) -> Result<Self, KernelError> {
        Ok(Self {
            journeys: map_array(ebpf, "JOURNEYS", slots)?,
            flows: map_array(ebpf, "FLOWS", FLOW_SLOTS as usize)?,
            runs: take(ebpf, "RUNS")?.try_into().map_err(|e| failed("RUNS", e))?,
            counters: take(ebpf, "COUNTERS")?.try_into().map_err(|e| failed("COUNTERS", e))?,
            drops: take(ebpf, "DROPS")?.try_into().map_err(|e| failed("DROPS", e))?,
            remote_open: take(ebpf, "REMOTE_OPEN")?.try_into().map_err(|e| failed("REMOTE_OPEN", e))?,
        })
    }

    /// Lets streams be followed from now on that are only seen arriving.
    pub(crate) fn open_to_remote(&mut self) -> Result<(), KernelError> {
        self.remote_open.set(0, 1, 0).map_err(|e| failed("REMOTE_OPEN", e))
    }

    /// Entries of the flow table that are in use.
    pub(crate) fn flows(&self) -> Vec<FlowSlot> {
        (0..self.flows.len())
            .filter(|i| self.flows.first_word(*i).is_some_and(|id| id != 0))
            .filter_map(|i| self.flows.get(i))
            .collect()
    }

    /// The run table.
    pub(crate) fn runs(&self) -> Result<[RunSlot; MAX_RUNS], KernelError> {
        let mut runs = [RunSlot::default(); MAX_RUNS];
        for (index, run) in (0..).zip(&mut runs) {
            let bytes = self.runs.get(&index, 0).map_err(|e| failed("RUNS", e))?;
            *run = value_of(&bytes).unwrap_or_default();
        }
        Ok(runs)
    }

    /// Counters, summed over the CPUs.
    pub(crate) fn counters(&self) -> Result<[u64; Counter::COUNT], KernelError> {
        let mut sums = [0; Counter::COUNT];
        for (index, sum) in (0..).zip(&mut sums) {
            let values = self.counters.get(&index, 0).map_err(|e| failed("COUNTERS", e))?;
            *sum = values.iter().sum();
        }
        Ok(sums)
    }

    /// Drops of the runs in use, by run and reason.
    pub(crate) fn drops(&self, runs: &[RunSlot; MAX_RUNS]) -> Result<Vec<(u16, u32, u64)>, KernelError> {
        let mut drops = Vec::new();
        let reasons = u32::try_from(REASON_SLOTS).unwrap_or(u32::MAX);
        for (run, _) in (0_u16..).zip(runs).filter(|(_, run)| run.id != 0) {
            for reason in 0..reasons {
                let values = self
                    .drops
                    .get(&(u32::from(run) * reasons + reason), 0)
                    .map_err(|e| failed("DROPS", e))?;
                let count: u64 = values.iter().sum();
                if count != 0 {
                    drops.push((run, reason, count));
                }
            }
        }
        Ok(drops)
    }

    /// Journeys of admitted flows that have no outcome yet.
    pub(crate) fn unfinished(&self, flows: &[FlowSlot]) -> Vec<JourneyRecord> {
        let admitted: HashSet<u64> = flows.iter().filter(|f| f.admitted != 0).map(|f| f.id).collect();
        (0..self.journeys.len())
            .filter(|i| self.journeys.first_word(*i) == Some(slot_state::LIVE))
            .filter_map(|i| self.journeys.get(i))
            .filter(|slot| slot.state == slot_state::LIVE)
            .map(|slot| slot.journey)
            .filter(|j| {
                let stream = u16::try_from(j.stream_seq >> 48).unwrap_or(u16::MAX);
                admitted.contains(&flow_id(j.run, stream))
            })
            .collect()
    }
}

/// Each program's cost, from the kernel's description of its descriptor.
pub(crate) fn program_stats(ebpf: &Ebpf, hooks: &[HookStatus]) -> Vec<ProgramStats> {
    hooks
        .iter()
        .filter(|status| status.problem.is_none())
        .filter_map(|status| {
            let fd = ebpf.program(status.hook.program)?.fd().ok()?;
            let path = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
            let info = fs::read_to_string(path).ok()?;
            let field = |name: &str| {
                info.lines()
                    .find_map(|l| l.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u64>().ok())
                    .unwrap_or(0)
            };
            Some(ProgramStats {
                name: status.hook.program.to_owned(),
                point: status.hook.point.to_owned(),
                hook: status.hook.hook.to_owned(),
                kind: status.hook.kind.name().to_owned(),
                runs: field("run_cnt"),
                run_ns: field("run_time_ns"),
                missed: field("recursion_misses"),
            })
        })
        .collect()
}
