//! The format of parameter files, and reading them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Confidence in a value.
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

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The parameter's name in the file.
    pub name: String,
    /// Paper, repository or data sheet, or the argument.
    pub source: String,
    /// Confidence in the value.
    pub confidence: Confidence,
}

/// Why a parameter file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Path of the file.
        path: String,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The file is malformed.
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
    /// A value is not a finite number, or below its minimum.
    #[error(
        "parameter file {file}: `{name}` is {value}, which is no finite number from {least} up"
    )]
    Range {
        /// Name of the NIC, host or switch.
        file: String,
        /// Name of the value.
        name: &'static str,
        /// The value.
        value: f64,
        /// The minimum.
        least: f64,
    },
}

/// The minimum of a parameter. Divisors in the model must not be zero.
pub(super) fn least(name: &str) -> f64 {
    match name {
        // A megabit, or a megabyte, per second.
        "link_gbit_s" | "pcie_gbyte_s" | "memory_gbyte_s" => 0.001,
        "mtu_bytes" | "pcie_chunk_bytes" | "page_bytes" => 1.0,
        "context_sets" | "context_ways" | "responder_sets" | "responder_ways" => 1.0,
        "wqe_sets" | "wqe_ways" | "translation_sets" | "translation_ways" => 1.0,
        "completion_ways" | "llc_slices" | "llc_sets" | "llc_ways" => 1.0,
        _ => 0.0,
    }
}

/// Checks that a parameter may have a value.
pub(super) fn check(file: &str, name: &'static str, value: f64) -> Result<(), ParameterError> {
    let least = least(name);
    if value.is_finite() && value >= least {
        return Ok(());
    }
    Err(ParameterError::Range {
        file: file.to_owned(),
        name,
        value,
        least,
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Value {
    value: f64,
    source: String,
    confidence: Confidence,
}

/// The parsed text of a file.
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
        check(&self.name, name, value)?;
        self.origins.push(Origin {
            name: name.to_owned(),
            source,
            confidence,
        });
        Ok(value)
    }

    /// Takes an optional value.
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

/// Defines a structure of parameters and its reader: `times` are in nanoseconds in the file and in picoseconds here;
/// `defaults` are numbers that a file may omit.
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
            /// Name of the NIC, host or switch.
            pub name: String,
            $( $(#[$time_doc])* pub $time: u64, )*
            $( $(#[$number_doc])* pub $number: f64, )*
            $( $(#[$default_doc])* pub $default: f64, )*
            /// The source of each value.
            pub origins: Vec<super::Origin>,
        }

        impl $name {
            /// The compiled-in files: name and text.
            pub(super) const FILES: &[(&str, &str)] = &[
                $( ($path, include_str!(concat!("../../params/", $path))), )*
            ];

            /// Parses the text of a parameter file.
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
            /// Those of [`Self::parse`], and when the file cannot be read.
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

            /// Names of all values.
            pub fn names() -> impl Iterator<Item = &'static str> {
                [
                    $( concat!(stringify!($time), "_ns"), )*
                    $( stringify!($number), )*
                    $( stringify!($default), )*
                ]
                .into_iter()
            }

            /// The value with this name in the file; times in nanoseconds.
            pub fn get(&self, name: &str) -> Option<f64> {
                match name {
                    $( concat!(stringify!($time), "_ns") => Some(self.$time as f64 / 1000.0), )*
                    $( stringify!($number) => Some(self.$number), )*
                    $( stringify!($default) => Some(self.$default), )*
                    _ => None,
                }
            }

            /// The minimum of the value with this name in the file.
            pub fn least(name: &str) -> f64 {
                super::file::least(name)
            }

            /// Sets the value with this name in the file, for sensitivity runs and fits.
            ///
            /// # Errors
            /// When there is no such value, and when it is out of range.
            pub fn set(&mut self, name: &str, value: f64) -> Result<(), super::ParameterError> {
                if let Some(known) = Self::names().find(|known| *known == name) {
                    super::file::check(&self.name, known, value)?;
                }
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

#[cfg(test)]
mod tests {
    use crate::parameters::{HostParameters, NicParameters, ParameterError, SwitchParameters};

    /// Divisors in the model: neither a file nor a caller can set them to zero.
    #[test]
    fn a_divisor_is_not_zero() {
        let zero = |error: Result<(), ParameterError>| matches!(error, Err(ParameterError::Range { least, .. }) if least > 0.0);
        let mut nic = NicParameters::connectx_3();
        for name in [
            "mtu_bytes",
            "pcie_chunk_bytes",
            "link_gbit_s",
            "pcie_gbyte_s",
            "context_sets",
            "completion_ways",
        ] {
            let before = nic.get(name);
            assert!(zero(nic.set(name, 0.0)), "{name}");
            assert_eq!(nic.get(name), before);
        }
        let mut host = HostParameters::xeon_e5_v4();
        for name in [
            "llc_slices",
            "llc_sets",
            "llc_ways",
            "memory_gbyte_s",
            "page_bytes",
        ] {
            assert!(zero(host.set(name, 0.0)), "{name}");
        }
        let text = include_str!("../../params/connectx-5.toml");
        let wrong = text.replace("mtu_bytes = { value = 4096.0", "mtu_bytes = { value = 0.0");
        assert_ne!(text, wrong);
        assert!(zero(NicParameters::parse(&wrong).map(drop)));
    }

    #[test]
    fn others_may_be_zero_and_none_is_less_or_endless() {
        let mut switch = SwitchParameters::z9264f();
        switch.set("ecn_min_bytes", 0.0).expect("nothing is marked");
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            let refused = switch.set("ecn_min_bytes", value);
            assert!(
                matches!(refused, Err(ParameterError::Range { .. })),
                "{value}"
            );
        }
    }
}
