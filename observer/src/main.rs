//! Scratch.
use observer::kernel::attach::*;
use observer::source::*;
use std::time::*;
fn main() {
    let a = match Attached::new(&AttachOptions { measure_cost: true, ..AttachOptions::default() }) {
        Ok(a) => a,
        Err(e) => {
            println!("{e}");
            return;
        }
    };
    for h in &a.hooks {
        if let Some(p) = &h.problem {
            println!("{:24} {p}", h.hook.program);
        }
    }
    let mut s = ring::RingSource::new(a, observer_ebpf::abi::Detail::Full).unwrap();
    let secs: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let end = Instant::now() + Duration::from_secs(secs);
    let mut b = Batch::default();
    let mut n = 0;
    let mut w = 0;
    let mut bad = 0;
    let mut shown = 0;
    let mut partial = 0;
    let mut tot = vec![];
    while Instant::now() < end {
        s.wait(Duration::from_millis(10));
        b.clear();
        s.poll(&mut b).unwrap();
        for f in &b.flows {
            println!("{f:?}");
        }
        w += b.waits.len();
        for j in &b.journeys {
            n += 1;
            let pts = [
                j.offer_ns as u64,
                j.syscall_ns,
                j.dev_queue_ns,
                j.xmit_ns,
                j.rx_ns,
                j.sock_enqueue_ns,
                j.app_dequeue_ns,
            ];
            if pts.iter().any(|p| *p == 0) {
                partial += 1;
            } else if !pts.is_sorted() {
                bad += 1;
            }
            if (j.kind != 1 || pts.iter().any(|p| *p == 0)) && shown < 5 || shown < 2 {
                shown += 1;
                println!("{j:?}");
            }
            if j.kind == 1 {
                tot.push(j.app_dequeue_ns as i64 - j.offer_ns);
            }
        }
    }
    let t = s.tables(true).unwrap();
    tot.sort();
    if !tot.is_empty() {
        println!(
            "n {n} partial {partial} disorder {bad} waits {w} p50 {} p99 {} max {}",
            tot[tot.len() / 2],
            tot[tot.len() * 99 / 100],
            tot[tot.len() - 1]
        );
    }
    println!("{:?}", t.flows);
    println!("{:?}", t.counters);
    println!("{:?} unfinished {}", t.drops, t.unfinished.len());
    for p in t.programs {
        println!(
            "{:24} {:8} {:6} ns  missed {}",
            p.name,
            p.runs,
            p.run_ns.checked_div(p.runs).unwrap_or(0),
            p.missed
        );
    }
}
