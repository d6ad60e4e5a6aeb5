//! The figures that are files: experiments in the users' format, with a paper's claims as expectations.

use std::sync::LazyLock;

use crate::experiment::figure;
use crate::figure::Figure;

/// A figure that is a file.
#[derive(Clone, Copy, Debug)]
pub struct FigureFile {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// The file of a figure, and the figure that runs it.
macro_rules! file {
    ($name:literal) => {
        (
            FigureFile {
                name: $name,
                text: include_str!(concat!($name, ".toml")),
            },
            |effort| figure($name, include_str!(concat!($name, ".toml")), effort),
        )
    };
}

/// A file and the function that runs it.
type Runs = (
    FigureFile,
    fn(crate::figure::Effort) -> crate::figure::Findings,
);

const ALL: [Runs; 14] = [
    file!("flock-2a"),
    file!("flock-2b"),
    file!("flock-6"),
    file!("flock-9"),
    file!("flock-10"),
    file!("flock-11"),
    file!("flock-12"),
    file!("flock-active"),
    file!("flock-miss"),
    file!("scalerpc-1b"),
    file!("scalerpc-1b-ud"),
    file!("scalerpc-3b"),
    file!("scalerpc-ud-slices"),
    file!("fasst-atomics"),
];

/// A file's description of the figure.
#[derive(serde::Deserialize)]
struct Head {
    title: String,
    says: String,
}

/// The files as figures.
pub(super) static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let figure = |(file, run): &Runs| {
        let head: Head = toml::from_str(file.text).expect("a figure has a title and what is said");
        Figure {
            name: file.name,
            // Leaked, because those of the other figures are static.
            title: head.title.leak(),
            says: head.says.leak(),
            run: *run,
        }
    };
    ALL.iter().map(figure).collect()
});

/// The file of this name, if the figure is one.
pub fn file(name: &str) -> Option<FigureFile> {
    let found = ALL.iter().find(|(file, _)| file.name == name);
    found.map(|(file, _)| *file)
}

/// Names of the figures that are files.
pub fn file_names() -> Vec<&'static str> {
    ALL.iter().map(|(file, _)| file.name).collect()
}
