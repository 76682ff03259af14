//! The reply that a run comes to, as people read it (local client API, `reply`).

use super::tail::{clip_json, json_len};

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It exited 0.
    Done {
        /// The last reply frame, if the agent speaks assistant-v1 and said one.
        reply: Option<String>,
        /// The end of its stdout.
        stdout: String,
    },
    /// It exited otherwise; a death by signal is −1.
    Failed {
        /// How.
        code: i32,
        /// The end of its stderr.
        stderr: String,
    },
    /// It was ended at its deadline.
    TimedOut {
        /// The end of its stderr.
        stderr: String,
    },
    /// It was ended because the daemon stops.
    Stopped,
    /// It was not begun, because what its manifest wants checked first says no.
    Blocked {
        /// Who says so.
        plugin: String,
        /// What clears the way, or nothing.
        suggest: String,
    },
    /// It was never begun, and why.
    NotRun(String),
    /// It was not begun, because nobody could have told of it afterwards.
    NoAudit,
}

/// The reply of `agent`, at most `longest` bytes inside a JSON string.
pub fn shape(agent: &str, outcome: &Outcome, longest: usize) -> String {
    let text = match outcome {
        Outcome::Done { reply: Some(reply), .. } => reply.clone(),
        Outcome::Done { reply: None, stdout } if stdout.trim().is_empty() => {
            format!("{agent} finished with no output.")
        }
        Outcome::Done { reply: None, stdout } => stdout.clone(),
        Outcome::Failed { code, stderr } => format!("{agent} exited {code}.\n{stderr}"),
        Outcome::TimedOut { stderr } => format!("{agent} timed out.\n{stderr}"),
        Outcome::Stopped => format!("{agent} was ended, because the daemon stops."),
        Outcome::Blocked { plugin, suggest } if suggest.is_empty() => {
            format!("{agent} blocked by preflight {plugin}")
        }
        Outcome::Blocked { plugin, suggest } => format!("{agent} blocked by preflight {plugin}: {suggest}"),
        Outcome::NotRun(why) => format!("Could not run {agent}: {why}"),
        Outcome::NoAudit => "Could not run trigger: audit unavailable.".to_owned(),
    };
    fit(text, longest)
}

/// A reply as it is sent: at most `longest` bytes inside a JSON string.
pub fn fit(text: String, longest: usize) -> String {
    if json_len(&text) <= longest {
        return text;
    }
    let mark = format!("\n… truncated at {longest} bytes.");
    format!("{}{mark}", clip_json(&text, longest.saturating_sub(json_len(&mark))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(reply: Option<&str>, stdout: &str) -> Outcome {
        Outcome::Done { reply: reply.map(str::to_owned), stdout: stdout.into() }
    }

    fn blocked(plugin: &str, suggest: &str) -> Outcome {
        Outcome::Blocked { plugin: plugin.into(), suggest: suggest.into() }
    }

    #[test]
    fn every_outcome_has_its_words() {
        for (outcome, want) in [
            (done(Some("yes"), "{…}"), "yes"),
            (done(Some(""), "{…}"), ""),
            (done(None, "a\nb"), "a\nb"),
            (done(None, ""), "tiny finished with no output."),
            (done(None, "\n \u{a0}"), "tiny finished with no output."),
            (Outcome::Failed { code: 3, stderr: "boom".into() }, "tiny exited 3.\nboom"),
            (Outcome::Failed { code: -1, stderr: String::new() }, "tiny exited -1.\n"),
            (Outcome::TimedOut { stderr: "slow".into() }, "tiny timed out.\nslow"),
            (Outcome::Stopped, "tiny was ended, because the daemon stops."),
            (blocked("warp", ""), "tiny blocked by preflight warp"),
            (blocked("warp", "connect first"), "tiny blocked by preflight warp: connect first"),
            (Outcome::NotRun("no".into()), "Could not run tiny: no"),
            (Outcome::NoAudit, "Could not run trigger: audit unavailable."),
        ] {
            assert_eq!(shape("tiny", &outcome, 1000), want);
        }
    }

    #[test]
    fn a_reply_is_never_longer_than_it_may_be_and_says_so() {
        let long = "é\n".repeat(100);
        let reply = shape("tiny", &done(Some(&long), ""), 100);
        assert!(json_len(&reply) <= 100 && reply.ends_with("\n… truncated at 100 bytes."), "{reply}");
        assert!(long.starts_with(reply.split_once('…').unwrap().0.trim_end()), "{reply}");
        assert_eq!(shape("tiny", &done(Some(&"x".repeat(100)), ""), 100).len(), 100);
    }
}
