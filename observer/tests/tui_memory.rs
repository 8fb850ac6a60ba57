//! An hour of pictures in a process of its own, with every byte counted: what
//! is kept does not grow with the length of a run.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use observer::pipeline::Pipeline;
use observer::source::synthetic::{Plan, Spread, Synthetic};
use observer::source::{Batch, Source};
use observer::surroundings::Update;
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
/// Datagrams in an interval: every structure is in use, and an hour is short.
const EACH: u64 = 20;

#[test]
fn an_hour_of_snapshots_leaves_memory_as_it_was_after_a_quarter() {
    let plan = Plan {
        datagrams: HOUR * EACH,
        streams: 2,
        shaper: Spread::Exponential(3_000_000),
        drop_every: 11,
        ..Plan::default()
    };
    let mut source = Synthetic::new(plan);
    let mut pipeline = Pipeline::new(source.meta().clone());
    let (mut polled, mut batch) = (Batch::default(), Batch::default());
    let mut journeys = Vec::new().into_iter();
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
    let mut state = State::new("an hour", (120, 40));
    let mut after_a_quarter = 0;
    for second in 1..=HOUR {
        batch.clear();
        while (batch.journeys.len() as u64) < EACH {
            match journeys.next() {
                Some(journey) => batch.journeys.push(journey),
                None => {
                    polled.clear();
                    source.poll(&mut polled).unwrap();
                    batch.flows.append(&mut polled.flows);
                    journeys = std::mem::take(&mut polled.journeys).into_iter();
                }
            }
        }
        pipeline.batch(&batch);
        pipeline.tables(source.tables(false).unwrap());
        state.update(Update::from(pipeline.interval(second * 1_000_000_000)));
        if second % 60 == 0 {
            state.act(Action::Show(Screen::ALL[usize::try_from(second / 60).unwrap() % Screen::COUNT]));
            terminal.draw(|frame| screen::render(frame, &state, Theme::FULL)).unwrap();
        }
        if second == HOUR / 4 + 60 {
            after_a_quarter = LIVE.load(Ordering::Relaxed);
        }
    }
    // What is polled and not yet used is the source's.
    let after = LIVE.load(Ordering::Relaxed);
    println!("{after_a_quarter} bytes after a quarter of an hour, {after} after an hour");
    assert!(after < after_a_quarter + after_a_quarter / 10, "grew from {after_a_quarter} to {after} bytes");
    assert_eq!(state.shown().unwrap().snapshot.timeline.len(), observer::timeline::KEPT);
}
