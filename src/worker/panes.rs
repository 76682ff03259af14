//! Which agent is in which pane of a host, so that one that gets another name is still known for who it is.

use std::collections::HashMap;

use crate::proto::wire::AgentInfo;

/// The panes of a host's last roster, and the names that agents had before on this connection.
#[derive(Default)]
pub(super) struct Panes {
    /// By name. A pane that says nothing is not remembered.
    by_name: HashMap<String, String>,
    /// What an agent was called, and what it is called now.
    renamed: HashMap<String, String>,
}

impl Panes {
    /// Begins with the roster of an earlier connection.
    pub(super) fn recall(&mut self, names: Vec<(String, String)>) {
        self.by_name = names.into_iter().collect();
    }

    /// Takes a new roster. Answers who has another name than before: its old one, and the one that it has now. A pane
    /// is somebody's only when it is nobody else's, and a name that was there before, or still is, is not another's.
    pub(super) fn replace(&mut self, agents: &[AgentInfo]) -> Vec<(String, String)> {
        let now: HashMap<String, String> =
            agents.iter().map(|agent| (agent.name.clone(), agent.pane_id.clone())).collect();
        let (old_owners, new_owners) = (owners(&self.by_name), owners(&now));
        let mut renamed = Vec::new();
        for (pane, old) in &old_owners {
            if let (Some(old), Some(Some(new))) = (old, new_owners.get(pane))
                && !now.contains_key(*old)
                && !self.by_name.contains_key(*new)
            {
                renamed.push(((*old).to_owned(), (*new).to_owned()));
            }
        }
        for (old, new) in &renamed {
            self.renamed.values_mut().filter(|name| *name == old).for_each(|name| name.clone_from(new));
            self.renamed.insert(old.clone(), new.clone());
        }
        self.renamed.retain(|old, _| !now.contains_key(old));
        self.by_name = now;
        renamed
    }

    /// The name that an agent has now, of which the daemon speaks by the name that it had when it was told of it.
    pub(super) fn name_now(&self, name: Option<String>) -> Option<String> {
        name.map(|name| self.renamed.get(&name).cloned().unwrap_or(name))
    }
}

/// Who is in each pane; `None` when there are several.
fn owners(by_name: &HashMap<String, String>) -> HashMap<&str, Option<&str>> {
    let mut owners = HashMap::new();
    for (name, pane) in by_name.iter().filter(|(_, pane)| !pane.is_empty()) {
        owners.entry(pane.as_str()).and_modify(|owner| *owner = None).or_insert(Some(name.as_str()));
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ledger::roster::tests::agent;

    fn roster(of: &[(&str, &str)]) -> Vec<AgentInfo> {
        of.iter()
            .map(|(name, pane)| AgentInfo { pane_id: (*pane).to_owned(), ..agent(name, "idle") })
            .collect()
    }

    fn names(pair: (&str, &str)) -> (String, String) {
        (pair.0.to_owned(), pair.1.to_owned())
    }

    #[test]
    fn an_agent_in_the_same_pane_is_the_same_and_answers_by_its_old_name_too() {
        let mut panes = Panes::default();
        panes.recall(vec![names(("bob", "p1")), names(("eve", "p2"))]);
        assert_eq!(panes.replace(&roster(&[("rob", "p1"), ("eve", "p2")])), [names(("bob", "rob"))]);
        assert_eq!(panes.replace(&roster(&[("robert", "p1"), ("eve", "p2")])), [names(("rob", "robert"))]);
        for (said, meant) in [("bob", "robert"), ("rob", "robert"), ("eve", "eve")] {
            assert_eq!(panes.name_now(Some(said.to_owned())).as_deref(), Some(meant));
        }
        assert_eq!(panes.name_now(None), None);
        assert!(panes.replace(&roster(&[("robert", "p1"), ("eve", "p2"), ("bob", "p3")])).is_empty());
        assert_eq!(panes.name_now(Some("bob".to_owned())).as_deref(), Some("bob"), "it is another's by now");
    }

    #[test]
    fn a_pane_that_is_not_one_agents_tells_nothing() {
        for (before, after) in [
            (vec![("bob", "")], vec![("rob", "")]),
            (vec![("bob", "p"), ("eve", "p")], vec![("rob", "p")]),
            (vec![("bob", "p")], vec![("rob", "p"), ("ron", "p")]),
            (vec![("bob", "p")], vec![("bob", "q"), ("rob", "p")]),
            (vec![("bob", "p"), ("rob", "q")], vec![("rob", "p")]),
            (vec![("bob", "p")], vec![]),
        ] {
            let mut panes = Panes::default();
            panes.recall(before.iter().copied().map(names).collect());
            assert_eq!(panes.replace(&roster(&after)), [], "{before:?} {after:?}");
        }
    }
}
