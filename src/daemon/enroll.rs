//! Enrolment: a code that an operator made becomes this host's device token.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;

use super::uplink::worker_url;
use crate::addr::Host;
use crate::net::fetch::{AddressPolicy, Client, FetchError, Request};
use crate::secret::{Secret, without_passwords};
use crate::store::config::{Config, Paths};
use crate::store::{StoreError, files};

/// Time that the Worker may take.
const WAIT: Duration = Duration::from_secs(10);

/// What a host was enrolled as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolled {
    /// Its name.
    pub host: Host,
    /// Its id at the Worker.
    pub host_id: String,
    /// The organisation's slug.
    pub org: String,
}

/// Why a host is not enrolled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrollError {
    /// The URL is none that a Worker can have.
    #[error("{url:?} is no Worker's url: {why}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// This installation has a token already.
    #[error("this host is enrolled already: {} is there", path.display())]
    Already {
        /// The token's file.
        path: std::path::PathBuf,
    },
    /// The Worker cannot be reached.
    #[error("could not reach the Worker: {0}")]
    Fetch(#[from] FetchError),
    /// The Worker does not take the code.
    #[error("the Worker does not accept the code: it is wrong, used, or older than 15 minutes")]
    Code,
    /// The Worker answers with another status.
    #[error("the Worker answered {status}")]
    Status {
        /// The HTTP status.
        status: u16,
    },
    /// What answers is no Worker.
    #[error("what answers at {url} is no Worker: {why}")]
    Garbage {
        /// Where.
        url: Url,
        /// What is wrong with the answer.
        why: String,
    },
    /// The code is another host's.
    #[error("the code is for the host {issued}, not for {wanted}; it is used up now")]
    Mismatch {
        /// The host that it was issued for.
        issued: Host,
        /// The host that was asked for.
        wanted: Host,
    },
    /// The enrolment cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Serialize)]
struct Redeem<'a> {
    code: &'a str,
    daemon_ver: &'a str,
}

#[derive(Deserialize)]
struct Redeemed {
    device_token: String,
    host_id: String,
    host: Host,
    org: String,
}

/// Redeems `code` at the Worker and keeps what it gives: the configuration first, then the token, so that a token
/// is never without its Worker. A token that is there is replaced only when `force` is given.
///
/// # Errors
/// When the Worker refuses or cannot be reached, when the code is for another host than `host`, which uses it up, and
/// when the files cannot be written, which is tried before.
pub fn enroll(
    url: &str,
    code: &str,
    host: Option<&Host>,
    paths: &Paths,
    force: bool,
) -> Result<Enrolled, EnrollError> {
    let base = url.trim().trim_end_matches('/');
    let target = target(base)?;
    let token = paths.token();
    if token.symlink_metadata().is_ok() && !force {
        return Err(EnrollError::Already { path: token });
    }
    let mut config = Config::load(&paths.config)?;
    // The code is good once: what can fail afterwards is tried before.
    files::make_parent(&paths.config)?;
    files::try_write(&paths.config)?;
    files::private_dir(&paths.data)?;
    files::try_write(&token)?;
    let redeemed = redeem(&target, code)?;
    if let Some(wanted) = host.filter(|wanted| **wanted != redeemed.host) {
        return Err(EnrollError::Mismatch { issued: redeemed.host, wanted: wanted.clone() });
    }
    let secret = Secret::new(redeemed.device_token.trim()).map_err(|_| EnrollError::Garbage {
        url: target.clone(),
        why: "its device_token is empty".to_owned(),
    })?;
    config.url = Some(base.to_owned());
    config.host = Some(redeemed.host.clone());
    config.save(&paths.config)?;
    files::write_private(&token, format!("{}\n", secret.expose()).as_bytes())?;
    Ok(Enrolled { host: redeemed.host, host_id: redeemed.host_id, org: redeemed.org })
}

fn target(base: &str) -> Result<Url, EnrollError> {
    worker_url(base, "/api/daemon/enroll")
        .map_err(|why| EnrollError::Url { url: without_passwords(base).into_owned(), why })
}

fn redeem(target: &Url, code: &str) -> Result<Redeemed, EnrollError> {
    let code = code.trim().to_ascii_uppercase();
    let body = serde_json::to_vec(&Redeem { code: &code, daemon_ver: env!("CARGO_PKG_VERSION") })
        .expect("two strings are JSON");
    let answer = Client::new(AddressPolicy::Any).post(&Request {
        url: target,
        headers: &[("content-type", "application/json")],
        body: &body,
        timeout: WAIT,
        connect_timeout: WAIT,
    })?;
    match answer.status {
        200 => serde_json::from_slice(&answer.body)
            .map_err(|err| EnrollError::Garbage { url: target.clone(), why: err.to_string() }),
        401 => Err(EnrollError::Code),
        status => Err(EnrollError::Status { status }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_http_url_without_a_password_is_a_worker_s() {
        assert_eq!(target("http://h:1/t").unwrap().as_str(), "http://h:1/t/api/daemon/enroll");
        for bad in ["", "h", "ws://h", "https://u:p@h", "http://"] {
            assert!(matches!(target(bad), Err(EnrollError::Url { .. })), "{bad}");
        }
        assert!(target("https://u:p@h").unwrap_err().to_string().contains("https://[redacted]@h"));
    }
}
