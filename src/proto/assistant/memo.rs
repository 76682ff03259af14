//! `MEMO:` lines: what an assistant wants remembered, taken out of what it says.

/// One thing to remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memo {
    /// The fact, never empty.
    pub fact: String,
    /// What it is about.
    pub topics: Vec<String>,
}

/// Takes every line `MEMO: FACT` or `MEMO: FACT | topics: A, B` out of a reply; what is left has no blanks at its end.
/// A line without a fact, or with something else behind the bar, stays.
pub fn take_memos(text: &str) -> (String, Vec<Memo>) {
    let mut memos = Vec::new();
    let kept: Vec<&str> = text
        .split('\n')
        .filter(|line| match parse(line) {
            Some(memo) => {
                memos.push(memo);
                false
            }
            None => true,
        })
        .collect();
    let mut kept = kept.join("\n");
    kept.truncate(kept.trim_end().len());
    (kept, memos)
}

fn parse(line: &str) -> Option<Memo> {
    let rest = line.trim().strip_prefix("MEMO:")?;
    let (fact, topics) = match rest.split_once('|') {
        None => (rest, ""),
        Some((fact, topics)) => (fact, topics.trim().strip_prefix("topics:")?),
    };
    let topics = topics.split(',').map(str::trim).filter(|topic| !topic.is_empty());
    let memo = Memo { fact: fact.trim().to_owned(), topics: topics.map(str::to_owned).collect() };
    (!memo.fact.is_empty()).then_some(memo)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn memo(fact: &str, topics: &[&str]) -> Memo {
        Memo { fact: fact.into(), topics: topics.iter().map(|&topic| topic.into()).collect() }
    }

    #[test]
    fn memos_are_taken_out_wherever_they_stand() {
        let (kept, memos) = take_memos("one\n  MEMO: likes tea | topics: food, , drink \n\ntwo\nMEMO: x\n\n");
        assert_eq!(kept, "one\n\ntwo");
        assert_eq!(memos, [memo("likes tea", &["food", "drink"]), memo("x", &[])]);
        assert_eq!(take_memos("MEMO: only"), (String::new(), vec![memo("only", &[])]));
    }

    #[test]
    fn what_is_no_memo_stays() {
        let text = "a\nMEMO:\nMEMO: | topics: x\nMEMO: fact | notes: x\nhe said MEMO: y\nmemo: z";
        assert_eq!(take_memos(text), (text.to_owned(), vec![]));
    }

    proptest! {
        #[test]
        fn nothing_but_memos_and_blanks_at_the_end_goes(text in any::<String>()) {
            let (kept, memos) = take_memos(&text);
            if memos.is_empty() {
                prop_assert_eq!(kept, text.trim_end());
            } else {
                prop_assert!(kept.len() < text.len());
            }
        }
    }
}
