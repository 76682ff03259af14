//! Passwords as Better Auth keeps them, so that its clients and its database are understood.
//!
//! What is kept is `SALT:KEY`, both in hexadecimal: 16 random bytes, whose text (not the bytes) is the salt, and the 64
//! bytes that scrypt makes of the password in Unicode's normal form KC, with N = 16384, r = 16 and p = 1.

use icu_normalizer::ComposingNormalizerBorrowed;
use scrypt::Params;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::id::fill_random;

/// Fewest characters of a password, in UTF-16 code units.
pub const SHORTEST: usize = 8;
/// Most characters of a password, in UTF-16 code units.
pub const LONGEST: usize = 128;

const LOG_N: u8 = 14;
const R: u32 = 16;
const P: u32 = 1;

/// The password is not as long as one must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a password has {SHORTEST} to {LONGEST} characters, this one has {0}")]
pub struct WrongLength(pub usize);

/// What is kept of a password.
///
/// # Errors
/// When it is too short or too long.
pub fn hash(password: &str) -> Result<String, WrongLength> {
    let units = password.encode_utf16().count();
    if !(SHORTEST..=LONGEST).contains(&units) {
        return Err(WrongLength(units));
    }
    let mut salt = [0; 16];
    fill_random(&mut salt);
    let salt = hex::encode(salt);
    let key = key(password, &salt);
    Ok(format!("{salt}:{}", hex::encode(*key)))
}

/// Whether `password` is the one that `kept` was made of. What is kept in another form fits none.
pub fn verify(password: &str, kept: &str) -> bool {
    let Some((salt, wanted)) = kept.split_once(':') else { return false };
    let wanted = hex::decode(wanted).unwrap_or_default();
    key(password, salt).as_slice().ct_eq(&wanted).into()
}

fn key(password: &str, salt: &str) -> Zeroizing<[u8; 64]> {
    let password = Zeroizing::new(ComposingNormalizerBorrowed::new_nfkc().normalize(password).into_owned());
    let params = Params::new(LOG_N, R, P).expect("these are parameters of scrypt");
    let mut key = Zeroizing::new([0; 64]);
    scrypt::scrypt(password.as_bytes(), salt.as_bytes(), &params, &mut *key).expect("64 bytes can be made");
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: &str = "000102030405060708090a0b0c0d0e0f";

    #[test]
    fn keys_are_those_that_others_make() {
        for (password, made) in [
            (
                "correct horse",
                "9372e2d20f7c9ba55e54d10569dfe24824c5765383f46b040e9ac7b33041339c514173900cb63a37c935c0e2f40cfe2cb39bee5fe58f54715c1fd913c4638373",
            ),
            (
                "\u{fb01}ve \u{c5} cafe\u{301}",
                "599da81e969a80570a42f63f84d81b29933145fe12853e51248422a6a1338a7a9c65d82ae6b744afb0255a7a233c26d4b13107939ed9d07cafffae01c16fc545",
            ),
        ] {
            assert_eq!(hex::encode(*key(password, SALT)), made, "{password}");
            assert!(verify(password, &format!("{SALT}:{made}")));
        }
        assert!(
            verify(
                "five \u{c5} caf\u{e9}",
                "000102030405060708090a0b0c0d0e0f:599da81e969a80570a42f63f84d81b29933145fe12853e51248422a6a1338a7a9c65d82ae6b744afb0255a7a233c26d4b13107939ed9d07cafffae01c16fc545"
            ),
            "another way to write the same"
        );
    }

    #[test]
    fn a_hash_fits_its_password_alone_and_is_never_the_same() {
        let kept = hash("correct horse").unwrap();
        assert_eq!((kept.len(), kept.find(':')), (32 + 1 + 128, Some(32)));
        assert!(verify("correct horse", &kept) && !verify("correct horsE", &kept));
        assert_ne!(hash("correct horse").unwrap(), kept);
        for other in ["", ":", "plain", &kept[..40], "zz:zz"] {
            assert!(!verify("correct horse", other), "{other}");
        }
    }

    #[test]
    fn a_password_is_neither_short_nor_long() {
        assert_eq!(hash("1234567"), Err(WrongLength(7)));
        assert_eq!(hash(&"x".repeat(129)), Err(WrongLength(129)));
        assert!(hash(&"x".repeat(128)).is_ok());
        assert!(hash("\u{1f511}\u{1f511}\u{1f511}\u{1f511}").is_ok(), "as JavaScript counts");
    }
}
