//! The shared token, and what is derived from it. It is read from a file, so
//! that it is in no process list, and never printed or sent.

use std::fmt;
use std::io::Read;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::ControlError;

/// Shortest token, bytes: less could be guessed from a recorded connection.
const SHORTEST: usize = 16;
/// Longest token, bytes.
const LONGEST: usize = 4096;
/// Length of a nonce, bytes.
pub(super) const NONCE: usize = 32;
/// Length of a tag, bytes.
pub(super) const TAG: usize = 32;

/// A secret that both ends have.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// Reads it from a file; blanks at its ends do not belong to it.
    ///
    /// # Errors
    /// [`ControlError::Token`] for a file that cannot be read or holds fewer
    /// than 16 or more than 4096 bytes.
    pub fn read(file: &Path) -> Result<Self, ControlError> {
        let refuse = |why: String| ControlError::Token { file: file.to_owned(), why };
        // A pipe would be waited for, and a second reading find it empty.
        let regular = std::fs::metadata(file).map_err(|e| refuse(format!("cannot read it: {e}")))?.is_file();
        if !regular {
            return Err(refuse("it is not a regular file".to_owned()));
        }
        let open = std::fs::File::open(file).map_err(|e| refuse(format!("cannot read it: {e}")))?;
        let mut bytes = Vec::new();
        open.take(2 * LONGEST as u64)
            .read_to_end(&mut bytes)
            .map_err(|e| refuse(format!("cannot read it: {e}")))?;
        Self::new(bytes.trim_ascii()).ok_or_else(|| {
            refuse(format!(
                "a token has {SHORTEST} to {LONGEST} bytes; make one with `openssl rand -hex 32`, and copy \
                 the file to both hosts"
            ))
        })
    }

    /// A token of these bytes; `None` if it is too short or too long.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (SHORTEST..=LONGEST).contains(&bytes.len()).then(|| Self(bytes.to_owned()))
    }

    /// The key of a connection with these nonces.
    pub(super) fn key(&self, receiver: &[u8; NONCE], sender: &[u8; NONCE]) -> Key {
        let derived = keyed(&self.0)
            .chain_update(b"load-control/1 key")
            .chain_update(receiver)
            .chain_update(sender)
            .finalize();
        Key(keyed(&derived.into_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Who wrote a frame; part of what is tagged, so that none can be sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Sender,
    Receiver,
}

impl Role {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// Tags the frames of one connection.
pub(super) struct Key(Hmac<Sha256>);

impl Key {
    fn mac(&self, role: Role, number: u64, content: &[u8]) -> Hmac<Sha256> {
        let role = match role {
            Role::Sender => b"s",
            Role::Receiver => b"r",
        };
        self.0.clone().chain_update(role).chain_update(number.to_be_bytes()).chain_update(content)
    }

    /// The tag of a role's frame with this number and content.
    pub(super) fn tag(&self, role: Role, number: u64, content: &[u8]) -> [u8; TAG] {
        self.mac(role, number, content).finalize().into_bytes().into()
    }

    /// Whether a tag fits, in a time that does not depend on how far it does.
    pub(super) fn fits(&self, role: Role, number: u64, content: &[u8], tag: &[u8; TAG]) -> bool {
        self.mac(role, number, content).verify_slice(tag).is_ok()
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    #[expect(
        clippy::expect_used,
        reason = "HMAC takes keys of any length (RFC 2104), its type says otherwise"
    )]
    Hmac::new_from_slice(key).expect("any length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_fits_its_own_frame_only() {
        let token = Token::new(&[7; 16]).unwrap();
        let key = token.key(&[1; 32], &[2; 32]);
        let tag = key.tag(Role::Sender, 0, b"x");
        assert!(key.fits(Role::Sender, 0, b"x", &tag));
        assert!(!key.fits(Role::Receiver, 0, b"x", &tag), "sent back");
        assert!(!key.fits(Role::Sender, 1, b"x", &tag), "replayed");
        assert!(!key.fits(Role::Sender, 0, b"y", &tag), "changed");
        assert!(!token.key(&[3; 32], &[2; 32]).fits(Role::Sender, 0, b"x", &tag), "another connection");
        let other = Token::new(&[8; 16]).unwrap();
        assert!(!other.key(&[1; 32], &[2; 32]).fits(Role::Sender, 0, b"x", &tag), "another token");
    }

    #[test]
    fn a_token_is_read_without_its_line_end_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        let token = Token::read(&file).unwrap();
        assert_eq!(token.0, b"0123456789abcdef");
        assert_eq!(format!("{token:?}"), "Token(..)");
        for bad in [&b"short"[..], &[b'x'; 4097], b"\n"] {
            std::fs::write(&file, bad).unwrap();
            assert!(Token::read(&file).unwrap_err().to_string().contains("16 to 4096"));
        }
        assert!(Token::read(dir.path()).unwrap_err().is_usage());
    }
}
