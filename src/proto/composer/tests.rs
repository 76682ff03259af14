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
    is_none(Kind::Omp, "│ a │\n╰─ b ─╯\n");
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
    for mark in ["[Pasted text #1 +12 lines]", "[paste #3 +42 lines]", "[Paste #1 4000 chars]"] {
        assert!(holding(mark).is_paste_mark(), "{mark}");
    }
    for other in ["[Image #1]", "[Pasted text #1] and", "[paste #1] [paste #2]", "paste #1"] {
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
    ];
    let mut seed = 7_u32;
    for _ in 0..20_000 {
        let mut screen = String::new();
        for _ in 0..24 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            screen.push_str(pieces[(seed >> 16) as usize % pieces.len()]);
        }
        for kind in [Kind::Claude, Kind::Omp, Kind::Pi] {
            let _ = find(kind, &screen);
        }
        let _ = find_any(&screen);
    }
}
