//! What goes over the socket: lines of JSON, each a [`Message`].
//!
//! First a hello, then, for each picture, the moments of the time line that
//! this client has not had yet, and the picture without its time line: a
//! client that attaches late gets the last minutes, and nobody gets them
//! twice.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::snapshot::Snapshot;
use crate::surroundings::{Surroundings, Update};
use crate::timeline::Moment;

/// Name and version of what is spoken.
pub const PROTOCOL: &str = "observer-attach/1";

/// Longest line a client takes, bytes. A picture of 64 flows has some 300 kB.
pub const LONGEST_LINE: u64 = 32 << 20;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The first one.
    Hello {
        /// [`PROTOCOL`].
        protocol: String,
        /// What is watched.
        scene: String,
    },
    /// Moments of the time line, oldest first.
    Moments(Vec<Arc<Moment>>),
    /// A picture.
    Picture {
        /// The snapshot, without its time line.
        snapshot: Arc<Snapshot>,
        /// What surrounded it.
        surroundings: Option<Arc<Surroundings>>,
    },
}

impl Message {
    /// The picture in `update`.
    pub fn picture(update: &Update) -> Self {
        Self::Picture { snapshot: Arc::clone(&update.snapshot), surroundings: update.surroundings.clone() }
    }

    /// As a line, its end included.
    ///
    /// # Errors
    ///
    /// Only if a type cannot be JSON, which none of these is.
    pub fn line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;
    use crate::source::synthetic::{Plan, Synthetic};

    #[test]
    fn a_picture_survives_the_line_and_leaves_its_time_line_behind() {
        let plan = Plan { streams: 70, drop_every: 7, ..Plan::default() };
        let update = Update::from(Pipeline::run(&mut Synthetic::new(plan)).unwrap());
        let line = Message::picture(&update).line().unwrap();
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let Message::Picture { snapshot, surroundings: None } = serde_json::from_slice(&line).unwrap() else {
            panic!("not a picture");
        };
        assert_eq!(snapshot.total, update.snapshot.total);
        assert_eq!(snapshot.slowest, update.snapshot.slowest);
        assert_eq!((snapshot.timeline.len(), update.snapshot.timeline.len()), (0, 1));
        let line = Message::Moments(update.snapshot.timeline.to_vec()).line().unwrap();
        let Message::Moments(moments) = serde_json::from_slice(&line).unwrap() else {
            panic!("no moments");
        };
        assert_eq!(moments[..], update.snapshot.timeline[..]);
    }
}
