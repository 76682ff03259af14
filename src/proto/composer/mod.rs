//! Composers: what a person has typed into a coding agent and not sent, as far as a picture of its terminal shows it.
//!
//! Whoever types into somebody's terminal looks first. Only what is positively recognised counts: a screen on which
//! no composer is found says nothing about drafts, and is no reason to keep a message back. So every rule here asks
//! for the whole shape of a composer, and not for a prompt alone, which shells have too.
//!
//! The picture is text, row by row, with or without the terminal's own escapes. With them, what the program draws
//! faint (a suggestion that nobody has typed) is not taken for a draft.

mod screen;
#[cfg(test)]
mod tests;

use self::screen::{Row, rows};

/// Programs whose composer is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Claude Code: a row that begins with `❯`, and the rows that go on with it, between two rules.
    Claude,
    /// OMP: a row that begins with `╰─`, as the foot of a box or below a row of states.
    Omp,
    /// Pi: the rows between two rules; or a box, as OMP draws it.
    Pi,
}

/// A composer that was found on a screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composer {
    /// What is in it, row by row, without blanks around it; empty when nothing is.
    pub text: String,
}

/// The fewest `─` of a rule, so that no dash in a text is one.
const RULE_RUNES: usize = 8;
/// The fewest `─` in the row of states above an open OMP composer.
const STATES_RUNES: usize = 3;
/// How OMP's and Pi's second and later rows are indented at least, below `╰─ `.
const OPEN_INDENT: usize = 3;
/// How an envelope begins and ends, without blanks.
const OPEN: &str = "<transitfrom=";
const CLOSE: &str = "</transit>";

impl Kind {
    /// The kind of a program, by the name that it goes by.
    pub fn of(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "claude" | "claude-code" => Some(Self::Claude),
            "omp" => Some(Self::Omp),
            "pi" => Some(Self::Pi),
            _ => None,
        }
    }
}

/// Finds the composer of a program of this kind; `None` when the screen shows none for certain.
pub fn find(kind: Kind, screen: &str) -> Option<Composer> {
    let rows = rows(screen);
    let text = match kind {
        Kind::Claude => prompted(&rows),
        Kind::Omp => boxed(&rows).or_else(|| open(&rows)),
        Kind::Pi => boxed(&rows).or_else(|| ruled(&rows)),
    }?;
    Some(Composer { text })
}

/// The same for a program of which nothing is known: only composers that nothing else looks like.
pub fn find_any(screen: &str) -> Option<Composer> {
    let rows = rows(screen);
    let text = prompted(&rows).or_else(|| boxed(&rows))?;
    Some(Composer { text })
}

/// What a screen shows, without the terminal's own escapes.
pub fn plain(screen: &str) -> String {
    rows(screen).iter().flat_map(|row| row.all.iter().copied().chain(['\n'])).collect()
}

impl Composer {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether it holds one whole envelope and nothing else: one that was put there and not sent.
    pub fn is_envelope(&self) -> bool {
        let text = self.squeezed();
        text.starts_with(OPEN) && text.find(CLOSE).is_some_and(|at| at + CLOSE.len() == text.len())
    }

    /// Whether it holds the envelope of this id, whatever else there is.
    pub fn holds(&self, id: &str) -> bool {
        self.squeezed().contains(id)
    }

    /// Whether it holds the end of an envelope and nothing of its beginning: one that is longer than the composer.
    pub fn is_end_of_envelope(&self) -> bool {
        let text = self.squeezed();
        text.ends_with(CLOSE) && !text.contains(OPEN)
    }

    /// Whether it holds one mark that stands for a long text that was pasted, and nothing else.
    pub fn is_paste_mark(&self) -> bool {
        let inner = self.text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        inner.is_some_and(|inner| {
            let inner = inner.to_ascii_lowercase();
            (inner.starts_with("pasted text #") || inner.starts_with("paste #"))
                && !inner.contains(['[', ']'])
        })
    }

    /// The text without blanks: rows are broken anywhere, and filled up.
    fn squeezed(&self) -> String {
        self.text.chars().filter(|c| !c.is_whitespace()).collect()
    }
}

/// Claude's: rule, prompt row, further rows, rule; the lowest one.
fn prompted(rows: &[Row]) -> Option<String> {
    let rules: Vec<usize> = (0..rows.len()).filter(|&at| is_rule(&rows[at])).collect();
    rules.windows(2).rev().find_map(|pair| prompt_between(&rows[pair[0] + 1..pair[1]]))
}

fn prompt_between(rows: &[Row]) -> Option<String> {
    let (first, further) = rows.split_first()?;
    let (prompt, rest) = first.all.split_first()?;
    let is_spaced = rest.first().is_none_or(|c| c.is_whitespace());
    // What follows `!` goes to a shell: with the mark, it is what a person is about to run.
    let skipped = match prompt {
        '❯' if is_spaced => 1,
        '!' if is_spaced => 0,
        _ => return None,
    };
    let goes_on = |row: &Row| row.is_blank() || row.all.iter().take(2).all(|c| c.is_whitespace());
    if !further.iter().all(goes_on) {
        return None;
    }
    let typed = std::iter::once(&first.bright[skipped..]).chain(further.iter().map(|row| &row.bright[..]));
    let text = joined(typed);
    // What Claude Code says in an empty composer on a terminal without faint letters.
    let is_hint = text.starts_with("Try \"") && text.ends_with('"') && !text.contains('\n');
    Some(if is_hint { String::new() } else { text })
}

/// OMP's, and Pi's with a theme: the foot of a box in which there is room for text, and the box above it.
fn boxed(rows: &[Row]) -> Option<String> {
    let foot = rows.iter().rposition(|row| foot_text(row).is_some())?;
    let body = rows[..foot].iter().rev().take_while(|row| wall_text(row).is_some()).count();
    let head = rows[..foot - body].last()?.trimmed();
    if !(head.starts_with(&['╭', '─']) && head.ends_with(&['─', '╮'])) {
        return None;
    }
    let walls = rows[foot - body..foot].iter().filter_map(wall_text);
    Some(joined(walls.chain(foot_text(&rows[foot]))))
}

/// What stands in `╰─ … ─╯`; a row of the border alone has no room for text.
fn foot_text(row: &Row) -> Option<&[char]> {
    let (start, end) = row.bounds();
    let all = &row.all[start..end];
    let inner = all.strip_prefix(&['╰', '─'])?.strip_suffix(&['─', '╯'])?;
    let is_text = inner.first() == Some(&' ') && inner.last() == Some(&' ');
    is_text.then(|| &row.bright[start + 2..end - 2])
}

/// What stands in `│ … │`.
fn wall_text(row: &Row) -> Option<&[char]> {
    let (start, end) = row.bounds();
    row.all[start..end].strip_prefix(&['│'])?.strip_suffix(&['│'])?;
    Some(&row.bright[start + 1..end - 1])
}

/// OMP's without a box: a row of states, `╰─ …`, and the rest of the screen indented or blank.
fn open(rows: &[Row]) -> Option<String> {
    let foot = rows.iter().rposition(|row| {
        let all = row.trimmed();
        all.starts_with(&['╰', '─']) && all.get(2).is_none_or(|c| *c == ' ')
    })?;
    let states = rows[..foot].last()?;
    let has_states = states.all.iter().filter(|c| **c == '─').count() >= STATES_RUNES
        && !states.trimmed().starts_with(&['│']);
    let goes_on = |row: &Row| row.is_blank() || row.all.iter().take(OPEN_INDENT).all(|c| *c == ' ');
    if !has_states || !rows[foot + 1..].iter().all(goes_on) {
        return None;
    }
    let (start, _) = rows[foot].bounds();
    let typed = &rows[foot].bright[start + 2..];
    Some(joined(std::iter::once(typed).chain(rows[foot + 1..].iter().map(|row| &row.bright[..]))))
}

/// Pi's: what stands between the two lowest rules, with at least a row for it.
fn ruled(rows: &[Row]) -> Option<String> {
    let lower = rows.iter().rposition(is_rule)?;
    let upper = rows[..lower].iter().rposition(is_rule)?;
    let between = &rows[upper + 1..lower];
    (!between.is_empty()).then(|| joined(between.iter().map(|row| &row.bright[..])))
}

/// A row that is a line: it begins and ends with `─`, of which it has several, and has at most one label, with a
/// blank at either side.
fn is_rule(row: &Row) -> bool {
    let all = row.trimmed();
    let dashes = all.iter().filter(|c| **c == '─').count();
    let before = all.iter().take_while(|c| **c == '─').count();
    let after = all.iter().rev().take_while(|c| **c == '─').count();
    if dashes < RULE_RUNES || before == 0 || after == 0 {
        return false;
    }
    if before == all.len() {
        return true;
    }
    let label = &all[before..all.len() - after];
    !label.contains(&'─') && label.first() == Some(&' ') && label.last() == Some(&' ')
}

fn joined<'a>(rows: impl Iterator<Item = &'a [char]>) -> String {
    let rows: Vec<String> = rows.map(|row| row.iter().collect::<String>().trim().to_owned()).collect();
    rows.join("\n").trim().to_owned()
}
