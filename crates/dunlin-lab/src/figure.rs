//! What a figure of a paper is here: a set-up, a sweep, a metric, and the claims that it answers.

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// What a run of a figure gave.
#[derive(Clone, Debug, Default)]
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
    /// With labels.
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

    /// Adds an answer; it is within when `ours` lies between the two bounds.
    pub fn answer(
        &mut self,
        id: &'static str,
        paper: &str,
        ours: f64,
        bounds: (f64, f64),
        why: &str,
    ) {
        self.answers.push(Answer {
            id,
            paper: paper.to_owned(),
            ours,
            bounds,
            within: (bounds.0..=bounds.1).contains(&ours),
            why: why.to_owned(),
        });
    }
}

/// A claim of a paper and what we found.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The claim's id in `claims.csv`, or the measurement's name.
    pub id: &'static str,
    /// The paper's value.
    pub paper: String,
    /// Ours.
    pub ours: f64,
    /// Between which our value agrees with the paper's.
    pub bounds: (f64, f64),
    /// Whether it does.
    pub within: bool,
    /// What was measured, and for a miss what is known of its reason.
    pub why: String,
}

/// How much to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Fewer points and shorter windows.
    pub quick: bool,
    /// Real threads.
    pub threads: usize,
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
    /// Runs it.
    pub run: fn(Effort) -> Findings,
}
