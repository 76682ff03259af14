//! What a DEST names.

use std::path::{Path, PathBuf};

use url::Url;

use crate::addr::{Addr, AddrError, Source};
use crate::cli::control;
use crate::cli::output::{Exit, Failure};
use crate::cli::ways::{self, Reader};
use crate::store::config::Config;

/// Where something goes.
#[derive(Debug)]
pub(super) enum Dest {
    /// To a source, as an event.
    Event(Target),
    /// To an agent or a room, as a message.
    Message(Addr),
}

/// A source's endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// `http` or `https`, ending in `/ingest/SOURCE`.
    pub(super) url: Url,
    /// Where the configuration says that the secret is.
    pub(super) secret_file: Option<PathBuf>,
}

/// Reads a DEST. The configuration is read only for the name of a source.
///
/// # Errors
/// When it is nothing of the kind (2), an address that breaks a rule (65), no source of the configuration (67), or
/// one that is wrong there (78).
pub(super) fn parse(text: &str) -> Result<Dest, Failure> {
    let wrong =
        |why: &dyn std::fmt::Display| Failure::new(Exit::Usage, format_args!("send to {text:?}"), why);
    if text.contains("://") {
        let url = endpoint(text).map_err(|why| wrong(&why))?;
        return Ok(Dest::Event(Target { url, secret_file: None }));
    }
    if text.starts_with('#') || text.contains('@') {
        let broken = |err: AddrError| {
            let way = ways::out_of(err.code(), Reader::Person);
            Failure::new(Exit::Data, format_args!("send to {text:?}"), err).way(way)
        };
        return text.parse().map(Dest::Message).map_err(broken);
    }
    let name: Source =
        text.parse().map_err(|_| wrong(&"it is no URL, no NAME@HOST, no #ROOM and no name of a source"))?;
    configured(&name).map(Dest::Event)
}

fn configured(name: &Source) -> Result<Target, Failure> {
    let path = control::paths()?.config;
    let config = Config::load(&path).map_err(|err| Failure::store("read the configuration", &err))?;
    let source = config.sources.get(name).ok_or_else(|| {
        Failure::new(
            Exit::NoRecipient,
            format_args!("send to {name}"),
            "the configuration has no source of this name",
        )
        .hint(format_args!(
            "an agent's address is NAME@HOST, and a room is #NAME; for a source name its URL, or add \
             \"sources\":{{\"{name}\":{{\"url\":…,\"secret_file\":…}}}} to {}",
            path.display()
        ))
    })?;
    let url = endpoint(&source.url).map_err(|why| {
        Failure::new(Exit::Config, format_args!("use the source {name} of {}", path.display()), why)
    })?;
    // A relative path in the configuration means the same file wherever the command is run.
    let dir = path.parent().unwrap_or(Path::new(""));
    Ok(Target { url, secret_file: source.secret_file.as_ref().map(|file| dir.join(file)) })
}

fn endpoint(text: &str) -> Result<Url, String> {
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("a URL holds no blanks".to_owned());
    }
    let url = Url::parse(text).map_err(|err| err.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("its scheme is neither http nor https".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a user in the URL is not supported".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment after /ingest/SOURCE".to_owned());
    }
    let source = url.path().rsplit_once("/ingest/").and_then(|(_, name)| name.parse::<Source>().ok());
    source.map(|_| url).ok_or_else(|| "it does not end in /ingest/SOURCE".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_ends_in_its_source() {
        for good in ["http://127.0.0.1:8787/ingest/ci", "https://h.example/transit/ingest/ci_main"] {
            assert_eq!(endpoint(good).unwrap().as_str(), good);
        }
        for bad in [
            "http://h/",
            "http://h/ingest/",
            "http://h/ingest/CI",
            "http://h/ingest/ci/",
            "http://h/ingest/ci?x",
            "http://h/ingest/ci#x",
            "http://u:p@h/ingest/ci",
            "ftp://h/ingest/ci",
            "http://h /ingest/ci",
            "http:///",
        ] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_that_is_no_address_is_told_what_one_looks_like() {
        let hint = |text| parse(text).unwrap_err().hint.unwrap();
        assert!(hint("robin@").contains("NAME@HOST"));
        assert!(hint("operator@titan").contains("nobody's"));
    }

    #[test]
    fn addresses_are_told_from_sources() {
        assert!(matches!(parse("jess@titan"), Ok(Dest::Message(Addr::Agent(_)))));
        assert!(matches!(parse("#ops"), Ok(Dest::Message(Addr::Room(_)))));
        for bad in ["", "a b", "UPPER"] {
            assert_eq!(parse(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
        for bad in ["Jess@titan", "#", "jess@titan@x", "operator@titan"] {
            assert_eq!(parse(bad).unwrap_err().exit, Exit::Data, "{bad}");
        }
    }
}
