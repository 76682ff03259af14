//! What happened, step by step: printed on demand, and boiled down to a number by which two runs are compared.

use std::fmt::{self, Arguments, Write};

use transit::clock::Mono;

pub(crate) struct Trace {
    is_told: bool,
    sum: u64,
}

impl Trace {
    pub(crate) fn new(is_told: bool) -> Self {
        Self { is_told, sum: 0xcbf2_9ce4_8422_2325 }
    }

    pub(crate) fn line(&mut self, now: Mono, line: Arguments<'_>) {
        write!(self, "{} {line}", now.0.as_millis()).expect("nothing here can fail");
        if self.is_told {
            let line = format!("{:>12.3} {line}", now.0.as_secs_f64());
            println!("{}", line.chars().take(400).collect::<String>());
        }
    }

    /// The same for the same lines (FNV-1a).
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }
}

impl Write for Trace {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}
