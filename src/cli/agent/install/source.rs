//! The files that are installed, as they are in `adapters/`, and how a copy is recognised later.
//!
//! A copy says its version and a sum of itself in one word, `0.1.0+0123456789abcdef`. A copy whose sum is right was
//! written by some version of this program; any other one was changed by a person, or is somebody else's.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::cli::output::{Exit, Failure};
use crate::cli::shell;

/// What adapters in JavaScript share: its name, and its text.
const SHARED: [(&str, &str); 2] = [
    ("sessions.js", include_str!("../../../../adapters/sessions.js")),
    ("link.js", include_str!("../../../../adapters/link.js")),
];
/// Where the place of our program stands in `link.js`.
const PROGRAM: &str = "const TRANSIT_AGENT = \"transit-agent\";";
/// Where the version and the sum stand.
const VERSION: &str = "@VERSION@";
/// Hexadecimal digits of a sum.
const SUM: usize = 16;

/// Where our programs are.
pub(super) struct Programs {
    /// transit-agent.
    agent: String,
}

impl Programs {
    /// The programs beside the one that runs, by the name under which a person finds them.
    ///
    /// # Errors
    /// When it cannot be told where they are.
    pub(super) fn find() -> Result<Self, Failure> {
        const WHAT: &str = "find transit-agent";
        let own = std::env::current_exe().map_err(|err| Failure::new(Exit::Io, WHAT, err))?;
        let agent = own.with_file_name("transit-agent");
        // What PATH names may be a link that stays when the program behind it gets another place.
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let named = std::env::split_paths(&paths).map(|dir| dir.join("transit-agent"));
        let same = |path: &PathBuf| path.is_absolute() && path.canonicalize().is_ok_and(|path| path == agent);
        let agent = named.into_iter().find(same).unwrap_or_else(|| agent.clone());
        match agent.into_os_string().into_string() {
            Ok(agent) => Ok(Self { agent }),
            Err(agent) => {
                let why = format!("its path is not UTF-8: {}", agent.display());
                Err(Failure::new(Exit::Config, WHAT, why))
            }
        }
    }

    /// transit-mcp, which is beside transit-agent.
    pub(super) fn mcp(&self) -> String {
        Path::new(&self.agent).with_file_name("transit-mcp").display().to_string()
    }

    /// A word of sh that runs transit-agent.
    fn quoted_agent(&self) -> String {
        String::from_utf8_lossy(&shell::quoted(self.agent.as_bytes())).into_owned()
    }
}

/// An adapter in JavaScript as one file.
pub(super) fn script(harness: &str, adapter: &str, programs: &Programs) -> String {
    let shared = SHARED.iter().filter(|(name, _)| adapter.contains(&format!("from \"../{name}\";")));
    let texts = std::iter::once(&adapter).chain(shared.map(|(_, text)| text));
    let own = texts.map(|text| without_imports(text)).collect::<Vec<_>>().join("\n");
    let program = format!("const TRANSIT_AGENT = {};", json(&programs.agent));
    let own = own.replace(PROGRAM, &program);
    let head = format!(
        "// {VERSION}\n// Installed by: transit-agent install {harness}. To be rid of it: transit-agent uninstall \
         {harness}.\n\n"
    );
    stamped(&format!("{head}{own}"))
}

/// A text without the imports of its neighbours, and without the exports to them. What the harness calls is exported
/// by its `default`, or by a `const`.
fn without_imports(text: &str) -> String {
    let is_import = |line: &str| {
        SHARED.iter().any(|(name, _)| {
            line.ends_with(&format!("from \"../{name}\";")) || line.ends_with(&format!("from \"./{name}\";"))
        })
    };
    let inner = ["class ", "function ", "async function ", "const TRANSIT_MCP"];
    let mut own = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !is_import(line)) {
        let exported =
            line.strip_prefix("export ").filter(|rest| inner.iter().any(|kind| rest.starts_with(kind)));
        own.push_str(exported.unwrap_or(line));
        own.push('\n');
    }
    own
}

/// A file of the plugin for Claude Code.
pub(super) fn plugin_file(text: &str, programs: &Programs) -> String {
    // What a monitor says becomes a message.
    let monitor = format!("exec {} adapter claude 2>/dev/null", programs.quoted_agent());
    let text = text.replace("\"@MONITOR@\"", &json(&monitor)).replace("\"@MCP@\"", &json(&programs.mcp()));
    stamped(&text)
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn sum(text: &str) -> String {
    let mut sum = hex::encode(Sha256::digest(text));
    sum.truncate(SUM);
    sum
}

fn stamped(text: &str) -> String {
    text.replacen(VERSION, &format!("{}+{}", env!("CARGO_PKG_VERSION"), sum(text)), 1)
}

/// Whether a file was written by some version of this program, and not changed since.
pub(super) fn is_unchanged(text: &str) -> bool {
    let is_version = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    text.match_indices('+').any(|(at, _)| {
        let Some(found) = text.get(at + 1..at + 1 + SUM) else { return false };
        let start = at - text[..at].chars().rev().take_while(|c| is_version(*c)).count();
        start < at && sum(&[&text[..start], VERSION, &text[at + 1 + SUM..]].concat()) == found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_recognised_until_somebody_changes_it() {
        let text = stamped("a + b\n// @VERSION@\n1+1 @VERSION@\n");
        assert!(text.starts_with(&format!("a + b\n// {}+", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(is_unchanged(&text));
        assert!(
            is_unchanged(&text.replacen(env!("CARGO_PKG_VERSION"), "12.0.1-rc.1", 1)),
            "of another version"
        );
        assert!(!is_unchanged(&text.replace("a + b", "a + c")));
        assert!(!is_unchanged("") && !is_unchanged("+") && !is_unchanged("1+é"));
    }

    #[test]
    fn a_script_is_one_file_that_knows_the_program() {
        let programs = Programs { agent: "/opt/it's \"here\"/transit-agent".to_owned() };
        assert_eq!(programs.mcp(), "/opt/it's \"here\"/transit-mcp");
        for (harness, adapter, has_sessions) in [
            ("pi", include_str!("../../../../adapters/pi/transit.js"), true),
            ("omp", include_str!("../../../../adapters/omp/transit.js"), true),
            ("opencode", include_str!("../../../../adapters/opencode/transit.js"), false),
        ] {
            let script = script(harness, adapter, &programs);
            assert!(script.contains(r#"const TRANSIT_AGENT = "/opt/it's \"here\"/transit-agent";"#));
            assert!(!script.contains("from \".") && !script.contains(VERSION), "{script}");
            assert_eq!(script.matches("\nexport ").count(), 1, "what the harness calls");
            assert_eq!(script.matches("class Link").count(), 1);
            assert_eq!(script.contains("function isStored"), has_sessions);
            assert!(is_unchanged(&script), "{harness}");
        }
    }
}
