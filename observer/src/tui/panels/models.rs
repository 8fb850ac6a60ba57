//! A model of the report (sender queue, rate limiter, receiver queue): what it
//! found, in the words of the text report, and what to do about it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::diagnose::limiter::Limiter;
use crate::diagnose::sender::SenderQueue;
use crate::tui::draw::{View, span, titled, wrapped};
use crate::view::text::diagnosis;

/// What a model says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Says {
    /// What it found; `None` where it found nothing to speak of.
    found: Option<String>,
    /// What to do; may be empty.
    advice: String,
}

impl Says {
    /// Of the sender queue.
    pub fn sender(model: Option<&SenderQueue>) -> Self {
        Self { found: model.and_then(diagnosis::sender), advice: advice(model.map(|m| &m.advice)) }
    }

    /// Of the limiter.
    pub fn limiter(model: Option<&Limiter>) -> Self {
        Self { found: model.and_then(diagnosis::limiter), advice: advice(model.map(|m| &m.advice)) }
    }

    /// Rows with the title on an area `width` columns wide; a word that is
    /// broken off may make it one more.
    pub fn rows(&self, width: u16) -> u16 {
        let texts = self.found.iter().chain((!self.advice.is_empty()).then_some(&self.advice));
        let rows: usize = texts.map(|t| t.chars().count() / usize::from(width.max(1)) + 1).sum();
        u16::try_from(1 + rows.max(1)).unwrap_or(u16::MAX)
    }
}

fn advice(text: Option<&String>) -> String {
    text.filter(|t| !t.is_empty()).map_or_else(String::new, |t| format!("advice: {t}"))
}

/// Draws what a model says, or why there is nothing.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, title: &str, says: &Says, none: &str) {
    let area = titled(frame, area, view.theme, title);
    let mut text = vec![match &says.found {
        Some(found) => Line::raw(found.clone()),
        None => Line::from(span(none.to_owned(), view.theme.faint())),
    }];
    if !says.advice.is_empty() {
        text.push(Line::raw(says.advice.clone()));
    }
    wrapped(frame, area, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_enough_for_what_is_said_and_one_where_nothing_is() {
        assert_eq!(Says::default().rows(80), 2);
        let says = Says { found: Some("x".repeat(100)), advice: "advice: wait".to_owned() };
        assert_eq!((says.rows(80), says.rows(40), says.rows(0)), (4, 5, 115));
    }

    #[test]
    fn without_a_model_nothing_is_said() {
        assert_eq!(Says::sender(None), Says::default());
        assert_eq!(Says::limiter(None), Says::default());
    }
}
