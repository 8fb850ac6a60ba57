//! Reports as people and programs read them. A view takes a report or a
//! snapshot and returns text; it holds no state and prints nothing itself.

pub mod json;
pub mod model;
pub mod page;
pub mod plot;
pub mod text;
pub mod units;
