//! Loading the object, choosing hooks, attaching.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    error::Error,
    fmt::Write as _,
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::Array,
    programs::{
        BtfTracePoint, CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, Program, ProgramError, TracePoint,
    },
    sys::{Stats, enable_stats},
};
use aya_log::EbpfLogger;
use observer_ebpf::abi::{JOURNEY_RINGS, JOURNEY_SLOTS, RunSlot, Settings, bytes_of, run_origin};

use super::{
    KernelError,
    btf::{self, KernelTypes},
    hooks::{HOOKS, Hook, Kind},
    preflight, tracefs,
};

/// The object built from `observer-ebpf` by `cargo xtask ebpf`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/observer.bpf.o"));

/// Names an object to use in place of the built-in one (tests of a fresh build).
pub const OBJECT_VARIABLE: &str = "OBSERVER_BPF_OBJECT";

/// A run that is followed because somebody asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedRun {
    /// Run id.
    pub id: u32,
    /// The process that sends it; stamps of it from others are foreign. `None`:
    /// any process may send streams of it.
    pub owner: Option<u32>,
}

impl NamedRun {
    /// A run that this process sends.
    pub fn ours(id: u32) -> Self {
        Self { id, owner: Some(std::process::id()) }
    }
}

/// What to attach, and how large.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Filters and thresholds. The fields that depend on the kernel are filled
    /// in here.
    pub settings: Settings,
    /// Runs to follow from the start; with any, no others are followed.
    pub runs: Vec<NamedRun>,
    /// Entries of the journey table; rounded up to a power of two.
    pub slots: u32,
    /// Bytes of each journey ring; a power of two.
    pub ring_bytes: u32,
    /// Have the kernel measure the programs' own time (adds some 50 ns to
    /// each call).
    pub measure_cost: bool,
    /// Diagnostics of the programs themselves, through the `log` crate.
    pub log: Option<log::Level>,
}

impl Default for AttachOptions {
    fn default() -> Self {
        Self {
            settings: Settings {
                detail: observer_ebpf::abi::Detail::Full as u32,
                // A minute: longer than any queue this tool is meant for.
                max_age_ns: 60_000_000_000,
                // Below this a wait explains nothing in a tail of interest.
                min_wait_ns: 20_000,
                ..Settings::UNSET
            },
            runs: Vec::new(),
            slots: JOURNEY_SLOTS,
            ring_bytes: 1 << 24,
            measure_cost: false,
            log: None,
        }
    }
}

/// A hook and whether it serves.
#[derive(Clone, Debug)]
pub struct HookStatus {
    /// The hook.
    pub hook: &'static Hook,
    /// Why it does not serve; `None` if it does.
    pub problem: Option<String>,
}

/// Loaded and attached programs. Dropping it detaches everything.
pub struct Attached {
    pub(crate) ebpf: Ebpf,
    /// Each hook's state.
    pub hooks: Vec<HookStatus>,
    /// Kernel names of drop reasons.
    pub drop_reasons: BTreeMap<u32, String>,
    /// Kernel release.
    pub release: String,
    /// Mask of the journey table.
    pub slot_mask: u32,
    // Keeps run-time statistics on for as long as somebody holds it; the sysctl
    // would outlive a SIGKILL.
    _stats: Option<OwnedFd>,
    logger: Option<EbpfLogger<&'static dyn log::Log>>,
}

impl Attached {
    /// Checks privileges, loads the programs and attaches every hook that this
    /// kernel has.
    ///
    /// # Errors
    ///
    /// [`KernelError`]: no privilege, no BTF, an unusable object, or a
    /// required hook that is missing or refused. A missing optional hook is
    /// no error; [`Attached::hooks`] says so.
    pub fn new(options: &AttachOptions) -> Result<Self, KernelError> {
        preflight::check()?;
        let types = KernelTypes::load()?;
        types.check_helpers()?;
        let drop_reasons = types.drop_reasons();
        let slots = options.slots.max(1024).next_power_of_two();

        let mut settings = options.settings;
        settings.slot_mask = slots - 1;
        settings.only_named_runs = u32::from(!options.runs.is_empty());
        settings.wake_bytes = u64::from(options.ring_bytes / 2);
        settings.has_drop_reason = u32::from(types.tracepoint_args("kfree_skb").is_some_and(|n| n >= 3));
        settings.reason_packet_sock = number_of(&drop_reasons, "PACKET_SOCK_ERROR").unwrap_or(u32::MAX);

        // The programs' levels are numbered like the `log` crate's; 0 turns
        // every statement into dead code.
        let log_level = options.log.map_or(0, |level| level as u8);
        let offsets = types.offsets()?;
        let syscalls = btf::syscalls();
        let (object, origin) = object()?;
        let fail = |e: &dyn Error| KernelError::Object { path: origin.clone(), reason: chain(e) };
        let kernel_btf = Btf::from_sys_fs().map_err(|e| fail(&e))?;
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(&kernel_btf))
            .override_global("OFFSETS", bytes_of(&offsets), true)
            .override_global("SYSCALLS", bytes_of(&syscalls), true)
            .override_global("SETTINGS", bytes_of(&settings), true)
            .override_global("AYA_LOG_LEVEL", &log_level, true)
            .map_max_entries("JOURNEYS", slots)
            .map_max_entries("CONTROL", 1 << 22);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        for (ring, name) in RING_NAMES.iter().enumerate() {
            // A ring that no CPU writes to need not be large.
            loader.map_max_entries(name, if ring < cpus { options.ring_bytes } else { 4096 });
        }
        let mut ebpf = loader.load(&object).map_err(|e| fail(&e))?;
        name_runs(&mut ebpf, &options.runs)?;

        let stats = if options.measure_cost { enable_stats(Stats::RunTime).ok() } else { None };
        let logger = match options.log {
            Some(_) => Some(EbpfLogger::init(&mut ebpf).map_err(|e| fail(&e))?),
            None => None,
        };
        let hooks = attach_all(&mut ebpf, &types, &kernel_btf)?;
        Ok(Self {
            ebpf,
            hooks,
            drop_reasons,
            release: types.release().to_owned(),
            slot_mask: slots - 1,
            _stats: stats,
            logger,
        })
    }

    /// Passes the programs' own diagnostics on to the `log` crate.
    pub fn flush_log(&mut self) {
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
    }
}

/// Map names of the journey rings.
pub(crate) const RING_NAMES: [&str; JOURNEY_RINGS] = ["RING_0", "RING_1", "RING_2", "RING_3"];

fn number_of(reasons: &BTreeMap<u32, String>, name: &str) -> Option<u32> {
    reasons.iter().find_map(|(number, n)| (n == name).then_some(*number))
}

fn object() -> Result<(Cow<'static, [u8]>, String), KernelError> {
    match std::env::var_os(OBJECT_VARIABLE).map(PathBuf::from) {
        None => Ok((Cow::Borrowed(OBJECT), String::new())),
        Some(path) => {
            let origin = format!(" {} (from {OBJECT_VARIABLE})", path.display());
            match std::fs::read(&path) {
                Ok(bytes) => Ok((Cow::Owned(bytes), origin)),
                Err(e) => Err(KernelError::Object { path: origin, reason: e.to_string() }),
            }
        }
    }
}

/// An error and its causes, on one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        let _ = write!(text, ": {e}");
        cause = e.source();
    }
    text
}

fn name_runs(ebpf: &mut Ebpf, runs: &[NamedRun]) -> Result<(), KernelError> {
    let table = |reason: String| KernelError::Table { table: "RUNS", reason };
    let map = ebpf.map_mut("RUNS").ok_or_else(|| table("not in the object".to_owned()))?;
    let mut map = Array::<_, [u8; size_of::<RunSlot>()]>::try_from(map).map_err(|e| table(chain(&e)))?;
    for (index, run) in (0..).zip(runs) {
        let slot = RunSlot {
            id: u64::from(run.id),
            origin: run_origin::NAMED,
            tgid: run.owner.unwrap_or(0),
            ..RunSlot::default()
        };
        let mut bytes = [0; size_of::<RunSlot>()];
        bytes.copy_from_slice(bytes_of(&slot));
        map.set(index, bytes, 0).map_err(|e| table(chain(&e)))?;
    }
    Ok(())
}

/// Loads every program, then attaches from the receiver back to the sender:
/// a datagram is claimed where it leaves the stack, and by then everything
/// that it will pass is already watched.
fn attach_all(ebpf: &mut Ebpf, types: &KernelTypes, btf: &Btf) -> Result<Vec<HookStatus>, KernelError> {
    let chosen = HOOKS.iter().filter(|hook| hook.instead_of.is_none_or(|best| !types.has_tracepoint(best)));
    let chosen: Vec<&'static Hook> = chosen.collect();
    let mut problems = Vec::with_capacity(chosen.len());
    for hook in &chosen {
        problems.push(judge(hook, load(ebpf, hook, types, btf))?);
    }
    for (hook, problem) in chosen.iter().zip(&mut problems).rev() {
        if problem.is_none() {
            *problem = judge(hook, attach(ebpf, hook))?;
        }
    }
    Ok(chosen.into_iter().zip(problems).map(|(hook, problem)| HookStatus { hook, problem }).collect())
}

/// What to say of an optional hook that does not serve; the error, if it is a
/// required one.
fn judge(hook: &Hook, result: Result<(), Problem>) -> Result<Option<String>, KernelError> {
    match result {
        Ok(()) => Ok(None),
        Err(Problem::Missing) if hook.required => {
            Err(KernelError::NoHook { hook: hook.hook, point: hook.point, since: hook.since })
        }
        Err(Problem::Missing) => Ok(Some(format!("not in this kernel (since {})", hook.since))),
        Err(Problem::Refused(reason)) if hook.required => {
            Err(KernelError::Program { program: hook.program, hook: hook.hook, reason })
        }
        Err(Problem::Refused(reason)) => Ok(Some(reason)),
    }
}

enum Problem {
    Missing,
    Refused(String),
}

impl From<ProgramError> for Problem {
    fn from(error: ProgramError) -> Self {
        if let ProgramError::LoadError { io_error, verifier_log } = &error {
            let log = verifier_log.to_string();
            // The verifier's last words say why; what comes before is its trace.
            let last: Vec<&str> = log.lines().rev().filter(|l| !l.is_empty()).take(4).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            if std::env::var_os("OBSERVER_VERIFIER_LOG").is_some() {
                eprintln!("{log}");
            }
            return Self::Refused(format!("{io_error}: {}", last.join(" | ")));
        }
        Self::Refused(chain(&error))
    }
}

fn program<'e>(ebpf: &'e mut Ebpf, hook: &Hook) -> Result<&'e mut Program, Problem> {
    ebpf.program_mut(hook.program)
        .ok_or_else(|| Problem::Refused("the object has no such program".to_owned()))
}

fn load(ebpf: &mut Ebpf, hook: &Hook, types: &KernelTypes, btf: &Btf) -> Result<(), Problem> {
    let program = program(ebpf, hook)?;
    match hook.kind {
        Kind::BtfTracepoint if !types.has_tracepoint(hook.program) => return Err(Problem::Missing),
        Kind::BtfTracepoint => {
            let program: &mut BtfTracePoint = program.try_into()?;
            program.load(hook.program, btf)?;
        }
        Kind::Tracepoint { .. } => {
            let program: &mut TracePoint = program.try_into()?;
            program.load()?;
        }
        Kind::CgroupIngress => {
            let program: &mut CgroupSkb = program.try_into()?;
            program.load()?;
        }
    }
    Ok(())
}

fn attach(ebpf: &mut Ebpf, hook: &Hook) -> Result<(), Problem> {
    let program = program(ebpf, hook)?;
    match hook.kind {
        Kind::BtfTracepoint => {
            let program: &mut BtfTracePoint = program.try_into()?;
            program.attach()?;
        }
        Kind::Tracepoint { category, names } => {
            let program: &mut TracePoint = program.try_into()?;
            tracefs::with_tracefs(|| {
                names.iter().try_for_each(|name| program.attach(category, name).map(drop))
            })
            .map_err(Problem::Refused)??;
        }
        Kind::CgroupIngress => {
            let root =
                cgroup2_root().ok_or_else(|| Problem::Refused("no cgroup2 tree is mounted".to_owned()))?;
            let root = File::open(&root)
                .map_err(|e| Problem::Refused(format!("cannot open {}: {e}", root.display())))?;
            let program: &mut CgroupSkb = program.try_into()?;
            // A link always shares the cgroup with other programs; asking for it
            // (AllowMultiple) is what the kernel refuses.
            program.attach(root, CgroupSkbAttachType::Ingress, CgroupAttachMode::Single)?;
        }
    }
    Ok(())
}

/// Where the cgroup2 tree is mounted: the usual places differ (`unified`
/// under hybrid hierarchies).
pub fn cgroup2_root() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| Path::new(place).to_path_buf())
    })
}
