//! The daemon's side: a socket file, and a thread that serves whoever attaches.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::Mode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc, watch};

use super::AttachError;
use super::wire::{Message, PROTOCOL};
use crate::report::Kind;
use crate::surroundings::Update;

/// Clients at once; more are turned away.
pub const CLIENTS: usize = 16;
/// A client that takes nothing for this long is dropped.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the last picture may take to reach everybody.
const FAREWELL: Duration = Duration::from_secs(1);

/// Who may attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The user who ran this with sudo, else root alone.
    Owner,
    /// The members of a group, by name or number.
    Group(String),
}

/// A picture, made into a line when the first client wants it.
struct Frame {
    update: Update,
    line: OnceLock<Option<Vec<u8>>>,
}

impl Frame {
    fn line(&self) -> Option<&[u8]> {
        self.line.get_or_init(|| Message::picture(&self.update).line().ok()).as_deref()
    }
}

type Frames = watch::Receiver<Option<Arc<Frame>>>;

/// A socket that is listened at. Dropping it lets go of the clients and
/// removes the file.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    last: Option<mpsc::UnboundedSender<Update>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path` and serves `updates`; `scene` says what is watched.
    ///
    /// # Errors
    ///
    /// If the place is taken, the group unknown or the socket cannot be made.
    pub fn start(
        path: &Path,
        access: &Access,
        scene: &str,
        updates: watch::Receiver<Option<Update>>,
    ) -> Result<Self, AttachError> {
        let failed = |source| AttachError::Listen { path: path.to_owned(), source };
        let listener = listen(path, access)?;
        // From here on the file is removed on every way out.
        let (last, goodbye) = mpsc::unbounded_channel();
        let mut server = Self { path: path.to_owned(), last: Some(last), thread: None };
        listener.set_nonblocking(true).map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let hello = Message::Hello { protocol: PROTOCOL.to_owned(), scene: scene.to_owned() };
        let hello: Arc<[u8]> = hello.line().map_err(|e| failed(e.into()))?.into();
        let thread = std::thread::Builder::new()
            .name("observer-attach".to_owned())
            .spawn(move || runtime.block_on(serve(listener, &hello, updates, goodbye)))
            .map_err(failed)?;
        server.thread = Some(thread);
        Ok(server)
    }

    /// Shows everybody the last picture, and lets them go.
    pub fn finish(self, last: Update) {
        if let Some(goodbye) = &self.last {
            // Where the thread is gone there is nobody to say it to.
            let _ = goodbye.send(last);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.last = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // It may have been removed by somebody else.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes the socket, readable to nobody before it is to those who may.
fn listen(path: &Path, access: &Access) -> Result<UnixListener, AttachError> {
    let failed = |source| AttachError::Listen { path: path.to_owned(), source };
    let taken = |why| AttachError::Taken { path: path.to_owned(), why };
    let group = match access {
        Access::Group(name) => Some(group_id(name).ok_or_else(|| AttachError::NoGroup(name.clone()))?),
        Access::Owner => None,
    };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(taken("there is a file that is no socket"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(taken("another process listens there")),
        // Left behind by one that was killed.
        Ok(_) => fs::remove_file(path).map_err(failed)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound.map_err(failed)?;
    let set = match group {
        Some(gid) => chown(path, None, Some(gid))
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o660))),
        None => sudo_user().map_or(Ok(()), |uid| chown(path, Some(uid), None)),
    };
    if let Err(e) = set {
        let _ = fs::remove_file(path);
        return Err(failed(e));
    }
    Ok(listener)
}

/// Who ran sudo, if it was that and this is root.
fn sudo_user() -> Option<u32> {
    rustix::process::geteuid().is_root().then(|| std::env::var("SUDO_UID").ok()?.parse().ok()).flatten()
}

/// A group's number, by name or by number.
fn group_id(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let groups = fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// Until the updates end for good: accepts clients, and passes pictures on.
async fn serve(
    listener: UnixListener,
    hello: &Arc<[u8]>,
    mut updates: watch::Receiver<Option<Update>>,
    mut goodbye: mpsc::UnboundedReceiver<Update>,
) {
    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
    let (publish, frames) = watch::channel(None);
    let room = Arc::new(Semaphore::new(CLIENTS));
    let frame = |update: Update| Some(Arc::new(Frame { update, line: OnceLock::new() }));
    let mut more = true;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // Dropping it closes it: there is no room.
                    let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
                    let (hello, frames) = (Arc::clone(hello), frames.clone());
                    tokio::spawn(async move {
                        // A client that goes away is no news.
                        let _ = client(stream, &hello, frames).await;
                        drop(permit);
                    });
                }
                // Out of descriptors: those who are there come first.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            changed = updates.changed(), if more => match changed {
                Ok(()) => {
                    if let Some(update) = updates.borrow_and_update().clone() {
                        publish.send_replace(frame(update));
                    }
                }
                Err(_) => more = false,
            },
            last = goodbye.recv() => {
                if let Some(update) = last {
                    publish.send_replace(frame(update));
                    let all = u32::try_from(CLIENTS).unwrap_or(u32::MAX);
                    let _ = tokio::time::timeout(FAREWELL, room.acquire_many(all)).await;
                }
                return;
            }
        }
    }
}

/// Serves one client until it goes away, is too slow, or has had the last
/// picture.
async fn client(mut stream: tokio::net::UnixStream, hello: &[u8], mut frames: Frames) -> io::Result<()> {
    let (mut from, mut to) = stream.split();
    write(&mut to, hello).await?;
    let mut had: Option<u64> = None;
    let mut heard = [0_u8; 64];
    loop {
        let frame = frames.borrow_and_update().clone();
        if let Some(frame) = frame {
            let snapshot = &frame.update.snapshot;
            let new = |number: u64| had.is_none_or(|had| number > had);
            let moments: Vec<_> = snapshot.timeline.iter().filter(|m| new(m.number)).cloned().collect();
            had = moments.last().map(|m| m.number).or(had);
            if !moments.is_empty() {
                write(&mut to, &Message::Moments(moments).line()?).await?;
            }
            write(&mut to, frame.line().unwrap_or_default()).await?;
            if snapshot.total.kind == Kind::Final {
                return Ok(());
            }
        }
        loop {
            tokio::select! {
                changed = frames.changed() => {
                    changed.map_err(io::Error::other)?;
                    break;
                }
                // There is nothing to ask for: what is said is not listened
                // to, but the end is noticed.
                read = from.read(&mut heard) => if read? == 0 { return Ok(()) },
            }
        }
    }
}

async fn write(to: &mut (impl AsyncWriteExt + Unpin), line: &[u8]) -> io::Result<()> {
    tokio::time::timeout(PATIENCE, to.write_all(line)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name_and_number() {
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(group_id("4711"), Some(4711));
        assert_eq!(group_id("no such group"), None);
    }
}
