//! TLS for everything that this program connects to: rustls over ring, with the roots of the system.
//!
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the roots, as they do for other programs.

use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, KeyProvider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;
use rustls::{ClientConfig, RootCertStore};

/// No certificate of a root was found that could be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no root certificates were found: {0}")]
pub struct NoRoots(String);

/// The certificates that this machine trusts. They are read once.
///
/// # Errors
/// When there are none.
pub fn roots() -> Result<&'static [CertificateDer<'static>], NoRoots> {
    static ROOTS: OnceLock<Result<Vec<CertificateDer<'static>>, NoRoots>> = OnceLock::new();
    let load = || {
        let found = rustls_native_certs::load_native_certs();
        match found.errors.first() {
            _ if !found.certs.is_empty() => Ok(found.certs),
            Some(err) => Err(NoRoots(err.to_string())),
            None => Err(NoRoots("install ca-certificates, or name a file with SSL_CERT_FILE".to_owned())),
        }
    };
    ROOTS.get_or_init(load).as_deref().map_err(Clone::clone)
}

/// What a TLS client of ours is made with. It is made once.
///
/// # Errors
/// When the machine trusts nobody.
pub fn client_config() -> Result<Arc<ClientConfig>, NoRoots> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, NoRoots>> = OnceLock::new();
    let make = || {
        let mut store = RootCertStore::empty();
        // A system's collection may hold some that are not understood; the others are good.
        store.add_parsable_certificates(roots()?.iter().cloned());
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring speaks the versions that rustls has by default");
        Ok(Arc::new(builder.with_root_certificates(store).with_no_client_auth()))
    };
    CONFIG.get_or_init(make).clone()
}

/// The cryptography that TLS uses.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { key_provider: &NoKeys, ..rustls::crypto::ring::default_provider() })
}

/// We show no certificate, so that we sign with no key either, and need none of the code that does.
#[derive(Debug)]
struct NoKeys;

impl KeyProvider for NoKeys {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        Err(rustls::Error::General("no client certificates are used".to_owned()))
    }
}
