//! The keys for what is run, printed, plotted and expected.

use super::{key, LONGEST_NS, TIME_OR_ZERO};
use crate::experiment::schema::{Kind, Need, Section};
use crate::experiment::unit::{SHARE, TIME};

/// The experiment itself.
pub(super) const NAME: Section = Section {
    name: "",
    many: false,
    needed: true,
    keys: &[
        key(
            "title",
            Kind::Text,
            Need::Or("the name of the file"),
            "What the experiment is called.",
        ),
        key(
            "says",
            Kind::Text,
            Need::Or("nothing"),
            "What is said of it elsewhere, in a paper: printed beside it.",
        ),
    ],
};

/// Duration and repeats.
pub(super) const RUN: Section = Section {
    name: "run",
    many: false,
    needed: false,
    keys: &[
        key(
            "seed",
            Kind::Count(0, 1 << 53),
            Need::Default("1"),
            "Seed of the first run; a repeat takes the next.",
        ),
        key(
            "warm_up",
            TIME_OR_ZERO,
            Need::Default("500us"),
            "Before anything is counted.",
        ),
        key(
            "duration",
            Kind::Quantity(TIME, 1e3, 1e11),
            Need::Default("1ms"),
            "What is counted.",
        ),
        key(
            "paced",
            TIME_OR_ZERO,
            Need::Or("threads stand by until all have connected"),
            "From their connection on threads make a call every 250 us, and for so long when all have \
             connected; then time zero is. Schedulers (FLOCK) have seen all of them by then.",
        ),
        key(
            "settle",
            Kind::Quantity(SHARE, 0.0, 1.0),
            Need::Or("one `duration`"),
            "Durations follow each other until the rate changes by less than this share; the last counts.",
        ),
        key(
            "windows",
            Kind::Count(1, 1000),
            Need::Default("8"),
            "`settle`: so many durations at most.",
        ),
        key(
            "repeats",
            Kind::Count(1, 1000),
            Need::Default("1"),
            "Runs of each point, each by another seed.",
        ),
    ],
};

/// Columns printed.
pub(super) const PRINT: Section = Section {
    name: "print",
    many: false,
    needed: false,
    keys: &[
        key(
            "columns",
            Kind::Texts,
            Need::Or(
                "`rate`, `p50`, `p99`, `failed`, and of flows `fct_p50`, `fct_p99`, `unfinished`",
            ),
            "What is printed of each point.",
        ),
        key(
            "every",
            Kind::Quantity(TIME, 1e3, LONGEST_NS),
            Need::Or("no time series"),
            "Prints the columns of each such piece of the duration, too.",
        ),
    ],
};

/// The plot.
pub(super) const PLOT: Section = Section {
    name: "plot",
    many: false,
    needed: false,
    keys: &[
        key(
            "x",
            Kind::Text,
            Need::Or("the key of the sweep whose values are numbers"),
            "A key of the sweep, a column, or `time` where there is `print.every`.",
        ),
        key(
            "y",
            Kind::Text,
            Need::Or("the first column"),
            "A column. Each value of the other keys of the sweep is a line.",
        ),
        key(
            "line",
            Kind::Text,
            Need::Or("those values, with commas"),
            "What a line is called: a text with keys of the sweep in braces, as `{clients.threads} threads`.",
        ),
        key(
            "x_label",
            Kind::Text,
            Need::Or("`x`"),
            "What stands at the horizontal axis.",
        ),
        key(
            "y_label",
            Kind::Text,
            Need::Or("`y`"),
            "What stands at the vertical axis.",
        ),
        key(
            "log_x",
            Kind::Flag,
            Need::Default("false"),
            "Whether the horizontal axis is logarithmic.",
        ),
        key(
            "only_lines",
            Kind::Flag,
            Need::Default("false"),
            "Whether only the lines of `[[plot.lines]]` are drawn, and none of `y`.",
        ),
    ],
};

/// Lines in addition to those of `y`.
pub(super) const LINES: Section = Section {
    name: "plot.lines",
    many: true,
    needed: false,
    keys: &[
        key(
            "name",
            Kind::Text,
            Need::Must,
            "What a line beside those is called.",
        ),
        key(
            "value",
            Kind::Text,
            Need::Must,
            "What it shows: an expression that has a value for each value of `x`.",
        ),
    ],
};

/// Cases.
pub(super) const CASES: Section = Section {
    name: "cases",
    many: true,
    needed: false,
    keys: &[
        key(
            "name",
            Kind::Text,
            Need::Must,
            "What the case is called. All other keys of the table are keys of the experiment, which have this \
             value in this case.",
        ),
        key(
            "label",
            Kind::Text,
            Need::Or("`name`"),
            "What plots call it.",
        ),
    ],
};

/// Expectations.
pub(super) const EXPECT: Section = Section {
    name: "expect",
    many: true,
    needed: false,
    keys: &[
        key(
            "name",
            Kind::Text,
            Need::Must,
            "What the expectation is called.",
        ),
        key(
            "value",
            Kind::Text,
            Need::Must,
            "An expression of columns that is one number.",
        ),
        key(
            "least",
            Kind::Any,
            Need::Or("no bound"),
            "The least that it is to be.",
        ),
        key("most", Kind::Any, Need::Or("no bound"), "The most."),
        key(
            "says",
            Kind::Text,
            Need::Or("nothing"),
            "The value that a paper, or somebody else, has of it.",
        ),
        key(
            "why",
            Kind::Text,
            Need::Or("`value`"),
            "What it is, in words.",
        ),
        key(
            "quick",
            Kind::Flag,
            Need::Default("false"),
            "Whether it can be judged by the quick points, too.",
        ),
    ],
};
