//! Secrets at rest: sealed under the operator's master key.
//!
//! XChaCha20-Poly1305 with a random nonce before the ciphertext; the place of the secret (its row) is bound in
//! as associated data, so that a sealed value moved to another row does not open.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use super::{StoreError, files};
use crate::id::fill_random;
use crate::secret::{REDACTED, Secret};

const NONCE_BYTES: usize = 24;

/// The key under which the secrets of one Worker are sealed.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl MasterKey {
    /// Reads base64 of exactly 32 bytes; white space around it does not count.
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).ok()?);
        Some(Self(Zeroizing::new(<[u8; 32]>::try_from(bytes.as_slice()).ok()?)))
    }

    /// Where the key of a database is, unless the operator gives it in another way: beside it, with `.key` added.
    pub fn file_beside(database: &Path) -> PathBuf {
        let mut file = database.as_os_str().to_owned();
        file.push(".key");
        file.into()
    }

    /// The key in `path`, which is made when it is absent.
    ///
    /// # Errors
    /// When it cannot be read or made, or is no key.
    pub fn from_file_or_new(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            let mut key = Zeroizing::new([0; 32]);
            fill_random(&mut *key);
            files::create_private(path, Zeroizing::new(STANDARD.encode(*key)).as_bytes())?;
        }
        let text = Zeroizing::new(files::read_small(path, 1024)?);
        std::str::from_utf8(&text).ok().and_then(Self::from_base64).ok_or_else(|| StoreError::Config {
            path: path.to_owned(),
            why: "a master key is base64 of exactly 32 bytes".to_owned(),
        })
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&Key::from(*self.0))
    }

    /// Seals `secret` for `place`.
    pub fn seal(&self, secret: &Secret, place: &str) -> Vec<u8> {
        let mut nonce = [0; NONCE_BYTES];
        fill_random(&mut nonce);
        let payload = Payload { msg: secret.expose().as_bytes(), aad: place.as_bytes() };
        let sealed = self
            .cipher()
            .encrypt(&XNonce::from(nonce), payload)
            .expect("a secret is far below the cipher's limit");
        [&nonce[..], &sealed].concat()
    }

    /// Opens what [`seal`](Self::seal) made for the same place.
    ///
    /// # Errors
    /// When the key or the place is another one, or the value is damaged.
    pub fn open(&self, sealed: &[u8], place: &str) -> Result<Secret, StoreError> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(StoreError::Sealed)?;
        let payload = Payload { msg: sealed, aad: place.as_bytes() };
        let text = self.cipher().decrypt(&XNonce::from(*nonce), payload).map_err(|_| StoreError::Sealed)?;
        Secret::new(String::from_utf8(text).map_err(|_| StoreError::Sealed)?).map_err(|_| StoreError::Sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_secret_opens_only_with_its_key_and_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let key = MasterKey::from_file_or_new(&dir.path().join("k")).unwrap();
        let same = MasterKey::from_file_or_new(&dir.path().join("k")).unwrap();
        let other = MasterKey::from_file_or_new(&dir.path().join("o")).unwrap();
        let sealed = key.seal(&Secret::new("s3cret").unwrap(), "source ci");
        assert_eq!(same.open(&sealed, "source ci").unwrap().expose(), "s3cret");
        assert!(other.open(&sealed, "source ci").is_err());
        assert!(key.open(&sealed, "source cd").is_err());
        assert!(key.open(&sealed[..20], "source ci").is_err());
        let mut damaged = sealed.clone();
        damaged[30] ^= 1;
        assert!(key.open(&damaged, "source ci").is_err());
        assert!(MasterKey::from_base64("c2hvcnQ=").is_none());
        std::fs::write(dir.path().join("k"), "rubbish").unwrap();
        assert!(MasterKey::from_file_or_new(&dir.path().join("k")).is_err());
    }
}
