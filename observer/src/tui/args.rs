//! How the terminal UI looks, on the command line.

use std::time::Duration;

use super::theme::{Choice, Environment, Theme};

/// Options of every command that has the terminal UI.
#[derive(Clone, Debug, clap::Args)]
pub struct ScreenArgs {
    /// With --tui: most frames a second; fewer for a slow connection
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=20))]
    refresh: u32,
    /// With --tui: colours for this background, or none
    #[arg(long, value_enum, value_name = "LOOK", default_value_t = Choice::Auto)]
    theme: Choice,
    /// With --tui: ASCII alone, no other glyphs
    #[arg(long)]
    ascii: bool,
}

impl Default for ScreenArgs {
    fn default() -> Self {
        Self { refresh: 4, theme: Choice::Auto, ascii: false }
    }
}

impl ScreenArgs {
    /// Shortest time between two frames because of new pictures.
    pub fn refresh(&self) -> Duration {
        Duration::from_secs(1) / self.refresh.max(1)
    }

    /// The look, by these and by the environment.
    pub fn theme(&self) -> Theme {
        Theme::detect(self.theme, self.ascii, &Environment::read())
    }
}
