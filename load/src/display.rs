//! A line on the terminal, once a second, for runs longer than two.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::progress::Progress;
use crate::units::show_count;

/// Shows progress until dropped; its line is gone then.
#[derive(Debug)]
pub struct Display(Option<(Sender<()>, JoinHandle<()>)>);

impl Display {
    /// Starts showing, if stderr is a terminal.
    pub fn start(progress: &Progress) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let progress = progress.clone();
        let (over, ended) = channel();
        let thread = std::thread::spawn(move || {
            let begin = Instant::now();
            let mut before = [0; 3];
            let mut shown = false;
            while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let now = [progress.offered(), progress.sent(), progress.received()];
                if begin.elapsed() > Duration::from_secs(2) {
                    let mut line = format!("\r\x1b[K{:>5.0} s", begin.elapsed().as_secs_f64());
                    for ((name, n), old) in ["offered", "sent", "received"].iter().zip(now).zip(before) {
                        if n > 0 {
                            line.push_str(&format!(
                                "   {name} {} ({}/s)",
                                show_count(n),
                                show_count(n - old)
                            ));
                        }
                    }
                    let _ = std::io::stderr().write_all(line.as_bytes());
                    shown = true;
                }
                before = now;
            }
            if shown {
                let _ = std::io::stderr().write_all(b"\r\x1b[K");
            }
        });
        Self(Some((over, thread)))
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some((over, thread)) = self.0.take() {
            drop(over);
            let _ = thread.join();
        }
    }
}
