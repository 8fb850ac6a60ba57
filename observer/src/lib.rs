//! observer

pub mod lab;
