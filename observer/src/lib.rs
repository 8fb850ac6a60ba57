//! observer
pub mod component;
pub mod correlate;
pub mod culprit;
pub mod decode;
pub mod demo;
pub mod lab;
pub mod metrics;
pub mod pipeline;
pub mod report;
pub mod snapshot;
pub mod source;
pub mod view;
