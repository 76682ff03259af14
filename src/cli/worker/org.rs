//! `transit-worker org`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::Session;
use crate::addr::Slug;
use crate::cli::output::{Exit, Failure};
use crate::store::ledger::directory::{self, OrgRow};
use crate::text;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Make an organisation.
    Create {
        /// What people call it.
        name: String,
        /// Its short name in commands and addresses [default: made from NAME].
        #[arg(long, value_name = "SLUG")]
        slug: Option<String>,
    },
    /// List the organisations.
    List,
}

/// Longest name of an organisation, in code points.
const NAME_POINTS: usize = 200;

pub(super) fn run(verb: Verb, session: &Session) -> Result<Exit, Failure> {
    match verb {
        Verb::Create { name, slug } => create(session, name, slug),
        Verb::List => {
            let orgs = session.read("list the organisations", directory::list_orgs)?;
            session.print(
                orgs.iter().map(|org| {
                    (record(org), format!("{}  {}  {}", org.id, org.slug, text::visible(&org.name)))
                }),
            )
        }
    }
}

fn create(session: &Session, name: String, slug: Option<String>) -> Result<Exit, Failure> {
    const WHAT: &str = "create the organisation";
    if name.trim().is_empty() || name.chars().count() > NAME_POINTS {
        let rule = format!("a name has 1 to {NAME_POINTS} characters");
        return Err(Failure::new(Exit::Data, WHAT, rule));
    }
    let slug = slug.unwrap_or_else(|| slug_of(&name));
    let slug: Slug =
        slug.parse().map_err(|err| Failure::new(Exit::Data, WHAT, err).hint("give it one with --slug"))?;
    let org = session.write(WHAT, move |tx| directory::create_org(tx, &slug, &name))?;
    let words = format!("Organisation {} ({}) is there.", org.slug, org.id);
    session.print([(json!({ "org": record(&org) }), words)])
}

fn record(org: &OrgRow) -> Value {
    json!({ "id": org.id, "name": org.name, "slug": org.slug })
}

/// `Acme & Co` becomes `acme-co`.
pub(super) fn slug_of(name: &str) -> String {
    let mut slug = String::new();
    for c in name.to_lowercase().chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(32);
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_made_from_a_name() {
        for (name, slug) in [("Acme & Co.", "acme-co"), ("  x", "x"), ("ÄÖ", ""), ("9 Lives!", "9-lives")] {
            assert_eq!(slug_of(name), slug);
        }
        assert_eq!(slug_of(&"ab ".repeat(40)).len(), 32);
    }
}
