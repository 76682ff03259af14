//! A picture of a terminal as rows of characters, with its escapes read and taken out.

/// One row.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// What it shows, without blanks at its end.
    pub(super) all: Vec<char>,
    /// The same, with a blank for every character that is drawn faint; as long as `all`.
    pub(super) bright: Vec<char>,
}

impl Row {
    /// Where what it shows begins and ends.
    pub(super) fn bounds(&self) -> (usize, usize) {
        let start = self.all.iter().take_while(|c| c.is_whitespace()).count();
        (start, self.all.len())
    }

    /// What it shows, without the blanks around it.
    pub(super) fn trimmed(&self) -> &[char] {
        let (start, end) = self.bounds();
        &self.all[start..end]
    }

    pub(super) fn is_blank(&self) -> bool {
        self.all.is_empty()
    }

    fn end(&mut self) {
        let end = self.all.iter().rposition(|c| !c.is_whitespace()).map_or(0, |last| last + 1);
        self.all.truncate(end);
        self.bright.truncate(end);
    }
}

/// How characters are drawn.
#[derive(Debug, Clone, Copy, Default)]
struct Pen {
    faint: bool,
    inverse: bool,
}

/// The rows of a screen. An escape never reaches beyond its row; how characters are drawn does.
pub(super) fn rows(screen: &str) -> Vec<Row> {
    let mut pen = Pen::default();
    screen.split('\n').map(|line| row(line, &mut pen)).collect()
}

fn row(line: &str, pen: &mut Pen) -> Row {
    let mut row = Row::default();
    // A cursor stands on the first letter of a suggestion, in reverse; which of them it is shows with the next one.
    let mut under_cursor = false;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => escape(&mut chars, pen),
            c if c.is_control() => {}
            c => {
                if under_cursor
                    && pen.faint
                    && let Some(last) = row.bright.last_mut()
                {
                    *last = ' ';
                }
                under_cursor = pen.inverse && !under_cursor;
                row.all.push(c);
                row.bright.push(if pen.faint { ' ' } else { c });
            }
        }
    }
    row.end();
    row
}

/// Reads the rest of an escape sequence; only colours and the like mean something here.
fn escape(chars: &mut std::str::Chars<'_>, pen: &mut Pen) {
    match chars.next() {
        Some('[') => {
            let mut parameters = String::new();
            for c in chars.by_ref() {
                match c {
                    '\x40'..='\x7e' => {
                        if c == 'm' {
                            draw(&parameters, pen);
                        }
                        return;
                    }
                    c => parameters.push(c),
                }
            }
        }
        // A title or a link: up to BEL or ESC \.
        Some(']') => {
            while let Some(c) = chars.next() {
                if c == '\x07' || (c == '\x1b' && chars.next().is_some()) {
                    return;
                }
            }
        }
        // A character set has one more byte.
        Some('(' | ')') => {
            chars.next();
        }
        _ => {}
    }
}

/// Select graphic rendition: faint, inverse, and what ends them. The parameters of a colour are passed over.
fn draw(parameters: &str, pen: &mut Pen) {
    let mut codes = parameters.split(';');
    while let Some(code) = codes.next() {
        match code {
            "" | "0" => *pen = Pen::default(),
            "2" => pen.faint = true,
            "22" => pen.faint = false,
            "7" => pen.inverse = true,
            "27" => pen.inverse = false,
            "38" | "48" | "58" => {
                let skipped = match codes.next() {
                    Some("5") => 1,
                    Some("2") => 3,
                    _ => 0,
                };
                for _ in 0..skipped {
                    codes.next();
                }
            }
            _ => {}
        }
    }
}
