//! Which verdicts depend on guessed values: each value is halved and doubled, and the figures run again.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_sim::{Confidence, HostParameters, NicParameters, Origin, SwitchParameters};

use crate::caught::caught;
use crate::claims::id_of;
use crate::figure::{Effort, Figure, Findings, Setting};
use crate::freeze;
use crate::score::{Failed, Scorecard, Verdict};

/// A changed guess, and the verdicts that moved.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The changed value.
    pub setting: Setting,
    /// Its value in the file.
    pub was: f64,
    /// Claims whose verdict changed.
    pub claims: Vec<MovedClaim>,
    /// Figures that could not run with it; the verdicts of their claims are unknown.
    pub failed: Vec<Failed>,
}

/// Results of all changes.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Each value.
    pub moved: Vec<Moved>,
    /// Figures that could not run with the values of the files, and so were not run with others.
    pub failed: Vec<Failed>,
}

/// A claim whose verdict changed: its id, the verdict before and after, our value before and after.
pub type MovedClaim = (String, Verdict, Verdict, Option<f64>, Option<f64>);

/// All guessed values: the name of the file, the parameter, its value. Zeros are left out, as halving and doubling do
/// not change them.
pub fn guesses() -> Vec<Setting> {
    let mut found = Vec::new();
    let mut add = |of: &str, origins: &[Origin], get: &dyn Fn(&str) -> Option<f64>| {
        for origin in origins.iter().filter(|o| o.confidence == Confidence::Guess) {
            let value = get(&origin.name).unwrap_or(0.0);
            if value != 0.0 {
                found.push(Setting {
                    of: of.to_owned(),
                    name: origin.name.clone(),
                    value,
                });
            }
        }
    };
    for nic in [
        NicParameters::connectx_3(),
        NicParameters::connect_ib(),
        NicParameters::connectx_4_lx(),
        NicParameters::connectx_5(),
        NicParameters::connectx_6_dx(),
        NicParameters::bluefield_2(),
        NicParameters::e810(),
        NicParameters::p2100g(),
    ] {
        add(&nic.name, &nic.origins, &|name| nic.get(name));
    }
    for host in [
        HostParameters::xeon_e5_v4(),
        HostParameters::xeon_gold_5118(),
        HostParameters::epyc_7452(),
    ] {
        add(&host.name, &host.origins, &|name| host.get(name));
    }
    for switch in [
        SwitchParameters::sx6036(),
        SwitchParameters::sx1012(),
        SwitchParameters::sb7890(),
        SwitchParameters::z9264f(),
    ] {
        add(&switch.name, &switch.origins, &|name| switch.get(name));
    }
    found
}

/// Results of figures with some values.
struct Shown {
    rows: BTreeMap<String, (Verdict, Option<f64>)>,
    /// Names of each figure's rows.
    rows_of: BTreeMap<&'static str, BTreeSet<String>>,
    failed: Vec<Failed>,
}

/// Runs figures; one that panics does not affect the others.
fn show(figures: &[&'static Figure], effort: Effort) -> Shown {
    let mut failed = Vec::new();
    let mut results: Vec<(&'static Figure, Findings)> = Vec::new();
    for figure in figures {
        match caught(|| (figure.run)(effort)) {
            Ok(findings) => results.push((figure, findings)),
            Err(why) => failed.push(Failed {
                figure: figure.name.to_owned(),
                why,
            }),
        }
    }
    let rows_of = |(figure, findings): &(&'static Figure, Findings)| {
        let ids = findings.answers.iter().map(|answer| &answer.id);
        let ids = ids.flat_map(|id| [id.clone(), id_of(id).to_owned()]);
        (figure.name, ids.collect())
    };
    let rows = Scorecard::new(&results, &freeze::check()).rows.into_iter();
    Shown {
        rows: rows.map(|row| (row.id, (row.verdict, row.ours))).collect(),
        rows_of: results.iter().map(rows_of).collect(),
        failed,
    }
}

/// Runs the figures once as they are, and twice for each of the guessed values; reports each as soon as it is known. A
/// figure that panics does not affect the others.
///
/// # Errors
/// The error of `tell`, which ends the run.
pub fn run<E>(
    figures: &[&'static Figure],
    effort: Effort,
    guesses: &[Setting],
    mut tell: impl FnMut(&Moved) -> Result<(), E>,
) -> Result<Outcome, E> {
    let before = show(figures, effort);
    let ran = |figure: &&&'static Figure| before.rows_of.contains_key(figure.name);
    let figures: Vec<&'static Figure> = figures.iter().filter(ran).copied().collect();
    let mut all = Vec::new();
    for guess in guesses {
        for factor in [0.5, 2.0] {
            let setting = Setting {
                value: guess.value * factor,
                ..guess.clone()
            };
            // A few settings, leaked in a command that ends soon.
            let settings = Box::leak(Box::new([setting.clone()]));
            let after = show(&figures, Effort { settings, ..effort });
            let failed = after.failed.iter();
            let unknown: BTreeSet<&String> = failed
                .flat_map(|failed| &before.rows_of[failed.figure.as_str()])
                .collect();
            let claims = before
                .rows
                .iter()
                .filter(|(id, _)| !unknown.contains(id))
                .filter_map(|(id, (verdict, ours))| {
                    let (now, then) = after.rows.get(id)?;
                    (now != verdict).then(|| (id.clone(), *verdict, *now, *ours, *then))
                })
                .collect();
            let moved = Moved {
                setting,
                was: guess.value,
                claims,
                failed: after.failed,
            };
            tell(&moved)?;
            all.push(moved);
        }
    }
    Ok(Outcome {
        moved: all,
        failed: before.failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_has_a_guess_is_asked() {
        let guesses = guesses();
        for (file, text) in dunlin_sim::parameter_files() {
            if !text.contains("confidence = \"guess\"") {
                continue;
            }
            let named = |line: &str| {
                Some(
                    line.strip_prefix("name = \"")?
                        .strip_suffix('"')?
                        .to_owned(),
                )
            };
            let name = text.lines().find_map(named).expect("a name");
            assert!(
                guesses.iter().any(|guess| guess.of == name),
                "{file}: {name}"
            );
        }
    }

    #[test]
    fn every_guess_can_be_set() {
        let guesses = guesses();
        assert!(guesses.len() > 20, "{}", guesses.len());
        for guess in &guesses {
            let effort = Effort {
                settings: Box::leak(Box::new([Setting {
                    value: guess.value * 2.0,
                    ..guess.clone()
                }])),
                ..Effort::new(true, 1)
            };
            if guess.of == "ConnectX-5" {
                let nic = effort.nic(NicParameters::connectx_5());
                assert_eq!(nic.get(&guess.name), Some(guess.value * 2.0), "{guess:?}");
            }
        }
    }
}
