//! The state machine: what each action does, and what it leaves alone.

use observer::report::Kind;
use observer::tui::state::{Action, Effect, FILTER_LENGTH, Mode, Screen, Span, State};

use crate::fixtures;

fn state() -> State {
    let mut state = State::new("here", (80, 24));
    state.update(fixtures::shaper());
    state
}

#[test]
fn a_frozen_picture_stays_while_new_ones_are_taken_in() {
    let mut state = state();
    let kept = state.shown().unwrap().snapshot.clone();
    state.act(Action::Freeze);
    state.update(fixtures::overloaded());
    assert_eq!(state.shown().unwrap().snapshot.total, kept.total);
    state.act(Action::Freeze);
    assert_ne!(state.shown().unwrap().snapshot.total, kept.total, "it shows what was collected behind it");
}

#[test]
fn a_reset_is_asked_of_the_source_and_made_here_until_it_answers() {
    let mut state = state();
    let sent = state.counts().unwrap().sent.unwrap();
    assert!(sent > 0);
    assert_eq!(state.act(Action::Reset), Some(Effect::Mark));
    assert_eq!(state.counts().unwrap().sent, Some(0), "counts start over at once");
    assert!(state.is_reset() && state.message.is_some());
    state.source_resets();
    assert_eq!(state.counts().unwrap().sent, Some(sent), "until the source has done it");
}

#[test]
fn what_is_written_is_what_is_shown() {
    let mut state = state();
    state.act(Action::Freeze);
    state.update(fixtures::overloaded());
    let Some(Effect::Export(report)) = state.act(Action::Export) else { panic!("no report") };
    assert_eq!(*report, *state.shown().unwrap().snapshot.total);
    let mut empty = State::new("", (80, 24));
    assert_eq!(empty.act(Action::Export), None);
    assert!(empty.message.is_some());
}

#[test]
fn a_filter_is_kept_or_taken_back_and_never_too_long() {
    let mut state = state();
    state.act(Action::Filter);
    assert_eq!((state.screen, state.mode), (Screen::Flows, Mode::Editing));
    (0..200).for_each(|_| drop(state.act(Action::Type('µ'))));
    assert_eq!(state.filter.chars().count(), FILTER_LENGTH);
    assert!(state.flows().is_empty());
    state.act(Action::Cancel);
    assert_eq!((state.filter.as_str(), state.mode), ("", Mode::Normal));
    state.act(Action::Filter);
    ":40001".chars().for_each(|c| drop(state.act(Action::Type(c))));
    state.act(Action::Accept);
    assert_eq!(state.flows().len(), 1);
    state.act(Action::Cancel);
    assert_eq!(state.flows().len(), 5, "esc drops a filter that was kept");
}

#[test]
fn the_selected_row_stays_on_the_list_when_that_shrinks() {
    let mut state = state();
    state.act(Action::Show(Screen::Flows));
    state.act(Action::Edge { last: true });
    assert_eq!(state.row(), 4);
    state.act(Action::Filter);
    ":40001".chars().for_each(|c| drop(state.act(Action::Type(c))));
    assert_eq!(state.row(), 0);
    state.check().unwrap();
}

#[test]
fn help_goes_back_to_where_it_was_asked_from() {
    let mut state = state();
    for screen in [Screen::Journeys, Screen::Main] {
        state.act(Action::Show(screen));
        state.act(Action::Help);
        state.act(Action::Show(Screen::Help));
        assert_eq!(state.screen, Screen::Help);
        state.act(Action::Help);
        assert_eq!(state.screen, screen);
    }
}

#[test]
fn the_whole_is_shown_of_a_run_that_is_over() {
    let mut state = state();
    assert_eq!(state.span, Span::Interval);
    assert_eq!(state.spanned().unwrap(), &*state.shown().unwrap().snapshot.interval);
    state.act(Action::SwitchSpan);
    assert_eq!(state.spanned().unwrap(), &*state.shown().unwrap().snapshot.total);
    state.act(Action::SwitchSpan);
    state.update(fixtures::over());
    assert_eq!(state.spanned().unwrap().kind, Kind::Final);
}

#[test]
fn turning_visits_every_screen_both_ways() {
    for back in [false, true] {
        let mut state = state();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..Screen::COUNT {
            state.act(Action::Turn { back });
            seen.insert(state.screen);
        }
        assert_eq!((seen.len(), state.screen), (Screen::COUNT, Screen::Main));
    }
}

#[test]
fn another_scene_forgets_the_one_before() {
    let mut state = state();
    state.act(Action::Freeze);
    state.act(Action::Reset);
    state.begin_scene("there".to_owned());
    assert!(state.shown().is_none() && state.baseline.is_none() && state.frozen.is_none());
    state.check().unwrap();
}
