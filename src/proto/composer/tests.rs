use super::*;

fn text(kind: Kind, screen: &str) -> Option<String> {
    find(kind, screen).map(|composer| composer.text)
}

fn is(kind: Kind, screen: &str, expected: &str) {
    assert_eq!(text(kind, screen).as_deref(), Some(expected), "{screen}");
}

fn is_none(kind: Kind, screen: &str) {
    assert_eq!(text(kind, screen), None, "{screen}");
}

const CLAUDE_TOP: &str = "● Done. The build is green.\n\n";

fn claude(middle: &str) -> String {
    format!("{CLAUDE_TOP}────────────────────\n{middle}\n────────────────────\n  ⏵⏵ auto mode on\n\n")
}

#[test]
fn claude_code_has_a_prompt_between_two_rules() {
    is(Kind::Claude, &claude("❯"), "");
    is(Kind::Claude, &claude("❯ "), "");
    is(Kind::Claude, &claude("❯\u{a0}please look at"), "please look at");
    is(Kind::Claude, &claude("❯ one\n  two\n\n  three"), "one\ntwo\n\nthree");
    is(Kind::Claude, &claude("❯\n  only below"), "only below");
    is(Kind::Claude, &claude("❯ Try \"how does this work?\""), "");
    is(Kind::Claude, &claude("❯ Press up to edit queued messages"), "");
    is(Kind::Claude, &claude("❯ Try \"a\"\n  and \"b\""), "Try \"a\"\nand \"b\"");
    is(Kind::Claude, &claude("! rm -r target"), "! rm -r target");
    is(Kind::Claude, &claude("!"), "!");
    let labelled = claude("❯ a").replacen("────────────────────", "────────────── plan ──", 1);
    is(Kind::Claude, &labelled, "a");
}

#[test]
fn what_is_no_composer_of_claude_code_says_nothing() {
    for screen in [
        "",
        "   \n\n",
        "❯ cargo test\n",
        "────────────────────\n❯ only one rule\n",
        "───────\n❯ too short to be a rule\n───────\n",
        "────────────────────\n❯ a\nnot indented\n────────────────────\n",
        "────────────────────\n❯1. Yes\n────────────────────\n",
        "────────────────────\nAllow this command?\n❯ 1. Yes\n────────────────────\n",
        "── a ─── b ─────────\n❯ two labels\n────────────────────\n",
        "╭──────────────────╮\n❯ a\n╰──────────────────╯\n",
    ] {
        is_none(Kind::Claude, screen);
    }
    is_none(Kind::Claude, "~/work main\n❯ git log\nfirst\n\n~/work main\n❯");
}

#[test]
fn the_lowest_composer_counts() {
    is(Kind::Claude, &format!("{}{}", claude("❯ quoted"), claude("❯")), "");
    is(Kind::Claude, &format!("{}{}", claude("❯"), claude("❯ mine")), "mine");
}

#[test]
fn a_suggestion_that_is_drawn_faint_is_no_draft() {
    is(Kind::Claude, &claude("❯ \x1b[7mr\x1b[27m\x1b[2mun the tests\x1b[22m"), "");
    is(Kind::Claude, &claude("\x1b[2m❯\x1b[0m mine\x1b[7m \x1b[0m"), "mine");
    is(Kind::Claude, &claude("❯ fi\x1b[2mx the build\x1b[0m"), "fi");
    is(Kind::Claude, &claude("❯ \x1b[38;5;2mgreen\x1b[38;2;2;2;2mer\x1b[0m"), "greener");
    is(Kind::Claude, &claude("❯ a\x1b[7mb\x1b[27mc\x1b]8;;x\x1b\\d\x1b(B"), "abcd");
    is(Kind::Claude, &claude("❯ a\x1b["), "a");
}

const BOX_HEAD: &str = "╭──  model · high  4.1%/1M ───╮\n";

#[test]
fn omp_writes_into_the_foot_of_a_box() {
    is(Kind::Omp, &format!("text\n{BOX_HEAD}╰─                          ─╯\n"), "");
    is(Kind::Omp, &format!("{BOX_HEAD}╰─ not sent yet            ─╯\n"), "not sent yet");
    is(
        Kind::Omp,
        &format!(
            "{BOX_HEAD}│  first half                │\n│  second                    │\n╰─ third                   ─╯"
        ),
        "first half\nsecond\nthird",
    );
    let tool = "╭────────────╮\n│ $ sleep 9  │\n╰────────────╯\n\n";
    is(Kind::Omp, &format!("{tool}{BOX_HEAD}╰─    ─╯\n"), "");
    is_none(Kind::Omp, tool);
    is_none(Kind::Omp, "╭────┬────╮\n│ a  │ b  │\n╰────┴────╯\n");
    is_none(Kind::Omp, "╰─ a foot without a head ─╯\n");
    is_none(Kind::Omp, "above\n│ a │\n╰─ b ─╯\n");
    is(Kind::Pi, &format!("{BOX_HEAD}╰─ as omp does ─╯\n"), "as omp does");
}

#[test]
fn omp_without_a_box_has_a_row_of_states_above() {
    let states = " π > ⬢ model > ~/work ▶────12%──────╎──┃──128K─\n";
    is(Kind::Omp, &format!("text\n\n{states}╰─\n\n"), "");
    is(Kind::Omp, &format!("{states}╰─ one two\n   three\n"), "one two\nthree");
    is_none(Kind::Omp, "src\n╰─ main.rs\n");
    is_none(Kind::Omp, &format!("{states}╰─ one\nand more below\n"));
    is_none(Kind::Omp, &format!("text\n{states}╰── a\n"));
}

#[test]
fn a_draft_that_is_longer_than_its_composer_is_one() {
    let rule = "────────────────────────────────────\n";
    let above = "─── ↑ 28 more ──────────────────────\n";
    let below = "─── ↓ 2 more ───────────────────────\n";
    let foot = "  ⏵⏵ auto mode on\n";
    is(Kind::Claude, &format!("{above}  tall word\n  tall\n{rule}{foot}"), "tall word\ntall");
    is(Kind::Claude, &format!("{above}\n{below}{foot}"), "…");
    is(Kind::Claude, &format!("{rule}❯ first\n  second\n{below}{foot}"), "first\nsecond");
    is(Kind::Claude, &format!("{rule}❯\n{below}{foot}"), "…");
    is_none(Kind::Claude, &format!("{above}not indented\n{rule}{foot}"));
    is_none(Kind::Claude, &format!("{above}{rule}{foot}"));
    is(Kind::Pi, &format!("{above}\n\n{rule}~/work\n"), "…");
    is(Kind::Pi, &format!("{above}a\n{below}~/work\n"), "a");
}

#[test]
fn what_a_person_draws_is_no_part_of_the_composer() {
    let line = "────────────";
    is(Kind::Claude, &claude(&format!("❯\n  {line}\n")), line);
    is(Kind::Claude, &claude(&format!("❯ a\n  {line}\n  {line}\n  b")), &format!("a\n{line}\n{line}\nb"));
    let rule = "────────────────────────\n";
    is(Kind::Pi, &format!("{rule}a\n{line}\n\n{rule}~/work\n"), &format!("a\n{line}"));
    is(Kind::Pi, &format!("── 日本語 ──────────────\n\n{rule}~/work\n"), "");
    let states = " π > ⬢ model > ~/work ▶────12%──────╎──┃──128K─\n";
    is(Kind::Omp, &format!("{states}╰─ src\n   ╰─ main.rs\n"), "src\n╰─ main.rs");
    is(Kind::Omp, &format!("{BOX_HEAD}│  ╰─ a ─╯  │\n╰─      ─╯\n"), "╰─ a ─╯");
}

#[test]
fn omp_s_row_of_states_may_be_short_and_a_list_of_commands_below() {
    let states = "text\n\n π > ⬢ model > 🗑 …-transit/work ▶─16%╎┃100K─\n";
    is(Kind::Omp, &format!("{states}╰─\n\n"), "");
    is(Kind::Omp, &format!("{states}╰─ half\n   typed\n"), "half\ntyped");
    let list = "❯ 🛡  security   Plan, run and compare    █\n                security scans   │\n  ⚙  setup  Open setup  │\n";
    is(Kind::Omp, &format!("{states}╰─ /\n{list}"), "/");
    is(Kind::Omp, &format!("{states}╰─ one\n   two\n  ⚙  setup  Open setup\n"), "one\ntwo");
    is_none(Kind::Omp, "src 50%\n╰─ main.rs\n");
    is_none(Kind::Omp, "├── src\n╰─ main.rs\n");
}

/// OpenCode's composer with these rows in it.
fn opencode(rows: &[&str], mode: &str) -> String {
    let rows: String = rows.iter().map(|row| format!("  ┃  {row}\n")).collect();
    let foot = "  ╹▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀\n        tab agents  ctrl+p commands\n";
    format!("  ┃\n  ┃  what was said before\n  ┃\n\n     An answer.\n\n{rows}  ┃\n  ┃  {mode}\n{foot}")
}

#[test]
fn opencode_writes_behind_a_bar() {
    let (kind, mode) = (Kind::OpenCode, "Build · model");
    is(kind, &opencode(&["", ""], mode), "");
    is(kind, &opencode(&["", "Ask anything… \"Fix a TODO in the codebase\""], mode), "");
    is(kind, &opencode(&["", "Ask anything… \"What is the tech stack of", "this project?\""], mode), "");
    is(kind, &opencode(&["", "half typed"], mode), "half typed");
    is(kind, &opencode(&["", "one", "", "three ┃"], mode), "one\n\nthree ┃");
    let list = ["/agents     Switch agent      ┃", "/connect    Connect provider  ┃", "", "/"];
    is(kind, &opencode(&list, mode), "/");
    is(kind, &opencode(&["", "ls"], "Shell"), "!ls");
    is(kind, &opencode(&["", ""], "Shell"), "!");
    assert_eq!(find_any(&opencode(&["", "a"], mode)).unwrap().text, "a");
    let said = "  ┃\n  ┃  what was said\n  ┃\n\n";
    for other in
        [said, "  ╹▀▀▀▀▀▀▀▀▀▀▀▀\n", "  ┃  mode\n  ╹▀▀▀▀▀▀▀▀▀▀▀▀\n", "  ┃\n  ┃  a\n  ╹▀▀▀ not a rule\n"]
    {
        is_none(kind, other);
    }
    is_none(kind, &claude("❯ a"));
    is_none(Kind::Claude, &opencode(&["", "a"], mode));
}

#[test]
fn pi_writes_between_two_rules() {
    let rule = "────────────────────────\n";
    let foot = "~/work\n0.0%/128k (auto)   model\n";
    is(Kind::Pi, &format!("text\n{rule}\n{rule}{foot}"), "");
    is(Kind::Pi, &format!("{rule}a\nb\n{rule}{foot}"), "a\nb");
    is(Kind::Pi, &format!("── ⠇ Working... (escape to cancel) ──────\na\n{rule}{foot}"), "a");
    is_none(Kind::Pi, &format!("text\n{rule}{rule}{foot}"));
    is_none(Kind::Pi, &format!("text\n{rule}{foot}"));
}

#[test]
fn of_an_unknown_program_only_the_unmistakable_counts() {
    assert_eq!(find_any(&claude("❯ a")).unwrap().text, "a");
    assert_eq!(find_any(&format!("{BOX_HEAD}╰─ b ─╯\n")).unwrap().text, "b");
    assert_eq!(find_any("────────────────\ntable\n────────────────\n"), None);
    assert_eq!(Kind::of("Claude"), Some(Kind::Claude));
    assert_eq!(Kind::of("codex"), None);
}

fn holding(text: &str) -> Composer {
    Composer { text: text.to_owned() }
}

#[test]
fn an_envelope_of_ours_is_known_however_it_is_broken() {
    let ours = "<transit from=\"jess@ti\ntan\" id=\"tx_0123\n456789ab\" ts=\"t\">\nhello\n</trans\nit>";
    let id = "tx_0123456789ab";
    assert!(holding(ours).is_envelope() && holding(ours).holds(id));
    assert!(!holding(ours).holds("tx_aaaaaaaaaaaa"));
    for mixed in [format!("draft {ours}"), format!("{ours} draft"), format!("{ours}{ours}")] {
        assert!(!holding(&mixed).is_envelope() && holding(&mixed).holds(id), "{mixed}");
    }
    let tail = holding("the end of it\n</transit>");
    assert!(tail.is_end_of_envelope() && !tail.is_envelope() && !tail.holds(id));
    assert!(!holding(ours).is_end_of_envelope() && !holding("a draft").is_end_of_envelope());
    let marks = [
        "[Pasted text #1 +12 lines]",
        "[paste #3 +42 lines]",
        "[Paste #1 4000 chars]",
        "[Pasted ~30 lines]",
        "📄 #1",
    ];
    for mark in marks {
        assert!(holding(mark).is_paste_mark(), "{mark}");
    }
    for other in
        ["[Image #1]", "[Pasted text #1] and", "[paste #1] [paste #2]", "paste #1", "a #1", "📄 #", "📄 #1 a"]
    {
        assert!(!holding(other).is_paste_mark(), "{other}");
    }
}

#[test]
fn no_screen_breaks_it() {
    let pieces = [
        "╰─",
        "─╯",
        "╭─",
        "─╮",
        "│",
        "❯",
        " ",
        "\n",
        "────────",
        "\x1b[",
        "\x1b]",
        "2m",
        "a",
        "é",
        "\x1b(",
        "!",
        "┃",
        "╹▀▀▀▀▀▀▀▀",
    ];
    let mut seed = 7_u32;
    for _ in 0..20_000 {
        let mut screen = String::new();
        for _ in 0..24 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            screen.push_str(pieces[(seed >> 16) as usize % pieces.len()]);
        }
        for kind in [Kind::Claude, Kind::Omp, Kind::OpenCode, Kind::Pi] {
            let _ = find(kind, &screen);
        }
        let _ = find_any(&screen);
    }
}

#[test]
fn a_box_that_is_higher_than_the_screen_is_one_without_its_head() {
    let text = |kind, screen| find(kind, screen).map(|composer| composer.text);
    for kind in [Kind::Omp, Kind::Pi] {
        let draft = "│ a long      │\n│ draft and   │\n╰─ its end   ─╯\n";
        assert_eq!(text(kind, draft).as_deref(), Some("a long\ndraft and\nits end"), "{kind:?}");
        assert_eq!(text(kind, "│             │\n╰─           ─╯\n").as_deref(), Some(""), "{kind:?}");
        assert_eq!(text(kind, "╰─ a         ─╯\n"), None, "{kind:?}: a foot alone is none");
        assert_eq!(
            text(kind, "something\n│ a           │\n╰─ b         ─╯\n"),
            None,
            "{kind:?}: a box has a head"
        );
        assert_eq!(text(kind, "│ a           │\n╰─────────────╯\n"), None, "{kind:?}: no room for text");
    }
    assert_eq!(find_any("│ a │\n╰─ 1 of 3 ─╯\n"), None, "many programs draw boxes");
}
