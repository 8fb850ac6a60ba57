//! A model of the report (sender queue, rate limiter): its figures by name, or
//! that there is none yet. The names are the report's own.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use serde_json::Value;

use crate::tui::draw::{View, lines, span, titled};
use crate::view::units::{count, duration, percent};

/// Depth to which nested figures are shown.
const DEPTH: usize = 3;

/// A model as the report writes it; `None` where there is none.
pub fn value(model: &impl serde::Serialize) -> Option<Value> {
    serde_json::to_value(model).ok().filter(|v| !v.is_null())
}

/// Figures of `model`, a row each: `name value`.
pub fn figures(model: &Value) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    collect("", model, DEPTH, &mut rows);
    rows
}

fn collect(name: &str, value: &Value, depth: usize, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if depth > 0 => {
            for (field, value) in fields {
                let name = if name.is_empty() { field.clone() } else { format!("{name} {field}") };
                collect(&name, value, depth - 1, rows);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (i, item) in items.iter().enumerate().take(8) {
                collect(&format!("{name} {}", i + 1), item, depth.saturating_sub(1), rows);
            }
        }
        other => rows.push((name.replace('_', " "), shown(name, other))),
    }
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "—".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Number(n) => match (n.as_u64(), n.as_f64()) {
            (Some(n), _) if name.ends_with("_ns") => duration(n),
            (Some(n), _) => count(n),
            (None, Some(f)) if name.ends_with("share") || name.ends_with("ratio") => percent(f),
            (None, Some(f)) => format!("{f:.4}"),
            (None, None) => n.to_string(),
        },
        nested => nested.to_string(),
    }
}

/// Draws a model, or why there is none.
pub fn render(
    frame: &mut Frame<'_>,
    area: Rect,
    view: &View<'_>,
    title: &str,
    model: Option<&Value>,
    none: &str,
) {
    let area = titled(frame, area, view.theme, title);
    let Some(model) = model else {
        lines(frame, area, vec![Line::from(span(none.to_owned(), view.theme.faint()))]);
        return;
    };
    let rows = figures(model);
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(36);
    let text = rows.into_iter().map(|(name, value)| {
        Line::from(vec![span(format!("{name:<width$}  "), view.theme.faint()), value.into()])
    });
    lines(frame, area, text.collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_units_and_what_is_not_known_a_dash() {
        let model = serde_json::json!({
            "drain_per_s": 1_600_000, "wait": {"p99_ns": 3_300_000, "share": 0.5}, "advice": null,
            "bursts": [{"n": 9}], "says": "pace", "ok": true
        });
        let rows = figures(&model);
        let of = |name: &str| rows.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        assert_eq!(of("drain per s"), Some("1,600,000"));
        assert_eq!(of("wait p99 ns"), Some("3.30 ms"));
        assert_eq!(of("wait share"), Some("50 %"));
        assert_eq!(of("advice"), Some("—"));
        assert_eq!((of("bursts 1 n"), of("says"), of("ok")), (Some("9"), Some("pace"), Some("yes")));
    }
}
