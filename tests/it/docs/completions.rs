//! The scripts that complete command lines: what clap makes of the options, and by hand what is there at the moment
//! of asking, the ids of the spool and the names of sources. Then the shells themselves are asked.

use clap::{Arg, Command};
use clap_complete::Shell;
use transit::cli::Tool;

/// The scripts of a tool, each with the name of its file.
pub(super) fn scripts(tool: &Tool) -> [(String, String); 3] {
    let name = tool.command.get_name();
    [
        (format!("{name}.bash"), bash(&tool.command)),
        (format!("_{name}"), zsh(&tool.command)),
        (format!("{name}.fish"), fish(&tool.command)),
    ]
}

fn generated(shell: Shell, command: &Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command.clone(), command.get_name(), &mut script);
    String::from_utf8(script).unwrap()
}

/// Replaces every `from`, of which there are so many: a change in what clap makes is not to go unseen.
fn replace(script: &str, from: &str, to: &str, count: usize) -> String {
    assert_eq!(script.matches(from).count(), count, "{from} in\n{script}");
    script.replace(from, to)
}

fn bash(command: &Command) -> String {
    let name = command.get_name();
    // clap looks for the commands of a program with a dash in its name under another name than it gives them.
    let [given, looked_for] =
        ["__", "__subcmd__"].map(|dash| format!("{}__subcmd__", name.replace('-', dash)));
    let script = generated(Shell::Bash, command).replace(&looked_for, &given);
    let by_hand = match name {
        "transit-send" => {
            let values =
                names(command, |arg| arg.get_action().takes_values() && arg.get_id() != "status").join(" | ");
            replace(include_str!("completions/transit-send.bash"), "@VALUES@", &values, 1)
        }
        "transit-spool" => include_str!("completions/transit-spool.bash").to_owned(),
        _ => return script,
    };
    let function = name.replace('-', "__");
    let script =
        replace(&script, &format!("complete -F _{function} "), &format!("complete -F _{function}__now "), 2);
    let by_hand = format!("{}{by_hand}", include_str!("completions/ids.bash"));
    replace(&script, "\nif [[ \"${BASH_VERSINFO", &format!("\n{by_hand}\nif [[ \"${{BASH_VERSINFO"), 1)
}

fn zsh(command: &Command) -> String {
    let script = generated(Shell::Zsh, command);
    let script = match command.get_name() {
        "transit-send" => {
            let script = replace(
                &script,
                "send nothing]:ID:_default'",
                "send nothing]:ID: _transit_ids \"[a-z]+\"'",
                1,
            );
            // Two arguments that may both be left out would be offered in one list.
            let script = replace(&script, "'::dest -- ", "':dest -- ", 1);
            // A blank before what is called keeps zsh from giving it options of its own.
            replace(&script, "#ROOM'\\'':_default'", "#ROOM'\\'':_transit_dest'", 1)
        }
        "transit-spool" => {
            let ids = "'*::ids -- The ids:_default'";
            let parts: Vec<&str> = script.split(ids).collect();
            assert_eq!(parts.len(), 4, "show, retry and rm");
            let [any, retry] = ["[a-z]+", "pending|claimed|dead"]
                .map(|states| format!("'*:ids -- The ids: _transit_ids \"{states}\"'"));
            [parts[0], &any, parts[1], &retry, parts[2], &any, parts[3]].concat()
        }
        _ => return script,
    };
    let head = "autoload -U is-at-least\n";
    replace(&script, head, &format!("{head}{}", include_str!("completions/ids.zsh")), 1)
}

fn fish(command: &Command) -> String {
    let script = generated(Shell::Fish, command);
    let by_hand = match command.get_name() {
        "transit-send" => {
            let options =
                command.get_opts().chain(command.get_arguments().filter(|arg| !arg.is_positional()));
            let mut options: Vec<String> = options.map(option_of_argparse).collect();
            options.extend(["h/help", "V/version"].map(str::to_owned));
            options.sort();
            options.dedup();
            replace(include_str!("completions/transit-send.fish"), "@OPTIONS@", &options.join(" "), 1)
        }
        "transit-spool" => include_str!("completions/transit-spool.fish").to_owned(),
        _ => return script,
    };
    format!("{script}{}{by_hand}", include_str!("completions/ids.fish"))
}

/// The options of a command that are so, as they are typed.
fn names(command: &Command, are: impl Fn(&Arg) -> bool) -> Vec<String> {
    let options = command.get_arguments().filter(|arg| !arg.is_positional() && are(arg));
    let both = |arg: &Arg| {
        let short = arg.get_short().map(|short| format!("-{short}"));
        short.into_iter().chain(arg.get_long().map(|long| format!("--{long}"))).collect::<Vec<_>>()
    };
    options.flat_map(both).collect()
}

/// An option in the words of fish's argparse.
fn option_of_argparse(arg: &Arg) -> String {
    let long = arg.get_long().unwrap();
    let name = arg.get_short().map_or(long.to_owned(), |short| format!("{short}/{long}"));
    if arg.get_action().takes_values() { format!("{name}=+") } else { name }
}
