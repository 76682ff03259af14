//! What an operator asks of a daemon that runs: to hand nothing over for a while, and to read its configuration anew.

use std::path::Path;
use std::sync::PoisonError;

use super::host::{Host, Reread};
use super::system_name;
use super::uplink::{Enrolment, EnrolmentError};
use crate::net::service;
use crate::store::config::Config;
use crate::store::{StoreError, files};

/// Why a delivery is given back while the daemon is paused: a word for the Worker, which holds no attempt against it.
pub(super) const PAUSED: &str = "paused";

/// Whether the daemon that served this data directory last was paused.
pub(super) fn was_paused(file: &Path) -> bool {
    file.symlink_metadata().is_ok()
}

/// Pauses or resumes; the answer is whether that is news. While paused, messages go out and come in, but none is handed
/// over to a session. It lasts until it is resumed, over a restart too.
///
/// # Errors
/// When it cannot be noted; then nothing has changed.
pub(super) fn pause(host: &Host, wanted: bool) -> Result<bool, StoreError> {
    let _one_at_a_time = host.ordering.lock().unwrap_or_else(PoisonError::into_inner);
    let file = host.paths.paused();
    if wanted == host.is_paused() {
        return Ok(false);
    }
    if wanted {
        files::write_private(&file, format!("{}\n", host.wall()).as_bytes())?;
    } else {
        files::remove(&file)?;
    }
    host.set_paused(wanted);
    tracing::info!(paused = wanted, "an operator has asked for it");
    if !wanted {
        release(host)?;
    }
    Ok(true)
}

/// Whatever was kept back is due now.
fn release(host: &Host) -> Result<(), StoreError> {
    let mut spool = host.spool()?;
    for session in host.registry.all() {
        let name = session.place.name.as_str();
        spool.release(name)?;
        host.registry.wake(name);
    }
    Ok(())
}

/// What a reload came to.
#[derive(Debug)]
pub(super) struct Reloaded {
    /// What holds from now on.
    pub(super) changed: Vec<&'static str>,
    /// What differs from the start, and holds after a restart.
    pub(super) restart: Vec<&'static str>,
    /// Why something is not used: the configuration of the host's own agents makes no sense.
    pub(super) wrong: Vec<String>,
}

/// Reads the configuration and the token anew. A connection to the Worker that they do not fit any more is made anew.
///
/// # Errors
/// When they make no sense; then everything that they say stays as it was; the host's own agents are looked at anew in any case.
pub(super) fn reload(host: &Host) -> Result<Reloaded, EnrolmentError> {
    let _one_at_a_time = host.ordering.lock().unwrap_or_else(PoisonError::into_inner);
    service::notify_reloading();
    let mut read = read(host);
    let parts = host.reload_parts();
    match &mut read {
        Ok(read) => {
            for Reread { wrong, restart } in parts {
                if let Some(key) = restart {
                    tracing::info!(needs_restart = key, "it holds after a restart");
                    read.restart.push(key);
                }
                // Two parts read the same file.
                read.wrong.extend(wrong.filter(|wrong| !read.wrong.contains(wrong)));
            }
        }
        Err(err) => tracing::error!(%err, "the new configuration is not used"),
    }
    service::notify_ready();
    host.announce();
    read
}

fn read(host: &Host) -> Result<Reloaded, EnrolmentError> {
    let enrolment = Enrolment::load(&host.paths)?;
    let config = Config::load(&host.paths.config)?;
    let (mut changed, restart) = (Vec::new(), fixed(host, &config));
    if enrolment != host.enrolment() {
        changed.push("enrolment");
        if enrolment.is_none() {
            host.rename(&config.host.unwrap_or_else(system_name));
        }
        host.kick();
    } else if enrolment.is_none() {
        let name = config.host.unwrap_or_else(system_name);
        if name != host.name() {
            changed.push("host");
            host.rename(&name);
        }
    }
    let (now, later) = (changed.join(", "), restart.join(", "));
    match (now.is_empty(), later.is_empty()) {
        (true, true) => tracing::info!("the configuration was read anew: nothing in it has changed"),
        (false, true) => tracing::info!(changed = now, "the configuration was read anew"),
        (true, false) => tracing::info!(needs_restart = later, "the configuration was read anew"),
        (false, false) => {
            tracing::info!(changed = now, needs_restart = later, "the configuration was read anew");
        }
    }
    Ok(Reloaded { changed, restart, wrong: Vec::new() })
}

/// The fields that differ from those at the start, and are not looked at again before the next one.
fn fixed(host: &Host, now: &Config) -> Vec<&'static str> {
    let Some(start) = host.config_at_start() else { return Vec::new() };
    let fields = [
        ("loop_guard", start.loop_guard != now.loop_guard),
        ("herdr_socket", start.herdr_socket != now.herdr_socket),
        ("delivery_mode", start.delivery_mode != now.delivery_mode),
    ];
    fields.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}
