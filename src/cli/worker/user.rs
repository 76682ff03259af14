//! `transit-worker user`.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::org::slug_of;
use super::{NAME, Session};
use crate::addr::Slug;
use crate::cli::ask;
use crate::cli::output::{Exit, Failure};
use crate::cli::secret::SecretArgs;
use crate::store::ledger::credentials::fresh_secret;
use crate::store::ledger::users::{self, NewUser, UserRow};
use crate::store::password;
use crate::text;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Make a user of the control plane, with an organisation of their own.
    ///
    /// The password is read from a file, or asked for on a terminal. Otherwise one is made up and printed, once.
    Create {
        /// The address that they sign in with.
        #[arg(long, value_name = "EMAIL")]
        email: String,
        /// What they are called.
        #[arg(long, value_name = "NAME")]
        name: String,
        /// Read the password from FILE; one newline at its end is dropped.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// List the users.
    List,
}

/// Longest name of a user, in code points.
const NAME_POINTS: usize = 200;
/// Longest address, in bytes.
const EMAIL_BYTES: usize = 254;
const WHAT: &str = "create the user";

pub(super) fn run(verb: Verb, session: &Session) -> Result<Exit, Failure> {
    match verb {
        Verb::Create { email, name, password_file } => create(session, email, name, password_file),
        Verb::List => {
            let users = session.read("list the users", users::list)?;
            session.print(users.iter().map(|user| (record(user), line(user))))
        }
    }
}

fn create(
    session: &Session,
    email: String,
    name: String,
    password_file: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let broken = |rule: String| Failure::new(Exit::Data, WHAT, rule);
    if name.trim().is_empty() || name.chars().count() > NAME_POINTS {
        return Err(broken(format!("a name has 1 to {NAME_POINTS} characters")));
    }
    if !is_email(&email) {
        return Err(broken(format!("{email:?} is no address like ada@example.org")));
    }
    let (password, is_fresh) = password(password_file)?;
    let kept = password::hash(&password).map_err(|err| broken(err.to_string()))?;
    let slug = slug(&email, &name)?;
    let (now, new) = (session.now, NewUser { name, email, password: kept, slug });
    let user = session.write(WHAT, move |tx| users::create(tx, &new, now))?;
    let mut made = json!({ "user": { "id": user.id, "email": user.email }, "org": { "id": user.id } });
    let mut words =
        format!("User {} ({}) is there, and owns an organisation with the same id.", user.email, user.id);
    if is_fresh {
        made["password"] = password.as_str().into();
        words += &format!("\n\n  password  {}\n\nThe password is not shown again.", *password);
    }
    session.print([(made, words)])
}

/// The password, and whether it was made up here.
fn password(file: Option<PathBuf>) -> Result<(Zeroizing<String>, bool), Failure> {
    if file.is_some() {
        let given = SecretArgs { secret_file: file, secret_env: None }.read(NAME)?;
        return Ok((Zeroizing::new(given.expose().to_owned()), false));
    }
    let asked = ask::is_possible().then(|| ask::twice("Password (empty: make one up): ", "The same again: "));
    match asked.transpose().map_err(|why| Failure::new(Exit::Data, "read the password", why))? {
        Some(typed) if !typed.is_empty() => Ok((typed, false)),
        _ => Ok((Zeroizing::new(fresh_secret().expose().to_owned()), true)),
    }
}

/// One `@`, something on either side of it, and nothing that has no place in an address.
fn is_email(text: &str) -> bool {
    let has_parts = text.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty() && !host.is_empty() && !host.contains('@') && !host.starts_with('.')
    });
    let has_odd =
        text.contains(|c: char| c.is_whitespace() || text::is_unsafe(c) || "<>,;:\"\\()".contains(c));
    has_parts && !has_odd && text.len() <= EMAIL_BYTES
}

/// `ada.l@example.org` gets `ada-l`.
fn slug(email: &str, name: &str) -> Result<Slug, Failure> {
    let of_email = slug_of(email.split('@').next().unwrap_or_default());
    let found =
        [of_email, slug_of(name), "personal".to_owned()].into_iter().find_map(|slug| slug.parse().ok());
    found.ok_or_else(|| Failure::new(Exit::Software, WHAT, "no slug can be made"))
}

fn record(user: &UserRow) -> Value {
    json!({
        "id": user.id,
        "name": user.name,
        "email": user.email,
        "org": { "id": user.id },
        "created_at": user.created_at.to_string(),
    })
}

fn line(user: &UserRow) -> String {
    format!("{}  {}  {}  {}", user.id, user.created_at, user.email, text::visible(&user.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_two_sides_and_nothing_odd() {
        for good in ["ada@example.org", "a+b@x", "ä@exämple.org"] {
            assert!(is_email(good), "{good}");
        }
        let long = format!("{}@x", "a".repeat(EMAIL_BYTES));
        for bad in ["", "ada", "@x", "ada@", "a@b@c", "a b@x", "a@x\n", "<a@x>", "a@.x", "a\u{202e}@x", &long]
        {
            assert!(!is_email(bad), "{bad}");
        }
    }

    #[test]
    fn a_slug_comes_from_the_address_or_the_name() {
        for (email, name, made) in
            [("ada.l@x", "Ada", "ada-l"), ("ä@x", "Ada L", "ada-l"), ("ä@x", "ä", "personal")]
        {
            assert_eq!(slug(email, name).unwrap().as_str(), made);
        }
    }
}
