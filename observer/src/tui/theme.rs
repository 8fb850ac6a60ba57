//! Colours and glyphs.
//!
//! The four components have the colours of Okabe and Ito, which the common
//! kinds of colour blindness tell apart, in a dark and a light variant; and a
//! fill pattern each, so that nothing is said by colour alone. What is wrong
//! is marked with `!` besides. Without colour (NO_COLOR, `TERM=dumb`) the
//! patterns, bold and reverse remain; without Unicode every glyph is replaced
//! by an ASCII one after drawing ([`to_ascii`]).

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::component::Component;
use crate::report::{Blame, Level};

/// How many colours there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None.
    Mono,
    /// The terminal's own 16.
    Ansi,
    /// 256.
    Indexed,
    /// 24 bits.
    Rgb,
}

/// What is asked for on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// By the environment: NO_COLOR, COLORTERM, COLORFGBG, TERM
    #[default]
    Auto,
    /// For a dark background
    Dark,
    /// For a light background
    Light,
    /// Without colour
    Mono,
}

/// What the environment says; a variable that is not set is `None`.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// NO_COLOR
    pub no_color: Option<String>,
    /// TERM
    pub term: Option<String>,
    /// COLORTERM
    pub colorterm: Option<String>,
    /// COLORFGBG
    pub colorfgbg: Option<String>,
    /// The first that is set of LC_ALL, LC_CTYPE, LANG
    pub locale: Option<String>,
}

impl Environment {
    /// That of this process.
    pub fn read() -> Self {
        let get = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        Self {
            no_color: get("NO_COLOR"),
            term: get("TERM"),
            colorterm: get("COLORTERM"),
            colorfgbg: get("COLORFGBG"),
            locale: get("LC_ALL").or_else(|| get("LC_CTYPE")).or_else(|| get("LANG")),
        }
    }
}

/// How things look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// How many colours there are.
    pub depth: Depth,
    /// The background is light.
    pub light: bool,
    /// There are glyphs beyond ASCII.
    pub unicode: bool,
}

impl Theme {
    /// For tests and pictures: all there is, on a dark background.
    pub const FULL: Self = Self { depth: Depth::Rgb, light: false, unicode: true };

    /// By choice and environment.
    pub fn detect(choice: Choice, ascii: bool, env: &Environment) -> Self {
        let term = env.term.as_deref().unwrap_or("dumb");
        let depth = match choice {
            Choice::Mono => Depth::Mono,
            Choice::Auto if env.no_color.is_some() || term == "dumb" => Depth::Mono,
            _ if env.colorterm.as_deref().is_some_and(|c| c == "truecolor" || c == "24bit") => Depth::Rgb,
            _ if term.contains("256color") => Depth::Indexed,
            _ => Depth::Ansi,
        };
        // "0;15", "0;default;15": the last field is the background.
        let background = env.colorfgbg.as_deref().and_then(|c| c.rsplit(';').next()?.parse::<u8>().ok());
        let light = match choice {
            Choice::Light => true,
            Choice::Auto => background.is_some_and(|b| b == 7 || b == 15),
            Choice::Dark | Choice::Mono => false,
        };
        let utf8 = env.locale.as_deref().is_some_and(|l| {
            let l = l.to_ascii_lowercase();
            l.contains("utf-8") || l.contains("utf8")
        });
        Self { depth, light, unicode: utf8 && !ascii && term != "linux" }
    }

    /// Of these, the colour there is: 24 bits dark and light, 256, 16.
    fn colour(self, dark: u32, light: u32, indexed: (u8, u8), ansi: Color) -> Style {
        let style = Style::new();
        match self.depth {
            Depth::Mono => style,
            Depth::Ansi => style.fg(ansi),
            Depth::Indexed => style.fg(Color::Indexed(if self.light { indexed.1 } else { indexed.0 })),
            Depth::Rgb => style.fg(Color::from_u32(if self.light { light } else { dark })),
        }
    }

    /// A component's colour.
    pub fn component(self, component: Component) -> Style {
        match component {
            Component::SenderQueue => self.colour(0x00e6_9f00, 0x009a_6a00, (214, 136), Color::Yellow),
            Component::Shaper => self.colour(0x0056_b4e9, 0x0000_72b2, (74, 25), Color::Blue),
            Component::Wire => self.colour(0x0000_b888, 0x0000_7a5a, (36, 29), Color::Green),
            Component::Receiver => self.colour(0x00e0_8fbf, 0x00a0_4a80, (175, 132), Color::Magenta),
        }
    }

    /// A component's fill.
    pub const fn fill(self, component: Component) -> &'static str {
        match component {
            Component::SenderQueue => "█",
            Component::Shaper => "▓",
            Component::Wire => "░",
            Component::Receiver => "▒",
        }
    }

    /// The colour of who is to blame.
    pub fn blame(self, blame: Blame) -> Style {
        match blame {
            Blame::SenderQueue => self.component(Component::SenderQueue),
            Blame::Shaper => self.component(Component::Shaper),
            Blame::Wire => self.component(Component::Wire),
            Blame::Receiver => self.component(Component::Receiver),
            Blame::HostNoise => self.warning(),
            Blame::None => self.good(),
        }
        .add_modifier(Modifier::BOLD)
    }

    /// Something is wrong.
    pub fn alarm(self) -> Style {
        self.colour(0x00ff_6e3a, 0x00c0_3a00, (202, 160), Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Something to know.
    pub fn warning(self) -> Style {
        self.colour(0x00f0_e442, 0x0085_7000, (227, 94), Color::Yellow)
    }

    /// All is well.
    pub fn good(self) -> Style {
        self.colour(0x0000_b888, 0x0000_7a5a, (36, 29), Color::Green)
    }

    /// What matters less.
    pub fn faint(self) -> Style {
        match self.depth {
            Depth::Mono => Style::new(),
            _ => self.colour(0x0094_a0ac, 0x0060_6a74, (245, 242), Color::DarkGray),
        }
    }

    /// Titles.
    pub fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The row or tab that is selected.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// By level.
    pub fn level(self, level: Level) -> Style {
        match level {
            Level::Passed => self.good(),
            Level::Warning => self.warning(),
            Level::Failed | Level::Invalid => self.alarm(),
        }
    }

    /// A cell of the heat map, 0 (nothing) to 4.
    pub fn heat(self, level: usize) -> (&'static str, Style) {
        let glyph = [" ", "░", "▒", "▓", "█"][level.min(4)];
        let style = match level {
            0..=1 => self.faint(),
            2 => self.colour(0x0056_b4e9, 0x0000_72b2, (74, 25), Color::Blue),
            3 => self.colour(0x00e6_9f00, 0x009a_6a00, (214, 136), Color::Yellow),
            _ => self.colour(0x00ff_6e3a, 0x00c0_3a00, (202, 160), Color::Red),
        };
        (glyph, style)
    }
}

/// Replaces what is not ASCII by what is like it.
pub fn to_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let replacement = cell.symbol().chars().next().map_or(' ', ascii);
            cell.set_char(replacement);
        }
    }
}

/// The ASCII character that stands for this one.
fn ascii(glyph: char) -> char {
    match glyph {
        c if c.is_ascii() => c,
        '▁' => '_',
        '▂' | '·' | '░' | '…' => '.',
        '▃' => ',',
        '▄' | '─' | '—' | '–' | '−' => '-',
        '▅' | '▒' => '=',
        '▆' | '▓' => '%',
        '▇' => '*',
        '█' => '#',
        '│' | '▕' | '▏' => '|',
        'µ' => 'u',
        '→' | '▶' | '►' => '>',
        '←' => '<',
        '↑' => '^',
        '↓' => 'v',
        'Σ' => 'S',
        '×' => 'x',
        '≥' => '>',
        '≤' => '<',
        '“' | '”' => '"',
        '’' | '‘' => '\'',
        c if c.is_whitespace() => ' ',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;

    fn env(term: &str) -> Environment {
        Environment { term: Some(term.into()), locale: Some("C.UTF-8".into()), ..Environment::default() }
    }

    #[test]
    fn the_environment_decides_unless_somebody_does() {
        let auto = |e: &Environment| Theme::detect(Choice::Auto, false, e);
        assert_eq!(
            auto(&env("xterm-256color")),
            Theme { depth: Depth::Indexed, light: false, unicode: true }
        );
        assert_eq!(auto(&env("dumb")).depth, Depth::Mono);
        assert_eq!(auto(&env("xterm")).depth, Depth::Ansi);
        let no_color = Environment { no_color: Some("1".into()), ..env("xterm-256color") };
        assert_eq!(auto(&no_color).depth, Depth::Mono);
        assert_eq!(Theme::detect(Choice::Dark, false, &no_color).depth, Depth::Indexed);
        let light = Environment { colorfgbg: Some("0;default;15".into()), ..env("xterm") };
        assert!(auto(&light).light && !Theme::detect(Choice::Dark, false, &light).light);
        let rgb = Environment { colorterm: Some("truecolor".into()), ..env("xterm-256color") };
        assert_eq!(auto(&rgb).depth, Depth::Rgb);
    }

    #[test]
    fn without_utf8_there_is_no_unicode() {
        let plain = Environment { locale: Some("C".into()), ..env("xterm") };
        assert!(!Theme::detect(Choice::Auto, false, &plain).unicode);
        assert!(!Theme::detect(Choice::Auto, true, &env("xterm")).unicode);
        assert!(!Theme::detect(Choice::Auto, false, &Environment::default()).unicode);
    }

    #[test]
    fn nothing_but_ascii_is_left() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 40, 1));
        buffer.set_string(0, 0, "12 µs — ▁▂▃▄▅▆▇█ ░▒▓ → ├ 中", Style::new());
        to_ascii(&mut buffer);
        assert!(buffer.content.iter().all(|c| c.symbol().is_ascii()));
        assert!(buffer.content[3].symbol() == "u");
    }

    #[test]
    fn components_differ_by_pattern_and_in_every_depth_but_mono_by_colour() {
        for light in [false, true] {
            for depth in [Depth::Ansi, Depth::Indexed, Depth::Rgb] {
                let theme = Theme { depth, light, unicode: true };
                let mut colours: Vec<_> = Component::ALL.iter().map(|c| theme.component(*c).fg).collect();
                colours.dedup();
                assert_eq!(colours.len(), 4, "{theme:?}");
            }
        }
        let mut fills: Vec<_> =
            Component::ALL.iter().map(|c| ascii(Theme::FULL.fill(*c).chars().next().unwrap())).collect();
        fills.sort_unstable();
        fills.dedup();
        assert_eq!(fills.len(), 4);
    }
}
