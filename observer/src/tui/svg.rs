//! A frame as an SVG picture, for documentation: the cells drawn are the
//! terminal's, glyph by glyph.
//!
//! Blocks, shades and rules are drawn as rectangles, since fonts disagree
//! about them; everything else is text, each run held to the grid.

use std::fmt::Write as _;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::feed::{Fed, Feed};
use super::screen;
use super::state::State;
use super::theme::Theme;
use crate::report::Kind;
use crate::snapshot::Snapshot;

/// A cell, in the picture's units.
const CELL: (u32, u32) = (9, 19);
/// Around the screen.
const MARGIN: u32 = 12;
/// Where letters stand in a cell.
const BASELINE: u32 = 14;
/// Background and text of the picture.
const COLOURS: (&str, &str) = ("#12161c", "#dce3ea");

/// The picture of `buffer`, as a document of its own; `title` is what a
/// reader who does not see it is told.
pub fn picture(buffer: &Buffer, title: &str) -> String {
    let area = buffer.area;
    let (width, height) =
        (u32::from(area.width) * CELL.0 + 2 * MARGIN, u32::from(area.height) * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"15\">\n\
         <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{}\"/>\n",
        escaped(title),
        COLOURS.0
    );
    for y in 0..area.height {
        row(&mut svg, buffer, y);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Follows `feed` to its end and draws the last picture of it that was live,
/// on a terminal of this size. `None` if there was none.
pub fn of_feed(feed: &mut dyn Feed, size: (u16, u16), title: &str) -> Option<String> {
    let mut state = State::new(String::new(), size);
    loop {
        match feed.next() {
            Fed::Nothing => std::thread::sleep(Duration::from_millis(20)),
            Fed::Update(update) if is_live(&update.snapshot) => state.update(update),
            Fed::Update(_) => {}
            Fed::Scene(scene) => state.begin_scene(scene),
            Fed::Ended(_) => break,
        }
    }
    state.shown()?;
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).ok()?;
    terminal.draw(|frame| screen::render(frame, &state, Theme::FULL)).ok()?;
    Some(picture(terminal.backend().buffer(), title))
}

/// Whether the run goes on, and the interval says something of its tail.
fn is_live(snapshot: &Snapshot) -> bool {
    let total = &snapshot.interval.components.total.distribution;
    snapshot.total.kind == Kind::Interval && total.p99_ns.is_some()
}

/// Foreground and background, reversed where that is asked for; `None` is the
/// picture's own.
fn colours(cell: &Cell) -> (String, Option<String>) {
    let fg = colour(cell.fg).unwrap_or_else(|| COLOURS.1.to_owned());
    let bg = colour(cell.bg);
    if cell.modifier.contains(Modifier::REVERSED) {
        (bg.unwrap_or_else(|| COLOURS.0.to_owned()), Some(fg))
    } else {
        (fg, bg)
    }
}

/// A colour of the theme's full depth; others are the picture's own.
fn colour(colour: Color) -> Option<String> {
    match colour {
        Color::Rgb(r, g, b) => Some(format!("#{r:02x}{g:02x}{b:02x}")),
        _ => None,
    }
}

/// How a glyph is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Drawn {
    /// As a letter.
    Text,
    /// Not at all.
    Nothing,
    /// The lower eighths of the cell.
    Block(u32),
    /// All of it, in so many hundredths of its colour.
    Shade(u32),
    /// A line through the middle.
    Rule,
}

fn drawn(symbol: &str) -> Drawn {
    match symbol {
        " " | "" => Drawn::Nothing,
        "▁" => Drawn::Block(1),
        "▂" => Drawn::Block(2),
        "▃" => Drawn::Block(3),
        "▄" => Drawn::Block(4),
        "▅" => Drawn::Block(5),
        "▆" => Drawn::Block(6),
        "▇" => Drawn::Block(7),
        "█" => Drawn::Block(8),
        "░" => Drawn::Shade(30),
        "▒" => Drawn::Shade(55),
        "▓" => Drawn::Shade(80),
        "─" => Drawn::Rule,
        _ => Drawn::Text,
    }
}

fn row(svg: &mut String, buffer: &Buffer, y: u16) {
    let cells: Vec<&Cell> =
        (0..buffer.area.width).filter_map(|x| buffer.cell((x + buffer.area.x, y + buffer.area.y))).collect();
    // Cells that look alike are one stretch.
    let alike = |a: &&Cell, b: &&Cell| {
        let (a, b) = (*a, *b);
        let kinds = (drawn(a.symbol()), drawn(b.symbol()));
        let shape = match kinds {
            // Spaces inside a text are part of it.
            (Drawn::Text | Drawn::Nothing, Drawn::Text | Drawn::Nothing) => true,
            (a, b) => a == b,
        };
        shape && colours(a) == colours(b) && bold(a) == bold(b)
    };
    let mut x = 0_u32;
    for stretch in cells.chunk_by(|a, b| alike(a, b)) {
        let length = u32::try_from(stretch.len()).unwrap_or(0);
        if let Some(first) = stretch.first() {
            let text: String = stretch.iter().map(|c| c.symbol()).collect();
            piece(svg, (x, u32::from(y)), length, first, &text);
        }
        x += length;
    }
}

fn bold(cell: &Cell) -> bool {
    cell.modifier.contains(Modifier::BOLD)
}

fn piece(svg: &mut String, (x, y): (u32, u32), length: u32, cell: &Cell, text: &str) {
    let (fg, bg) = colours(cell);
    let (left, top) = (MARGIN + x * CELL.0, MARGIN + y * CELL.1);
    let width = length * CELL.0;
    let mut rect = |y: u32, height: u32, fill: &str, opacity: u32| {
        let faint = if opacity < 100 { format!(" fill-opacity=\"0.{opacity}\"") } else { String::new() };
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"{faint}/>"
        );
    };
    if let Some(bg) = bg {
        rect(top, CELL.1, &bg, 100);
    }
    match drawn(cell.symbol()) {
        Drawn::Block(eighths) => {
            let height = (CELL.1 * eighths).div_ceil(8);
            rect(top + CELL.1 - height, height, &fg, 100);
        }
        Drawn::Shade(hundredths) => rect(top, CELL.1, &fg, hundredths),
        Drawn::Rule => rect(top + CELL.1 / 2, 1, &fg, 60),
        Drawn::Text | Drawn::Nothing => {
            let shown = text.trim_end();
            let begins = shown.chars().take_while(|c| *c == ' ').count();
            let (begins, count) =
                (u32::try_from(begins).unwrap_or(0), u32::try_from(shown.chars().count()).unwrap_or(0));
            if count > begins {
                let weight = if bold(cell) { " font-weight=\"bold\"" } else { "" };
                let _ = writeln!(
                    svg,
                    "<text x=\"{}\" y=\"{}\" fill=\"{fg}\"{weight} textLength=\"{}\" xml:space=\"preserve\">{}</text>",
                    left + begins * CELL.0,
                    top + BASELINE,
                    (count - begins) * CELL.0,
                    escaped(shown.trim_start())
                );
            }
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    #[test]
    fn letters_are_text_on_the_grid_and_blocks_are_rectangles() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 2));
        buffer.set_string(0, 0, "a <b", Style::new().fg(Color::Rgb(1, 2, 255)));
        buffer.set_string(0, 1, "▄▄▒", Style::new());
        let svg = picture(&buffer, "a & b");
        assert!(svg.contains("<title>a &amp; b</title>"));
        assert!(
            svg.contains("fill=\"#0102ff\" textLength=\"36\" xml:space=\"preserve\">a &lt;b</text>"),
            "{svg}"
        );
        assert!(svg.contains("<rect x=\"12\" y=\"40\" width=\"18\" height=\"10\""), "{svg}");
        assert!(svg.contains("width=\"9\" height=\"19\" fill=\"#dce3ea\" fill-opacity=\"0.55\"/>"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 3);
    }
}
