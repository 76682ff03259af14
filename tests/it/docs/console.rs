//! The command lines of documentation, read well enough to check them: fenced `console` blocks, and the words of a
//! simple shell command.

/// One fenced `console` block: its commands with what they print, and whether the fence says `console run`.
pub(super) struct Block {
    pub(super) line: usize,
    pub(super) runs: bool,
    /// Each command (continued lines joined) and the output that is shown for it.
    pub(super) steps: Vec<(String, String)>,
}

/// The `console` blocks of a Markdown text.
pub(super) fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = markdown.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```console") else { continue };
        let inside: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        blocks.push(Block { line: at + 1, runs: info.trim() == "run", steps: steps(&inside) });
    }
    blocks
}

fn steps(lines: &[&str]) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in lines {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), String::new())),
            (None, Some((command, _))) if goes_on => command.push_str(&format!("\n{line}")),
            (None, Some((_, output))) => output.push_str(&format!("{line}\n")),
            (None, None) => panic!("a console block begins with a command: {line}"),
        }
        goes_on = line.ends_with('\\') && (goes_on || line.starts_with("$ "));
    }
    steps
}

/// The simple commands of a shell line, each as its words; quotes are taken off, redirections and variable
/// assignments are left out, and what a `$(…)` holds is one word of its place.
pub(super) fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut words = words(line).into_iter().peekable();
    while let Some(Word { text, quoted }) = words.next() {
        let command = commands.last_mut().unwrap();
        match text.as_str() {
            "|" | "&&" | "||" | ";" | "&" if !quoted => commands.push(Vec::new()),
            _ if !quoted && text.trim_start_matches('2').starts_with(['<', '>']) => {
                if text.ends_with(['<', '>']) {
                    words.next();
                }
            }
            _ if command.is_empty() && is_assignment(&text) => {}
            _ => command.push(text),
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name).unwrap_or_default();
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

struct Word {
    text: String,
    quoted: bool,
}

fn words(line: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(&next) = chars.peek() {
        if next.is_whitespace() || next == '\\' && chars.clone().nth(1) == Some('\n') {
            chars.next();
            continue;
        }
        if next == '#' {
            while chars.next_if(|c| *c != '\n').is_some() {}
            continue;
        }
        let (mut text, mut quoted) = (String::new(), false);
        while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
            match c {
                '\'' | '"' => {
                    quoted = true;
                    text.extend(std::iter::from_fn(|| chars.next().filter(|inner| *inner != c)));
                }
                '\\' => text.extend(chars.next()),
                '$' if chars.peek() == Some(&'(') => {
                    text.push('$');
                    text.extend(std::iter::from_fn(|| chars.next().filter(|inner| *inner != ')')));
                }
                ';' | '|' | '&' if text.is_empty() => {
                    text.push(c);
                    text.extend(chars.next_if_eq(&c));
                    break;
                }
                ';' | '|' => {
                    words.push(Word { text: std::mem::take(&mut text), quoted });
                    (text, quoted) = (c.to_string(), false);
                    break;
                }
                c => text.push(c),
            }
        }
        words.push(Word { text, quoted });
    }
    words
}

#[test]
fn blocks_and_commands_are_read() {
    let text =
        "a\n```console run\n$ one \\\n  two\nout\n$ three\n```\n```sh\n$ no\n```\n```console\n$ four\n```\n";
    let found = blocks(text);
    assert_eq!(
        found.iter().map(|block| (block.line, block.runs)).collect::<Vec<_>>(),
        [(2, true), (11, false)]
    );
    assert_eq!(found[0].steps[0], ("one \\\n  two".to_owned(), "out\n".to_owned()));
    assert_eq!(found[0].steps[1], ("three".to_owned(), String::new()));
    let line = "A=1 x 'a b' \"c|d\" -H @- < f | y --z=$(q r) >out 2>&1; w \\\n v # gone";
    let commands = simple_commands(line);
    assert_eq!(commands, [vec!["x", "a b", "c|d", "-H", "@-"], vec!["y", "--z=$(q r"], vec!["w", "v"]]);
}
