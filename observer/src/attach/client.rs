//! The client's side: a thread that reads the socket, and the feed made of it.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::AttachError;
use super::wire::{LONGEST_LINE, Message, PROTOCOL};
use crate::surroundings::Update;
use crate::timeline::Timeline;
use crate::tui::feed::{Fed, Feed, newest};

/// How long a daemon may take to say hello.
const HELLO: Duration = Duration::from_secs(5);

/// A daemon that this process is attached to.
#[derive(Debug)]
pub struct Remote {
    scene: String,
    updates: watch::Receiver<Option<Update>>,
    over: Arc<Mutex<String>>,
    /// Shut down when this goes, which ends the thread.
    stream: UnixStream,
}

impl Remote {
    /// Attaches to the daemon at `path`.
    ///
    /// # Errors
    ///
    /// If nobody listens there, this user may not, or it is no observer.
    pub fn connect(path: &Path) -> Result<Self, AttachError> {
        let stream = UnixStream::connect(path).map_err(|e| refused(path, e))?;
        let foreign = |why: String| AttachError::Foreign { path: path.to_owned(), why };
        let broken = |e: io::Error| foreign(e.to_string());
        stream.set_read_timeout(Some(HELLO)).map_err(broken)?;
        let mut lines = Lines(BufReader::new(stream.try_clone().map_err(broken)?));
        let scene = match lines.next().map_err(broken)? {
            Some(Message::Hello { protocol, scene }) if protocol == PROTOCOL => scene,
            Some(Message::Hello { protocol, .. }) => return Err(foreign(format!("it speaks {protocol}"))),
            Some(_) => return Err(foreign("it does not say hello".to_owned())),
            None => return Err(AttachError::HungUp { path: path.to_owned() }),
        };
        // An observer with a long interval is silent for long.
        stream.set_read_timeout(None).map_err(broken)?;
        let (publish, updates) = watch::channel(None);
        let over = Arc::new(Mutex::new(String::new()));
        let why = Arc::clone(&over);
        std::thread::Builder::new()
            .name("observer-attached".to_owned())
            .spawn(move || {
                let said = match read(&mut lines, &publish) {
                    Ok(()) => "the daemon has ended".to_owned(),
                    Err(e) => format!("the connection to the daemon broke: {e}"),
                };
                *why.lock().unwrap_or_else(PoisonError::into_inner) = said;
            })
            .map_err(broken)?;
        Ok(Self { scene, updates, over, stream })
    }

    /// What it watches.
    pub fn scene(&self) -> &str {
        &self.scene
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Feed for Remote {
    fn next(&mut self) -> Fed {
        match newest(&mut self.updates, "") {
            Fed::Ended(_) => Fed::Ended(self.over.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            fed => fed,
        }
    }
}

fn refused(path: &Path, source: io::Error) -> AttachError {
    let path: PathBuf = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => AttachError::Refused { path },
        _ => AttachError::Nobody { path, source },
    }
}

struct Lines(BufReader<UnixStream>);

impl Lines {
    /// The next message; `None` at the end.
    fn next(&mut self) -> io::Result<Option<Message>> {
        let mut line = Vec::new();
        let read = (&mut self.0).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        match line.last() {
            None => Ok(None),
            Some(b'\n') => serde_json::from_slice(&line).map(Some).map_err(io::Error::from),
            Some(_) if u64::try_from(read).is_ok_and(|n| n >= LONGEST_LINE) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a line without an end"))
            }
            // Cut short: it ended in the middle of a picture.
            Some(_) => Ok(None),
        }
    }
}

/// Takes in messages until the end, or until nobody looks any more.
fn read(lines: &mut Lines, publish: &watch::Sender<Option<Update>>) -> io::Result<()> {
    let mut timeline = Timeline::default();
    while let Some(message) = lines.next()? {
        match message {
            Message::Hello { .. } => {}
            Message::Moments(moments) => moments.into_iter().for_each(|m| timeline.push(m)),
            Message::Picture { mut snapshot, surroundings } => {
                Arc::make_mut(&mut snapshot).timeline = timeline.list();
                publish.send_replace(Some(Update { snapshot, surroundings }));
            }
        }
        if publish.is_closed() {
            return Ok(());
        }
    }
    Ok(())
}
