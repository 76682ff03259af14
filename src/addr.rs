//! Names and addresses: who can be written to, and who cannot be.
//!
//! Everything here is parsed once, at the edge; further in, a value of one of these types is right by its
//! construction. `transit` and `operator` are reserved as a name and as a host, so that no agent can look like
//! the system or its operator.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is no name or address. [`AddrError::code`] is the stable word of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddrError {
    /// The text does not match the pattern of its kind.
    #[error("{kind} {text:?} does not match {pattern}")]
    InvalidName {
        /// What was expected, in words.
        kind: &'static str,
        /// What came.
        text: String,
        /// The pattern.
        pattern: &'static str,
    },
    /// The text is neither `name@host` nor `#room`.
    #[error("address {text:?} is neither name@host nor #room")]
    InvalidAddress {
        /// What came.
        text: String,
    },
    /// `transit` and `operator` belong to the system.
    #[error("{text:?} is reserved")]
    Reserved {
        /// The reserved word.
        text: String,
    },
}

impl AddrError {
    /// The stable code that protocols and `--json` answers use.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidName { .. } => "invalid_name",
            Self::InvalidAddress { .. } => "invalid_address",
            Self::Reserved { .. } => "reserved_name",
        }
    }
}

const RESERVED: [&str; 2] = ["transit", "operator"];
const LONGEST: usize = 32;

/// Names that belong to connectors the Worker brings along; no source may take one.
pub const BUILT_IN_CONNECTORS: [&str; 6] = ["ingest", "mattermost", "gmail", "telegram", "kaneo", "transit"];

fn matches(text: &str, first: fn(u8) -> bool, rest: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    (1..=LONGEST).contains(&bytes.len()) && first(bytes[0]) && bytes[1..].iter().all(|&b| rest(b))
}

fn letter(b: u8) -> bool {
    b.is_ascii_lowercase()
}

fn letter_or_digit(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn with_dash(b: u8) -> bool {
    letter_or_digit(b) || b == b'-'
}

fn with_dash_and_underscore(b: u8) -> bool {
    with_dash(b) || b == b'_'
}

macro_rules! word {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $pattern:literal, $first:expr, $rest:expr, reserved: $reserved:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = AddrError;

            fn from_str(text: &str) -> Result<Self, AddrError> {
                if !matches(text, $first, $rest) {
                    return Err(AddrError::InvalidName { kind: $kind, text: text.to_owned(), pattern: $pattern });
                }
                if $reserved && RESERVED.contains(&text) {
                    return Err(AddrError::Reserved { text: text.to_owned() });
                }
                Ok(Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $type {
            type Error = AddrError;

            fn try_from(text: String) -> Result<Self, AddrError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(word: $type) -> Self {
                word.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

word!(
    /// The name of an agent or a room.
    Name, "name", "^[a-z][a-z0-9-]{0,31}$", letter, with_dash, reserved: true
);
word!(
    /// The name of a host: one machine, or one user on it, with one `transitd`.
    Host, "host", "^[a-z0-9][a-z0-9-]{0,31}$", letter_or_digit, with_dash, reserved: true
);
word!(
    /// The name of an ingest source.
    Source, "source", "^[a-z][a-z0-9_-]{0,31}$", letter, with_dash_and_underscore, reserved: false
);
word!(
    /// The short name of an organisation.
    Slug, "slug", "^[a-z0-9][a-z0-9-]{0,31}$", letter_or_digit, with_dash, reserved: false
);
word!(
    /// The name of a harness: the program that an agent runs in.
    Harness, "harness", "^[a-z][a-z0-9-]{0,31}$", letter, with_dash, reserved: false
);

/// The address of an agent, `name@host`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentAddr {
    /// The agent's name, unique on its host.
    pub name: Name,
    /// The host, unique in its organisation.
    pub host: Host,
}

impl FromStr for AgentAddr {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        let invalid = || AddrError::InvalidAddress { text: text.to_owned() };
        let (name, host) = text.split_once('@').ok_or_else(invalid)?;
        let keep_reserved = |err| if matches!(err, AddrError::Reserved { .. }) { err } else { invalid() };
        Ok(Self { name: name.parse().map_err(keep_reserved)?, host: host.parse().map_err(keep_reserved)? })
    }
}

impl fmt::Display for AgentAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.host)
    }
}

/// Where a message can go: an agent, or a room.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Addr {
    /// `name@host`.
    Agent(AgentAddr),
    /// `#room`, held without its `#`.
    Room(Name),
}

impl FromStr for Addr {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        match text.strip_prefix('#') {
            Some(room) => Ok(Self::Room(room.parse()?)),
            None => Ok(Self::Agent(text.parse()?)),
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(agent) => agent.fmt(f),
            Self::Room(room) => write!(f, "#{room}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written_back() {
        for text in ["jess@titan", "a@0", "build-7@52labs", "#ops", "#a-b"] {
            assert_eq!(text.parse::<Addr>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn everything_else_has_its_code() {
        for (text, code) in [
            ("", "invalid_address"),
            ("jess", "invalid_address"),
            ("jess@", "invalid_address"),
            ("@titan", "invalid_address"),
            ("jess@titan@x", "invalid_address"),
            ("Jess@titan", "invalid_address"),
            ("9jess@titan", "invalid_address"),
            ("je_ss@titan", "invalid_address"),
            ("jess@titan\n", "invalid_address"),
            ("#", "invalid_name"),
            ("#Ops", "invalid_name"),
            ("operator@titan", "reserved_name"),
            ("jess@transit", "reserved_name"),
            ("#operator", "reserved_name"),
        ] {
            assert_eq!(text.parse::<Addr>().unwrap_err().code(), code, "{text:?}");
        }
        assert!(format!("a@{}", "h".repeat(32)).parse::<Addr>().is_ok());
        assert!(format!("a@{}", "h".repeat(33)).parse::<Addr>().is_err());
    }

    #[test]
    fn a_source_may_have_an_underscore_and_a_name_may_not() {
        assert!("ci_main".parse::<Source>().is_ok());
        assert!("ci_main".parse::<Name>().is_err());
    }
}
