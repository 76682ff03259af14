//! Files and stdin as the verbs read them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::cli::output::{Exit, Failure};

/// More than any text that is rendered has.
const TEXT_LONGEST: u64 = 16 << 20;

/// What is read: a file, or stdin.
pub(super) struct Input {
    /// Its name for people.
    pub(super) name: String,
    from: Box<dyn Read>,
}

impl Input {
    /// Opens a file, or stdin for `-` and for none.
    ///
    /// # Errors
    /// When it cannot be opened (66).
    pub(super) fn open(file: Option<&Path>) -> Result<Self, Failure> {
        match file.filter(|file| file.as_os_str() != "-") {
            None => Ok(Self { name: "standard input".to_owned(), from: Box::new(io::stdin().lock()) }),
            Some(file) => {
                let name = file.display().to_string();
                let from = File::open(file)
                    .map_err(|err| Failure::new(Exit::NoInput, format_args!("open {name}"), err))?;
                Ok(Self { name, from: Box::new(from) })
            }
        }
    }

    /// Reads the next piece; 0 at the end.
    ///
    /// # Errors
    /// When it cannot be read: a directory is no input (66), everything else is the disk's (74).
    pub(super) fn read(&mut self, piece: &mut [u8]) -> Result<usize, Failure> {
        loop {
            match self.from.read(piece) {
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => {
                    let is_directory = err.kind() == io::ErrorKind::IsADirectory;
                    let exit = if is_directory { Exit::NoInput } else { Exit::Io };
                    return Err(Failure::new(exit, format_args!("read {}", self.name), err));
                }
                Ok(length) => return Ok(length),
            }
        }
    }

    /// All of it, which must be text.
    ///
    /// # Errors
    /// As [`read`](Self::read), and 65 when it is not UTF-8 or over 16 MiB.
    pub(super) fn text(mut self) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        let mut piece = vec![0; 64 * 1024];
        loop {
            let length = self.read(&mut piece)?;
            if length == 0 {
                break;
            }
            bytes.extend_from_slice(&piece[..length]);
            if bytes.len() as u64 > TEXT_LONGEST {
                return Err(self.wrong(format_args!("it is over {TEXT_LONGEST} bytes long")));
            }
        }
        String::from_utf8(bytes).map_err(|err| {
            self.wrong(format_args!("it is not UTF-8 at byte {}", err.utf8_error().valid_up_to()))
        })
    }

    fn wrong(&self, why: impl std::fmt::Display) -> Failure {
        Failure::new(Exit::Data, format_args!("read {}", self.name), why)
    }
}

/// The files to read in turn, stdin when none is named.
pub(super) fn files(named: &[PathBuf]) -> impl Iterator<Item = &Path> {
    let stdin = named.is_empty().then_some(Path::new("-"));
    named.iter().map(PathBuf::as_path).chain(stdin)
}

/// The name of a file as JSON records carry it, when there are several to tell apart.
pub(super) fn told<'a>(named: &[PathBuf], file: &'a Path) -> Option<std::borrow::Cow<'a, str>> {
    (named.len() > 1).then(|| file.to_string_lossy())
}
