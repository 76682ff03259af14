//! A Rust file, seen well enough to check rules on: its code without comments and strings, and its strings.

use std::path::{Path, PathBuf};

/// One file of the repository.
pub(super) struct Source {
    /// Its path, relative to the repository.
    pub(super) path: PathBuf,
    /// The code: comments are gone, string literals are empty, lines stay where they were.
    pub(super) code: String,
    /// The string literals with the lines that they begin on.
    pub(super) strings: Vec<(usize, String)>,
    /// How many lines it has.
    pub(super) lines: usize,
}

impl Source {
    /// Reads Rust text.
    pub(super) fn new(path: impl Into<PathBuf>, text: &str) -> Self {
        let (code, strings) = split(text);
        Self { path: path.into(), code, strings, lines: text.lines().count() }
    }

    /// The part that is shipped: everything before the tests, which come last in a file, and nothing of a file that
    /// is a test module.
    pub(super) fn shipped(&self) -> &str {
        if self.path.starts_with("src")
            && (self.path.ends_with("tests.rs") || self.path.ends_with("testing.rs"))
        {
            return "";
        }
        self.code.split("#[cfg(test)]").next().unwrap_or_default()
    }

    /// The line on which the tests begin.
    fn tests_begin(&self) -> usize {
        self.shipped().lines().count()
    }

    /// The string literals of the shipped part.
    pub(super) fn shipped_strings(&self) -> impl Iterator<Item = &(usize, String)> {
        let end = self.tests_begin();
        self.strings.iter().filter(move |(line, _)| *line <= end)
    }

    /// The folder or file right below `src/` that it belongs to, without `.rs`.
    pub(super) fn place(&self) -> &str {
        let below = self.path.strip_prefix("src").unwrap_or(&self.path);
        let first = below.components().next().map(|part| Path::new(part.as_os_str()));
        first.and_then(Path::file_stem).and_then(|stem| stem.to_str()).unwrap_or_default()
    }

    /// How deep the module is below the crate's root: `src/a.rs` and `src/a/mod.rs` are 1, `src/a/b.rs` is 2.
    pub(super) fn depth(&self) -> usize {
        let below = self.path.strip_prefix("src").unwrap_or(&self.path);
        let parts = below.components().count();
        if below.ends_with("mod.rs") { parts - 1 } else { parts }
    }
}

/// Every Rust file below `dir` of the repository.
pub(super) fn rust_files(dir: &str) -> Vec<Source> {
    let files = files_below(&root().join(dir));
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs"));
    let relative = |path: &Path| path.strip_prefix(root()).unwrap_or(path).to_owned();
    rust.map(|path| Source::new(relative(&path), &std::fs::read_to_string(&path).unwrap())).collect()
}

/// The repository.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `dir`, in order, without what Git and Cargo keep there.
pub(super) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(next) = waiting.pop() {
        if next.is_dir() {
            let entries = std::fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path());
            waiting.extend(entries.filter(|path| !path.ends_with(".git") && !path.ends_with("target")));
        } else {
            found.push(next);
        }
    }
    found.sort();
    found
}

/// Separates code from comments and strings. Newlines stay, so that line numbers hold.
fn split(text: &str) -> (String, Vec<(usize, String)>) {
    let mut code = String::with_capacity(text.len());
    let mut strings = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if rest.starts_with("/*") {
            let end = block_comment(rest);
            keep_newlines(&mut code, &rest[..end]);
            rest = &rest[end..];
        } else if let Some((open, close)) = string_opens(rest, code.chars().last()) {
            let end = string_ends(&rest[open..], &close);
            let line = code.matches('\n').count() + 1;
            strings.push((line, rest[open..open + end].to_owned()));
            code.push('"');
            keep_newlines(&mut code, &rest[open..open + end]);
            code.push('"');
            rest = &rest[(open + end + close.len()).min(rest.len())..];
        } else {
            let length = char_literal(rest).unwrap_or(c.len_utf8());
            code.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
    (code, strings)
}

fn keep_newlines(code: &mut String, text: &str) {
    code.extend(text.chars().filter(|c| *c == '\n'));
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// If a string begins here: the length of its opening, and its closing.
fn string_opens(text: &str, before: Option<char>) -> Option<(usize, String)> {
    if text.starts_with('"') {
        return Some((1, "\"".to_owned()));
    }
    let raw = text.strip_prefix('r')?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    let in_a_word = before.is_some_and(|c| c.is_alphanumeric() && c != 'b' || c == '_');
    let opens = !in_a_word && raw[hashes..].starts_with('"');
    opens.then(|| (hashes + 2, format!("\"{}", "#".repeat(hashes))))
}

fn string_ends(text: &str, close: &str) -> usize {
    if close.len() > 1 {
        return text.find(close).unwrap_or(text.len());
    }
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return at,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// The length of the character literal that begins here; a lifetime is none.
fn char_literal(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    let length = if first == '\\' {
        inside.char_indices().skip(2).find(|(_, c)| *c == '\'')?.0
    } else {
        first.len_utf8()
    };
    inside[length..].starts_with('\'').then_some(length + 2)
}

#[test]
fn comments_and_strings_are_told_from_code() {
    let text =
        "a /* x /* y\n */ \" */ b // c \"\nlet s = \"d\\\"// e\"; r#\"f\"g\"# '\"' '\\'' 'x: h\nr\"i\"";
    let source = Source::new("src/proto/wire/mod.rs", text);
    assert_eq!(
        source.strings.iter().map(|(_, s)| s.as_str()).collect::<Vec<_>>(),
        ["d\\\"// e", "f\"g", "i"]
    );
    assert_eq!(source.strings.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 3, 4]);
    assert_eq!(source.code.lines().count(), 4);
    assert!(["b", "let s", "'\"'", "h"].iter().all(|kept| source.code.contains(kept)), "{}", source.code);
    assert!([" x", " y", " c", "e;"].iter().all(|gone| !source.code.contains(gone)), "{}", source.code);
    assert_eq!((source.place(), source.depth()), ("proto", 2));
    assert_eq!(Source::new("src/addr.rs", "").place(), "addr");
    let shipped = |path| Source::new(path, "a #[cfg(test)] b").shipped().to_owned();
    assert_eq!(["src/a.rs", "src/a/tests.rs"].map(shipped), ["a ", ""]);
}
