//! The signature: `v1=` and HMAC-SHA256 over `<timestamp>.<exact bytes>`, in lowercase hexadecimal digits.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::secret::Secret;

/// Signs and verifies with one secret. The keyed state is computed once and copied for each signature.
#[derive(Clone)]
pub struct Signer {
    keyed: Hmac<Sha256>,
}

/// A signature over bytes that come in pieces.
#[derive(Clone)]
pub struct Running {
    mac: Hmac<Sha256>,
}

impl Signer {
    /// A signer whose key is the UTF-8 bytes of the secret's text.
    pub fn new(secret: &Secret) -> Self {
        Self::from_key(secret.expose().as_bytes())
    }

    /// A signer with any key, for finding out what another signer did wrong.
    pub fn from_key(key: &[u8]) -> Self {
        Self { keyed: Hmac::new_from_slice(key).expect("HMAC takes keys of any length") }
    }

    /// Begins the signature of a body that comes in pieces. `timestamp` is signed as it is written.
    pub fn begin(&self, timestamp: &str) -> Running {
        let mut running = self.begin_bare();
        running.update(timestamp.as_bytes());
        running.update(b".");
        running
    }

    /// Begins an HMAC over the body alone, as other webhook schemes have it. transit.ingest/1 never does.
    pub fn begin_bare(&self) -> Running {
        Running { mac: self.keyed.clone() }
    }

    /// The value of `Transit-Signature` for a body that is sent with this `Transit-Timestamp`.
    pub fn sign(&self, timestamp: &str, body: &[u8]) -> String {
        let mut running = self.begin(timestamp);
        running.update(body);
        running.finish()
    }

    /// Whether `signature` is the one of these bytes, compared in constant time.
    pub fn verify(&self, timestamp: &str, body: &[u8], signature: &str) -> bool {
        let mut running = self.begin(timestamp);
        running.update(body);
        running.verify(signature)
    }
}

impl Running {
    /// Takes the next piece of the body.
    pub fn update(&mut self, piece: &[u8]) {
        self.mac.update(piece);
    }

    /// The value of `Transit-Signature`.
    pub fn finish(self) -> String {
        format!("v1={}", hex::encode(self.mac.finalize().into_bytes()))
    }

    /// The 32 bytes of the HMAC, for comparing with other forms of a signature.
    pub fn finish_bytes(self) -> [u8; 32] {
        self.mac.finalize().into_bytes().into()
    }

    /// Whether `signature` is the one of the bytes so far, compared in constant time.
    pub fn verify(self, signature: &str) -> bool {
        let mut right = *b"v1=0000000000000000000000000000000000000000000000000000000000000000";
        hex::encode_to_slice(self.mac.finalize().into_bytes(), &mut right[3..])
            .expect("64 digits hold 32 bytes");
        right.ct_eq(signature.as_bytes()).into()
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signer(secret: &str) -> Signer {
        Signer::new(&Secret::new(secret).unwrap())
    }

    #[test]
    fn signatures_are_those_that_openssl_computes() {
        // printf '1700000000.{"a":1}\n' | openssl dgst -sha256 -hmac s3cret
        let right = "v1=eac365a53cd85d00e88716246d8e08175abad40e8a30e95418816eabe90b0428";
        assert_eq!(signer("s3cret").sign("1700000000", b"{\"a\":1}\n"), right);
        // The wrong signatures: another body, another timestamp of the same value, and none at all.
        let signer = signer("s3cret");
        assert!(signer.verify("1700000000", b"{\"a\":1}\n", right));
        for (timestamp, body, signature) in [
            ("1700000000", &b"{\"a\":1}"[..], right),
            ("01700000000", b"{\"a\":1}\n", right),
            ("1700000000", b"{\"a\":1}\n", ""),
            ("1700000000", b"{\"a\":1}\n", &right[..66]),
        ] {
            assert!(!signer.verify(timestamp, body, signature));
        }
    }

    #[test]
    fn long_secrets_are_keys_too() {
        // printf 1.x | openssl dgst -sha256 -hmac "$(printf 'k%.0s' $(seq 100))"
        assert_eq!(
            signer(&"k".repeat(100)).sign("1", b"x"),
            "v1=8dc72019a8a249d8f2d36e36fac06f4497511f4f50cfee8600a5d97fb8a91da5"
        );
    }

    proptest! {
        #[test]
        fn pieces_sign_as_the_whole(body in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..300) {
            let signer = signer("s3cret");
            let (left, right) = body.split_at(at.min(body.len()));
            let mut running = signer.begin("1700000000");
            running.update(left);
            running.update(right);
            prop_assert_eq!(running.finish(), signer.sign("1700000000", &body));
        }
    }
}
