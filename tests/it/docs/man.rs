//! A manual page from a command's options and its [`Page`]: clap_mangen's sections, and ours around them.

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use transit::cli::{Page, Tool};

/// The date that the pages carry: that of the release, so that they change only when their content does.
const RELEASED: &str = "2026-11-30";

/// The file name of a tool's page, `transit-sign.1`.
pub(super) fn file_name(tool: &Tool) -> String {
    format!("{}.{}", tool.command.get_name(), tool.page.section)
}

/// The whole page.
pub(super) fn page(tool: &Tool) -> String {
    // What --help says after the options is told in sections here.
    let command = tool.command.clone().after_help("").after_long_help("");
    // A page has room for what -h leaves out.
    let mut command = command.mut_args(|arg| arg.hide_short_help(false));
    command.build();
    let name = command.get_name().to_owned();
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .section(tool.page.section)
        .date(RELEASED)
        .source(format!("transit {}", env!("CARGO_PKG_VERSION")))
        .manual("Transit Manual");
    let mut page = Vec::new();
    man.render_title(&mut page).unwrap();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    commands(&command).to_writer(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    sections(&tool.page).to_writer(&mut page).unwrap();
    let page = ascii(&String::from_utf8(page).unwrap());
    assert!(!page.contains("\n\n.TP\n"), "{name}: an option has no text");
    page
}

/// Every other character as the escape that all formatters understand, whatever encoding they expect.
fn ascii(page: &str) -> String {
    let escape = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
    page.chars().map(escape).collect()
}

/// Every command below this one that does something, with its options.
fn commands(command: &Command) -> Roff {
    let mut roff = Roff::new();
    let leaves = leaves(command, "");
    if !leaves.is_empty() {
        roff.control("SH", ["COMMANDS"]);
    }
    for (path, leaf) in leaves {
        roff.control("SS", [path.as_str()]);
        for line in leaf.get_long_about().or(leaf.get_about()).into_iter().flat_map(lines) {
            roff.extend([line]);
        }
        for arg in leaf.get_arguments().filter(|arg| !arg.is_global_set() && !arg.is_hide_set()) {
            if arg.get_id() != "help" {
                argument(&mut roff, arg);
            }
        }
    }
    roff
}

/// The commands without commands below them, each with its path.
pub(super) fn leaves<'a>(command: &'a Command, above: &str) -> Vec<(String, &'a Command)> {
    let below = command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set());
    below
        .flat_map(|sub| {
            let path = format!("{above}{}", sub.get_name());
            if sub.has_subcommands() { leaves(sub, &format!("{path} ")) } else { vec![(path, sub)] }
        })
        .collect()
}

fn lines(text: &impl ToString) -> Vec<Roff> {
    let text = text.to_string();
    let line = |line: &str| {
        let mut roff = Roff::new();
        if line.trim().is_empty() {
            roff.control("PP", [])
        } else {
            roff.text([roman(line)])
        };
        roff
    };
    text.lines().map(line).collect()
}

fn argument(roff: &mut Roff, arg: &Arg) {
    let names = [arg.get_short().map(|c| format!("-{c}")), arg.get_long().map(|long| format!("--{long}"))];
    let names = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let mut header: Vec<Inline> = vec![bold(&names)];
    let takes_values = arg.get_num_args().is_some_and(|count| count.takes_values());
    if takes_values {
        let value = arg.get_value_names().unwrap_or_default().join(" ");
        header.push(italic(if names.is_empty() { value } else { format!(" {value}") }));
        let default: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !default.is_empty() && !arg.is_hide_default_value_set() {
            header.push(roman(format!(" [default: {}]", default.join(" "))));
        }
    }
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    roff.control("TP", []);
    roff.text(header);
    roff.text([roman(help)]);
    let values = arg.get_possible_values();
    let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).map(|v| v.get_name()).collect();
    if takes_values && !values.is_empty() {
        roff.text([roman(format!("(one of {})", values.join(", ")))]);
    }
    if let Some(variable) = arg.get_env() {
        roff.text([roman(format!("(also from the environment: {})", variable.to_string_lossy()))]);
    }
}

/// What options do not tell.
fn sections(page: &Page) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for exit in page.exits {
        pair(&mut roff, &(*exit as u8).to_string(), exit.meaning());
    }
    let sections = [
        ("ENVIRONMENT", page.environment, "No variable is read."),
        ("FILES", page.files, "None but those that are named on the command line."),
    ];
    for (heading, pairs, none) in sections {
        roff.control("SH", [heading]);
        if pairs.is_empty() {
            roff.text([roman(none)]);
        }
        for (name, text) in pairs {
            pair(&mut roff, name, text);
        }
    }
    roff.control("SH", ["EXAMPLES"]);
    for (what, command) in page.examples {
        roff.text([roman(*what)]);
        roff.control("PP", []);
        roff.control("RS", ["4"]).control("nf", []);
        for line in command.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []).control("RE", []).control("PP", []);
    }
    if !page.see_also.is_empty() {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman(page.see_also.join(", "))]);
    }
    roff
}

fn pair(roff: &mut Roff, name: &str, text: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text([roman(text)]);
}
