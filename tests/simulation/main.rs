//! The whole Worker in a world of its own: many hosts, agents and senders under a fake clock, with everything that can
//! go wrong, and a death at every commit. A seed tells one story, always the same.
//!
//! `cargo test --features simulation --test simulation -- --seeds 1000` tells so many and prints what they prove;
//! `-- --seed 7 --trace` tells one, step by step. Besides, a story in which nothing goes wrong is told once for each
//! commit, with the Worker dying before it or after it.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test fails by panicking, and tells what it did
#![allow(missing_docs)] // a program of its own

mod agenda;
mod books;
#[path = "../it/sim/clockwork.rs"]
mod clockwork;
mod faults;
mod host;
mod hub;
mod operators;
mod outside;
mod proof;
#[path = "../it/sim/spool.rs"]
mod spool;
mod story;
mod strain;
mod tally;
mod trace;
mod trouble;
mod wires;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use transit::store::ledger::stepped::Crash;

use proof::LAWS;
use story::Story;
use tally::Tally;
use world::{Plot, World};

/// Stories that are told when nobody says how many.
const SEEDS: u64 = 10;
/// Commits of the quiet story at which the Worker dies when nobody says how many, spread over all of them.
const COMMITS: u64 = 20;

/// What is asked for.
struct Asked {
    first: u64,
    seeds: u64,
    commits: u64,
    /// Only the quiet story, with this death.
    death: Option<(u64, Crash)>,
    is_told: bool,
}

fn main() -> ExitCode {
    let asked = match asked(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(why) => {
            println!(
                "simulation: {why}\nusage: [--seeds N] [--commits N], or one of [--seed N] [--die-before N] [--die-after N] and [--trace]"
            );
            return ExitCode::from(2);
        }
    };
    match tell(&asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("\n{why}");
            ExitCode::FAILURE
        }
    }
}

fn asked(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked { first: 0, seeds: SEEDS, commits: COMMITS, death: None, is_told: false };
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or_else(|| format!("{word} needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("{word}: {text} is no number"))
        };
        match word.as_str() {
            "--seeds" => asked.seeds = number()?,
            "--seed" => (asked.first, asked.seeds, asked.commits) = (number()?, 1, 0),
            "--commits" => asked.commits = number()?,
            "--die-before" => asked.death = Some((number()?, Crash::Before)),
            "--die-after" => asked.death = Some((number()?, Crash::After)),
            "--trace" => asked.is_told = true,
            other => return Err(format!("{other} is no option")),
        }
    }
    Ok(asked)
}

/// One story that was told.
struct Told {
    story: Story,
    tally: Tally,
    sum: u64,
}

fn run(plot: Plot) -> Result<Told, String> {
    transit::id::seeded::seed(Some(plot.seed));
    let told = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(plot);
        world.run();
        Told { sum: world.trace.sum(), story: std::mem::take(&mut world.story), tally: world.tally.clone() }
    }));
    transit::id::seeded::seed(None);
    told.map_err(|_| format!("{plot:?} panicked"))
}

/// Tells one story and holds it against every law; counts how often each held.
fn prove(plot: Plot, held: &mut [u64], tally: &mut Tally) -> Result<Told, String> {
    let again = || {
        let which = match plot.crash {
            None if plot.is_quiet => "--die-before 1000000".to_owned(),
            None => format!("--seed {}", plot.seed),
            Some((n, Crash::Before)) => format!("--die-before {n}"),
            Some((n, Crash::After)) => format!("--die-after {n}"),
        };
        format!("it alone: cargo test --features simulation --test simulation -- {which} --trace")
    };
    let told = run(plot).map_err(|why| format!("{why}\n{}", again()))?;
    for (law, held) in LAWS.iter().zip(held) {
        *held +=
            (law.check)(&told.story).map_err(|why| format!("BROKEN: {}: {why}\n{}", law.name, again()))?;
    }
    tally.add(&told.tally);
    Ok(told)
}

fn tell(asked: &Asked) -> Result<(), String> {
    let began = Instant::now();
    let (mut held, mut tally) = (vec![0; LAWS.len()], Tally::default());
    if asked.death.is_some() {
        let plot = Plot { seed: 0, crash: asked.death, is_quiet: true, is_told: asked.is_told };
        prove(plot, &mut held, &mut tally)?;
        return Ok(());
    }
    let seeds = asked.first..asked.first + asked.seeds;
    let plot = |seed| Plot { seed, crash: None, is_quiet: false, is_told: asked.is_told };
    let mut first = None;
    for seed in seeds {
        let told = prove(plot(seed), &mut held, &mut tally)?;
        first.get_or_insert(told);
    }
    let crashes = crash_everywhere(asked.commits, &mut held, &mut tally)?;
    let mut planted = None;
    if let Some(first) = first.filter(|_| asked.commits > 0) {
        let again = run(plot(asked.first))?;
        if again.sum != first.sum {
            return Err(format!("seed {} did not tell the same story twice", asked.first));
        }
        planted = Some(faults::all_are_found()?);
    }
    print(asked, &tally, &held, crashes, planted);
    println!("\nin {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// A story in which nothing goes wrong, told once for each commit in which the Worker could die, on either side of it.
fn crash_everywhere(most: u64, held: &mut [u64], tally: &mut Tally) -> Result<u64, String> {
    if most == 0 {
        return Ok(0);
    }
    let plot = |crash| Plot { seed: 0, crash, is_quiet: true, is_told: false };
    let commits = prove(plot(None), held, tally)?.tally.commits;
    let step = commits.div_ceil(most).max(1) as usize;
    let mut crashes = 0;
    for n in (1..=commits).step_by(step) {
        for place in [Crash::Before, Crash::After] {
            prove(plot(Some((n, place))), held, tally)?;
            crashes += 1;
        }
    }
    Ok(crashes)
}

fn print(asked: &Asked, tally: &Tally, held: &[u64], crashes: u64, planted: Option<u64>) {
    println!("\n{} stories of their own, {crashes} deaths in the commits of a quiet one\n", asked.seeds);
    for (name, count) in tally.rows() {
        println!("  {count:>12}  {name}");
    }
    println!("\nproved");
    for (law, held) in LAWS.iter().zip(held) {
        println!("  {held:>12}  {:<9} {}", law.name, law.says);
    }
    if let Some(planted) = planted {
        println!("\n  {planted:>12}  planted faults, each found by the law that it breaks");
        println!("  {:>12}  story told twice, the same to the letter", 1);
    }
}
