//! An hour of pictures in a process of its own, with every byte counted: what
//! is kept does not grow with the length of a run.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use observer::pipeline::Pipeline;
use observer::source::synthetic::{Plan, Spread, Synthetic};
use observer::source::{Batch, Progress, Source};
use observer::surroundings::Update;
use observer::timeline::{KEPT, Moment, Timeline};
use observer::tui::state::{Action, Screen, State};
use observer::tui::{Theme, screen};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; the
// count beside it touches no memory of the allocations.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's demands.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An interval a second.
const HOUR: u64 = 3_600;
/// The pipeline closes one interval in so many: without optimization it takes
/// a tenth of a second. The others are that one again, a second later.
const REAL: u64 = 60;
/// Datagrams between two of those.
const EACH: usize = 500;

#[test]
fn an_hour_of_snapshots_leaves_memory_as_it_was_after_a_quarter() {
    let plan = Plan {
        datagrams: HOUR / REAL * EACH as u64,
        streams: 90,
        shaper: Spread::Exponential(3_000_000),
        drop_every: 11,
        ..Plan::default()
    };
    let mut source = Synthetic::new(plan);
    let mut pipeline = Pipeline::new(source.meta().clone());
    let mut all = Batch::default();
    while source.poll(&mut all).unwrap() != Progress::End {}
    let mut journeys = all.journeys.chunks(EACH);
    let mut timeline = Timeline::default();
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
    let mut state = State::new("an hour", (120, 40));
    let mut last = pipeline.interval(0);
    let mut after_a_quarter = 0;
    for second in 1..=HOUR {
        let to_ns = second * 1_000_000_000;
        if second % REAL == 1 {
            let batch = Batch {
                flows: std::mem::take(&mut all.flows),
                journeys: journeys.next().unwrap().to_vec(),
                ..Batch::default()
            };
            pipeline.batch(&batch);
            pipeline.tables(source.tables(false).unwrap());
            last = pipeline.interval(to_ns);
        }
        let mut snapshot = (*last).clone();
        snapshot.number = second;
        Arc::make_mut(&mut snapshot.total).to_ns = to_ns;
        timeline.push(Arc::new(Moment {
            number: second,
            to_ns,
            ..(**last.timeline.last().unwrap()).clone()
        }));
        snapshot.timeline = timeline.list();
        state.update(Update::from(Arc::new(snapshot)));
        if second % REAL == 0 {
            let nth = usize::try_from(second / REAL).unwrap();
            state.act(Action::Show(Screen::ALL[nth % Screen::COUNT]));
            terminal.draw(|frame| screen::render(frame, &state, Theme::FULL)).unwrap();
        }
        if second == HOUR / 4 + REAL {
            after_a_quarter = LIVE.load(Ordering::Relaxed);
        }
    }
    let after = LIVE.load(Ordering::Relaxed);
    println!("{after_a_quarter} bytes after a quarter of an hour, {after} after an hour");
    assert!(after < after_a_quarter + after_a_quarter / 10, "grew from {after_a_quarter} to {after} bytes");
    assert_eq!(state.shown().unwrap().snapshot.timeline.len(), KEPT);
}
