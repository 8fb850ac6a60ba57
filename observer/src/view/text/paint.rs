//! Text with or without colour, and wrapped to the width of a terminal.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

use crate::report::Level;

/// Columns every view fits.
pub const WIDTH: usize = 80;

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    /// Whether to colour.
    pub colour: bool,
}

impl Paint {
    /// A heading.
    pub fn heading(self, text: impl Display) -> String {
        self.with(Style::new().bold(), text)
    }

    /// Something of less weight.
    pub fn faint(self, text: impl Display) -> String {
        self.with(Style::new().dimmed(), text)
    }

    /// Something to look at first.
    pub fn alarm(self, text: impl Display) -> String {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }

    /// A level by its colour.
    pub fn level(self, level: Level, text: impl Display) -> String {
        let colour = match level {
            Level::Passed => AnsiColor::Green,
            Level::Warning => AnsiColor::Yellow,
            Level::Failed | Level::Invalid => AnsiColor::Red,
        };
        self.with(colour.on_default(), text)
    }

    fn with(self, style: Style, text: impl Display) -> String {
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_string() }
    }
}

/// Breaks `text` between words so that it fits [`WIDTH`] behind `indent`
/// columns; every line but the first is indented. A word longer than that is
/// left whole.
pub fn wrap(indent: usize, text: &str) -> String {
    let room = WIDTH.saturating_sub(indent);
    let mut out = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > room {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn colour_only_when_asked() {
        assert_eq!(Paint { colour: false }.alarm("x"), "x");
        assert_eq!(Paint { colour: true }.alarm("x"), "\x1b[1m\x1b[31mx\x1b[0m");
    }

    proptest! {
        #[test]
        fn wrapped_text_fits_and_keeps_its_words(words in proptest::collection::vec("[a-zµ]{1,20}", 0..40), indent in 0_usize..40) {
            let text = words.join(" ");
            let wrapped = wrap(indent, &text);
            prop_assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>(), words);
            for (n, line) in wrapped.lines().enumerate() {
                let before = if n == 0 { indent } else { 0 };
                prop_assert!(before + line.chars().count() <= WIDTH);
            }
        }
    }
}
