//! Enrolment codes, device tokens and source secrets: how they are made, and what of them is stored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::id::fill_random;
use crate::secret::Secret;

/// 30 symbols that nobody confuses when reading them aloud.
const CODE_SYMBOLS: &[u8; 30] = b"ABCDEFGHJKMNPQRSTVWXYZ23456789";

/// A fresh enrolment code, `XXXX-XXXX`.
///
/// # Panics
/// When the system has no random source.
pub fn fresh_code() -> String {
    let mut code = String::with_capacity(9);
    while code.len() < 9 {
        let mut byte = [0];
        fill_random(&mut byte);
        // 240 is the largest multiple of 30 in a byte: every symbol is as likely as the others.
        if byte[0] < 240 {
            code.push(char::from(CODE_SYMBOLS[usize::from(byte[0] % 30)]));
            if code.len() == 4 {
                code.push('-');
            }
        }
    }
    code
}

/// A fresh device token or source secret: 32 random bytes as 43 characters of base64url.
///
/// # Panics
/// When the system has no random source.
pub fn fresh_secret() -> Secret {
    let mut bytes = Zeroizing::new([0; 32]);
    fill_random(&mut *bytes);
    Secret::new(URL_SAFE_NO_PAD.encode(*bytes)).expect("43 characters are not empty")
}

/// What is stored of an enrolment code: the SHA-256 of its text with the dash, in hexadecimal. Case and white
/// space around it do not count, because people type it.
pub fn code_hash(code: &str) -> String {
    hash(&code.trim().to_ascii_uppercase())
}

/// What is stored of a device token: the SHA-256 of its text, in hexadecimal.
pub fn token_hash(token: &str) -> String {
    hash(token)
}

fn hash(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_can_be_read_aloud_and_typed_back() {
        let code = fresh_code();
        assert_eq!((code.len(), code.find('-')), (9, Some(4)));
        assert!(code.bytes().all(|b| b == b'-' || CODE_SYMBOLS.contains(&b)));
        assert_ne!(code, fresh_code());
        assert_eq!(code_hash(&format!(" {}\n", code.to_lowercase())), code_hash(&code));
    }

    #[test]
    fn a_token_is_43_characters_and_only_its_hash_is_kept() {
        assert_eq!(fresh_secret().expose().len(), 43);
        assert_eq!(token_hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
