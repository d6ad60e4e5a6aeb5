//! Definition of a figure of a paper: a set-up, a sweep, a metric, and the claims that it answers.

use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

use crate::claims::{claims, use_of, Use};

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// Results of a run of a figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Label of the horizontal axis.
    pub x: String,
    /// Whether it is logarithmic.
    pub log_x: bool,
    /// Label of the vertical axis.
    pub y: String,
    /// Lines.
    pub series: Vec<Series>,
    /// Answers to claims.
    pub answers: Vec<Answer>,
}

impl Findings {
    /// Creates empty findings with these labels.
    pub fn new(x: &str, y: &str, log_x: bool) -> Self {
        Self {
            x: x.to_owned(),
            y: y.to_owned(),
            log_x,
            ..Self::default()
        }
    }

    /// Adds a line.
    pub fn line(&mut self, name: &str, points: Vec<(f64, f64)>) {
        self.series.push(Series {
            name: name.to_owned(),
            points,
        });
    }

    /// Adds an answer; it is within when `ours` is between the two bounds.
    pub fn answer(&mut self, id: &str, paper: &str, ours: f64, bounds: (f64, f64), why: &str) {
        self.answers.push(Answer {
            id: id.to_owned(),
            paper: paper.to_owned(),
            ours,
            bounds,
            within: (bounds.0..=bounds.1).contains(&ours),
            why: why.to_owned(),
            seeds: Seeds {
                count: 1,
                least: ours,
                most: ours,
            },
        });
    }
}

/// The spread of an answer over several seeds of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Seeds {
    /// Number of seeds.
    pub count: usize,
    /// The least of our values.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

/// Combines the answers of runs with several seeds: ours is the median (the lower one of two), for calibrating rows the
/// mean, with the least and the greatest beside it. A parameter that is fitted to a row applies to all seeds, so a row
/// is judged by all of them: which contexts collide in a NIC's cache, which the seed determines, moves the READ sweeps
/// by more than their median shows. If one seed has no value there is none: the others do not replace it. Lines are
/// those of the first run.
pub fn merged(runs: Vec<Findings>) -> Findings {
    let mut runs = runs.into_iter();
    let Some(mut all) = runs.next() else {
        return Findings::default();
    };
    let others: Vec<Findings> = runs.collect();
    let claims = claims();
    for answer in &mut all.answers {
        let same = |run: &Findings| {
            let found = run.answers.iter().find(|other| other.id == answer.id);
            found.map(|other| other.ours)
        };
        let mut ours: Vec<f64> = others.iter().filter_map(same).collect();
        ours.push(answer.ours);
        if ours.iter().any(|value| value.is_nan()) {
            answer.ours = f64::NAN;
            answer.within = false;
            continue;
        }
        ours.sort_by(f64::total_cmp);
        answer.ours = match use_of(&claims, &answer.id) {
            Use::Calibrate => ours.iter().sum::<f64>() / ours.len() as f64,
            _ => ours[(ours.len() - 1) / 2],
        };
        answer.within = (answer.bounds.0..=answer.bounds.1).contains(&answer.ours);
        answer.seeds = Seeds {
            count: ours.len(),
            least: ours[0],
            most: ours[ours.len() - 1],
        };
    }
    all
}

/// A claim of a paper and our result.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The claim's id in `claims.csv`, or the measurement's name.
    pub id: String,
    /// The paper's value.
    pub paper: String,
    /// Our value.
    pub ours: f64,
    /// Bounds within which our value agrees with the paper's.
    pub bounds: (f64, f64),
    /// Whether it is within the bounds.
    pub within: bool,
    /// What was measured, and for a miss what is known about the reason.
    pub why: String,
    /// The spread over seeds.
    pub seeds: Seeds,
}

/// The amount of work of a run, and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Seed of the clusters.
    pub seed: u64,
    /// Run fewer points and shorter windows.
    pub quick: bool,
    /// Number of real threads.
    pub threads: usize,
    /// Parameters that differ from the files; none when claims are judged.
    pub settings: &'static [Setting],
    /// A NIC that replaces all others; none when claims are judged.
    pub nic: Option<&'static NicParameters>,
}

/// A parameter that differs from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The NIC, host or switch by the name of its file; `nic`, `cpu` or `switch` for all.
    pub of: String,
    /// The parameter.
    pub name: String,
    /// Its value, as in the file.
    pub value: f64,
}

impl Effort {
    /// Creates an effort with the parameters of the files.
    pub fn new(quick: bool, threads: usize) -> Self {
        Self {
            quick,
            threads,
            seed: 1,
            settings: &[],
            nic: None,
        }
    }

    /// The settings for one name, and for all of its kind.
    fn settings_of(self, name: &str, kind: &str) -> Vec<&'static Setting> {
        let settings = self.settings.iter();
        let meant = |setting: &&Setting| setting.of == name || setting.of == kind;
        settings.filter(meant).collect()
    }

    /// Whether hosts, NICs and switches are those of the paper.
    pub fn is_of_papers(&self) -> bool {
        self.nic.is_none() && self.settings.is_empty()
    }

    /// This NIC, or the one that replaces it, with the settings for it.
    ///
    /// # Panics
    /// When it has no parameter of that name.
    pub fn nic(&self, nic: NicParameters) -> NicParameters {
        let mut nic = self.nic.cloned().unwrap_or(nic);
        for setting in self.settings_of(&nic.name, "nic") {
            nic.set(&setting.name, setting.value).expect("a parameter");
        }
        nic
    }

    /// This host with the settings for it.
    ///
    /// # Panics
    /// When it has no parameter of that name.
    pub fn host(&self, mut host: HostParameters) -> HostParameters {
        for setting in self.settings_of(&host.name, "cpu") {
            host.set(&setting.name, setting.value).expect("a parameter");
        }
        host
    }

    /// This switch with the settings for it.
    ///
    /// # Panics
    /// When it has no parameter of that name.
    pub fn switch(&self, mut switch: SwitchParameters) -> SwitchParameters {
        for setting in self.settings_of(&switch.name, "switch") {
            switch
                .set(&setting.name, setting.value)
                .expect("a parameter");
        }
        switch
    }
}

/// A figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name on the command line.
    pub name: &'static str,
    /// The paper and the figure.
    pub title: &'static str,
    /// What the paper says.
    pub says: &'static str,
    /// The function that runs it.
    pub run: fn(Effort) -> Findings,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_seeds_give_the_median_and_the_ends() {
        let run_of = |id, ours| {
            let mut findings = Findings::default();
            findings.answer(id, "about 1", ours, (0.5, 2.0), "a number");
            findings
        };
        let run = |ours| run_of("RB-004", ours);
        let all = merged(vec![run(9.0), run(1.0), run(0.4)]);
        let answer = &all.answers[0];
        assert_eq!((answer.ours, answer.within), (1.0, true));
        let seeds = answer.seeds;
        assert_eq!((seeds.count, seeds.least, seeds.most), (3, 0.4, 9.0));
        assert!(!merged(vec![run(9.0), run(1.0), run(9.0)]).answers[0].within);
        for gap in [
            [1.0, f64::NAN, f64::NAN],
            [f64::NAN, 1.0, 1.0],
            [1.0, 1.0, f64::NAN],
        ] {
            let answer = &merged(gap.map(run).to_vec()).answers[0];
            assert!(answer.ours.is_nan() && !answer.within, "{gap:?}");
        }
        for calibrating in ["SR-004 at 10", "calibration.csv ConnectX-3"] {
            let run = |ours| run_of(calibrating, ours);
            let answer = &merged(vec![run(5.0), run(1.0), run(0.6)]).answers[0];
            assert!((answer.ours - 2.2).abs() < 1e-9 && !answer.within);
            assert_eq!((answer.seeds.least, answer.seeds.most), (0.6, 5.0));
        }
    }
}
