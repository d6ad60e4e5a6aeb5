//! The form of a parameter file, and reading it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// How far a value can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// A declared default, to be varied in a sensitivity run.
    Guess,
    /// Recalled, or derived from little.
    Low,
    /// Derived from measurements with an argument.
    Medium,
    /// Stated, or fitted to many measurements.
    High,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The parameter's name in the file.
    pub name: String,
    /// Paper, repository or data sheet, or the argument.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}

/// A parameter file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not of the right form.
    #[error("parameter file: {0}")]
    Form(#[from] toml::de::Error),
    /// A value is missing.
    #[error("parameter file {file}: `{name}` is missing")]
    Missing {
        /// Name of the NIC, host or switch.
        file: String,
        /// Name of the value.
        name: &'static str,
    },
    /// A value is not known.
    #[error("parameter file {file}: unknown `{name}`")]
    Unknown {
        /// Name of the NIC, host or switch.
        file: String,
        /// Name of the value.
        name: String,
    },
    /// A value is not a number of the right kind.
    #[error("parameter file {file}: `{name}` is {value}, which is no finite number from zero up")]
    Range {
        /// Name of the NIC, host or switch.
        file: String,
        /// Name of the value.
        name: &'static str,
        /// The value.
        value: f64,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Value {
    value: f64,
    source: String,
    confidence: Confidence,
}

/// The text of a file, taken apart.
#[derive(Debug, Deserialize)]
pub(super) struct File {
    pub(super) name: String,
    #[serde(flatten)]
    values: BTreeMap<String, Value>,
    #[serde(skip)]
    pub(super) origins: Vec<Origin>,
}

impl File {
    pub(super) fn parse(text: &str) -> Result<Self, ParameterError> {
        Ok(toml::from_str(text)?)
    }

    pub(super) fn take(&mut self, name: &'static str) -> Result<f64, ParameterError> {
        let Some(Value {
            value,
            source,
            confidence,
        }) = self.values.remove(name)
        else {
            return Err(ParameterError::Missing {
                file: self.name.clone(),
                name,
            });
        };
        if !value.is_finite() || value < 0.0 {
            return Err(ParameterError::Range {
                file: self.name.clone(),
                name,
                value,
            });
        }
        self.origins.push(Origin {
            name: name.to_owned(),
            source,
            confidence,
        });
        Ok(value)
    }

    /// A value that a file need not have.
    pub(super) fn take_or(
        &mut self,
        name: &'static str,
        default: f64,
    ) -> Result<f64, ParameterError> {
        match self.values.contains_key(name) {
            true => self.take(name),
            false => Ok(default),
        }
    }

    pub(super) fn finish(self) -> Result<Vec<Origin>, ParameterError> {
        match self.values.into_keys().next() {
            None => Ok(self.origins),
            Some(name) => Err(ParameterError::Unknown {
                file: self.name,
                name,
            }),
        }
    }
}

/// Makes a structure of parameters and its reader: `times` are in nanoseconds in the file and in picoseconds here;
/// `defaults` are numbers that a file need not have.
macro_rules! parameters {
    (
        $(#[$meta:meta])* $name:ident
        times { $( $(#[$time_doc:meta])* $time:ident, )* }
        numbers { $( $(#[$number_doc:meta])* $number:ident, )* }
        defaults { $( $(#[$default_doc:meta])* $default:ident = $default_value:literal, )* }
        files { $( $(#[$file_doc:meta])* $file:ident => $path:literal, )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            /// What it is called.
            pub name: String,
            $( $(#[$time_doc])* pub $time: u64, )*
            $( $(#[$number_doc])* pub $number: f64, )*
            $( $(#[$default_doc])* pub $default: f64, )*
            /// The source of each value.
            pub origins: Vec<super::Origin>,
        }

        impl $name {
            /// The files that are compiled in: name and text.
            pub(super) const FILES: &[(&str, &str)] = &[
                $( ($path, include_str!(concat!("../../params/", $path))), )*
            ];

            /// Reads the text of a parameter file.
            ///
            /// # Errors
            /// When a value is missing, unknown or out of range.
            pub fn parse(text: &str) -> Result<Self, super::ParameterError> {
                let mut file = super::file::File::parse(text)?;
                Ok(Self {
                    $( $time: (file.take(concat!(stringify!($time), "_ns"))? * 1000.0).round() as u64, )*
                    $( $number: file.take(stringify!($number))?, )*
                    $( $default: file.take_or(stringify!($default), $default_value)?, )*
                    name: file.name.clone(),
                    origins: file.finish()?,
                })
            }

            /// Reads a parameter file.
            ///
            /// # Errors
            /// As [`Self::parse`], and when the file cannot be read.
            pub fn load(path: &std::path::Path) -> Result<Self, super::ParameterError> {
                let text = std::fs::read_to_string(path).map_err(|source| {
                    super::ParameterError::Read { path: path.display().to_string(), source }
                })?;
                Self::parse(&text)
            }

            $(
                $(#[$file_doc])*
                ///
                /// # Panics
                /// Never: the file is compiled in, and a test reads it.
                pub fn $file() -> Self {
                    Self::parse(include_str!(concat!("../../params/", $path)))
                        .expect("a parameter file of this crate is right")
                }
            )*

            /// The names of all values.
            pub fn names() -> impl Iterator<Item = &'static str> {
                [
                    $( concat!(stringify!($time), "_ns"), )*
                    $( stringify!($number), )*
                    $( stringify!($default), )*
                ]
                .into_iter()
            }

            /// A value by its name in the file; times in nanoseconds.
            pub fn get(&self, name: &str) -> Option<f64> {
                match name {
                    $( concat!(stringify!($time), "_ns") => Some(self.$time as f64 / 1000.0), )*
                    $( stringify!($number) => Some(self.$number), )*
                    $( stringify!($default) => Some(self.$default), )*
                    _ => None,
                }
            }

            /// Sets a value by its name in the file, for sensitivity runs and fits.
            ///
            /// # Errors
            /// When there is no such value.
            pub fn set(&mut self, name: &str, value: f64) -> Result<(), super::ParameterError> {
                match name {
                    $( concat!(stringify!($time), "_ns") => self.$time = (value * 1000.0).round() as u64, )*
                    $( stringify!($number) => self.$number = value, )*
                    $( stringify!($default) => self.$default = value, )*
                    _ => return Err(super::ParameterError::Unknown {
                        file: self.name.clone(),
                        name: name.to_owned(),
                    }),
                }
                Ok(())
            }
        }

        #[cfg(test)]
        mod tests {
            #[test]
            fn files_are_right() {
                $( let parameters = super::$name::$file();
                   assert!(parameters.origins.iter().all(|origin| !origin.source.is_empty())); )*
            }
        }
    };
}
pub(super) use parameters;
