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
    /// OpenCode: rows behind a bar, above a row of its mode and a thick rule.
    OpenCode,
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
/// The fewest `▀` of the rule below OpenCode's.
const THICK_RUNES: usize = 8;
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
            "opencode" => Some(Self::OpenCode),
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
        Kind::Omp => boxed(&rows).or_else(|| topless(&rows)).or_else(|| open(&rows)),
        Kind::OpenCode => barred(&rows),
        Kind::Pi => boxed(&rows).or_else(|| topless(&rows)).or_else(|| ruled(&rows)),
    }?;
    Some(Composer { text })
}

/// The same for a program of which nothing is known: only composers that nothing else looks like.
pub fn find_any(screen: &str) -> Option<Composer> {
    let rows = rows(screen);
    let text = prompted(&rows).or_else(|| boxed(&rows)).or_else(|| barred(&rows))?;
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
        let is_words = inner.is_some_and(|inner| {
            let inner = inner.to_ascii_lowercase();
            ["pasted text #", "paste #", "pasted ~"].iter().any(|mark| inner.starts_with(mark))
                && !inner.contains(['[', ']'])
        });
        // OMP's is a picture and a number.
        let is_picture = self.text.split_once(" #").is_some_and(|(picture, number)| {
            picture.chars().count() <= 2
                && !picture.is_ascii()
                && !picture.chars().any(char::is_alphanumeric)
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        is_words || is_picture
    }

    /// The text without blanks: rows are broken anywhere, and filled up.
    fn squeezed(&self) -> String {
        self.text.chars().filter(|c| !c.is_whitespace()).collect()
    }
}

/// Claude's: rule, prompt row, further rows, rule; the lowest one. What a person draws is indented, unlike the rules.
fn prompted(rows: &[Row]) -> Option<String> {
    let rules: Vec<usize> = (0..rows.len()).filter(|&at| is_rule(&rows[at])).collect();
    let start = |at: usize| rows[at].bounds().0;
    rules.iter().enumerate().rev().find_map(|(n, &lower)| {
        let upper = *rules[..n].iter().rfind(|&&upper| start(upper) == start(lower))?;
        let between = &rows[upper + 1..lower];
        let text = if is_scrolled(&rows[upper]) { indented(between) } else { prompt_between(between) };
        text.map(|text| with_hidden(text, [&rows[upper], &rows[lower]]))
    })
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
    if !further.iter().all(goes_on) {
        return None;
    }
    let typed = std::iter::once(&first.bright[skipped..]).chain(further.iter().map(|row| &row.bright[..]));
    Some(without_hint(joined(typed)))
}

/// The rows of a prompt whose beginning is not to be seen.
fn indented(rows: &[Row]) -> Option<String> {
    let is_all = !rows.is_empty() && rows.iter().all(goes_on);
    is_all.then(|| joined(rows.iter().map(|row| &row.bright[..])))
}

/// Whether a row goes on with what Claude Code's prompt row began.
fn goes_on(row: &Row) -> bool {
    row.is_blank() || row.all.iter().take(2).all(|c| c.is_whitespace())
}

/// What the programs say themselves in a composer that is empty, as it reads where faint letters cannot be told.
fn without_hint(text: String) -> String {
    let is_hint = ["Try \"", "Ask anything… \""].iter().any(|begin| text.starts_with(begin))
        && text.ends_with('"')
        || text == "Press up to edit queued messages";
    // A narrow terminal breaks OpenCode's.
    let is_one_row = !text.contains('\n') || text.starts_with("Ask");
    if is_hint && is_one_row { String::new() } else { text }
}

/// OMP's, and Pi's with a theme: the foot of a box in which there is room for text, and the box above it.
fn boxed(rows: &[Row]) -> Option<String> {
    (0..rows.len()).rev().find_map(|foot| {
        let (above, text) = box_on(rows, foot)?;
        let head = above.last()?.trimmed();
        let is_head = head.starts_with(&['╭', '─']) && head.ends_with(&['─', '╮']);
        is_head.then_some(text)
    })
}

/// The same box when it is higher than the screen, so that its head is not to be seen: walls from the first row on.
fn topless(rows: &[Row]) -> Option<String> {
    let foot = (0..rows.len()).rev().find(|&at| foot_text(&rows[at]).is_some())?;
    let is_all = |above: &[Row]| above.is_empty() && foot > 0;
    box_on(rows, foot).filter(|(above, _)| is_all(above)).map(|(_, text)| text)
}

/// The box on this foot: the rows above its walls, and what stands in it.
fn box_on(rows: &[Row], foot: usize) -> Option<(&[Row], String)> {
    let last = foot_text(&rows[foot])?;
    let body = rows[..foot].iter().rev().take_while(|row| wall_text(row).is_some()).count();
    let (above, walls) = rows[..foot].split_at(foot - body);
    Some((above, joined(walls.iter().filter_map(wall_text).chain([last]))))
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

/// OMP's without a box: a row of states, `╰─ …`, and further rows that are indented; below those a list of commands to
/// choose from, or nothing.
fn open(rows: &[Row]) -> Option<String> {
    (0..rows.len()).rev().find_map(|foot| open_at(rows, foot))
}

fn open_at(rows: &[Row], foot: usize) -> Option<String> {
    let all = rows[foot].trimmed();
    let is_foot = all.starts_with(&['╰', '─']) && all.get(2).is_none_or(|c| *c == ' ');
    if !is_foot || !is_row_of_states(rows[..foot].last()?) {
        return None;
    }
    let goes_on = |row: &&Row| row.is_blank() || row.all.iter().take(OPEN_INDENT).all(|c| *c == ' ');
    let further = &rows[foot + 1..];
    let (further, list) = further.split_at(further.iter().take_while(goes_on).count());
    let is_list = |row: &Row| row.all.first().is_none_or(|c| c.is_whitespace() || *c == '❯');
    if !list.iter().all(is_list) {
        return None;
    }
    let (start, _) = rows[foot].bounds();
    let typed = &rows[foot].bright[start + 2..];
    Some(joined(std::iter::once(typed).chain(further.iter().map(|row| &row.bright[..]))))
}

fn is_row_of_states(row: &Row) -> bool {
    let row = row.trimmed();
    let has_line = row.iter().filter(|c| **c == '─').count() >= STATES_RUNES;
    // In a narrow terminal little is left of the line that says how full the model's context is.
    let has_gauge = row.contains(&'%') && row.last() == Some(&'─');
    (has_line || has_gauge) && !row.starts_with(&['│'])
}

/// OpenCode's: rows behind `┃`, of which the last one tells the mode, on a thick rule. A list of commands to choose from
/// may stand on top, with a bar at either side.
fn barred(rows: &[Row]) -> Option<String> {
    let foot = rows.iter().rposition(|row| {
        row.trimmed()
            .strip_prefix(&['╹'])
            .is_some_and(|rest| rest.len() >= THICK_RUNES && rest.iter().all(|c| *c == '▀'))
    })?;
    let has_bar = |row: &&Row| row.trimmed().first() == Some(&'┃');
    let top = foot - rows[..foot].iter().rev().take_while(has_bar).count();
    let in_list = |row: &&Row| row.trimmed().len() > 1 && row.trimmed().last() == Some(&'┃');
    let top = top + rows[top..foot].iter().take_while(in_list).count();
    let behind = |row: &'_ Row| row.bounds().0 + 1;
    let (mode, typed) = rows[top..foot].split_last().filter(|(_, typed)| !typed.is_empty())?;
    let text = joined(typed.iter().map(|row| &row.bright[behind(row)..]));
    // What is typed there next goes to a shell.
    let is_shell = joined(std::iter::once(&mode.all[behind(mode)..])) == "Shell";
    Some(if is_shell { format!("!{text}") } else { without_hint(text) })
}

/// Pi's: what stands between the two lowest rules that are equally wide, with at least a row for it. A narrower one is
/// somebody's text.
fn ruled(rows: &[Row]) -> Option<String> {
    let lower = rows.iter().rposition(is_rule)?;
    // Some signs of a label take two columns.
    let is_as_wide = |row: &Row| {
        let wide = row.all.iter().filter(|c| !c.is_ascii() && **c != '─').count();
        row.all.len() + wide >= rows[lower].all.len()
    };
    let upper = rows[..lower].iter().rposition(|row| is_rule(row) && is_as_wide(row))?;
    let between = &rows[upper + 1..lower];
    let text = joined(between.iter().map(|row| &row.bright[..]));
    (!between.is_empty()).then(|| with_hidden(text, [&rows[upper], &rows[lower]]))
}

/// Whether a rule says that rows above or below it are not shown: `─── ↑ 3 more ───`.
fn is_scrolled(rule: &Row) -> bool {
    let label = rule.trimmed().iter().find(|c| !matches!(c, '─' | ' '));
    matches!(label, Some('↑' | '↓'))
}

/// A composer of which a part is hidden is not empty, even if the rest is.
fn with_hidden(text: String, rules: [&Row; 2]) -> String {
    let is_hidden = text.is_empty() && rules.into_iter().any(is_scrolled);
    if is_hidden { "…".to_owned() } else { text }
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
